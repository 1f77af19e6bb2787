"""Scores of new rows, which take another way than those of training rows; and many threads."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from riskad import AutoRAD
from riskad.detectors.auto.views import EncodedRows, NewRows, Views
from riskad.detectors.features import GaussianKernels


@pytest.fixture(scope="module")
def model_and_rows():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(0, 1, (360, 4)), rng.normal(2, 1, (40, 4))])
    y = np.zeros(400, dtype=int)
    y[:25], y[-8:] = 1, -1
    names = ["kernel", "smooth forest", "forest", "network", "novelty"]
    return AutoRAD(members=names).fit(X, y), rng.normal(0.5, 2, (700, 4))


@pytest.mark.parametrize("widths", [(0.5, 1.0, 2.0), (1.0, 3.0), (2.0,), (4.0, 1.0, 2.0)])
def test_weighted_kernels_are_the_kernels_times_the_weights(widths):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    kernels = GaussianKernels(widths, n_components=30).fit(X)
    new, weights = rng.normal(size=(50, 3)), rng.normal(size=(30 * len(widths), 2))
    np.testing.assert_allclose(
        kernels.products(new, weights), kernels.transform(new) @ weights, rtol=1e-9, atol=1e-9
    )


def test_every_member_scores_new_rows_as_it_would_all_their_features(model_and_rows):
    model, new = model_and_rows
    table = EncodedRows.of(model.encoder_, new)
    slow, quick = Views.of(model.views_, table), NewRows(model.views_, table)
    assert set(model.members_) >= {"kernel", "forest", "network"}
    for name, member in model.members_.items():
        close = 1e-4 if name == "network" else 1e-9  # it computes in single precision
        np.testing.assert_allclose(
            quick.scores_by(name, member), slow.scores_by(name, member), rtol=close, atol=close
        )
        np.testing.assert_allclose(quick.seen_by(name), slow.seen_by(name), rtol=1e-9, atol=1e-9)


def test_eight_threads_get_the_same_numbers_as_one(model_and_rows):
    model, new = model_and_rows
    expected = model.score_samples(new)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: model.score_samples(new), range(16)))
    assert all((scores == expected).all() for scores in found)


def test_a_row_has_the_same_score_alone_and_among_others(model_and_rows):
    model, new = model_and_rows
    alone = [model.score_samples(new[i : i + 1])[0] for i in range(5)]
    np.testing.assert_allclose(alone, model.score_samples(new)[:5], rtol=1e-5, atol=1e-5)
