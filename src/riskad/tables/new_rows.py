"""Only rows that have not been scored yet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.columns import check_columns
from riskad.tables.hive import hive_columns
from riskad.tables.targets import Target

__all__ = ["NewRows", "Since"]

AUTO = "auto"
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")
_MONTH = re.compile(r"\d{4}-\d{2}")


@dataclass(frozen=True)
class Since:
    """Which rows to look at: all, or those in which a column has at least some value.

    >>> Since.read("auto"), Since.read("day=2026-11-17")
    (Since(column=None, value=''), Since(column='day', value='2026-11-17'))
    """

    column: str | None = None
    value: str = ""

    @classmethod
    def read(cls, said: str) -> Since:
        """Return the rule of a spelling."""
        if said.strip() == AUTO:
            return cls()
        column, equals, value = said.partition("=")
        if not (column.strip() and equals and value.strip()):
            raise InputError(
                f"since={said!r} must be 'auto', for rows that are not there yet, or a column and "
                "the value from which on to look at rows: day=2026-11-17."
            )
        since = cls(column.strip(), value.strip())
        if _DATE.match(since.value) and not _is_date(since.value):
            raise since._refused(f"there is no day {since.value!r}")
        return since

    def _refused(self, why: str) -> InputError:
        return InputError(
            f"since='{self.column}={self.value}': {why}. Write numbers as 1234.5 and dates as "
            "2026-11-17, in the column and here."
        )

    def files(self, paths: Sequence[Path]) -> list[Path]:
        """Return the files that may hold such rows, by folders such as day=2026-11-16."""
        return [path for path in paths if not self._is_before(hive_columns(path))]

    def _is_before(self, told: dict[str, str | None]) -> bool:
        value = told.get(self.column or "")
        return value is not None and value < self.value

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows, without those in which the column is blank."""
        if self.column is None:
            return frame
        check_columns([self.column], frame.columns)
        values = frame[self.column]
        try:
            if values.dtype.is_temporal():
                return frame.filter(values >= pl.Series([self.value]).str.to_datetime()[0])
            if values.dtype.is_numeric():
                return frame.filter(values >= float(self.value))
        except (ValueError, pl.exceptions.PolarsError):
            why = f"the column holds {values.dtype}, and {self.value!r} is none"
            raise self._refused(why) from None
        return self._by_text(frame, values.cast(pl.String).str.strip_chars())

    def _by_text(self, frame: pl.DataFrame, texts: pl.Series) -> pl.DataFrame:
        """Compare cells of a CSV, which are all texts, as numbers or dates if they spell these.

        Refuse cells that are not written like the value: they could not be compared with it.
        """
        written = texts.filter((texts != "").fill_null(False))
        try:
            least = float(self.value)
        except ValueError:
            is_date = written.str.contains(_DATE.pattern)
            odd = written.filter(~is_date if _DATE.match(self.value) else is_date)
            if len(odd) and not _MONTH.fullmatch(self.value):
                why = f"the column holds {quoted(odd[0])}, which is written otherwise"
                raise self._refused(why) from None
            return frame.filter(texts >= self.value)
        numbers = texts.cast(pl.Float64, strict=False)
        if len(written) and numbers.null_count() == len(numbers):
            raise self._refused(f"the column holds {quoted(written[0])}, which is no number")
        return frame.filter(numbers >= least)


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


class NewRows:
    """The rows of a table that a target lacks; can be read repeatedly, with the same rows.

    `skipped` counts the others, once they have been read.
    """

    def __init__(self, batches: Iterable[pl.DataFrame], since: Since, target: Target):
        self._batches, self._since, self._target = batches, since, target
        self.skipped = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        self.skipped = 0
        for batch in self._batches:
            new = self._target.lacking(self._since.rows(batch))
            self.skipped += batch.height - new.height
            yield new
