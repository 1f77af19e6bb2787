"""Tables as they are: raw cells beside columns made by hand, and rows compared in their group.

`raw-tables`: tables with dates, money, categories and text, drawn (`raw_tables.py`, anew for each
trial) or shipped by packages (`shipped_tables`), learned from in four ways.

`groups`: payments of customers. An anomaly is a payment of one customer on another's account: its
cells are those of a normal row, so that all that is odd is whose they are. `plain` is `AutoRAD` on
the columns, `codes` with a number for each customer besides (an arbitrary one, and how many rows
the customer has), and `compared` with the columns of `GroupComparison`. What is measured is in
`results/tables/README.md`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.runner import Cell, Experiment, NotAvailable, seed_of
from experiments.studies.raw_tables import DRAWN, RawTable
from experiments.studies.shipped_tables import SHIPPED, load_shipped
from experiments.summaries import Row, commits, grid, group, json_page, mean, rounded
from riskad import AutoRAD, fit_table, mask_labels
from riskad.app.spec import FitSpec
from riskad.core.checks import DataWarning
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.tables.groups import GroupComparison, GroupCounts
from tests.support.payments import draw_payments

# --- raw tables ----------------------------------------------------------------------------

_LABEL = "label (given)"
_WORDS = {NORMAL: "normal", ANOMALY: "anomaly", UNLABELLED: None}


@dataclass(frozen=True)
class Trial:
    """A table, the codes of its training rows, and where rows to train and test with are."""

    table: RawTable
    train: np.ndarray
    codes: np.ndarray
    test: np.ndarray
    seed: int


def make_trial(dataset: str, trial: int) -> Trial:
    """Draw or read a table, hold half of its rows back and hide most labels of the others."""
    place = (0, dataset, trial)
    seed = seed_of(*place, "table")
    table = DRAWN[dataset](seed) if dataset in DRAWN else load_shipped(dataset, seed)
    n = len(table.anomalous)
    order = np.random.default_rng(seed_of(*place, "split")).permutation(n)
    test, train = np.split(order, [round(0.5 * n)])
    train.sort()  # rows of a table come in an order
    truth = np.where(table.anomalous[train], ANOMALY, NORMAL).astype(np.int16)
    codes = mask_labels(truth, table.labelled, random_state=seed_of(*place, "labels"))
    return Trial(table, train, np.asarray(codes), test, seed_of(*place, "method"))


def _from_raw(trial: Trial) -> np.ndarray:
    labels = pl.Series(_LABEL, [_WORDS[code] for code in trial.codes.tolist()], dtype=pl.String)
    table = trial.table.raw[trial.train].with_columns(labels)
    column = FitSpec(label=_LABEL, normal=["normal"], anomaly=["anomaly"])
    model = fit_table(table, column, top=0, settings={"random_state": trial.seed}).model
    return -model.score_samples(trial.table.raw[trial.test])


def _from_engineered(trial: Trial) -> np.ndarray:
    columns = trial.table.engineered
    model = AutoRAD(random_state=trial.seed).fit(columns[trial.train], trial.codes)
    return -model.score_samples(columns[trial.test])


def plain_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """What a reader without knowledge makes of texts: numbers where all cells are."""
    numbers = frame.select(pl.all().cast(pl.Float64, strict=False))
    plain = [name for name in frame.columns if numbers[name].count() == frame[name].count()]
    return frame.with_columns(numbers[plain]) if plain else frame


def _by_catboost(trial: Trial, frame: pl.DataFrame) -> np.ndarray:
    """Scores of CatBoost, which learns from labelled rows and knows which columns are texts."""
    from catboost import CatBoostClassifier

    texts = [i for i, name in enumerate(frame.columns) if frame.schema[name] == pl.String]
    filled = frame.with_columns(
        pl.col(pl.String).fill_null(""), pl.col(pl.Float64).fill_null(np.nan)
    )
    labelled = trial.codes != UNLABELLED
    options = {"random_seed": trial.seed, "thread_count": 1, "allow_writing_files": False}
    model = CatBoostClassifier(verbose=False, cat_features=texts, **options)
    rows = filled[trial.train[labelled]].rows()
    model.fit([list(row) for row in rows], (trial.codes[labelled] == ANOMALY).astype(int))
    return model.predict_proba([list(row) for row in filled[trial.test].rows()])[:, 1]


# How scores of held-back rows come about, high for anomalies.
WAYS: dict[str, Callable[[Trial], np.ndarray]] = {
    "raw": _from_raw,
    "engineered": _from_engineered,
    "CatBoost, raw": lambda trial: _by_catboost(trial, plain_numbers(trial.table.raw)),
    "CatBoost, engineered": lambda trial: _by_catboost(trial, trial.table.engineered),
}


def run_raw(cell: Cell) -> dict[str, Any]:
    """Return AUC and average precision on held-back rows, learned in one way."""
    trial = make_trial(cell["dataset"], cell["trial"])
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # what columns are is said to users
        try:
            scores = WAYS[cell["method"]](trial)
        except ImportError as error:
            raise NotAvailable(str(error), method=cell["method"]) from None
    truth = trial.table.anomalous[trial.test]
    return {
        "auc": round(float(roc_auc_score(truth, scores)), 4),
        "average_precision": round(float(average_precision_score(truth, scores)), 4),
        "seconds": round(time.perf_counter() - start, 1),
        "n_train": len(trial.train),
        "n_anomaly": int((trial.codes == ANOMALY).sum()),
        "many_levels": trial.table.many_levels,
    }


def raw_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean AUC and average precision by table and way, and how far `raw` is behind."""
    by_table = group(rows, "dataset")
    tables = {
        name: {
            way: {key: mean(own, key) for key in ("auc", "average_precision", "seconds")}
            for way, own in group(by_table[name], "method").items()
        }
        for name in (*DRAWN, *SHIPPED)
        if name in by_table
    }
    many = {name: ways for name, ways in tables.items() if by_table[name][0]["many_levels"]}
    others = [way for way in WAYS if way != "raw"]
    figures = {
        "trials": 1 + max(row["trial"] for row in rows),
        "tables": tables,
        "raw less": {way: _gaps(tables, way) for way in others},
        "raw less, with very many levels": {way: _gaps(many, way) for way in others},
    }
    return rounded(figures) | {"lines": _lines(rounded(tables)), "commits": commits(rows)}


def _gaps(tables: Mapping[str, Any], way: str) -> dict[str, Any]:
    """How far `raw` is ahead of another way: mean over tables, and where it is farthest behind."""
    figures: dict[str, Any] = {}
    both = {name: ways for name, ways in tables.items() if {"raw", way} <= set(ways)}
    for key in ("auc", "average_precision") if both else ():
        gaps = {name: ways["raw"][key] - ways[way][key] for name, ways in both.items()}
        worst = min(gaps, key=lambda name: gaps[name])
        average = float(np.mean([*gaps.values()]))
        figures[key] = {"mean": average, "worst": {worst: gaps[worst]}, "tables": len(gaps)}
    return figures


def _lines(tables: Mapping[str, Any]) -> list[str]:
    """The table of README.md: AUC / average precision of each way."""
    lines = [f"| table | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS)]
    for name, ways in tables.items():
        cells = [
            f"{ways[way]['auc']:.3f} / {ways[way]['average_precision']:.3f}" if way in ways else ""
            for way in WAYS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


# --- rows compared in their group ------------------------------------------------------------

_LABELLED, _TEST = 0.1, 1 / 3


def run_groups(cell: Cell) -> dict[str, Any]:
    """Return the AUC on test rows of one draw, with what the cell adds to the columns."""
    rows, customers, truth = draw_payments(seed_of(0, "payments", cell["trial"]))
    rng = np.random.default_rng(seed_of(0, "payments", cell["trial"], "split"))
    test = rng.random(len(truth)) < _TEST
    y = np.where(rng.random(len(truth)) < _LABELLED, truth, UNLABELLED)[~test]
    X = rows.to_dummies("shop").to_numpy().astype(float)
    if cell["method"] == "compared":
        X = np.hstack([X, _compared(rows, customers, test)])
    elif cell["method"] == "codes":
        code = customers.rank("dense").to_numpy()
        often = np.bincount(code[~test], minlength=code.max() + 1)[code]
        X = np.column_stack([X, code, often])
    model = AutoRAD(random_state=cell["trial"]).fit(X[~test], y)
    auc = float(roc_auc_score(truth[test] == ANOMALY, model.anomaly_score(X[test])))
    return {"auc": auc, "n_anomaly": int((y == ANOMALY).sum())}


def _compared(rows: pl.DataFrame, customers: pl.Series, test: np.ndarray) -> np.ndarray:
    """Columns of the comparison, which is learned from training rows alone."""
    train = rows.filter(~test), customers.filter(pl.Series(~test))
    comparison = GroupComparison.of(GroupCounts.of(*train))
    columns = np.empty((rows.height, rows.width))
    columns[~test] = comparison.features(*train, training=True)
    columns[test] = comparison.features(rows.filter(test), customers.filter(pl.Series(test)))
    return columns


def group_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return mean, lowest and highest AUC over the draws, and each."""
    figures = {}
    for adds, draws in group(rows, "method").items():
        aucs = [row["auc"] for row in sorted(draws, key=lambda row: row["trial"])]
        ends = {"low": min(aucs), "high": max(aucs)}
        figures[adds] = rounded({"mean": float(np.mean(aucs)), **ends, "auc": aucs})
    about = {"draws": 1 + max(row["trial"] for row in rows), "commits": commits(rows)}
    return about | {"of": figures}


EXPERIMENTS = (
    Experiment(
        name="raw-tables",
        title="What it costs to give a table as it is, beside columns made of it by hand",
        cells=grid(trial=range(2), dataset=(*DRAWN, *SHIPPED), method=WAYS),
        run_cell=run_raw,
        report=json_page("raw-tables.json", raw_figures),
        folder="tables",
        needs="catboost, and packages that ship tables",
        minutes="half an hour",
    ),
    Experiment(
        name="groups",
        title="What comparing rows within their group is worth",
        cells=grid(trial=range(5), method=("plain", "codes", "compared")),
        run_cell=run_groups,
        report=json_page("groups.json", group_figures),
        folder="tables",
        minutes="2 minutes",
    ),
)
