"""The last rows that a model scored, and how far they are from those of the fit."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from riskad.core.checks import InputError
from riskad.decisions.drift import ColumnDrift, compare_scored
from riskad.rows.table import Table
from riskad.web.serve.scoring import RowScorer

_MOST_ROWS = 2_000
_MOST_CELLS = 1_000_000
_FEWEST_ROWS = 50  # fewer tell nothing of a drift
_KEEP_SECONDS = 10.0


class Window:
    """The last 2,000 rows that a model scored, or fewer where there are many columns.

    They are kept as the detector takes them, so that nothing is read twice. Rows come from one
    thread, and others read meanwhile: a list of parts is never changed, but replaced.
    """

    def __init__(self, scorer: RowScorer):
        self._detector = scorer.detector
        self._names = list(scorer.preparer.get_feature_names_out())
        most = _MOST_CELLS // max(1, len(self._names))
        self._most = int(np.clip(most, _FEWEST_ROWS, _MOST_ROWS))
        self._parts: list[tuple[Any, NDArray[np.float64], NDArray[np.bool_]]] = []
        self._n = 0
        self._drift: tuple[list[ColumnDrift], ColumnDrift | None] | None = None
        self._drift_until = 0.0

    def add(self, rows: Any, scores: NDArray[np.float64], flagged: NDArray[np.bool_]) -> None:
        """Add rows that were scored."""
        last = slice(-self._most, None)
        many = len(scores) > self._most
        parts = [*self._parts, (rows[last] if many else rows, scores[last], flagged[last])]
        self._n += len(parts[-1][1])
        while self._n - len(parts[0][1]) >= self._most:
            self._n -= len(parts.pop(0)[1])
        self._parts = parts

    def scores(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the scores of the last rows, and which were flagged."""
        parts = self._parts
        if not parts:
            return np.empty(0), np.empty(0, dtype=bool)
        scores, flags = (np.concatenate([part[k] for part in parts]) for k in (1, 2))
        return scores[-self._most :], flags[-self._most :]

    def drift(self) -> tuple[list[ColumnDrift], ColumnDrift | None] | None:
        """Compare the last rows with those of the fit, by column and by score, if there are enough.

        The result is kept for ten seconds, since it takes as long as some requests.
        """
        parts = self._parts
        if time.monotonic() < self._drift_until:
            return self._drift
        if sum(len(scores) for _, scores, _ in parts) < _FEWEST_ROWS:
            return None
        matrices: list[Any] = [part[0] for part in parts]
        if isinstance(matrices[0], Table):
            values = np.concatenate([each.values for each in matrices])
            rows: Any = replace(matrices[0], values=values)
        elif sparse.issparse(matrices[0]):
            rows = sparse.vstack(matrices, "csr")
        else:
            rows = np.concatenate(matrices)
        scores = np.concatenate([part[1] for part in parts])
        try:
            self._drift = compare_scored(self._detector, rows, scores, self._names)
        except InputError:  # a model that keeps no summary of its rows
            return None
        self._drift_until = time.monotonic() + _KEEP_SECONDS
        return self._drift
