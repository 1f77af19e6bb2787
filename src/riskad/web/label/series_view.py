"""What a series did around a row: the points that the page draws, and which rows they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from riskad.app.report.charts import days
from riskad.core.checks import InputError
from riskad.tables.cells import Reader, check_columns
from riskad.tables.preparation import TablePreparer
from riskad.tables.windows import parse_span, read_seconds

_AROUND = 3  # windows, on each side of a row
_MOST_POINTS = 600
_MOST_LINES = 4
Floats = np.ndarray[Any, np.dtype[np.float64]]


class SeriesView:
    """The rows of a table by group and time.

    Examples
    --------
    >>> table = pl.DataFrame({"t": [120, 0, 60], "x": [3.0, 1.0, 2.0]})
    >>> view = SeriesView(table, {"time": "t", "window": "1m"}, None, TablePreparer().fit(table))
    >>> around = view.around(3, {})
    >>> around["rows"], around["lines"], around["caption"]
    ([2, 3, 1], [{'name': 'x', 'values': [1.0, 2.0, 3.0]}], '1970-01-01 00:00 to 1970-01-01 00:02')
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        cut: Mapping[str, Any],
        group: str | None,
        preparer: TablePreparer,
    ):
        self.frame, self.preparer = frame, preparer
        time, self.window = cut["time"], parse_span(cut["window"], "window")
        check_columns([time], frame.columns)
        self.seconds = read_seconds(frame[time])
        if not np.isfinite(self.seconds).any():
            raise InputError(f"Column {time!r} holds no moment: all cells are blank.")
        names = pl.Series([""] * frame.height) if group is None else Reader().read(frame[group])
        self.groups = names.fill_null("")
        self.group = self.groups.rank("dense").to_numpy()
        self.order = np.lexsort((self.seconds, self.group))  # blank moments come last
        self.place = np.argsort(self.order)
        self.names = [c.name for c in preparer.used() if c.kind == "number" and c.name != time]

    def around(self, row: int, labels: Mapping[int, str]) -> dict[str, Any] | None:
        """Return the points around a row, counted from 1; None if it has no moment."""
        place, moment = self.place[row - 1], self.seconds[row - 1]
        if not np.isfinite(moment):
            return None
        near = np.arange(max(0, place - _MOST_POINTS // 2), place + _MOST_POINTS // 2)
        near = self.order[near[near < len(self.order)]]
        reach = np.abs(self.seconds[near] - moment) <= _AROUND * self.window
        near = near[reach & (self.group[near] == self.group[row - 1])]
        parsed = self.preparer.parse(self.frame[near], quiet=True)
        when = days(self.seconds[near[0]], self.seconds[near[-1]])
        return {
            "caption": f"{name}, {when}" if (name := self.groups[row - 1]) else when,
            "rows": (near + 1).tolist(),
            "moments": (self.seconds[near] - moment).tolist(),
            "window": self.window,
            "labels": [labels.get(int(each) + 1, "") for each in near],
            "lines": [
                {"name": name, "values": parsed[name].cast(pl.Float64).fill_nan(None).to_list()}
                for name in self.names[:_MOST_LINES]
            ],
        }
