"""AutoRAD beside boosted trees and extra trees, by share of labels, on the kept tables.

    python -m benchmarks.learning_curves run TABLES.npz [--method AutoRAD] [--jobs 2]
    RISKAD_DATA=... python -m benchmarks.learning_curves run sets
    python -m benchmarks.learning_curves large
    python -m benchmarks.learning_curves summary

The kept tables are those of `results/pretrained/split.json`, named by hashes. Of each, 70 % of the
rows are fitted to, and the others (4,000 at most) are test rows. A share of the former, drawn at
random, keeps its labels; with "few" it is 5 % of the normal rows and one to three anomalies.
Tables of which no anomaly or fewer than two normal rows are labelled are left out. AutoRAD reads
all rows; its peers learn from the labelled ones. All have their own settings, but LightGBM leaves
of five rows (of twenty it cannot learn from few labels) and extra trees 300 trees. A run goes on
where its records end: 5 % in all tables, the others in every second one, then in more. A cell
counts once all methods have been run on it; to run one of them again, delete its records.

"sets" are the paper's: one split of each, in the same way.

`before` is AutoRAD at commit 5f229b5 on the same splits. Its figures were made of the scores that
its members gave to test rows:

    python -m benchmarks.learning_curves before FOLDER

"large" is a made-up table with 100,000 labelled rows and none unlabelled.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.pretraining.split import name_hash, side
from riskad import AutoRAD
from riskad.bench.canvas import BLUE, GREEN, GREY, ORANGE, draw, legend_below, panels, write_svgs
from riskad.bench.experiment import built_in, load_experiment
from riskad.bench.provenance import provenance
from riskad.core.checks import InputError
from riskad.datasets import load_adbench

FIELD = Path(__file__).parents[1] / "results" / "field"
SPLIT = FIELD.parent / "pretrained" / "split.json"
SETTINGS = ("few", "0.01", "0.05", "0.1", "0.2", "0.5", "1.0")
FIRST, LATER = "0.05", ("few", "1.0", "0.2", "0.01", "0.5", "0.1")
METRICS = ("AUC", "average precision")
SETS = "sets"
BEFORE = "5f229b5"
MOST_TESTED = 4_000
LARGE, LARGE_TESTED, LARGE_COLUMNS, LARGE_RATE = 100_000, 5_000, 30, 0.08

PEER_MARGIN = 0.001  # below the best peer, at most
GAIN = (0.008, 0.015)  # over AutoRAD before, at 5 %
LOSS = 0.002  # below AutoRAD before elsewhere, at most


# --- methods ------------------------------------------------------------------------------


def auto_rad(X: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    return AutoRAD().fit(X, codes).anomaly_score(new)


def catboost(X: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    from catboost import CatBoostClassifier

    model = CatBoostClassifier(random_seed=0, thread_count=1, verbose=0, allow_writing_files=False)
    return classified(model, X, codes, new)


def lightgbm(X: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(min_child_samples=5, random_state=0, n_jobs=1, verbose=-1)
    return classified(model, X, codes, new)


def extra_trees(X: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    return classified(ExtraTreesClassifier(300, random_state=0), X, codes, new)


def classified(model: Any, X: np.ndarray, codes: np.ndarray, new: np.ndarray) -> np.ndarray:
    """The chance of an anomaly, learned from labelled rows."""
    known = codes != 0
    return model.fit(X[known], codes[known] == -1).predict_proba(new)[:, 1]


Method = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
METHODS: dict[str, Method] = {
    "AutoRAD": auto_rad,
    "CatBoost": catboost,
    "LightGBM": lightgbm,
    "ExtraTrees": extra_trees,
}
PEERS = tuple(METHODS)[1:]


# --- cells --------------------------------------------------------------------------------


def draw_labels(y: np.ndarray, setting: str, rng: np.random.Generator) -> np.ndarray:
    """+1 normal, -1 anomaly, 0 unlabelled."""
    n = len(y)
    if setting == "few":
        known = rng.random(n) < 0.05
        odd = rng.permutation(np.flatnonzero(y))
        known[y] = False
        known[odd[: rng.integers(1, 4)]] = True
    else:
        known = np.zeros(n, dtype=bool)
        known[rng.permutation(n)[: max(2, round(float(setting) * n))]] = True
    return np.where(known, np.where(y, -1, 1), 0)


def drawn(y: np.ndarray, setting: str, table: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows to fit to, test rows, and the labels of the former."""
    rng = np.random.default_rng([7, int(table[:8], 16)])
    order = rng.permutation(len(y))
    own, test = np.split(order, [int(0.7 * len(y))])
    return own, test[:MOST_TESTED], draw_labels(y[own], setting, rng)


def figures(truth: np.ndarray, scores: np.ndarray) -> list[float]:
    """AUC and average precision."""
    found = roc_auc_score(truth, scores), average_precision_score(truth, scores)
    return [round(float(value), 5) for value in found]


def judged(
    X: np.ndarray, codes: np.ndarray, new: np.ndarray, truth: np.ndarray, method: str
) -> list[float]:
    """AUC, average precision and processor seconds of a method."""
    start = time.process_time()
    scores = METHODS[method](X, codes, new)
    seconds = round(time.process_time() - start, 2)
    return [*figures(truth, scores), seconds]


def in_order(tables: list[str]) -> Iterator[tuple[str, str]]:
    """All cells, the most telling first; 1 % can be learned from in fewer tables than others."""
    yield from ((FIRST, table) for table in tables)
    odd = tables[1::2]
    for some in (tables[::2], odd[::4]):
        yield from ((setting, table) for setting in LATER for table in some)
    rest = [table for table in odd if table not in odd[::4]]
    later = sorted(LATER, key=lambda setting: setting != "0.01")
    yield from ((setting, table) for setting in later for table in rest)


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(source: str, file: Path, minutes: float, methods: Sequence[str], jobs: int) -> None:
    """Go on where the file ends, and begin nothing after so many minutes."""
    done = {(line["setting"], line["table"], line["method"]) for line in read_lines(file)}
    names = tables_of(source)
    work = [(*cell, method) for cell in in_order(sorted(names)) for method in methods]
    work = [one for one in work if one not in done]
    told = partial(_line, source, names, time.time() + 60 * minutes)
    with ProcessPoolExecutor(jobs) as pool, file.open("a") as opened:
        for line in pool.map(told, work):
            if line is not None:
                opened.write(json.dumps(line) + "\n")
                opened.flush()


def tables_of(source: str) -> dict[str, str]:
    """Names of tables, by what they are called in records: kept tables by their hashes."""
    if source == SETS:
        names = load_experiment(built_in("field")["field"]).datasets
        return {name: name for name in names if is_there(name)}
    with np.load(source) as data:
        names = side(SPLIT, [key[:-2] for key in data.files if key.endswith("|X")], "kept")
    return {name_hash(name): name for name in names}


def is_there(name: str) -> bool:
    """Whether a set of the paper can be read."""
    try:
        load_adbench(name)
    except InputError:
        return False
    return True


def rows_of(source: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a table, and which are anomalies."""
    if source == SETS:
        data = load_adbench(name)
        return np.asarray(data.X, dtype=float), np.asarray(data.y) == -1
    with np.load(source) as tables:
        return tables[f"{name}|X"].astype(float), tables[f"{name}|y"].astype(bool)


def _line(
    source: str, names: dict[str, str], until: float, what: tuple[str, str, str]
) -> dict[str, Any] | None:
    """The record of a method on one cell; None if it cannot be learned, or the time is over."""
    setting, table, method = what
    if time.time() > until:
        return None
    warnings.filterwarnings("ignore")
    X, y = rows_of(source, names[table])
    own, test, codes = drawn(y, setting, name_hash(names[table]))
    line: dict[str, Any] = {"setting": setting, "table": table, "method": method}
    for kind, code in (("anomalies", -1), ("normals", 1)):
        line[kind] = int((codes == code).sum())
    if line["anomalies"] < 1 or line["normals"] < 2:
        return None
    line["figures"] = judged(X[own], codes, X[test], y[test], method)
    libraries = () if method == "AutoRAD" else ("catboost",)
    return line | provenance("lightgbm", *libraries)


def by_cell(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each cell on which all methods have been run the figures of each."""
    cells: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for line in lines:
        cells[line["setting"], line["table"]][line["method"]] = line["figures"]
    return [
        {"setting": setting, "table": table, **found}
        for (setting, table), found in cells.items()
        if set(METHODS) <= set(found)
    ]


def made_up(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and which are anomalies: those where a sum of curves, products and noise is large.

    The sum is sin(2 x0) + x1 x2 + |x3| - x4² / 2 + x5 (x6 > 0) + e, with all columns and the noise
    2 e standard normal. The last 23 columns say nothing.
    """
    X = rng.normal(size=(n, LARGE_COLUMNS))
    law = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3])
    law += X[:, 5] * (X[:, 6] > 0) - X[:, 4] ** 2 / 2 + 0.5 * rng.normal(size=n)
    return X, law > np.quantile(law, 1 - LARGE_RATE)


def large() -> dict[str, Any]:
    """Every method but extra trees on many labelled rows."""
    X, y = made_up(LARGE + LARGE_TESTED, np.random.default_rng(7))
    codes = np.where(y[:LARGE], -1, 1)
    methods = ("AutoRAD", "CatBoost", "LightGBM")
    found = {m: judged(X[:LARGE], codes, X[LARGE:], y[LARGE:], m) for m in methods}
    return found | provenance("lightgbm", "catboost")


def before(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Figures of AutoRAD before, by setting and table: its members' weighted test scores."""
    found: dict[str, dict[str, list[float]]] = {}
    for setting in SETTINGS:
        with np.load(folder / f"rec_{setting}.npz") as data:
            tables = sorted({key.partition("/")[0] for key in data.files})
            found[setting] = {table: scored_before(data, table) for table in tables}
    return found


def scored_before(data: Any, table: str) -> list[float]:
    weights = json.loads(str(data[f"{table}/weights"]))
    normality = sum(
        weight * data[f"{table}/test|{member}"].astype(float)
        for member, weight in weights.items()
        if weight
    )
    return figures(data[f"{table}/y"].astype(bool), -normality)


# --- summary ------------------------------------------------------------------------------


def difference(ours: list[float], others: list[float]) -> tuple[float, float]:
    """The mean difference over tables and its standard error."""
    less = np.subtract(ours, others)
    return float(less.mean()), float(less.std(ddof=1) / np.sqrt(len(less)))


def summed_up(lines: list[dict[str, Any]], earlier: dict[str, Any]) -> list[dict[str, Any]]:
    """By setting and metric: means, the best peer, and AutoRAD less it and less AutoRAD before."""
    found = []
    for setting in SETTINGS:
        cells = [line for line in lines if line["setting"] == setting]
        old = earlier.get(setting, {})
        both = [line for line in cells if line["table"] in old]
        if len(cells) < 2:
            continue
        for place, metric in enumerate(METRICS):
            values = {method: [line[method][place] for line in cells] for method in METHODS}
            means = {method: float(np.mean(value)) for method, value in values.items()}
            best = max(PEERS, key=lambda peer: means[peer])
            now = [line["AutoRAD"][place] for line in both]
            row = {"setting": setting, "metric": metric, "tables": len(cells), "means": means}
            row |= {"best": best, "lead": difference(values["AutoRAD"], values[best])}
            if len(both) > 1:
                row["before"] = float(np.mean([old[line["table"]][place] for line in both]))
                row["gain"] = difference(now, [old[line["table"]][place] for line in both])
                row["wanted"] = GAIN[place] if setting == FIRST else -LOSS
            found.append(row)
    return found


def say_setting(setting: str) -> str:
    return "few" if setting == "few" else f"{float(setting):.0%}".replace("%", " %")


def say(difference: tuple[float, float]) -> str:
    return f"{difference[0]:+.4f} ({difference[1]:.4f})"


def met(value: float, wanted: float) -> str:
    return "yes" if round(value, 4) >= wanted else "no"


def means_table(rows: list[dict[str, Any]], metric: str) -> list[str]:
    text = [f"| labelled | tables | {' | '.join(METHODS)} | AutoRAD before |"]
    text.append("|---" * (len(METHODS) + 3) + "|")
    for row in rows:
        if row["metric"] == metric:
            means = " | ".join(f"{row['means'][method]:.4f}" for method in METHODS)
            start = f"| {say_setting(row['setting'])} | {row['tables']} |"
            text.append(f"{start} {means} | {row['before']:.4f} |")
    return text


def targets_table(rows: list[dict[str, Any]]) -> list[str]:
    text = [
        "| labelled | metric | less the best peer | wanted | met | less before | wanted | met |"
    ]
    text.append("|---" * 8 + "|")
    for row in rows:
        lead, gain, wanted = row["lead"], row["gain"], row["wanted"]
        text.append(
            f"| {say_setting(row['setting'])} | {row['metric']} | {say(lead)} {row['best']} | "
            f"{-PEER_MARGIN:+.3f} | {met(lead[0], -PEER_MARGIN)} | "
            f"{say(gain)} | {wanted:+.3f} | {met(gain[0], wanted)} |"
        )
    return text


def seconds_line(lines: list[dict[str, Any]]) -> str:
    parts = [f"{m} {np.median([line[m][2] for line in lines]):.1f}" for m in METHODS]
    return f"Median processor seconds of a fit and its test scores: {', '.join(parts)}."


def large_table(line: dict[str, Any]) -> list[str]:
    text = ["| method | AUC | average precision | processor seconds |", "|---|---|---|---|"]
    for method in METHODS:
        if method in line:
            auc, precision, seconds = line[method]
            text.append(f"| {method} | {auc:.4f} | {precision:.4f} | {seconds:.0f} |")
    return text


def large_verdict(line: dict[str, Any]) -> str:
    """AutoRAD less the best peer, by metric, and whether that is enough."""
    said = []
    for place, metric in enumerate(METRICS):
        best = max((peer for peer in PEERS if peer in line), key=lambda peer: line[peer][place])
        lead = line["AutoRAD"][place] - line[best][place]
        verdict = "met" if met(lead, -PEER_MARGIN) == "yes" else "missed"
        said.append(f"{metric} {lead:+.4f} ({best}; {verdict})")
    return f"`AutoRAD` less the best peer, at least {-PEER_MARGIN} wanted: {', '.join(said)}."


def sets_table(rows: list[dict[str, Any]]) -> list[str]:
    """Means of both metrics on the paper's sets, and AutoRAD less the best peer."""
    text = [f"| labelled | metric | sets | {' | '.join(METHODS)} | less the best peer | met |"]
    text.append("|---" * (len(METHODS) + 5) + "|")
    for row in rows:
        means = " | ".join(f"{row['means'][method]:.4f}" for method in METHODS)
        start = f"| {say_setting(row['setting'])} | {row['metric']} | {row['tables']} |"
        lead = f"{say(row['lead'])} {row['best']}"
        text.append(f"{start} {means} | {lead} | {met(row['lead'][0], -PEER_MARGIN)} |")
    return text


def page(lines: list[dict[str, Any]], sets: list[dict[str, Any]], kept: dict[str, Any]) -> str:
    """What `learning_curves.md` says."""
    rows = summed_up(lines, kept["before"]["cells"])
    parts = [INTRODUCTION.strip()]
    for metric in METRICS:
        parts.append(f"## Mean {metric}")
        parts.append("\n".join(means_table(rows, metric)))
    parts += [FIGURE.strip(), "## Targets", TARGETS.strip(), "\n".join(targets_table(rows))]
    parts.append(seconds_line(lines))
    if sets:
        parts += [SETS_TEXT.strip(), "\n".join(sets_table(summed_up(sets, {})))]
    if "large" in kept:
        parts += [LARGE_TEXT.strip(), "\n".join(large_table(kept["large"]))]
        parts.append(large_verdict(kept["large"]))
    return "\n\n".join(parts) + "\n"


def curve_figure(rows: list[dict[str, Any]]) -> Any:
    """The means by share of labels, a panel for each metric."""
    shown = {metric: [row for row in rows if row["metric"] == metric] for metric in METRICS}
    figure, drawn_panels = panels(shown, sharey=False)
    for ax, own in drawn_panels:
        ticks = range(len(own))
        for method, colour in zip(METHODS, (BLUE, ORANGE, GREEN, GREY), strict=True):
            ax.plot(ticks, [row["means"][method] for row in own], "o-", color=colour, label=method)
        ax.set_xticks(ticks, [say_setting(row["setting"]) for row in own])
        ax.set_xlabel("labelled")
    legend_below(figure, drawn_panels[0][0])
    return figure


INTRODUCTION = """
# AutoRAD by share of labels

    python -m benchmarks.learning_curves run TABLES.npz
    python -m benchmarks.learning_curves summary

`AutoRAD` with its own settings beside CatBoost (its own settings), LightGBM (leaves of five rows)
and 300 extra trees, which learn from labelled rows alone, on the kept tables of
[pretrained](../pretrained): one split of each, 70 % of the rows to fit to. A share of these is
labelled at random; "few" is 5 % of the normal rows and one to three anomalies. "before" is
`AutoRAD` at commit 5f229b5 on the same splits, with its mean over the tables that both have.
Differences are means over tables, with their standard errors. Records are in
`learning_curves.jsonl`, those of `AutoRAD` before in `learning_curves.json`. Where a share is
missing here, or has fewer tables than others, it has not been run, or not to the end.

**These test rows took part in the making of `AutoRAD`.** Its members and their weights were chosen
by figures of members on the same tables and splits. Gains over `AutoRAD` before and leads over
peers are therefore flattered, if not by the weights: those that a model learned from the other
tables are no worse ([pretrained](../pretrained/README.md#weights-that-are-learned)). A miss is a
miss all the same. Nothing was chosen for the peers by these rows.
"""
FIGURE = "![Mean AUC and average precision by share of labels](figures/learning-curves.svg)"
TARGETS = """
At every share at most 0.001 below the best peer; over `AutoRAD` before 0.008 in AUC and 0.015 in
average precision at 5 %, and at most 0.002 below it elsewhere.
"""
SETS_TEXT = """
## The paper's sets

    RISKAD_DATA=... python -m benchmarks.learning_curves run sets

One split of each, drawn as above; sets of which no anomaly came to be labelled are left out. At 5 %
the [field](README.md) has thirty splits of each set.
"""
LARGE_TEXT = """
## 100,000 labelled rows

    python -m benchmarks.learning_curves large

A made-up table: 30 columns, a law of curves and products, 8 % anomalies, no row unlabelled, 5,000
test rows. How the labelled trees of `AutoRAD` grow with very many rows was chosen among some forty
settings on test rows of a table with another law, and then run here once.
"""


def write(kept: dict[str, Any]) -> None:
    text = json.dumps(kept, indent=1)
    (FIELD / "learning_curves.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("run", "large", "before", "summary"))
    parser.add_argument("source", nargs="?", help="TABLES.npz, or the folder of `before`.")
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--method", choices=METHODS, action="append", help="only this")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--records", type=Path, help="where they are, if not in results/field")
    told = parser.parse_args()
    warnings.filterwarnings("ignore")
    records = {name: FIELD / f"{name}.jsonl" for name in ("learning_curves", "learning_sets")}
    file = FIELD / "learning_curves.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    if told.command == "run":
        own = told.records or records["learning_sets" if told.source == SETS else "learning_curves"]
        run(told.source, own, told.minutes, told.method or list(METHODS), told.jobs)
    elif told.command == "large":
        write(kept | {"large": large()})
    elif told.command == "before":
        write(kept | {"before": {"commit": BEFORE, "cells": before(Path(told.source))}})
    else:
        lines, sets = (by_cell(read_lines(each)) for each in records.values())
        (FIELD / "learning_curves.md").write_text(page(lines, sets, kept), encoding="utf-8")
        rows = summed_up(lines, kept["before"]["cells"])
        write_svgs(draw({"learning-curves": curve_figure}, rows), FIELD / "figures")


if __name__ == "__main__":
    main()
