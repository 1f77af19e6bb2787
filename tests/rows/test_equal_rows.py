"""Rows that occur more than once: found, held out together, and counted once."""

from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.loops import each

from riskad import PNUStratifiedKFold, RADSearchCV, ShallowRAD, calibrate
from riskad.core.labels import UNLABELLED
from riskad.metrics.search import evaluate_nested, out_of_fold_scores
from riskad.rows.encoding import AnomalyRateEncoder
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label

rng = np.random.default_rng(0)


def overlapping(n=300, *, repeated=1.0, seed=0):
    """Rows whose kinds overlap, some of them twice, with 20 % labelled before they are repeated."""
    X, y, _ = make_contaminated_rows(n, 4, labelled=0.2, shift=0.5, seed=seed)
    rows = np.append(np.arange(n), np.arange(round(repeated * n)))
    return X[rows], y[rows], rows


X = rng.normal(size=(60, 3))
FORMS = {
    "array": lambda X: X,
    "list": lambda X: X.tolist(),
    "sparse": sparse.csr_array,
    "sparse, single precision": lambda X: sparse.coo_array(X.astype(np.float32)),
    "tensor": lambda X: pytest.importorskip("torch").tensor(X, requires_grad=True),
    "pandas": lambda X: pd.DataFrame(X, columns=list("abc")),
    "polars": lambda X: pl.DataFrame(X, schema=list("abc")),
    "text": lambda X: pl.DataFrame(X, schema=list("abc")).with_columns(pl.col("a").cast(str)),
    "objects": lambda X: np.column_stack([X.astype(object), X[:, :1].astype(str)]),
    "moments": lambda X: pd.DataFrame(X).assign(at=pd.to_datetime(X[:, 0], unit="D")),
}


def copies_of(rows, codes=None):
    n = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    return number_copies(rows, np.zeros(n, dtype=int) if codes is None else codes)


@each("form", FORMS.values())
def test_copies_have_the_number_of_their_first_row(form):
    assert copies_of(form(X)) is None
    twice = copies_of(form(np.vstack([X, X[::-1]])))
    np.testing.assert_array_equal(twice, [*range(60), *range(59, -1, -1)])


def test_gaps_are_equal_and_so_are_both_zeros():
    rows = np.array([[np.nan, 0.0], [1.5, 2.0], [-np.nan, -0.0], [0.5, 1.0]])
    np.testing.assert_array_equal(copies_of(rows), [0, 1, 0, 2])


def test_copies_with_rounding_errors_are_copies():
    nearly = X + 1e-7 * rng.normal(size=X.shape)
    numbers = copies_of(np.vstack([X, nearly]))
    assert np.mean(numbers[:60] == numbers[60:]) > 0.95


@each("n_columns", [1, 2, 5])
def test_neighbours_in_a_dense_table_are_no_copies(n_columns):
    assert copies_of(rng.normal(size=(20_000, n_columns))) is None


def test_rows_that_agree_by_nature_are_copies_only_if_their_labels_were_copied():
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 4, (400, 3))
    codes = np.where(rng.random(400) < 0.2, 1, 0)
    assert copies_of(rows, codes) is None
    twice = np.vstack([rows, rows])
    assert copies_of(twice, np.append(codes, codes)) is not None
    assert copies_of(twice, np.append(codes, rng.permutation(codes))) is None


def test_copies_of_unlabelled_rows_alone_make_no_groups():
    twice = np.vstack([X, X[:5]])
    codes = np.zeros(65, dtype=int)
    codes[20:30] = 1
    assert group_equal_rows(twice, codes) is None
    codes[0] = -1
    assert group_equal_rows(twice, codes) is not None


def test_groups_that_share_a_row_become_one_unless_that_were_most_rows():
    codes = np.ones(120, dtype=int)
    groups = np.arange(120) // 2
    joined = group_equal_rows(np.vstack([X, X[:2], X[2:60] + 9]), codes, groups)
    assert joined[60] == joined[0] == joined[1]
    assert len(np.unique(joined)) == 59
    chained = (np.arange(120) % 60 // 2 + np.arange(120) // 60) % 30
    assert group_equal_rows(np.vstack([X, X]), codes, chained) is chained


def test_folds_for_scikit_learn_keep_copies_together():
    X, y, rows = overlapping()
    splits = list(PNUStratifiedKFold(4, 2).split(X, y))
    assert splits
    for train, held in splits:
        assert not set(rows[train]) & set(rows[held])


class Watched(ShallowRAD):
    """Counts, in each fold, the rows that it scores and of which it was fitted to a copy."""

    copies: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        self.fitted = {row.tobytes() for row in np.asarray(X)}
        return super().fit(X, y, sample_weight)

    def score_samples(self, X):
        self.copies.append(sum(row.tobytes() in self.fitted for row in np.asarray(X)))
        return super().score_samples(X)


@each("judge", [out_of_fold_scores, evaluate_nested])
def test_no_fit_scores_a_row_of_which_it_has_seen_a_copy(judge):
    X, y, _ = overlapping()
    Watched.copies.clear()
    judge(Watched(), X, y)
    assert len(Watched.copies) >= 2
    assert not any(Watched.copies)


def test_a_search_over_settings_needs_as_many_different_rows_as_folds():
    X, y, _ = overlapping(60)
    y[:] = UNLABELLED
    y[[0, 60]], y[[1, 61]] = -1, -1
    y[10:20] = 1
    search = RADSearchCV(ShallowRAD(), {"lam": ["tight", 0.01]}, n_repeats=1).fit(X, y)
    assert len([key for key in search.cv_results_ if key.startswith("split")]) == 2
    y[[1, 61]] = UNLABELLED
    assert RADSearchCV(ShallowRAD(), {"lam": [0.01]}).fit(X, y).criterion_ == "none"


def test_evidence_on_levels_does_not_come_from_copies():
    shop = np.tile(np.repeat(np.arange(30.0), 10), 2)[:, None]
    codes = np.zeros(600, dtype=int)
    codes[[0, 1, 2, 300, 301, 302, 40, 80]] = -1
    rows = np.tile(np.arange(300), 2)
    evidence = AnomalyRateEncoder.learn(shop, codes, {0: [f"shop {i}" for i in range(30)]})
    column = evidence.cross_fit_transform(shop, codes, 0, groups=rows)[:, 1]
    np.testing.assert_array_equal(column[:300], column[300:])


def test_of_copies_with_one_label_one_counts():
    codes = np.array([1, 1, 1, -1, -1, 0, 0])
    copies = np.array([0, 0, 1, 0, 2, 3, 3])
    np.testing.assert_array_equal(np.flatnonzero(repeats_label(codes, copies)), [1])
    assert not repeats_label(codes, None).any()


def test_calibration_counts_copies_once_and_their_scores_are_those_of_new_rows():
    X, y, _ = overlapping()
    model = ShallowRAD(feature_map="rbf", lam=0.001)
    once = calibrate(model.fit(X[:300], y[:300]), X[:300], y[:300]).calibration_
    twice = calibrate(model.fit(X, y), X, y).calibration_
    assert len(twice.scores) == len(once.scores)
    assert np.median(twice.normals) == pytest.approx(np.median(once.normals), abs=0.3)
    given = make_pipeline(StandardScaler(), ShallowRAD()).fit(X, y)
    assert len(calibrate(given, X, y)[-1].calibration_.scores) == len(once.scores)
