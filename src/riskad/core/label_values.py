"""The values of a label column: which are the same, which are missing, how messages show them.

- Values compare by their text, without surrounding blanks, and case matters.
- A whole number is the same however it is written: `1`, `1.0`, `"1"`, `"1.0"`, `"+1"`.
  `"01"` is not a number but a separate text.
- A truth value is the same in any case: `True`, `"true"`, `"TRUE"`. It is not a number:
  `True` does not match `1`.
- `None`, NaN, NaT, pandas' NA, masked entries and blank text are missing. Missing always
  means unlabelled. The *text* `"NA"` or `"nan"` is not missing; give `unlabelled="NA"`.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError

__all__ = [
    "MAX_SHOWN",
    "LabelColumn",
    "as_label_column",
    "comparable_text",
    "factorise",
    "nearest_spelling",
    "show_counts",
    "show_value",
]


MAX_SHOWN = 8
_WHOLE_NUMBER = re.compile(r"([+-]?)(0|[1-9][0-9]*)(\.0*)?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
_MISSING_TEXT = ("None", "nan", "NaN", "NaT", "<NA>")


def comparable_text(value: object) -> str | None:
    """Return the text by which `value` is compared, or None if it is missing.

    >>> [comparable_text(value) for value in (1, 1.0, "+1.0", True, " ok ", "01", float("nan"), "")]
    ['1', '1', '1', 'True', 'ok', '01', None, None]
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = str(value).strip()
    # Recognise a missing value by its text, without importing the library it came from.
    if not text or (not isinstance(value, str) and text in _MISSING_TEXT):
        return None
    if text.lower() in ("true", "false"):
        return text.capitalize()
    whole = _WHOLE_NUMBER.fullmatch(text)
    return str(int(whole[1] + whole[2])) if whole else text


def as_label_column(y: Any, name: str) -> NDArray[Any]:
    """Return `y` as a one-dimensional array, without turning mixed lists into text."""
    if isinstance(y, np.ma.MaskedArray):
        y = np.where(np.ma.getmaskarray(y), np.array(None), y.data)
    values = np.asarray(y, dtype=object if isinstance(y, (list, tuple)) else None)
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{name} must hold one label for each row, got shape {values.shape}.")
    return values


def factorise(values: NDArray[Any]) -> tuple[list[object], NDArray[np.intp]]:
    """Return the distinct values and, for each row, the position of its value among them."""
    if values.dtype.kind in "biuf":
        distinct, places = np.unique(values, return_inverse=True)
        return distinct.tolist(), places
    rows = values.tolist()
    keys = rows
    if not set(map(type, rows)) <= {str, NoneType}:
        # The key is type and text: values would fail, since True == 1 and nan != nan.
        keys = list(zip(map(type, rows), map(str, rows), strict=True))
    examples = dict(zip(keys, rows, strict=True))
    place_of = {key: place for place, key in enumerate(examples)}
    places = np.fromiter(map(place_of.__getitem__, keys), dtype=np.intp, count=len(keys))
    return list(examples.values()), places


@dataclass(frozen=True)
class LabelColumn:
    """A label column as distinct texts (None if missing), and each row's position among them."""

    texts: list[str | None]
    places: NDArray[np.intp]

    @classmethod
    def read(cls, values: NDArray[Any]) -> LabelColumn:
        """Read a one-dimensional array of any type."""
        distinct, places = factorise(values)
        return cls([comparable_text(value) for value in distinct], places)

    def counts(self) -> dict[str | None, int]:
        """Return the number of rows of each text, the most frequent first."""
        per_place = np.bincount(self.places, minlength=len(self.texts))
        total: Counter[str | None] = Counter()
        for text, count in zip(self.texts, per_place.tolist(), strict=True):
            total[text] += count
        return dict(total.most_common())

    def translate(self, meaning: Mapping[str | None, int], otherwise: int) -> NDArray[np.int8]:
        """Return each row's code; `otherwise` if its text has no meaning."""
        code_of_place = [meaning.get(text, otherwise) for text in self.texts]
        return np.array(code_of_place, dtype=np.int8)[self.places]


def show_value(text: str | None) -> str:
    """Quote a text, but show a number or a truth value without quotes.

    >>> [show_value(text) for text in ("ok", "-2.5", "True", None)]
    ["'ok'", '-2.5', 'True', 'missing']
    """
    if text is None:
        return "missing"
    bare = text in ("True", "False") or _NUMBER.fullmatch(text)
    return text if bare else repr(text)


def show_counts(counts: Mapping[str | None, int]) -> str:
    """List values with the number of rows of each.

    >>> show_counts({"ok": 1200, "fraud": 1})
    "'ok' (1,200 rows), 'fraud' (1 row)"
    """
    if not counts:
        return "no values at all"
    shown = [
        f"{show_value(text)} ({count:,} row{'' if count == 1 else 's'})"
        for text, count in list(counts.items())[:MAX_SHOWN]
    ]
    hidden = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {hidden:,} more values" if hidden else "")


def nearest_spelling(text: str, candidates: Iterable[str | None]) -> str | None:
    """Return the candidate of which `text` may be a misspelling.

    >>> nearest_spelling("Fruad", ["ok", "fraud"]), nearest_spelling("1", ["-1"])
    ('fraud', None)
    """
    # -1 is not a misspelling of 1: only texts with letters are compared.
    by_lower = {c.lower(): c for c in candidates if c and any(map(str.isalpha, c))}
    close = difflib.get_close_matches(text.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None
