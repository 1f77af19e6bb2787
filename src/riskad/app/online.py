"""Score rows as they arrive, a few at a time, with all preparation done in advance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, merge_warnings, no_warnings
from riskad.app.reasons import Reason, explain_rows
from riskad.app.results import own_decision, score_columns, score_rows, steps_of
from riskad.core.checks import InputError
from riskad.rows.table import Table
from riskad.tables.notes import catch_kinds

_WARM_UP_ROWS = 2
_MOST_COMPARED = 1_000  # names among which one that was meant is looked for


class RowScorer:
    """Scores rows like `riskad.app.score.score_table`, in steps that a server can interleave.

    Cells are read and compared with those of the fit in the same way. But rows are not ranked, and
    there are no messages about all of them together. `prepare` and `reasons` use Python's list of
    warnings, which all threads share: call them from one thread.

    Parameters
    ----------
    model
        A model from `riskad.fit_table`.

    Examples
    --------
    >>> import riskad
    >>> from riskad.app.demo import make_tables
    >>> table, new, _ = make_tables()
    >>> labels = {"label": "label", "normal": "benign", "anomaly": "malignant"}
    >>> model = riskad.fit_table(table, **labels, model="shallow").model
    >>> scorer = RowScorer(model)
    >>> rows, notes = scorer.prepare(new[:1])
    >>> list(scorer.results(*scorer.score(rows)))
    ['anomaly_score', 'is_anomaly', 'anomaly_probability']
    """

    def __init__(self, model: Pipeline):
        self.model = model
        self.preparer, self.detector = steps_of(model)
        self.decision = own_decision(self.detector)
        self.columns: list[str] = self.preparer.read_columns
        """The columns that rows must have."""

    def warm_up(self) -> None:
        """Score rows made up from the columns, so that the first real row is fast."""
        rng = np.random.default_rng(0)
        made = {c.name: c.random_values(rng, _WARM_UP_ROWS) for c in self.preparer.used()}
        made |= {name: pl.Series(["", ""]) for name in self.columns if name not in made}
        with no_warnings():
            self.results(*self.score(self.preparer.transform(pl.DataFrame(made))))

    def check_columns(self, columns: Sequence[str], of: str) -> None:
        """Refuse rows that lack a column, with a message that names it."""
        present = set(columns)
        for name in self.columns:
            if name not in present:
                close = get_close_matches(name, columns[:_MOST_COMPARED], n=1)
                guess = f" Did you mean it by {close[0]!r}?" if close else ""
                raise InputError(
                    f"{of} lacks the column {name!r}, which the model reads; send it, with null "
                    f"where it is blank.{guess}"
                )

    def prepare(self, frame: pl.DataFrame) -> tuple[Any, list[str]]:
        """Read the cells of a table; returns rows for the detector, and messages."""
        with catch_kinds(*NOTICED) as notes:
            rows = self.preparer.transform(frame)
        return rows, [str(note) for note in merge_warnings(notes)]

    def score(self, rows: Any) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return anomaly scores of prepared rows and, if the model has it, novelty."""
        return score_rows(self.detector, rows)

    def results(
        self, scores: NDArray[np.float64], novelty: NDArray[np.float64] | None
    ) -> dict[str, NDArray[Any]]:
        """Return the columns that `riskad score` adds to rows with these scores, except reasons."""
        return score_columns(self.detector, scores, self.decision, novelty)

    def p_values(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return p-values of being normal."""
        p_values: NDArray[np.float64] = self.detector._calibrated("p-values").p_values(scores)
        return p_values

    def reasons(
        self, frame: pl.DataFrame, flagged: NDArray[np.bool_], n: int
    ) -> list[list[Reason]]:
        """Return for each row the columns that make it anomalous; none if it is not flagged."""
        by_row: list[list[Reason]] = [[] for _ in range(frame.height)]
        places = np.flatnonzero(flagged)
        if places.size:
            with no_warnings():
                reasons = explain_rows(self.model, frame[places])
            for i, place in enumerate(places):
                by_row[place] = reasons.top(i, n)
        return by_row


def join_rows(parts: Sequence[Any]) -> Any:
    """Return prepared rows of several tables, one below the other.

    >>> join_rows([np.zeros((1, 2)), np.ones((2, 2))]).shape
    (3, 2)
    """
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Table):
        return replace(parts[0], values=np.concatenate([part.values for part in parts]))
    return sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)
