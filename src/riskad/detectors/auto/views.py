"""Two views of the columns, learned from all rows, and the parts of them that members see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from riskad.detectors.auto.members import MEMBERS, Recipe
from riskad.detectors.features import LearnedFeatures, NeighbourDistances
from riskad.detectors.features.native import NativeColumns, native_columns
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.encoding import OneHotImputer, SingularVectors
from riskad.rows.linear import sparse_to_dense

__all__ = ["VIEWS", "EncodedRows", "NewRows", "Views"]

VIEWS = {
    "plain": LearnedFeatures(("columns", "outliers", "components", "shapes", "distances")),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}
_NATIVE = "native"


def _parts_seen(members: Iterable[str]) -> dict[str, list[str]]:
    """The parts of each view that members see, and parts that these need, by view."""
    seen = {"plain": {"columns", "outliers", "components"}, "smooth": {"columns"}}
    for name in members:
        seen[MEMBERS[name].view] |= set(MEMBERS[name].parts)
    return {
        name: [part for part in view.parts if part in seen[name]] for name, view in VIEWS.items()
    }


class EncodedRows(NamedTuple):
    """Rows of a table, and the same rows encoded: finite numbers, levels as yes/no columns."""

    encoder: OneHotImputer | SingularVectors
    rows: Any
    numbers: np.ndarray

    @classmethod
    def of(cls, encoder: OneHotImputer | SingularVectors, rows: Any) -> EncodedRows:
        """Encode rows."""
        if isinstance(encoder, OneHotImputer):
            rows = sparse_to_dense(rows)
        return cls(encoder, rows, encoder.transform(rows))

    def take(self, rows: np.ndarray) -> EncodedRows:
        """Some of the rows."""
        return EncodedRows(self.encoder, self.rows[rows], self.numbers[rows])


class Views:
    """The features of some rows, by view; "native" are the columns that the network reads."""

    def __init__(self, learned: Mapping[str, Any], features: Mapping[str, np.ndarray]):
        self.learned = learned
        self.features = features

    @classmethod
    def fit(cls, table: EncodedRows, codes: np.ndarray, members: Iterable[str], seed: int) -> Views:
        """Learn the features of members from all rows; codes tell distances what is labelled."""
        learned = {
            name: clone(VIEWS[name]).set_params(parts=parts, random_state=seed)
            for name, parts in _parts_seen(members).items()
        }
        features = {n: view.fit_transform(table.numbers, codes) for n, view in learned.items()}
        return cls(learned, features)._with_native(table)

    @classmethod
    def of(cls, learned: Mapping[str, Any], table: EncodedRows) -> Views:
        """The features of other rows."""
        features = {name: view.transform(table.numbers) for name, view in learned.items()}
        return cls(learned, features)._with_native(table)

    def _with_native(self, table: EncodedRows) -> Views:
        native = native_columns(table.encoder, self.learned["plain"])
        if native is None:
            return self
        Z = self.features["plain"][:, self.learned["plain"].slices_["columns"]]
        return Views(self.learned, {**self.features, _NATIVE: native.transform(Z, table.rows)})

    @classmethod
    def fit_without(
        cls,
        table: EncodedRows,
        codes: np.ndarray,
        held: np.ndarray,
        members: Iterable[str],
        seed: int,
    ) -> Views:
        """Learn both views from all rows but those held out, and return the features of all."""
        others = np.setdiff1d(np.arange(len(codes)), held)
        kept = cls.fit(table.take(others), codes[others], members, seed)
        rest = cls.of(kept.learned, table.take(held))
        features = {}
        for name, F in kept.features.items():
            features[name] = np.empty((len(codes), F.shape[1]))
            features[name][others], features[name][held] = F, rest.features[name]
        return cls(kept.learned, features)

    @property
    def knows_no_label(self) -> bool:
        """Whether no feature depends on labels."""
        return not any("distances" in view.slices_ for view in self.learned.values())

    def __len__(self) -> int:
        return len(next(iter(self.features.values())))

    def take(self, rows: np.ndarray) -> Views:
        """The features of some of the rows."""
        return Views(self.learned, {name: F[rows] for name, F in self.features.items()})

    def seen_by(self, member: str) -> np.ndarray:
        """The features that a member sees."""
        recipe = MEMBERS[member]
        slices, F = self.learned[recipe.view].slices_, self.features[recipe.view]
        native = self.features.get(_NATIVE, F[:, :0])
        parts = recipe.parts_among(slices, native.shape[1] if _NATIVE in self.features else None)
        spans = [slices[part] for part in parts if part != _NATIVE]
        if _NATIVE not in parts and all(one.stop == two.start for one, two in pairwise(spans)):
            return F[:, spans[0].start : spans[-1].stop]  # no need to copy
        return np.hstack([native if part == _NATIVE else F[:, slices[part]] for part in parts])

    def scores_by(self, member: str, detector: Any) -> np.ndarray:
        """The scores of a member."""
        return np.asarray(detector.score_samples(self.seen_by(member)))

    def seen_by_teacher(self) -> np.ndarray:
        """Outlier scores with the columns, or with their components if there are too many."""
        slices = self.learned["plain"].slices_
        first = "columns" if slices["outliers"].stop <= READS_COLUMNS else "components"
        return np.hstack([self.features["plain"][:, slices[part]] for part in (first, "outliers")])

    def columns_of(self, table: EncodedRows) -> np.ndarray:
        """Return the columns of other rows in the plain view, without learned features."""
        return np.asarray(self.learned["plain"].columns_of(table.numbers))

    def without_labels(self, codes: np.ndarray, held: np.ndarray) -> Views:
        """The views as if held-out rows had no label: distances are to other rows' labels."""
        if "distances" not in self.learned["plain"].slices_:
            return self
        span = self.learned["plain"].slices_["distances"]
        Z = self.features["plain"][:, self.learned["plain"].slices_["columns"]]
        others = np.setdiff1d(np.arange(len(codes)), held)
        distances = NeighbourDistances(unlabelled=False)
        D = np.empty((len(codes), span.stop - span.start))
        D[others] = distances.fit_transform(Z[others], codes[others])
        D[held] = distances.transform(Z[held])
        changed = self.features["plain"].copy()
        changed[:, span] = D
        return Views(self.learned, {**self.features, "plain": changed})


class NewRows:
    """Rows to score: parts of views are computed when a member needs them, and only once.

    Kernels, the widest part, are not computed for a member that is linear in them: it gives weights
    to landmarks.
    """

    def __init__(self, learned: Mapping[str, Any], table: EncodedRows):
        self.learned = learned
        self._table = table
        self._parts: dict[tuple[str, str], np.ndarray] = {}
        self._seen: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._table.numbers)

    @cached_property
    def _native(self) -> NativeColumns | None:
        return native_columns(self._table.encoder, self.learned["plain"])

    def part(self, view: str, part: str) -> np.ndarray:
        """One part of a view."""
        if (view, part) not in self._parts:
            self._parts[view, part] = self._compute(view, part)
        return self._parts[view, part]

    def _compute(self, view: str, part: str) -> np.ndarray:
        learned = self.learned[view]
        if part == "columns":
            return np.asarray(learned.columns_of(self._table.numbers))
        columns = self.part(view, "columns")
        if part == _NATIVE and self._native is not None:
            return self._native.transform(columns, self._table.rows)
        return np.asarray(learned.part_of(part, columns))

    def seen_by(self, member: str) -> np.ndarray:
        """The features that a member sees."""
        recipe = MEMBERS[member]
        native = self._native.n_features_out_ if recipe.pretrained and self._native else None
        key = recipe.view, recipe.parts_among(self.learned[recipe.view].slices_, native)
        if key not in self._seen:
            self._seen[key] = np.hstack([self.part(recipe.view, part) for part in key[1]])
        return self._seen[key]

    def scores_by(self, member: str, detector: Any) -> np.ndarray:
        """The scores of a member."""
        recipe = MEMBERS[member]
        if "kernels" in recipe.parts and isinstance(detector, ShallowRAD):
            return self._linear_scores(recipe, detector)
        return np.asarray(detector.score_samples(self.seen_by(member)))

    def _linear_scores(self, recipe: Recipe, detector: ShallowRAD) -> np.ndarray:
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
