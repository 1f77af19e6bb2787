"""Row blocks: the sum over blocks is the sum over rows, without copies."""

import threading

import numpy as np
import pytest
from conftest import PATIENCE
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from support.loops import each
from support.rows import LAYOUTS as COMMON
from support.rows import dense
from threadpoolctl import ThreadpoolController

from riskad.rows import sources
from riskad.rows.engine import _release_blas, one_blas_thread
from riskad.rows.sources import RowBlocks

LAYOUTS = COMMON | {
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "csr_matrix": sparse.csr_matrix,
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def make_rows(n_rows=50, n_features=3, layout="C order", weighted=True, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.6)
    X = X.astype(np.float32).astype(np.float64)  # so that float32 holds the same numbers
    y = rng.integers(-1, 2, n_rows).astype(np.int16)
    weight = rng.uniform(0.5, 2, n_rows) if weighted else None
    return RowBlocks(LAYOUTS[layout](X), y, weight), X


@each("block_rows", [1, 7, 49, 50, 51, 1000])
@each("weighted", [False, True])
@every_layout
def test_blocks_hold_each_row_once_in_order(layout, weighted, block_rows):
    rows, X = make_rows(layout=layout, weighted=weighted)
    rows.block_rows = block_rows
    parts = list(rows)
    assert [len(part.y) for part in parts[:-1]] == [block_rows] * (len(parts) - 1)
    assert 1 <= len(parts[-1].y) <= block_rows
    assert_array_equal(np.concatenate([dense(part.X) for part in parts]), X)
    assert_array_equal(np.concatenate([part.y for part in parts]), rows.y)
    if weighted:
        assert_array_equal(np.concatenate([part.weight for part in parts]), rows.sample_weight)
    else:
        assert all(part.weight is None for part in parts)


@each("n_rows", [1, 2, 29, 30, 31])
@every_layout
def test_the_sum_over_blocks_is_the_sum_over_rows(layout, n_rows):
    rows, X = make_rows(n_rows, layout=layout)
    rows.block_rows = 10

    def block_sums(block):
        return block.X.T @ block.weight, float(block.weight @ block.y), len(block.y)

    moments, labels, n = rows.sum(block_sums)
    assert_allclose(moments, X.T @ rows.sample_weight, rtol=1e-12)
    assert_allclose(labels, rows.sample_weight @ rows.y, rtol=1e-12)
    assert n == n_rows


@each("layout", ["C order", "Fortran order", "every second column"])
def test_blocks_of_float64_rows_are_views(layout):
    rows, _ = make_rows(layout=layout)
    rows.block_rows = 20
    for block in rows:
        assert np.shares_memory(block.X, rows.X)
        assert np.shares_memory(block.y, rows.y)
        assert np.shares_memory(block.weight, rows.sample_weight)


def test_the_number_of_rows_follows_the_width_of_the_table(monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 8000)
    monkeypatch.setattr(sources, "MIN_BLOCK_ROWS", 4)
    assert make_rows(n_features=1)[0].block_rows == 1000
    assert make_rows(n_features=10)[0].block_rows == 100
    assert make_rows(n_features=1000)[0].block_rows == 4
    empty = sparse.csr_array((50, 1000))
    assert RowBlocks(empty, np.zeros(50, dtype=np.int16)).block_rows > 100


@each("kind", [0, 1, -1])
@every_layout
def test_rows_of_a_kind_are_those_that_count(layout, kind):
    rows, X = make_rows(layout=layout)
    rows.sample_weight[::2] = 0
    members = (rows.y == kind) & (rows.sample_weight > 0)
    assert_array_equal(stacked(rows.blocks_of(kind)), X[members])
    unweighted, X = make_rows(layout=layout, weighted=False)
    assert_array_equal(stacked(unweighted.blocks_of(kind)), X[unweighted.y == kind])


def stacked(blocks):
    return np.concatenate([dense(block.X) for block in blocks])


def numbered(n_unlabelled, n_normal, n_anomaly):
    """Rows whose one column is their number."""
    y = np.repeat([0, 1, -1], [n_unlabelled, n_normal, n_anomaly]).astype(np.int16)
    y = np.random.default_rng(0).permutation(y)
    return RowBlocks(np.arange(len(y), dtype=float)[:, None], y)


def draw(rows, n_rows, shares, seed=0):
    return rows.sample(n_rows, np.array(shares), np.random.default_rng(seed))


@each("shares", [(1, 1, 1), (5, 2, 1), (0.1, 0.7, 0.2)])
def test_a_sample_is_divided_by_the_shares(shares):
    sample = draw(numbered(1000, 1000, 1000), 300, shares)
    expected = 300 * np.array(shares) / sum(shares)
    assert np.abs(sample.totals() - expected).max() <= 1
    assert abs(sample.n_rows - 300) <= 2


@each("n_rows", [1, 3, 100])
@each("shares", [(0.1, 0.9, 1.1e-5), (1e-9, 1, 1), (1, 1, 1)])
def test_every_kind_with_a_share_is_in_the_sample(shares, n_rows):
    assert draw(numbered(500, 500, 500), n_rows, shares).totals().min() >= 1


def test_a_sample_repeats_no_row_and_keeps_labels_and_order():
    rows = numbered(200, 50, 20)
    sample = draw(rows, 100, (1, 1, 1))
    chosen = sample.X[:, 0].astype(int)
    assert (np.diff(chosen) > 0).all()
    assert_array_equal(sample.y, rows.y[chosen])


def test_within_a_kind_every_row_is_as_likely_as_every_other():
    rows = numbered(40, 20, 8)
    counts = np.zeros(rows.n_rows)
    n_draws = 2000
    for seed in range(n_draws):
        sample = draw(rows, 20, (1, 1, 1), seed)
        counts[sample.X[:, 0].astype(int)] += 1
    for kind in (0, 1, -1):
        seen = counts[rows.y == kind] / n_draws
        expected = sample.totals()[kind] / rows.totals()[kind]
        assert 0 < expected < 1
        error = (expected * (1 - expected) / n_draws) ** 0.5
        assert np.abs(seen - expected).max() < 4.5 * error


def _blas_thread_counts():
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.get_num_threads() for library in libraries]


@pytest.fixture
def two_blas_threads():
    """Two threads of BLAS, whatever the environment says; restored afterwards."""
    limiter = ThreadpoolController().select(user_api="blas").limit(limits=2)
    _release_blas()
    yield _blas_thread_counts()
    _release_blas()
    limiter.restore_original_limits()
    _release_blas()


@pytest.mark.parametrize("first_out", [0, 1])
def test_overlapping_calls_in_threads_leave_blas_as_it_was(two_blas_threads, first_out):
    """The first to enter need not be the last to leave, nor the other way round."""
    assert set(two_blas_threads) == {2}
    inside, leave = ([threading.Event(), threading.Event()] for _ in range(2))

    def call(i):
        with one_blas_thread():
            inside[i].set()
            assert leave[i].wait(PATIENCE)

    threads = [threading.Thread(target=call, args=[i]) for i in range(2)]
    for thread, event in zip(threads, inside, strict=True):
        thread.start()
        assert event.wait(PATIENCE)
    assert set(_blas_thread_counts()) == {1}
    for i in (first_out, 1 - first_out):
        leave[i].set()
        threads[i].join(PATIENCE)
        assert set(_blas_thread_counts()) == ({1} if i == first_out else {2})
