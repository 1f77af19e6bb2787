"""p-values, and selection at a false discovery rate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm
from support.loops import each

from riskad import InputError
from riskad.decisions.conformal import conformal_p_values, select_at_fdr

few_levels = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=12)


@settings(deadline=None)
@given(normals=few_levels, scores=few_levels)
def test_p_values_are_those_of_the_definition_ties_included(normals, scores):
    expected = [(1 + sum(s_i >= s for s_i in normals)) / (len(normals) + 1) for s in scores]
    assert_allclose(conformal_p_values(normals, scores), expected)


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
    assert "no p-value is below 1/20 = 0.05" in str(some)
    none = select_at_fdr([0.05] * 10, 0.01, 19)
    assert "no row can be selected" in str(none)
    # The share of rows that would do is infinite in floating point.
    assert select_at_fdr(np.full(5, 0.2), 1e-320, n_normal=4).fewest == 6
    with pytest.raises(InputError, match="fdr must be a number"):
        select_at_fdr([0.5], 1.5, 10)
    ample = select_at_fdr([0.001] * 10, 0.1, 999)
    assert "at least" not in str(ample)
    assert ample.n_selected == 10


@each(("shift", "share"), [(0.0, 0.1), (0.8, norm.sf(norm.isf(0.1) - 0.8))])
def test_the_level_holds_for_exchangeable_rows_and_for_no_others(shift, share):
    """The guide says that labelled normal rows which score lower triple the share: 0.1 to 0.31."""
    rng = np.random.default_rng(0)
    small = [
        conformal_p_values(rng.normal(-shift, 1, 199), rng.normal(0, 1, 200)) <= 0.1
        for _ in range(300)
    ]
    assert np.mean(small) == pytest.approx(share, abs=0.01)
