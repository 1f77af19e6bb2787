"""Labels, scores and alarms of windows on the clock of their series.

A person marks incidents in time and wants alarms in time; a detector learns from windows and scores
windows. Between the two: `window_codes` and `stretches` on the way in, `Alarms` on the way out.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import gcd
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.spec import FitSpec
from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, count_labels
from riskad.rows.date_features import DAY
from riskad.tables.cells import as_polars, check_columns, to_text
from riskad.tables.labelled import FrameTable, LabelledTable, TrainingSample
from riskad.tables.notes import catch_kinds, note, pluralize
from riskad.tables.preparation import TablePreparer
from riskad.tables.windows import Windower, Windows, read_seconds, show_span, zone_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LONGEST = 10  # windows, end to end, in a stretch of normal ones: enough for folds, and for gaps
_HOURS = 6  # of the day, at least, of windows that are learned as normal
_BINS = 300  # of a picture: more than a page has room for would be drawn over each other
_COLUMNS, _WHOLE, _CLOSE = 3, 2, 3  # in a picture; series drawn as a whole, events drawn closely


def window_codes(windows: Windows, codes: Codes, enough: float = FitSpec.enough) -> Codes:
    """Return the label of each window, from those of the rows of the table.

    Consecutive anomalies are an incident. A window is an anomaly if it holds `enough` of one, or if
    enough of it is anomalies: short incidents count as well as long ones. It is normal if it holds
    no anomaly and enough of its rows are labelled normal. All others are unlabelled, such as those
    at the edge of an incident.
    """
    points, n = windows.points, windows.frame["points"].to_numpy()
    of_point = np.asarray(codes)[points.rows]
    is_anomaly = of_point == ANOMALY
    anomalies = windows.sum_points(is_anomaly.astype(float))
    normals = windows.sum_points((of_point == NORMAL).astype(float))
    new = np.append(True, is_anomaly[1:] & (~is_anomaly[:-1] | (np.diff(points.group) != 0)))
    incident = np.where(is_anomaly, np.cumsum(new & is_anomaly), 0)
    sizes = np.bincount(incident)
    # An incident that begins and ends within a window weighs 1 there, wherever its points are.
    weights = np.where(is_anomaly, 1 / sizes[incident], 0.0)
    held = windows.sum_points(weights)
    result = np.full(len(n), UNLABELLED, dtype=np.int16)
    result[(anomalies == 0) & (normals >= enough * n)] = NORMAL
    result[(anomalies > 0) & ((anomalies >= enough * n) | (held >= enough - 1e-9))] = ANOMALY
    return result


def stretches(windows: Windows, codes: Codes) -> tuple[Codes, Integers]:
    """Return labels and the stretch of each window: labels of two stretches share no point.

    Labelled windows of one kind that overlap are one stretch: an incident, which counts once. A
    stretch of normal windows ends after ten times the length of a window. Normal windows that
    overlap another stretch lose their label, so that folds of stretches have a gap of a window.
    Unlabelled windows that overlap a stretch are held out with it; any other is one of its own.
    """
    codes, width, end = np.array(codes), windows.panes.width, _on_one_line(windows)
    # An incident keeps its labels; normal windows that reach into it do not.
    codes[(codes == NORMAL) & _near(end, codes == ANOMALY, width)] = UNLABELLED
    stretch, count = np.full(len(codes), -1, dtype=np.int64), 0
    first = last = -np.inf
    for i in np.flatnonzero(codes != UNLABELLED):  # in the order of time
        if end[i] - last >= width:
            first, count = end[i], count + 1
        elif codes[i] == NORMAL and end[i] - first >= _LONGEST * width:
            codes[i] = UNLABELLED  # the gap before the next stretch
            continue
        last, stretch[i] = end[i], count - 1
    marked = np.flatnonzero(stretch >= 0)
    if len(marked):
        for place in _nearest(np.arange(len(marked)), np.searchsorted(end[marked], end)).T:
            near = marked[place]
            free = (stretch < 0) & (np.abs(end - end[near]) < width)
            stretch[free] = stretch[near[free]]
    alone = stretch < 0
    stretch[alone] = count + np.arange(alone.sum())
    return codes, stretch


def codes_to_learn(windows: Windows, codes: Codes) -> Codes:
    """Return labels to learn from, in which some windows that nobody marked are normal.

    Incidents are rare, and the few stretches that a person marked as normal do not show all that
    is: a weekend, a drift, other weather. So unlabelled windows that share no point with each
    other, nor with a labelled window, are learned as normal if any incident is marked. What is
    measured and decided rests on the labels of the person alone.
    """
    width, end = windows.panes.width, _on_one_line(windows)
    if not (codes == ANOMALY).any():
        return codes
    # A little more than a window apart: they are of many hours of the day, if there are as many.
    day = max(1, round(DAY / windows.windower.step))
    apart = next(n for n in itertools.count(width + 1) if day // gcd(n, day) >= min(_HOURS, day))
    free = (codes == UNLABELLED) & ~_near(end, codes != UNLABELLED, width)
    return np.where(free & (end % apart == 0), NORMAL, codes)


def _on_one_line(windows: Windows) -> Integers:
    """The ends of windows, with all series on one line, more than a window apart."""
    return windows.end + windows.group * (np.ptp(windows.end) + windows.panes.width)


def _near(end: Integers, which: NDArray[np.bool_], width: int) -> NDArray[np.bool_]:
    """Whether windows overlap one of some, by their ends on one line."""
    if not which.any():
        return np.zeros(len(end), dtype=bool)
    return np.abs(end[:, None] - _nearest(end[which], end)).min(axis=1) < width


def _nearest(places: Integers, values: Integers) -> Integers:
    """The last of the sorted places before each value, and the first that is not: (values, 2)."""
    after = np.searchsorted(places, values)
    last = len(places) - 1
    return np.stack([places[np.clip(after - 1, 0, last)], places[np.clip(after, 0, last)]], axis=1)


def find_events(windows: Windows, is_anomaly: NDArray[np.bool_], scores: Floats) -> pl.DataFrame:
    """Return alarms merged into events, by the flags and scores of points, in their order.

    Flagged points that are less than a window apart are one event. It has its first and its last
    point, that with the highest score, and this score.
    """
    points, flagged = windows.points, np.flatnonzero(is_anomaly)
    new = np.diff(points.seconds[flagged], prepend=-np.inf) >= windows.windower.window
    new |= np.diff(points.group[flagged], prepend=-1) != 0
    first = np.flatnonzero(new)
    peak = flagged[np.lexsort((-scores[flagged], np.cumsum(new)))[first]]
    last = flagged[np.append(first[1:], len(flagged))[: len(first)] - 1]
    numbers = {"first_point": flagged[first], "last_point": last, "peak_point": peak}
    return pl.DataFrame(numbers | {"score": scores[peak]})


def first_of_events(
    windower: Windower,
    frame: pl.DataFrame,
    ranked: pl.DataFrame,
    marked: NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """Return ranked rows of a table of windows, without those of an event of one before.

    Flagged windows that overlap, also through `marked` ones, are an event. So is any other window
    with those that overlap it. The first column of `ranked` counts rows from 1.
    """
    rows = ranked.to_series(0).to_numpy() - 1
    flagged = np.zeros(frame.height, dtype=bool) if marked is None else marked.copy()
    flagged[rows] |= ranked["is_anomaly"].to_numpy()
    start = frame[windower.time].dt.epoch("us").to_numpy() / 1e6
    if windower.group is not None:  # all series on one line, further apart than windows
        names = frame[windower.group].fill_null("").rank("dense").to_numpy()
        start = start + names * (np.ptp(start) + 2 * windower.window)
    order = np.argsort(start, kind="stable")
    line, least = start[order], windower.window - windower.step / 2
    events = order[flagged[order]]
    event = np.zeros(frame.height, dtype=np.int64)  # its number, from 1
    event[events] = np.cumsum(np.diff(start[events], prepend=-np.inf) >= least)
    free, first = np.full(frame.height, True), list[int]()
    for place, row in enumerate(rows):
        if free[row]:
            first.append(place)
            a, b = np.searchsorted(line, [start[row] - least, start[row] + least])
            free[order[a:b]] = False
            if event[row]:
                free[event == event[row]] = False
    return ranked[first]


def mark_spans(
    frame: Any, spans: Any, *, time: str, group: str | None = None, label: str = "label"
) -> pl.DataFrame:
    """Label the rows of a table by spans of time, in which something is known to have happened.

    Parameters
    ----------
    frame
        A table with the column of moments `time`.
    spans
        A table with the columns `from` and `to`; a blank `to` makes a single moment. A column with
        the name of `label` gives the label of each span, "anomaly" without it; one with the name
        of `group` limits a span to the rows of that group.
    time, group
        Columns of `frame`.
    label
        Column of the result. Rows outside of all spans keep what it holds in `frame`, or are blank.

    Returns
    -------
    polars.DataFrame
        The table with that column.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"at": ["2025-03-01 08:00", "2025-03-01 09:00", "2025-03-01 10:00"]})
    >>> spans = pl.DataFrame({"from": ["2025-03-01 08:30"], "to": ["2025-03-01 09:30"]})
    >>> mark_spans(frame, spans, time="at")["label"].to_list()
    [None, 'anomaly', None]
    """
    frame, spans = as_polars(frame), as_polars(spans)
    check_columns(["from", "to"], spans.columns)
    check_columns([time, *([] if group is None else [group])], frame.columns)
    zone = zone_of(spans["from"])
    zone = "UTC" if zone and zone_of(frame[time]) else zone  # so that both are by one clock
    seconds = read_seconds(frame[time], zone)
    first, last = read_seconds(spans["from"], zone), read_seconds(spans["to"], zone)
    last = np.where(np.isnan(last), first, last)
    words = np.full(frame.height, None, dtype=object)
    if label in frame.columns:
        words[:] = to_text(frame[label]).to_list()
    names = None if group not in spans.columns else to_text(frame[group]).to_numpy()
    if group is not None and names is None:
        note(f"Spans have no column {group!r}: each is about the rows of all groups.")
    span_labels = to_text(spans[label]) if label in spans.columns else ["anomaly"] * spans.height
    empty = []
    for i, (a, b) in enumerate(zip(first, last, strict=True)):
        rows, to = (seconds >= a) & (seconds <= b), spans["to"][i]
        if names is not None:
            rows &= names == str(spans[group][i])
        if not rows.any():
            empty.append(f"{spans['from'][i]}{f' to {to}, before it' if b < a else ''}")
        words[rows] = span_labels[i]
    if empty:
        text = (
            f"No row of the table is in {len(empty):,} of {pluralize(spans.height, 'span')}; the "
            f"first is from {empty[0]}. Compare their clock with that of {time!r}, where moments "
            f"are like {frame[time][0]}{'' if group is None else f', and their {group!r}'}."
        )
        if len(empty) == spans.height:
            raise InputError(text)
        note(text)
    return frame.with_columns(pl.Series(label, words.tolist(), dtype=pl.String))


# --- training -------------------------------------------------------------------------------------


class WindowTable(FrameTable):
    """The windows of a table with labels, as the rows that a fit learns from."""

    def __init__(self, table: LabelledTable, spec: FitSpec):
        if not isinstance(table, FrameTable):
            raise InputError("window= takes a table that fits in memory: read it as one frame.")
        assert spec.window is not None
        unused = [name for name in (spec.id, *spec.drop) if name is not None]
        check_columns(unused, [*table.columns, table.label])
        with catch_kinds(DataWarning) as self.notes:
            self.windows = Windower.fit(
                table.frame.select(table.columns),
                time=spec.time,
                window=spec.window,
                step=spec.step,
                group=spec.group,
                kinds={name: kind for name, kind in spec.kinds.items() if name in table.columns},
                drop=unused,
            )
        codes = window_codes(self.windows, table.codes, spec.enough)
        self.codes, self.stretches = stretches(self.windows, codes)
        self.label, self.counts = table.label, count_labels(self.codes)
        self.columns = self.windows.frame.columns
        self.frame = _with_labels(self.windows, self.codes, self.label)
        self.shown_columns, self.n_rows = self.frame.columns, self.frame.height
        self.features = [*([] if spec.group is None else [spec.group]), *self.windows.features]

    def prepare(self, preparer: TablePreparer, features: Sequence[str]) -> TrainingSample:
        """Fit a preparer to the windows, and let it know how to cut others."""
        sample = super().prepare(preparer, features)
        preparer.windower_ = self.windows.windower
        moments = self.windows.frame[preparer.windower_.time]
        codes = codes_to_learn(self.windows, self.codes)
        return replace(sample, training_codes=codes, stretches=self.stretches, moments=moments)

    def describe_cut(self) -> str:
        """Tell how rows became windows."""
        cut, n = self.windows.windower, pluralize(len(self.windows.points.rows), "row")
        windows = f"{pluralize(self.n_rows, 'window')} of {show_span(cut.window)}"
        return f"{windows}, one every {show_span(cut.step)}, from {n}: {self.counts}"

    def peaks(self, ranked: pl.DataFrame) -> pl.DataFrame:
        """Return of ranked windows, which are numbered, the first one of each event."""
        flagged, marked = ranked.filter("is_anomaly"), self.codes == ANOMALY
        shown = flagged if flagged.height else ranked
        return first_of_events(self.windows.windower, self.frame, shown, marked)

    def alarms(self, scores: Floats, threshold: float) -> Alarms:
        """Return the alarms of the model in these rows."""
        of_point = self.windows.over_points(scores)
        marked = self.windows.over_points((self.codes == ANOMALY).astype(float)) > 0
        return Alarms(self.windows, of_point, of_point > threshold, threshold, marked)


def _with_labels(windows: Windows, codes: Codes, label: str) -> pl.DataFrame:
    words = {ANOMALY: "anomaly", NORMAL: "normal", UNLABELLED: None}
    labels = pl.Series(label, codes).replace_strict(words, return_dtype=pl.String)
    return windows.frame.with_columns(labels)


def cut_table(windower: Windower, table: pl.DataFrame, spec: FitSpec) -> pl.DataFrame:
    """Return the windows of a table, with their labels if it has the label column of the fit."""
    windows, labels = windower.cut(table), spec.labels
    if labels is None or labels.column not in table.columns:
        return windows.frame
    codes = window_codes(windows, FrameTable(table, labels).codes, spec.enough)
    return _with_labels(windows, codes, labels.column)


# --- scores ---------------------------------------------------------------------------------------


def plain_model(model: Pipeline) -> Pipeline:
    """Return a model of windows as one of the rows of a table of windows."""
    preparer = copy(model[0])
    del preparer.windower_
    return Pipeline([("prepare", preparer), ("detect", model[1])])


@dataclass(frozen=True)
class Line:
    """A column, or the score, in the bins of a picture that hold a point."""

    name: str
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class SeriesPicture:
    """A series between two moments, which are seconds since 1970, in a few hundred bins."""

    group: str
    start: float
    end: float
    moments: list[float]
    lines: list[Line]
    """Some columns, and last the score."""
    threshold: float | None
    gap: float
    """Moments this far apart are not joined."""
    events: list[list[float]]
    marked: list[list[float]]
    """Marked incidents, as stretches from a moment to a moment, like events."""


class Alarms:
    """Alarms on the clock of series: flagged points merged into events."""

    def __init__(
        self,
        windows: Windows,
        scores: Floats,
        flagged: NDArray[np.bool_],
        threshold: float | None,
        marked: NDArray[np.bool_] | None = None,
    ):
        # Scores, flags and marked incidents, if these are known, of points in their order.
        self.windows, self.scores, self.flagged, self.marked = windows, scores, flagged, marked
        self.threshold, self.events = threshold, find_events(windows, flagged, scores)

    def __str__(self) -> str:
        points, n = self.windows.points, len(self.windows.group)
        in_series = np.diff(points.group) == 0
        days = max(1e-9, float(np.diff(points.seconds)[in_series].sum()) / DAY)

        def often(count: int) -> str:
            return f"{count / days:.2g} a day, {count / n:.2g} a window"

        count = self.events.height
        text = f"{pluralize(count, 'alarm')} in {days:,.1f} days of these rows: {often(count)}"
        if self.marked is None:
            return text
        hits = self.events_of(np.flatnonzero(self.marked & self.flagged))
        wrong = count - len(np.unique(hits))
        return f"{text}; {wrong:,} of them ({often(wrong)}) where no incident is marked"

    def events_of(self, points: Integers) -> Integers:
        """The number of the event of each flagged point, from 1."""
        return np.searchsorted(self.events["first_point"].to_numpy(), points, side="right")

    def in_words(self, top: int) -> list[str]:
        """Return how many alarms there are, when the worst began, ended and were worst, and why."""
        lines, points = [str(self)], self.windows.points
        worst = np.sort(self.events["score"].arg_sort(descending=True).head(top))
        for row in self.events[worst].iter_rows(named=True):
            series = points.groups[int(points.group[row["peak_point"]])]
            start, end, peak = (
                datetime.fromtimestamp(points.seconds[row[f"{name}_point"]], UTC)
                for name in ("first", "last", "peak")
            )
            times = f"{start:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S}"
            words = [f"{series}: {times}" if series else times, f"peak {peak:%H:%M:%S}"]
            words += [text for name, text in row.items() if name.startswith("reason_") and text]
            lines.append("; ".join(words))
        return lines

    def pictures(self) -> list[SeriesPicture]:
        """Draw the series with the highest alarms as a whole, and these events closely."""
        points = self.windows.points
        worst = self.events.sort("score", descending=True).head(_CLOSE)
        peaks = worst["peak_point"].to_numpy()
        groups = list(dict.fromkeys([*points.group[peaks].tolist(), int(points.group[0])]))[:_WHOLE]
        places = [np.searchsorted(points.group, (group, group + 1)) for group in groups]
        around = 4 * self.windows.windower.window
        for ends in worst.select("first_point", "last_point").to_numpy():
            a, b = np.searchsorted(points.group, points.group[ends[0]] + np.arange(2))
            reach = points.seconds[ends] + np.array([-around, around])
            places.append(a + np.searchsorted(points.seconds[a:b], reach))
        return [self._picture(int(a), int(b)) for a, b in places if b - a > 1]

    def _picture(self, first: int, last: int) -> SeriesPicture:
        """Some points of a series; columns that move most in its events come first."""
        points, rows = self.windows.points, slice(first, last)
        seconds, numbers = points.seconds[rows], points.numbers[rows]
        start, end = float(seconds[0]), float(seconds[-1])
        place = ((seconds - start) / max(end - start, 1e-9) * (_BINS - 1e-6)).astype(int)
        bins = np.flatnonzero(np.diff(place, prepend=-1))
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column may be blank throughout
            far = np.abs(numbers - np.nanmedian(numbers, axis=0)) / np.nanstd(numbers, axis=0)
        moves = np.nan_to_num(far[self.flagged[rows]]).max(axis=0, initial=0.0)
        chosen = np.sort(np.argsort(-moves, kind="stable")[:_COLUMNS])
        values = {self.windows.windower.numbers[j]: numbers[:, j] for j in chosen}

        def stretches_of(which: NDArray[np.bool_]) -> list[list[float]]:
            drawn = np.zeros(len(which), dtype=bool)
            drawn[rows] = which[rows]
            ends = find_events(self.windows, drawn, self.scores)[["first_point", "last_point"]]
            return points.seconds[ends.to_numpy()].tolist()

        return SeriesPicture(
            group=points.groups[int(points.group[first])],
            start=start,
            end=end,
            moments=seconds[bins].tolist(),
            lines=[
                Line(name, *(join.reduceat(each, bins).tolist() for join in (np.fmin, np.fmax)))
                for name, each in [*values.items(), ("anomaly score", self.scores[rows])]
            ],
            threshold=self.threshold,
            gap=max(self.windows.windower.window, 2 * (end - start) / _BINS),
            events=stretches_of(self.flagged),
            marked=[] if self.marked is None else stretches_of(self.marked),
        )


def scores_of_points(
    windows: Windows,
    scored: pl.DataFrame,
    n_rows: int,
    threshold: float | None,
    added: Sequence[str],
) -> tuple[pl.DataFrame, Alarms]:
    """Return results of scored windows for each row of the table they come from, and alarms.

    A result of a row is the mean of the windows that hold it. A row is flagged if its mean score is
    above the threshold; without one, if half of its windows are. Rows of an event have its number,
    and the reasons of the highest window at its peak. Rows without a moment have no score.
    """
    rows = windows.points.rows
    columns = {
        name: windows.over_points(scored[name].cast(pl.Float64).to_numpy())
        for name in added
        if not name.startswith("reason_")
    }
    reasons = [name for name in added if name not in columns]
    score, share = columns["anomaly_score"], columns["is_anomaly"]
    flagged = share >= 0.5 if threshold is None else score > threshold
    alarms = Alarms(windows, score, flagged, threshold)
    event = np.zeros(len(rows), dtype=np.int64)
    event[flagged] = alarms.events_of(np.flatnonzero(flagged))
    peaks = alarms.events["peak_point"].to_numpy()
    highest = windows.highest(peaks, scored["anomaly_score"].to_numpy())
    alarms.events = alarms.events.hstack(scored[highest].select(reasons))
    results = pl.DataFrame(columns | {"is_anomaly": flagged, "event": event})
    results = results.with_columns(pl.col("event").replace(0, None))
    of_event = pl.col(reasons).gather(results["event"] - 1)
    results = results.hstack(alarms.events.select(of_event))
    place = pl.Series(np.full(n_rows, -1)).scatter(rows, np.arange(len(rows))).replace(-1, None)
    every = results.select(pl.all().gather(place))
    return every.with_columns(pl.col("is_anomaly").fill_null(False)), alarms
