"""Columns as model files of earlier versions have them.

They held one dict for each fact of a column; kinds were number, text and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from riskad.core.checks import InputError
from riskad.storage.fields import (
    COUNT,
    NUMBER,
    TEXT,
    DictOf,
    Either,
    Fields,
    ListOf,
    Maybe,
    Text,
    check_state,
)
from riskad.tables.formats.number_format import NumberFormat
from riskad.tables.prepared.base import PreparedColumn
from riskad.tables.prepared.categories import OTHER, CategoryColumn
from riskad.tables.prepared.left_out import LeftOut
from riskad.tables.prepared.numbers import NumberColumn

__all__ = ["EARLIER", "upgraded_columns"]

EARLIER: Fields = {
    "kinds_": DictOf(TEXT, Text(choices=("number", "text", "dropped"))),
    "medians_": DictOf(TEXT, NUMBER),
    "blanks_": DictOf(TEXT, COUNT),
    "levels_": DictOf(TEXT, ListOf(TEXT)),
    "rare_": DictOf(TEXT, COUNT),
    "rare_hashes_": DictOf(TEXT, ListOf(COUNT)),
    "dropped_": DictOf(TEXT, TEXT),
    "usual_": DictOf(TEXT, Maybe(Either(NUMBER, TEXT))),
    "n_rows_": COUNT,
}
"""The facts of columns in states of earlier versions."""


def upgraded_columns(state: Mapping[str, Any]) -> dict[str, PreparedColumn]:
    """Return the columns that a state of an earlier version describes.

    Parameters
    ----------
    state
        As it was read from a file.

    Returns
    -------
    dict
        A column for each name.
    """
    known = {name: value for name, value in state.items() if name in EARLIER}
    check_state(known, EARLIER)
    makers = {"number": _number, "text": _category, "dropped": _left_out}
    try:
        return {name: makers[kind](name, known) for name, kind in known["kinds_"].items()}
    except KeyError as error:
        raise InputError(f"kinds_: nothing is said of column {error}") from None


def _number(name: str, state: Mapping[str, Any]) -> NumberColumn:
    usual, median = state["usual_"][name], state["medians_"].get(name)
    middle = median if median is not None else usual
    blanks = state["blanks_"][name]
    return NumberColumn(
        name,
        "number",
        form=NumberFormat().to_dict(),
        median=median,
        middle=0.0 if middle is None or isinstance(middle, str) else float(middle),
        spread=abs(median or 0.0) + 1,
        blanks=blanks,
        n_rows=max(blanks, state["n_rows_"]),
    )


def _category(name: str, state: Mapping[str, Any]) -> CategoryColumn:
    levels = list(state["levels_"][name])
    rare = state["rare_"].get(name, 0)
    return CategoryColumn(
        name,
        "category",
        levels=levels,
        n_levels=len(levels) - (OTHER in levels) + rare,
        rare=rare,
        rare_hashes=state["rare_hashes_"].get(name),
        most_frequent=str(state["usual_"][name]),
    )


def _left_out(name: str, state: Mapping[str, Any]) -> LeftOut:
    return LeftOut(name, "constant", why=state["dropped_"][name])
