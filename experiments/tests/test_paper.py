"""The paper's experiments: records, pages, cells that come out again, baselines and claims."""

import re

import clarabel
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import svm
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel

from experiments.datasets import PAPER_SETS, ImageDataset
from experiments.evaluation import TrialMean, rank_metrics
from experiments.paper import EXPERIMENTS, deep
from experiments.paper.baselines import OneClassSVM, SemiSupervisedOneClassSVM, one_class_dual
from experiments.paper.deep_claims import _POSITIVE, _judge
from experiments.paper.published import DEFAULTS, Published, published
from experiments.paper.summary import CellSummary
from experiments.records import NOT_RUN, read_records, row_key
from experiments.runner import RESULTS, Cell, NotAvailable, check, run
from experiments.tables import Table, markdown_table, say_signed

SHALLOW, DEEP = EXPERIMENTS
N_MISSING = {"shallow": 7, "deep": 0}  # sets that could not be had


# --- the committed records and pages -----------------------------------------------------


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_every_cell_that_could_be_run_is_recorded_once(experiment):
    frame = read_records(experiment.path())
    missing = set(frame.filter(status=NOT_RUN)["dataset"])
    rows = frame.filter(pl.col("status") != NOT_RUN).to_dicts()
    identity = experiment.identity()
    keys = [row_key(row, identity) for row in rows]
    expected = {experiment.key(c) for c in experiment.cells() if c["dataset"] not in missing}
    assert len(missing) == N_MISSING[experiment.name]
    assert len(keys) == len(expected)
    assert set(keys) == expected


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_the_committed_pages_are_those_of_the_records(experiment, tmp_path):
    """Of figures only the words are compared: other versions of matplotlib draw other lines."""
    experiment.report(read_records(experiment.path()), tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*"))
    folder = RESULTS / experiment.folder
    committed = [p for part in ("figures", "tables") for p in (folder / part).glob("*.*")]
    assert made == sorted(path.relative_to(folder) for path in committed)
    for name in made:
        new, old = (tmp_path / name).read_text("utf-8"), (folder / name).read_text("utf-8")
        if name.suffix == ".svg":
            new, old = (re.findall(r"<text[^>]*>([^<]*)</text>", text) for text in (new, old))
        assert new == old, name


@pytest.mark.needs_data
@pytest.mark.parametrize("dataset", ["vertebral", "cardio"])
@pytest.mark.parametrize("part", ["main", "prior", "a", "published"])
def test_recorded_shallow_cells_come_out_again(part, dataset):
    """All cells of a trial; other versions of NumPy or of BLAS may move the last digits."""
    cells = SHALLOW.chosen(f"{part}/{dataset}/*/0.05/3*")
    cells = [cell for cell in cells if cell["trial"] == 3]
    outcomes = dict(check(SHALLOW, cells, tolerance=5e-3))
    assert len(outcomes) == {"main": 16, "prior": 24, "a": 18, "published": 3}[part]
    assert not any(outcomes.values())


@pytest.mark.needs_data
@pytest.mark.parametrize("loss", ["squared", "sigmoid"])
def test_networks_come_out_again_on_a_cpu(loss):
    """Nearly: what was recorded was trained on a GPU, with products in half precision."""
    pytest.importorskip("torch")
    place = {"experiment": "images-prior", "dataset": "MNIST", "method": "rad", "budget": 0.05}
    settings = {"trial": 0, "anomaly_rate": 0.1, "a": 0.1, "prior": "flipped", "loss": loss}
    metrics = deep.run_cell(Cell(**place, **settings))
    frame = read_records(DEEP.path()).filter(**place, **settings)
    recorded = frame.row(0, named=True)
    assert len(frame) == 1
    for name in ("seed", "normal_class", "n_train", "n_test", "n_anomaly", "n_steps"):
        assert metrics[name] == recorded[name]
    assert metrics["auc"] == pytest.approx(recorded["auc"], abs=0.01)


def test_a_few_cells_of_a_stranger_make_pages(tmp_path, capsys):
    """As after a run of one dataset, or of one network, and with failures."""
    frame = read_records(SHALLOW.path()).filter(experiment="main")
    is_bad = (pl.col("dataset") == "vowels") & (pl.col("loss") == "hinge")
    some = frame.filter(pl.col("dataset").is_in(["cardio", "vowels"])).with_columns(
        status=pl.when(is_bad).then(pl.lit("failed")).otherwise("status"),
        reason=pl.when(is_bad).then(pl.lit("RuntimeError: 3 | 4")),
    )
    SHALLOW.report(some, tmp_path)
    text = (tmp_path / "tables" / "main.md").read_text("utf-8")
    assert "on 1 of the 26 datasets of the paper" in text
    assert "- not all cells have two trials: pendigits" in text
    assert "| rAD 90, PU 30 | vowels 120 |" in text
    assert [path.stem for path in (tmp_path / "tables").glob("*.md")] == ["main"]
    DEEP.report(read_records(DEEP.path()).filter(trial=0), tmp_path)
    assert (
        "images: no page yet, which needs two trials of every cell on 3" in capsys.readouterr().out
    )


# --- what was published ------------------------------------------------------------------


def test_published_numbers_are_found_by_cell():
    rad = {"loss": "squared", "lam": "cv", **DEFAULTS}
    assert published("main", "Stamps", "rad", rad) == Published(0.82, 0.0356)
    assert published("prior", "vowels", "rad", {**rad, "prior": 0.9}).se is None
    assert published("images", "MNIST", "sad", {"anomaly_rate": 0.1}) is None
    for cell in SHALLOW.cells():
        assert published(cell["experiment"], cell["dataset"], cell["method"], cell) is not None
    assert {cell["dataset"] for cell in SHALLOW.cells()} == set(PAPER_SETS)


def test_a_cell_is_compared_in_joint_standard_errors():
    rows = [
        {"experiment": "main", "dataset": "Stamps", "method": "rad", "loss": "squared"}
        | {"status": "ok", "trial": trial, "auc": auc, "average_precision": 0.5, "fit_seconds": 1}
        for trial, auc in enumerate([0.7, 0.8, 0.9])
    ]
    cell = CellSummary.of([*rows, {**rows[0], "status": "failed", "trial": 3}])
    assert (cell.auc.n, cell.n_trials) == (3, 4)
    assert cell.auc.se == pytest.approx(0.1 / np.sqrt(3))
    assert cell.difference_in_se == pytest.approx(-0.02 / np.hypot(0.1 / np.sqrt(3), 0.0356))
    assert cell.reaches
    assert cell.within
    assert cell.say(4) == "0.800 (5.77) [3]"


# --- deep cells, trained together --------------------------------------------------------


class Trainer:
    """In place of the stacked trainer: scores by the distance from the mean of known normals."""

    sizes = ()

    def __init__(self, detectors):
        self.detectors = detectors

    @staticmethod
    def key(detector):
        return type(detector).__name__, detector.module

    def fit(self, X, rows, labels):
        Trainer.sizes = (*Trainer.sizes, len(self.detectors))
        if any(getattr(detector, "loss", None) == "squared" for detector in self.detectors):
            raise RuntimeError("no squares today")
        self.centres = [X[r[y == 1]].mean(0) for r, y in zip(rows, labels, strict=True)]
        self.n_iter_ = np.full(len(rows), 100)
        return self

    def score_samples(self, X):
        return np.array([-np.abs(X - centre).mean((1, 2, 3)) for centre in self.centres])


@pytest.fixture
def small_images(monkeypatch):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = np.arange(4000) % 10
    X = (rng.integers(0, 60, (4000, 1, 8, 8)) + 15 * y[:, None, None, None]).astype(np.uint8)
    data = ImageDataset("MNIST", X[:3500], y[:3500], X[3500:], y[3500:])

    def load(name):
        if name != "MNIST":
            raise NotAvailable(f"{name} is not here", dataset=name)
        return data

    deep.image_set.cache_clear()
    deep.image_split.cache_clear()
    monkeypatch.setattr(deep, "load_images", load)
    monkeypatch.setattr("experiments.stack.StackedTrainer", Trainer)
    monkeypatch.setattr(Trainer, "sizes", ())
    yield data
    deep.image_set.cache_clear()
    deep.image_split.cache_clear()


def test_cells_of_one_shape_are_trained_together_and_only_the_culprit_fails(small_images, tmp_path):
    cells = DEEP.chosen("images/*/0.05/0/anomaly_rate=0.1*")
    assert len(cells) == 18
    outcome = run(DEEP, cells=cells, results=tmp_path)
    assert outcome.missing == ["F-MNIST", "CIFAR-10"]
    assert (outcome.done, outcome.failed) == (6, 1)
    assert Trainer.sizes == (4, 2, 1, 1, 2, 1, 1)
    frame = read_records(DEEP.path(tmp_path)).filter(dataset="MNIST").sort("loss", "method")
    failed = frame.filter(status="failed")
    assert failed["reason"].to_list() == ["RuntimeError: no squares today"]
    assert failed["loss"].to_list() == ["squared"]
    assert (frame.filter(status="ok")["auc"] > 0.8).all()
    assert frame.filter(method="nnpu")["n_anomaly"].item() == 0
    assert frame.filter(method="sad")["n_anomaly"].item() == 2
    assert run(DEEP, cells=cells, results=tmp_path).done == 0


def test_priors_in_words_and_splits_depend_on_the_cell(small_images):
    cells = DEEP.chosen("images-prior/MNIST/rad/0.05/0/anomaly_rate=0.2/a=0.1/*logistic")
    priors = [deep.make_detector(cell, "cpu").prior for cell in cells]
    assert priors == pytest.approx([0.8, 0.9, 0.8, 0.7, 0.2])
    tasks = [deep.make_task(cell, "cpu") for cell in cells]
    assert all(np.array_equal(task.rows, tasks[0].rows) for task in tasks)
    assert (tasks[0].truth_test == 1).sum() == 50


@settings(deadline=None, max_examples=50)
@given(n_p=st.integers(1, 60), n_n=st.integers(1, 60), levels=st.sampled_from([1, 2, 5, 1000]))
def test_metrics_are_those_of_scikit_learn(n_p, n_n, levels):
    rng = np.random.default_rng(n_p * n_n)
    truth = rng.permutation(np.repeat([1, -1], [n_p, n_n]))
    scores = rng.integers(0, levels, n_p + n_n) + 0.5 * levels * truth * rng.integers(0, 2)
    metrics, anomalous = rank_metrics(truth, scores), truth == -1
    assert metrics["auc"] == pytest.approx(roc_auc_score(anomalous, -scores), abs=1e-6)
    precision = average_precision_score(anomalous, -scores)
    assert metrics["average_precision"] == pytest.approx(precision, abs=1e-6)
    assert metrics["roc"][-1] == 1
    assert np.all(np.diff(metrics["roc"]) >= 0)


# --- baselines ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(200) < 0.2, -1, 1)
    X = rng.normal(size=(200, 4)) + 0.7 * (truth[:, None] == -1)
    y = np.where(rng.random(200) < 0.4, truth, 0).astype(np.int16)
    return X * [1, 3, 0.2, 1], y


def conic_dual(K, signed_costs):
    """The s and the value of min 1/2 s'Ks, sum s = 1, s between 0 and its signed cost."""
    n = len(K)
    A = sparse.csc_array(np.vstack([np.ones((1, n)), np.eye(n), -np.eye(n)]))
    b = np.concatenate([[1.0], np.maximum(signed_costs, 0), -np.minimum(signed_costs, 0)])
    options = clarabel.DefaultSettings()
    options.verbose = False
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    P = sparse.csc_array(np.triu(K))
    solution = clarabel.DefaultSolver(P, np.zeros(n), A, b, cones, options).solve()
    return np.array(solution.x), solution.obj_val


@pytest.mark.parametrize("anomaly_cost", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("nu", [0.03, 0.3, 0.9])
def test_the_dual_reaches_the_conic_optimum(rows, nu, anomaly_cost):
    X, y = rows
    K = rbf_kernel((X / X.std(0))[y != 0], gamma=1 / 4)
    cost = 1 / (nu * (y == 1).sum())
    costs = np.where(y[y != 0] == 1, cost, -anomaly_cost * cost)
    s = one_class_dual(K, costs)
    assert s.sum() == pytest.approx(1)
    assert (s * costs >= 0).all()
    assert s @ K @ s / 2 == pytest.approx(conic_dual(K, costs)[1], rel=1e-5)


def test_the_deformed_kernel_is_that_of_the_direct_formula(rows):
    X, y = rows
    Z = (X - X.mean(0)) / X.std(0)
    K = rbf_kernel(Z, gamma=1 / 4)
    distance = ((Z[:, None] - Z) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    W = np.zeros_like(distance)
    for i, nearest in enumerate(np.argsort(distance, axis=1)[:, :10]):
        W[i, nearest] = W[nearest, i] = 1
    L = np.eye(200) - W / np.sqrt(np.outer(W.sum(1), W.sum(1)))
    deformed = K - K @ np.linalg.inv(np.eye(200) + L @ K) @ L @ K
    labelled = y != 0
    cost = 1 / (0.1 * (y == 1).sum())
    s, _ = conic_dual(deformed[np.ix_(labelled, labelled)], np.where(y == 1, cost, -cost)[labelled])
    scores = SemiSupervisedOneClassSVM().fit(X, y).score_samples(X)
    assert_allclose(scores, deformed[:, labelled] @ s, atol=1e-4 * np.abs(scores).max())


@pytest.mark.parametrize("side", ["outside", "normal"])
def test_the_biased_svm_is_an_svc_with_these_costs(rows, side):
    X, y = rows
    Z = (X - X.mean(0)) / X.std(0)
    target = np.where(y == 0, -1 if side == "outside" else 1, y)
    cost = np.where(y == 0, 1, 2 * (y == 0).sum() / (y == 1).sum() if side == "outside" else 1)
    expected = svm.SVC(gamma=1 / 4).fit(Z, target, sample_weight=cost)
    scores = SemiSupervisedOneClassSVM("biased", unlabelled=side).fit(X, y).score_samples(X)
    assert_allclose(scores + expected.intercept_, expected.decision_function(Z), atol=0.02)


def test_the_one_class_svm_is_scikit_learn_s_on_standardised_columns(rows):
    X, y = rows
    Z = (X - X.mean(0)) / X.std(0)
    expected = svm.OneClassSVM(nu=0.1, gamma=1 / 4).fit(Z).score_samples(Z)
    assert_allclose(OneClassSVM().fit(X, y).score_samples(X), expected, atol=1e-6)
    constant = np.column_stack([X, np.ones(200)])
    model = OneClassSVM().fit(constant, y)
    assert_array_equal(model.score_samples(constant + np.eye(5)[4]), model.score_samples(constant))


# --- words -------------------------------------------------------------------------------


def test_claims_are_judged_by_their_figures():
    clear, doubtful = TrialMean(0.1, 0.01, 20), TrialMean(0.1, 0.2, 20)
    against = TrialMean(-1, 1, 2)
    assert _judge("x", _POSITIVE, {"a": clear}).verdict == "holds"
    assert _judge("x", _POSITIVE, {"a": clear, "b": doubtful}).verdict == "holds (within 2 SE)"
    assert _judge("x", _POSITIVE, {"b": against}).verdict == "does not hold (within 2 SE)"


def test_tables_in_markdown_escape_what_is_special():
    table = Table("", ("set", "AUC"), [("a_1 | <b>", "-0.5")], [("mean", "1")])
    assert r"| a_1 \| \<b> | -0.5 |" in re.sub(" +", " ", markdown_table(table))
    assert [say_signed(x, 3) for x in (0.0123, -0.0004, None)] == ["+0.012", "0.000", "-"]
