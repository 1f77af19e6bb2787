"""How much of a fit its budget of seconds allows."""

from __future__ import annotations

import time

__all__ = ["MARGIN", "Budget"]

MARGIN = 1.2
"""A step is begun if so many times what it may take is left."""

MOST_ROWS = 20_000
"""Rows that members learn from; beyond it unlabelled rows are sampled."""
_ROWS_PER_SECOND, _FEWEST_PER_SECOND, _FEWEST_ROWS, _ENOUGH_ROWS = 1_000, 150, 200, 1_000
_CELLS_PER_SECOND = 8_000  # that the pretrained network reads or scores, by a cautious guess


class Budget:
    """Seconds that are left, and what can be done in them."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.end = time.perf_counter() + seconds

    def left(self) -> float:
        """Return the seconds that are left."""
        return self.end - time.perf_counter()

    def allows(self, seconds: float) -> bool:
        """Return whether a step can be begun that may take so long."""
        return self.left() >= MARGIN * seconds

    def rows_to_distil(self, n_columns: int, n_labelled: int) -> int:
        """Return how many rows a teacher can score, after it read as many and `n_labelled`."""
        rows = self.left() / 4 * _CELLS_PER_SECOND / (n_columns + 1)
        return max(0, int((rows - n_labelled) / 2))

    def rows_to_learn_from(self, n_columns: int) -> tuple[int, int]:
        """Return for how many rows features can be learned, and the fewest unlabelled ones."""
        most = _ROWS_PER_SECOND * self.seconds / (1 + n_columns / 50)  # a cautious guess
        fewest = min(_ENOUGH_ROWS, max(_FEWEST_ROWS, _FEWEST_PER_SECOND * self.seconds))
        return int(min(MOST_ROWS, max(1, most))), int(fewest)
