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
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import as_codes

import riskad
from riskad.core.checks import InputError
from riskad.detectors.base import Detector
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.streaming import StreamingRAD

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
    "zeros and ones": (np.arange(60) % 2, r"several things\. Say which(?s:.*)from_pyod\(y\)"),
    "truth values": (np.arange(60) < 9, r"If True is anomaly .*from_pyod\(y\)"),
    "none": (None, "requires y to be passed.*one label for each row: [+]1 normal, -1 anomaly"),
}


def public_detectors():
    """Every detector class of the package, by name; those of riskad.deep where torch is there."""
    packages = ["riskad.detectors"]
    if importlib.util.find_spec("torch"):
        packages.append("riskad.deep")
    for package in packages:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name != "kernels":  # which needs Triton
                importlib.import_module(f"{package}.{module.name}")
    found, left = {}, [Detector]
    while left:
        left += (kind := left.pop()).__subclasses__()
        ours = kind.__module__.startswith("riskad.") and not kind.__name__.startswith("_")
        if ours and not getattr(kind, "__abstractmethods__", ()):
            found[kind.__name__] = kind
    return found


def untrained(name):
    kind = public_detectors()[name]
    return kind(use_labels=True) if name == "OneClassSVM" else kind()


NAMES = sorted(public_detectors())


def test_all_detectors_are_asked():
    assert {"AutoRAD", "ShallowRAD", "BoostedRAD", "ForestRAD", "PretrainedRAD"} <= set(NAMES)
    assert {"OneClassSVM", "SemiSupervisedOneClassSVM", "ShallowPU"} <= set(NAMES)
    assert set(NAMES) >= {name for name in riskad.__all__ if name.endswith("RAD")} - {"DeepRAD"}


@pytest.mark.parametrize("labels", WITHOUT_MEANING)
@pytest.mark.parametrize("name", NAMES)
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


class Translated(ShallowRAD):
    """ShallowRAD that reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, as_codes(X, y), sample_weight)


class TranslatedStream(StreamingRAD):
    """StreamingRAD that reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, as_codes(X, y), sample_weight)

    def partial_fit(self, X, y=None, sample_weight=None):
        return super().partial_fit(X, as_codes(X, y), sample_weight)


@parametrize_with_checks([Translated(), TranslatedStream()])
def test_common_checks_with_translated_labels(estimator, check):
    check(estimator)
