"""Rows compared within their group."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from support.payments import draw_payments

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY
from riskad.files import codec
from riskad.tables import groups as module
from riskad.tables.groups import (
    GroupComparison,
    GroupCounts,
    NumberByGroup,
    ShareByGroup,
    hash_texts,
)
from riskad.tables.preparation import TablePreparer

RESULTS = Path(__file__).parents[1] / "results" / "tables" / "groups.json"
AMOUNT, SHOP = 0, 1
ENDS = datetime(2025, 1, 1), datetime(2025, 1, 1) + timedelta(hours=400)


def compare(rows, groups):
    return GroupComparison.of(GroupCounts.of(rows, groups))


def number_of(x, of, n_groups):
    return NumberByGroup.learn(pl.Series("x", x), np.asarray(of), n_groups)


def share_of(texts, of, n_groups):
    return ShareByGroup.learn(pl.Series("x", texts), np.asarray(of), n_groups)


def scores(part, cells, of, without_itself=False):
    return part.scores(pl.Series(cells), np.asarray(of), without_itself=without_itself)


def simulated(seed=0, n=6000, groups=300, within=0.5, between=2.0, degrees=None):
    """Values of groups with known means and variances."""
    rng = np.random.default_rng(seed)
    of = rng.integers(0, groups, n)
    mean = rng.normal(10, between, groups)
    scale = np.full(groups, within)
    if degrees:
        scale = within * np.sqrt(degrees / rng.chisquare(degrees, groups))
    return rng.normal(mean[of], scale[of]), of, mean, scale


def payments(n=400, seed=0):
    rng = np.random.default_rng(seed)
    of = rng.integers(0, 20, n)
    shops = [f"shop {(each + k) % 7}" for each, k in zip(of, rng.integers(0, 2, n), strict=True)]
    rows = pl.DataFrame({"amount": np.exp(rng.normal(of / 4, 0.3)), "shop": shops})
    return rows, pl.Series("customer", [f"c{each}" for each in of])


# --- numbers --------------------------------------------------------------------------------


def test_moments_are_those_of_the_groups():
    x, of, _, _ = simulated(n=12_000, degrees=8)
    number = number_of(x, of, 300)
    assert number.centre == pytest.approx(10, abs=0.4)
    assert number.between == pytest.approx(4, rel=0.3)
    assert number.within == pytest.approx(0.25, rel=0.2)
    assert 4 < number.degrees < 20
    x, of, _, _ = simulated()
    assert number_of(x, of, 300).degrees > 50  # variances that are alike


@pytest.mark.parametrize("n", [900, 6000])
def test_scores_of_new_rows_are_standard_normal(n):
    """Whether groups have 3 rows or 20; those of unseen groups, too."""
    x, of, mean, scale = simulated(n=n)
    number = number_of(x, of, 300)
    rng = np.random.default_rng(1)
    new = rng.integers(0, 300, 20_000)
    z = scores(number, rng.normal(mean[new], scale[new]), new)
    assert z.std() == pytest.approx(1, abs=0.1)
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.05, abs=0.025)
    unseen = scores(number, rng.normal(10, np.hypot(2, 0.5), 20_000), np.full(20_000, -1))
    assert unseen.std() == pytest.approx(1, abs=0.15)


def test_a_few_wild_values_hardly_move_a_group():
    x, of, mean, scale = simulated()
    wild = np.random.default_rng(2).random(len(x)) < 0.05
    number = number_of(np.where(wild, x + 1e6, x), of, 300)
    rng = np.random.default_rng(1)
    new = rng.integers(0, 300, 20_000)
    z = scores(number, rng.normal(mean[new], scale[new]), new)
    assert np.abs(np.median(z)) < 0.3
    assert 0.7 < z.std() < 1.1
    assert (scores(number, mean[new] + 6, new) > 5).mean() > 0.95


def test_a_small_group_is_drawn_to_the_table_and_a_large_one_is_not():
    rng = np.random.default_rng(0)
    x, of, _, _ = simulated(within=2.0)
    x = np.concatenate([x, rng.normal(30, 2, 2), rng.normal(30, 2, 200)])
    of = np.concatenate([of, [300] * 2, [301] * 200])
    small, large = scores(number_of(x, of, 302), [30.0, 30.0], [300, 301])
    assert abs(large) < 0.3
    assert small > 1


def test_a_training_row_is_judged_as_if_it_had_not_been_there():
    x, of, _, _ = simulated(n=900)
    z = scores(number_of(x, of, 300), x, of, without_itself=True)
    for i in range(0, 60, 7):
        others = np.arange(len(x)) != i
        again = scores(number_of(x[others], of[others], 300), x[[i]], of[[i]])
        assert z[i] == pytest.approx(again[0], abs=0.12)


def test_the_only_row_of_a_group_does_not_hide_itself():
    x, of, _, _ = simulated()
    x, of = np.append(x, 25.0), np.append(of, 300)
    number = number_of(x, of, 301)
    alone = scores(number, x, of, without_itself=True)[-1]
    assert alone == pytest.approx(scores(number, [25.0], [-1])[0])
    assert alone > 6
    assert abs(scores(number, x, of)[-1]) < alone / 3


def test_amounts_are_compared_by_their_logarithms():
    rng = np.random.default_rng(0)
    of = rng.integers(0, 100, 3000)
    x = np.exp(rng.normal(rng.normal(3, 1, 100)[of], 0.3))
    number = number_of(x, of, 100)
    assert number.floor is not None
    assert scores(number, x, of, without_itself=True).std() == pytest.approx(1, abs=0.1)
    assert scores(number, [0.0, -5.0], [0, 0]).max() < -2  # and no NaN
    assert number_of(x - 100, of, 100).floor is None


def test_columns_without_spread_have_scores_all_the_same():
    of = np.repeat([0, 1, 2], 20)
    for x in (
        np.full(60, 3.0),
        np.repeat([1.0, 2.0, 3.0], 20),
        np.full(60, np.nan),
        np.r_[[1.0], np.full(59, np.nan)],
        np.full(60, 1e300) * np.linspace(-1, 1, 60),
    ):
        number = number_of(x, of, 3)
        for without_itself in (False, True):
            z = scores(number, np.nan_to_num(x), of, without_itself)
            assert np.isfinite(z).all()
            assert np.abs(z).max() <= 30
    number = number_of(np.repeat([1.0, 2.0, 3.0], 20), of, 3)
    assert scores(number, [1.0, 3.0], [0, 0]).round().tolist() == [0, 30]  # a gap counts


# --- categories -----------------------------------------------------------------------------


def test_a_level_is_unusual_where_its_group_does_not_have_it():
    share = share_of(["card"] * 50 + ["cash"] * 50, np.repeat([0, 1], 50), 2)
    common, rare, new, blank = scores(share, ["card", "cash", "gold", None], [0] * 4)
    assert common < 0.1 < 3 < rare < new
    assert np.isnan(blank)


def test_shares_are_blended_by_how_much_groups_differ():
    rng = np.random.default_rng(0)
    of = rng.integers(0, 200, 8000)
    p = np.array([0.5, 0.3, 0.2])
    for strength in (0.5, 5.0, 50.0):
        shares = rng.dirichlet(strength * p, 200).cumsum(axis=1)
        levels = (rng.random((8000, 1)) > shares[of]).sum(axis=1)
        found = share_of([f"l{k}" for k in levels], of, 200)
        assert strength / 2 < found.strength < 2 * strength
    alike = [f"l{k}" for k in rng.choice(3, 8000, p=p)]
    assert share_of(alike, of, 200).strength > 200


def test_an_unseen_group_has_the_shares_of_the_table():
    share = share_of(["a"] * 75 + ["b"] * 25, np.arange(100) % 10, 10)
    np.testing.assert_allclose(
        np.exp(-scores(share, ["a", "b"], [-1, -1])), [0.75, 0.25], atol=0.02
    )


def test_a_level_seen_once_is_as_unusual_in_training_as_a_new_one_later():
    texts, of = ["a"] * 99 + ["b"], np.arange(100) % 5
    share = share_of(texts, of, 5)
    itself = scores(share, texts, of, without_itself=True)[-1]
    assert itself == pytest.approx(scores(share, ["c"], [4])[0], abs=0.1)


def test_levels_beyond_the_bound_count_as_one(monkeypatch):
    monkeypatch.setattr(module, "MOST_LEVELS", 3)
    share = share_of([*["a"] * 9, *["b"] * 8, *["c"] * 7, *"defgh"], np.zeros(29, dtype=int), 1)
    assert len(share.levels) == 3
    assert share.n_others == 5
    a, d, new = scores(share, ["a", "d", "zzz"], [-1] * 3)
    assert a < d == new


# --- the comparison -------------------------------------------------------------------------


def test_anomalies_that_are_normal_in_the_table_are_seen():
    rows, customers, truth = draw_payments(3)
    known = np.arange(len(truth)) < 4000
    learned = rows.filter(known), customers.filter(pl.Series(known))
    new = rows.filter(~known), customers.filter(pl.Series(~known))
    comparison = compare(*learned)
    for found, own in (
        (comparison.features(*learned, training=True), truth[known]),
        (comparison.features(*new), truth[~known]),
    ):
        unusual = (found[:, :2] ** 2).sum(axis=1) / 2 + found[:, 2]
        assert roc_auc_score(own == ANOMALY, unusual) > 0.93


def test_training_rows_and_new_rows_have_features_alike():
    rows, customers, truth = draw_payments(4)
    rows, customers = rows.filter(truth == 1), customers.filter(pl.Series(truth == 1))
    half = rows.height // 2
    comparison = compare(rows[:half], customers[:half])
    train = comparison.features(rows[:half], customers[:half], training=True)
    new = comparison.features(rows[half:], customers[half:])
    np.testing.assert_allclose(train.mean(axis=0), new.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(train.std(axis=0), new.std(axis=0), rtol=0.12)
    seen = comparison.features(rows[:half], customers[:half])
    assert seen.std(axis=0)[AMOUNT] < 0.97 * new.std(axis=0)[AMOUNT]  # rows that hide themselves


def test_features_have_the_columns_in_their_order():
    rows, customers = payments()
    comparison = compare(rows.select("shop", "amount"), customers)
    assert comparison.names() == ["shop beside its customer", "amount beside its customer"]
    assert comparison.describe() == "customer: 2 columns are compared within 20 groups"
    found = comparison.features(rows.with_columns(more=pl.lit(1.0)), customers)
    np.testing.assert_allclose(found[:, ::-1], compare(rows, customers).features(rows, customers))


def test_blank_cells_have_no_feature_and_rows_without_a_group_that_of_the_table():
    comparison = compare(*payments())
    new = pl.DataFrame({"amount": [None, 5.0, 5.0, 5.0], "shop": ["shop 1", None, "new", "new"]})
    of = pl.Series("customer", ["c1", "c1", None, "never seen"])
    found = comparison.features(new, of)
    assert np.isnan(found[[0, 1], [AMOUNT, SHOP]]).all()
    assert np.isfinite(found[2:]).all()
    np.testing.assert_array_equal(found[2], found[3])


def test_rows_without_a_group_are_learned_from_as_part_of_the_table():
    rows, customers = payments()
    none = pl.Series("customer", [None] * 100, dtype=pl.String)
    more = pl.DataFrame({"amount": [1.0] * 100, "shop": ["kiosk"] * 100})
    with_them = compare(pl.concat([rows, more]), pl.concat([customers, none]))
    without = compare(rows, customers)
    new = pl.DataFrame({"amount": [1.0], "shop": ["kiosk"]}), pl.Series(["nobody"])
    assert with_them.features(*new)[0, SHOP] < without.features(*new)[0, SHOP] - 2


def test_parts_of_a_table_tell_what_the_whole_tells():
    rows, customers = payments()
    parts = [
        GroupCounts.of(rows[at : at + 100], customers[at : at + 100], seed=at)
        for at in range(0, 400, 100)
    ]
    counts = parts[0].joined(parts[1]).joined(parts[2].joined(parts[3]))
    found = GroupComparison.of(counts).features(rows, customers)
    whole = compare(rows, customers).features(rows, customers)
    np.testing.assert_allclose(found, whole, rtol=1e-9)


def test_counts_are_bounded(monkeypatch):
    rows, customers = payments(2000)
    whole = compare(rows, customers)
    monkeypatch.setattr(module, "MOST_CELLS", 4 * 300)
    monkeypatch.setattr(module, "MOST_GROUPS", 15)
    counts = GroupCounts.of(rows[:1000], customers[:1000])
    counts = counts.joined(GroupCounts.of(rows[1000:], customers[1000:], seed=1))
    assert counts.rows.height <= 300
    comparison = GroupComparison.of(counts)
    assert len(comparison.groups) == 15
    assert comparison.dropped >= 5
    assert "smallest are compared with the table" in comparison.describe()
    kept = hash_texts(customers).is_in(comparison.groups.tolist()).to_numpy()
    of_kept = [each.features(rows, customers)[kept, AMOUNT] for each in (comparison, whole)]
    assert np.corrcoef(*of_kept)[0, 1] > 0.9


def test_small_groups_keep_every_row_when_large_ones_are_sampled(monkeypatch):
    monkeypatch.setattr(module, "MOST_CELLS", 3 * 50)
    names = pl.Series("g", ["large"] * 500 + ["small"] * 4)
    comparison = compare(pl.DataFrame({"x": np.arange(504.0)}), names)
    assert sorted(comparison.numbers[0].n) == [4, 46]


def test_many_rows_and_groups_are_compared_at_once():
    """A loop over them would take minutes."""
    n = 200_000
    rng = np.random.default_rng(0)
    rows = pl.DataFrame({"x": rng.normal(size=n), "c": rng.choice(["a", "b"], n)})
    groups = pl.Series("g", rng.integers(0, 20_000, n))
    comparison = compare(rows, groups)
    assert comparison.features(rows, groups, training=True).shape == (n, 2)
    assert len(comparison.groups) > 19_000


def test_where_every_row_is_its_own_group_the_table_judges():
    x = np.random.default_rng(0).normal(size=200)
    rows, groups = pl.DataFrame({"x": x}), pl.Series("id", range(200))
    z = compare(rows, groups).features(rows, groups, training=True)[:, 0]
    assert np.corrcoef(z, x)[0, 1] > 0.99


def test_groups_may_be_of_any_plain_type():
    rows, customers = payments()
    rows = rows.with_columns(paid=pl.datetime_range(*ENDS, "1h", closed="left", eager=True))
    codes = customers.str.slice(1)
    prepared = TablePreparer(group="customer").fit(rows.with_columns(codes))
    assert [type(derived).__name__ for derived in prepared.derived_] == [
        "BesideGroup",
        "SincePrevious",
    ]
    expected = prepared.transform(rows.with_columns(codes))
    for dtype in (pl.Int64, pl.Float64, pl.Categorical):
        typed = rows.with_columns(codes.cast(dtype))
        np.testing.assert_array_equal(prepared.transform(typed), expected)
        again = TablePreparer(group="customer").fit(typed)
        np.testing.assert_array_equal(again.transform(rows.with_columns(codes)), expected)


def test_nothing_to_compare_is_said():
    _, customers = payments()
    with pytest.raises(InputError, match="nothing to compare within 'customer'"):
        compare(pl.DataFrame(height=400), customers)
    with pytest.raises(InputError, match="'g' names no group"):
        compare(pl.DataFrame({"x": [1.0]}), pl.Series("g", [None]))


# --- what a model keeps ---------------------------------------------------------------------


def test_a_stored_comparison_gives_the_same_features_and_holds_no_names():
    rows, customers = payments()
    comparison = compare(rows, customers)
    tree, arrays = codec.to_tree(comparison)
    stored = json.dumps(tree)
    assert "c1" not in stored
    assert "shop 1" not in stored
    again = codec.from_tree(json.loads(stored), arrays)
    np.testing.assert_array_equal(
        again.features(rows, customers), comparison.features(rows, customers)
    )
    assert again.names() == comparison.names()


def test_a_stored_state_that_does_not_fit_is_refused():
    comparison = compare(*payments())
    share = comparison.shares[0]
    for stored, change, error in (
        (comparison, {"columns": ["amount"]}, "columns"),
        (comparison, {"columns": ["amount", "shop", "shop"]}, "columns"),
        (comparison, {"groups": np.arange(3, dtype=np.uint64)}, "groups"),
        (comparison, {"groups": np.arange(20, dtype=np.uint64)[::-1].copy()}, "rising"),
        (comparison, {"dropped": -1}, "dropped"),
        (share, {"counts": share.counts[1:]}, "counts"),
        (share, {"pairs": share.pairs + 10**6}, "pairs"),
        (share, {"rows": share.rows + 1}, "rows"),
        (share, {"levels": share.levels[::-1].copy()}, "rising"),
    ):
        with pytest.raises(InputError, match=error):
            codec.build(type(stored), {**vars(stored), **change})


# --- what it is worth -----------------------------------------------------------------------


@pytest.mark.skipif(not RESULTS.is_file(), reason="results/ is not part of the package")
def test_the_committed_figures_are_those_that_were_promised():
    found = json.loads(RESULTS.read_text())
    assert found["draws"] >= 5
    assert found["of"]["compared"]["mean"] >= 0.9
    assert found["of"]["compared"]["low"] >= 0.9
    assert found["of"]["plain"]["high"] <= 0.65
