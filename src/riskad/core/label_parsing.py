"""Translation of labels in any spelling into label codes.

The top of `riskad.core.labels` explains how two values compare, in `y` and in the given spellings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np

from riskad.core.checks import InputError, check_choice
from riskad.core.labels import (
    ANOMALY,
    MAX_SHOWN,
    NORMAL,
    UNLABELLED,
    Codes,
    add_counts,
    as_label_column,
    comparable_text,
    factorise,
    nearest_spelling,
    read_codes,
    show_counts,
    show_label,
)

__all__ = ["parse_distinct", "parse_labels"]

_CODES = {"normal": NORMAL, "anomaly": ANOMALY, "unlabelled": UNLABELLED}
Counts: TypeAlias = Mapping[str | None, int]
"""How many rows have each text; None is missing."""


def _spellings(kind: str, values: object) -> list[str]:
    """The texts of one spelling or of a collection of them."""
    # A text is iterable, too, but means one spelling and not its letters.
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        values = [] if values is None else [values]
    texts = [comparable_text(value) for value in values]
    # If missing could mean a label, a column with gaps would label rows that nobody looked at.
    if None in texts and kind != "unlabelled":
        raise InputError(
            f"{kind}={list(values)!r} includes a missing value, but missing always means "
            f"unlabelled. Write a word into the rows you mean and give that as {kind}."
        )
    return [text for text in texts if text is not None]


def _meanings(spellings: Mapping[str, list[str]]) -> dict[str | None, int]:
    """The code of each text; a text may have only one meaning."""
    kind_of: dict[str, str] = {}
    for kind, texts in spellings.items():
        for text in texts:
            # Spellings such as 1 and "1.0" are one text, so that a clash shows only here.
            if kind_of.setdefault(text, kind) != kind:
                raise InputError(
                    f"{show_label(text)} is given both as {kind_of[text]} and as {kind}; "
                    "a value can have one meaning only."
                )
    # Missing stays unlabelled even if the user lists nothing for it.
    return {None: UNLABELLED} | {text: _CODES[kind] for text, kind in kind_of.items()}


def parse_labels(
    y: Any,
    *,
    normal: object = None,
    anomaly: object = None,
    unlabelled: object = None,
    others: str = "raise",
    name: str = "y",
) -> Codes:
    """Translate labels in any spelling into +1 normal, -1 anomaly, 0 unlabelled.

    Parameters
    ----------
    y
        One label for each row: a list, an array, a pandas or polars Series, a categorical.
    normal, anomaly, unlabelled
        The value, or a collection of the values, with this meaning. Give at least one of `normal`
        and `anomaly`; it must occur in `y`, since a misspelling would otherwise go unnoticed.
        Missing values are always unlabelled. The top of `riskad.core.labels` explains how
        values compare.
    others : {"raise", "unlabelled"}
        What to do with any other value. With "unlabelled", *every* spelling of `normal` and
        `anomaly` must occur, since nothing else would show that one is misspelled.
    name
        What to call `y` in messages.

    Returns
    -------
    An int16 array with the codes of the rows. Estimators accept it directly, even if it holds only
    0 and 1.

    Examples
    --------
    >>> parse_labels(["ok", "fraud", "", None, "ok"], normal="ok", anomaly="fraud")
    array([ 1, -1,  0,  0,  1], dtype=int16)
    >>> parse_labels([0, 1, 1, 9], normal=0, anomaly=1, unlabelled=[8, 9])
    array([ 1, -1, -1,  0], dtype=int16)
    >>> parse_labels(["fraud", "open", "held"], anomaly="fraud", others="unlabelled")
    array([-1,  0,  0], dtype=int16)
    >>> parse_labels(["ok", "fruad"], normal="ok", anomaly="fraud")
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: anomaly='fraud' never occurs in y. Did you mean 'fruad'? Values \
seen: 'ok' (1 row), 'fruad' (1 row). Give the value as it is written there, or leave it out if \
no row is labelled so.
    """
    spellings = {"normal": normal, "anomaly": anomaly, "unlabelled": unlabelled}
    # Few labels are distinct: each is looked up once, whatever the number of rows.
    distinct, places = factorise(as_label_column(y, name))
    counts = np.bincount(places, minlength=len(distinct)).tolist()
    meaning = _read_meanings(add_counts(distinct, counts), spellings, others, name)
    codes = [meaning.get(comparable_text(value), UNLABELLED) for value in distinct]
    return np.array(codes, dtype=np.int16)[places]


def parse_distinct(
    counts: Mapping[Any, int], *, others: str = "raise", name: str = "y", **spellings: object
) -> dict[Any, int]:
    """The code of each distinct label, from the number of rows that have it.

    As `parse_labels` with `normal`, `anomaly` and `unlabelled`, for columns that are not in memory.
    Without the first two, the labels must already be codes.

    >>> parse_distinct({"ok": 900, "fraud": 7, None: 10**9}, normal="ok", anomaly="fraud")
    {'ok': 1, 'fraud': -1, None: 0}
    """
    if spellings.get("normal") is not None or spellings.get("anomaly") is not None:
        # Spellings of one value, such as 1 and 1.0, are counted together, as messages show them.
        by_text = add_counts(counts, counts.values())
        meaning = _read_meanings(by_text, spellings, others, name)
        return {value: meaning.get(comparable_text(value), UNLABELLED) for value in counts}
    # Nothing to translate: the column must hold the codes themselves; a missing one is unlabelled.
    values = [value for value in counts if value is not None]
    code_of = dict(zip(values, read_codes(values).tolist(), strict=True))
    codes = {value: code_of.get(value, UNLABELLED) for value in counts}
    # Distinct values have lost the type int16, which would show that codes were translated.
    if set(codes.values()) == {NORMAL, UNLABELLED}:
        by_text = {comparable_text(value): n_rows for value, n_rows in counts.items()}
        zero = "0" if "0" in by_text else "missing"
        raise InputError(
            f"{name} holds only {show_counts(by_text)}, which can mean several things. Say which: "
            f"normal=1, unlabelled=0 if 1 is normal and {zero} unlabelled; anomaly=1, "
            f"unlabelled=0 if 1 is an anomaly and {zero} unlabelled; normal=0, anomaly=1 if 0 is "
            "normal and 1 an anomaly."
        )
    return codes


def _read_meanings(
    counts: Counts, values: Mapping[str, object], others: str, name: str
) -> dict[str | None, int]:
    """The meaning of each text, after checking the given spellings against the data."""
    lenient = check_choice("others", others, ("raise", "unlabelled")) == "unlabelled"
    spellings = {kind: _spellings(kind, values.get(kind)) for kind in _CODES}
    meaning = _meanings(spellings)
    if not spellings["normal"] and not spellings["anomaly"]:
        raise InputError(
            f"Say which value means normal, which means anomaly, or both: normal=..., "
            f"anomaly=.... Values seen in {name}: {show_counts(counts)}."
        )
    # "unlabelled" is not checked: that a table has no row of it is usual.
    for kind in ("normal", "anomaly"):
        absent = [text for text in spellings[kind] if text not in counts]
        # Several spellings may be given of which a table has only some: one that occurs is enough,
        # unless nothing else would show that another is misspelled.
        if absent and (lenient or len(absent) == len(spellings[kind])):
            nearest = nearest_spelling(absent[0], counts)
            guess = f" Did you mean {show_label(nearest)}?" if nearest else ""
            raise InputError(
                f"{kind}={show_label(absent[0])} never occurs in {name}.{guess} "
                f"Values seen: {show_counts(counts)}. "
                "Give the value as it is written there, or leave it out if no row is labelled so."
            )
    unknown = {text: count for text, count in counts.items() if text not in meaning}
    if unknown and not lenient:
        guesses = "".join(
            f" By {show_label(text)}, did you mean {show_label(nearest)}?"
            for text in list(unknown)[:MAX_SHOWN]
            if text and (nearest := nearest_spelling(text, meaning))
        )
        raise InputError(
            f"{name} holds values of unknown meaning: {show_counts(unknown)}.{guesses} Say what "
            "each means with normal=..., anomaly=... or unlabelled=...; or, with "
            'others="unlabelled", that every other value is unlabelled.'
        )
    return meaning
