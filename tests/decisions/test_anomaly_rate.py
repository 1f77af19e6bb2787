import numpy as np
import pytest
from numpy.testing import assert_allclose
from support.loops import each

from riskad import InputError, estimate_prior


def make_mixture(rate, n_p=300, n_n=40, n_u=3000, *, d=4, distance=3.0, seed=0):
    """Labelled rows and unlabelled rows in which exactly the share `rate` is anomalous."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.array([1, -1, 0], dtype=np.int16), [n_p, n_n, n_u])
    anomalous = y == -1
    anomalous[n_p + n_n : n_p + n_n + round(rate * n_u)] = True
    X = rng.standard_normal((len(y), d)) + distance / np.sqrt(d) * anomalous[:, None]
    return X, y


@each("rate", [0.03, 0.1, 0.4])
def test_the_rate_is_found(rate):
    value, low, high = estimate_prior(*make_mixture(rate))
    assert 0 <= low <= value <= high <= 1
    assert low <= rate <= high
    if rate <= 0.1:  # 40 % are not believed at once
        assert_allclose(value, rate, atol=0.04)


def test_the_source_of_labels_and_the_seed_reach_the_estimate():
    X, y = make_mixture(0.1)
    unknown, drawn = (estimate_prior(X, y, label_source=s) for s in ("unknown", "random"))
    assert unknown.value != drawn.value
    with pytest.raises(InputError, match="random, chosen, unknown"):
        estimate_prior(X, y, label_source="rnadom")
    first, second, other = (estimate_prior(X, y, random_state=seed) for seed in (3, 3, 4))
    assert first == second != other
    assert unknown == estimate_prior(X, y, random_state=0)


def test_mistakes_are_errors_with_a_remedy():
    X, y = make_mixture(0.1, n_u=100)
    blank = X.copy()
    blank[3, 1] = np.nan
    for rows, labels, message in (
        (X[y != 0], y[y != 0], "there are too few.*Mark the rows that nobody checked"),
        (X, np.where(y == 0, 2, y), r"y must hold only \+1"),
        (X[1:], y, "X has .* rows and y"),
        (blank, y, "missing value"),
    ):
        with pytest.raises(InputError, match=message):
            estimate_prior(rows, labels)
