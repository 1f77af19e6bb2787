"""Shared code of the detectors over neural networks: rows, columns and networks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_array
from torch import Tensor, nn

from riskad.core.checks import InputError
from riskad.core.risks import KIND_NAMES
from riskad.deep.batches import NetworkRows, Pools, pools_of
from riskad.deep.disk import Stored, blocks, on_disk
from riskad.deep.graph import network_scores
from riskad.deep.layers import KERNEL
from riskad.deep.nets import ARCHITECTURES, Stack, find_architecture
from riskad.deep.ranks import ALONE, Ranks, world
from riskad.deep.trainer import History, Progress, Settings, choose_device, evaluate
from riskad.detectors.base import Detector, refuse_non_finite
from riskad.detectors.description import say_settings
from riskad.rows.arrays import on_host_array
from riskad.rows.columns import as_table, input_errors
from riskad.storage.fields import (
    COUNT,
    FLAG,
    SEED,
    SIZE,
    TEXT,
    Array,
    DictOf,
    Fields,
    ListOf,
    Maybe,
    Number,
    State,
    Text,
    require,
)

__all__ = ["Callback", "DeepDetector", "Module"]

Module = str | nn.Module | Callable[[tuple[int, ...]], nn.Module]
Callback = Callable[[Progress], None]
# Types that tables and images are converted to, the first unless they have another of these.
_TABLE_TYPES, _IMAGE_TYPES = [np.float64, np.float32], [np.float32, np.uint8]
_MOST_LAYERS = 1000  # in a model file
_DEVICES = ("auto", "cpu", "mps", "cuda", *(f"cuda:{place}" for place in range(64)))
_FAR = 1e15  # standard deviations beyond which squares overflow single precision
_PLAIN = (bool, int, float, str, tuple, list, type(None))


class DeepDetector(Detector):
    """Shared parts of all detectors over networks.

    Learned parameters are stored as NumPy arrays (`weights_`), so that a detector is saved and
    copied like any other; the network itself is built from them when it is first needed.
    """

    module: Any
    hidden: Sequence[int] | None
    batch: tuple[int, ...]
    n_steps: int
    learning_rate: float
    weight_decay: float
    schedule: str
    check_every: int
    scale: bool
    warm_start: bool
    device: str
    random_state: int | None
    verbose: bool
    callback: Callback | None
    shape_: tuple[int, ...]
    weights_: dict[str, np.ndarray]
    n_steps_: int
    best_step_: int
    shape_in_words: ClassVar[str] = "neural network"

    _state_fields: ClassVar[Fields] = {
        "module": Maybe(Text(choices=ARCHITECTURES)),
        "hidden": Maybe(ListOf(SIZE)),
        "batch": ListOf(SIZE),
        "n_steps": Number(0, 10**9, whole=True),
        "learning_rate": Number(0),
        "weight_decay": Number(0),
        "schedule": Text(choices=("constant", "cosine")),
        "check_every": SIZE,
        "scale": FLAG,
        "warm_start": FLAG,
        "device": Text(choices=_DEVICES),
        "random_state": SEED,
        "verbose": FLAG,
        "shape_": ListOf(SIZE),
        "_mean": Array("f", ("channels",)),
        "_scale": Array("f", ("channels",), low=np.nextafter(0, 1)),
        "weights_": DictOf(TEXT, Array("fi", None)),
        "n_steps_": COUNT,
        "best_step_": COUNT,
        "history_": DictOf(
            Text(choices=("step", "risk", "validation", "pretraining")),
            Array("fi", (None,), gaps=True, infinite=True),
        ),
    }

    def describe(self) -> dict[str, Any]:
        """Return the threshold and the number of steps of the best network."""
        return super().describe() | {"steps": int(self.best_step_)}

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the scores of a named architecture."""
        return network_scores(graph, rows, self)

    def describe_in_words(self) -> list[str]:
        """Return what was trained, and for how long."""
        return [say_settings(self.shape_in_words, self), f"{self.best_step_:,} steps"]

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        shape = state["shape_"]
        require(math.prod(shape) == state["n_features_in_"], "shape_: of other columns")
        require(len(state["_mean"]) == shape[0], "_mean: of other columns")
        if state["module"] is not None:  # otherwise only its owner knows it
            cls._check_weights(state)

    @classmethod
    def _check_weights(cls, state: State) -> None:
        """Refuse weights that are not those of the network.

        The size is computed before the network is built: a few bytes can request any size.
        """
        shape, stored = tuple(state["shape_"]), state["weights_"]
        architecture = find_architecture(state["module"], state["hidden"])
        architecture.check_shape(state["module"], shape)
        require(len(architecture.sizes) <= _MOST_LAYERS, f"hidden: more than {_MOST_LAYERS} layers")
        sizes = [math.prod(architecture.map_shape(shape)), *architecture.sizes]
        channels = [shape[0], *architecture.channels]
        needed = sum(a * b for a, b in pairwise(sizes))
        needed += sum(a * b * KERNEL**2 for a, b in pairwise(channels))
        has = sum(each.nbytes for each in stored.values()) // 4  # in single precision
        require(needed <= has, f"weights_: expected at least {needed:,} numbers, got {has:,}")
        detector = object.__new__(cls)
        detector.__dict__.update(state)
        wanted = {
            name: (str(value.dtype), tuple(value.shape))
            for name, value in detector._build([detector]).state_dict().items()
        }
        found = {name: (f"torch.{w.dtype}", w.shape) for name, w in stored.items()}
        require(found == wanted, "weights_: of other shapes or types")

    # --- settings -------------------------------------------------------------------------

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    def _settings(self, **others: Any) -> Settings:
        """How to train; `others` are settings that not all detectors have."""
        return Settings(
            n_steps=self.n_steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            check_every=self.check_every,
            **others,
        )

    def _sizes(self, kinds: Sequence[int]) -> dict[int, int]:
        """Rows of each of these kinds in a batch."""
        sizes = self.batch
        whole = all(isinstance(b, (int, np.integer)) and b >= 1 for b in sizes)
        if len(sizes) != len(kinds) or not whole:
            raise InputError(
                f"batch must be {len(kinds)} whole numbers >= 1: rows that are "
                f"{', '.join(KIND_NAMES[kind] for kind in kinds)}; got {sizes!r}."
            )
        return dict(zip(kinds, (int(b) for b in sizes), strict=True))

    # --- rows -----------------------------------------------------------------------------

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        """A table as float64 or float32, images (n, c, h, w) as float32 or bytes; all finite.

        Rows on disk stay there, with any type of number.
        """
        X = as_table(on_host_array(X))
        with input_errors(type(self).__name__):
            ndim = len(X.shape) if hasattr(X, "shape") else np.asarray(X).ndim
        X = self._check_images(X, reset) if ndim > 2 else self._check_numbers(X, reset)
        if reset and not self._goes_on():
            self.shape_ = X.shape[1:]
        elif X.shape[1:] != self.shape_:
            raise InputError(
                f"rows have the shape {X.shape[1:]}, and {type(self).__name__} was fitted to rows "
                f"of shape {self.shape_}."
            )
        return X

    def _check_numbers(self, X: Any, reset: bool) -> np.ndarray:
        X = self._check_table(X, reset, dtype=_kept_types(X, _TABLE_TYPES))
        row = _first_non_finite(X)
        if row is not None and not on_disk(X):  # it counts all gaps, and a file may be large
            refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        _refuse_row(row)
        return X

    def _check_images(self, X: Any, reset: bool) -> np.ndarray:
        with input_errors(type(self).__name__):
            X = check_array(
                X,
                dtype=_kept_types(X, _IMAGE_TYPES),
                ensure_all_finite=False,
                ensure_min_samples=2 if reset else 1,
                allow_nd=True,
            )
        _refuse_row(_first_non_finite(X))
        if reset:
            self.n_features_in_ = math.prod(X.shape[1:])
        return X[:, None] if X.ndim == 3 and isinstance(self.module, str) else X

    def _goes_on(self) -> bool:
        """Whether `fit` continues from the previous fit."""
        return bool(self.warm_start) and hasattr(self, "weights_")

    def _learn_columns(self, X: np.ndarray) -> None:
        """Mean and spread of each column, or of each channel of images."""
        if self._goes_on():
            return
        self._mean, self._scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.scale:
            self._mean, spread = _moments(X)
            self._scale = np.where(spread > 0, spread, 1.0)

    def _data(self, X: np.ndarray) -> NetworkRows:
        """Rows as the network sees them, on the device; rows on disk are loaded on demand."""
        device = choose_device(self.device)
        if on_disk(X):
            return NetworkRows(Stored(X, self._seen, device))
        return NetworkRows(torch.from_numpy(self._seen(X)).to(device))

    def _seen(self, X: np.ndarray) -> np.ndarray:
        """Rows as the network sees them: standardised, float32 or bytes."""
        X = _as_checked(X)
        if self.scale:
            X = X if X.dtype.kind == "f" else X.astype(np.float32)
            across = (-1, *[1] * (X.ndim - 2))
            X = X - self._mean.reshape(across).astype(X.dtype)
            X /= self._scale.reshape(across).astype(X.dtype)
        return np.clip(X, -_FAR, _FAR).astype(np.float32) if X.dtype == np.float64 else X

    def _check_ranks(self, X: np.ndarray, codes: np.ndarray) -> None:
        """Refuse to train together with processes that were given other data.

        Compares about a hundred of the rows, and those settings that are plain values.
        """
        ranks = world()
        if ranks.size == 1:
            return
        settings = {
            name: value
            for name, value in sorted(self.get_params(deep=False).items())
            if isinstance(value, _PLAIN) and name not in ("device", "verbose")
        }
        before = self.n_steps_ if self._goes_on() else 0
        given = {
            "settings": repr((type(self).__name__, settings, before)).encode(),
            "the shape of X": repr((X.shape, X.dtype)).encode(),
            "the rows of X": X[:: max(1, len(X) // 100)].tobytes(),
            "the labels": codes.tobytes(),
        }
        ranks.check_same(given, choose_device(self.device))

    # --- networks -------------------------------------------------------------------------

    # A detector trains with others of its class (`riskad.deep.together`), which may differ in the
    # parameters of `_own`. The methods below work on all of them; `members` is [self] if it trains
    # alone.

    _own: ClassVar[frozenset[str]]

    @abstractmethod
    def _check_member(self, codes: np.ndarray) -> None:
        """Refuse parameters and labels that cannot be fitted, before any work."""

    @abstractmethod
    def _build(self, members: Sequence[Self]) -> Stack:
        """Networks for rows of `shape_`, one for each member, with the weights its seed gives."""

    @abstractmethod
    def _train(
        self,
        members: Sequence[Self],
        stack: Stack,
        data: NetworkRows,
        pools: Sequence[Pools],
        **settings: Any,
    ) -> History:
        """Train the members' networks, each on its own pools of rows."""

    @abstractmethod
    def _from_outputs(self, members: Sequence[Self], outputs: Tensor) -> Tensor:
        """Scores (K, n), high for normal rows, from what the members' networks give."""

    @abstractmethod
    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        """Find `offset_` for the fitted network, from its scores of rows with these codes."""

    def _used(self, codes: np.ndarray) -> np.ndarray:
        """The codes as this detector reads them."""
        return codes

    def _fit_alone(self, X: np.ndarray, codes: np.ndarray) -> None:
        """Fit this detector alone."""
        self._check_member(codes)
        self._check_ranks(X, codes)
        stack = self._first_network()
        self._learn_columns(X)
        data, pools = self._data(X), pools_of(torch.from_numpy(codes.astype(np.int64)))
        self._hand_over(stack, self._train([self], stack, data, [pools]))
        self._stack = stack
        self._place_threshold(self._scores_of(data, world()), codes)

    def _network(self) -> Stack:
        """The fitted network, on the device."""
        device = choose_device(self.device)
        if not hasattr(self, "_stack"):
            self._stack = self._rebuild()
        return self._stack.to(device).eval()

    def _rebuild(self) -> Stack:
        """Rebuild the fitted network from its weights."""
        stack = self._build([self])
        weights = {name: torch.tensor(value) for name, value in self.weights_.items()}
        stack.load_state_dict(weights)
        return stack

    def _first_network(self) -> Stack:
        """The network to train: a new one, or that of the previous fit."""
        if self._goes_on():
            return self._network()
        return self._build([self]).to(choose_device(self.device))

    def _hand_over(self, stack: Stack, history: History, k: int = 0) -> None:
        """Take network k of a stack, and its curves; refuse one that diverged."""
        state = {name: _part(stack, value, k) for name, value in stack.state_dict().items()}
        finite = all(np.isfinite(value).all() for value in state.values())
        if not finite or history.best_step[k] == 0:  # no check was better than infinity
            raise InputError(
                "training broke: the weights are not finite. Choose a smaller learning_rate, or "
                "scale=True."
            )
        before = self.n_steps_ if self._goes_on() else 0
        self.weights_ = state
        self.__dict__.pop("_stack", None)
        self.n_steps_ = before + int(history.n_steps[k])
        self.best_step_ = before + int(history.best_step[k])
        self.history_ = {"step": before + history.step, "risk": history.risk[:, k]}
        for name in ("validation", "pretraining"):
            curves = getattr(history, name)
            if curves is not None:
                self.history_[name] = curves[:, k]

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return self._scores_of(self._data(X))

    def _scores_of(self, data: NetworkRows, ranks: Ranks = ALONE) -> np.ndarray:
        """Scores of all rows of the data, divided among `ranks`."""
        then = partial(self._from_outputs, [self])
        scores = evaluate(self._network(), data, ranks=ranks, then=then)
        return scores[0].cpu().numpy().astype(np.float64)

    @contextmanager
    def _progress(self, n_steps: int) -> Iterator[Callback | None]:
        """The user's callback, with a bar if `verbose`, in one of the training processes."""
        if not self.verbose or world().rank > 0:
            yield self.callback
            return
        from rich.progress import Progress as Bar

        with Bar() as bar:
            task = bar.add_task(type(self).__name__, total=n_steps)

            def advance(progress: Progress) -> None:
                bar.update(task, completed=progress.step)
                if self.callback is not None:
                    self.callback(progress)

            yield advance

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_stack", None)  # built again from weights_
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.three_d_array = True
        return tags


def _kept_types(X: Any, types: Sequence[Any]) -> Any:
    """The types that rows are converted to; rows on disk keep theirs, since a copy is too large."""
    return None if on_disk(X) and X.dtype.kind in "fiub" else types


def _as_checked(X: np.ndarray) -> np.ndarray:
    """Some rows from disk, in the type that rows in memory were converted to when checked."""
    types = _TABLE_TYPES if X.ndim == 2 else _IMAGE_TYPES
    return X if X.dtype in types else X.astype(types[0])


def _first_non_finite(X: np.ndarray) -> int | None:
    """The first row of X with a NaN or an infinity."""
    for start, block in blocks(X):
        finite = np.isfinite(block)
        if not finite.all():
            return start + int(np.argwhere(~finite)[0, 0])
    return None


def _refuse_row(row: int | None) -> None:
    if row is not None:
        raise InputError(f"X contains NaN or infinity, first in row {row}. Fill gaps first.")


def _moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Mean and spread along the second axis, in one pass over blocks of rows.

    Two parts with n_1 and n_2 values, means m_1 and m_2 and mean squares around them v_1 and v_2
    have together, with the share s = n_2 / (n_1 + n_2) and d = m_2 - m_1,

        m = m_1 + s d,    v = (1 - s) v_1 + s v_2 + s (1 - s) d^2
    """
    axes = tuple(axis for axis in range(X.ndim) if axis != 1)
    mean, variance = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for start, block in blocks(X):
        part = _as_checked(block)
        s, d = len(part) / (start + len(part)), part.mean(axis=axes, dtype=np.float64) - mean
        v = part.var(axis=axes, dtype=np.float64)
        mean, variance = mean + s * d, (1 - s) * variance + s * v + s * (1 - s) * d**2
    return mean, np.sqrt(variance)


def _part(stack: Stack, value: Tensor, k: int) -> np.ndarray:
    """Network k's part of an entry of the stack's state."""
    own = value if stack.n_networks == 1 else value[k : k + 1]
    return own.cpu().numpy().copy()
