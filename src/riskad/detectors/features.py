r"""Feature maps learned from all rows: the pile teaches the representation, labels the rest.

Each is a scikit-learn transformer: alone, in a pipeline, in a `FeatureUnion`, or as the
`feature_map` of `ShallowRAD`. All are fitted on training rows only. Where a row would be its own
nearest neighbour `fit_transform` leaves it out, so that training rows and new rows look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import pairwise_distances_chunked
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError, check_choice
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, check_codes
from riskad.detectors.trees import KeepsTrees, with_values
from riskad.rows.columns import check_numbers
from riskad.storage.fields import (
    COUNT,
    FLAG,
    NAMES,
    POSITIVE,
    SEED,
    SIZE,
    Array,
    DictOf,
    Either,
    Fields,
    ListOf,
    Number,
    Optional,
    Record,
    Span,
    State,
    Text,
    require,
)

__all__ = [
    "GaussianKernels",
    "LearnedFeatures",
    "NeighbourDistances",
    "OutlierScores",
    "SmoothScaler",
    "TreeLeaves",
]

_WIDTH_ROWS = 1000  # rows whose distances give the width of kernels
_FLOOR = 1e-3  # of distances, as a share of the usual one, before their logarithm
_CLIP = 5.0
_WILD = 10.0  # standard deviations at which columns are clipped
_FAR = 3.0
_FARTHEST = 1e100  # whose square is still a number
_NORMAL_IQR = 1.349  # interquartile range of a normal distribution
_FEW_COLUMNS = 600  # up to which principal components are found from the covariance
_PARTS = ("columns", "outliers", "components", "kernels", "shapes", "distances")


class _Map(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the maps share: a seed, a sample of rows, finite numbers in."""

    random_state: int | None

    _state_fields: ClassVar[Fields] = {
        "random_state": SEED,
        "n_features_in_": SIZE,
        "feature_names_in_": Optional(NAMES),
        "n_features_out_": COUNT,
    }

    def _check(self, X: Any, reset: bool) -> np.ndarray:
        return check_numbers(self, X, reset)

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(self.random_state or 0)

    def _places(self, n_rows: int, n_wanted: int) -> np.ndarray:
        """Places of the rows to learn from: all, or as many as wanted."""
        if n_rows <= n_wanted:
            return np.arange(n_rows)
        return np.sort(self._rng().choice(n_rows, n_wanted, replace=False))

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_


class GaussianKernels(_Map):
    r"""Features whose inner products are near those of Gaussian kernels of several widths.

    With s^2 the median squared distance between rows, kernel k is exp(-||x - x'||^2 / (w_k s^2)),
    each approximated from landmarks among the rows (Nystroem). Fitting s makes the map independent
    of the units and of the number of columns. Rows have norm 1 or a little less.

    Parameters
    ----------
    widths : sequence of floats, default=(0.5, 1, 2)
        w_k, in multiples of the median squared distance.
    n_components : int, default=200
        Landmarks for each width.
    max_rows : int, default=20_000
        Rows among which landmarks are looked for.
    random_state : int, optional
        Seed; None is 0.

    Attributes
    ----------
    median_ : float
        s^2.
    maps_ : list of Nystroem
        One for each width.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> GaussianKernels(n_components=50).fit_transform(X).shape
    (100, 150)
    """

    _state_fields: ClassVar[Fields] = {
        "widths": Either(ListOf(POSITIVE, "widths"), Array("f", ("widths",))),
        "n_components": SIZE,
        "max_rows": SIZE,
        "median_": POSITIVE,
        "maps_": ListOf(Record(("Nystroem",)), "widths"),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        maps = state["maps_"]
        same = all(each.n_features_in_ == state["n_features_in_"] for each in maps)
        require(same, "maps_: of other columns")
        width = sum(len(each.components_) for each in maps)
        require(len(maps) > 0 and width == state["n_features_out_"], "maps_: another size")

    def __init__(
        self,
        widths: Sequence[float] = (0.5, 1.0, 2.0),
        *,
        n_components: int = 200,
        max_rows: int = 20_000,
        random_state: int | None = None,
    ):
        self.widths = widths
        self.n_components = n_components
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> GaussianKernels:
        """Find the median distance and the landmarks; y is not looked at."""
        from sklearn.kernel_approximation import Nystroem

        if not len(self.widths) or min(self.widths) <= 0:
            raise InputError(f"widths must be numbers > 0, got {self.widths!r}.")
        X = self._check(X, reset=True)
        X = X[self._places(len(X), self.max_rows)]
        self.median_ = _median_squared_distance(X[self._places(len(X), _WIDTH_ROWS)])
        size, seed = min(self.n_components, len(X)), self.random_state or 0
        self.maps_ = [
            Nystroem(gamma=1 / (w * self.median_), n_components=size, random_state=seed).fit(X)
            for w in self.widths
        ]
        self.n_features_out_ = size * len(self.maps_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The features of all widths, side by side."""
        check_is_fitted(self)
        X = self._check(X, reset=False)
        return np.hstack([part.transform(X) for part in self.maps_]) / len(self.maps_) ** 0.5


def _median_squared_distance(X: np.ndarray) -> float:
    from scipy.spatial.distance import pdist

    squared = pdist(X, "sqeuclidean")
    squared = squared[squared > 0]
    return float(np.median(squared)) if len(squared) else 1.0


class TreeLeaves(KeepsTrees, _Map):
    """The leaves into which a row falls, in trees that split the rows at random.

    Rows in one leaf of many trees are alike, whatever the units of their columns. A row has one
    entry 1 / sqrt(n_estimators) for each tree, so its norm is 1; the result is sparse.

    Parameters
    ----------
    n_estimators : int, default=100
        Trees.
    max_depth : int, default=5
        Depth of each: at most 2^max_depth leaves.
    max_rows : int, default=20_000
        Rows on which trees are grown.
    random_state : int, optional
        Seed; None is 0.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> TreeLeaves(25).fit_transform(X).sum(axis=1).max().round(6)  # 25 times 1 / 5
    np.float64(5.0)
    """

    _state_fields: ClassVar[Fields] = {
        "n_estimators": SIZE,
        "max_depth": Number(1, 100, whole=True),
        "max_rows": SIZE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state in which a leaf has no column."""
        trees = state["trees_"]
        require({"values", "left_child"} <= set(trees), "trees_: without nodes")
        values, child = trees["values"], trees["left_child"]
        require(values.ndim == 3 and child.shape == values.shape[:1], "trees_: other shapes")
        places = values[child == -1, 0, 0]
        inside = bool((places >= 0).all() and (places < state["n_features_out_"]).all())
        require(places.size > 0 and inside, "trees_: leaves without a column")

    def __init__(
        self,
        n_estimators: int = 100,
        *,
        max_depth: int = 5,
        max_rows: int = 20_000,
        random_state: int | None = None,
    ):
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> TreeLeaves:
        """Grow the trees; y is not looked at."""
        from sklearn.ensemble import RandomTreesEmbedding

        X = self._check(X, reset=True)
        embedding = RandomTreesEmbedding(
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            random_state=self.random_state or 0,
        ).fit(X[self._places(len(X), self.max_rows)])
        trees = [member.tree_ for member in embedding.estimators_]
        leaf = np.concatenate([tree.children_left == -1 for tree in trees])
        # Leaves are numbered through all trees: a row's leaf is read off as a value of its tree.
        self.trees_ = with_values(trees, np.cumsum(leaf) - 1, X.shape[1])
        self.n_features_out_ = int(leaf.sum())
        return self

    def transform(self, X: Any) -> Any:
        """One entry for each tree."""
        check_is_fitted(self)
        X = self._check(X, reset=False).astype(np.float32)
        places = np.stack([tree.predict(X)[:, 0] for tree in self.trees_], axis=1).astype(int)
        n, T = places.shape
        ones = np.full(n * T, T**-0.5)
        ends = np.arange(0, n * T + 1, T)
        return sparse.csr_matrix((ones, places.ravel(), ends), shape=(n, self.n_features_out_))


class OutlierScores(KeepsTrees, _Map):
    """Two unsupervised outlier scores: of an isolation forest, and the log distance to neighbours.

    The one sees rows that few cuts separate from the rest, the other rows in thin regions. Both
    are standardised over the training rows and clipped at five standard deviations.

    Parameters
    ----------
    n_neighbors : int, default=10
        Which neighbour's distance is taken.
    max_rows : int, default=5_000
        Rows among which neighbours are looked for.
    random_state : int, optional
        Seed; None is 0.

    Examples
    --------
    >>> X = np.vstack([np.random.default_rng(0).normal(size=(200, 2)), [[9.0, 9.0]]])
    >>> OutlierScores().fit_transform(X).argmax(axis=0)
    array([200, 200])
    """

    _state_fields: ClassVar[Fields] = {
        "n_neighbors": SIZE,
        "max_rows": SIZE,
        "rows_": Array("f", ("rows", "n_features_in_")),
        "path_length_": POSITIVE,
        "floor_": POSITIVE,
        "mean_": Array("f", (2,)),
        "scale_": Array("f", (2,), low=np.nextafter(0, 1)),
        "n_features_out_": Number(2, 2, whole=True),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state without rows to be near to."""
        require(len(state["rows_"]) > 0, "rows_: none")

    def __init__(
        self, n_neighbors: int = 10, *, max_rows: int = 5_000, random_state: int | None = None
    ):
        self.n_neighbors = n_neighbors
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> OutlierScores:
        """Fit both scores; y is not looked at."""
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit both scores and give those of the training rows, each without itself."""
        from sklearn.ensemble import IsolationForest

        X = self._check(X, reset=True)
        places = self._places(len(X), self.max_rows)
        self.rows_ = X[places]
        forest = IsolationForest(random_state=self.random_state or 0).fit(X)
        trees = [member.tree_ for member in forest.estimators_]
        self.trees_ = with_values(trees, _path_lengths(trees), X.shape[1])
        self.path_length_ = float(_average_path_length(np.array([forest.max_samples_]))[0])
        self.floor_ = _FLOOR * _median_squared_distance(X[self._places(len(X), _WIDTH_ROWS)]) ** 0.5
        raw = self._raw(X, leave_out=np.isin(np.arange(len(X)), places))
        self.mean_, self.scale_ = raw.mean(axis=0), raw.std(axis=0) + 1e-12
        self.n_features_out_ = raw.shape[1]
        return self._standardised(raw)

    def transform(self, X: Any) -> np.ndarray:
        """The two scores of each row."""
        check_is_fitted(self)
        return self._standardised(self._raw(self._check(X, reset=False)))

    def _raw(self, X: np.ndarray, leave_out: np.ndarray | None = None) -> np.ndarray:
        k = _distances(X, self.rows_, self.n_neighbors, leave_out)
        return np.stack([self._isolation(X), np.log(k + self.floor_)], axis=1)

    def _isolation(self, X: np.ndarray) -> np.ndarray:
        """2^(-h / c): h the mean length of a row's paths, c that in a tree of random splits."""
        X = X.astype(np.float32)
        h = np.mean([tree.predict(X)[:, 0] for tree in self.trees_], axis=0)
        return np.asarray(2 ** (-h / self.path_length_))

    def _standardised(self, raw: np.ndarray) -> np.ndarray:
        return np.clip((raw - self.mean_) / self.scale_, -_CLIP, _CLIP)


def _path_lengths(trees: Sequence[Any]) -> np.ndarray:
    """Length of the path to each node, and on to the rows of a leaf."""
    steps = np.concatenate([tree.compute_node_depths() - 1 for tree in trees])
    rows = np.concatenate([tree.n_node_samples for tree in trees])
    return np.asarray(steps + _average_path_length(rows))


def _average_path_length(n: np.ndarray) -> np.ndarray:
    """Mean length of a path to one of n rows, in a tree that isolates each by random splits."""
    rows = np.maximum(n, 3).astype(float)
    of_many = 2 * (np.log(rows - 1) + np.euler_gamma) - 2 * (rows - 1) / rows
    return np.where(n > 2, of_many, np.where(n == 2, 1.0, 0.0))


class NeighbourDistances(_Map):
    """Log distances to the nearest labelled normal, labelled anomaly and unlabelled rows.

    A kind of row that is absent has no column. The last column, where there are labels of both
    kinds, is the difference of their two: near which of them is the row?

    Parameters
    ----------
    n_neighbors : int, default=1
        Which neighbour's distance is taken; the last one where a kind has fewer.
    unlabelled : bool, default=True
        Whether the distance to unlabelled rows is a column, too.
    max_rows : int, default=5_000
        Unlabelled rows among which neighbours are looked for.
    random_state : int, optional
        Seed; None is 0.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [8.0], [9.0]]), [1, 0, 0, -1]
    >>> distances = NeighbourDistances().fit(X, y).transform([[0.5], [8.5]])
    >>> distances[:, -1] > 0  # nearer to the anomaly than to the normal row
    array([False,  True])
    """

    _state_fields: ClassVar[Fields] = {
        "n_neighbors": SIZE,
        "unlabelled": FLAG,
        "max_rows": SIZE,
        "places_": DictOf(Number(-1, 1, whole=True), Array("i", (None,), low=0)),
        "rows_": DictOf(Number(-1, 1, whole=True), Array("f", (None, "n_features_in_"))),
        "floor_": POSITIVE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        rows = state["rows_"]
        require(all(len(each) for each in rows.values()), "rows_: none of a kind")
        width = len(rows) + (NORMAL in rows and ANOMALY in rows)
        require(len(rows) > 0 and width == state["n_features_out_"], "rows_: other kinds")

    def __init__(
        self,
        n_neighbors: int = 1,
        *,
        unlabelled: bool = True,
        max_rows: int = 5_000,
        random_state: int | None = None,
    ):
        self.n_neighbors = n_neighbors
        self.unlabelled = unlabelled
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> NeighbourDistances:
        """Remember the rows of each kind."""
        X, y = self._check(X, reset=True), check_codes(y)
        self.places_ = {}
        for kind in (NORMAL, ANOMALY, UNLABELLED)[: 3 if self.unlabelled else 2]:
            members = np.flatnonzero(y == kind)
            chosen = members[self._places(len(members), self.max_rows)]
            if len(chosen):
                self.places_[kind] = chosen
        if not self.places_:
            raise InputError("y has no labelled row to be near to. Label some, or unlabelled=True.")
        self.rows_ = {kind: X[places] for kind, places in self.places_.items()}
        self.floor_ = _FLOOR * _median_squared_distance(X[self._places(len(X), _WIDTH_ROWS)]) ** 0.5
        both = NORMAL in self.rows_ and ANOMALY in self.rows_
        self.n_features_out_ = len(self.rows_) + both
        return self

    def fit_transform(self, X: Any, y: Any) -> np.ndarray:
        """Fit, and give the distances of the training rows, each without itself."""
        self.fit(X, y)
        X = self._check(X, reset=False)
        everyone = np.arange(len(X))
        return self._logarithms(
            X, {kind: np.isin(everyone, places) for kind, places in self.places_.items()}
        )

    def transform(self, X: Any) -> np.ndarray:
        """The distances of each row."""
        check_is_fitted(self)
        return self._logarithms(self._check(X, reset=False), {})

    def _logarithms(self, X: np.ndarray, leave_out: dict[int, np.ndarray]) -> np.ndarray:
        columns = {
            kind: np.log(_distances(X, rows, self.n_neighbors, leave_out.get(kind)) + self.floor_)
            for kind, rows in self.rows_.items()
        }
        if NORMAL in columns and ANOMALY in columns:
            return np.stack([*columns.values(), columns[NORMAL] - columns[ANOMALY]], axis=1)
        return np.stack(list(columns.values()), axis=1)


class SmoothScaler(_Map):
    """Columns on one scale, where what lies far out is drawn in smoothly.

    With m the median and s the interquartile range of a column, as a multiple of that of a normal
    distribution, z = (x - m) / s becomes z / sqrt(1 + (z / 3)^2), which is z near 0 and never
    beyond 3. A few huge values then neither set the scale of a column nor outweigh all others in a
    distance. Where most values of a column are the same, s is its standard deviation. Columns that
    hold a single value are dropped.

    Examples
    --------
    >>> SmoothScaler().fit_transform([[0.0], [1.0], [2.0], [3.0], [1e6]]).round(2).ravel()
    array([-1.23, -0.66,  0.  ,  0.66,  3.  ])
    """

    random_state = None

    _state_fields: ClassVar[Fields] = {
        "random_state": Optional(SEED),
        "median_": Array("f", ("n_features_in_",)),
        "scale_": Array("f", ("n_features_in_",), low=0),
        "kept_": Array("i", ("kept",), low=0),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        kept = state["kept_"]
        require(bool((kept < state["n_features_in_"]).all()), "kept_: no such column")
        require(bool((state["scale_"][kept] > 0).all()), "scale_: zero")
        require(len(kept) == state["n_features_out_"], "kept_: another number of columns")

    def fit(self, X: Any, y: Any = None) -> SmoothScaler:
        """Find m and s of each column; y is not looked at."""
        X = self._check(X, reset=True)
        low, self.median_, high = np.percentile(X, [25, 50, 75], axis=0)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        self.scale_ = np.where(high > low, (high - low) / _NORMAL_IQR, X.std(axis=0))
        self.n_features_out_ = len(self.kept_)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """The columns that are kept, on their new scale."""
        check_is_fitted(self)
        X = self._check(X, reset=False)[:, self.kept_]
        z = (X - self.median_[self.kept_]) / self.scale_[self.kept_]
        z = np.clip(z, -_FARTHEST, _FARTHEST)
        return np.asarray(z / np.sqrt(1 + (z / _FAR) ** 2))


class LearnedFeatures(_Map):
    """All that the rows say about a row: its columns, and what was learned from all of them.

    The features come in parts, side by side:

    - "columns": the columns on one scale;
    - "outliers": `OutlierScores`;
    - "components": the leading principal components;
    - "kernels": `GaussianKernels`;
    - "shapes": the leading principal components of the kernels;
    - "distances": `NeighbourDistances`, the only part that looks at labels.

    Parameters
    ----------
    parts : sequence of str, default=("columns", "outliers", "components", "shapes", "distances")
        Which parts, in which order.
    smooth : bool, default=False
        Whether columns are brought to one scale by `SmoothScaler` rather than standardised and
        clipped at 10.
    widths : sequence of floats, default=(0.5, 1, 2)
        Of the kernels.
    n_components : int, default=20
        Most principal components, of columns and of kernels.
    random_state : int, optional
        Seed; None is 0.

    Attributes
    ----------
    slices_ : dict of slice
        Where each part is in the result.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 4)), np.repeat([1, -1, 0], [10, 5, 85])
    >>> features = LearnedFeatures(["columns", "outliers", "distances"])
    >>> features.fit_transform(X, y).shape
    (100, 9)
    >>> features.slices_["outliers"]
    slice(4, 6, None)
    """

    _state_fields: ClassVar[Fields] = {
        "parts": ListOf(Text(choices=_PARTS)),
        "smooth": FLAG,
        "widths": Either(ListOf(POSITIVE), Array("f", (None,))),
        "n_components": SIZE,
        "scaler_": Record(("SmoothScaler", "StandardScaler")),
        "kept_": Array("i", ("kept",), low=0),
        "maps_": DictOf(Text(choices=_PARTS), Record()),
        "slices_": DictOf(Text(choices=_PARTS), Span()),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts do not fit each other."""
        d, scaler, maps = state["n_features_in_"], state["scaler_"], state["maps_"]
        require(scaler.n_features_in_ == d, "scaler_: of other columns")
        require(state["smooth"] == isinstance(scaler, SmoothScaler), "scaler_: another kind")
        require(bool((state["kept_"] < d).all()), "kept_: no such column")
        columns = scaler.n_features_out_ if state["smooth"] else len(state["kept_"])
        widths, given = {"columns": columns}, {}
        for part, each in maps.items():
            require(type(each) in _map_types(part), f"maps_[{part!r}]: another kind")
            given[part] = each.n_features_in_
            widths[part] = len(each.get_feature_names_out())
        wanted = {part: widths.get("kernels") if part == "shapes" else columns for part in maps}
        require(given == wanted, "maps_: of other columns")
        require(set(state["parts"]) <= set(widths), "parts: without their maps")
        ends = np.cumsum([0, *(widths[part] for part in state["parts"])]).tolist()
        spans = [slice(*pair) for pair in pairwise(ends)]
        slices = dict(zip(state["parts"], spans, strict=True))
        require(state["slices_"] == slices, "slices_: of other widths")
        require(state["n_features_out_"] == ends[-1], "n_features_out_: another number")

    def __init__(
        self,
        parts: Sequence[str] = ("columns", "outliers", "components", "shapes", "distances"),
        *,
        smooth: bool = False,
        widths: Sequence[float] = (0.5, 1.0, 2.0),
        n_components: int = 20,
        random_state: int | None = None,
    ):
        self.parts = parts
        self.smooth = smooth
        self.widths = widths
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LearnedFeatures:
        """Learn from all rows; `y` (codes) is needed for "distances" alone."""
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> np.ndarray:
        """Learn from all rows, and give their features, each row's without itself."""
        for part in self.parts:
            check_choice("parts", part, _PARTS)
        if "distances" in self.parts and y is None:
            raise InputError('the part "distances" needs y: +1 normal, -1 anomaly, 0 unlabelled.')
        X = self._check(X, reset=True)
        Z = self._fit_columns(X)
        self.maps_: dict[str, Any] = {}
        blocks = self._blocks(Z, lambda name, rows: self._fit_map(name, rows, y))
        widths = np.cumsum([0, *(block.shape[1] for block in blocks)])
        bounds = zip(self.parts, widths[:-1], widths[1:], strict=True)
        self.slices_ = {part: slice(int(start), int(stop)) for part, start, stop in bounds}
        self.n_features_out_ = int(widths[-1])
        return np.hstack(blocks)

    def transform(self, X: Any) -> np.ndarray:
        """The parts of each row, side by side."""
        check_is_fitted(self)
        Z = self._columns(self._check(X, reset=False))
        return np.hstack(self._blocks(Z, lambda name, rows: self.maps_[name].transform(rows)))

    def _fit_columns(self, X: np.ndarray) -> np.ndarray:
        from sklearn.preprocessing import StandardScaler

        self.scaler_ = (SmoothScaler() if self.smooth else StandardScaler()).fit(X)
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        return self._columns(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        Z = self.scaler_.transform(X)
        return np.asarray(Z if self.smooth else np.clip(Z[:, self.kept_], -_WILD, _WILD))

    def _blocks(self, Z: np.ndarray, apply: Callable[[str, np.ndarray], Any]) -> list[np.ndarray]:
        """The parts; kernels are found once, whether they or their components are wanted."""
        known = {"columns": Z}
        if "kernels" in self.parts or "shapes" in self.parts:
            known["kernels"] = apply("kernels", Z)
        for part in self.parts:
            if part not in known:
                known[part] = apply(part, known["kernels" if part == "shapes" else "columns"])
        return [known[part] for part in self.parts]

    def _fit_map(self, name: str, rows: np.ndarray, y: Any) -> np.ndarray:
        self.maps_[name] = self._map(name, rows.shape)
        return np.asarray(self.maps_[name].fit_transform(rows, y))

    def _map(self, name: str, shape: tuple[int, int]) -> Any:
        from sklearn.decomposition import PCA

        seed = self.random_state or 0
        if name == "kernels":
            return GaussianKernels(self.widths, random_state=seed)
        if name == "outliers":
            return OutlierScores(random_state=seed)
        if name == "distances":
            return NeighbourDistances(unlabelled=False, random_state=seed)
        size = min(self.n_components, *shape)
        solver = "covariance_eigh" if shape[1] <= _FEW_COLUMNS else "randomized"
        return PCA(size, svd_solver=solver, random_state=seed)


def _map_types(part: str) -> tuple[type, ...]:
    """What may learn a part."""
    from sklearn.decomposition import PCA

    known = {
        "kernels": GaussianKernels,
        "outliers": OutlierScores,
        "distances": NeighbourDistances,
        "components": PCA,
        "shapes": PCA,
    }
    return (known[part],) if part in known else ()


def _distances(
    X: np.ndarray, rows: np.ndarray, k: int, leave_out: np.ndarray | None = None
) -> np.ndarray:
    """Distance of each row of X to its k-th neighbour among `rows`.

    Rows marked in `leave_out` are among them: their nearest one, themselves, does not count, and a
    row that is alone of its kind is as far as the others are from it.
    """
    nearest = _nearest(X, rows, k + 1)
    last = nearest.shape[1] - 1
    distance = nearest[:, min(k - 1, last)]
    if leave_out is not None and leave_out.any():
        if last:
            distance = np.where(leave_out, nearest[:, min(k, last)], distance)
        elif not leave_out.all():
            distance = np.where(leave_out, np.median(distance[~leave_out]), distance)
    return np.asarray(distance, dtype=float)


def _nearest(X: np.ndarray, rows: np.ndarray, k: int) -> np.ndarray:
    """The k smallest distances of each row to `rows`, in rising order; fewer if there are fewer."""
    k = min(k, len(rows))

    def smallest(D: np.ndarray, start: int) -> np.ndarray:
        return np.sort(np.partition(D, k - 1, axis=1)[:, :k], axis=1)

    chunks = pairwise_distances_chunked(X, rows, reduce_func=smallest, working_memory=64)
    return np.concatenate(list(chunks))
