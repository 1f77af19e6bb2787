"""From records to a summary: trials of one cell together, and what was not run or failed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from riskad.bench.experiment import identity_key
from riskad.bench.paper import published
from riskad.bench.records import FAILED, NOT_RUN, OK, SKIPPED
from riskad.bench.summary import (
    KNOWN_SETS,
    METHOD_NAMES,
    TABLE_KEYS,
    TABLE_PROTOCOL,
    CellSummary,
    NotRun,
    Record,
    Remark,
    Summary,
    TrialMean,
    order_in,
    report_name,
    variant_order,
)

__all__ = ["summarise"]


def summarise(records: Iterable[Record]) -> Summary:
    """Summarise records: cells, what was not run, what failed and what warned.

    A cell recorded twice counts once, as it was recorded last.
    """
    records = [{**row, "experiment": report_name(row["experiment"])} for row in records]
    tried = _unique(row for row in records if row["status"] != NOT_RUN)
    trials = [row for row in tried if row["status"] != SKIPPED]
    groups = defaultdict(list)
    for row in trials:
        groups[_cell_key(row)].append(row)
    return Summary(
        cells=tuple(sorted(map(_make_cell, groups.values()), key=_cell_order)),
        not_run=_not_run(records, trials, "dataset"),
        absent=_not_run(records, tried, "method"),
        skipped=_remarks((row, row["reason"]) for row in tried if row["status"] == SKIPPED),
        failures=_remarks((row, row["reason"]) for row in trials if row["status"] == FAILED),
        warnings=_remarks((row, text) for row in trials for text in row.get("warnings", [])),
        versions=_seen(trials, "versions"),
        commits=_seen(trials, "commit"),
        peers=_seen(trials, "peer"),
        roots=_seen(trials, "root"),
    )


def _cell_key(row: Record) -> tuple[str, float | None]:
    return _trial_key(dict(row) | {"trial": None, "root": None})


def _trial_key(row: Record) -> tuple[str, float | None]:
    """What tells trials apart; only experiments on images set the share of anomalies."""
    return identity_key(row), row.get("anomaly_rate")


def _unique(rows: Iterable[Record]) -> list[Record]:
    """One row for each identity, the last."""
    return list({_trial_key(row): row for row in rows}.values())


def _make_cell(rows: Sequence[Record]) -> CellSummary:
    first = rows[0]
    good = [row for row in rows if row["status"] == OK]
    names = ("estimator", "anomaly_rate", "data", *TABLE_PROTOCOL)
    protocol = {name: first[name] for name in names if first.get(name) is not None}
    as_in_paper = "data" not in protocol and all(
        protocol.get(name, value) == value for name, value in TABLE_PROTOCOL.items()
    )
    place = (first["experiment"], first["dataset"], first["method"], first["settings"])
    seconds = TrialMean.of([row["fit_seconds"] for row in good])
    return CellSummary(
        *place,
        protocol=protocol,
        n_ok=len(good),
        n_failed=len(rows) - len(good),
        auc=TrialMean.of([row["auc"] for row in good]),
        average_precision=TrialMean.of([row["average_precision"] for row in good]),
        fit_seconds=seconds.mean if seconds else None,
        published=published(*place, first.get("anomaly_rate")) if as_in_paper else None,
        aucs=_by_trial(good, "auc"),
        precisions=_by_trial(good, "average_precision"),
        seconds=_by_trial(good, "fit_seconds"),
        roc=_mean_curve([row["roc"] for row in good if "roc" in row]),
        n_rows=first["n_train"] + first["n_test"] if "n_train" in first else None,
    )


def _by_trial(rows: Sequence[Record], key: str) -> dict[tuple[int, int], float]:
    return {(row["root"], row["trial"]): row[key] for row in rows}


def _mean_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...] | None:
    return tuple(map(fmean, zip(*curves, strict=True))) or None


def _cell_order(cell: CellSummary) -> tuple[Any, ...]:
    return (
        *order_in(cell.experiment, TABLE_KEYS),
        *order_in(cell.dataset, KNOWN_SETS),
        *variant_order(cell),
    )


def _not_run(records: Iterable[Record], trials: Iterable[Record], what: str) -> tuple[NotRun, ...]:
    """Datasets or methods that could not be had and of which there is still no trial."""
    run = {(row["experiment"], row[what]) for row in trials}
    missing = {}
    for row in records:
        place = row["experiment"], row.get(what, "")
        if row["status"] == NOT_RUN and what in row and place not in run:
            missing[place] = NotRun(*place, row.get("reason", ""))
    order = sorted(missing, key=lambda place: (place[0], *order_in(place[1], KNOWN_SETS)))
    return tuple(missing[place] for place in order)


def _remarks(remarks: Iterable[tuple[Record, str]]) -> tuple[Remark, ...]:
    """Group rows by experiment and by what is said of them, the most frequent first."""
    groups = defaultdict(list)
    for row, text in remarks:
        groups[row["experiment"], _gist(text)].append((row, text))
    made = [_remark(experiment, said) for (experiment, _), said in groups.items()]
    return tuple(sorted(made, key=lambda remark: (remark.experiment, -remark.count, remark.text)))


def _remark(experiment: str, said: Sequence[tuple[Record, str]]) -> Remark:
    rows = {id(row): row for row, _ in said}.values()  # a trial may say the like twice
    texts = Counter(text for _, text in said)
    return Remark(
        experiment,
        min(texts, key=lambda text: (-texts[text], text)),
        len(texts),
        _count((row["method"] for row in rows), METHOD_NAMES),
        _count((row["dataset"] for row in rows), KNOWN_SETS),
    )


_NUMBER = r"[-+]?\b\d[\d.,]*(?<![.,])(?:e[-+]?\d+)?\b"
_QUOTED = r"(?<!=)(?:'[^']*'|\"[^\"]*\")"  # after "=" stands a setting, which tells texts apart
_ITEM = rf"(?:{_NUMBER}|{_QUOTED})"
_ITEMS = re.compile(rf"{_ITEM}(?:, {_ITEM})*(?: and {_ITEM}(?: more)?)?")


def _gist(text: str) -> str:
    """A message without its numbers and lists.

    >>> _gist("2 column(s) hold a single value: 0, 39.")
    '# column(s) hold a single value: #.'
    >>> _gist("25 column(s) hold a single value: 'a', 'b' and 17 more.")
    '# column(s) hold a single value: #.'
    >>> _gist("lam='cv' stopped at 1.5e-03")
    "lam='cv' stopped at #"
    """
    return _ITEMS.sub("#", text)


def _count(names: Iterable[str], known: Iterable[str]) -> dict[str, int]:
    counts = Counter(names)
    return {name: counts[name] for name in sorted(counts, key=lambda name: order_in(name, known))}


def _seen(rows: Iterable[Record], key: str) -> dict[str, tuple[Any, ...]]:
    """What a key holds, for each experiment."""
    seen = defaultdict(set)
    for row in rows:
        if row.get(key) is not None:
            seen[row["experiment"]].add(row[key])
    return {experiment: tuple(sorted(values)) for experiment, values in sorted(seen.items())}
