"""Charts as lists of SVG marks, which the template `blocks.html` writes into the page.

Wide charts measure x in percent and y in pixels, so that letters keep their size on any screen.
Colours are classes of the page's style sheet, for light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riskad.app.fit_report import ScoreDistribution
from riskad.app.series import Line, SeriesPicture
from riskad.decisions.capacity import ReviewReport
from riskad.decisions.segments import SegmentResult
from riskad.metrics.ranking import Curve

if TYPE_CHECKING:
    from riskad.app.look import ColumnLook

Point: TypeAlias = tuple[float, float]
Floats: TypeAlias = Sequence[float] | NDArray[np.float64]

KIND_WORDS = {
    "normal": "labelled normal rows",
    "anomaly": "labelled anomalies",
    "unlabelled": "unlabelled rows of the fit",
    "table": "rows of this table",
}


class Mark(NamedTuple):
    """One SVG element: its tag, its attributes and the words in it."""

    tag: str
    attributes: Mapping[str, object]
    words: str = ""
    marks: Sequence[Mark] = ()  # inside an <svg> of its own


class Chart:
    """An SVG drawing, with a name for those who cannot see it, and its marks from back to front."""

    def __init__(self, label: str, style: str, **size: object):
        self.attributes = {"class": style, **size, "role": "img", "aria-label": label}
        self.marks: list[Mark] = []

    def draw(self, tag: str, style: str, **attributes: object) -> None:
        """Add a mark of some style in front of those that are there."""
        self.marks.append(Mark(tag, {"class": style, **attributes}))

    def line(self, style: str, x: Sequence[object], y: Sequence[object]) -> None:
        """Draw a line between two points."""
        self.draw("line", style, x1=x[0], x2=x[1], y1=y[0], y2=y[1])

    def bar(self, kind: str, x: str, width: str, base: float, share: float, room: float) -> None:
        """Draw a bar; it grows with the square root of its share, so that few rows stay visible."""
        height = max(room * share**0.5, 1.5)
        tall = {"y": f"{base - height:.1f}", "height": f"{height:.1f}"}
        self.draw("rect", f"bar {kind}", x=x, width=width, **tall)

    def write(
        self, words: str, x: object, y: object, anchor: str = "start", style: str = "", **more: str
    ) -> None:
        """Write words at a place."""
        named = {"class": style} if style else {}
        place = {"x": x, "y": y, "text-anchor": anchor}
        self.marks.append(Mark("text", place | named | more, words))

    def write_around(
        self, words: str, x: float, y: object, margin: float = 5, style: str = ""
    ) -> None:
        """Write words around x, a percentage; within `margin` of an end to its inner side."""
        anchor = "start" if x < margin else "end" if x > 100 - margin else "middle"
        self.write(words, f"{x:.3f}%", y, anchor, style)


def _ticks(low: float, high: float) -> list[float]:
    """Up to about five round numbers between `low` and `high`.

    >>> _ticks(-1.3, 2.2)
    [-1.0, 0.0, 1.0, 2.0]
    """
    rough = (high - low) / 5
    power = 10 ** np.floor(np.log10(rough))
    step = power * next(s for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


# --- scores, and values of a column -------------------------------------------------------

_PANEL, _WORDS = 78, 22  # pixels: a line of words and the marks below it


def distribution_chart(distribution: ScoreDistribution, threshold: float) -> Chart:
    """Scores by kind, one panel below the other, with the threshold through all of them."""
    edges, kinds = distribution.edges, distribution.kinds
    low, high = edges[0], edges[-1]

    def x(score: float) -> float:
        return 2 + 96 * (min(max(score, low), high) - low) / (high - low)

    bottom, room = _WORDS + _PANEL * len(kinds), _PANEL - _WORDS - 8
    words = [f"{kind.rows:,} {KIND_WORDS[kind.kind]}" for kind in kinds]
    label = f"Distribution of anomaly scores: {', '.join(words)}; threshold {threshold:.3g}"
    chart = Chart(label, "fluid", width="100%", height=str(bottom + 24))
    bases = [_WORDS + _PANEL * (i + 1) - 4 for i in range(len(kinds))]
    for kind, base in zip(kinds, bases, strict=True):
        chart.line("base", ("0%", "100%"), (base, base))
        for score in kind.scores:  # few, a tick for each
            chart.line(f"tick {kind.kind}", (f"{x(score):.3f}%",) * 2, (base - room + 8, base))
        for count, left, right in zip(kind.counts, edges, edges[1:], strict=False):
            if count and not kind.scores:
                place, width = f"{x(left) + 0.1:.3f}%", f"{x(right) - x(left) - 0.2:.3f}%"
                chart.bar(kind.kind, place, width, base, count / max(kind.counts), room)
    chart.line("threshold", (f"{x(threshold):.3f}%",) * 2, (16, bottom))
    chart.write_around(f"threshold {threshold:.3g}", x(threshold), 12, margin=20, style="name")
    for each, base in zip(words, bases, strict=True):  # over the line
        chart.write(each, "0%", base - _PANEL + _WORDS, style="name")
    chart.line("axis", ("0%", "100%"), (bottom, bottom))
    for tick in _ticks(low, high):
        chart.write_around(f"{tick:g}", x(tick), bottom + 17)
    return chart


def values_chart(column: ColumnLook) -> Chart:
    """Bars of the values, a line for each kind of row."""
    width, room, gap = 240, 34, 6
    lines = [values for values in column.values if any(values.counts)]
    label = f"Values of {column.name}: " + "; ".join(f"{each.kind} {each.text}" for each in lines)
    box = f"0 0 {width} {len(lines) * (room + gap)}"
    chart = Chart(label, "values", viewBox=box)
    for i, values in enumerate(lines):
        base, step = (i + 1) * (room + gap) - gap, width / len(values.counts)
        chart.line("base", (0, width), (base, base))
        for j, count in enumerate(values.counts):
            if count:
                place, wide = f"{j * step + 0.5:.1f}", f"{max(step - 1, 0.5):.1f}"
                chart.bar(values.kind, place, wide, base, count / max(values.counts), room)
    return chart


# --- series ------------------------------------------------------------------------------

_ROOM, _STEPS = 56, (60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)


def days(start: float, end: float) -> str:
    """Return from when to when a picture is, by the day or by the minute.

    >>> days(0, 1800), days(0, 86_400 * 9)
    ('1970-01-01 00:00 to 1970-01-01 00:30', '1970-01-01 to 1970-01-10')
    """
    form = "%Y-%m-%d" if end - start > 5 * 86_400 else "%Y-%m-%d %H:%M"
    return " to ".join(f"{datetime.fromtimestamp(each, UTC):{form}}" for each in (start, end))


def series_chart(picture: SeriesPicture) -> Chart:
    """Columns and the score over time, one below the other, with alarms through all of them."""
    start, span = picture.start, max(picture.end - picture.start, 1e-9)
    panel, last = _ROOM + _WORDS, len(picture.lines) - 1
    bottom = panel * (last + 1)
    names = ", ".join(line.name for line in picture.lines)
    label = f"{names}, {days(picture.start, picture.end)}: {len(picture.events)} alarms"
    chart = Chart(label, "fluid", width="100%", height=str(bottom + 24))
    for style, stretches, height in (
        ("alarm", picture.events, bottom - _WORDS),
        ("marked", picture.marked, 6),
    ):
        for first, end in stretches:  # at least wide enough to be seen
            x, width = 100 * (first - start) / span, max(100 * (end - first) / span, 0.3)
            about = {"x": f"{x:.3f}%", "width": f"{width:.3f}%"}
            chart.draw("rect", style, **about, y=bottom - height, height=height)
    for i, line in enumerate(picture.lines):
        filled = [value for value in (*line.low, *line.high) if value == value]
        low, high = min(filled, default=0.0), max(filled, default=1.0)
        if i == last and picture.threshold is not None:
            low, high = min(low, picture.threshold), max(high, picture.threshold)
            y = panel * (i + 1) - _ROOM * (picture.threshold - low) / ((high - low) or 1)
            chart.line("threshold", ("0%", "100%"), (f"{y:.1f}",) * 2)
        path = _series_path(picture, line, low, high)
        inner = [Mark("path", {"class": "score" if i == last else "moves", "d": path})]
        box = {"viewBox": f"0 0 1000 {_ROOM}", "preserveAspectRatio": "none"}
        size = {"x": 0, "y": panel * (i + 1) - _ROOM, "width": "100%", "height": _ROOM}
        chart.marks.append(Mark("svg", box | size, marks=inner))
        chart.write(line.name[:40], "0%", panel * i + 16, style="name")
        chart.write(f"{low:.4g} to {high:.4g}", "100%", panel * i + 16, anchor="end")
    chart.line("axis", ("0%", "100%"), (bottom, bottom))
    step = next((step for step in _STEPS if span / step <= 4), round(span / 4 / 86_400) * 86_400)
    form = "%Y-%m-%d" if step >= 86_400 else "%m-%d %H:%M"
    # On a phone a label takes a fifth of the width, so none is close to an end.
    first, end = (start + share * span for share in (0.11, 0.89))
    for tick in np.arange(np.ceil(first / step), np.floor(end / step) + 1) * step:
        at = f"{datetime.fromtimestamp(tick, UTC):{form}}"
        chart.write(at, f"{100 * (tick - start) / span:.3f}%", bottom + 17, "middle")
    return chart


def _series_path(picture: SeriesPicture, line: Line, low: float, high: float) -> str:
    """A line from the lowest to the highest value of each bin, interrupted where there is none."""
    span, size = max(picture.end - picture.start, 1e-9), (high - low) or 1.0
    parts, before = list[str](), -np.inf
    for moment, *values in zip(picture.moments, line.low, line.high, strict=True):
        if values[0] != values[0]:
            continue
        x = 1000 * (moment - picture.start) / span
        ends = [f"{x:.1f} {1 + (_ROOM - 2) * (1 - (value - low) / size):.1f}" for value in values]
        parts.append(f"{'M' if moment - before >= picture.gap else 'L'}{' L'.join(ends)}")
        before = moment
    return " ".join(parts)


# --- squares -----------------------------------------------------------------------------

_SIDE, _LEFT, _TOP = 250, 46, 12


def curve_chart(
    curve: Curve, x_name: str, y_name: str, chance: tuple[float, float], threshold: float
) -> Chart:
    """A curve in the unit square with its band, what chance would give, and the threshold."""
    chart = _square(x_name, y_name, f"{y_name} against {x_name}, with 95% intervals")
    _draw_curve(chart, curve.x, curve.y, curve.low, curve.high, chance)
    flagged = np.flatnonzero(curve.threshold > threshold)
    if len(flagged):
        i = flagged[-1]
        _whisker(chart, curve.x[i], curve.y[i], curve.low[i], curve.high[i])
    return chart


def found_chart(review: ReviewReport) -> Chart:
    """Anomalies found against rows looked at, with the band of the interval and the threshold."""
    curve, flagged = review.curve, review.flagged
    across, up = float(curve.rows[-1]), 1.05 * max(curve.high)
    label = (
        f"Anomalies found against rows looked at: about {flagged.found.value:.0f} in the "
        f"{flagged.rows:,} that are flagged"
    )
    chart = _square("rows looked at", "anomalies found", label, (across, up))
    y, low, high = ([v / up for v in values] for values in (curve.found, curve.low, curve.high))
    chance = review.anomalies.value / review.rows * across / up
    _draw_curve(chart, [k / across for k in curve.rows], y, low, high, (0.0, chance))
    if 0 < flagged.rows <= across:
        ends = (flagged.found.value / up, flagged.found.low / up, flagged.found.high / up)
        _whisker(chart, flagged.rows / across, *ends)
    return chart


def segment_chart(segments: Sequence[SegmentResult]) -> Chart:
    """Anomaly rates of segments with their intervals, one below the other."""
    shown = [(each.name, each.rate) for each in segments if each.rate is not None]
    most = max((rate.high for _, rate in shown), default=1.0) or 1.0
    bottom = 40 * len(shown) + 4
    chart = Chart("Anomaly rate by segment", "fluid", width="100%", height=str(bottom + 24))

    def x(rate: float) -> str:
        return f"{2 + 96 * rate / most:.3f}%"

    for i, (name, rate) in enumerate(shown):
        y = 40 * (i + 1) - 8
        chart.write(f"{name[:30]}: {rate.value:.1%}", "0%", y - 14, style="name")
        chart.line("interval anomaly", (x(rate.low), x(rate.high)), (y, y))
        chart.draw("circle", "point anomaly", cx=x(rate.value), cy=y, r=4)
    chart.line("axis", ("0%", "100%"), (bottom, bottom))
    for tick in _ticks(0, most):
        chart.write_around(f"{100 * tick:.3g}%", 2 + 96 * tick / most, bottom + 17)
    return chart


def _square(x_name: str, y_name: str, label: str, most: Point = (1.0, 1.0)) -> Chart:
    """Axes of the unit square, in quarters, or up to other numbers, in round ones."""
    width, height = _LEFT + _SIDE + 20, _TOP + _SIDE + 42
    chart = Chart(label, "square", viewBox=f"0 0 {width} {height}")
    quarters = [0.0, 0.25, 0.5, 0.75, 1.0]
    for value in quarters if most[0] == 1 else _ticks(0, most[0]):
        x, _ = _place(value / most[0], 0)
        chart.line("grid" if value else "axis", (x, x), (_TOP, _TOP + _SIDE))
        chart.write(f"{value:,g}", x, _TOP + _SIDE + 16, "middle")
    for value in quarters if most[1] == 1 else _ticks(0, most[1]):
        _, y = _place(0, value / most[1])
        chart.line("grid" if value else "axis", (_LEFT, _LEFT + _SIDE), (y, y))
        chart.write(f"{value:,g}", _LEFT - 6, y + 4, "end")
    chart.write(x_name, _LEFT + _SIDE / 2, height - 8, "middle", "name")
    turned = f"rotate(-90 12 {_TOP + _SIDE / 2})"
    chart.write(y_name, 12, _TOP + _SIDE / 2, "middle", "name", transform=turned)
    return chart


def _place(x: float, y: float) -> Point:
    return round(_LEFT + _SIDE * float(x), 1), round(_TOP + _SIDE * (1 - float(y)), 1)


def _draw_curve(
    chart: Chart, x: Floats, y: Floats, low: Floats, high: Floats, chance: tuple[float, float]
) -> None:
    """A curve with the band of its interval, and the line from left to right by chance."""
    lower = list(zip(x, low, strict=True))[::-1]
    _path(chart, "band", [*zip(x, high, strict=True), *lower], closed=True)
    _path(chart, "chance", [(0, chance[0]), (1, chance[1])])
    _path(chart, "curve", list(zip(x, y, strict=True)))


def _path(chart: Chart, kind: str, points: Sequence[Point], closed: bool = False) -> None:
    steps = " L".join("{:g} {:g}".format(*_place(*point)) for point in points)
    chart.draw("path", kind, d=f"M{steps}{' Z' * closed}")


def _whisker(chart: Chart, x: float, y: float, low: float, high: float) -> None:
    (place, middle), (_, top), (_, bottom) = _place(x, y), _place(x, high), _place(x, low)
    chart.line("interval anomaly", (place, place), (top, bottom))
    chart.draw("circle", "point anomaly", cx=place, cy=middle, r=5)
