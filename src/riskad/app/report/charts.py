"""Charts as lists of SVG marks, which the template `blocks.html` writes into the page.

Wide charts measure x in percent and y in pixels, so that letters keep their size on any screen.
Colours are classes of the page's style sheet, for light and dark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from riskad.app.quality import KindScores, ScoreDistribution
from riskad.decisions.capacity import ReviewReport
from riskad.metrics.ranking import Curve, Reliability

if TYPE_CHECKING:
    from riskad.app.look import ColumnLook

Point: TypeAlias = tuple[float, float]

KIND_WORDS = {
    "normal": "labelled normal rows",
    "anomaly": "labelled anomalies",
    "unlabelled": "unlabelled rows of the fit",
    "table": "rows of this table",
}
_PANEL = 78  # pixels: a line of words and the marks below it
_WORDS = 22


class Mark(NamedTuple):
    """One SVG element: its tag, its attributes and the words in it."""

    tag: str
    attributes: Mapping[str, object]
    words: str = ""


@dataclass(frozen=True)
class Chart:
    """An SVG drawing: the attributes of the whole, and its marks from back to front."""

    attributes: Mapping[str, object]
    marks: list[Mark] = field(default_factory=list)

    def draw(self, tag: str, style: str, **attributes: object) -> None:
        """Add a mark of some style in front of those that are there."""
        self.marks.append(Mark(tag, {"class": style, **attributes}))

    def line(self, style: str, x: Sequence[object], y: Sequence[object]) -> None:
        """Draw a line between two points."""
        self.draw("line", style, x1=x[0], x2=x[1], y1=y[0], y2=y[1])

    def write(
        self, words: str, x: object, y: object, anchor: str = "start", **attributes: object
    ) -> None:
        """Write words at a place; `class_` is the attribute class."""
        more = {name.rstrip("_"): value for name, value in attributes.items()}
        self.marks.append(Mark("text", {"x": x, "y": y, "text-anchor": anchor, **more}, words))

    def write_around(
        self, words: str, x: float, y: object, margin: float = 5, **attributes: object
    ) -> None:
        """Write words around x, a percentage; within `margin` of an end to its inner side."""
        anchor = "start" if x < margin else "end" if x > 100 - margin else "middle"
        self.write(words, f"{x:.3f}%", y, anchor, **attributes)


# --- scores ------------------------------------------------------------------------------


def distribution_chart(distribution: ScoreDistribution, threshold: float) -> Chart:
    """Scores by kind, one panel below the other, with the threshold through all of them."""
    low, high = distribution.edges[0], distribution.edges[-1]

    def x(score: float) -> float:
        return 2 + 96 * (min(max(score, low), high) - low) / (high - low)

    bottom = _WORDS + _PANEL * len(distribution.kinds)
    words = ", ".join(f"{kind.rows:,} {KIND_WORDS[kind.kind]}" for kind in distribution.kinds)
    label = f"Distribution of anomaly scores: {words}; threshold {threshold:.3g}"
    chart = _fluid(bottom + 24, label)
    bases = [_WORDS + _PANEL * (i + 1) - 4 for i in range(len(distribution.kinds))]
    for kind, base in zip(distribution.kinds, bases, strict=True):
        _panel(chart, kind, distribution.edges, x, base)
    chart.line("threshold", (f"{x(threshold):.3f}%",) * 2, (16, bottom))
    chart.write_around(f"threshold {threshold:.3g}", x(threshold), 12, margin=20, class_="name")
    for kind, base in zip(distribution.kinds, bases, strict=True):  # words over the line
        words = f"{kind.rows:,} {KIND_WORDS[kind.kind]}"
        chart.write(words, "0%", base - _PANEL + _WORDS, class_="name")
    chart.line("axis", ("0%", "100%"), (bottom, bottom))
    for tick in _ticks(low, high, 5):
        chart.write_around(f"{tick:g}", x(tick), bottom + 17)
    return chart


def _panel(
    chart: Chart, kind: KindScores, edges: Sequence[float], x: Callable[[float], float], base: int
) -> None:
    """Bars of one kind of row on a line at `base`; few rows are ticks, one for each."""
    room = _PANEL - _WORDS - 8
    chart.line("base", ("0%", "100%"), (base, base))
    if kind.scores:
        for score in kind.scores:
            chart.line(f"tick {kind.kind}", (f"{x(score):.3f}%",) * 2, (base - room + 8, base))
        return
    highest = max(kind.counts)
    for count, left, right in zip(kind.counts, edges, edges[1:], strict=False):
        if count:
            height = max(room * (count / highest) ** 0.5, 1.5)
            across = {"x": f"{x(left) + 0.1:.3f}%", "width": f"{x(right) - x(left) - 0.2:.3f}%"}
            up = {"y": f"{base - height:.1f}", "height": f"{height:.1f}"}
            chart.draw("rect", f"bar {kind.kind}", **across, **up)


def rate_chart(rate: Sequence[float], assumed: float | None) -> Chart:
    """An anomaly rate with its interval, and the one that a fit assumed."""
    value, low, high = rate
    most = min(1.0, 1.15 * max(high, assumed or 0.0, 0.02))

    def x(share: float) -> float:
        return 2 + 96 * share / most

    said = f"Anomaly rate {value:.1%}, 95% interval {low:.1%} to {high:.1%}"
    chart = _fluid(64, said + ("" if assumed is None else f"; the fit assumed {assumed:.1%}"))
    chart.line("axis", ("0%", "100%"), (40, 40))
    for tick in _ticks(0, most, 5):
        chart.write_around(f"{100 * tick:g}%", x(tick), 57)
    chart.line("interval anomaly", (f"{x(low):.3f}%", f"{x(high):.3f}%"), (26, 26))
    chart.draw("circle", "point anomaly", cx=f"{x(value):.3f}%", cy=26, r=6)
    if assumed is not None:
        chart.line("threshold", (f"{x(assumed):.3f}%",) * 2, (14, 40))
        chart.write_around("assumed", x(assumed), 11, margin=15, class_="name")
    return chart


# --- squares -----------------------------------------------------------------------------

_SIDE, _LEFT, _TOP = 250, 46, 12


def curve_chart(
    curve: Curve, names: tuple[str, str], by_chance: Sequence[Point], threshold: float
) -> Chart:
    """A curve in the unit square with its band, what chance would give, and the threshold."""
    chart = _square(*names, f"{names[1]} against {names[0]}, with 95% intervals")
    upper = list(zip(curve.x, curve.high, strict=True))
    lower = list(zip(curve.x, curve.low, strict=True))
    _path(chart, "band", upper + lower[::-1], closed=True)
    _path(chart, "chance", by_chance)
    _path(chart, "curve", list(zip(curve.x, curve.y, strict=True)))
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

    def points(heights: Sequence[float]) -> list[Point]:
        return [(k / across, y / up) for k, y in zip(curve.rows, heights, strict=True)]

    _path(chart, "band", points(curve.high) + points(curve.low)[::-1], closed=True)
    chance = review.anomalies.value / review.rows * across / up
    _path(chart, "chance", [(0.0, 0.0), (1.0, chance)])
    _path(chart, "curve", points(curve.found))
    if 0 < flagged.rows <= across:
        ends = (flagged.found.value / up, flagged.found.low / up, flagged.found.high / up)
        _whisker(chart, flagged.rows / across, *ends)
    return chart


def reliability_chart(found: Reliability) -> Chart:
    """Observed shares of anomalies against predicted probabilities."""
    label = "Observed share of anomalies against predicted probability"
    chart = _square("predicted probability", "observed share", label)
    _path(chart, "chance", [(0, 0), (1, 1)])
    for point in zip(found.predicted, found.observed, found.low, found.high, strict=True):
        _whisker(chart, *point)
    return chart


def _square(x_name: str, y_name: str, label: str, most: tuple[float, float] = (1.0, 1.0)) -> Chart:
    """Axes of the unit square, or up to other numbers."""
    width, height = _LEFT + _SIDE + 20, _TOP + _SIDE + 42
    box = {"viewBox": f"0 0 {width} {height}", "class": "square", "role": "img"}
    chart = Chart(box | {"aria-label": label})
    for value in _axis(most[0]):
        x, _ = _place(value / most[0], 0)
        chart.line("grid" if value else "axis", (x, x), (_TOP, _TOP + _SIDE))
        chart.write(f"{value:,g}", x, _TOP + _SIDE + 16, anchor="middle")
    for value in _axis(most[1]):
        _, y = _place(0, value / most[1])
        chart.line("grid" if value else "axis", (_LEFT, _LEFT + _SIDE), (y, y))
        chart.write(f"{value:,g}", _LEFT - 6, y + 4, anchor="end")
    chart.write(x_name, _LEFT + _SIDE / 2, height - 8, anchor="middle", class_="name")
    turned = f"rotate(-90 12 {_TOP + _SIDE / 2})"
    chart.write(y_name, 12, _TOP + _SIDE / 2, "middle", class_="name", transform=turned)
    return chart


def _axis(most: float) -> list[float]:
    """Quarters of the unit, or round numbers."""
    return [0.0, 0.25, 0.5, 0.75, 1.0] if most == 1 else _ticks(0, most, 5)


def _place(x: float, y: float) -> Point:
    return round(_LEFT + _SIDE * float(x), 1), round(_TOP + _SIDE * (1 - float(y)), 1)


def _path(chart: Chart, kind: str, points: Sequence[Point], closed: bool = False) -> None:
    places = [_place(*point) for point in points]
    steps = " L".join(f"{x:g} {y:g}" for x, y in places)
    chart.draw("path", kind, d=f"M{steps}{' Z' * closed}")


def _whisker(chart: Chart, x: float, y: float, low: float, high: float) -> None:
    (place, middle), (_, top), (_, bottom) = _place(x, y), _place(x, high), _place(x, low)
    chart.line("interval anomaly", (place, place), (top, bottom))
    chart.draw("circle", "point anomaly", cx=place, cy=middle, r=5)


# --- parts -------------------------------------------------------------------------------


def _fluid(height: int, label: str) -> Chart:
    size = {"class": "fluid", "width": "100%", "height": str(height)}
    return Chart(size | {"role": "img", "aria-label": label})


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between `low` and `high`.

    >>> _ticks(-1.3, 2.2, 5)
    [-1.0, 0.0, 1.0, 2.0]
    """
    rough = (high - low) / most
    power = 10 ** np.floor(np.log10(rough))
    step = power * next(s for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


# --- values of a column -------------------------------------------------------------------

_WIDTH, _HEIGHT, _GAP = 240, 34, 6


def values_chart(column: ColumnLook) -> Chart:
    """Bars of the values, a line for each kind of row."""
    lines = [values for values in column.values if any(values.counts)]
    height = len(lines) * (_HEIGHT + _GAP)
    label = f"Values of {column.name}: " + "; ".join(f"{each.kind} {each.text}" for each in lines)
    box = {"viewBox": f"0 0 {_WIDTH} {height}", "class": "values", "role": "img"}
    chart = Chart(box | {"aria-label": label})
    for i, values in enumerate(lines):
        base = (i + 1) * (_HEIGHT + _GAP) - _GAP
        width, highest = _WIDTH / len(values.counts), max(values.counts)
        chart.line("base", (0, _WIDTH), (base, base))
        for j, count in enumerate(values.counts):
            if count:
                tall = max(_HEIGHT * (count / highest) ** 0.5, 1.5)
                across = {"x": f"{j * width + 0.5:.1f}", "width": f"{max(width - 1, 0.5):.1f}"}
                up = {"y": f"{base - tall:.1f}", "height": f"{tall:.1f}"}
                chart.draw("rect", f"bar {values.kind}", **across, **up)
    return chart
