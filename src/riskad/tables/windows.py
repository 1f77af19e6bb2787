"""Time series as tables of windows: the rows of one group and one stretch of time become one row.

A window is made of panes of one step each: one of 1 h every 10 min has six. All that is known of a
window is a sum, a minimum or a maximum over its panes. So overlapping windows cost no more than
panes, and a window is the same whether its points come in one table or one by one.

For each column of numbers, with x_i the values at times t_i:

- level, spread, low, high: mean, standard deviation, minimum and maximum
- trend: slope of a line through the points, per window
- change, jump, flat: mean and largest |x_i - x_(i-1)|, and the share of those that are 0
- lag 1, 2, 3: autocorrelation 1 - mean (x_i - x_(i-k))^2 / (2 variance)
- cycles and rhythm: the main frequency within the window, and its share of the variance
- blank: share of blank cells
- beside the weeks before (4, same weekday and hour), the days before (7, same hour) and the hours
  before (6 windows): pane by pane, the level minus the median level of these panes, its mean and
  its root mean square, which is the error of a seasonal naive forecast; and the mean logarithm of
  the spread, minus its median

- forecast error, mean and largest: of x_i minus the median level of its pane in the days before, as
  a linear function of the six points before, with coefficients learned from the first table

The same over all columns at once, from the largest error of each point in units of the usual ones:
what shows in one of many columns must not drown among the features of all.

For two columns of numbers their correlation, for a category the share of each level and of changes,
for the clock the number of points and the longest gap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

import numpy as np
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from scipy.fft import rfft

from riskad.core.checks import InputError, quoted
from riskad.files import fields
from riskad.files.fields import TEXT, Array, DictOf, ListOf, Maybe, Record, State, require
from riskad.rows.date_features import DAY
from riskad.tables.cells import Reader, as_polars, check_columns
from riskad.tables.formats.moments import to_seconds
from riskad.tables.notes import note, pluralize
from riskad.tables.preparation import TablePreparer
from riskad.tables.profiling import Look

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Sums: TypeAlias = dict[str, Floats]  # each (columns, panes or windows)

END = "window_end"
"""The column of a table of windows that holds the first moment after each."""

_UNITS = {"w": 7 * DAY, "d": DAY, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_LAGS = (1, 2, 3)
MEMORY = 6
"""Points before a window that its features depend on, at most: those of a forecast."""
_BINS = 32  # of a window, for its main frequency: enough for 16 cycles
_FEWEST_BINS = 8
_MOST_LEVELS = 8  # of a category; all others share one column
_MOST_PAIRED = 8  # columns whose correlations are computed: 28 pairs
_MOST_PANES = 500  # in a window
_NO_SPREAD = 1e-12  # of the variance, on the common scale
_MOST_LEARNED = 50_000  # points that the coefficients of forecasts are learned from
_LEAST_ERROR = 1e-6  # of a forecast, on the common scale
_LEAST_SPREAD = 1e-3  # added before a logarithm: a stuck sensor has no spread at all
_DAILY = "the days before"
# Earlier panes to compare with: seconds (0 for a window), how many, and none older than so many
# rounds: a gap is filled by the round before it.
_EARLIER = {
    "the weeks before": (7 * DAY, 4, 6),
    _DAILY: (DAY, 7, 10),
    "the hours before": (0.0, 6, 9),
}


def parse_span(text: str | float, name: str) -> float:
    """Return seconds: of "1h", "10m", "30s", "7d", or of a number of seconds.

    >>> parse_span("10m", "step"), parse_span("1.5 h", "window")
    (600.0, 5400.0)
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(text).lower())
    unit = _UNITS.get(match[2] or "s") if match else None
    seconds = float(match[1]) * unit if match and unit else 0.0
    if not 1e-3 <= seconds <= 3660 * DAY:
        raise InputError(
            f"{name}={quoted(str(text))} is no length of time. Give a number and a unit: 30s, 10m, "
            "1h, 7d, 4w."
        )
    return seconds


def show_span(seconds: float) -> str:
    """Return a length of time in its largest unit.

    >>> show_span(5400), show_span(172_800), show_span(2_000_000_000)
    ('1.5h', '2d', '3,310w')
    """
    unit = next((unit for unit in "wdhm" if seconds >= _UNITS[unit]), "s")
    return f"{float(f'{seconds / _UNITS[unit]:.3g}'):,g}{unit}"


@dataclass(frozen=True)
class Points:
    """Points of one or more series, in the order of their group and time."""

    groups: list[str]
    group: Integers  # place in `groups`
    seconds: Floats
    numbers: Floats  # (points, columns), NaN if blank
    categories: Integers  # (points, columns), -1 if blank
    rows: Integers  # of the table they come from


@dataclass(frozen=True)
class Panes:
    """Sums over the points of each pane that has any, in the order of group and time.

    Panes lie on one line, on which those of the same series keep their distance, up to a window,
    and two series are a window apart: so a window is `width` places, and holds one series.
    """

    group: Integers
    number: Integers  # it starts this number of steps after 1970
    first: Integers  # its first point
    points: Integers
    place: Integers  # on the line
    width: int
    sums: Sums

    def on_line(self, values: Floats, start: float = 0.0) -> Floats:
        """Put values of panes on the line; `start` stands for a pane without points."""
        line = np.full((*values.shape[:-1], int(self.place[-1]) + self.width), start)
        line[..., self.place] = values
        return line

    def over_windows(self, sums: Sums, place: Any) -> Sums:
        """Join sums over the panes of windows, by the place of the first pane of each.

        Stretches of 1, 2, 4, ... panes are joined to those of a window. The order of the additions
        does not depend on the place, so that a window is the same in any table.
        """
        windows: Sums = {}
        timed = [name for name in _TIMED if "u" in sums]
        for names in [timed, *([name] for name in sums if name not in timed)]:
            stretch = {k: self.on_line(sums[k], _START.get(k, 0.0)) for k in names}
            joined, length, size = dict[str, Floats](), 0, 1
            while size <= self.width:
                if self.width & size:
                    joined = _join(joined, stretch, length) if length else stretch
                    length += size
                size *= 2
                if size <= self.width:
                    stretch = _join(stretch, stretch, size // 2)
            windows |= {name: values[..., place] for name, values in joined.items()}
        return windows


_TIMED = ("n", "u", "uu", "x", "ux")  # which time must be joined with
_JOIN: dict[str, Any] = {"low": np.minimum} | dict.fromkeys(
    ("high", "jump", "gap", "worst"), np.maximum
)
_START = {"low": np.inf, "high": -np.inf}


def _join(first: Sums, second: Sums, shift: int) -> Sums:
    """Join sums over stretches with those over the stretches that begin `shift` panes later."""
    later = {name: values[..., shift:] for name, values in second.items()}
    joined = {
        name: _JOIN.get(name, np.add)(first[name][..., : values.shape[-1]], values)
        for name, values in later.items()
    }
    if "u" in joined:  # times are those since the start of the first stretch
        joined["uu"] += 2 * shift * later["u"] + shift * shift * later["n"]
        joined["u"] += shift * later["n"]
        joined["ux"] += shift * later["x"]
    return joined


@dataclass(frozen=True, eq=False)
class History:
    """Levels of panes, and logarithms of their spreads: what later panes are compared with."""

    group: Annotated[Integers, Array("i", ("panes",), low=0)]
    number: Annotated[Integers, Array("i", ("panes",))]
    values: Annotated[Floats, Array("f", ("panes", None), gaps=True)]  # of all columns, twice

    def rows(self, chosen: Any) -> History:
        """Return some of the panes."""
        return History(self.group[chosen], self.number[chosen], self.values[chosen])

    def followed_by(self, later: History, n_groups: int) -> tuple[History, NDArray[np.bool_]]:
        """Return these panes, up to the first later one of each group, and the later ones."""
        first = np.full(n_groups, np.iinfo(np.int64).max)
        np.minimum.at(first, later.group, later.number)
        old = self.rows(self.number < first[self.group])
        group, number = np.append(old.group, later.group), np.append(old.number, later.number)
        order = np.lexsort((number, group))
        values = np.append(old.values, later.values, axis=0)
        both = History(group, number, values).rows(order)
        return both, both.number >= first[both.group]

    def compared(self, steps: int, count: int, oldest: int) -> Floats:
        """Values of each pane minus the medians of those 1, 2, ... times `steps` before.

        Panes `steps` apart follow each other once panes are sorted by their phase.
        """
        phase = self.number % steps
        order = np.lexsort((self.number, phase, self.group))
        group, phase, number = self.group[order], phase[order], self.number[order]
        difference = np.empty(self.values.shape)
        for column, values in zip(difference.T, self.values[order].T, strict=True):
            before = np.full((len(values), count), np.nan)
            for i in range(1, count + 1):
                same = (group[i:] == group[:-i]) & (phase[i:] == phase[:-i])
                same &= number[i:] - number[:-i] <= oldest * steps
                before[i:, i - 1] = np.where(same, values[:-i], np.nan)
            column[order] = values - _median(before)
        return difference


def _median(values: Floats) -> Floats:
    """Median over the last axis without blanks, NaN if all are; faster than NumPy's for few."""
    n = (~np.isnan(values)).sum(axis=-1)[..., None]
    ordered = np.sort(values, axis=-1)  # NaN last
    low = np.take_along_axis(ordered, np.maximum((n - 1) // 2, 0), -1)
    high = np.take_along_axis(ordered, np.minimum(n // 2, values.shape[-1] - 1), -1)
    return np.where(n > 0, (low + high) / 2, np.nan)[..., 0]


def _ratio(a: Floats, b: Floats) -> Floats:
    return np.divide(a, b, out=np.full(np.broadcast(a, b).shape, np.nan), where=b > 0)


# --- a table of windows ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Windows of a table, and which of its rows each holds."""

    frame: pl.DataFrame
    """A row for each window: its group, if there are any, its start and end, and its features."""
    features: list[str]
    points: Points
    panes: Panes
    group: Integers  # of each window
    end: Integers  # number of the pane after it
    place: Integers  # of its first pane on the line of panes
    windower: Windower  # that cuts the points after these

    def over_points(self, values: Floats) -> Floats:
        """Return for each point the mean of the values of the windows that hold it."""
        width, size = self.panes.width, int(self.panes.place[-1]) + self.panes.width
        # Windows that hold a pane begin at most a window before it.
        line = np.zeros((2, size))
        line[:, self.place + width - 1] = values, np.ones(len(values))
        whole = replace(self.panes, place=np.arange(size))
        sums, counts = whole.over_windows({"s": line}, slice(None))["s"]
        return np.repeat((sums / np.maximum(counts, 1))[self.panes.place], self.panes.points)

    def highest(self, points: Integers, values: Floats) -> Integers:
        """Return for each point the window with the highest value of those that hold it."""
        panes = self.panes.place[np.searchsorted(self.panes.first, points, "right") - 1]
        first = np.searchsorted(self.place, panes - self.panes.width + 1)
        last = np.searchsorted(self.place, panes, "right")
        pairs = zip(first, last, strict=True)
        return np.array([a + values[a:b].argmax() for a, b in pairs], dtype=np.int64)

    def middles(self) -> Integers:
        """Return for each window a row of the table near its middle."""
        panes, width = self.panes, self.panes.width
        pane = np.searchsorted(panes.place, self.place + width // 2)
        beyond = np.append(panes.place, np.inf)[pane] >= self.place + width
        return self.points.rows[panes.first[pane - beyond]]

    def sum_points(self, values: Floats) -> Floats:
        """Return the sum over the points of each window."""
        sums = np.add.reduceat(values, self.panes.first)
        return self.panes.over_windows({"s": sums}, self.place)["s"]


@dataclass(frozen=True, eq=False)
class Windower:
    """Cuts tables of points into windows, as it learned from a first table."""

    time: str
    group: Annotated[str | None, Maybe(TEXT)]
    window: Annotated[float, fields.POSITIVE]
    step: Annotated[float, fields.POSITIVE]
    reader: Annotated[TablePreparer, Record(("TablePreparer",))]
    numbers: Annotated[list[str], ListOf(TEXT, "numbers")]
    centres: Annotated[list[float], ListOf(fields.NUMBER, "numbers")]
    scales: Annotated[list[float], ListOf(fields.POSITIVE, "numbers")]
    levels: Annotated[dict[str, list[str]], DictOf(TEXT, ListOf(TEXT))]
    groups: Annotated[list[str], ListOf(TEXT)]
    history: Annotated[History, Record(("History",))]
    # Of each number a constant, the weights of the points before, and the usual error.
    forecasts: Annotated[Floats, Array("f", ("numbers", MEMORY + 2))]

    @classmethod
    def _check_state(cls, state: State) -> None:
        history, n = state["history"], len(state["numbers"])
        used = {column.name for column in state["reader"].used()}
        require({state["time"], *state["numbers"], *state["levels"]} <= used, "reader: others")
        require(history.values.shape[1] == 2 * n, "history: other columns")
        require(bool((state["forecasts"][:, -1] > 0).all()), "forecasts: an error of 0")
        require(history.group.max(initial=-1) < len(state["groups"]), "history: of no group")

    def __post_init__(self) -> None:
        panes = self.window / self.step
        if abs(panes - round(panes)) > 1e-9 or not 1 <= round(panes) <= _MOST_PANES:
            raise InputError(
                f"window={show_span(self.window)} must be a multiple of "
                f"step={show_span(self.step)}, at most {_MOST_PANES} times as long."
            )

    @property
    def width(self) -> int:
        """Number of panes in a window."""
        return round(self.window / self.step)

    @classmethod
    def fit(
        cls,
        frame: Any,
        *,
        time: str | None,
        window: str | float,
        step: str | float | None = None,
        group: str | None = None,
        kinds: Mapping[str, str] | None = None,
        drop: Sequence[str] = (),
    ) -> Windows:
        """Learn from a table how to cut it, and return its windows."""
        frame, length = as_polars(frame), parse_span(window, "window")
        if time is None:
            raise InputError("window= needs time=, the column that says when each row was.")
        check_columns([time, *([] if group is None else [group])], frame.columns)
        frame = _in_utc(frame, time)
        written = Look.of(frame[time], 1).reader()
        if zone := getattr(written.format, "zone", ""):
            note(f"{time}: moments are by the clock of {zone}.")
        if written.word == "number":  # which might pass for a row number
            kinds = {time: "number", **(kinds or {})}
        reader = TablePreparer(kinds=kinds)
        out = [name for name in (group, *drop) if name in frame.columns and name != time]
        parsed = reader.fit_parse(frame.drop(out))
        if time not in parsed.columns:
            raise InputError(
                f"time={time!r} must order the rows: {reader.columns_[time].describe()}. Name the "
                f"column of moments, or say how they are written: --kind {time}=date:%d.%m.%Y."
            )
        numbers, levels = dict[str, pl.Series](), dict[str, list[str]]()
        for column in reader.used():
            cells = parsed[column.name]
            if column.name == time:
                continue
            if column.kind in ("number", "flag"):
                numbers[column.name] = cells.cast(pl.Float64)
            elif column.kind in ("category", "categories"):
                counts = cells.drop_nulls().rename("level").value_counts()
                counts = counts.sort("count", "level", descending=[True, False])
                levels[column.name] = counts["level"].to_list()[:_MOST_LEVELS]
        if not numbers and not levels:
            words = (f"  {n!r}: {c.describe()}" for n, c in reader.columns_.items() if n != time)
            lines = ["There is no column of numbers or categories to make windows of.", *words]
            raise InputError("\n".join(lines))
        nothing = np.empty(0, dtype=np.int64)
        windower = cls(
            time=time,
            group=group,
            window=length,
            step=length / 6 if step is None else parse_span(step, "step"),
            reader=reader,
            numbers=list(numbers),
            centres=[float(column.mean() or 0.0) for column in numbers.values()],  # type: ignore[arg-type]
            scales=[float(column.std() or 0.0) or 1.0 for column in numbers.values()],  # type: ignore[arg-type]
            levels=levels,
            groups=[],
            history=History(nothing, nothing, np.empty((0, 2 * len(numbers)))),
            forecasts=np.empty((len(numbers), MEMORY + 2)),  # learned from the points below
        )
        return windower._cut(frame, parsed, learn=True)

    def cut(self, frame: Any) -> Windows:
        """Return the windows of a table that follows the first one, or is like it."""
        frame = _in_utc(as_polars(frame), self.time)
        return self._cut(frame, self.reader.parse(frame, quiet=True))

    def panes_of(self, frame: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Return the number of the pane of each row, null without a moment, and its group."""
        moments = self.reader.parse(_in_utc(frame, self.time), quiet=True)[self.time]
        pane = pl.Series(np.floor(_as_seconds(moments) / self.step)).fill_nan(None).cast(pl.Int64)
        return pane, self._names(frame)

    def _names(self, frame: pl.DataFrame) -> pl.Series:
        """The name of the group of each row."""
        if self.group is None:
            return pl.Series([""] * frame.height, dtype=pl.String)
        return Reader().read(frame[self.group]).fill_null("")

    def _cut(self, frame: pl.DataFrame, parsed: pl.DataFrame, learn: bool = False) -> Windows:
        points = self._points(frame, parsed)
        x = (points.numbers - self.centres).T / np.array(self.scales)[:, None]
        panes = self._sum_panes(points, x)
        level = spread = np.empty((0, len(panes.first)))
        if self.numbers:
            n = np.where(panes.sums["n"] > 0, panes.sums["n"], np.nan)
            level = panes.sums["x"] / n
            spread = np.sqrt(np.maximum(panes.sums["xx"] / n - level**2, 0))
            spread = np.log(spread + _LEAST_SPREAD)
        own = History(panes.group, panes.number, np.concatenate([level, spread]).T)
        history, is_own = self.history.followed_by(own, len(points.groups))
        beside, reach = {}, 0.0
        for name, (period, count, oldest) in _EARLIER.items():
            steps = (period or self.window) / self.step
            reach = max(reach, steps * oldest + self.width)
            # Of steps that fit into a day, and windows that do.
            if steps == round(steps) >= self.width:
                beside[name] = history.compared(round(steps), count, oldest)[is_own].T
        forecasts, errors = self.forecasts, Sums()
        if self.numbers:
            if _DAILY in beside:
                usual = np.nan_to_num(level - beside[_DAILY][: len(level)])
                x -= np.repeat(usual, panes.points, axis=1)
            # Points that follow as many of their series as a forecast needs, not too far back.
            number, late = np.repeat(panes.number, panes.points), slice(MEMORY, None)
            has_past, old = np.zeros(x.shape[1], dtype=bool), slice(max(0, x.shape[1] - MEMORY))
            has_past[late] = points.group[late] == points.group[old]
            has_past[late] &= number[late] - number[old] <= 7 * DAY / self.step
            if learn:
                forecasts = _learn_forecasts(x, has_past)
            errors = _sum_errors(panes, x, has_past, forecasts)
        last = np.full(len(points.groups), -(2**62))
        np.maximum.at(last, history.group, history.number)
        later = replace(
            self,
            forecasts=forecasts,
            groups=points.groups,
            history=history.rows(history.number >= last[history.group] - reach),
        )
        group, end, place = self._place(panes)
        features = dict(later._features(panes, place, beside, errors))
        columns: dict[str, Any] = {}
        if self.group is not None:
            columns[self.group] = pl.Series(points.groups, dtype=pl.String).gather(group)
        for name, moments in ((self.time, end * self.step - self.window), (END, end * self.step)):
            microseconds = np.round(moments * 1e6).astype(np.int64)
            columns[name] = pl.Series(microseconds).cast(pl.Datetime("us"))
        columns |= {name: pl.Series(values).fill_nan(None) for name, values in features.items()}
        return Windows(
            pl.DataFrame(columns), list(features), points, panes, group, end, place, later
        )

    def _points(self, frame: pl.DataFrame, parsed: pl.DataFrame) -> Points:
        """Sort the points, and note what is unusual about their clock."""
        seconds = _as_seconds(parsed[self.time])
        blank = ~np.isfinite(seconds)
        if blank.all():
            raise InputError(f"Column {quoted(self.time)} holds no moment: all cells are blank.")
        names = self._names(frame)
        groups = list(dict.fromkeys([*self.groups, *names.unique(maintain_order=True)]))
        places = dict(zip(groups, range(len(groups)), strict=True))
        group = names.replace_strict(places, return_dtype=pl.Int64).to_numpy()
        order = np.lexsort((seconds, group))
        order = order[~blank[order]]
        self._note_clock(group, seconds, order)
        numbers = np.empty((len(self.numbers), len(order))).T  # columns are worked on one by one
        for j, name in enumerate(self.numbers):
            numbers[:, j] = parsed[name].cast(pl.Float64).fill_null(np.nan).to_numpy()[order]
        categories = np.empty((len(order), len(self.levels)), dtype=np.int64)
        for j, (name, levels) in enumerate(self.levels.items()):
            numbered = dict(zip(levels, range(len(levels)), strict=True))
            cells = parsed[name].cast(pl.String)
            codes = cells.replace_strict(numbered, default=len(levels), return_dtype=pl.Int64)
            categories[:, j] = np.where(cells.is_null(), -1, codes.fill_null(-1))[order]
        return Points(groups, group[order], seconds[order], numbers, categories, order)

    def _note_clock(self, group: Integers, seconds: Floats, order: Integers) -> None:
        """Note blank, unsorted and repeated moments, and gaps."""
        parts, n_blank = list[str](), len(seconds) - len(order)
        rows = np.sort(order)
        rows = rows[np.argsort(group[rows], kind="stable")]
        back = int((np.diff(seconds[rows])[np.diff(group[rows]) == 0] < 0).sum())
        ago = np.diff(seconds[order])[np.diff(group[order]) == 0]
        twice, gaps = int((ago == 0).sum()), int((ago > self.window).sum())
        if n_blank:
            parts.append(f"{pluralize(n_blank, 'row')} without a moment left out")
        if back:
            parts.append(f"it goes back {pluralize(back, 'time')}, so rows are sorted by it")
        if twice:
            parts.append(f"{pluralize(twice, 'moment')} as in the row before; all rows count")
        if gaps:
            longest = show_span(float(np.floor(ago.max())))
            parts.append(f"{pluralize(gaps, 'gap')} without a window, the longest of {longest}")
        if parts:
            note(f"{self.time}: {'; '.join(parts)}.")

    def _sum_panes(self, points: Points, x: Floats) -> Panes:
        """Sum the points of each pane, with `x` their numbers on a common scale, by column."""
        n, bins, group = len(points.seconds), max(1, _BINS // self.width), points.group
        number = np.floor(points.seconds / self.step).astype(np.int64)
        u = points.seconds / self.step - number  # where in the pane, from 0 to 1
        before = {}  # whether the point so many places before is of the same group
        for lag in _LAGS:
            before[lag] = np.append(np.zeros(lag, dtype=bool), group[lag:] == group[:-lag])[:n]
        first = np.flatnonzero(~before[1] | np.append(True, number[1:] != number[:-1]))
        counts = np.diff(np.append(first, n))

        def total(rows: Iterable[NDArray[Any]], join: Any = np.add) -> Floats:
            # Row by row: what is computed for one is still in the cache when it is summed.
            return np.stack([join.reduceat(row, first, dtype=np.float64) for row in rows])

        gaps = np.append(0.0, np.diff(points.seconds)) * before[1]
        sums: Sums = {"gap": total([gaps], np.maximum)}
        if self.numbers:
            filled = ~np.isnan(x)
            complete = bool(filled.all())
            x = np.where(filled, x, 0.0)
            # What depends on blanks alone is summed once for all columns if there are none.
            there = filled[:1] if complete else filled
            sums |= {
                "n": total(there),
                "u": total(t * u for t in there),
                "uu": total(t * u * u for t in there),
                "x": total(x),
                "xx": total(v * v for v in x),
                "ux": total(v * u for v in x),
                "low": total(x if complete else np.where(filled, x, np.inf), np.minimum),
                "high": total(x if complete else np.where(filled, x, -np.inf), np.maximum),
            }
            for lag, same in before.items():
                both = there & same
                both[:, lag:] &= there[:, :-lag]
                moves = np.zeros(x.shape)
                np.subtract(x[:, lag:], x[:, :-lag], out=moves[:, lag:], where=both[:, lag:])
                sums[f"m{lag}"] = total(both)
                sums[f"d{lag}"] = total(d * d for d in moves)
                if lag == 1:
                    sums["d"] = total(map(np.abs, moves))
                    sums["jump"] = total(map(np.abs, moves), np.maximum)
                    sums["d0"] = total(both & (moves == 0))
            if self.width * bins >= _FEWEST_BINS:
                place = np.repeat(np.arange(len(first)), counts) * bins
                place += np.minimum((u * bins).astype(np.int64), bins - 1)
                for name, values in (("bn", there), ("bx", x)):
                    sums[name] = np.stack(
                        [np.bincount(place, v, len(first) * bins) for v in values]
                    )
            if pairs := self._pairs():
                sums["xy"] = total(x[i] * x[j] for i, j in pairs)
        states = []
        for codes, levels in zip(points.categories.T, self.levels.values(), strict=True):
            states += [codes == level for level in range(len(levels) + 1)]
            states.append(before[1] & np.append(False, codes[1:] != codes[:-1]))
        if states:
            sums["c"] = total(states)
        steps = np.minimum(np.diff(number[first]), self.width)
        steps[np.diff(group[first]) != 0] = self.width
        return Panes(
            group=group[first],
            number=number[first],
            first=first,
            points=counts,
            place=np.cumsum(np.append(self.width - 1, steps)),
            width=self.width,
            sums=sums,
        )

    def _pairs(self) -> list[tuple[int, int]]:
        n = len(self.numbers) if len(self.numbers) <= _MOST_PAIRED else 0
        return [(i, j) for i in range(n) for j in range(i)]

    def _place(self, panes: Panes) -> tuple[Integers, Integers, Integers]:
        """Group, end and place of each window with a point, between the ends of its group.

        The first window of a group starts with its first pane, unless the group is shorter.
        """
        starts = np.flatnonzero(np.append(True, panes.group[1:] != panes.group[:-1]))
        last = panes.place[np.append(starts[1:], len(panes.place)) - 1]
        least = np.minimum(panes.place[starts] + self.width - 1, last)
        ends = np.concatenate([np.arange(a, b + 1) for a, b in zip(least, last, strict=True)])
        pane = np.searchsorted(panes.place, ends, "right") - 1  # the last one of the window
        end = panes.number[pane] + ends - panes.place[pane] + 1
        return panes.group[pane], end, ends - self.width + 1

    def _features(
        self, panes: Panes, place: Integers, beside: Mapping[str, Floats], errors: Sums
    ) -> Iterator[tuple[str, Floats]]:
        """Yield the name and the values of each feature."""
        sums = {name: values for name, values in panes.sums.items() if name not in ("bx", "bn")}
        sums |= errors | {"points": panes.points.astype(float)[None]}
        for name, differences in beside.items():
            level, log_spread = np.split(differences, 2)
            sums[f"{name}: n"] = (~np.isnan(level)).astype(float)
            for what, values in (("d", level), ("dd", level**2), ("s", log_spread)):
                sums[f"{name}: {what}"] = np.nan_to_num(values)
        joined = panes.over_windows(sums, place)
        points = joined["points"][0]
        yield "points", points
        yield "longest gap", joined["gap"][0]
        if self.numbers:
            yield from self._number_features(panes, place, joined, list(beside))
        names = list[str]()
        for column, levels in self.levels.items():
            names += [f"{column}: share of {level}" for level in [*map(quoted, levels), "others"]]
            names.append(f"{column}: changes")
        for name, count in zip(names, joined.get("c", ()), strict=True):
            yield name, count / points

    def _number_features(
        self, panes: Panes, place: Integers, sums: Sums, beside: Sequence[str]
    ) -> Iterator[tuple[str, Floats]]:
        scale, centre = np.array(self.scales)[:, None], np.array(self.centres)[:, None]
        n, t, moves = sums["n"], sums["u"], sums["m1"]
        mean = _ratio(sums["x"], n)
        variance = np.maximum(_ratio(sums["xx"], n) - mean**2, 0)
        spread = np.sqrt(variance)
        times = sums["uu"] - t * _ratio(t, n)
        times = np.where(times > _NO_SPREAD * sums["uu"], times, 0)  # one moment has no trend
        slope = _ratio(sums["ux"] - t * mean, times) * self.width
        low = np.where(n > 0, sums["low"], np.nan)
        high = np.where(n > 0, sums["high"], np.nan)
        jump = np.where(moves > 0, sums["jump"], np.nan)
        parts: dict[str, Floats] = {
            "level": mean * scale + centre,
            "spread": spread * scale,
            "low": low * scale + centre,
            "high": high * scale + centre,
            "trend": slope * scale,
            "change": _ratio(sums["d"], moves) * scale,
            "jump": jump * scale,
            "flat": _ratio(sums["d0"], moves),
            "blank": np.broadcast_to(1 - n / sums["points"], mean.shape),
        }
        doubled = 2 * np.where(variance > _NO_SPREAD, variance, 0)
        for lag in _LAGS:
            squares = _ratio(sums[f"d{lag}"], sums[f"m{lag}"])
            parts[f"lag {lag}"] = np.clip(1 - _ratio(squares, doubled), -1, 1)
        if "bx" in panes.sums:
            parts["cycles"], parts["rhythm"] = _main_frequency(panes, place, mean)
        for name in beside:
            n_beside = sums[f"{name}: n"]
            parts[f"level beside {name}"] = _ratio(sums[f"{name}: d"], n_beside) * scale
            error = np.sqrt(_ratio(sums[f"{name}: dd"], n_beside))
            parts[f"error beside {name}"] = error * scale
            parts[f"spread beside {name}"] = _ratio(sums[f"{name}: s"], n_beside)
        unit, error = self.forecasts[:, -1:] * scale, _ratio(sums["e"], sums["en"])
        worst = np.where(sums["en"] > 0, sums["worst"], np.nan)
        parts["forecast error"] = error[:-1] * unit
        parts["largest forecast error"] = worst[:-1] * unit
        for j, column in enumerate(self.numbers):
            for what, values in parts.items():
                yield f"{column}: {what}", values[j]
        if len(self.numbers) > 1:
            yield "all columns: forecast error", error[-1]
            yield "all columns: largest forecast error", worst[-1]
        for p, (i, j) in enumerate(self._pairs()):
            some = np.minimum(n[i % len(n)], n[j % len(n)])
            covariance = _ratio(sums["xy"][p], some) - mean[i] * mean[j]
            size = spread[i] * spread[j]
            r = _ratio(covariance, np.where(size > _NO_SPREAD, size, 0))
            yield f"{self.numbers[j]} and {self.numbers[i]}: correlation", np.clip(r, -1, 1)


def _learn_forecasts(deviations: Floats, has_past: NDArray[np.bool_]) -> Floats:
    """Of each column a constant and the weights of the points before, and the usual error."""
    some = np.flatnonzero(has_past)
    some = some[:: -(-len(some) // _MOST_LEARNED) or 1]
    forecasts = np.zeros((len(deviations), MEMORY + 2))
    forecasts[:, -1] = 1.0
    for row, values in zip(forecasts, deviations, strict=True):
        x = values[some[:, None] - np.arange(MEMORY + 1)]  # a point, and those before it
        x = x[~np.isnan(x).any(axis=1)]
        if len(x):
            past = np.column_stack([np.ones(len(x)), x[:, 1:]])
            row[:-1] = np.linalg.lstsq(past, x[:, 0])[0]
            errors = np.abs(x[:, 0] - past @ row[:-1])
            # The median is 0 in a column that mostly stays as it is, such as rain or a flag.
            spread = float(np.sqrt(np.mean(errors**2)))
            row[-1] = max(float(np.median(errors)), spread / 3, _LEAST_ERROR)
    return forecasts


def _sum_errors(
    panes: Panes, deviations: Floats, has_past: NDArray[np.bool_], forecasts: Floats
) -> Sums:
    """Errors of the points of panes in units of the usual ones, and last the worst of a point."""
    n = deviations.shape[1]
    errors = np.empty((len(deviations) + 1, n))
    for i, (constant, *weights, usual) in enumerate(forecasts):
        past = np.append(np.full(MEMORY, np.nan), deviations[i])
        forecast = np.full(n, constant)
        for ago, weight in enumerate(weights, 1):
            forecast += weight * past[MEMORY - ago : MEMORY - ago + n]
        errors[i] = np.abs(deviations[i] - forecast) / usual
    errors[:, ~has_past] = np.nan
    np.fmax.reduce(errors[:-1], out=errors[-1])
    there = ~np.isnan(errors)
    errors[~there] = 0.0
    return {
        "e": np.add.reduceat(errors, panes.first, axis=1),
        "en": np.add.reduceat(there, panes.first, axis=1, dtype=np.float64),
        "worst": np.maximum.reduceat(errors, panes.first, axis=1),
    }


def _main_frequency(panes: Panes, place: Integers, mean: Floats) -> tuple[Floats, Floats]:
    """The main frequency, in cycles per window, and its share of the variance."""
    cycles, rhythm = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
    bins = panes.sums["bx"].shape[1] // len(panes.place)

    def of_windows(sums: Floats) -> Floats:
        line = panes.on_line(sums.reshape(-1, bins).T).T.ravel()
        return sliding_window_view(line, panes.width * bins)[place * bins]

    counts = [of_windows(sums) for sums in panes.sums["bn"]]
    for j, sums in enumerate(panes.sums["bx"]):
        x, n = of_windows(sums), counts[j % len(counts)]
        # A bin without a point holds the mean: it adds nothing to any frequency.
        filled = n > 0
        enough = filled.sum(axis=-1) >= filled.shape[-1] / 2
        x = np.divide(x, n, out=np.broadcast_to(mean[j, :, None], x.shape).copy(), where=filled)
        power = np.abs(rfft(np.where(enough[:, None], x, 0), axis=-1)[:, 1:]) ** 2
        total, top = power.sum(axis=-1), power.max(axis=-1)
        enough &= total > _NO_SPREAD
        cycles[j, enough] = power.argmax(axis=-1)[enough] + 1.0
        rhythm[j, enough] = (top / np.where(total > 0, total, 1))[enough]
    return cycles, rhythm


def zone_of(column: pl.Series) -> str:
    """The zone by whose clock moments are written, if they say so."""
    return getattr(Look.of(column, 1).reader().format, "zone", "")


def read_seconds(column: pl.Series, zone: str = "") -> Floats:
    """Seconds since 1970 of a column as it was written, NaN if blank; `zone` replaces its own."""
    if column.null_count() == len(column):
        return np.full(len(column), np.nan)
    reader = Look.of(column, 1).reader()
    if zone and getattr(reader.format, "zone", ""):
        reader = replace(reader, format=replace(reader.format, zone=zone))
    return _as_seconds(reader.read(column))


def _as_seconds(column: pl.Series) -> Floats:
    """Seconds since 1970 of moments, or of numbers that count seconds, or thousandths of them."""
    is_number = column.dtype.is_numeric()
    if not is_number and not column.dtype.is_temporal():
        raise InputError(
            f"Column {quoted(column.name)} holds neither dates nor numbers. Name the column of "
            f"moments, or say how they are written: --kind {column.name}=date:%d.%m.%Y."
        )
    seconds = column.cast(pl.Float64) if is_number else to_seconds(column)
    values = seconds.fill_null(np.nan).to_numpy().astype(np.float64)
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0) if is_number else 0.0
    for unit, least in ((1e9, 1e17), (1e6, 1e14), (1e3, 1e11)):
        if largest >= least:  # seconds would be of the year 5138 or later
            return values / unit
    return values


def _in_utc(frame: pl.DataFrame, time: str) -> pl.DataFrame:
    """Hours that a clock skips or repeats in spring and autumn are as long as any other in UTC."""
    if getattr(frame.schema.get(time), "time_zone", None) is None:
        return frame
    return frame.with_columns(pl.col(time).dt.convert_time_zone("UTC"))


def windows(
    frame: Any,
    *,
    time: str,
    window: str | float,
    step: str | float | None = None,
    group: str | None = None,
    kinds: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
) -> pl.DataFrame:
    """Turn a table of points in time into a table of windows, with features of each.

    Parameters
    ----------
    frame
        A table with a row for each point; rows need not be sorted, nor come at regular times.
    time
        Column of moments: dates, or numbers that count seconds or thousandths of them.
    window, step
        Length of a window, and time from one to the next: "1h", "10m"; by default a sixth.
    group
        Column that names the series of each row, a machine for instance.
    kinds, drop
        Kinds of columns, and columns to ignore, as in `riskad.FitSpec`.

    Examples
    --------
    >>> points = pl.DataFrame({"t": range(0, 7200, 60), "x": [0.0, 1.0] * 60})
    >>> windows(points, time="t", window="1h", step="30m").select("t", "points", "x: level")
    shape: (3, 3)
    ┌─────────────────────┬────────┬──────────┐
    │ t                   ┆ points ┆ x: level │
    │ ---                 ┆ ---    ┆ ---      │
    │ datetime[μs]        ┆ f64    ┆ f64      │
    ╞═════════════════════╪════════╪══════════╡
    │ 1970-01-01 00:00:00 ┆ 60.0   ┆ 0.5      │
    │ 1970-01-01 00:30:00 ┆ 60.0   ┆ 0.5      │
    │ 1970-01-01 01:00:00 ┆ 60.0   ┆ 0.5      │
    └─────────────────────┴────────┴──────────┘
    """
    return Windower.fit(
        frame, time=time, window=window, step=step, group=group, kinds=kinds, drop=drop
    ).frame
