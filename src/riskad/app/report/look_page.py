"""The page of `riskad look`: a column after another, with its values by kind of row."""

from __future__ import annotations

from riskad.app.look import ColumnLook, TableLook
from riskad.app.report.charts import Chart, Mark
from riskad.app.report.jinja import fill

__all__ = ["render_look"]

_WIDTH, _HEIGHT, _GAP = 240, 34, 6


def render_look(look: TableLook) -> str:
    """Make the page.

    Returns
    -------
    str
        A whole HTML document.
    """
    columns = [(column, values_chart(column)) for column in look.columns]
    return f"{fill('look.html', look=look, columns=columns)}\n"


def values_chart(column: ColumnLook) -> Chart | None:
    """Draw bars of the values, a line for each kind of row; None where there is nothing to draw."""
    lines = [values for values in column.values if any(values.counts)]
    if not lines:
        return None
    height = len(lines) * (_HEIGHT + _GAP)
    label = f"Values of {column.name}: " + "; ".join(f"{v.kind} {v.said}" for v in lines)
    box = {"viewBox": f"0 0 {_WIDTH} {height}", "class": "values", "role": "img"}
    chart = Chart(box | {"aria-label": label})
    for i, values in enumerate(lines):
        base = (i + 1) * (_HEIGHT + _GAP) - _GAP
        kind = "unlabelled" if values.kind == "rows" else values.kind
        width, highest = _WIDTH / len(values.counts), max(values.counts)
        ends = {"x1": "0", "x2": str(_WIDTH), "y1": str(base), "y2": str(base)}
        chart.marks.append(Mark("line", {"class": "base", **ends}))
        for j, count in enumerate(values.counts):
            if count:
                tall = max(_HEIGHT * (count / highest) ** 0.5, 1.5)
                place = {"x": f"{j * width + 0.5:.1f}", "width": f"{max(width - 1, 0.5):.1f}"}
                size = {"y": f"{base - tall:.1f}", "height": f"{tall:.1f}"}
                chart.draw("rect", {"class": f"bar {kind}", **place, **size})
    return chart
