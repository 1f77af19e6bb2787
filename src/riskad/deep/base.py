"""Shared code of the detectors over neural networks: rows, columns and the network."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from sklearn.utils.validation import check_array
from torch import Tensor, nn

from riskad.core.checks import InputError
from riskad.core.risks import KIND_NAMES
from riskad.deep.batches import Pools, pools_of
from riskad.deep.nets import ARCHITECTURES, find_architecture, lay_out, network_scores
from riskad.deep.trainer import Settings, choose_device, evaluate
from riskad.detectors.base import Detector, array_checks, refuse_non_finite
from riskad.detectors.description import settings_in_words
from riskad.files import fields
from riskad.files.fields import Array, Either, ListOf, Maybe, State, Text, require
from riskad.rows.arrays import on_host_array
from riskad.rows.table import as_table, check_numbers, input_errors

Curves = dict[str, np.ndarray]
# Types that tables and images are converted to, the first unless they have another of these.
_TABLE_TYPES, _IMAGE_TYPES = [np.float64, np.float32], [np.float32, np.uint8]
_MOST_LAYERS = 1000  # in a model file
_DEVICES = ("auto", "cpu", "mps", "cuda", *(f"cuda:{place}" for place in range(64)))
# Standard deviations at which columns are clipped: their squares stay far below the largest number
# in single precision, 3e38.
_FAR = 1e15
_BLOCK = 2**20  # values of which means are taken at a time


class DeepDetector(Detector):
    """Shared parts of all detectors over networks.

    Learned parameters are stored as NumPy arrays (`weights_`), so that a detector is saved and
    copied like any other; the network itself is built from them when it is first needed.
    """

    module: Annotated[Any, Maybe(Either(Text(choices=ARCHITECTURES), ListOf(fields.SIZE)))]
    batch_size: Annotated[tuple[int, ...], ListOf(fields.SIZE)]
    max_iter: Annotated[int, fields.Number(0, 10**9, whole=True)]
    learning_rate: Annotated[float, fields.Number(0)]
    scale: Annotated[bool, fields.FLAG]
    device: Annotated[str, Text(choices=_DEVICES)]
    shape_: Annotated[tuple[int, ...], ListOf(fields.SIZE)]
    weights_: Annotated[dict[str, np.ndarray], fields.DictOf(fields.TEXT, Array("fi", None))]
    history_: Annotated[
        dict[str, np.ndarray],
        fields.DictOf(
            Text(choices=("step", "risk", "validation", "pretraining")),
            Array("fi", (None,), gaps=True, infinite=True),
        ),
    ]
    n_iter_: Annotated[int, fields.COUNT]
    best_iter_: Annotated[int, fields.COUNT]
    _shape_in_words: ClassVar[str] = "neural network"
    _weight_decay: ClassVar[float] = 5e-4
    _gives_scores: ClassVar[bool] = True  # whether its network does, and no representation

    _mean: Annotated[np.ndarray, Array("f", ("channels",))]
    _scale: Annotated[np.ndarray, Array("f", ("channels",), low=np.nextafter(0, 1))]

    @classmethod
    def _check_state(cls, state: State) -> None:
        shape = state["shape_"]
        require(math.prod(shape) == state["n_features_in_"], "shape_: of other columns")
        require(len(state["_mean"]) == shape[0], "_mean: of other columns")
        if state["module"] is None:
            return  # a user's module, which is passed again when the model is loaded
        architecture = find_architecture(state["module"])
        architecture.check_shape(state["module"], shape)
        require(len(architecture.sizes) <= _MOST_LAYERS, f"module: more than {_MOST_LAYERS} layers")
        network = lay_out(architecture, shape, scores=cls._gives_scores)  # takes no memory
        expected = {
            name: (str(w.dtype), tuple(w.shape)) for name, w in network.state_dict().items()
        }
        stored = {name: (f"torch.{w.dtype}", w.shape) for name, w in state["weights_"].items()}
        require(stored == expected, "weights_: of other shapes or types")

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"steps": int(self.best_iter_)}

    def _describe_in_words(self) -> list[str]:
        return [settings_in_words(self._shape_in_words, self), f"{self.best_iter_:,} steps"]

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        return network_scores(graph, rows, self, self._network())

    def _settings(self) -> Settings:
        return Settings(self.max_iter, self.learning_rate, self._weight_decay)

    def _sizes(self, kinds: Sequence[int]) -> dict[int, int]:
        """Rows of each of these kinds in a batch."""
        sizes = self.batch_size
        whole = all(isinstance(b, (int, np.integer)) and b >= 1 for b in sizes)
        if len(sizes) != len(kinds) or not whole:
            raise InputError(
                f"batch_size must be {len(kinds)} whole numbers >= 1: rows that are "
                f"{', '.join(KIND_NAMES[kind] for kind in kinds)}; got {sizes!r}."
            )
        return dict(zip(kinds, (int(b) for b in sizes), strict=True))

    def _check_rows(self, X: Any, reset: bool) -> np.ndarray:
        """A table as float64 or float32, images (n, c, h, w) as float32 or bytes; all finite."""
        X = as_table(on_host_array(X))
        with input_errors(type(self).__name__):
            ndim = len(X.shape) if hasattr(X, "shape") else np.asarray(X).ndim
        # Three or more axes are images: rows, then channels or pixels.
        if ndim > 2:
            X = self._check_images(X, reset)
        else:
            X = check_numbers(self, X, reset, dtype=_TABLE_TYPES, **array_checks(reset))
            if not np.isfinite(X).all():
                refuse_non_finite(X, getattr(self, "feature_names_in_", None))
        if reset:
            self.shape_ = X.shape[1:]
        elif X.shape[1:] != self.shape_:
            raise InputError(
                f"rows have the shape {X.shape[1:]}, and {type(self).__name__} was fitted to rows "
                f"of shape {self.shape_}."
            )
        return X

    def _check_images(self, X: Any, reset: bool) -> np.ndarray:
        with input_errors(type(self).__name__):
            X = check_array(X, dtype=_IMAGE_TYPES, allow_nd=True, **array_checks(reset))
        finite = np.isfinite(X).all(axis=tuple(range(1, X.ndim)))
        if not finite.all():
            first = int(np.argmin(finite))
            raise InputError(f"X contains NaN or infinity, first in row {first}. Fill gaps first.")
        if reset:
            self.n_features_in_ = math.prod(X.shape[1:])
        return X[:, None] if X.ndim == 3 and isinstance(self.module, (str, list, tuple)) else X

    def _data(self, X: np.ndarray) -> Tensor:
        """Rows for the network, on the device: standardised, float32 or bytes."""
        if self.scale:
            X = X if X.dtype.kind == "f" else X.astype(np.float32)
            across = (-1, *[1] * (X.ndim - 2))
            X = X - self._mean.reshape(across).astype(X.dtype)
            X /= self._scale.reshape(across).astype(X.dtype)
        # Standardised in doubles, since a column of time stamps has no digits left in single
        # precision.
        if X.dtype == np.float64:
            X = np.clip(X, -_FAR, _FAR).astype(np.float32)
        rows = torch.from_numpy(np.require(X, requirements=["C", "W"]).reshape(len(X), -1))
        # NumPy may give an axis of length 1 any stride; torch would take some for another layout of
        # images, in which batch normalisation is less accurate.
        return rows.to(choose_device(self.device)).view(X.shape)

    @abstractmethod
    def _check_fit(self, codes: np.ndarray) -> None:
        """Refuse parameters and labels that cannot be fitted, before any work."""

    @abstractmethod
    def _build(self) -> nn.Module:
        """The network for rows of `shape_`, with the weights that the seed gives."""

    @abstractmethod
    def _train(self, network: nn.Module, data: Tensor, pools: Pools) -> tuple[Curves, int]:
        """Train on rows of these pools; returns learning curves and the step that was kept."""

    @abstractmethod
    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        """Find `offset_`, from the fitted network's scores of rows with these codes."""

    def _output_scores(self, outputs: Tensor) -> Tensor:
        """Scores (n,), high for normal rows, from what the network gives."""
        return outputs

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit to a table X (n, columns), or to images (n, h, w) or (n, c, h, w), with labels y.

        y is +1 normal, -1 anomaly, 0 unlabelled; `riskad.parse_labels` translates other spellings.
        """
        X, codes, _ = self._check_training(X, y)
        self._check_fit(codes)
        network = self._build().to(choose_device(self.device))
        self._mean, self._scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if self.scale:
            self._mean, self._scale = _moments(X)
        data = self._data(X)
        pools = pools_of(torch.from_numpy(codes.astype(np.int64)))
        curves, best_step = self._train(network, data, pools)
        weights = {name: value.cpu().numpy().copy() for name, value in network.state_dict().items()}
        # Scores of such weights would be NaN, which no threshold and no user would notice.
        finite = all(np.isfinite(value).all() for value in weights.values())
        if not finite or best_step == 0:  # no check was better than infinity
            raise InputError(
                "training broke: the weights are not finite. Choose a smaller learning_rate, or "
                "scale=True."
            )
        self.weights_, self._module, self.history_ = weights, network, curves
        self.n_iter_, self.best_iter_ = int(curves["step"][-1]), best_step
        self._place_threshold(self._scores_of(data), codes)
        return self

    def _network(self) -> nn.Module:
        """The fitted network, on the device."""
        if not hasattr(self, "_module"):
            network, stored = self._build(), {name: w.shape for name, w in self.weights_.items()}
            if {name: tuple(w.shape) for name, w in network.state_dict().items()} != stored:
                raise InputError(f"module is not the one of the fit, whose weights are {stored}.")
            network.load_state_dict({name: torch.tensor(w) for name, w in self.weights_.items()})
            self._module = network
        return self._module.to(choose_device(self.device)).eval()

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return self._scores_of(self._data(X))

    def _scores_of(self, data: Tensor) -> np.ndarray:
        scores = self._output_scores(evaluate(self._network(), data))
        return scores.cpu().numpy().astype(np.float64)

    def __getstate__(self) -> dict[str, Any]:
        # The network is built again from weights_.
        return {name: value for name, value in super().__getstate__().items() if name != "_module"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse, tags.input_tags.three_d_array = False, True
        return tags


def _moments(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each column or channel and its spread, 1 if there is none; in double precision."""
    axes = tuple(axis for axis in range(X.ndim) if axis != 1)
    # Blocks bound the memory of doubles, which images of bytes would need eight times over.
    blocks, count = np.array_split(X, -(-X.size // _BLOCK)), X.size // X.shape[1]
    mean = sum(block.sum(axis=axes, dtype=np.float64) for block in blocks) / count
    across = mean.reshape(-1, *[1] * (X.ndim - 2))
    # Around the mean, in a second pass: E[x^2] - E[x]^2 loses all digits of a column far from 0.
    spread = np.sqrt(sum(np.square(block - across).sum(axis=axes) for block in blocks) / count)
    return mean, np.where(spread > 0, spread, 1.0)
