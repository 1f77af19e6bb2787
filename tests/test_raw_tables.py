"""Tables as people keep them, from cells to scores: what is written in them is understood."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from support.raw_tables import DRAWN, draw_anomalies

from riskad import fit_table

TABLES = {}


def table_of(name):
    if name not in TABLES:
        TABLES[name] = DRAWN[name](3)
    return TABLES[name]


@pytest.mark.parametrize("name", DRAWN)
def test_cells_are_texts_and_columns_by_hand_are_not_blank(name):
    table = table_of(name)
    n = len(table.anomalous)
    assert set(table.raw.dtypes) == {pl.String}
    assert table.raw.height == table.engineered.height == n
    assert set(table.engineered.dtypes) <= {pl.String, pl.Float64}
    assert 0.02 < table.anomalous.mean() < 0.5
    assert (table.raw.null_count() < n).row(0) == (True,) * table.raw.width
    assert table.engineered.select(pl.all().n_unique() > 1).row(0) == (True,) * (
        table.engineered.width
    )


def test_the_seed_decides_and_another_draws_another():
    assert DRAWN["german"](3).raw.equals(table_of("german").raw)
    assert not DRAWN["german"](4).raw.equals(table_of("german").raw)


@pytest.mark.parametrize(
    ("name", "column", "pattern"),
    [
        ("payments", "when", r"^\d\d\.\d\d\.2025 \d\d:\d\d$"),
        ("payments", "amount", r"^[\d,]+\.\d\d €$"),
        ("payments", "discount", r"^\d+\.\d%$"),
        ("german", "Messwert", r"^-?\d+,\d\d$"),
        ("cards", "amount", r"^\$[\d,]+\.\d\d$"),
        ("invoices", "Betrag", r"^[\d']+\.\d\d CHF$"),
        ("shipments", "travelled", r"^\d+h \d+m$"),
        ("claims", "balance", r"^(\(\d+\.\d\d\)|\d+\.\d\d)$"),
    ],
)
def test_cells_are_written_as_said(name, column, pattern):
    assert table_of(name).raw[column].str.contains(pattern).all()


def test_anomalies_have_the_rate_and_follow_the_risk():
    rng = np.random.default_rng(0)
    risk = rng.normal(0, 2, 20_000)
    drawn = draw_anomalies(rng, risk, 0.05)
    assert drawn.mean() == pytest.approx(0.05, abs=0.005)
    assert risk[drawn].mean() > risk[~drawn].mean() + 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::riskad.DataWarning")
@pytest.mark.parametrize(("name", "least_auc"), [("german", 0.9), ("orders", 0.7)])
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
