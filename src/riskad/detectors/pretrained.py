r"""PretrainedRAD: a network trained on other tables to detect anomalies from a few labels.

`fit` trains nothing. The network was trained once, on millions of tables
(`experiments/pretraining`). It reads labelled rows and contaminated unlabelled rows, the *context*,
and learned to detect anomalies from them. Its training loss was the logistic risk of unlabelled
rows with both classes weighted equally, so its output for a row x is near the optimum for tables
like those,

    s(x) = log p(x | anomaly, context) - log p(x | normal, context).

`riskad.detectors.table_network` describes how it reads a table. The weights, `tables-3`, come from
a training on synthetic tables that went on with three of four tables drawn from 301 real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Annotated, Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.base import clone

from riskad.core.checks import InputError, check_in_interval, required
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.detectors.base import Detector, RandomState, check_whole
from riskad.detectors.description import DetectorTags, settings_in_words
from riskad.detectors.features.maps import ColumnScale, PrincipalComponents, beside
from riskad.detectors.table_network import WEIGHTS, Memory, TableNetwork
from riskad.detectors.table_network_graph import table_network_scores
from riskad.files.fields import COUNT, SHARE, Array, Maybe, Record, State, Text, require
from riskad.rows.arrays import GraphNumbers, to_dense
from riskad.rows.engine import Threads, one_blas_thread, usable_cpus

READS_COLUMNS = 100
"""Most columns that the network reads directly; for more it gets the principal components."""

_COMPONENTS = 24
_MOST_LABELLED = {NORMAL: 400, ANOMALY: 200}  # rows of the context
_STATES = {UNLABELLED: 0, NORMAL: 1, ANOMALY: 2}
_BLOCK = 256  # rows scored at a time; more or fewer take longer
_MOST_BYTES = 128 << 20  # largest memory that is kept between calls


class PretrainedRAD(Detector):
    r"""Semi-supervised anomaly detection by a network that was trained on other tables.

    `fit` keeps labelled rows and a sample of the unlabelled rows. To score a row, the network reads
    them (see `riskad.detectors.table_network`). Columns are standardised and large values are
    compressed by sign(z) log(1 + |z|). Blanks (NaN) are read as blanks. More than 100 columns are
    replaced by their 24 leading principal components.

    The network was trained on tables whose columns included outlier scores, and works best if you
    add them: `make_pipeline(LearnedFeatures(("columns", "outliers"), smooth=True),
    PretrainedRAD())`.

    Parameters
    ----------
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows. It affects only the
        threshold.
    unlabelled : int, default=300
        Number of unlabelled rows that the network reads. Time grows with it.
    device : str, optional
        Where torch computes the network, such as "cuda"; torch must be installed. None computes it
        on processors, without torch. Scores agree to about 1e-5. Not stored in model files.
    random_state : int, RandomState or None, default=0
        Seed for sampling the rows to read.

    Attributes
    ----------
    context_ : ndarray of float32
        The rows that the network reads: at most 400 normal rows, 200 anomalies, and `unlabelled`
        of the unlabelled rows.
    states_ : ndarray
        Their labels: 0 none, 1 normal, 2 anomaly.
    marked_ : ndarray of int
        Those of the non-constant columns whose blanks are informative: more frequent in labelled
        anomalies than in labelled normal rows, or the reverse. For each, the network reads one more
        column, which marks the blanks.
    offset_ : float
        Threshold on `score_samples`, log(pi_n / pi_p): where both classes are equally likely.
    weights_ : str
        Name of the weights of the network, which are not part of a model file.
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (450, 2)), rng.normal(0, 3, (50, 2))])
    >>> y = np.zeros(500, dtype=int)           # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> PretrainedRAD().fit(X, y).predict([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])
    array([ 1, -1, -1])
    """

    _detector_tags = DetectorTags(slow_to_score=True, needs_rows=True)
    # Even in NumPy, single precision differs from double by 2e-5 to 3e-4, row by row.
    _graph_tolerance = 3e-4

    prior: Annotated[float, SHARE]
    unlabelled: Annotated[int, COUNT]
    kept_: Annotated[np.ndarray, Array("i", ("kept",), low=0, below="n_features_in_")]
    scale_: Annotated[Any, Record(("ColumnScale",), {"n_features_in_": "kept"})]
    components_: Annotated[PrincipalComponents | None, Maybe(Record(("PrincipalComponents",)))]
    marked_: Annotated[np.ndarray, Array("i", ("marked",), low=0, below="kept")]
    context_: Annotated[np.ndarray, Array("f", ("read", "seen"), gaps=True, nonempty=True)]
    states_: Annotated[np.ndarray, Array("i", ("read",), 0, 2)]
    weights_: Annotated[str, Text(choices=WEIGHTS)]

    @classmethod
    def _check_state(cls, state: State) -> None:
        columns, components = state["kept_"], state["components_"]
        width = len(columns) + len(state["marked_"])
        if components is not None:
            require(components.shape[0] == len(columns), "components_: of other columns")
            width = components.shape[1]
        require(state["context_"].shape[1] == width, "context_: of other columns")

    def _clone_for_fold(self) -> Self:
        return clone(self).set_params(unlabelled=self.unlabelled // 2)

    def _kept_rows(self) -> int:
        return len(self.context_)

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"rows_read": len(self.context_)}

    def _describe_in_words(self) -> list[str]:
        return [
            settings_in_words("network trained on real and synthetic tables", self),
            f"reads {len(self.context_):,} of the training rows",
        ]

    def __init__(
        self,
        *,
        prior: float = 0.8,
        unlabelled: int = 300,
        device: str | None = None,
        random_state: RandomState = 0,
    ):
        self.prior = prior
        self.unlabelled = unlabelled
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> PretrainedRAD:
        """Keep the rows of X and their labels y for the network to read.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers and blanks (NaN).
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        """
        X, codes, _ = self._check_training(X, y)
        pi_p = check_in_interval("prior", self.prior, 0, 1)
        check_whole("unlabelled", self.unlabelled, least=0)
        if not (codes != UNLABELLED).any() or len(np.unique(codes)) < 2:
            raise InputError(
                "PretrainedRAD tells kinds of row apart, and needs labels and rows that differ in "
                f"them: {count_labels(codes)}. Label some rows with -1 (anomaly) or +1 (normal)."
            )
        Z = self._fit_columns(X, codes)
        rng = np.random.default_rng(self._seed)
        # The order of kinds is part of what a seed draws.
        sizes = {**_MOST_LABELLED, UNLABELLED: self.unlabelled}
        kinds = ((np.flatnonzero(codes == kind), most) for kind, most in sizes.items())
        places = np.concatenate([rng.permutation(rows)[:most] for rows, most in kinds])
        # As the network was trained; doubles would be rounded at each call.
        self.context_ = Z[places].astype(np.float32)
        self.states_ = np.array([_STATES[code] for code in codes[places]])
        self.weights_ = WEIGHTS[-1]
        # The network weighs both classes equally: the prior odds move the threshold.
        self.offset_ = float(np.log((1 - pi_p) / pi_p))
        return self

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        X = to_dense(super()._check_rows(X, reset))
        self._check_finite(X, missing=True)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _fit_columns(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        # Columns that are not constant: cells differ in value, or some are blank. A column that is
        # blank throughout has low = inf and high = -inf, and does not vary.
        blank = np.isnan(X)
        low = np.where(blank, np.inf, X).min(axis=0)
        high = np.where(blank, -np.inf, X).max(axis=0)
        varies = (low < high) | (blank.any(axis=0) & ~blank.all(axis=0))
        self.kept_ = np.flatnonzero(varies)
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        self.scale_ = ColumnScale.of(X[:, self.kept_])
        self.components_ = None
        self.marked_ = _informative_blanks(np.isnan(X[:, self.kept_]), codes)
        if len(self.kept_) > READS_COLUMNS:
            from sklearn.decomposition import PCA

            # Components mix all columns: a mark beside them would stand for none of them.
            self.marked_ = self.marked_[:0]
            # PCA takes no blanks: the mean, which is 0 now, replaces them.
            Z = np.nan_to_num(_signed_log(self.scale_.transform(X[:, self.kept_])))
            size = min(_COMPONENTS, len(X))
            pca = PCA(size, svd_solver="randomized", random_state=self._seed).fit(Z)
            # Whitened, so that components look like the columns of a table.
            spread = np.maximum(pca.explained_variance_**0.5, np.finfo(float).eps)
            self.components_ = PrincipalComponents(pca.mean_, pca.components_ / spread[:, None])
        return self._columns(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        Z = _signed_log(self.scale_.transform(X[:, self.kept_]))
        if self.components_ is None:
            # Marks are -1 and 1, so that their mean is near 0 as that of other columns.
            marks = _signed_log(np.isnan(Z[:, self.marked_]) * 2.0 - 1.0)
            return np.hstack([Z, marks]) if len(self.marked_) else Z
        return _signed_log(self.components_.transform(np.nan_to_num(Z)))

    def _scores(self, X: np.ndarray) -> np.ndarray:
        """Cores work on blocks of rows: threads inside products of this size gain little."""
        read = _ContextMemory.of(self)
        if self.device is not None:
            return -read.on(self.device).scores(self._columns(X).astype(np.float32)).astype(float)

        def score(start: int, _: int = 0) -> np.ndarray:
            block = X[start : start + _BLOCK]
            return read.network.score(self._columns(block).astype(np.float32), read.memory)

        starts = range(0, len(X), _BLOCK)
        with one_blas_thread():
            if len(starts) == 1:
                return -score(0).astype(float)
            parts = Threads(min(len(starts), usable_cpus())).map(score, starts)
            return -np.concatenate(list(parts)).astype(float)

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        X = GraphNumbers(graph, rows)[:, self.kept_]
        Z = _signed_log((X - self.scale_.mean) / self.scale_.scale).node
        if self.components_ is not None:
            filled = graph.node("Where", graph.node("IsNaN", Z), np.array(0.0), Z)
            Z = _signed_log(GraphNumbers(graph, self.components_.onnx_rows(graph, filled))).node
        elif len(self.marked_):
            blank = graph.node("IsNaN", graph.node("Gather", Z, self.marked_, axis=1))
            mark = np.array(_signed_log(np.ones(())))
            Z = beside(graph, [Z, graph.node("Where", blank, mark, -mark)])
        Z = graph.cast(Z, np.float32)
        network = TableNetwork.load(self.weights_)
        scores = table_network_scores(graph, Z, network, self.context_, self.states_)
        return graph.node("Neg", scores)

    def _trial_rows(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        X = np.zeros((n_rows, self.n_features_in_))
        z = rng.standard_normal((n_rows, len(self.kept_)))
        X[:, self.kept_] = self.scale_.mean + self.scale_.scale * z
        return X


@dataclass(frozen=True)
class _ContextMemory:
    """What the network has read, with the objects it was made from: never changed in place."""

    network: TableNetwork
    context: np.ndarray
    states: np.ndarray
    memory: Memory
    devices: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, detector: PretrainedRAD) -> _ContextMemory:
        """The memory of a detector, read if necessary; large ones are read at each call."""
        network = TableNetwork.load(detector.weights_)
        context, states = detector.context_, detector.states_
        with _lock:
            memo = _memories.get(detector)
        if memo and memo.network is network and memo.context is context and memo.states is states:
            return memo
        read = cls(network, context, states, network.read(context, states))
        if read.memory.bytes <= _MOST_BYTES:
            with _lock:
                _memories[detector] = read
        return read

    def on(self, device: str) -> Any:
        """The network and its memory on a device of torch, where they stay."""
        if device not in self.devices:
            with required(f"device={device!r} needs torch: pip install 'riskad[deep]'."):
                from riskad.detectors.table_network_torch import DeviceNetwork

            self.devices[device] = DeviceNetwork(self.network, self.memory, device)
        return self.devices[device]


# Reading a context takes as long as scoring as many rows. The memory is not part of a detector's
# files, copies or pickles, and is freed with the detector. Two threads that start together may
# both read.
_memories: WeakKeyDictionary[PretrainedRAD, _ContextMemory] = WeakKeyDictionary()
_lock = Lock()


def labelled_rows_read(codes: np.ndarray) -> int:
    """Number of labelled rows that the network reads.

    >>> labelled_rows_read(np.repeat([1, -1, 0], [3000, 50, 9000]))
    450
    """
    return sum(min(int((codes == kind).sum()), most) for kind, most in _MOST_LABELLED.items())


def _informative_blanks(blank: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Columns whose blanks are more frequent in labelled anomalies or in labelled normal rows.

    The two shares must differ by more than two standard errors of their difference.
    """
    kinds = [blank[codes == kind] for kind in (ANOMALY, NORMAL)]
    if not blank.any() or not all(map(len, kinds)):
        return np.array([], int)
    share = np.vstack(kinds).mean(axis=0)
    # The standard error if both kinds have the same share.
    error = np.sqrt(share * (1 - share) * sum(1 / len(kind) for kind in kinds))
    apart = np.abs(kinds[0].mean(axis=0) - kinds[1].mean(axis=0))
    return np.flatnonzero(apart > 2 * error)


def _signed_log(z: Any) -> Any:
    """sign(z) log(1 + |z|), which brings far values closer on both sides."""
    return np.sign(z) * np.log1p(np.abs(z))
