"""Rows as members see them: which rows take part, and two views of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from sklearn.base import clone

from riskad.core.labels import UNLABELLED
from riskad.detectors.features.union import Encoder, LearnedFeatures, NativeColumns
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.arrays import to_dense
from riskad.rows.encoding import OneHotImputer

if TYPE_CHECKING:
    from riskad.detectors.auto.members import Recipe

COMPARED = 1_000  # unlabelled rows whose scores set the scale of a member's scores
VIEWS = {
    "plain": LearnedFeatures(("columns", "outliers", "components")),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}
_MOST_LABELLED = 10_000  # members that use more get them apart (`ExtraLabelled`)
_TRIAL_BLANKS = 0.1  # share of cells of random rows, so that a graph is tested on blanks, too


def thinned(places: np.ndarray, most: int) -> np.ndarray:
    """Return at most this many of the positions, evenly spaced."""
    # Rounded up (-(-a // b)), so that there are never more than `most`.
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
    """Return positions of rows to learn from: labelled rows first, then unlabelled ones."""
    # A random order, then labelled rows first: a stable sort keeps the order within both.
    order = np.random.default_rng(seed).permutation(len(codes))
    order = order[np.argsort(codes[order] == UNLABELLED, kind="stable")]
    n_labelled = int((codes != UNLABELLED).sum())
    labelled = order[: min(n_labelled, _MOST_LABELLED)]
    unlabelled = order[n_labelled:][: max(most - len(labelled), fewest_unlabelled)]
    return np.sort(np.concatenate([labelled, unlabelled]))


def mean_and_spread(scores: np.ndarray) -> tuple[float, float]:
    """Return mean and spread for standardising scores; a constant score is left unscaled."""
    return float(scores.mean()), float(scores.std()) or 1.0


class Member(Protocol):
    """What `AutoRAD` asks of a detector that it averages."""

    n_features_in_: int

    def fit(self, X: Any, y: Any, **options: Any) -> Any: ...
    def score_samples(self, X: Any) -> np.ndarray: ...
    def get_params(self) -> dict[str, Any]: ...
    def set_params(self, **params: Any) -> Any: ...
    def _clone_for_fold(self) -> Member: ...
    def _kept_rows(self) -> int: ...
    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str: ...


class Views:
    """The features of rows, in parts that are computed when a member needs them, and only once.

    Parts of training rows are given: there a row does not count as its own neighbour. Beside the
    parts of `LearnedFeatures` there are "native" columns, which the network reads.
    """

    def __init__(
        self,
        learned: Mapping[str, LearnedFeatures],
        encoder: Encoder,
        rows: Any,
        parts: Mapping[tuple[str, str], np.ndarray] | None = None,
    ):
        self.learned = learned
        self._encoder = encoder
        self._rows = _dense(encoder, rows)
        self._parts = dict(parts or {})
        self._features: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    @classmethod
    def fit(cls, encoder: Encoder, rows: Any, recipes: Iterable[Recipe], seed: int) -> Views:
        # The plain view serves the network and the plan; all parts are computed from columns.
        parts_needed = {"plain": {"columns", "outliers", "components"}, "smooth": {"columns"}}
        for recipe in recipes:
            parts_needed[recipe.view] |= set(recipe.parts)
        numbers = encoder.transform(_dense(encoder, rows))
        learned: dict[str, LearnedFeatures] = {}
        parts: dict[tuple[str, str], np.ndarray] = {}
        for name, view in VIEWS.items():
            needed = [part for part in view.parts if part in parts_needed[name]]
            learned[name] = clone(view).set_params(parts=needed, random_state=seed)
            F = learned[name].fit_transform(numbers)
            parts |= {(name, part): F[:, span] for part, span in learned[name].slices_.items()}
        return cls(learned, encoder, rows, parts)

    @classmethod
    def fit_without(
        cls, encoder: Encoder, rows: Any, fold: np.ndarray, recipes: Iterable[Recipe], seed: int
    ) -> Views:
        """Learn both views from all rows but those held out, and return the features of all."""
        n_rows = rows.shape[0]
        others = np.setdiff1d(np.arange(n_rows), fold)
        views = cls.fit(encoder, rows[others], recipes, seed)
        # Held-out rows are new to what was learned; the others do not count as their own
        # neighbours.
        held_out = cls(views.learned, encoder, rows[fold])
        parts = {}
        for key, part in views._parts.items():
            parts[key] = np.empty((n_rows, part.shape[1]))
            parts[key][others], parts[key][fold] = part, held_out.part(*key)
        return cls(views.learned, encoder, rows, parts)

    def __len__(self) -> int:
        return int(self._rows.shape[0])

    def take(self, rows: np.ndarray) -> Views:
        parts = {key: part[rows] for key, part in self._parts.items()}
        return Views(self.learned, self._encoder, self._rows[rows], parts)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return self._encoder.transform(self._rows)

    @cached_property
    def _native(self) -> NativeColumns | None:
        return NativeColumns.of(self._encoder, self.learned["plain"])

    def part(self, view: str, part: str) -> np.ndarray:
        if (view, part) not in self._parts:
            if part == "columns":
                values = self.learned[view].columns_of(self._numbers)
            elif part == "native" and self._native is not None:
                values = self._native.transform(self.part(view, "columns"), self._rows)
            else:
                values = self.learned[view].part_of(part, self.part(view, "columns"))
            self._parts[view, part] = values
        return self._parts[view, part]

    def features_for(self, recipe: Recipe) -> np.ndarray:
        native = self._native if recipe.pretrained else None
        key = recipe.view, recipe.parts_among(self.learned[recipe.view].slices_, native)
        if key not in self._features:
            # Members share features: what two of them see is put side by side once.
            self._features[key] = np.hstack([self.part(recipe.view, part) for part in key[1]])
        return self._features[key]

    def scores_by(self, recipe: Recipe, detector: Member) -> np.ndarray:
        """The scores of a member."""
        # Kernels, the widest part, are not computed for a member that is linear in them: it gives
        # weights to landmarks.
        if not ("kernels" in recipe.parts and isinstance(detector, ShallowRAD)):
            score = getattr(detector, "_scores", detector.score_samples)  # rows need no check
            return np.asarray(score(self.features_for(recipe)))
        learned, start = self.learned[recipe.view], 0
        scores = np.full(len(self), float(detector.intercept_))
        for part in recipe.parts:
            span = learned.slices_[part]
            # Weights lie in the order of the member's parts, which may not be that of the view.
            weights = detector.coef_.ravel()[start : start + span.stop - span.start]
            start += len(weights)
            if part == "kernels":
                Z = self.part(recipe.view, "columns")
                scores += learned.maps_[part].products(Z, weights[:, None])[:, 0]
            else:
                scores += self.part(recipe.view, part) @ weights
        return scores


def _dense(encoder: Encoder, rows: Any) -> Any:
    return to_dense(rows) if isinstance(encoder, OneHotImputer) else rows


def rows_around(
    encoder: Encoder, view: LearnedFeatures, n_columns: int, rng: np.random.Generator, n_rows: int
) -> np.ndarray:
    """Return random rows with the means and scales of a view, with a tenth of their cells blank."""
    X = rng.standard_normal((n_rows, n_columns))
    if not isinstance(encoder, OneHotImputer):
        return X
    places = [j for j in encoder.numbers_ if j < n_columns]  # evidence comes after all columns
    mean, scale = (each[: len(places)] for each in (view.scaler_.mean, view.scaler_.scale))
    X[:, places] = mean + scale * X[:, places]
    return np.where(rng.random(X.shape) < _TRIAL_BLANKS, np.nan, X)
