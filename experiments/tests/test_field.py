"""The field: methods of others, ranks and leads, learning curves; pages are made of the records."""

import hashlib
import math
import sys
import xml.etree.ElementTree as ET

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from experiments.datasets import PAPER_SETS, label_anomalies
from experiments.field import EXPERIMENTS, learning_curves, pages
from experiments.field.cells import METHODS, cells, make_estimator
from experiments.field.environments import AutoGluon, OwnEnvironment, Spade, TabPFNv1, TabPFNv2
from experiments.field.peers import Classifier, Scorer
from experiments.field.ranking import FieldRecords, comparisons, critical_difference
from experiments.pretraining.split import hashes
from experiments.records import NOT_RUN, OK, SKIPPED, read_records, to_frame, versions
from experiments.runner import RESULTS, Cell, NotAvailable, Skipped, check

FIELD, CURVES = EXPERIMENTS
KEYS = ("dataset", "method", "budget", "trial")
LOGISTIC = "sklearn.linear_model.LogisticRegression"
DEEP = ("DeepSAD", "PReNet", "RoSAS", "DevNet")
FOREST = "sklearn.ensemble.RandomForestClassifier"


def make_rows(n_rows=300, shift=3.0, seed=0):
    """Gaussian rows with shifted anomalies, some of them labelled: X, codes, truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n_rows) < 0.2, -1, 1).astype(np.int16)
    X = rng.standard_normal((n_rows, 4)) + shift * (truth == -1)[:, None]
    return X, np.where(rng.random(n_rows) < 0.3, truth, 0).astype(np.int16), truth


# --- records and pages -------------------------------------------------------------------


@pytest.fixture(scope="module")
def field():
    return read_records(FIELD.path())


@pytest.fixture(scope="module")
def curves():
    return read_records(CURVES.path())


def test_every_cell_that_could_be_run_is_recorded_once(field):
    missing = set(field.filter(pl.col("status") == NOT_RUN)["dataset"])
    rows = field.filter(pl.col("status") != NOT_RUN).to_dicts()
    methods = {row["method"] for row in rows}
    planned = [c for c in cells() if c["dataset"] not in missing and c["method"] in methods]
    expected = {FIELD.key(cell) for cell in planned}
    keys = [FIELD.key(Cell(**{name: row[name] for name in KEYS})) for row in rows]
    assert len(missing) == 7
    assert len(keys) == len(set(keys))
    unfinished = FieldRecords(field).unfinished
    assert set(keys) <= expected
    assert len(expected) - len(keys) == sum(unfinished.values())
    assert field["status"].unique().sort().to_list() == [NOT_RUN, OK, SKIPPED]


def test_pages_of_the_field_are_made_of_its_records(field, tmp_path):
    pages.report(field, tmp_path)
    text = (RESULTS / "field/tables/field.md").read_text(encoding="utf-8")
    assert (tmp_path / "tables/field.md").read_text(encoding="utf-8") == text
    ET.fromstring((tmp_path / "figures/field-lead.svg").read_text())


def test_a_part_of_a_run_has_a_page(field, tmp_path):
    """What is not finished is named, and not compared."""
    parts = {"AutoRAD alone": pl.col("method") == "AutoRAD", "one trial": pl.col("trial") == 0}
    parts |= {"one set": pl.col("dataset") == "vertebral", "nothing": pl.col("trial") < 0}
    for name, part in parts.items():
        pages.report(field.filter(part), tmp_path / name)
        text = (tmp_path / name / "tables/field.md").read_text(encoding="utf-8")
        assert ("## Targets" in text) == (name == "one set")
        assert ("- AutoRAD: 779 cells to go" in text) == (name == "one trial")


def test_the_page_of_learning_curves_is_made_of_its_records(curves):
    text = (RESULTS / "field/learning_curves.md").read_text(encoding="utf-8")
    assert learning_curves.page(curves) == text
    known = {*hashes("kept"), *PAPER_SETS, learning_curves.MADE_UP}
    assert set(curves["dataset"]) <= known
    assert curves.select("dataset", "method", "budget").is_unique().all()


@pytest.mark.needs_data
@pytest.mark.parametrize(
    ("method", "trial"),
    [("AutoRAD", 17), ("BoostedRAD", 0), ("ShallowRAD", 0), ("LogReg", 0), ("ExtraTrees", 0)],
)
def test_cells_of_the_field_come_out_again(field, method, trial):
    """With the versions of the record, to its digits: trees of others draw other splits."""
    cell = Cell(dataset="vertebral", method=method, budget="5 %", trial=trial)
    (row,) = field.filter(pl.all_horizontal(pl.col(k) == v for k, v in cell.items())).to_dicts()
    if row["versions"].split("; ", 1)[1] != versions().split("; ", 1)[1]:
        pytest.skip(f"recorded with {row['versions']}")
    assert list(check(FIELD, [cell])) == [(cell, [])]


@pytest.mark.needs_data
def test_cells_of_learning_curves_come_out_again():
    chosen = [c for c in CURVES.cells() if c["budget"] == "10 %"]
    some = [c for c in chosen if c["dataset"] == "vertebral" and c["method"] == "AutoRAD"]
    some += [c for c in chosen if c["dataset"] == "vertebral" and c["method"] == "ExtraTrees"]
    assert [lines for _, lines in check(CURVES, some)] == [[], []]


def test_methods_are_run_as_often_as_the_page_says():
    assert (len(METHODS), sum(method.is_peer for method in METHODS.values())) == (27, 24)
    often = {name for name, method in METHODS.items() if method.trials == 30}
    assert len(often) == 10
    recent = {name for name, method in METHODS.items() if not method.other_trials}
    assert recent == {"RealMLP", "FLAML", "TabPFN v1", "TabPFN v2", "AutoGluon", "SPADE"}
    assert make_estimator("BoostedRAD", "5 anomalies").risk == "nu"
    assert make_estimator("BoostedRAD", "1 %").risk == "rad"
    assert make_estimator("AutoRAD", seed=7).random_state == 7


# --- methods of others -------------------------------------------------------------------


def test_a_classifier_on_labelled_rows_is_that_classifier():
    X, y, _ = make_rows()
    scaler, labelled = StandardScaler().fit(X), y != 0
    own = LogisticRegression().fit(scaler.transform(X[labelled]), y[labelled] == -1)
    peer = Classifier(LOGISTIC, standardise=True).fit(X, y)
    expected = -own.decision_function(scaler.transform(X))
    np.testing.assert_allclose(peer.score_samples(X), expected, rtol=1e-10)
    own = LogisticRegression(C=0.1).fit(X, y == -1)
    peer = Classifier(LOGISTIC, unlabelled="normal", options={"C": 0.1}).fit(X, y)
    np.testing.assert_allclose(peer.score_samples(X), -own.decision_function(X), rtol=1e-10)


@pytest.mark.parametrize("unlabelled", ["drop", "normal", "self-training"])
@pytest.mark.parametrize(("path", "options"), [(LOGISTIC, {}), (FOREST, {"n_estimators": 20})])
def test_classifiers_find_anomalies_repeat_themselves_and_heed_labels(path, options, unlabelled):
    X, y, truth = make_rows(400, seed=1)
    peer = Classifier(path, unlabelled, standardise=True, options=options, random_state=5)
    scores = peer.fit(X, y).score_samples(X)
    assert roc_auc_score(truth == 1, scores) > 0.9
    np.testing.assert_array_equal(clone(peer).fit(X, y).score_samples(X), scores)
    shuffled = np.random.default_rng(0).permutation(y)
    assert np.abs(clone(peer).fit(X, shuffled).score_samples(X) - scores).max() > 0.05


@pytest.mark.parametrize(
    "peer", [Classifier(LOGISTIC), Classifier(LOGISTIC, "self-training"), AutoGluon(), Spade()]
)
def test_without_labelled_normals_some_are_not_applicable(peer):
    X, _, truth = make_rows()
    with pytest.raises(Skipped, match="labelled normal rows"):
        peer.fit(X, label_anomalies(truth, random_state=0))


class Distances:
    """With the interface of PyOD and DeepOD: 1 for known anomalies, scores high for anomalies."""

    def __init__(self, power=1.0, random_state=None):
        self.power, self.random_state = power, random_state

    def fit(self, X, y):
        assert set(np.unique(y)) == {0, 1}
        self.n_rows, self.n_anomalies = len(X), int(y.sum())
        self.centre = X[y == 1].mean(axis=0)
        return self

    def decision_function(self, X):
        return -(np.linalg.norm(X - self.centre, axis=1) ** self.power)


DISTANCES = f"{__name__}.Distances"


def test_a_scorer_takes_anomalies_and_scores_the_other_way_round():
    X, y, truth = make_rows(seed=2)
    peer = Scorer(DISTANCES, standardise=True, options={"power": 2.0}, random_state=9).fit(X, y)
    assert (peer.model_.power, peer.model_.random_state) == (2.0, 9)
    assert peer.model_.n_anomalies == (y == -1).sum()
    assert roc_auc_score(truth == 1, peer.score_samples(X)) > 0.9
    assert Scorer(DISTANCES).fit(X, label_anomalies(truth, 1)).model_.n_anomalies == 2
    sampled = Scorer(DISTANCES, most_rows=100).fit(X, y).model_
    assert (sampled.n_rows, sampled.n_anomalies) == (100, (y == -1).sum())


def test_missing_packages_say_what_to_do():
    assert Classifier(LOGISTIC).missing() is None
    assert "requirements.txt" in Classifier("catbust.CatBoostClassifier").missing()
    assert Classifier(LOGISTIC).version().startswith("sklearn 1.")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.is_peer])
def test_peers_run_where_they_are_installed(name):
    try:
        peer = make_estimator(name, seed=1)
    except NotAvailable as error:
        pytest.skip(str(error))
    if name in ("FLAML", "AutoGluon"):
        limit = {"FLAML": "time_budget", "AutoGluon": "time_limit"}[name]
        peer.set_params(options=dict(peer.options) | {limit: 4})
    X, y, _ = make_rows(seed=3)
    X_new, _, truth = make_rows(seed=4)
    scores = peer.fit(X, y).score_samples(X_new)
    assert np.isfinite(scores).all()
    assert roc_auc_score(truth == 1, scores) > (0.3 if name in DEEP else 0.8)


# --- environments of their own -----------------------------------------------------------


FAKE = """
import os, numpy as np

class TabularDataset(dict):
    def rows(self):
        return np.column_stack([v for name, v in self.items() if name.startswith("column ")])

class Scores(list):
    def to_numpy(self):
        return np.array(self)

class TabularPredictor:
    def __init__(self, label, path, **options):
        self.label, self.path = label, path

    def fit(self, table, **options):
        if "fail" in options:
            raise ValueError("nothing can be learned")
        print("noise on the output")
        assert os.environ["OMP_NUM_THREADS"] == "1" and options == {"time_limit": 3}
        self.centre = table.rows()[np.asarray(table[self.label]) == 1].mean(axis=0)

    def predict_proba(self, table, as_multiclass):
        return Scores(-np.linalg.norm(table.rows() - self.centre, axis=1))
"""


@pytest.fixture
def fake_python(tmp_path, monkeypatch):
    """A Python in whose environment AutoGluon is a few lines."""
    place = tmp_path / "packages"
    (place / "autogluon").mkdir(parents=True)
    (place / "autogluon" / "tabular.py").write_text(FAKE)
    (place / "autogluon_tabular-9.9.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: autogluon.tabular\nVersion: 9.9\n"
    (place / "autogluon_tabular-9.9.dist-info" / "METADATA").write_text(metadata)
    path = tmp_path / "python"
    isolated = f'test "$1" = -I && shift && PYTHONPATH={place} exec {sys.executable} -P "$@"\n'
    path.write_text("#!/bin/sh\n" + isolated)
    path.chmod(0o755)
    monkeypatch.setenv("RISKAD_AUTOGLUON_PYTHON", str(path))


@pytest.mark.usefixtures("fake_python")
def test_a_peer_fits_and_scores_in_its_own_environment():
    X, y, _ = make_rows(seed=2)
    peer = AutoGluon(options={"time_limit": 3})
    assert (peer.missing(), peer.version()) == (None, "autogluon 9.9")
    peer.fit(X, y)
    centre = X[y == -1].mean(axis=0)
    np.testing.assert_allclose(peer.score_samples(X), np.linalg.norm(X - centre, axis=1))
    folder, process = peer.model_.folder, peer.model_._process
    del peer
    assert not folder.exists()
    assert process.poll() is not None


@pytest.mark.usefixtures("fake_python")
def test_what_fails_there_is_said_here():
    X, y, _ = make_rows(seed=2)
    with pytest.raises(RuntimeError, match="status 1: ValueError: nothing can be learned"):
        AutoGluon(options={"fail": True}).fit(X, y)


def test_tabpfn_v1_gets_no_more_rows_and_columns_than_it_was_made_for(monkeypatch):
    shapes = []
    monkeypatch.setattr(OwnEnvironment, "_trained", lambda self, X, y: shapes.append(X.shape))
    monkeypatch.setattr(OwnEnvironment, "_anomaly_scores", lambda self, X: X[:, 0])
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1500, 120)), np.where(np.arange(1500) % 5, 1, -1)
    assert TabPFNv1(random_state=3).fit(X, y).score_samples(X[:7]).shape == (7,)
    TabPFNv1(random_state=3).fit(X[:, :9], y)
    assert shapes == [(1000, 100), (1000, 9)]


@pytest.mark.parametrize("kind", [AutoGluon, TabPFNv1, TabPFNv2, Spade])
def test_an_environment_that_is_not_there_says_how_to_make_it(monkeypatch, tmp_path, kind):
    monkeypatch.delenv(kind.variable, raising=False)
    weights = tmp_path / "weights"
    weights.write_bytes(b"weights")
    monkeypatch.setenv("RISKAD_TABPFN2_WEIGHTS", str(weights))
    if kind is TabPFNv2:
        assert "does not name the weights" in kind().missing()
        monkeypatch.setattr(kind, "sha256", hashlib.sha256(b"weights").hexdigest())
    assert f"{kind.variable} is not set" in kind().missing()
    monkeypatch.setenv(kind.variable, str(tmp_path / "nowhere"))
    assert "README.md" in kind().missing()


# --- ranks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_critical_differences_are_those_of_the_tables(k, q):
    """The two-tailed values of q at 0.05 that are printed in Demsar (2006), Table 5(a)."""
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / 84), rel=5e-4)


def record(method, dataset, auc, trial=0, budget="5 %", **more):
    row = {"experiment": "field", "dataset": dataset, "method": method, "budget": budget}
    row |= {"trial": trial, "status": OK, "auc": auc, "average_precision": auc / 2}
    row |= {"fit_seconds": 2.0 + trial, "n_train": 70, "n_test": 30, "versions": "riskad 0.1.0"}
    return row | {"commit": "abc", "reason": None, "peer": None, "warnings": None} | more


def made(rows, monkeypatch):
    """Records of a field that plans no more cells than these rows have."""
    planned = [Cell(**{name: row[name] for name in KEYS}) for row in rows]
    monkeypatch.setattr("experiments.field.ranking.cells", lambda: planned)
    return FieldRecords(to_frame(rows))


def by_hand():
    """Three methods on three sets, two trials each."""
    means = {"AutoRAD": (0.9, 0.8, 0.7), "LogReg": (0.8, 0.8, 0.6), "CatBoost": (0.7, 0.6, 0.8)}
    return [
        record(method, name, mean + shift, trial)
        for method, three in means.items()
        for name, mean in zip(("pendigits", "Stamps", "cardio"), three, strict=True)
        for trial, shift in enumerate((-0.01, 0.01))
    ]


def test_ranks_wins_and_leads_by_hand(monkeypatch):
    records = made(by_hand(), monkeypatch)
    (comparison,) = comparisons(records, "5 %")
    assert comparison.sets == ["pendigits", "Stamps", "cardio"]
    assert comparison.n_trials == [2, 2, 2]
    assert comparison.mean("AUC", "AutoRAD") == pytest.approx(0.8)
    expected = {"AutoRAD": (1 + 1.5 + 2) / 3, "LogReg": (2 + 1.5 + 3) / 3, "CatBoost": 7 / 3}
    assert comparison.ranks["AUC"] == pytest.approx(expected)
    assert [comparison.wins("AUC", name) for name in expected] == [2, 1, 1]
    assert comparison.seconds == dict.fromkeys(expected, 2.5)
    # Each set's mean has an SE of 0.01, and the mean of three such one of sqrt(3) 0.01 / 3.
    assert comparison.error("AUC", "AutoRAD") == pytest.approx(0.01 / 3**0.5)
    lead = records.leads["5 %"]["AUC"]
    assert (lead.peer, lead.over.mean) == ("LogReg", pytest.approx(0.2 / 3))


def test_methods_with_few_trials_are_compared_on_these_and_the_others_on_all(monkeypatch):
    rows = by_hand()
    slow = [record("XGBOD", name, 0.5) for name in ("pendigits", "Stamps", "cardio")]
    everyone, often = comparisons(made(rows + slow, monkeypatch), "5 %")
    assert (len(everyone.methods), everyone.n_trials) == (4, [1, 1, 1])
    assert (len(often.methods), often.n_trials) == (3, [2, 2, 2])
    fewer = [r for r in rows if (r["method"], r["dataset"]) != ("LogReg", "cardio")]
    assert comparisons(made(fewer, monkeypatch), "5 %")[0].sets == ["pendigits", "Stamps"]


# --- learning curves ---------------------------------------------------------------------


def test_splits_of_learning_curves_stay_the_same():
    """A row of the truth moves no row, and labels are a table's own."""
    y = np.arange(1000) % 10 == 0
    train, test, codes = learning_curves.draw_rows(y, "5 %", "004a9c15d6f2")
    order = np.random.default_rng([7, 0x004A9C15]).permutation(1000)
    assert [*train, *test] == order.tolist()
    assert (codes != 0).sum() == 35
    assert ((codes == -1) <= y[train]).all()
    assert ((codes == 1) <= ~y[train]).all()
    few = learning_curves.draw_rows(y, "few", "004a9c15d6f2")[2]
    assert 1 <= (few == -1).sum() <= 3


def test_gains_are_over_tables_that_both_have_and_misses_are_said():
    def rows(table, auto, before=None, others=(0.7, 0.6, 0.5)):
        values = dict(zip(learning_curves.METHODS, (auto, *others), strict=True))
        values |= {} if before is None else {learning_curves.BEFORE: before}
        return [record(method, table, auc, budget="20 %") for method, auc in values.items()]

    frame = to_frame([*rows("a", 0.7, 0.65), *rows("b", 0.69, 0.69), *rows("new", 0.1)])
    auc, _ = learning_curves.summarise(frame, ("a", "b", "new"))
    assert auc["means"]["AutoRAD"] == pytest.approx((0.7 + 0.69 + 0.1) / 3)
    assert (auc["best"], auc["lead"].mean) == ("CatBoost", pytest.approx(-0.61 / 3))
    assert (auc["gain"].mean, auc["gain"].se) == pytest.approx((0.025, 0.025))
    assert auc["wanted"] == -0.002
    assert "| no" in learning_curves._target_table([auc])
    unfinished = to_frame([*rows("a", 0.7), *rows("b", 0.7), *rows("c", 0.7)[:2]])
    assert learning_curves.summarise(unfinished, ("a", "b", "c"))[0]["tables"] == 2
