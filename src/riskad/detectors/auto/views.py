"""Rows as members see them: which rows take part, and two views of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone

from riskad.core.labels import UNLABELLED
from riskad.detectors.features.learned import LearnedFeatures, NativeColumns
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.encoding import OneHotImputer, SingularVectors
from riskad.rows.linear import sparse_to_dense

if TYPE_CHECKING:
    from riskad.detectors.auto.members import Recipe

COMPARED = 1_000
"""Unlabelled rows whose scores set the scale of a member's scores."""
VIEWS = {
    "plain": LearnedFeatures(("columns", "outliers", "components")),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}
_MOST_LABELLED = 10_000
_TRIAL_BLANKS = 0.1

Encoder = OneHotImputer | SingularVectors


# --- which rows take part, if not all do ----------------------------------------------------


def thinned(places: np.ndarray, most: int) -> np.ndarray:
    """Return at most this many of the positions, evenly spaced."""
    return places[:: max(1, -(-len(places) // most))]


def some_unlabelled(codes: np.ndarray, most: int) -> np.ndarray:
    """Return positions of some unlabelled rows, or of rows of any kind if there are none."""
    places = np.flatnonzero(codes == UNLABELLED)
    return thinned(places if len(places) else np.arange(len(codes)), most)


def with_labelled(codes: np.ndarray, most: int) -> np.ndarray:
    """Return positions of the labelled rows and of at most `most` unlabelled ones, in order."""
    unlabelled = thinned(np.flatnonzero(codes == UNLABELLED), most)
    return np.sort(np.concatenate([np.flatnonzero(codes != UNLABELLED), unlabelled]))


def sample_rows(codes: np.ndarray, most: int, fewest_unlabelled: int, seed: int) -> np.ndarray:
    """Return positions of rows to learn from: labelled rows first, then unlabelled ones.

    At most 10,000 labelled rows take part, and at least `fewest_unlabelled` unlabelled ones.
    """
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order] == UNLABELLED, kind="stable")]
    n_labelled = int((codes != UNLABELLED).sum())
    labelled = order[: min(n_labelled, _MOST_LABELLED)]
    unlabelled = order[n_labelled:][: max(most - len(labelled), fewest_unlabelled)]
    return np.sort(np.concatenate([labelled, unlabelled]))


# --- features of rows -----------------------------------------------------------------------


class EncodedRows(NamedTuple):
    """Rows of a table, and the same rows encoded: finite numbers, levels as yes/no columns."""

    encoder: Encoder
    rows: Any
    numbers: np.ndarray

    @classmethod
    def of(cls, encoder: Encoder, rows: Any) -> EncodedRows:
        """Encode rows."""
        if isinstance(encoder, OneHotImputer):
            rows = sparse_to_dense(rows)
        return cls(encoder, rows, encoder.transform(rows))

    def take(self, rows: np.ndarray) -> EncodedRows:
        """Some of the rows."""
        return EncodedRows(self.encoder, self.rows[rows], self.numbers[rows])


@dataclass(frozen=True)
class Views:
    """The features of training rows.

    Parameters
    ----------
    learned
        What features are learned by, for each view.
    features
        The features of the rows, for each view.
    native
        The columns that the network reads; None if they are those of the plain view.
    """

    learned: Mapping[str, LearnedFeatures]
    features: Mapping[str, np.ndarray]
    native: np.ndarray | None

    @classmethod
    def fit(cls, table: EncodedRows, recipes: Iterable[Recipe], seed: int) -> Views:
        """Learn the features that members see from all rows."""
        # The plain view serves the network and the plan; all parts are computed from columns.
        seen = {"plain": {"columns", "outliers", "components"}, "smooth": {"columns"}}
        for recipe in recipes:
            seen[recipe.view] |= set(recipe.parts)
        learned, features = {}, {}
        for name, view in VIEWS.items():
            parts = [part for part in view.parts if part in seen[name]]
            learned[name] = clone(view).set_params(parts=parts, random_state=seed)
            features[name] = learned[name].fit_transform(table.numbers)
        return cls(learned, features, _native(learned, features, table))

    @classmethod
    def of(cls, learned: Mapping[str, LearnedFeatures], table: EncodedRows) -> Views:
        """The features of other rows."""
        features = {name: view.transform(table.numbers) for name, view in learned.items()}
        return cls(learned, features, _native(learned, features, table))

    @classmethod
    def fit_without(
        cls, table: EncodedRows, held: np.ndarray, recipes: Iterable[Recipe], seed: int
    ) -> Views:
        """Learn both views from all rows but those held out, and return the features of all."""
        others = np.setdiff1d(np.arange(len(table.numbers)), held)
        kept = cls.fit(table.take(others), recipes, seed)
        rest = cls.of(kept.learned, table.take(held))

        def joined(of_others: np.ndarray, of_held: np.ndarray) -> np.ndarray:
            rows = np.empty((len(table.numbers), of_others.shape[1]))
            rows[others], rows[held] = of_others, of_held
            return rows

        features = {name: joined(F, rest.features[name]) for name, F in kept.features.items()}
        native = None
        if kept.native is not None and rest.native is not None:
            native = joined(kept.native, rest.native)
        return cls(kept.learned, features, native)

    def take(self, rows: np.ndarray) -> Views:
        """The features of some of the rows."""
        features = {name: F[rows] for name, F in self.features.items()}
        return Views(self.learned, features, None if self.native is None else self.native[rows])

    def columns(self, view: str) -> np.ndarray:
        """The columns of a view, on one scale."""
        return self.features[view][:, self.learned[view].slices_["columns"]]

    def seen_by(self, recipe: Recipe) -> np.ndarray:
        """The features that a member sees."""
        slices, F = self.learned[recipe.view].slices_, self.features[recipe.view]
        parts = recipe.parts_among(slices, None if self.native is None else self.native.shape[1])
        spans = [slices[part] for part in parts if part != "native"]
        if "native" not in parts and all(one.stop == two.start for one, two in pairwise(spans)):
            return F[:, spans[0].start : spans[-1].stop]  # no need to copy
        blocks = [self.native if part == "native" else F[:, slices[part]] for part in parts]
        return np.hstack([block for block in blocks if block is not None])


def _native(
    learned: Mapping[str, LearnedFeatures], features: Mapping[str, np.ndarray], table: EncodedRows
) -> np.ndarray | None:
    native = NativeColumns.of(table.encoder, learned["plain"])
    if native is None:
        return None
    Z = features["plain"][:, learned["plain"].slices_["columns"]]
    return native.transform(Z, table.rows)


class NewRows:
    """Rows to score: parts of views are computed when a member needs them, and only once.

    Kernels, the widest part, are not computed for a member that is linear in them: it gives weights
    to landmarks.
    """

    def __init__(self, learned: Mapping[str, LearnedFeatures], table: EncodedRows):
        self.learned = learned
        self._table = table
        self._parts: dict[tuple[str, str], np.ndarray] = {}
        self._seen: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._table.numbers)

    @cached_property
    def _native(self) -> NativeColumns | None:
        return NativeColumns.of(self._table.encoder, self.learned["plain"])

    def part(self, view: str, part: str) -> np.ndarray:
        """One part of a view."""
        if (view, part) not in self._parts:
            self._parts[view, part] = self._compute(view, part)
        return self._parts[view, part]

    def _compute(self, view: str, part: str) -> np.ndarray:
        if part == "columns":
            return self.learned[view].columns_of(self._table.numbers)
        columns = self.part(view, "columns")
        if part == "native" and self._native is not None:
            return self._native.transform(columns, self._table.rows)
        return self.learned[view].part_of(part, columns)

    def seen_by(self, recipe: Recipe) -> np.ndarray:
        """The features that a member sees."""
        native = self._native.n_features_out_ if recipe.pretrained and self._native else None
        key = recipe.view, recipe.parts_among(self.learned[recipe.view].slices_, native)
        if key not in self._seen:
            self._seen[key] = np.hstack([self.part(recipe.view, part) for part in key[1]])
        return self._seen[key]

    def scores_by(self, recipe: Recipe, detector: Any) -> np.ndarray:
        """The scores of a member."""
        if not ("kernels" in recipe.parts and isinstance(detector, ShallowRAD)):
            return np.asarray(detector.score_samples(self.seen_by(recipe)))
        learned, start = self.learned[recipe.view], 0
        scores = np.full(len(self), float(detector.intercept_))
        for part in recipe.parts:
            span = learned.slices_[part]
            weights = detector.coef_.ravel()[start : start + span.stop - span.start]
            start += len(weights)
            if part == "kernels":
                Z = self.part(recipe.view, "columns")
                scores += learned.maps_[part].products(Z, weights[:, None])[:, 0]
            else:
                scores += self.part(recipe.view, part) @ weights
        return scores


def rows_around(
    encoder: Encoder,
    view: LearnedFeatures,
    n_columns: int,
    rng: np.random.Generator,
    n_rows: int,
) -> np.ndarray:
    """Return random rows with the means and scales of a view, with a tenth of their cells blank."""
    X = rng.standard_normal((n_rows, n_columns))
    if not isinstance(encoder, OneHotImputer):
        return X
    places = [j for j in encoder.numbers_ if j < n_columns]  # evidence comes after all columns
    mean, scale = (each[: len(places)] for each in (view.scaler_.mean, view.scaler_.scale))
    X[:, places] = mean + scale * X[:, places]
    return np.where(rng.random(X.shape) < _TRIAL_BLANKS, np.nan, X)
