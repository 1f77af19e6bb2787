"""Figures of `results/` in the text of the site, so that none is typed by hand.

    {result}`trees.json: BoostedRAD / auc`          the value under these keys, three decimals
    {result}`trees.json: BoostedRAD / auc: .1%`     in another format
    {result}`field/records/field.jsonl: AutoRAD / auc`   mean over sets of the means over trials

    ```{result-table} field/tables/field.md
    :heading: 5 % labelled: 10 methods
    :columns: method, AUC
    ```

copies a table of a committed Markdown file, or some of its rows and columns.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

RESULTS = Path(__file__).parents[2] / "results"


@cache
def _read(name: str) -> Any:
    text = (RESULTS / name).read_text(encoding="utf-8")
    if name.endswith(".jsonl"):
        rows = map(json.loads, text.splitlines())
        return [row for row in rows if row["status"] == "ok"]
    return json.loads(text)


def _mean_over_sets(rows: list[dict[str, Any]], method: str, value: str) -> float:
    by_set: dict[str, list[float]] = {}
    for row in rows:
        if row["method"] == method:
            by_set.setdefault(row["dataset"], []).append(row[value])
    if not by_set:
        raise KeyError(method)
    return fmean(map(fmean, by_set.values()))


def find(reference: str) -> str:
    """Return the figure that `FILE: KEY / KEY` or `FILE: KEY / KEY: FORMAT` names."""
    name, keys, *form = (part.strip() for part in reference.split(":"))
    path = [key.strip() for key in keys.split("/")]
    found = _read(name)
    if name.endswith(".jsonl"):
        found = _mean_over_sets(found, *path)
    else:
        for key in path:
            found = found[int(key)] if isinstance(found, list) else found[key]
    return format(found, form[0] if form else ".3f")


class ResultRole(SphinxRole):
    """A figure, with its file as a hint."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Replace the reference by the figure."""
        try:
            return [nodes.inline(self.text, find(self.text))], []
        except (KeyError, IndexError, OSError, TypeError, ValueError) as error:
            message = f"results/ has no figure {self.text!r}: {error!r}"
            return [], [self.inliner.reporter.error(message, line=self.lineno)]


def table_of(name: str, heading: str) -> list[list[str]]:
    """Return the first table below a heading of a Markdown file, as rows of cells."""
    text = (RESULTS / name).read_text(encoding="utf-8")
    below = re.split(rf"^#+ {re.escape(heading)}.*$", text, maxsplit=1, flags=re.M)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, flags=re.M)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [rows[0], *rows[2:]]


def part_of(table: list[list[str]], columns: list[str], rows: list[str]) -> list[list[str]]:
    """Return the columns and rows (by first cell) that are named, in that order; all if none is."""
    head, *body = table
    if rows:
        by_name = {row[0]: row for row in body}
        body = [by_name[name] for name in rows]
    places = [head.index(name) for name in columns] if columns else range(len(head))
    return [[row[place] for place in places] for row in (head, *body)]


def _names(argument: str) -> list[str]:
    return [name.strip() for name in argument.split(",")]


class ResultTable(SphinxDirective):
    """A table of `results/`."""

    required_arguments = 1
    option_spec: ClassVar = {
        "heading": directives.unchanged_required,
        "columns": _names,
        "rows": _names,
    }

    def run(self) -> list[nodes.Node]:
        """Parse the part of the table as Markdown."""
        whole = table_of(self.arguments[0], self.options["heading"])
        head, *body = part_of(whole, self.options.get("columns", []), self.options.get("rows", []))
        lines = [head, ["---"] * len(head), *body]
        text = "\n".join("| " + " | ".join(row) + " |" for row in lines)
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role and the directive."""
    app.add_role("result", ResultRole())
    app.add_directive("result-table", ResultTable)
    return {"parallel_read_safe": True}
