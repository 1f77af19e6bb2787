"""Tables and numbers as text in Markdown, and files that are replaced whole."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.evaluation import TrialMean
from riskad.files.atomic import atomic_path

_LONGEST_LINE = 160
_MOST_REMARKS = 6


@dataclass(frozen=True)
class Table:
    """A table as text: a head, rows, and rows that sum them up.

    The columns at the places `left` are set to the left, the others to the right.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: Sequence[Sequence[str]] = ()
    note: str = ""
    left: Collection[int] = (0,)


def shorten(text: str) -> str:
    r"""One line of at most 160 characters.

    >>> shorten("ValueError:\n  too  few rows")
    'ValueError: too few rows'
    """
    return textwrap.shorten(text, _LONGEST_LINE, placeholder=" ...")


# --- numbers -----------------------------------------------------------------------------

NONE = "-"


def counted(n: int, what: str) -> str:
    """Say how many.

    >>> counted(1, "set"), counted(19, "set")
    ('1 set', '19 sets')
    """
    return f"{n} {what}{'' if n == 1 else 's'}"


def say_estimate(value: TrialMean | None) -> str:
    """Mean (SE x 100)."""
    if value is None:
        return "failed"
    return f"{value.mean:.3f} ({NONE if value.se is None else f'{100 * value.se:.2f}'})"


def say_mean(value: float | None) -> str:
    """A mean with three digits."""
    return NONE if value is None else f"{value:.3f}"


def say_signed(value: float | None, digits: int) -> str:
    """A number with its sign; what is zero when rounded has none.

    >>> say_signed(0.0123, 3), say_signed(-0.0004, 3), say_signed(None, 3)
    ('+0.012', '0.000', '-')
    """
    if value is None:
        return NONE
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def say_difference(value: TrialMean | None) -> str:
    """A mean difference with its sign, and its standard error x 100."""
    if value is None:
        return NONE
    return f"{say_signed(value.mean, 3)} ({NONE if value.se is None else f'{100 * value.se:.2f}'})"


def say_share(n: int, total: int) -> tuple[str, str]:
    """How many of all, and in percent."""
    return f"{n} of {total}", f"{100 * n / total:.1f} %"


# --- Markdown ----------------------------------------------------------------------------


def markdown_table(table: Table) -> str:
    """Return head, rows and foot in Markdown, readable as text too; title and note are left out.

    >>> print(markdown_table(Table("", ("set", "AUC"), [("Stamps", "0.82")], [("mean", "0.82")])))
    | set    |    AUC |
    | :----- | -----: |
    | Stamps |   0.82 |
    | *mean* | *0.82* |
    """
    rows = [list(map(markdown_safe, row)) for row in (table.head, *table.rows)]
    rows += [[f"*{markdown_safe(cell)}*" if cell else "" for cell in row] for row in table.foot]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    dashes = ["-" * max(2, width - 1) for width in widths]
    rule = [f":{line}" if i in table.left else f"{line}:" for i, line in enumerate(dashes)]
    forms = [f"{'<' if i in table.left else '>'}{width}" for i, width in enumerate(widths)]
    head, *body = ([f"{c:{form}}" for c, form in zip(row, forms, strict=True)] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))


def markdown_safe(text: str) -> str:
    """Keep a bar, a bracket or a star of a message from being read as markup."""
    return re.sub(r"([|*`]|<(?=[A-Za-z/!?]))", r"\\\1", text)


def remark_table(
    remarks: Iterable[tuple[Mapping[str, Any], str]],
    datasets: Sequence[str],
    methods: Mapping[str, str] | None = None,
) -> str:
    """How many trials said what, by method and by dataset; texts that differ in numbers are one.

    Remarks are records, each with what was said of it. Datasets are shown in this order, and so are
    methods, which may have other names.
    """
    alike: dict[str, list[tuple[Mapping[str, Any], str]]] = {}
    for row, text in remarks:
        numberless = re.sub(r"[\d.,:]*\d|'[^']*'", "#", text)
        gist = re.sub(r"#(, #)*( and #( more)?)?", "#", numberless)
        alike.setdefault(gist, []).append((row, text))
    rows = []
    for group in alike.values():
        trials = {id(row): row for row, _ in group}.values()  # a trial may say the like twice
        texts = Counter(text for _, text in group)
        text = shorten(min(texts, key=lambda text: (-texts[text], text)))
        more = f" (an example of {len(texts)} alike)" if len(texts) > 1 else ""
        by_method = Counter(row["method"] for row in trials)
        by_set = Counter(row["dataset"] for row in trials)
        names = methods or {name: name for name in sorted(by_method)}
        counts = [
            ", ".join(f"{names[m]} {by_method[m]}" for m in names if m in by_method),
            ", ".join(f"{name} {by_set[name]}" for name in datasets if name in by_set),
        ]
        rows.append((len(trials), [*counts, text + more]))
    rows.sort(key=lambda row: (-row[0], row[1][-1]))
    shown = [[str(count), *texts] for count, texts in rows[:_MOST_REMARKS]]
    others = len(rows) - len(shown)
    foot = [["", "", "", f"and {counted(others, 'other message')}"]] if others else []
    head = ("trials", "by method", "by dataset", "message")
    return markdown_table(Table("", head, shown, foot, left=(1, 2, 3))) if shown else ""


# --- files -------------------------------------------------------------------------------


def write_text(path: Path, text: str) -> None:
    """Write a page; whoever reads meanwhile sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path, force=True) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a result as JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
