"""scikit-learn's common checks, and the one thing in which a detector here differs from them.

The checks invent labels such as {0, 1, 2}, or fit without any. These mean nothing to a
semi-supervised detector, and guessing would train on wrong labels without an error: they are
refused, as one test shows for every detector. The checks themselves run, each to its end, on
subclasses that translate whatever labels a check invents into the three codes.
"""

import importlib
import pkgutil

import numpy as np
import pytest
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import TranslatesWeighted, as_codes, described
from support.loops import each

import riskad
from riskad.core.checks import InputError
from riskad.detectors.base import Detector
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.streaming import StreamingRAD
from riskad.metrics.search import labelled_auc

pytestmark = [
    pytest.mark.filterwarnings("ignore::riskad.core.checks.DataWarning"),
    pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*"),
]

ROWS = np.random.default_rng(0).normal(size=(60, 3))
SAY = r"Say what the values mean: riskad\.parse_labels\(y, normal=\.\.\., anomaly=\.\.\.\)"
WITHOUT_MEANING = {
    "three classes": (np.arange(60) % 3, rf"0 \(20 rows\), 1 \(20 rows\), 2 \(20 rows\)\. {SAY}"),
    "words": (np.array(["a", "b"] * 30), rf"'a' \(30 rows\), 'b' \(30 rows\)\. {SAY}"),
    "numbers": (ROWS[:, 0], rf"only \+1 \(normal\), -1 \(anomaly\) and 0 .*{SAY}"),
    "zeros and ones": (
        np.arange(60) % 2,
        r"several things\. Say which(?s:.*)=1, normal=0\)",
    ),
    "truth values": (np.arange(60) < 9, r"If True is anomaly .*anomaly=True, normal=False\)"),
    "none": (None, "requires y to be passed.*one label for each row: [+]1 normal, -1 anomaly"),
}


def public_detectors():
    """Every detector class of the package, by name; those of riskad.deep where torch is there."""
    packages = ["riskad.detectors"]
    if importlib.util.find_spec("torch"):
        packages.append("riskad.deep")
    for package in packages:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            importlib.import_module(f"{package}.{module.name}")
    found, left = {}, [Detector]
    while left:
        left += (kind := left.pop()).__subclasses__()
        ours = kind.__module__.startswith("riskad.") and not kind.__name__.startswith("_")
        if ours and not getattr(kind, "__abstractmethods__", ()):
            found[kind.__name__] = kind
    return found


def untrained(name):
    return public_detectors()[name]()


NAMES = sorted(public_detectors())


def test_all_detectors_are_asked():
    assert {"AutoRAD", "ShallowRAD", "BoostedRAD", "ForestRAD", "PretrainedRAD"} <= set(NAMES)
    assert set(NAMES) >= {name for name in riskad.__all__ if name.endswith("RAD")} - {"DeepRAD"}


@each("labels", WITHOUT_MEANING)
@each("name", NAMES)
def test_labels_without_meaning_are_refused(name, labels):
    """In place of the common checks that would fit to them; the message teaches the remedy."""
    y, message = WITHOUT_MEANING[labels]
    model = untrained(name)
    methods = [method for method in ("fit", "partial_fit") if hasattr(model, method)]
    if labels == "zeros and ones" and len(methods) == 2:
        methods.remove("partial_fit")  # anomalies may come in a later batch
    for method in methods:
        with pytest.raises(InputError, match=message):
            getattr(model, method)(ROWS, y)
    assert not hasattr(model, "offset_")  # nothing was learned


@each("seed", [-1, 1.5, "a", True, 2**32, np.random.default_rng(0)])
def test_a_seed_that_is_none_is_refused_by_its_name(seed, contaminated_rows):
    X, y, _ = contaminated_rows
    for name in ("ShallowRAD", "ForestRAD", "AutoRAD"):
        with pytest.raises(InputError, match=r"random_state must be None, .*from 0 to 4,294,967"):
            untrained(name).set_params(random_state=seed).fit(X, y)


@each(
    "weight",
    {
        "short": np.ones(3),
        "negative": np.full(60, -1.0),
        "missing": np.full(60, np.nan),
        "text": "a",
    },
)
def test_weights_are_refused_by_their_name(weight):
    y = np.repeat([1, -1, 0], 20)
    with pytest.raises(InputError, match="sample_weight must hold one number for each row"):
        ShallowRAD().fit(ROWS, y, sample_weight=weight)


def test_a_kind_without_weight_is_not_called_absent():
    y = np.repeat([1, -1, 0], 20)
    with pytest.raises(InputError, match=r"of a weight above 0, .*20 anomalies"):
        ShallowRAD().fit(ROWS, y, sample_weight=(y != -1).astype(float))


def test_what_a_mask_hides_is_missing(contaminated_rows):
    X, y, _ = contaminated_rows
    masked = np.ma.masked_array(X, mask=np.arange(X.size).reshape(X.shape) == 1)
    with pytest.raises(InputError, match=r"a missing value.*row 0, column 1"):
        ShallowRAD().fit(masked, y)
    model = riskad.BoostedRAD(max_iter=5).fit(X, y)
    np.testing.assert_array_equal(
        model.score_samples(masked), model.score_samples(masked.filled(np.nan))
    )


@each("X", [None, "rows.csv", {"x": [1.0, 2.0]}])
def test_rows_that_are_no_table_are_refused(X, contaminated_rows):
    for model in (ShallowRAD(), riskad.BoostedRAD(max_iter=5)):
        model.fit(*contaminated_rows[:2])
        with pytest.raises(InputError, match=rf"rows and columns.*got {type(X).__name__}"):
            model.score_samples(X)


@each("name", sorted({*NAMES} & {*riskad.__all__}))
def test_the_answers_of_a_detector_agree(name, contaminated_rows):
    X, y, _ = contaminated_rows
    model = untrained(name)
    quick = {"budget": 1, "n_estimators": 20, "max_iter": 20, "pretrain_iter": 5}
    model.set_params(**{key: quick[key] for key in quick if key in model.get_params()})
    scores = (model := model.fit(X, y)).score_samples(X)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(model.anomaly_score(X), -scores)
    decisions = model.decision_function(X)
    np.testing.assert_array_equal(decisions, scores - model.offset_)
    np.testing.assert_array_equal(model.predict(X), np.where(decisions >= 0, 1, -1))
    assert 0 < (model.predict(X) == -1).mean() < 1
    absent = [each for each in described(type(model), "Attributes") if not hasattr(model, each)]
    assert set(absent) <= {"feature_names_in_"}  # the rows have no names


def test_a_threshold_must_be_a_rule(contaminated_rows):
    X, y, _ = contaminated_rows
    model = riskad.calibrate(ShallowRAD().fit(X, y), X, y)
    for rule in (None, 3):
        with pytest.raises(InputError, match=f"a threshold is a rule of .*got {rule}"):
            model.set_threshold(rule)


class Translated(TranslatesWeighted, ShallowRAD):
    """ShallowRAD on the labels of the checks."""


class TranslatedStream(TranslatesWeighted, StreamingRAD):
    """StreamingRAD on the labels of the checks."""

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit(X, as_codes(X, y), sample_weight)


@parametrize_with_checks([Translated(), TranslatedStream()])
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)


@pytest.mark.parametrize("prepared", [False, True])
def test_scorers_of_scikit_learn_see_two_kinds_of_row(contaminated_rows, prepared):
    X, y, _ = contaminated_rows
    model = make_pipeline(StandardScaler(), ShallowRAD()) if prepared else ShallowRAD()
    folds = riskad.PNUStratifiedKFold(3)
    by_auc, by_name, by_default = (
        cross_val_score(model, X, y, cv=folds, scoring=scoring, error_score="raise")
        for scoring in (labelled_auc, "roc_auc", None)
    )
    np.testing.assert_allclose(by_name, by_auc)
    np.testing.assert_array_equal(by_default, by_auc)


def test_searches_take_the_scorers_by_name(contaminated_rows):
    X, y, _ = contaminated_rows
    grid, folds = {"lam": ["theorem", "tight"]}, riskad.PNUStratifiedKFold(3)
    for scoring in ("roc_auc", "average_precision", "accuracy", None):
        search = GridSearchCV(ShallowRAD(), grid, cv=folds, scoring=scoring, error_score="raise")
        assert 0.5 < search.fit(X, y).best_score_ <= 1
    search = riskad.RADSearchCV(ShallowRAD(), grid, n_repeats=1)
    nested = cross_val_score(search, X, y, cv=folds, error_score="raise")
    assert nested.min() > 0.5


def test_the_score_is_the_auc_of_labelled_rows(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ShallowRAD().fit(X, y)
    labelled = y != 0
    expected = roc_auc_score(y[labelled], model.decision_function(X[labelled]))
    assert model.score(X, y) == pytest.approx(expected)
    assert model.score(X[labelled], y[labelled]) == pytest.approx(expected)
    with pytest.raises(InputError, match="an AUC"):
        model.score(X, np.where(y == -1, 0, -y))


def test_probabilities_are_in_the_order_of_the_classes(contaminated_rows):
    X, y, _ = contaminated_rows
    quick = riskad.AutoRAD(budget=1)
    for model in (riskad.calibrate(ShallowRAD().fit(X, y), X, y), quick.fit(X, y)):
        probabilities = model.predict_proba(X)
        np.testing.assert_array_equal(model.classes_, [-1, 1])
        np.testing.assert_array_equal(probabilities[:, 0], model.anomaly_probability(X))
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        rows, kinds = X[y != 0], y[y != 0]
        auc = roc_auc_score(kinds, model.predict_proba(rows)[:, 1])
        assert auc == pytest.approx(get_scorer("roc_auc")(model, rows, kinds))
        loss = log_loss(kinds == 1, model.predict_proba(rows)[:, 1])
        assert get_scorer("neg_log_loss")(model, rows, kinds) == pytest.approx(-loss)


def test_without_a_calibration_there_are_no_probabilities(contaminated_rows):
    X, y, _ = contaminated_rows
    model = ShallowRAD()
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model.fit(X, y), "predict_proba")
    with pytest.raises(AttributeError, match="no attribute 'predict_proba'") as refused:
        model.predict_proba(X)
    assert "call riskad.calibrate(model, X, y)" in str(refused.value.__cause__)


@pytest.mark.parametrize("method", ["decision_function", "predict_proba"])
@pytest.mark.parametrize("unlabelled", [False, True])
def test_labels_that_scikit_learn_numbers_anew_are_refused(contaminated_rows, method, unlabelled):
    """`cross_val_predict` turns -1, 0, 1 into 0, 1, 2 for all methods but `predict`."""
    X, y, truth = contaminated_rows
    y = y if unlabelled else truth
    model = ShallowRAD(risk="rad" if unlabelled else "pn")
    with pytest.raises(InputError, match="Say w"):
        cross_val_predict(model, X, y, cv=3, method=method)
    assert set(cross_val_predict(model, X, y, cv=3)) == {-1, 1}
