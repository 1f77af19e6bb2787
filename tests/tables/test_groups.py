"""Rows compared within their group."""

import json

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from support.loops import each
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

AMOUNT, SHOP = 0, 1


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


@each("n", [900, 6000])
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


def test_levels_beyond_the_bound_count_as_one(monkeypatch):
    monkeypatch.setattr(module, "MOST_LEVELS", 3)
    share = share_of([*["a"] * 9, *["b"] * 8, *["c"] * 7, *"defgh"], np.zeros(29, dtype=int), 1)
    assert len(share.levels) == 3
    assert share.n_others == 5
    a, d, new = scores(share, ["a", "d", "zzz"], [-1] * 3)
    assert a < d == new


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


def test_parts_of_a_table_tell_what_the_whole_tells():
    rows, customers = payments()
    a, b, c, d = (
        GroupCounts.of(rows[at : at + 100], customers[at : at + 100], seed=at)
        for at in range(0, 400, 100)
    )
    counts = a.joined(b).joined(c.joined(d))
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


def test_groups_may_be_of_any_plain_type():
    rows, customers = payments()
    codes = customers.str.slice(1)
    prepared = TablePreparer(group="customer").fit(rows.with_columns(codes))
    expected = prepared.transform(rows.with_columns(codes))
    for dtype in (pl.Int64, pl.Float64, pl.Categorical):
        typed = rows.with_columns(codes.cast(dtype))
        np.testing.assert_array_equal(prepared.transform(typed), expected)
        again = TablePreparer(group="customer").fit(typed)
        np.testing.assert_array_equal(again.transform(rows.with_columns(codes)), expected)


def test_hashes_are_fixed():
    """A model that was saved long ago must know its groups."""
    assert hash_texts(pl.Series(["a", None])).to_list() == [4681665781835383343, None]


def test_nothing_to_compare_is_said():
    _, customers = payments()
    with pytest.raises(InputError, match="nothing to compare within 'customer'"):
        compare(pl.DataFrame(height=400), customers)
    with pytest.raises(InputError, match="'g' names no group"):
        compare(pl.DataFrame({"x": [1.0]}), pl.Series("g", [None]))


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
        (share, {"pairs": share.pairs + 10**6}, "pairs"),
        (share, {"rows": share.rows + 1}, "rows"),
    ):
        with pytest.raises(InputError, match=error):
            codec.build(type(stored), {**vars(stored), **change})
