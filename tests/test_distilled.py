"""The forest that learns a teacher's scores: files, and that it follows the teacher."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

import riskad
from riskad.core.checks import InputError
from riskad.detectors.distilled import DistilledForest
from riskad.storage.codec import build, state_of


@pytest.fixture(scope="module")
def lesson():
    X = np.random.default_rng(0).normal(size=(500, 3))
    return X, -(X**2).sum(axis=1)


def test_a_forest_follows_its_teacher_on_new_rows(lesson):
    forest = DistilledForest(n_estimators=100).fit(*lesson)
    X = np.random.default_rng(1).normal(size=(200, 3))
    assert np.corrcoef(forest.score_samples(X), -(X**2).sum(axis=1))[0, 1] > 0.9


def test_a_forest_is_the_same_each_time_and_after_a_file(lesson, tmp_path):
    forest = DistilledForest(n_estimators=10).fit(*lesson)
    expected = forest.score_samples(lesson[0])
    again = clone(forest).fit(*lesson)
    np.testing.assert_array_equal(again.score_samples(lesson[0]), expected)
    unpickled = pickle.loads(pickle.dumps(forest))
    np.testing.assert_array_equal(unpickled.score_samples(lesson[0]), expected)
    riskad.save(forest, tmp_path / "forest.riskad")
    loaded = riskad.load(tmp_path / "forest.riskad")
    np.testing.assert_array_equal(loaded.score_samples(lesson[0]), expected)


def test_a_file_with_trees_of_other_columns_is_refused(lesson):
    forest = DistilledForest(n_estimators=2).fit(*lesson)
    others = DistilledForest(n_estimators=2).fit(lesson[0][:, :2], lesson[1]).trees_
    with pytest.raises(InputError, match="of other columns"):
        build(DistilledForest, state_of(forest) | {"trees_": others})


def test_wide_tables_try_some_columns_at_a_split():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 400))
    forest = DistilledForest(n_estimators=30).fit(X, X[:, :300].sum(axis=1))
    assert np.corrcoef(forest.score_samples(X), X[:, :300].sum(axis=1))[0, 1] > 0.8
