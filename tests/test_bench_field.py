"""The benchmark against the field: budgets of labels, other people's methods, ranks, the report."""

import json
import math
import random
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import make_contaminated_rows
from scipy.stats import friedmanchisquare
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from riskad.bench.experiment import PARTS_OF, Experiment, Method, Tables, built_in, load_experiment
from riskad.bench.field import (
    METRICS,
    budgets,
    comparisons,
    critical_difference,
    groups,
    lead,
    targets,
    without_result,
)
from riskad.bench.peers import Classifier, NotApplicable, Scorer
from riskad.bench.records import FAILED, NOT_RUN, OK, SKIPPED, read_records
from riskad.bench.render import csv_text, latex_text, markdown_text, write_report
from riskad.bench.runner import run_experiment
from riskad.bench.summarise import summarise
from riskad.bench.trial import make_split
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts, count_labels
from riskad.datasets import label_anomalies, mask_labels

LOGISTIC = "sklearn.linear_model.LogisticRegression"
FOREST = "sklearn.ensemble.RandomForestClassifier"
CLASSIFIER, SCORER = "riskad.bench.peers.Classifier", "riskad.bench.peers.Scorer"
SLOW = built_in("field")["field-slow"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Made-up data under the names of two sets without a known checksum."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "adbench").mkdir()
    for number, name in ((14, "glass"), (45, "wine")):
        X, _, truth = make_contaminated_rows(300, 3, seed=number)
        np.savez(folder / "adbench" / f"{number}_{name}.npz", X=X, y=(truth == -1).astype(int))
    return folder


@pytest.fixture
def made_up(folder, monkeypatch):
    monkeypatch.setenv("RISKAD_DATA", str(folder))


# --- budgets of labels -------------------------------------------------------------------


def test_some_anomalies_are_labelled_and_nothing_else():
    truth = np.where(np.arange(200) % 10 == 0, -1, 1)
    y = label_anomalies(truth, 5, random_state=3)
    assert count_labels(y) == LabelCounts(normal=0, anomaly=5, unlabelled=195)
    assert set(truth[y == -1]) == {-1}
    np.testing.assert_array_equal(y, label_anomalies(truth, 5, random_state=3))
    assert any((label_anomalies(truth, 5, random_state=s) != y).any() for s in range(5))


def test_each_anomaly_is_chosen_equally_often():
    truth = [1] * 20 + [-1] * 10
    chosen = sum(label_anomalies(truth, 5, random_state=seed) == -1 for seed in range(2000))
    assert not chosen[:20].any()
    assert np.abs(chosen[20:] / 2000 - 0.5).max() < 4 * math.sqrt(0.25 / 2000)


def test_never_more_anomalies_are_labelled_than_there_are():
    assert count_labels(label_anomalies([1, 1, 1, -1, -1], 5, random_state=0)).anomaly == 2


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "5"])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(InputError, match="count must be a whole number"):
        label_anomalies([1, -1], count)


def test_every_budget_is_a_condition():
    method = Method("m", LOGISTIC)
    protocol = Tables(labelled=(0.01, 0.05, "5 anomalies"))
    described = Experiment("e", "", ("wine",), (method,), 2, protocol=protocol)
    cells = list(described.cells())
    assert [cell.labelled for cell in cells] == [0.01, 0.05, "5 anomalies"] * 2
    assert len({cell.key for cell in cells}) == 6


@pytest.mark.usefixtures("made_up")
def test_budgets_share_rows_and_a_share_keeps_its_labels():
    shares = [make_split("wine", 0, 0, 0.3, budget) for budget in (0.05, 0.1, "5 anomalies")]
    for split in shares[1:]:
        np.testing.assert_array_equal(split.X_train, shares[0].X_train)
        np.testing.assert_array_equal(split.truth_test, shares[0].truth_test)
    assert count_labels(shares[2].y_train) == LabelCounts(0, 5, 205)
    assert count_labels(shares[0].y_train).unlabelled == 210 - round(0.05 * 210)


@pytest.mark.needs_data
def test_the_splits_are_those_of_the_shallow_experiments():
    """Labels of a recorded trial of results/shallow, counted there before there were budgets."""
    path = Path(__file__).parents[1] / "results" / "shallow" / "records" / "main.jsonl"
    if not path.exists():
        pytest.skip("results/ is part of the repository, not of the package")
    rows = {row["trial"]: row for row in read_records(path) if row.get("dataset") == "cardio"}
    for trial in range(5):
        seen = count_labels(make_split("cardio", trial, 0, 0.3, 0.05).y_train)
        assert (seen.normal, seen.anomaly) == (rows[trial]["n_normal"], rows[trial]["n_anomaly"])


@pytest.mark.parametrize("labelled", ['"5 normals"', '"0 anomalies"', "[0.05, 2]", "[]", '"many"'])
def test_a_budget_that_is_none_is_refused(tmp_path, labelled):
    path = tmp_path / "mine.toml"
    path.write_text(
        f"title = 'x'\ntrials = 1\ndatasets = ['wine']\nlabelled = {labelled}\n"
        "[[methods]]\nname = 'm'\nestimator = 'a.b'\n"
    )
    with pytest.raises(InputError, match="labelled"):
        load_experiment(path)


# --- descriptions that rest on others ----------------------------------------------------


def test_what_a_description_does_not_say_is_as_in_the_one_it_is_like():
    known = {name: load_experiment(path) for name, path in built_in("field").items()}
    main, five, fewer = known["field"], known["field-five"], known["field-budgets"]
    assert (main.trials, main.protocol.labelled) == (30, (0.05,))
    assert (fewer.trials, fewer.protocol.labelled) == (5, (0.01, 0.1))
    assert fewer.datasets == main.datasets
    assert {m.name for m in fewer.methods} == {m.name for m in main.methods}
    assert {m.name for m in five.methods} == {m.name for m in main.methods}
    shallow = {m.name: m for m in five.methods}["ShallowRAD"]
    assert shallow.settings == {"risk": "nu", "lam": "cv"}
    assert (shallow.estimator, shallow.trials) == ("riskad.ShallowRAD", 5)
    slow = {m.name for m in known["field-budgets-slow"].methods}
    assert not slow & {m.name for m in main.methods}
    with_unlabelled = {"RandomForest+U", "ExtraTrees+U", "CatBoost+U", "SelfTraining"}
    assert slow == with_unlabelled | {"XGBOD", "DeepSAD", "PReNet", "RoSAS", "DevNet"}


def test_a_method_is_completed_by_the_one_of_the_same_name(tmp_path):
    (tmp_path / "base.toml").write_text(
        "title = 'x'\ntrials = 3\ndatasets = ['wine']\n"
        "[[methods]]\nname = 'a'\nestimator = 'riskad.ShallowRAD'\nsettings = { lam = 1.0 }\n"
        "[[methods]]\nname = 'b'\nestimator = 'riskad.BoostedRAD'\n"
    )
    (tmp_path / "mine.toml").write_text(
        "like = 'base.toml'\n[[methods]]\nname = 'a'\ntrials = 1\n"
        "[[methods]]\nname = 'c'\nestimator = 'riskad.AutoRAD'\n"
    )
    first, *others = load_experiment(tmp_path / "mine.toml").methods
    assert first == Method("a", "riskad.ShallowRAD", {"lam": 1.0}, trials=1)
    assert [method.name for method in others] == ["b", "c"]


def test_a_circle_of_descriptions_is_refused(tmp_path):
    (tmp_path / "a.toml").write_text("like = 'b.toml'")
    (tmp_path / "b.toml").write_text("like = 'a.toml'")
    with pytest.raises(InputError, match=r"a\.toml is like itself"):
        load_experiment(tmp_path / "a.toml")


# --- methods of others -------------------------------------------------------------------


def test_a_classifier_on_labelled_rows_is_that_classifier(contaminated_rows):
    X, y, _ = contaminated_rows
    scaler, known = StandardScaler().fit(X), y != 0
    own = LogisticRegression().fit(scaler.transform(X[known]), y[known] == -1)
    peer = Classifier(LOGISTIC, standardise=True).fit(X, y)
    np.testing.assert_allclose(
        peer.score_samples(X), -own.decision_function(scaler.transform(X)), rtol=1e-10
    )


def test_a_classifier_may_take_unlabelled_rows_as_normal(contaminated_rows):
    X, y, _ = contaminated_rows
    own = LogisticRegression(C=0.1).fit(X, y == -1)
    peer = Classifier(LOGISTIC, unlabelled="normal", options={"C": 0.1}).fit(X, y)
    np.testing.assert_allclose(peer.score_samples(X), -own.decision_function(X), rtol=1e-10)


@pytest.mark.parametrize("unlabelled", ["drop", "normal", "self-training"])
@pytest.mark.parametrize(("path", "options"), [(LOGISTIC, {}), (FOREST, {"n_estimators": 20})])
def test_classifiers_find_anomalies_repeat_themselves_and_heed_labels(path, options, unlabelled):
    X, y, truth = make_contaminated_rows(400, shift=3, seed=1)
    peer = Classifier(path, unlabelled, standardise=True, options=options, random_state=5)
    scores = peer.fit(X, y).score_samples(X)
    assert roc_auc_score(truth == 1, scores) > 0.9
    np.testing.assert_array_equal(clone(peer).fit(X, y).score_samples(X), scores)
    shuffled = np.random.default_rng(0).permutation(y)
    assert np.abs(clone(peer).fit(X, shuffled).score_samples(X) - scores).max() > 0.05


def test_self_training_uses_the_unlabelled_rows(contaminated_rows):
    X, y, _ = contaminated_rows
    few = np.where(np.arange(len(y)) < 60, y, 0)
    scores = [
        Classifier(LOGISTIC, word).fit(X, few).score_samples(X)
        for word in ("drop", "self-training")
    ]
    assert np.abs(scores[0] - scores[1]).max() > 0.01


@pytest.mark.parametrize("unlabelled", ["drop", "self-training"])
def test_without_labelled_normals_a_classifier_is_not_applicable(contaminated_rows, unlabelled):
    X, _, truth = contaminated_rows
    with pytest.raises(NotApplicable, match="labelled normal rows"):
        Classifier(LOGISTIC, unlabelled).fit(X, label_anomalies(truth, random_state=0))


def test_an_unknown_use_of_the_unlabelled_rows_is_refused(contaminated_rows):
    with pytest.raises(InputError, match="Did you mean 'normal'"):
        Classifier(LOGISTIC, "normals").fit(*contaminated_rows[:2])


class Distances:
    """With the face of PyOD and DeepOD: 1 for known anomalies, scores high for anomalies."""

    def __init__(self, power=1.0, random_state=None):
        self.power, self.random_state = power, random_state

    def fit(self, X, y):
        assert set(np.unique(y)) == {0, 1}
        self.n_anomalies = int(y.sum())
        self.centre = X[y == 1].mean(axis=0)
        return self

    def decision_function(self, X):
        return -(np.linalg.norm(X - self.centre, axis=1) ** self.power)


DISTANCES = f"{__name__}.Distances"


def test_a_scorer_is_told_anomalies_and_scores_the_other_way_round():
    X, y, truth = make_contaminated_rows(shift=3, seed=2)
    peer = Scorer(DISTANCES, standardise=True, options={"power": 2.0}, random_state=9).fit(X, y)
    assert (peer.model_.power, peer.model_.random_state) == (2.0, 9)
    assert peer.model_.n_anomalies == (y == -1).sum()
    assert roc_auc_score(truth == 1, peer.score_samples(X)) > 0.9


def test_a_scorer_meets_a_single_anomaly_twice(contaminated_rows):
    X, _, truth = contaminated_rows
    assert Scorer(DISTANCES).fit(X, label_anomalies(truth, 1)).model_.n_anomalies == 2


def test_a_peer_that_is_not_installed_says_how_to_get_it():
    assert Classifier(LOGISTIC).missing() is None
    assert "riskad[peers]" in Classifier("catbust.CatBoostClassifier").missing()
    assert Classifier(LOGISTIC).version().startswith("sklearn 1.")


@pytest.mark.parametrize("name", ["CatBoost", "LightGBM", "XGBoost"])
def test_boosted_peers_run_where_they_are_installed(name):
    described = load_experiment(built_in("field")["field"])
    method = next(m for m in described.methods if m.name == f"{name}")
    settings = dict(method.settings)
    pytest.importorskip(settings["peer"].partition(".")[0])
    check_peer(Classifier(**settings, random_state=1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["XGBOD", "DeepSAD", "PReNet", "RoSAS", "DevNet"])
def test_slow_peers_run_where_they_are_installed(name):
    method = next(m for m in load_experiment(SLOW).methods if m.name == name)
    settings = dict(method.settings)
    pytest.importorskip(settings["peer"].partition(".")[0])
    if name != "XGBOD":
        settings["options"] = settings["options"] | {"epochs": 2, "epoch_steps": 3}
    check_peer(Scorer(**settings, random_state=1), labels=label_anomalies)


def check_peer(peer, labels=lambda truth, random_state: mask_labels(truth, 0.2, random_state=1)):
    X, _, truth = make_contaminated_rows(200, shift=3, seed=3)
    y = labels(truth, random_state=0)
    first, again = (clone(peer).fit(X, y).score_samples(X) for _ in range(2))
    assert first.shape == (200,)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)


# --- in the harness ----------------------------------------------------------------------


def small(methods, budgets=(0.05,), trials=2):
    protocol = Tables(labelled=tuple(budgets))
    return Experiment("field", "", ("glass", "wine"), tuple(methods), trials, protocol=protocol)


@pytest.mark.usefixtures("made_up")
def test_what_is_not_applicable_is_skipped_once_with_the_reason(tmp_path):
    methods = [
        Method("LogReg", CLASSIFIER, {"peer": LOGISTIC}),
        Method("LogReg+U", CLASSIFIER, {"peer": LOGISTIC, "unlabelled": "normal"}),
    ]
    described = small(methods, budgets=(0.1, "5 anomalies"))
    outcome = run_experiment(described, tmp_path)
    rows = read_records(tmp_path / "field.jsonl")
    states = {(row["method"], row["labelled"], row["status"]) for row in rows}
    assert ("LogReg", "5 anomalies", SKIPPED) in states
    assert ("LogReg+U", "5 anomalies", OK) in states
    assert ("LogReg", 0.1, OK) in states
    assert len(states) == 4
    assert outcome.failed == 0
    assert all(row["n_normal"] == 0 for row in rows if row["labelled"] == "5 anomalies")
    assert all(row["peer"].startswith("sklearn 1.") for row in rows)
    again = run_experiment(described, tmp_path, retry_failed=True)
    assert (again.before, again.done) == (16, 0)


@pytest.mark.usefixtures("made_up")
def test_a_peer_that_is_not_installed_is_noted_once_and_the_others_are_run(tmp_path):
    methods = [
        Method("Absent", CLASSIFIER, {"peer": "catbust.CatBoostClassifier"}),
        Method("LogReg", CLASSIFIER, {"peer": LOGISTIC}),
    ]
    for _ in range(2):
        outcome = run_experiment(small(methods), tmp_path)
        assert outcome.absent == ("Absent",)
        assert "not installed: Absent" in str(outcome)
    rows = read_records(tmp_path / "field.jsonl")
    noted = [row for row in rows if row["status"] == NOT_RUN]
    assert [row["method"] for row in noted] == ["Absent"]
    assert "pip install" in noted[0]["reason"]
    assert len(rows) == 5
    text = markdown_text(summarise(rows), "field")
    assert "## Methods not installed\n\n- Absent: No module named 'catbust'" in text
    methods[0] = Method("Absent", CLASSIFIER, {"peer": FOREST, "options": {"n_estimators": 5}})
    run_experiment(small(methods), tmp_path)
    text = markdown_text(summarise(read_records(tmp_path / "field.jsonl")), "field")
    assert "not installed" not in text


# --- ranks -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (7, 2.949), (10, 3.164)]
)
def test_critical_differences_are_those_of_the_tables(k, q):
    """The two-tailed values of q at 0.05 that are printed in Demsar (2006), Table 5(a)."""
    assert critical_difference(k, 14) == pytest.approx(q * math.sqrt(k * (k + 1) / 84), rel=5e-4)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([1.0, 3.0, 5.0], []),
        ([1.0, 1.5, 1.9], [(0, 2)]),
        ([1.0, 1.8, 2.6, 3.4], [(0, 1), (1, 2), (2, 3)]),
        ([1.0, 1.2, 2.0, 2.1, 4.0], [(0, 2), (1, 3)]),
        ([2.0, 3.0], [(0, 1)]),
    ],
)
def test_groups_are_largest_and_within_the_critical_difference(ranks, expected):
    assert groups(ranks, 1.0) == expected


ESTIMATORS = {"AutoRAD": "riskad.AutoRAD", "ShallowRAD": "riskad.ShallowRAD"}


def record(method, dataset, auc, trial=0, labelled=0.05, experiment="field", **more):
    peer = {} if method in ESTIMATORS else {"peer": "sklearn 1.9"}
    return {
        "experiment": experiment,
        "dataset": dataset,
        "method": method,
        "estimator": ESTIMATORS.get(method, CLASSIFIER),
        "settings": {},
        "trial": trial,
        "root": 0,
        "test_share": 0.3,
        "labelled": labelled,
        "status": OK,
        "auc": auc,
        "average_precision": auc / 2,
        "fit_seconds": 2.0 + trial,
        "score_seconds": 0.001,
        "n_train": 70,
        "n_test": 30,
        "n_normal": 9,
        "n_anomaly": 7,
        "versions": "riskad 0.1.0; numpy 2.4.6",
        **peer,
        **more,
    }


def by_hand():
    """Three methods on three sets, two trials each."""
    means = {
        "AutoRAD": (0.9, 0.8, 0.7),
        "LogReg": (0.8, 0.8, 0.6),
        "CatBoost": (0.7, 0.6, 0.8),
    }
    return [
        record(method, name, mean + shift, trial)
        for method, three in means.items()
        for name, mean in zip(("pendigits", "Stamps", "cardio"), three, strict=True)
        for trial, shift in enumerate((-0.01, 0.01))
    ]


def test_ranks_wins_and_leads_by_hand():
    (found,) = comparisons(summarise(by_hand()), 0.05)
    assert found.sets == ("pendigits", "Stamps", "cardio")
    assert found.n_trials == (2, 2, 2)
    assert found.peers == {"LogReg", "CatBoost"}
    assert found.mean("AUC", "AutoRAD") == pytest.approx(0.8)
    assert list(found.ranks["AUC"]) == ["AutoRAD", "LogReg", "CatBoost"]
    expected = {"AutoRAD": (1 + 1.5 + 2) / 3, "LogReg": (2 + 1.5 + 3) / 3, "CatBoost": 7 / 3}
    assert found.ranks["AUC"] == pytest.approx(expected)
    assert [found.wins("AUC", name) for name in expected] == [2, 1, 1]
    assert found.seconds == dict.fromkeys(expected, 2.5)
    # Each set's mean has an SE of 0.01, and the mean of three such one of sqrt(3) 0.01 / 3.
    assert found.errors["AUC"]["AutoRAD"] == pytest.approx(0.01 / 3**0.5)
    ahead = lead(summarise(by_hand()), 0.05, "AUC")
    assert (ahead.peer, ahead.over_sets.mean) == ("LogReg", pytest.approx(0.2 / 3))
    values = [found.values["AUC"][name] for name in expected]
    assert found.friedman("AUC") == pytest.approx(friedmanchisquare(*values).pvalue)


def test_methods_with_few_trials_are_compared_on_these_and_the_others_on_all():
    rows = by_hand()
    slow = [
        record("XGBOD", row["dataset"], 0.5, 0, experiment="field-slow")
        for row in rows
        if row["method"] == "LogReg" and row["trial"] == 0
    ]
    everyone, often = comparisons(summarise(rows + slow), 0.05)
    assert (len(everyone.methods), everyone.n_trials) == (4, (1, 1, 1))
    assert everyone.mean("AUC", "AutoRAD") == pytest.approx(0.79)
    assert (len(often.methods), often.n_trials) == (3, (2, 2, 2))
    assert often.mean("AUC", "AutoRAD") == pytest.approx(0.8)


def test_only_sets_and_trials_that_all_have_are_compared():
    rows = [r for r in by_hand() if (r["method"], r["dataset"]) != ("LogReg", "cardio")]
    rows = [r for r in rows if (r["method"], r["dataset"], r["trial"]) != ("LogReg", "Stamps", 1)]
    found = comparisons(summarise(rows), 0.05)[0]
    assert (found.sets, found.left_out, found.n_trials) == (
        ("pendigits", "Stamps"),
        ("cardio",),
        (2, 1),
    )
    text = markdown_text(summarise(rows), "field")
    assert "Not all methods have cardio." in text
    assert "2 sets, 1 to 2 trials each" in text


def test_budgets_are_in_order_of_their_size():
    rows = [record("AutoRAD", "cardio", 0.9, 0, b) for b in (0.1, "5 anomalies", 0.01, 0.05)]
    assert budgets(summarise(rows)) == ["5 anomalies", 0.01, 0.05, 0.1]


# --- the report --------------------------------------------------------------------------


def small_run():
    """All budgets; AutoRAD leads by 0.05 at 5 %, by more below and by less above."""
    rng, rows = random.Random(0), []
    leads = {"5 anomalies": 0.09, 0.01: 0.02, 0.05: 0.05, 0.1: 0.03}
    parts = {"5 anomalies": "field-five", 0.05: "field"}
    for budget, ahead in leads.items():
        for number, name in enumerate(("pendigits", "Stamps", "cardio", "magic.gamma")):
            level = 0.85 + 0.01 * number
            for trial in range(3):
                part = parts.get(budget, "field-budgets")
                place = {"trial": trial, "labelled": budget, "experiment": part}
                rows.append(record("AutoRAD", name, level + ahead, **place))
                rows.append(record("ShallowRAD", name, level + rng.gauss(-0.03, 0.005), **place))
                rows.append(record("LogReg+U", name, level, **place))
                row = record("LogReg", name, level + rng.gauss(-0.05, 0.005), **place)
                if budget == "5 anomalies":
                    row |= {"status": SKIPPED, "reason": "needs labelled normal rows"}
                rows.append(row)
    rows.append({"experiment": "field", "dataset": "yelp", "status": NOT_RUN, "reason": "gone"})
    rows.append({"experiment": "field", "method": "XGBOD", "status": NOT_RUN, "reason": "no pyod"})
    rows.append(record("RoSAS", "cardio", 0.5) | {"status": FAILED, "reason": "RuntimeError: x"})
    return rows


@pytest.fixture(scope="module")
def summary():
    return summarise(small_run())


def test_all_parts_are_one_report(summary):
    assert summary.experiments == ("field",)
    assert {name.startswith("field") for name in built_in("field")} == {True}


def test_targets_are_judged_by_the_numbers(summary):
    found = {target.text: target for target in targets(summary)}
    met = {text: target.met for text, target in found.items()}
    assert met == {
        "mean AUC at 5 % >= 0.935": False,
        "mean average precision at 5 % >= 0.76": False,
        "best mean rank in AUC at 5 %": True,
        "best mean rank in average precision at 5 %": True,
        "larger lead in AUC over the best peer at 5 anomalies than at 5 %": True,
        "larger lead in average precision over the best peer at 5 anomalies than at 5 %": True,
        "larger lead in AUC over the best peer at 1 % than at 5 %": False,
        "larger lead in average precision over the best peer at 1 % than at 5 %": False,
        "median fit at most 20 s on sets under 10,000 rows": True,
    }
    said = found["mean AUC at 5 % >= 0.935"].found
    assert said == "0.9150 (SE 0.0000 over trials), 4 methods, 4 sets, 3 trials"
    assert "+0.0200 over LogReg+U (3 trials), +0.0500" in found[list(found)[6]].found
    assert found[list(found)[-1]].found.startswith("3.0 s over 4 sets")


def test_a_mean_at_the_target_meets_it():
    rows = [record("AutoRAD", name, 0.935) for name in ("cardio", "Stamps")]
    rows += [record("LogReg", name, 0.9) for name in ("cardio", "Stamps")]
    assert targets(summarise(rows))[0].met is True
    assert targets(summarise([r | {"auc": 0.9349} for r in rows]))[0].met is False


def test_one_trial_has_no_error():
    rows = [record(m, "cardio", 0.9) for m in ("AutoRAD", "LogReg")]
    assert comparisons(summarise(rows), 0.05)[0].errors["AUC"]["AutoRAD"] is None
    assert targets(summarise(rows))[0].found.startswith("0.9000, ")


def test_an_equal_rank_is_not_the_best():
    rows = [record(m, name, 0.9) for m in ("AutoRAD", "LogReg") for name in ("cardio", "Stamps")]
    assert targets(summarise(rows))[2].met is False


def test_without_autorad_nothing_can_be_said():
    rows = [row for row in small_run() if row.get("method") != "AutoRAD"]
    summary = summarise(rows)
    assert {target.verdict for target in targets(summary)} == {"cannot be said"}
    assert "| cannot be said |" in markdown_text(summary, "field")


def test_the_markdown_tells_what_was_run_and_what_not(summary):
    text = markdown_text(summary, "field")
    order = [
        "## Targets",
        "## AutoRAD less",
        "## 5 anomalies labelled: 3 methods, 4 sets, 3 trials",
    ]
    order += ["## 1 % labelled: 4 methods", "## 5 % labelled", "## 10 % labelled", "## AUC on each"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert "- yelp: gone" in text
    assert "- XGBOD: no pyod" in text
    assert "needs labelled normal rows" in text
    assert "RuntimeError: x" in text
    assert "Compared with: sklearn 1.9." in text
    section = text[places[2] : places[3]]
    assert "| LogReg     |     - |" in section
    assert "| XGBOD      |     - |" in section
    assert "not told apart from AutoRAD" in section
    assert without_result(summary, "5 anomalies") == ["LogReg", "XGBOD"]


def test_each_set_is_in_its_table_with_the_best_pointed_at(summary):
    text = markdown_text(summary, "field")
    table = text[text.index("## average precision on each set, 5 % labelled") :].split("\n## ")[0]
    for name in ("pendigits", "Stamps", "cardio", "magic.gamma"):
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {name}"))
        assert line.count("> 0.") == 1
        assert line.split("|")[2].strip().startswith("> 0.")


def test_the_report_does_not_depend_on_the_order_of_records(summary):
    rows = small_run()
    random.Random(1).shuffle(rows)
    for write in (markdown_text, csv_text, latex_text):
        assert write(summarise(rows), "field") == write(summary, "field")


def test_csv_and_latex_cover_all_budgets(summary):
    lines = csv_text(summary, "field").splitlines()
    assert len(lines) == 1 + 4 * 4 * 3 + 3 * 4 + 1  # LogReg has three budgets, RoSAS one cell
    latex = latex_text(summary, "field")
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 6
    assert r"5 \% labelled" in latex


def test_figures_are_valid_and_the_same_each_time(tmp_path):
    rows = small_run()
    for name in ("one", "two"):
        (tmp_path / name / "records").mkdir(parents=True)
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name / "records" / "field.jsonl").write_text(lines)
        write_report(tmp_path / name)
    figures = sorted((tmp_path / "one" / "figures").iterdir())
    assert [path.stem for path in figures] == [
        "field-lead",
        "field-ranks-10pct",
        "field-ranks-1pct",
        "field-ranks-5-anomalies",
        "field-ranks-5pct",
    ]
    for path in figures:
        ET.fromstring(path.read_text())
        assert path.read_bytes() == (tmp_path / "two" / "figures" / path.name).read_bytes()
    text = (tmp_path / "one" / "figures" / "field-ranks-5pct.svg").read_text()
    for part in ("AutoRAD", "LogReg+U", "ShallowRAD", "CD"):
        assert text.count(part) == len(METRICS), part


# --- the command line --------------------------------------------------------------------


def test_the_command_line_knows_all_parts_the_main_one_first():
    assert next(iter(built_in("field"))) == "field"
    folder = next(iter(built_in("field").values())).parent
    assert set(PARTS_OF["field"]) == {path.stem for path in folder.glob("*.toml")}
    result = CliRunner().invoke(cli, ["bench", "field", "feild"])
    assert result.exit_code == 1
    assert "Did you mean 'field'?" in result.output


@pytest.mark.needs_data
def test_the_command_line_runs_a_part_and_writes_its_report(tmp_path):
    out = ["--out", str(tmp_path), "--jobs", "1", "--trials", "1", "--dataset", "vertebral"]
    names = ("ShallowRAD", "LogReg", "LogReg+U")
    methods = [part for name in names for part in ("--method", name)]
    for part, n_ok in (("field", 3), ("field-five", 2)):
        result = CliRunner().invoke(cli, ["bench", "field", part, *out, *methods])
        assert result.exit_code == 0, result.output
        assert f"{part}: 3 cells run" in result.output
        rows = read_records(tmp_path / "records" / f"{part}.jsonl")
        assert [row["status"] for row in rows].count(OK) == n_ok
    text = (tmp_path / "tables" / "field.md").read_text(encoding="utf-8")
    assert "## 5 anomalies labelled: 2 methods, 1 set, 1 trial each" in text
