"""The packages of `riskad` and what imports what, drawn from the import graph.

    ```{architecture}
    ```

Boxes are the layers of `[tool.importlinter]` in pyproject.toml, the highest first; a line between
two packages is the thicker the more imports there are from the upper to the lower one.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
WIDTH, HEIGHT, GAP, SIDE = 200, 40, 26, 250


@dataclass(frozen=True)
class Graph:
    """Packages by layer, their modules, and how often one imports from another."""

    layers: list[list[str]]
    modules: Counter[str]
    imports: Counter[tuple[str, str]]


def _package(module: str) -> str:
    return module.split(".")[1]


def read_layers() -> list[list[str]]:
    """Return the layers of pyproject.toml, without private modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each.get("containers") == ["riskad"])
    rows = [[name.strip() for name in layer.split("|")] for layer in layers]
    return [row for row in rows if not row[0].startswith("_")]


@cache
def read_graph() -> Graph:
    """Build the import graph of the package and count by packages."""
    graph = grimp.build_graph("riskad")
    layers = read_layers()
    packages = {name for layer in layers for name in layer}
    modules = [name for name in graph.modules if "." in name and _package(name) in packages]
    imports: Counter[tuple[str, str]] = Counter()
    for module in modules:
        for other in graph.find_modules_directly_imported_by(module):
            if "." in other and _package(other) in packages - {_package(module)}:
                imports[_package(module), _package(other)] += 1
    return Graph(layers, Counter(map(_package, modules)), imports)


def _places(graph: Graph) -> dict[str, tuple[float, float]]:
    """The middle of the left edge of each package's box; layers of two stand side by side."""
    places = {}
    for row, layer in enumerate(graph.layers):
        for column, name in enumerate(layer):
            x = SIDE + (column - (len(layer) - 1) / 2) * (WIDTH + 20)
            places[name] = (x, 10 + row * (HEIGHT + GAP))
    return places


def _line(graph: Graph, places: dict[str, tuple[float, float]], upper: str, lower: str) -> str:
    """A curve at the left for imports that skip layers, a straight line for the next one."""
    (x1, y1), (x2, y2) = places[upper], places[lower]
    count = graph.imports[upper, lower]
    width = min(1 + count / 12, 6)
    middle1, middle2 = y1 + HEIGHT / 2, y2 + HEIGHT / 2
    if y2 - y1 <= HEIGHT + GAP:
        path = f"M{x1 + WIDTH / 2} {y1 + HEIGHT} L{x2 + WIDTH / 2} {y2}"
    else:
        far = (y2 - y1) / 2.9
        path = f"M{x1} {middle1} C{x1 - far} {middle1} {x2 - far} {middle2} {x2} {middle2}"
    title = f"<title>{upper} imports from {lower}: {count} times</title>"
    return f'<path d="{path}" stroke-width="{width:.1f}">{title}</path>'


def _box(name: str, place: tuple[float, float], modules: int) -> str:
    x, y = place
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>'
        f'<text x="{x + 12}" y="{y + 25}">{name}/</text>'
        f'<text x="{x + WIDTH - 12}" y="{y + 25}" text-anchor="end" class="count">'
        f"{modules} modules</text>"
    )


def draw(graph: Graph) -> str:
    """Return the drawing as SVG."""
    places = _places(graph)
    lines = [_line(graph, places, *pair) for pair in sorted(graph.imports)]
    boxes = [_box(name, place, graph.modules[name]) for name, place in places.items()]
    height = 10 + len(graph.layers) * (HEIGHT + GAP)
    width = SIDE + WIDTH * 1.6 + 20
    return (
        f'<svg viewBox="0 0 {width:.0f} {height}" role="img" class="architecture" '
        'aria-label="The packages of riskad and their imports">'
        f'<g class="lines">{"".join(lines)}</g><g class="boxes">{"".join(boxes)}</g></svg>'
    )


class Architecture(SphinxDirective):
    """The drawing."""

    def run(self) -> list[nodes.Node]:
        """Draw."""
        return [nodes.raw("", draw(read_graph()), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("architecture", Architecture)
    return {"parallel_read_safe": True}
