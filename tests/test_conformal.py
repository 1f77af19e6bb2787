"""p-values, their level by simulation, selection at a false discovery rate, weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from riskad import InputError, ShallowRAD, calibrate
from riskad.decisions.conformal import DensityRatio, conformal_p_values, select_at_fdr

few_levels = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=12)


# --- the formula -------------------------------------------------------------------------


@settings(deadline=None)
@given(normals=few_levels, scores=few_levels, seed=st.integers(0, 99))
def test_p_values_are_those_of_the_definition_ties_included(normals, scores, seed):
    rng = np.random.default_rng(seed)
    w, own = rng.uniform(0.1, 3, len(normals)), rng.uniform(0.1, 3, len(scores))
    plain = [(1 + sum(s_i >= s for s_i in normals)) / (len(normals) + 1) for s in scores]
    weighted = [
        (w_x + sum(w_i for s_i, w_i in zip(normals, w, strict=True) if s_i >= s)) / (w_x + w.sum())
        for s, w_x in zip(scores, own, strict=True)
    ]
    assert_allclose(conformal_p_values(normals, scores), plain)
    assert_allclose(conformal_p_values(normals, scores, w, own), weighted)


def test_a_weight_equals_repeated_rows():
    p = conformal_p_values([1.0, 2.0, 3.0], [2.5, 1.5], weights=[1, 2, 3])
    assert_allclose(p, conformal_p_values([1, 2, 2, 3, 3, 3], [2.5, 1.5]))


# --- the level, by simulation ---------------------------------------------------------------

LEVELS = np.array([0.05, 0.1, 0.2, 0.5])


def test_weights_mend_p_values_where_labelled_normals_differ():
    rng = np.random.default_rng(0)
    plain, weighted = [], []
    for _ in range(60):
        X = rng.standard_normal((800, 2))
        y = np.repeat([1, -1, 0], [150, 10, 640])
        X[y == 1, 0] -= 0.8  # the labelled normals are not like those among the unlabelled rows
        X[150:210] += 3.0  # ten labelled anomalies, fifty among the unlabelled rows
        new = rng.standard_normal((100, 2))
        fitted = ShallowRAD(lam="tight", tol=1e-3).fit(X, y)
        model = calibrate(fitted, X, y, weighted=True, pi_n=0.08)
        plain.append((model.p_values(new)[:, None] <= LEVELS).mean(axis=0))
        weighted.append((model.p_values(new, weighted=True)[:, None] <= LEVELS).mean(axis=0))
    plain, weighted = np.mean(plain, axis=0), np.mean(weighted, axis=0)
    assert np.all(plain[:3] > 1.5 * LEVELS[:3])
    assert np.all(weighted <= LEVELS + 0.03)
    assert np.all(weighted[1:] > 0.5 * LEVELS[1:])


# --- selection ------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(1, 20).map(lambda k: k / 20), min_size=1, max_size=30))
def test_selection_is_benjamini_and_hochberg_s(p):
    ordered, m = sorted(p), len(p)
    passing = [k for k in range(1, m + 1) if ordered[k - 1] <= 0.25 * k / m]
    assert select_at_fdr(p, 0.25, 19).n_selected == max(passing, default=0)


def test_what_few_normals_allow_is_said():
    assert select_at_fdr(np.full(3, 1 / 20), 0.05, 19).n_selected == 3
    some = select_at_fdr([0.05] * 9 + [1.0] * 91, 0.1, 19)
    assert (some.n_selected, some.fewest) == (0, 50)
    assert "either no row is selected or at least 50" in str(some)
    assert "no p-value below 1/20 = 0.05" in str(some)
    none = select_at_fdr([0.05] * 10, 0.01, 19)
    assert "nothing can be selected" in str(none)
    ample = select_at_fdr([0.001] * 10, 0.1, 999)
    assert "at least" not in str(ample)
    assert ample.n_selected == 10


def test_a_rate_that_is_no_share_is_refused():
    with pytest.raises(InputError, match="fdr must be a number"):
        select_at_fdr([0.5], 1.5, 10)


# --- weights --------------------------------------------------------------------------------


def test_the_density_ratio_of_gaussians_is_found():
    rng = np.random.default_rng(0)
    normals, unlabelled = rng.normal(-0.5, 1, (3000, 2)), rng.normal(0.5, 1, (6000, 2))
    ratio = DensityRatio.between(normals, unlabelled, np.ones(6000))
    x = np.array([[-1.0, 0.5], [0.0, 0.0], [1.0, 0.5]])
    assert_allclose(np.log(ratio(x)), x.sum(axis=1), atol=0.15)
    assert ratio([[9.0, 9.0]])[0] == pytest.approx(20)
    thin = DensityRatio.between(
        sparse.csr_array(normals), sparse.csr_array(unlabelled), np.ones(6000)
    )
    assert_allclose(np.log(thin(sparse.csr_array(x))), x.sum(axis=1), atol=0.15)


def test_anomalies_of_the_unlabelled_rows_do_not_count_as_normals_elsewhere():
    rng = np.random.default_rng(0)
    normals = rng.normal(0, 1, (500, 1))
    unlabelled = np.concatenate([rng.normal(0, 1, (1000, 1)), rng.normal(4, 1, (300, 1))])
    likely = np.repeat([1.0, 0.0], [1000, 300])
    ratio = DensityRatio.between(normals, unlabelled, likely)
    assert_allclose(np.log(ratio([[-1.0], [1.0]])), 0, atol=0.15)


def test_a_rate_that_no_number_of_rows_reaches():
    """The share of rows that would do is infinite in floating point."""
    selection = select_at_fdr(np.full(5, 0.2), 1e-320, n_normal=4)
    assert selection.fewest == 6
    assert "nothing can be selected" in str(selection)
