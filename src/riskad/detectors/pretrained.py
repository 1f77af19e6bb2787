r"""PretrainedRAD: a network that learned on synthetic tables what a few labels tell of other rows.

Nothing is trained in `fit`. The network was trained once, on two million tables made at random
(`benchmarks/pretrain.py`), to tell anomalies from labelled rows and contaminated unlabelled rows
that it gets to read: the *context*. Its loss was the logistic risk of unlabelled rows with both
classes weighted alike, so that its output for a row x is near the best there is under such tables,

    s(x) = log p(x | anomaly, context) - log p(x | normal, context).

A table is a grid of cells. A cell with the value v begins as a linear function of (v, |v|, v^2);
each row has one cell more, for its label: normal, anomaly or none. Each of five layers lets the
cells of a row attend to each other, then the cells of a column to those of the context, and then
changes each cell on its own. s is read from a row's last cell. So neither the order of rows nor
that of columns matters, and rows outside the context do not know of each other.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.detectors.description import say_settings
from riskad.rows.linear import sparse_to_dense
from riskad.storage.fields import (
    COUNT,
    SEED,
    SHARE,
    Array,
    Fields,
    Maybe,
    Record,
    State,
    Text,
    require,
)

__all__ = ["MOST_COLUMNS", "PretrainedRAD", "labelled_rows_read"]

MOST_COLUMNS = 40
"""Columns that the network reads as they are; of more it gets the principal components."""

_WEIGHTS = "tables-2"  # a model remembers with which it was made
_HEADS = 3
_COMPONENTS = 24
_MOST_NORMAL, _MOST_ANOMALY = 400, 200  # rows of the context
_STATES = {UNLABELLED: 0, NORMAL: 1, ANOMALY: 2}
_BLOCK = 500  # rows that are scored at a time
_EPSILON = 1e-5


class PretrainedRAD(Detector):
    r"""Semi-supervised anomaly detection by a network that was trained on synthetic tables.

    `fit` keeps labelled rows and a sample of the unlabelled rows; to score a row the network reads
    them (`riskad.detectors.pretrained` says how). Columns are standardised and large values drawn
    in, sign(z) log(1 + |z|); of more than 40 the 24 leading principal components are taken.

    The network has seen tables of up to 42 columns with a column of outlier scores among them, and
    does best with the like: `make_pipeline(LearnedFeatures(("columns", "outliers"), smooth=True),
    PretrainedRAD())`.

    Parameters
    ----------
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows; it sets the threshold
        alone.
    unlabelled : int, default=300
        Unlabelled rows that the network reads. Time grows with it.
    random_state : int, optional
        Seed of the sample of rows to read. None is 0.

    Attributes
    ----------
    context_ : ndarray of float32
        The rows that the network reads: at most 400 normals, 200 anomalies, and `unlabelled`
        of the unlabelled rows.
    states_ : ndarray
        Their labels: 0 none, 1 normal, 2 anomaly.
    offset_ : float
        Threshold on `score_samples`, log(pi_n / pi_p): where both classes are equally likely.
    weights_ : str
        Which training of the network.
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

    slow_to_score: ClassVar[bool] = True

    _state_fields: ClassVar[Fields] = {
        "prior": SHARE,
        "unlabelled": COUNT,
        "random_state": SEED,
        "kept_": Array("i", ("kept",), low=0),
        "scaler_": Record(("StandardScaler",)),
        "components_": Maybe(Record(("PCA",))),
        "context_": Array("f", ("read", "seen")),
        "states_": Array("i", ("read",), 0, 2),
        "weights_": Text(choices=(_WEIGHTS,)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        kept, scaler, components = (state[n] for n in ("kept_", "scaler_", "components_"))
        require(bool((kept < state["n_features_in_"]).all()), "kept_: no such column")
        require(scaler.n_features_in_ == len(kept), "scaler_: of other columns")
        seen = len(kept)
        if components is not None:
            require(components.n_features_in_ == seen, "components_: of other columns")
            seen = components.n_components_
        require(state["context_"].shape[1] == seen, "context_: of other columns")
        require(len(state["context_"]) > 0, "context_: no rows")

    def needs_rows(self) -> bool:
        """Return True: the network reads training rows whenever it scores others."""
        return True

    def kept_rows(self) -> int:
        """Return the number of rows that the network reads."""
        return len(self.context_)

    def describe(self) -> dict[str, Any]:
        """Return the threshold and the number of rows that the network reads."""
        return super().describe() | {"rows_read": len(self.context_)}

    def describe_in_words(self) -> list[str]:
        """Return what scores rows, and what it reads."""
        return [
            say_settings("network trained on synthetic tables", self),
            f"reads {len(self.context_):,} of the training rows",
        ]

    def __init__(
        self, *, prior: float = 0.8, unlabelled: int = 300, random_state: int | None = None
    ):
        self.prior = prior
        self.unlabelled = unlabelled
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> PretrainedRAD:
        """Keep the rows of X with labels y that the network is to read.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers without gaps.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.

        Returns
        -------
        PretrainedRAD
            Itself, fitted.
        """
        X, codes, _ = self._check_training(X, y)
        pi_p = check_in_interval("prior", self.prior, 0, 1)
        if not isinstance(self.unlabelled, (int, np.integer)) or self.unlabelled < 0:
            raise InputError(f"unlabelled must be a whole number >= 0, got {self.unlabelled!r}.")
        if not (codes != UNLABELLED).any() or len(np.unique(codes)) < 2:
            raise InputError(
                "PretrainedRAD tells kinds of row apart, and needs labels and rows that differ in "
                f"them: {count_labels(codes)}. Label some rows with -1 (anomaly) or +1 (normal)."
            )
        Z = self._fit_columns(X)
        places = self._places(codes)
        self.context_ = Z[places].astype(np.float32)
        self.states_ = np.array([_STATES[code] for code in codes[places]])
        self.weights_ = _WEIGHTS
        self.offset_ = float(np.log((1 - pi_p) / pi_p))
        return self

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        X = sparse_to_dense(super()._check_rows(X, reset))
        if not np.isfinite(X).all():
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        return X

    def _places(self, codes: np.ndarray) -> np.ndarray:
        """Places of the rows of the context."""
        rng = np.random.default_rng(self.random_state or 0)
        sizes = {NORMAL: _MOST_NORMAL, ANOMALY: _MOST_ANOMALY, UNLABELLED: self.unlabelled}
        kinds = ((np.flatnonzero(codes == kind), most) for kind, most in sizes.items())
        return np.concatenate([rng.permutation(places)[:most] for places, most in kinds])

    def _fit_columns(self, X: np.ndarray) -> np.ndarray:
        self.kept_ = np.flatnonzero(X.min(axis=0) < X.max(axis=0))
        if not len(self.kept_):
            raise InputError("every column holds a single value, and no row can be told apart.")
        self.scaler_ = StandardScaler().fit(X[:, self.kept_])
        self.components_: PCA | None = None
        if len(self.kept_) > MOST_COLUMNS:
            Z = _signed_log(self.scaler_.transform(X[:, self.kept_]))
            size = min(_COMPONENTS, len(X))
            seed = self.random_state or 0
            # Whitened, as the columns of a table would be.
            self.components_ = PCA(
                size, whiten=True, svd_solver="randomized", random_state=seed
            ).fit(Z)
        return self._columns(X)

    def _columns(self, X: np.ndarray) -> np.ndarray:
        Z = _signed_log(self.scaler_.transform(X[:, self.kept_]))
        return Z if self.components_ is None else _signed_log(self.components_.transform(Z))

    def _scores(self, X: np.ndarray) -> np.ndarray:
        network = _Network.load(self.weights_)
        memory = network.read(self.context_, self.states_)
        blocks = range(0, len(X), _BLOCK)
        parts = (self._columns(X[i : i + _BLOCK]).astype(np.float32) for i in blocks)
        return -np.concatenate([network.score(part, memory) for part in parts]).astype(float)


def labelled_rows_read(codes: np.ndarray) -> int:
    """How many of the labelled rows the network reads.

    >>> labelled_rows_read(np.repeat([1, -1, 0], [3000, 50, 9000]))
    450
    """
    most = {NORMAL: _MOST_NORMAL, ANOMALY: _MOST_ANOMALY}
    return sum(min(int((codes == kind).sum()), size) for kind, size in most.items())


def _signed_log(z: np.ndarray) -> np.ndarray:
    """sign(z) log(1 + |z|): far values come near, whatever their side."""
    return np.asarray(np.sign(z) * np.log1p(np.abs(z)))


# --- the network --------------------------------------------------------------------------------


_Memory = list[tuple[np.ndarray, np.ndarray]]
"""Of each layer the keys and values of the context."""


class _Network:
    """The trained network in NumPy. Arrays of layers have one layer after the other."""

    def __init__(self, arrays: dict[str, np.ndarray]):
        self.arrays = arrays
        self.depth = len(arrays["up"])

    @classmethod
    @lru_cache(maxsize=1)
    def load(cls, name: str) -> _Network:
        """The weights that come with the package."""
        if name != _WEIGHTS:
            raise InputError(
                f"The model was made with the weights {name!r}, which this version of riskad does "
                "not have; take the version that the model was saved with."
            )
        file = files("riskad.detectors") / "weights" / f"{name}.npz"
        with file.open("rb") as opened, np.load(opened) as arrays:
            return cls({key: arrays[key].astype(np.float32) for key in arrays})

    def read(self, Z: np.ndarray, states: np.ndarray) -> _Memory:
        """Keys and values of the context, layer by layer; of the last for cells of labels alone."""
        x, memory = self._cells(Z, states), []
        for layer in range(self.depth):
            x = self._among_cells(x, layer, self._first(layer))
            memory.append(self._keys_and_values(x, layer))
            if layer < self.depth - 1:
                x = self._alone(self._to_context(x, layer, *memory[-1]), layer)
        return memory

    def score(self, Z: np.ndarray, memory: _Memory) -> np.ndarray:
        """s(x) of rows without a label."""
        x = self._cells(Z, np.full(len(Z), _STATES[UNLABELLED]))
        for layer, (keys, values) in enumerate(memory):
            x = self._among_cells(x, layer, self._first(layer))
            x = self._alone(self._to_context(x, layer, keys, values), layer)
        *head, bias = self.arrays["head"]
        return np.asarray(_normed(x[:, -1], self.arrays["norm"]) @ np.array(head) + bias)

    def _first(self, layer: int) -> int:
        """The first cell of a row that later layers look at."""
        return -1 if layer == self.depth - 1 else 0

    def _cells(self, Z: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Cells (rows, columns + 1, width) as they begin."""
        *linear, bias = self.arrays["cell"]
        values = np.stack([Z, np.abs(Z), Z * Z], axis=-1) @ np.array(linear) + bias
        return np.concatenate([values, self.arrays["label"][states][:, None]], axis=1)

    def _among_cells(self, x: np.ndarray, layer: int, first: int) -> np.ndarray:
        """Cells of a row, from the first that is asked for, attend to all of them."""
        queries, keys, values, out = self.arrays["cells"][layer]
        z = _normed(x, self.arrays["norm_cells"][layer])
        asked = _by_head(z[:, first:] @ queries)
        found = _attention(asked, _by_head(z @ keys), _by_head(z @ values))
        return np.asarray(x[:, first:] + _joined(found) @ out)

    def _keys_and_values(self, x: np.ndarray, layer: int) -> tuple[np.ndarray, np.ndarray]:
        _, keys, values, _ = self.arrays["rows"][layer]
        z = _normed(x, self.arrays["norm_rows"][layer]).swapaxes(0, 1)
        return _by_head(z @ keys), _by_head(z @ values)

    def _to_context(
        self, x: np.ndarray, layer: int, keys: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """Cells of a column attend to those of the context."""
        queries, _, _, out = self.arrays["rows"][layer]
        z = _normed(x, self.arrays["norm_rows"][layer]).swapaxes(0, 1)
        columns = zip(_by_head(z @ queries), keys, values, strict=True)
        found = np.stack([_attention(*column) for column in columns])  # one at a time: memory
        return x + (_joined(found) @ out).swapaxes(0, 1)

    def _alone(self, x: np.ndarray, layer: int) -> np.ndarray:
        """Each cell by itself, through one hidden layer."""
        z = _normed(x, self.arrays["norm_alone"][layer])
        z = _gelu(z @ self.arrays["up"][layer] + self.arrays["up_bias"][layer])
        return np.asarray(x + z @ self.arrays["down"][layer] + self.arrays["down_bias"][layer])


def _by_head(x: np.ndarray) -> np.ndarray:
    """(..., n, width) as (..., heads, n, width / heads)."""
    return x.reshape(*x.shape[:-1], _HEADS, -1).swapaxes(-2, -3)


def _joined(x: np.ndarray) -> np.ndarray:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k' / sqrt(width)) v."""
    weights = (q / np.sqrt(np.float32(q.shape[-1]))) @ k.swapaxes(-1, -2)
    weights -= weights.max(axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    return np.asarray((weights @ v) / weights.sum(axis=-1, keepdims=True))


def _normed(x: np.ndarray, scale_and_shift: np.ndarray) -> np.ndarray:
    scale, shift = scale_and_shift
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + np.float32(_EPSILON)) * scale + shift)


def _gelu(x: np.ndarray) -> np.ndarray:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(x * np.float32(0.5) * (1 + np.tanh(inner)))
