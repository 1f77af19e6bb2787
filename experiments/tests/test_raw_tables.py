"""Tables as people keep them, from cells to scores: what is written in them is understood."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from experiments.studies.raw_tables import DRAWN
from riskad import fit_table
from tests.support.loops import each

TABLES = {}


def table_of(name):
    if name not in TABLES:
        TABLES[name] = DRAWN[name](3)
    return TABLES[name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::riskad.DataWarning")
@each(("name", "least_auc"), [("german", 0.9), ("orders", 0.7)])
def test_raw_cells_are_learned_from(name, least_auc):
    """Numbers with a decimal comma, and gaps that speak; nothing is said about any column."""
    table, rng = table_of(name), np.random.default_rng(0)
    train, test = np.split(rng.permutation(len(table.anomalous)), [1_000])
    words = np.where(table.anomalous[train], "anomaly", "normal")
    given = np.where(rng.random(1_000) < 0.3, words, None)
    rows = table.raw[train].with_columns(pl.Series("label", given.tolist(), dtype=pl.String))
    model = fit_table(rows, label="label", top=0, settings={"random_state": 0}).model
    scores = -model.score_samples(table.raw[test])
    assert roc_auc_score(table.anomalous[test], scores) > least_auc
