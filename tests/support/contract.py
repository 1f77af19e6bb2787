"""For scikit-learn's common checks, whose labels mean nothing to a semi-supervised detector."""

import inspect
import re

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

IN_DOUBLE_PRECISION = ("check_methods_subset_invariance", "check_methods_sample_order_invariance")


def run_in_single_precision(check, estimator):
    """Run a check, unless it asks a network in single precision for scores equal to 1e-7.

    Which rows of a product a kernel takes together, and so how they round, depends on their number,
    their place and the processor. `assert_rows_score_alike` has the tolerance of such sums.
    """
    if check.func.__name__ in IN_DOUBLE_PRECISION:
        pytest.skip("asks for 1e-7, the unit of single precision: there is a test of our own")
    check(estimator)


def assert_rows_score_alike(model, X):
    """A row has one score: alone, in a part of the rows, in any order.

    A score in single precision is a sum of some hundred terms, layer after layer: 100 eps = 1e-5.
    """
    scores = model.score_samples(X)
    close = {"rtol": 1e-5, "atol": 1e-5 * max(1.0, np.abs(scores).max())}
    alone = [model.score_samples(row[None])[0] for row in X[:8]]
    np.testing.assert_allclose(alone, scores[:8], **close)
    np.testing.assert_allclose(model.score_samples(X[5:32]), scores[5:32], **close)
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_allclose(model.score_samples(X[order]), scores[order], **close)


def auc_of(model, X, truth):
    return roc_auc_score(truth == -1, model.anomaly_score(X))


def as_codes(X, y):
    """Three or more labels become the codes in turn; of two, every third row is unlabelled."""
    if y is None:
        first = X[:, [0]].toarray() if hasattr(X, "toarray") else np.asarray(X)[:, [0]]
        y = (first[:, 0] > np.median(first)).astype(int)
    values = np.asarray(y)
    if values.ndim != 1 or len(values) < 3:
        return y
    labels, places = np.unique(values, return_inverse=True)
    if len(labels) > 2:
        return np.array([1, -1, 0])[places % 3]
    return np.where(np.arange(len(values)) % 3 == 2, 0, np.array([1, -1])[places])


class Translates:
    """A detector that reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))

    def score(self, X, y=None):
        return super().score(X, as_codes(X, y))


class TranslatesWeighted(Translates):
    """The same where rows may have weights, of which the checks are told by the signature."""

    def fit(self, X, y=None, sample_weight=None):
        return super(Translates, self).fit(X, as_codes(X, y), sample_weight)


def described(thing, title):
    """The names that a section of a docstring describes, such as "Parameters"."""
    section = rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)"
    text = re.search(section, inspect.getdoc(thing) or "", re.M | re.S)
    lines = text[1].splitlines() if text else []
    heads = [line.partition(":")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip(" *") for head in heads for name in head.split(",")} - {""}
