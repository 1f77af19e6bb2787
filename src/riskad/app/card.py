"""A model card: one page of Markdown with the contents of a model file, for its users."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from riskad.app.inspect import ModelReport
from riskad.app.report.wording import quality_lines, rate_line
from riskad.core.labels import LabelCounts
from riskad.metrics.ranking import Auc
from riskad.storage.files import atomic_path

__all__ = ["make_card", "write_card"]

_FEW = 10
_MOST_COLUMNS = 30
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!$&])")


def make_card(report: ModelReport, name: str) -> str:
    """Return the card of a model.

    Parameters
    ----------
    report
        Result of `riskad.app.inspect.describe_model` for the model.
    name
        Name of its file.

    Returns
    -------
    str
        Markdown. Texts from the data are escaped, so that no column name becomes markup.

    Examples
    --------
    >>> import numpy as np
    >>> from riskad.app.inspect import describe_model
    >>> from riskad.app.model_files import make_header
    >>> from riskad.detectors.shallow import ShallowRAD
    >>> X, y = np.array([[0.0], [1.0], [8.0], [0.5]]), np.array([1, 1, -1, 0])
    >>> model = ShallowRAD().fit(X, y)
    >>> card = make_card(describe_model(model, make_header(model, {})), "model.riskad")
    >>> card.splitlines()[0]
    '# model.riskad'
    """
    sections = {
        "What it is": _model(report),
        "Data": _data(report.training),
        "Quality": _quality(report.training),
        "Decisions": _decisions(report),
        "Limits": _limits(report),
    }
    lines = [f"# {_plain(name)}"]
    for title, said in sections.items():
        lines += ["", f"## {title}", "", *(f"- {line[:1].upper()}{line[1:]}" for line in said)]
    return "\n".join(lines) + "\n"


def write_card(
    report: ModelReport, name: str, path: str | os.PathLike[str], force: bool = False
) -> None:
    """Write the card of a model atomically."""
    with atomic_path(path, force) as part:
        part.write_text(make_card(report, name), encoding="utf-8")


def _plain(text: Any) -> str:
    """A text of the data as Markdown that shows it unchanged, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def _model(report: ModelReport) -> Iterator[str]:
    yield f"{', then '.join(report.steps)}; written {_plain(report.header.created)}"
    yield from map(_plain, report.said)
    versions = report.header.versions.items()
    yield "Versions: " + ", ".join(
        f"{_plain(each)} {_plain(version)}" for each, version in versions
    )


def _data(training: dict[str, Any]) -> Iterator[str]:
    if not training:
        yield "Not known: the model was saved from Python, not made by `riskad fit`."
        return
    counts = training["labels"]
    yield f"{training['rows']:,} rows of {_plain(training['source'])}"
    yield (
        f"Labels in column {_plain(training['label'])}: {counts['normal']:,} normal, "
        f"{counts['anomaly']:,} anomalies, {counts['unlabelled']:,} unlabelled"
    )
    columns = list(training["columns"].items())
    shown = ", ".join(f"{_plain(each)} ({_plain(kind)})" for each, kind in columns[:_MOST_COLUMNS])
    more = f" and {len(columns) - _MOST_COLUMNS:,} more" if len(columns) > _MOST_COLUMNS else ""
    yield f"Columns: {shown}{more}"
    yield from map(_plain, training["preparation"])


def _quality(training: dict[str, Any]) -> Iterator[str]:
    if not training:
        yield "Not known."
        return
    auc = None if training["auc"] is None else Auc(**training["auc"])
    told = training["why_no_auc"], training["evidence"], LabelCounts(**training["labels"])
    yield from map(_plain, quality_lines(auc, *told))
    effects = ", ".join(
        f"{_plain(each['column'])} ({_plain(each['suspicious'])})" for each in training["effects"]
    )
    if effects:
        yield f"Columns that move the score most, with suspicious values: {effects}"


def _decisions(report: ModelReport) -> Iterator[str]:
    decision, training = report.decision, report.training
    if decision:
        yield (
            f"A row is flagged if its anomaly score exceeds {decision['threshold']:.4g} "
            f"(rule {_plain(decision['rule'])})"
        )
    rate = rate_line(decision.get("rate"), decision.get("rate_rests_on", ""))
    yield from map(_plain, rate or ["the anomaly rate of the unlabelled rows is not known"])
    if training:
        yield f"{training['unlabelled_flagged']:,} unlabelled training rows are flagged"


def _limits(report: ModelReport) -> Iterator[str]:
    training = report.training
    anomalies = training["labels"]["anomaly"] if training else report.decision.get("anomalies", 0)
    if anomalies < _FEW:
        yield f"{anomalies} labelled anomalies are few: intervals are wide, decisions uncertain"
    yield "The model knows the kinds of anomaly that were labelled; others may rank low"
    yield (
        "Rate, probabilities and threshold hold for rows like the training rows; `riskad drift` "
        "says whether new rows differ"
    )
    yield from map(_plain, training.get("warnings", []))
    if report.kept_rows:
        yield (
            f"The file holds {report.kept_rows:,} training rows: share it only with people who may "
            "see them"
        )
    else:
        yield "The file holds no training row, but names, levels and quantiles of columns"
