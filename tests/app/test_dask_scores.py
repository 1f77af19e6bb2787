"""Scores of Dask dataframes: those of one process, whatever the partitions."""

import pytest
from polars.testing import assert_frame_equal
from support.cards import LABELS, cards_with_gaps, fit_cards, make_cards

import riskad

pandas = pytest.importorskip("pandas")
dd = pytest.importorskip("dask.dataframe")
pytest.importorskip("distributed")

from riskad.app import batch_scoring
from riskad.app.change_model import compress_model
from riskad.app.model_files import make_header
from riskad.tables.cells import as_polars

model = pytest.fixture(fit_cards, scope="module")
new = pytest.fixture(cards_with_gaps, scope="module")


def as_pandas(table):
    return pandas.DataFrame(table.to_dict(as_series=False))


def in_partitions(table, n):
    return dd.from_pandas(as_pandas(table), npartitions=n, sort=False)


def assert_same(frame, table):
    """The same rows, columns and, but for rounding, numbers."""
    got = as_polars(frame).drop("amount")  # whose blanks are NaN in pandas
    options = {"check_dtypes": False, "rel_tol": 1e-9, "abs_tol": 0}
    assert_frame_equal(got.sort("card"), table.drop("amount").sort("card"), **options)


@pytest.mark.slow
def test_workers_find_the_scores_of_one_process(client, model, new):
    table, _ = riskad.score_table(model, new, reasons=2)
    assert 0 < table["is_anomaly"].sum() < table.height
    scored = riskad.dask.score(in_partitions(new, 4), model, reasons=2)
    assert scored.npartitions == 4
    assert list(scored.dtypes) == list(scored.compute().dtypes)
    assert_same(scored.compute(), table)


@pytest.mark.parametrize("n", [1, 3, 20])
def test_order_and_partitions_do_not_change_a_score(model, new, n):
    table, _ = riskad.score_table(model, new, threshold="rate:0.3")
    shuffled = new.sample(fraction=1, shuffle=True, seed=n)
    scored = riskad.dask.score(in_partitions(shuffled, n), model, threshold="rate:0.3")
    assert_same(scored.compute(scheduler="sync"), table)


def test_large_partitions_are_scored_in_slices(model, new, monkeypatch):
    table, _ = riskad.score_table(model, new, reasons=1)
    monkeypatch.setattr(batch_scoring, "_ROWS_AT_ONCE", 7)
    scored = riskad.dask.score(in_partitions(new, 2), model, reasons=1)
    assert_same(scored.compute(scheduler="sync"), table)


def test_partitions_without_rows_and_without_anomalies_have_the_same_columns(model, new):
    few = in_partitions(new.sort("amount"), 6)
    some = riskad.dask.score(few[few["amount"] > 60], model, reasons=1)
    parts = [part.compute(scheduler="sync") for part in some.partitions]
    assert min(map(len, parts)) == 0 < max(map(len, parts))
    assert all(list(part.dtypes) == list(some.dtypes) for part in parts)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"threshold": "top:5"}, {}, "depends on the scores of all rows"),
        ({}, {"amount": "sum"}, "amount"),
        ({}, {"when": "anomaly_score"}, "already has a column 'anomaly_score'"),
        ({"threshold": "no-rule:1"}, {}, "no-rule"),
    ],
)
def test_mistakes_are_found_before_any_work(model, new, options, change, message):
    with pytest.raises(riskad.InputError, match=message):
        riskad.dask.score(in_partitions(new.rename(change), 2), model, **options)


def test_a_table_in_memory_is_refused(model, new):
    with pytest.raises(riskad.InputError, match=r"of Spark or Dask, got DataFrame.*score_table"):
        riskad.dask.score(as_pandas(new), model)


# --- the trees that have learned the scores -------------------------------------------------------


@pytest.fixture(scope="module")
def auto():
    """A model with a student; which detectors it consists of does not matter here."""
    cards = make_cards(400)
    fit = riskad.fit_table(cards, **LABELS, id="card", settings={"budget": 1})
    return compress_model(fit.model, make_header(fit.model))[0]


@pytest.mark.slow
def test_many_rows_are_scored_quickly_and_a_warning_says_so(auto, new, monkeypatch):
    frame = in_partitions(new, 2)
    slow = riskad.dask.score(frame, auto)
    assert "novelty" in slow.columns
    assert_same(slow.compute(scheduler="sync"), riskad.score_table(auto, new)[0])
    monkeypatch.setattr("riskad.app.batch_scoring.MANY_ROWS", 50)
    with pytest.warns(riskad.DataWarning, match="scored by the trees"):
        quick = riskad.dask.score(frame, auto)
    student = riskad.app.change_model.quick_model(auto)
    assert_same(quick.compute(scheduler="sync"), riskad.score_table(student, new)[0])
    assert list(riskad.dask.score(frame, auto, quick=False).columns) == list(slow.columns)
