r"""Tables as finite numbers: for methods that measure distances, and what labels say of levels.

`OneHotImputer` fills blanks, marks them, and turns categories into yes/no columns.
`SingularVectors` replaces it for wide sparse matrices.

`AnomalyRateEncoder` is for categories with many levels: the evidence of labelled anomalies on each
level, as one number. Of m labelled anomalies k_v have level v, and so has the share f_v of all
rows. If levels carried no information, k_v would be m f_v; with r_v the factor by which anomalies
are more frequent there,

    k_v ~ Poisson(m f_v r_v),        r_v ~ Gamma(s, s), of mean 1,

the posterior mean of r_v is (k_v + s) / (m f_v + s), and its logarithm is the evidence: near 0
for few rows, whatever their labels. s is the value of a grid under which the counts of all levels
are most likely. If no s makes them more likely than uninformative levels, a column has no evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from scipy.special import gammaln
from sklearn.base import BaseEstimator, TransformerMixin

from riskad.core.checks import InputError, check_choice
from riskad.core.labels import ANOMALY, KINDS
from riskad.files.fields import (
    COUNT,
    FLAG,
    POSITIVE,
    SIZE,
    TEXT,
    Array,
    DictOf,
    ListOf,
    Number,
    State,
    Text,
    require,
)
from riskad.rows.table import Levels, Table

FEW_LEVELS = 10
"""Most levels with which detectors give each level of a category a yes/no column."""
_BLANK, _OTHER = "(blank)", "(other)"
# A CSR entry takes 12 bytes, a dense one 8: sparse pays where most cells are 0.
_SPARSE = 0.25  # share of filled cells below which the result is sparse


def _positions(size: str | None = None) -> ListOf:
    """The field of some columns' positions."""
    return ListOf(COUNT, size, below="n_features_in_", rising=True, different=True)


class OneHotImputer(TransformerMixin, BaseEstimator):
    """Rows without blanks: numbers, marks of blanks, and yes/no columns of levels, in this order.

    The median replaces a blank number, and a column of 0 and 1 marks the blanks of each column
    that has some in fit.

    Parameters
    ----------
    max_levels : int, default=50
        Most yes/no columns of a category.
    many : {"other", "codes"}, default="other"
        What becomes of levels that are not so frequent. "other": the most frequent levels get a
        yes/no column each if they have at least 2 to 10 rows (a 200th of all), blank being a level
        as well, and all others share one; a number that never varies leaves its mark only. "codes":
        a category with more levels stays one column of codes, with one code more than all for
        blanks, next to the rarest; one with fewer gets a yes/no column for each level of two rows.
    cyclic : bool, default=True
        Whether a column that comes round becomes its sine and cosine, so that 23:59 is near 0:00.

    Attributes
    ----------
    columns_ : ndarray of int
        For each column of the result, the position of the column that it comes from.
    sparse_ : bool
        Whether the result is a CSR matrix: with "other", if less than a quarter of it is not 0.

    Examples
    --------
    >>> values = np.array([[31.0, 0.0], [np.nan, 1.0], [35.0, 0.0]])
    >>> table = Table(values, ("age", "town"), {1: ["Ulm", "Hof"]})
    >>> imputer = OneHotImputer(many="codes").fit(table)
    >>> imputer.get_feature_names_out().tolist()
    ['age', 'age is blank', 'town=Ulm']
    >>> imputer.transform(values)
    array([[31.,  0.,  1.],
           [33.,  1.,  0.],
           [35.,  0.,  1.]])
    """

    max_levels: Annotated[int, SIZE]
    many: Annotated[str, Text(choices=("other", "codes"))]
    cyclic: Annotated[bool, FLAG]
    n_features_in_: Annotated[int, COUNT]
    numbers_: Annotated[Any, _positions("numbers")]
    periods_: Annotated[Any, DictOf(COUNT, POSITIVE, "periods")]
    fills_: Annotated[np.ndarray, Array("f", ("numbers+periods",))]
    marks_: Annotated[Any, _positions()]
    categories_: Annotated[Any, _positions("categories")]
    codes_: Annotated[Any, ListOf(Array("f", (None,), low=0, rising=True), "categories")]
    blanks_: Annotated[Any, ListOf(FLAG, "categories")]
    others_: Annotated[Any, ListOf(FLAG, "categories")]
    names_: Annotated[Any, ListOf(TEXT)]
    sparse_: Annotated[bool, FLAG]

    @classmethod
    def _check_state(cls, state: State) -> None:
        numbers, periods = state["numbers_"], state["periods_"]
        require(set(periods) <= set(numbers), "periods_: no numbers")
        require(
            not {*numbers, *state["marks_"]} & set(state["categories_"]), "categories_: numbers"
        )
        extra = sum(state["blanks_"]) + sum(state["others_"])
        if state["many"] == "codes":
            require(set(state["marks_"]) <= set(numbers), "marks_: no numbers")
            require(not extra and not state["sparse_"], "many: not of levels")
        width = len(state["fills_"]) + len(state["marks_"]) + sum(map(len, state["codes_"])) + extra
        require(len(state["names_"]) == width, "names_: one for each column")

    def __init__(self, *, max_levels: int = 50, many: str = "other", cyclic: bool = True):
        self.max_levels = max_levels
        self.many = many
        self.cyclic = cyclic

    def fit(self, X: Any, y: Any = None) -> OneHotImputer:
        """Learn from a `Table`, or from a matrix of numbers; y is ignored."""
        other = check_choice("many", self.many, ("other", "codes")) == "other"
        values, self.n_features_in_ = _dense(X), X.shape[1]
        levels = X.levels if isinstance(X, Table) else {}
        periods = X.periods if isinstance(X, Table) and self.cyclic else {}
        self.categories_ = [
            j for j, texts in sorted(levels.items()) if other or len(texts) <= self.max_levels
        ]
        numbers = np.setdiff1d(np.arange(self.n_features_in_), self.categories_)
        # Numbers only: blanks of a category are a level, or one code more.
        cells = values[:, numbers]
        self.marks_ = numbers[np.isnan(cells).any(axis=0)].tolist()
        if other:
            varies = np.fmin.reduce(cells, axis=0) < np.fmax.reduce(cells, axis=0)
            # Parts of a date are blank in the same rows: one mark, of the first, tells it of all of
            # them. As bytes, a thousand columns need no thousand squared comparisons.
            first = {np.isnan(values[:, j]).tobytes(): j for j in reversed(self.marks_)}
            self.marks_ = sorted(first.values())
            numbers = numbers[varies]  # false where all is blank
        self.numbers_ = numbers.tolist()
        self.periods_ = {j: float(periods[j]) for j in self.numbers_ if j in periods}
        Z = self._numbers(values)
        columns = (column[~np.isnan(column)] for column in Z.T)  # quicker than np.nanmedian
        self.fills_ = np.array([np.median(filled) if len(filled) else 0.0 for filled in columns])
        for place, j in enumerate(self._sources):
            if j in levels:  # a category that stays one column of codes
                # Codes go from frequent to rare levels, and blanks come after the rarest.
                self.fills_[place] = len(levels[j])
        self.codes_, self.blanks_, self.others_ = [], [], []
        for j in self.categories_:
            codes, blanks, others = self._frequent(values[:, j], len(levels[j]))
            self.codes_.append(codes)
            self.blanks_.append(blanks)
            self.others_.append(others)
        self.names_ = self._names(X)
        # Hardly a row has a mark, and those of columns that vary are not counted.
        lone_marks = set(self.marks_).difference(self.numbers_)
        filled = len(self.fills_) + len(self.categories_) + len(lone_marks)
        self.sparse_ = other and filled < _SPARSE * len(self.names_)
        return self

    def _frequent(self, column: np.ndarray, n_levels: int) -> tuple[np.ndarray, bool, bool]:
        """Codes that get a column, whether blanks do, and whether all others share one."""
        blank = np.isnan(column)
        counts = np.bincount(column[~blank].astype(int), minlength=n_levels)
        if self.many == "codes":
            # A level of a single row cannot be compared with anything.
            return np.flatnonzero(counts >= 2).astype(float), False, False
        enough = min(max(len(column) // 200, 2), 10)
        counts = np.append(counts, blank.sum())
        # Stable: of equally frequent levels the earlier code stays, whatever the machine.
        often = np.argsort(-counts, kind="stable")[: self.max_levels]
        # Sorted, since `level_places` searches among rising codes.
        often = np.sort(often[counts[often] >= enough])
        blanks, others = n_levels in often, bool(counts[often].sum() < len(column))
        return often[often < n_levels].astype(float), blanks, others

    def _names(self, X: Any) -> list[str]:
        titles = X.names if isinstance(X, Table) else [f"x{j}" for j in range(X.shape[1])]
        names = []
        for j in self.numbers_:
            endings = (" (sine)", " (cosine)") if j in self.periods_ else ("",)
            names += [titles[j] + ending for ending in endings]
        names += [f"{titles[j]} is blank" for j in self.marks_]
        for j, codes, blanks, others in self._levels:
            texts = [X.levels[j][int(code)] for code in codes]
            texts += [_BLANK] * blanks + [_OTHER] * others
            names += [f"{titles[j]}={text}" for text in texts]
        return names

    @property
    def _levels(self) -> list[tuple[int, np.ndarray, bool, bool]]:
        parts = self.categories_, self.codes_, self.blanks_, self.others_
        return list(zip(*parts, strict=True))

    @property
    def _sources(self) -> list[int]:
        """The column of each number: twice that of one that comes round."""
        sources: list[int] = []
        for j in self.numbers_:
            sources += [j] * (1 + (j in self.periods_))
        return sources

    @property
    def columns_(self) -> np.ndarray:
        widths = [len(codes) + blanks + others for _, codes, blanks, others in self._levels]
        levels = np.repeat(np.array(self.categories_, dtype=int), widths)
        return np.concatenate([np.array([*self._sources, *self.marks_], dtype=int), levels])

    @property
    def n_features_out_(self) -> int:
        return len(self.names_)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return "age", "age is blank", "country=FR", "country=(other)"."""
        return np.array(self.names_, dtype=object)

    def transform(self, X: Any) -> Any:
        """Return the rows of a `Table`, or of a matrix with the same columns, without blanks."""
        values = _dense(X)
        if values.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {values.shape[1]} columns, and the encoder was fitted to "
                f"{self.n_features_in_}. Give the same columns in the same order."
            )
        Z = self._numbers(values)
        # Sine and cosine are filled by medians of their own.
        np.copyto(Z, self.fills_, where=np.isnan(Z))
        blocks = [Z, np.isnan(values[:, self.marks_]).astype(float)]
        if self.categories_:
            blocks.append(self._yes_or_no(values))
        if not self.sparse_:
            return np.hstack(blocks)
        return sparse.hstack(list(map(sparse.csr_matrix, blocks)), format="csr", dtype=np.float64)

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        """The columns of numbers, those that come round as sine and cosine, with their blanks."""
        sources = self._sources
        Z = values[:, sources]
        for j, period in self.periods_.items():
            angle = values[:, j] * (2 * np.pi / period)
            place = sources.index(j)
            Z[:, place], Z[:, place + 1] = np.sin(angle), np.cos(angle)
        return Z

    def _yes_or_no(self, values: np.ndarray) -> Any:
        """The yes/no columns of all categories; a row has at most one of each."""
        places = np.empty((len(values), len(self.categories_)), dtype=np.int64)
        width = 0
        for i, (j, codes, blanks, others) in enumerate(self._levels):
            rest = len(codes) + blanks if others else -1
            place = level_places(values[:, j], codes, rest)
            if blanks:
                place[np.isnan(values[:, j])] = len(codes)
            places[:, i] = np.where(place < 0, -1, width + place)
            width += len(codes) + blanks + others
        # A row of a rare level, where levels share no column, has no yes at all.
        yes = places >= 0
        if self.sparse_:
            ends = np.concatenate([[0], np.cumsum(yes.sum(axis=1))])
            return sparse.csr_matrix((np.ones(ends[-1]), places[yes], ends), (len(yes), width))
        columns = np.zeros((len(values), width))
        columns[np.nonzero(yes)[0], places[yes]] = 1.0
        return columns

    def onnx_rows(self, graph: Any, rows: str) -> str:
        """Return the same columns in an ONNX graph (`riskad.app.onnx.Graph`).

        `rows` is a node of doubles, with codes, and NaN for blanks.
        """
        blocks = []
        if self.numbers_:
            numbers = graph.node("Gather", rows, np.array(self._sources), axis=1)
            blank = graph.node("IsNaN", numbers)
            if self.periods_:
                turns = np.array([2 * np.pi / self.periods_.get(j, np.inf) for j in self._sources])
                # Of a column that comes round the sine stands first, and its cosine beside it.
                sine = np.append(True, np.diff(self._sources) > 0)
                angles = graph.node("Mul", numbers, turns)
                waves = graph.node("Sin", angles), graph.node("Cos", angles)
                circle = graph.node("Where", sine, *waves)
                numbers = graph.node("Where", turns > 0, circle, numbers)
            blocks.append(graph.node("Where", blank, self.fills_, numbers))
        if self.marks_:
            marked = graph.node("Gather", rows, np.array(self.marks_), axis=1)
            blocks.append(graph.cast(graph.node("IsNaN", marked), np.float64))
        for j, codes, blanks, others in self._levels:
            column = graph.node("Gather", rows, np.array([j]), axis=1)
            blank = graph.node("IsNaN", column)
            yes = [graph.cast(graph.node("Equal", column, codes), np.float64)] if len(codes) else []
            yes += [graph.cast(blank, np.float64)] if blanks else []
            if others:
                # Ones of the right shape: ONNX has no other way to take it from the column.
                rest = graph.node("Where", blank, np.ones(1), np.ones(1))
                for each in yes.copy():
                    total = graph.node("ReduceSum", each, np.array([1]), keepdims=1)
                    rest = graph.node("Sub", rest, total)
                yes.append(rest)
            blocks += yes
        return str(blocks[0] if len(blocks) == 1 else graph.node("Concat", *blocks, axis=1))


def _dense(X: Any) -> np.ndarray:
    values = X.values if isinstance(X, Table) else X
    return np.asarray(values.toarray() if sparse.issparse(values) else values)


def level_places(column: np.ndarray, codes: np.ndarray, rest: int) -> np.ndarray:
    """The position of each cell among rising codes, `rest` where it is none of them."""
    if not len(codes):
        return np.full(len(column), rest)
    place = np.searchsorted(codes, column)
    return np.where(codes[np.minimum(place, len(codes) - 1)] == column, place, rest)


@dataclass(frozen=True, eq=False)
class SingularVectors:
    """A wide sparse matrix as a few dense columns, by its leading singular vectors."""

    components: Annotated[np.ndarray, Array("f", ("components", "columns"))]

    @classmethod
    def of(cls, matrix: Any, size: int, seed: int) -> Self:
        """With that many columns, learned from the rows of a matrix."""
        from sklearn.decomposition import TruncatedSVD

        return cls(TruncatedSVD(size, random_state=seed).fit(matrix).components_)

    @property
    def n_features_in_(self) -> int:
        return int(self.components.shape[1])

    @property
    def n_features_out_(self) -> int:
        return len(self.components)

    def transform(self, X: Any) -> np.ndarray:
        return np.asarray(X @ self.components.T)

    def onnx_rows(self, graph: Any, rows: str) -> str:
        return str(graph.node("MatMul", rows, self.components.T))


# Methods that measure distances take time for every column: of over 1,000, as in matrices of
# words, 100 directions take their place.
_WIDE_SPARSE, _SINGULAR_VECTORS = 1_000, 100


def fit_encoder(matrix: Any, levels: Levels, seed: int) -> OneHotImputer | SingularVectors:
    """The encoder of a detector's rows; a sparse matrix of over 1,000 columns is reduced.

    As yes/no columns the levels of a category with more than ten would outnumber all other columns,
    so they stay codes.
    """
    # A dense table of as many columns is taken as it is: its columns mean something one by one.
    if sparse.issparse(matrix) and matrix.shape[1] > _WIDE_SPARSE:
        size = min(_SINGULAR_VECTORS, *(side - 1 for side in matrix.shape))
        return SingularVectors.of(matrix, size, seed)
    names = tuple(f"x{j}" for j in range(matrix.shape[1]))
    encoder = OneHotImputer(max_levels=FEW_LEVELS, many="codes", cyclic=False)
    return encoder.fit(Table(matrix, names, levels))


# --- evidence of labelled anomalies on levels ---------------------------------------------

_FOLDS = 5  # each fold's evidence comes from four fifths of the labels
# s: at 0.1 one labelled anomaly changes a level's evidence much, at 30 hardly.
_PRIORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_CLEARLY = 2.0  # required gain in log likelihood, since one more number is chosen
_FEWEST_ANOMALIES = 5


@dataclass(frozen=True)
class AnomalyRateEncoder:
    """The evidence of labelled anomalies on the levels of categories, in further columns.

    Only categories of more than ten levels have it: detectors find what labels say of fewer levels
    from rows. A row must not see its own label: at training rows the evidence is cross-fitted. Each
    row is in one of five folds, and its evidence comes from labels in the other four. This includes
    unlabelled rows, which could see all labels without harm to themselves: otherwise labelled rows
    would have values that no unlabelled row has, and a tree would learn which rows are labelled.

    `places` are the columns that have evidence, whose codes are 0, 1, 2 ...; each has its f_v
    (`shares`), its s (`priors`) and the evidence of its levels, that of NaN last.

    >>> shop = np.repeat(np.arange(20.0), 10)[:, None]
    >>> codes = np.zeros(200, dtype=int)
    >>> codes[[0, 1, 2, 3, 4, 5, 30, 31]] = -1  # six of the anomalies at shop 0, two at shop 3
    >>> encoder = AnomalyRateEncoder.learn(shop, codes, {0: [f"shop {i}" for i in range(20)]})
    >>> encoder.transform(np.array([[0.0], [1.0], [3.0], [np.nan]])).round(2)
    array([[ 0.  ,  2.5 ],
           [ 1.  , -1.61],
           [ 3.  ,  1.44],
           [  nan,  0.  ]])
    """

    places: Annotated[list[int], ListOf(COUNT, "columns")] = field(default_factory=list)
    shares: Annotated[list[np.ndarray], ListOf(Array("f", (None,), low=0, high=1), "columns")] = (
        field(default_factory=list)
    )
    priors: Annotated[list[float], ListOf(Number(0, open=True), "columns")] = field(
        default_factory=list
    )
    evidence: Annotated[list[np.ndarray], ListOf(Array("f", (None,)), "columns")] = field(
        default_factory=list
    )

    @classmethod
    def _check_state(cls, state: State) -> None:
        sizes = zip(state["shares"], state["evidence"], strict=True)
        require(all(len(f) == len(e) >= 1 for f, e in sizes), "evidence: of other levels")

    @classmethod
    def learn(
        cls, matrix: Any, codes: np.ndarray, levels: Levels, weight: np.ndarray | None = None
    ) -> AnomalyRateEncoder:
        """Learn the evidence of each column of codes in which it is clear."""
        anomalies = codes == ANOMALY
        encoder = cls()
        # With fewer, one anomaly would decide what a whole level looks like.
        if anomalies.sum() < _FEWEST_ANOMALIES:
            return encoder
        for place, texts in sorted(levels.items()):
            if len(texts) <= FEW_LEVELS:
                continue
            level = _level(matrix[:, place], len(texts))
            count = _counts(level, len(texts) + 1, weight, np.full(len(level), True))
            # Shares of all rows, labelled or not: they say how many anomalies a level would have by
            # chance.
            shares, k = count / count.sum(), _counts(level, len(count), weight, anomalies)
            prior = _likeliest_prior(k, k.sum() * shares)
            if prior is not None:
                encoder.places.append(place)
                encoder.shares.append(shares)
                encoder.priors.append(prior)
                encoder.evidence.append(_log_ratio(k, shares, prior))
        return encoder

    def refit(self, matrix: Any, codes: np.ndarray) -> AnomalyRateEncoder:
        """Return the evidence of other labels, with the same columns, shares and priors."""
        evidence = []
        for place, shares, prior in zip(self.places, self.shares, self.priors, strict=True):
            level = _level(matrix[:, place], len(shares) - 1)
            k = _counts(level, len(shares), None, codes == ANOMALY)
            evidence.append(_log_ratio(k, shares, prior))
        return replace(self, evidence=evidence)

    def transform(self, matrix: Any) -> Any:
        """Return new rows with their evidence in further columns."""
        if not self.places:
            return matrix
        columns = [
            evidence[_level(matrix[:, place], len(evidence) - 1)]
            for place, evidence in zip(self.places, self.evidence, strict=True)
        ]
        return np.column_stack([matrix, *columns])

    def cross_fit_transform(
        self,
        matrix: Any,
        codes: np.ndarray,
        seed: int,
        weight: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> Any:
        """Return the training rows with cross-fitted evidence; rows of a group share a fold."""
        if not self.places:
            return matrix
        fold = _folds(codes, seed)
        if groups is not None:
            _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
            # The fold of a group is that of its first row.
            fold = fold[first][numbers]
        columns = []
        for place, shares, prior in zip(self.places, self.shares, self.priors, strict=True):
            level = _level(matrix[:, place], len(shares) - 1)
            column = np.empty(len(level))
            for each in range(_FOLDS):
                # Without the labels of its own fold: a row must not see its own.
                others = (codes == ANOMALY) & (fold != each)
                k = _counts(level, len(shares), weight, others)
                members = fold == each
                column[members] = _log_ratio(k, shares, prior)[level[members]]
            columns.append(column)
        return np.column_stack([matrix, *columns])

    def onnx_columns(self, graph: Any, rows: str) -> list[str]:
        """Return the columns that `transform` appends, in an ONNX graph."""
        columns = []
        for place, evidence in zip(self.places, self.evidence, strict=True):
            codes = graph.node("Gather", rows, np.array([place]), axis=1)
            blank = np.array(float(len(evidence) - 1))
            level = graph.node("Where", graph.node("IsNaN", codes), blank, codes)
            columns.append(graph.node("Gather", evidence, graph.cast(level, np.int64)))
        return columns


def _level(column: np.ndarray, n_levels: int) -> np.ndarray:
    """Codes as positions of levels; NaN, and a code of no level, is the one after all others."""
    return np.where((column >= 0) & (column < n_levels), column, n_levels).astype(np.int64)


def _counts(
    level: np.ndarray, size: int, weight: np.ndarray | None, among: np.ndarray
) -> np.ndarray:
    """Rows, or their weight, of each level."""
    weight = None if weight is None else weight[among]
    return np.bincount(level[among], weight, minlength=size).astype(float)


def _log_ratio(k: np.ndarray, shares: np.ndarray, prior: float) -> np.ndarray:
    """The evidence, log (k_v + s) / (m f_v + s)."""
    return np.asarray(np.log((k + prior) / (k.sum() * shares + prior)))


def _likeliest_prior(k: np.ndarray, expected: np.ndarray) -> float | None:
    """The s under which the counts are most likely; None if levels seem uninformative."""
    present = expected > 0
    k, mu = k[present], expected[present]
    nothing = float((k * np.log(mu) - mu).sum())

    def gain(s: float) -> float:
        # The logarithm of the negative binomial probability of k, less what does not depend on s.
        spread = gammaln(k + s) - gammaln(s) + s * np.log(s / (s + mu)) - k * np.log(s + mu)
        return float((spread + k * np.log(mu)).sum()) - nothing

    best = max(_PRIORS, key=gain)
    return best if gain(best) > _CLEARLY else None


def _folds(codes: np.ndarray, seed: int) -> np.ndarray:
    """A fold for each row; each has its share of every kind."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(codes), dtype=np.int64)
    for kind in KINDS:
        places = rng.permutation(np.flatnonzero(codes == kind))
        fold[places] = np.arange(len(places)) % _FOLDS
    return fold
