"""Rows from anywhere: the same fit from arrays, parts, memory maps, tensors and files."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from support.loops import each
from support.rows import make_table

from riskad import AutoRAD, BoostedRAD, InputError, ShallowRAD
from riskad.core.labels import LabelCounts
from riskad.detectors.forest import ForestRAD
from riskad.rows.arrays import are_codes, check_tensor
from riskad.rows.partitions import PartitionedRows, Reservoir
from riskad.rows.sources import Block, RowBlocks, tensor_rows


def in_parts(X, y, weight=None, n_parts=5):
    """The rows in parts, one of them empty."""
    cuts = [0, *np.linspace(0, len(y), n_parts).astype(int)]
    parts = [
        RowBlocks(X[i:j], y[i:j], None if weight is None else weight[i:j], block_rows=100)
        for i, j in itertools.pairwise(cuts)
    ]
    return PartitionedRows(parts, X.shape[1], sparse=sparse.issparse(X))


SETTINGS = {
    "theorem": {},
    "closed form": {"loss": "squared", "lam": 0.1},
    "newton": {"loss": "logistic", "lam": 0.01},
    "conjugate gradients": {"loss": "sigmoid", "lam": 0},
    "l1": {"loss": "logistic", "penalty": "l1", "lam": 0.01},
    "kinks": {"loss": "hinge", "lam": 0.1, "tol": 1e-4},
    "non-convex": {"loss": "sigmoid", "lam": 0.1, "tol": 1e-3},
    "guarded": {"risk": "nnrad", "lam": 0.1, "tol": 1e-4},
    "labelled only": {"risk": "pn", "lam": 0.1},
    "one kind of label": {"risk": "nu", "lam": "cv"},
    "cross-validated": {"lam": "cv"},
    "no intercept, no scale": {"intercept_scaling": 0, "scale": False, "lam": 0.1},
    "map of the user": {"feature_map": "poly", "lam": 0.1},
}


@pytest.mark.slow
@each("weighted", [False, True])
@each("settings", SETTINGS.values())
def test_rows_in_parts_give_the_fit_of_rows_in_memory(settings, weighted):
    X, y = make_table()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    whole = ShallowRAD(**settings).fit(X, y, weight)
    parted = ShallowRAD(**settings).fit(in_parts(X, y, weight))
    assert parted.lambda_ == pytest.approx(whole.lambda_, rel=1e-9)
    # Both stop within their tolerance of the minimum, parts after a start from the kept rows.
    rough = settings.get("tol", 1e-6)
    assert parted.objective_ == pytest.approx(whole.objective_, rel=10 * rough)
    close = {"rtol": 1e-4, "atol": 1e-5} if rough == 1e-6 else {"rtol": 0.05, "atol": 0.02}
    assert_allclose(parted.coef_, whole.coef_, **close)
    assert parted.offset_ == pytest.approx(whole.offset_, rel=0.05, abs=0.02)
    assert parted.risk_parts_ == pytest.approx(whole.risk_parts_, rel=0.05, abs=0.02)


def test_a_fit_takes_few_passes():
    X, y = make_table()
    rows = in_parts(X, y)
    ShallowRAD(lam=0.1).fit(rows)
    assert rows.passes <= 3  # statistics, and the gradient where the kept rows led
    squared = in_parts(X, y)
    ShallowRAD("squared", lam=0.1).fit(squared)
    assert squared.passes == 1  # moments of each kind are all it needs
    labelled = in_parts(X, y)
    ShallowRAD(risk="pn", lam=0.1).fit(labelled)
    assert labelled.passes == 1  # labelled rows were kept


def test_scores_of_a_source_are_in_order_and_columns_are_compared():
    X, y = make_table()
    model = ShallowRAD(lam=0.1).fit(X, y)
    assert_allclose(model.score_samples(in_parts(X, y)), model.score_samples(X), rtol=1e-12)
    assert_array_equal(model.predict(in_parts(X, y)), model.predict(X))
    with pytest.raises(InputError, match="3 columns, and the model was fitted to 4"):
        model.score_samples(in_parts(X[:, :3], y))


def test_gaps_in_a_source_are_refused_by_column():
    X, y = make_table()
    X[7, 2] = np.nan
    X[9, 2] = np.inf
    with pytest.raises(InputError, match=r"2 in column 2\. Fill gaps"):
        ShallowRAD().fit(in_parts(X, y))


@pytest.mark.slow
@each("detector", [AutoRAD(budget=600), ForestRAD(), BoostedRAD(max_iter=20)])
def test_other_detectors_learn_from_a_sample(detector):
    pytest.importorskip("lightgbm")
    X, y = make_table(n=1500)
    model = detector.fit(in_parts(X, y))
    scores = model.score_samples(in_parts(X, y))
    # The network of AutoRAD computes in single precision: 100 units of it and the members' spread.
    assert_allclose(scores, model.score_samples(X), rtol=1e-7, atol=5e-5)
    assert scores[y == 1].mean() > scores[y == -1].mean()


def test_a_reservoir_is_a_uniform_sample_whatever_the_parts():
    n, most = 4000, 50
    X, y = np.arange(n, dtype=float)[:, None], np.zeros(n, dtype=np.int16)
    hits = np.zeros(n)
    for draw in range(300):
        whole = Reservoir(most)
        for number, rows in enumerate((slice(0, 100), slice(100, 3000), slice(3000, n))):
            part = Reservoir(most, seed=1000 * draw + number)
            part.add(Block(X[rows], y[rows], None, None))
            whole.join(part)
        kept = whole.rows.X[:, 0].astype(int)
        assert len(np.unique(kept)) == most
        hits[kept] += 1
    # 3.75 hits expected of each row; means of the three parts have standard errors below 0.2
    for rows in (slice(0, 100), slice(100, 3000), slice(3000, n)):
        assert hits[rows].mean() == pytest.approx(300 * most / n, abs=0.6)


def test_a_reservoir_keeps_few_labelled_rows_all():
    X, y = make_table(n=2000)
    weight = np.linspace(0, 1, len(y))
    kept = Reservoir(most=100, share=0.05)
    kept.add(Block(X, y, weight, None))
    assert kept.counts == LabelCounts(40, 20, 1940)
    assert [kept.complete(kind) for kind in (1, -1, 0)] == [True, True, False]
    assert_array_equal(kept.labelled.X, X[y != 0])
    assert_array_equal(kept.labelled.sample_weight, weight[y != 0])
    assert_allclose(kept.totals, [weight[y == k].sum() for k in (0, 1, -1)])
    assert 50 <= (kept.rows.y == 0).sum() <= 100


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_mapped_rows_are_not_copied(tmp_path, dtype):
    X, y = make_table(n=20_000)
    np.save(tmp_path / "X.npy", X.astype(dtype))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = ShallowRAD(lam=0.1)
    checked = model._check_rows(mapped, reset=True)
    assert np.shares_memory(checked, mapped)
    assert_allclose(model.fit(mapped, y).coef_, ShallowRAD(lam=0.1).fit(X, y).coef_, rtol=1e-5)


def test_tensors_become_rows_of_floats_with_codes_on_their_device():
    torch = pytest.importorskip("torch")
    X = torch.arange(6, dtype=torch.int16).reshape(3, 2)
    assert check_tensor(X).dtype == torch.float32
    assert check_tensor(X.long()).dtype == torch.float64
    assert are_codes(torch.tensor([1, 0, -1]), 3)
    assert not are_codes(torch.tensor([1, 0, 2]), 3)
    assert not are_codes(np.array([1, 0, -1]), 3)
    rows = tensor_rows(X.double(), np.array([1, 0, -1]), np.array([1.0, 2.0, 3.0]))
    assert (rows.y.dtype, rows.sample_weight.dtype) == (torch.int16, torch.float64)
    assert_array_equal(rows.totals(), [2, 1, 3])
    with pytest.raises(InputError, match=r"got a tensor of shape \(6,\)"):
        check_tensor(X.flatten())


@pytest.mark.slow
@each("settings", list(SETTINGS.values())[:-1])
@each("weighted", [False, True])
def test_tensors_give_the_fit_of_arrays(settings, weighted):
    torch = pytest.importorskip("torch")
    X, y = make_table()
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    whole = ShallowRAD(**settings).fit(X, y, weight)
    model = ShallowRAD(**settings).fit(torch.from_numpy(X), torch.from_numpy(y), weight)
    assert_allclose(model.coef_, whole.coef_, rtol=1e-7, atol=1e-10)
    assert model.offset_ == pytest.approx(whole.offset_, rel=1e-6, abs=1e-9)
    scores = model.score_samples(torch.from_numpy(X))
    assert scores.dtype == torch.float64
    assert_allclose(scores.numpy(), whole.score_samples(X), rtol=1e-6, atol=1e-9)
    assert_array_equal(model.predict(torch.from_numpy(X)).numpy(), model.predict(X))


def test_what_tensors_cannot_do_is_said():
    torch = pytest.importorskip("torch")
    X, y = make_table()
    with pytest.raises(InputError, match="feature_map takes rows in the computer's own memory"):
        ShallowRAD(feature_map="rbf", lam=0.1).fit(torch.from_numpy(X), y)
    with pytest.raises(InputError, match=r"shape \(3000,\)"):
        ShallowRAD().fit(torch.from_numpy(X[:, 0]), y)
    model = ShallowRAD(lam=0.1).fit(torch.from_numpy(X), y)
    X[3, 1] = np.nan
    with pytest.raises(InputError, match="1 in column 1"):
        model.score_samples(torch.from_numpy(X))
    with pytest.raises(InputError, match="column 1"):
        ShallowRAD().fit(torch.from_numpy(X), y)
