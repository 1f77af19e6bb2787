"""Many detectors fitted at once: one stack of networks, on one device, over one array of rows."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor

from riskad.core.checks import InputError
from riskad.core.labels import check_codes
from riskad.deep.batches import BATCH_ORDER, NetworkRows, Pools
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD
from riskad.deep.trainer import evaluate

__all__ = ["Together"]

DeepDetector = DeepRAD | NNPU | DeepSAD


class Together:
    """Fit K detectors side by side, each to its own rows and labels.

    Their networks have one shape and are trained as one stack, which on a GPU takes little longer
    than training one. Each result is the same as if it had been fitted alone, up to rounding; get
    it with `detector`.

    Parameters
    ----------
    detectors : sequence of DeepRAD, of NNPU or of DeepSAD
        Unfitted detectors. They may differ in loss, a, prior and random_state; see `key`.
    deterministic : bool, default=False
        Whether a GPU may only use algorithms that give the same numbers every time, as for a
        detector that is fitted alone; algorithms that may differ in the last digits are faster.

    Attributes
    ----------
    n_steps_, best_step_ : int arrays of shape (K,)
        How far each network was trained, and the step whose parameters were kept.

    Examples
    --------
    Four losses over the same rows:

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))]).astype("float32")
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> losses = ["squared", "sigmoid", "logistic", "modified_huber"]
    >>> team = Together([DeepRAD(loss=loss, n_steps=100) for loss in losses])
    >>> team.fit(X, [np.arange(1000)] * 4, [y] * 4).score_samples(X[:3]).shape
    (4, 3)
    """

    def __init__(self, detectors: Sequence[Any], deterministic: bool = False):
        if not detectors:
            raise InputError("there are no detectors to fit.")
        keys = [self.key(detector) for detector in detectors]
        for key in keys:
            if key != keys[0]:
                raise InputError(
                    "detectors that are trained together must have the same settings but for "
                    f"{', '.join(sorted(detectors[0]._own))}; two of them differ: "
                    f"{_first_difference(keys[0], key)}."
                )
        self.detectors = list(detectors)
        self.deterministic = deterministic

    @staticmethod
    def key(detector: Any) -> Hashable:
        """What detectors must share to be trained together: compare with ==."""
        if not isinstance(detector, DeepDetector):
            raise InputError(
                f"only DeepRAD, NNPU and DeepSAD are trained together, got {detector!r}."
            )
        if not isinstance(detector.module, str):
            raise InputError("a module of your own is trained alone: call its fit.")
        if detector.warm_start:
            raise InputError("warm_start goes on from a fit of its own, alone: call its fit.")
        shared = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in sorted(detector.get_params(deep=False).items())
            if name not in detector._own
        }
        return (type(detector).__name__, *shared.items())

    def fit(self, X: Any, rows: Sequence[Any], labels: Sequence[Any]) -> Together:
        """Fit each detector to its rows of X.

        Parameters
        ----------
        X : array of shape (n, columns), (n, h, w) or (n, c, h, w)
            The rows of all detectors; copied to the device once.
        rows : sequence of K integer arrays
            Which rows of X each detector is fitted to.
        labels : sequence of K arrays
            +1 normal, -1 anomaly, 0 unlabelled, for these rows.

        Returns
        -------
        Together
            The fitted detectors.
        """
        first, members = self.detectors[0], self.detectors
        X = first._check_rows(X, reset=True)
        parts = _check_parts(rows, labels, len(members), len(X))
        pools = [self._prepare(*each, X) for each in zip(members, *parts, strict=True)]
        first._check_ranks(X, np.concatenate([*parts[0], *parts[1]]))
        data = self._data(X)
        self._stack = first._build(members).to(data.device)
        settings = {"deterministic": self.deterministic}
        self._history = first._train(members, self._stack, data, pools, **settings)
        self._X, self._parts = X, parts
        self.n_steps_, self.best_step_ = self._history.n_steps, self._history.best_step
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """Scores (K, n) of rows X by each detector, high for normal rows."""
        self._check_fitted()
        first = self.detectors[0]
        data = self._data(first._check_rows(X, reset=False))
        scores = evaluate(self._stack, data, then=partial(first._from_outputs, self.detectors))
        return scores.cpu().numpy().astype(np.float64)

    def detector(self, k: int) -> Any:
        """The k-th fitted detector, with its network, its learning curve and its threshold."""
        self._check_fitted()
        member, rows, codes = self.detectors[k], self._parts[0][k], self._parts[1][k]
        member._hand_over(self._stack, self._history, k)
        member._place_threshold(member._scores(self._X[rows]), member._used(codes))
        return member

    def _check_fitted(self) -> None:
        if not hasattr(self, "_stack"):
            raise NotFittedError("These detectors are not fitted together yet: call fit first.")

    def _prepare(self, member: Any, rows: np.ndarray, labels: Any, X: np.ndarray) -> Pools:
        """Check a detector and its labels, and fit its columns; returns its rows of each kind."""
        codes = member._used(labels)
        member._check_member(codes)
        member.shape_, member.n_features_in_ = X.shape[1:], self.detectors[0].n_features_in_
        member._learn_columns(X[rows] if member.scale else X[:1])
        return {kind: torch.from_numpy(rows[codes == kind]) for kind in BATCH_ORDER}

    def _data(self, X: np.ndarray) -> NetworkRows:
        """X as the first detector standardises it, and how the others differ."""
        first, members = self.detectors[0], self.detectors
        data = first._data(X).data
        mean = np.stack([(member._mean - first._mean) / first._scale for member in members])
        scale = np.stack([member._scale / first._scale for member in members])
        if not mean.any() and (scale == 1).all():
            return NetworkRows(data)
        return NetworkRows(data, _on(data, mean), _on(data, scale))


def _check_parts(
    rows: Sequence[Any], labels: Sequence[Any], k: int, n: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows and codes of each detector, of the same length and within the data."""
    if len(rows) != k or len(labels) != k:
        raise InputError(
            f"there are {k} detectors, so rows and labels must hold {k} arrays each, got "
            f"{len(rows)} and {len(labels)}."
        )
    parts = [np.asarray(part) for part in rows]
    for i, part in enumerate(parts):
        if part.dtype.kind not in "iu" or part.ndim != 1 or part.size == 0:
            raise InputError(
                f"rows[{i}] must be whole numbers, the rows of X that detector {i} is fitted to, "
                f"got an array of {part.dtype} and shape {part.shape}."
            )
        if part.min() < 0 or part.max() >= n:
            raise InputError(
                f"rows[{i}] must lie between 0 and {n - 1}, as X has {n} rows; got "
                f"{part.min()} to {part.max()}."
            )
    codes = [np.asarray(check_codes(each)) for each in labels]
    for i, (part, each) in enumerate(zip(parts, codes, strict=True)):
        if len(part) != len(each):
            raise InputError(f"rows[{i}] has {len(part)} rows and labels[{i}] {len(each)} labels.")
    return [part.astype(np.int64) for part in parts], codes


def _on(data: Tensor, values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32)).to(data.device)


def _first_difference(one: Any, other: Any) -> str:
    pairs = zip(one, other, strict=False)
    a, b = next(pair for pair in pairs if pair[0] != pair[1])
    if isinstance(a, str):
        return f"{a} and {b}"
    return f"{a[0]}={a[1]!r} and {b[1]!r}"
