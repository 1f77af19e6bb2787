"""The last rows that were scored: share flagged, quantiles of their scores, drift."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.app.online import join_rows
from riskad.core.checks import InputError
from riskad.decisions.drift import ColumnDrift, compare_scored
from riskad.serving.models import ServedModel

__all__ = ["QUANTILES", "Drift", "Window"]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
_MOST_ROWS = 2_000
_MOST_CELLS = 1_000_000
_FEWEST_ROWS = 50  # fewer tell nothing of a drift
_KEEP_SECONDS = 10.0


@dataclass(frozen=True)
class Drift:
    """How the last rows differ from the unlabelled rows of the fit."""

    rows: int
    columns: tuple[ColumnDrift, ...] = ()
    scores: ColumnDrift | None = None
    found: float = field(default_factory=time.monotonic)


class Window:
    """The last 2,000 rows of one model, or fewer where there are many columns.

    They are kept as the detector takes them, so that nothing is read twice. A new model begins with
    an empty window.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._drift = Drift(0)
        self._start(None)

    def _start(self, model: ServedModel | None) -> None:
        self._model, self._n = model, 0
        self._parts: deque[tuple[Any, NDArray[np.float64], NDArray[np.bool_]]] = deque()
        self._drift = Drift(0)
        width = 1 if model is None else len(model.scorer.preparer.get_feature_names_out())
        self._most = int(np.clip(_MOST_CELLS // width, _FEWEST_ROWS, _MOST_ROWS))

    def add(
        self, model: ServedModel, rows: Any, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> None:
        """Add rows that were scored."""
        with self._lock:
            if model is not self._model:
                if self._model is not None and model.order < self._model.order:
                    return  # of the model before
                self._start(model)
            last = slice(-self._most, None)
            self._parts.append((rows[last], scores[last].copy(), flagged[last].copy()))
            self._n += len(self._parts[-1][1])
            while self._n - len(self._parts[0][1]) >= self._most:
                self._n -= len(self._parts.popleft()[1])

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the scores of the last rows, and which were flagged."""
        with self._lock:
            parts = list(self._parts)
        if not parts:
            return np.empty(0), np.empty(0, dtype=bool)
        scores, flags = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        return scores[-self._most :], flags[-self._most :]

    def drift(self) -> Drift:
        """Compare the last rows with those of the fit; the result is kept for ten seconds.

        It takes as long as some requests, and no lock that one of them needs.
        """
        with self._lock:
            model, parts, known = self._model, list(self._parts), self._drift
        if known.rows and time.monotonic() - known.found < _KEEP_SECONDS:
            return known
        if model is None or sum(len(scores) for _, scores, _ in parts) < _FEWEST_ROWS:
            return Drift(0)
        found = _compare(model, parts)
        with self._lock:
            if model is self._model:
                self._drift = found
        return found


def _compare(model: ServedModel, parts: list[tuple[Any, Any, Any]]) -> Drift:
    rows, scores = join_rows([part[0] for part in parts]), np.concatenate([p[1] for p in parts])
    names = list(model.scorer.preparer.get_feature_names_out())
    try:
        columns, own = compare_scored(model.scorer.detector, rows, scores, names)
    except InputError:  # a model that keeps no summary of its rows
        return Drift(0)
    return Drift(len(scores), tuple(columns), own)
