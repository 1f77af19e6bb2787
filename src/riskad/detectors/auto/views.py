"""Two views of the columns, learned from all rows, and the parts of them that members see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from riskad.detectors.auto.members import MEMBERS, Recipe
from riskad.detectors.features import LearnedFeatures, NeighbourDistances
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.columns import Filled, MadeColumns, Reduced

__all__ = ["VIEWS", "NewRows", "Views", "fit_table"]

_WIDE_SPARSE = 1_000  # columns beyond which a sparse matrix is reduced
_REDUCED = 100
VIEWS = {
    "plain": LearnedFeatures(
        ("columns", "outliers", "components", "shapes", "distances", "native")
    ),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}


def fit_table(matrix: Any, categories: Any, seed: int) -> Filled | Reduced:
    """Return the transformer to numbers without gaps; a wide sparse matrix is reduced by SVD."""
    if sparse.issparse(matrix) and matrix.shape[1] > _WIDE_SPARSE:
        size = min(_REDUCED, *(side - 1 for side in matrix.shape))
        return Reduced.of(matrix, size, seed)
    return Filled(categories).fit(matrix)


def _parts_seen(members: Iterable[str], made: MadeColumns) -> dict[str, list[str]]:
    """The parts of each view that members see, and parts that these need, by view."""
    seen = {"plain": {"columns", "outliers", "components"}, "smooth": {"columns"}}
    for name in members:
        seen[MEMBERS[name].view] |= set(MEMBERS[name].parts)
        if any(made) and MEMBERS[name].pretrained:
            seen["plain"].add("native")
    return {
        name: [part for part in view.parts if part in seen[name]] for name, view in VIEWS.items()
    }


class Views:
    """The features of some rows, by view."""

    def __init__(self, learned: Mapping[str, Any], features: Mapping[str, np.ndarray]):
        self.learned = learned
        self.features = features

    @classmethod
    def fit(
        cls,
        matrix: np.ndarray,
        codes: np.ndarray,
        members: Iterable[str],
        seed: int,
        made: MadeColumns,
    ) -> Views:
        """Learn the features of members from all rows; codes tell distances what is labelled."""
        learned = {
            name: clone(VIEWS[name]).set_params(parts=parts, random_state=seed)
            for name, parts in _parts_seen(members, made).items()
        }
        if "native" in learned["plain"].parts:
            learned["plain"].set_params(marks=list(made.marks), levels=list(made.levels))
        return cls(learned, {n: view.fit_transform(matrix, codes) for n, view in learned.items()})

    @classmethod
    def of(cls, learned: Mapping[str, Any], matrix: np.ndarray) -> Views:
        """The features of other rows."""
        return cls(learned, {name: view.transform(matrix) for name, view in learned.items()})

    @classmethod
    def fit_without(
        cls,
        matrix: np.ndarray,
        codes: np.ndarray,
        held: np.ndarray,
        members: Iterable[str],
        seed: int,
        made: MadeColumns,
    ) -> Views:
        """Learn both views from all rows but those held out, and return the features of all."""
        others = np.setdiff1d(np.arange(len(codes)), held)
        kept = cls.fit(matrix[others], codes[others], members, seed, made)
        rest = cls.of(kept.learned, matrix[held])
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
        slices = self.learned[recipe.view].slices_
        spans = [slices[part] for part in recipe.parts_among(slices)]
        F = self.features[recipe.view]
        if all(one.stop == other.start for one, other in pairwise(spans)):  # no need to copy
            return F[:, spans[0].start : spans[-1].stop]
        return np.hstack([F[:, span] for span in spans])

    def scores_by(self, member: str, detector: Any) -> np.ndarray:
        """The scores of a member."""
        return np.asarray(detector.score_samples(self.seen_by(member)))

    def seen_by_teacher(self) -> np.ndarray:
        """Outlier scores with the columns, or with their components if there are too many."""
        slices = self.learned["plain"].slices_
        first = "columns" if slices["outliers"].stop <= READS_COLUMNS else "components"
        return np.hstack([self.features["plain"][:, slices[part]] for part in (first, "outliers")])

    def columns_of(self, matrix: np.ndarray) -> np.ndarray:
        """Return the columns of other rows in the plain view, without learned features."""
        return self.learned["plain"].columns_of(matrix)

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

    def __init__(self, learned: Mapping[str, Any], matrix: np.ndarray):
        self.learned = learned
        self._n_rows = len(matrix)
        self._matrix = matrix
        self._parts: dict[tuple[str, str], np.ndarray] = {}
        self._seen: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    def __len__(self) -> int:
        return self._n_rows

    def part(self, view: str, part: str) -> np.ndarray:
        """One part of a view."""
        if (view, part) not in self._parts:
            learned = self.learned[view]
            self._parts[view, part] = (
                learned.columns_of(self._matrix)
                if part == "columns"
                else learned.part_of(part, self.part(view, "columns"))
            )
        return self._parts[view, part]

    def seen_by(self, member: str) -> np.ndarray:
        """The features that a member sees."""
        recipe = MEMBERS[member]
        key = recipe.view, recipe.parts_among(self.learned[recipe.view].slices_)
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
