"""Answers of a journal as labels of a table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from riskad.core.labels import Codes
from riskad.labelling.journal import Journal, Located
from riskad.storage.files import check_input_file
from riskad.tables.cells import check_columns, to_text
from riskad.tables.labelled import FrameTable, LabelColumn

__all__ = ["Applied", "apply_labels", "table_codes"]


@dataclass(frozen=True)
class Applied:
    """A table with the labels of a journal.

    Attributes
    ----------
    frame
        The table, with the labels in a column.
    labels
        That column, and the meaning of its values.
    sources
        By row, how it was chosen for labelling: "suggested", "random", "chosen", or "" if the
        journal has no answer.
    first_judged
        By row, when the journal first called it normal or an anomaly; "" if it has no label.
    located
        How many rows of the journal were found elsewhere, or not at all.
    disputed
        Rows, counted from 1, about which people disagree; they are unchanged in the table.
    skipped
        A sentence on lines of the journal that hold no answer; "" if there are none.
    """

    frame: pl.DataFrame
    labels: LabelColumn
    sources: list[str]
    first_judged: list[str]
    located: Located
    disputed: list[int]
    skipped: str = ""

    def notes(self) -> list[str]:
        """List what the user should know."""
        said = [text for text in (str(self.located), self.skipped) if text]
        if self.disputed:
            rows = ", ".join(f"{row:,}" for row in self.disputed[:5])
            more = " and others" if len(self.disputed) > 5 else ""
            what = "row" if len(self.disputed) == 1 else "rows"
            said.append(
                f"People disagree about {what} {rows}{more}: the journal gives no label there."
            )
        return said


def apply_labels(
    frame: pl.DataFrame,
    journal: Journal | str | os.PathLike[str],
    labels: LabelColumn | None = None,
) -> Applied:
    """Put the answers of a journal into the label column of a table.

    An answer replaces the label of the row in the table. Rows are found by their content, so the
    table may have been sorted or may have grown since. "unsure" and "skip" label nothing, and
    neither do answers that contradict each other.

    Parameters
    ----------
    frame
        The table.
    journal
        The journal of `riskad label`.
    labels
        The label column and the meaning of its values; a missing column is added. By default the
        column is "label".

    Returns
    -------
    Applied
        The table with its labels, and where they came from.

    Examples
    --------
    >>> import tempfile
    >>> from riskad.labelling.journal import Answer
    >>> from riskad.labelling.row_hashes import hash_rows
    >>> table = pl.DataFrame({"amount": [5, 900, 7]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(f"{folder}/labels.jsonl", "cards.csv", ["amount"], 3)
    ...     held = hash_rows(table, ["amount"])[1]
    ...     journal.add(Answer(2, held, "anomaly", "suggested", "ada"))
    ...     applied = apply_labels(table.reverse(), journal)
    >>> applied.frame["label"].to_list(), applied.sources
    ([None, 'anomaly', None], ['', 'suggested', ''])
    """
    if not isinstance(journal, Journal):
        journal = Journal(check_input_file(journal))
    labels = _with_words(labels or LabelColumn("label"), frame)
    located = journal.locate(frame)
    words = {"normal": _word(labels.normal, "normal"), "anomaly": _word(labels.anomaly, "anomaly")}
    values: list[str | None] = [None] * frame.height
    if labels.column in frame.columns:
        values = to_text(frame[labels.column]).to_list()
    sources, first = [""] * frame.height, [""] * frame.height
    for row, answers in journal.answers.items():
        if answers.label:
            values[row - 1], sources[row - 1] = words[answers.label], answers.source
            first[row - 1] = answers.first
    column = pl.Series(labels.column, values, dtype=pl.String)
    labels = _occurring(labels, column)
    told = (labels, sources, first, located, journal.disputes(), journal.skipped())
    return Applied(frame.with_columns(column), *told)


def _word(given: object, otherwise: str) -> str:
    return str(given[0]) if isinstance(given, list | tuple) and given else otherwise


def _with_words(labels: LabelColumn, frame: pl.DataFrame) -> LabelColumn:
    """The column, in which both kinds have a word."""
    if labels.column in frame.columns and not (labels.normal or labels.anomaly):
        texts = to_text(frame[labels.column]).alias("value").value_counts(name="rows")
        seen = {value: n for value, n in texts.iter_rows() if value is not None and value.strip()}
        labels = labels.understood(seen) if seen else labels
    normal, anomaly = list(labels.normal), list(labels.anomaly)
    return replace(labels, normal=normal or ["normal"], anomaly=anomaly or ["anomaly"])


def _occurring(labels: LabelColumn, column: pl.Series) -> LabelColumn:
    """The same without words that no row has yet; a fit would treat those as typing errors."""
    seen = set(to_text(column).str.strip_chars().unique().drop_nulls())

    def there(words: Sequence[str]) -> list[str]:
        return [word for word in words if word in seen]

    normal, anomaly, none = map(there, (labels.normal, labels.anomaly, labels.unlabelled))
    return replace(labels, normal=normal, anomaly=anomaly, unlabelled=none)


def table_codes(frame: pl.DataFrame, labels: LabelColumn | None) -> tuple[Codes, str | None]:
    """Return the labels that a table has, and their column, which may be missing."""
    nothing = np.zeros(frame.height, dtype=np.int16)
    if labels is None:
        return nothing, None
    if labels.column not in frame.columns:
        if labels.normal or labels.anomaly:
            check_columns([labels.column], frame.columns)
        return nothing, labels.column
    if to_text(frame[labels.column]).str.strip_chars().replace("", None).is_null().all():
        return nothing, labels.column
    known = _occurring(labels, frame[labels.column])
    if (labels.normal or labels.anomaly) and not (known.normal or known.anomaly):
        known = labels  # none of the words occurs: the reader reports that
    return FrameTable(frame, known).codes, labels.column
