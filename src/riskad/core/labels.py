"""Label codes: the three codes, the check that accepts nothing else, and how label values compare.

Inside the package a label is one of three int16 codes:

==========  ====  ========================================
NORMAL       +1   a person or a test said the row is normal
ANOMALY      -1   a person or a test said it is an anomaly
UNLABELLED    0   nobody said
==========  ====  ========================================

Other libraries use the same numbers for other things, and data files use words. So the user always
states what a value means; it is never guessed. `riskad.core.label_parsing` translates labels, and
`check_codes` accepts only the three codes. A `y` that holds only 0 and 1 can be read in several
ways and is refused, unless its type is int16. The translations return that type, in which nobody
else keeps labels; and slices, NumPy, pandas, polars and joblib keep it.

Label values, before they are codes:

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
from numbers import Real
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError

NORMAL = 1
ANOMALY = -1
UNLABELLED = 0

KINDS = (UNLABELLED, NORMAL, ANOMALY)
"""The kinds of label in the order of per-kind arrays: `array[code]` finds -1 at the end."""

Codes: TypeAlias = NDArray[np.int16]

# Values listed in a message: more would bury the advice after them.
MAX_SHOWN = 8
_WHOLE_NUMBER = re.compile(r"([+-]?)(0|[1-9][0-9]*)(\.0*)?")
# Texts that are shown without quotes. "+5" and "007" are shown with them, as they were written.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
_MISSING_TEXT = ("None", "nan", "NaN", "NaT", "<NA>")


def check_codes(y: Any) -> Codes:
    """Return `y` as int16 codes, or raise an error that shows how to translate it.

    Accepts only the numbers +1 (normal), -1 (anomaly) and 0 (unlabelled), as integers or floats;
    text, truth values and missing values are refused. A `y` of only 0 and 1, which other libraries
    read differently, is also refused, unless it is of type int16, as what `parse_labels` returns.
    An int16 array is not copied.

    >>> check_codes([1.0, -1.0, 0.0])
    array([ 1, -1,  0], dtype=int16)
    >>> check_codes(["ok", "fraud"])
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), \
got 'ok' (1 row), 'fraud' (1 row). Say what the values mean: riskad.parse_labels(y, normal=..., \
anomaly=...).
    >>> check_codes(np.array([0, 1], dtype=np.int16))
    array([0, 1], dtype=int16)
    """
    y = _one_column(y)
    codes = read_codes(y)
    # The type is the only mark that survives slicing and joblib of labels having been translated.
    if not has_code_type(y):
        refuse_ambiguous(count_labels(codes))
    return codes


def has_code_type(y: Any) -> bool:
    """Whether an array, tensor or column of any library has the type of codes, int16."""
    # torch says "torch.int16" and pandas "Int16" if there may be gaps.
    return str(getattr(y, "dtype", "")).rsplit(".", 1)[-1].lower() == "int16"


def check_rows_match(X: Any, codes: Codes) -> None:
    """Each row of X must have one label."""
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(codes) != n_rows:
        raise InputError(
            f"X has {n_rows:,} rows and y {len(codes):,} labels. Give one label for each row, 0 "
            "where nobody checked."
        )


def read_codes(y: Any) -> Codes:
    """The codes of `y` as `check_codes` reads them, but a `y` of only 0 and 1 is accepted."""
    from sklearn.utils import column_or_1d  # here, so that importing this module stays light

    y = _on_host(y)
    try:
        # scikit-learn's own check, so that shapes are refused here as in its estimators.
        values = column_or_1d(y)
    except (ValueError, TypeError) as error:
        raise InputError(f"y must hold one label for each row: {error}") from error
    codes = _as_codes(values)
    if codes is None:
        distinct, places = factorise(values)
        counts = add_counts(distinct, np.bincount(places, minlength=len(distinct)).tolist())
        raise InputError(
            "y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), "
            f"got {show_counts(counts)}. {_remedy(set(counts))}"
        )
    return codes


def _on_host(y: Any) -> Any:
    """A torch tensor as an array; a frame of one column as that column."""
    if hasattr(y, "detach") and hasattr(y, "cpu"):  # by its methods, without importing torch
        return y.detach().cpu().numpy()
    return _one_column(y)


def _one_column(y: Any) -> Any:
    """The column of a frame of one column; anything else as it is."""
    # pandas and polars alike, without importing either.
    frame = hasattr(y, "columns") and len(getattr(y, "shape", ())) == 2 and y.shape[1] == 1
    return y[y.columns[0]] if frame else y


def _as_codes(values: NDArray[Any]) -> Codes | None:
    """Return `values` as int16 if all are codes, otherwise None."""
    if values.dtype == object:
        distinct, _ = factorise(values)
        # To Python True is a number, but it is not a code.
        if any(isinstance(v, (bool, np.bool_)) or not isinstance(v, Real) for v in distinct):
            return None
        values = values.astype(np.float64)
    # Truth values and texts are no codes, even where NumPy could turn them into numbers.
    if values.dtype.kind not in "iuf":
        return None
    with np.errstate(invalid="ignore"):  # NaN becomes some int16, which does not equal it
        codes: Codes = values.astype(np.int16, copy=False)
    # An empty array has no smallest entry.
    if not codes.size:
        return codes
    # int16 labels, which every fit inside the package has, need no comparison.
    exact = codes is values or bool((codes == values).all())
    return codes if exact and codes.min() >= ANOMALY and codes.max() <= NORMAL else None


def _remedy(texts: set[str | None]) -> str:
    """Which translation fits values that are not codes."""
    present = texts - {None}
    if present <= {"0"}:
        return "No row is labelled: label some rows as normal or as anomaly."
    if present <= {"True", "False"}:
        return (
            "If True is anomaly and False is normal: riskad.parse_labels(y, anomaly=True, "
            "normal=False); if False is unlabelled: riskad.parse_labels(y, anomaly=True, "
            "unlabelled=False); if True is normal: riskad.parse_labels(y, normal=True, "
            "anomaly=False)."
        )
    if present <= {"1", "-1", "0"}:
        argument_of = {"1": "normal=1", "-1": "anomaly=-1", "0": "unlabelled=0"}
        arguments = [argument for text, argument in argument_of.items() if text in present]
        return (
            "If these are the codes as text, or with missing values for unlabelled: "
            f"riskad.parse_labels(y, {', '.join(arguments)})."
        )
    remedy = "Say what the values mean: riskad.parse_labels(y, normal=..., anomaly=...)."
    if present == {"0", "1", "2"}:
        # Seen in practice: it renumbers the classes of y for every method but predict.
        remedy += (
            " If you called cross_val_predict, it turns -1, 0, 1 into 0, 1, 2 before fit "
            'unless method="predict".'
        )
    return remedy


def refuse_ambiguous(counts: LabelCounts) -> None:
    """Refuse labels that hold only 0 and 1, if their meaning is not known."""
    if hint := ambiguity_hint(counts):
        raise InputError(hint)


def ambiguity_hint(codes: Codes | LabelCounts) -> str:
    """The readings of a `y` that holds only 0 and 1, or "" for any other `y`.

    By our codes this `y` means normal and unlabelled; users of another library may mean something
    else.
    """
    counts = codes if isinstance(codes, LabelCounts) else count_labels(codes)
    # A -1 occurs in no other convention beside 0 and 1, and one value alone cannot be confused.
    if counts.anomaly or not counts.normal or not counts.unlabelled:
        return ""
    zeros, ones = show_counts({"0": counts.unlabelled}), show_counts({"1": counts.normal})
    return (
        f"y holds only {zeros} and {ones}, which can mean several things. Say which, with one of "
        "these in place of y:\n"
        "  1 normal, 0 unlabelled:                     "
        "riskad.parse_labels(y, normal=1, unlabelled=0)\n"
        "  1 anomaly, 0 normal (PyOD):                 "
        "riskad.parse_labels(y, anomaly=1, normal=0)\n"
        "  1 anomaly, 0 unlabelled (DeepOD, ADBench):  "
        "riskad.parse_labels(y, anomaly=1, unlabelled=0)"
    )


@dataclass(frozen=True)
class LabelCounts:
    """Number of rows with each kind of label.

    >>> print(LabelCounts(normal=95, anomaly=12, unlabelled=1893))
    95 normal, 12 anomalies, 1,893 unlabelled
    """

    normal: int
    anomaly: int
    unlabelled: int

    def __str__(self) -> str:
        anomalies = "anomaly" if self.anomaly == 1 else "anomalies"
        return (
            f"{self.normal:,} normal, {self.anomaly:,} {anomalies}, {self.unlabelled:,} unlabelled"
        )


def count_labels(codes: Codes) -> LabelCounts:
    """Count the rows of each kind."""
    normal, anomaly = (int(np.count_nonzero(codes == code)) for code in (NORMAL, ANOMALY))
    return LabelCounts(normal, anomaly, len(codes) - normal - anomaly)


# --- label values --------------------------------------------------------------------------


def comparable_text(value: object) -> str | None:
    """Return the text by which `value` is compared, or None if it is missing.

    >>> [comparable_text(value) for value in (1, 1.0, "+1.0", True, " ok ", "01", float("nan"), "")]
    ['1', '1', '1', 'True', 'ok', '01', None, None]
    """
    # Columns of fixed-width bytes come from old files; their labels are as readable as texts.
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = str(value).strip()
    # Recognise a missing value by its text, without importing the library it came from.
    if not text or (not isinstance(value, str) and text in _MISSING_TEXT):
        return None
    # Files have TRUE (spreadsheets), true (JSON) and True (Python) for one value.
    if text.lower() in ("true", "false"):
        return text.capitalize()
    whole = _WHOLE_NUMBER.fullmatch(text)
    # int() drops a plus sign and turns -0 into 0.
    return str(int(whole[1] + whole[2])) if whole else text


def as_label_column(y: Any, name: str) -> NDArray[Any]:
    """Return `y` as a one-dimensional array, without turning mixed lists into text."""
    if isinstance(y, np.ma.MaskedArray):
        # np.asarray would drop the mask and bring the hidden values back.
        y = np.where(np.ma.getmaskarray(y), np.array(None), y.data)
    # NumPy would turn [1, "a"] into texts; as objects the entries stay what they are.
    values = np.asarray(y, dtype=object if isinstance(y, (list, tuple)) else None)
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{name} must hold one label for each row, got shape {values.shape}.")
    return values


def factorise(values: NDArray[Any]) -> tuple[list[object], NDArray[np.intp]]:
    """Return the distinct values and, for each row, the position of its value among them."""
    if values.dtype.kind in "biuf":
        # All NaN count as one value here.
        distinct, places = np.unique(values, return_inverse=True)
        return distinct.tolist(), places
    rows = values.tolist()
    keys = rows
    if not set(map(type, rows)) <= {str, NoneType}:
        # The key is type and text: values would fail, since True == 1 and nan != nan.
        keys = list(zip(map(type, rows), map(str, rows), strict=True))
    # Of equal keys the last row stays, and any of them will do: they have the same text.
    examples = dict(zip(keys, rows, strict=True))
    place_of = {key: place for place, key in enumerate(examples)}
    places = np.fromiter(map(place_of.__getitem__, keys), dtype=np.intp, count=len(keys))
    return list(examples.values()), places


def add_counts(values: Iterable[object], counts: Iterable[int]) -> dict[str | None, int]:
    """Return the number of rows of each text, of which several values may be spellings."""
    total: Counter[str | None] = Counter()
    for value, count in zip(values, counts, strict=True):
        total[comparable_text(value)] += count
    return dict(total.most_common())


def show_label(text: str | None) -> str:
    """Quote a text, but show a number or a truth value without quotes."""
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
    listed = [
        f"{show_label(text)} ({count:,} row{'' if count == 1 else 's'})"
        for text, count in list(counts.items())[:MAX_SHOWN]
    ]
    hidden = len(counts) - len(listed)
    return ", ".join(listed) + (f" and {hidden:,} more values" if hidden else "")


def nearest_spelling(text: str, candidates: Iterable[str | None]) -> str | None:
    """Return the candidate of which `text` may be a misspelling.

    >>> nearest_spelling("Fruad", ["ok", "fraud"]), nearest_spelling("1", ["-1"])
    ('fraud', None)
    """
    # -1 is not a misspelling of 1: only texts with letters are compared.
    by_lower = {c.lower(): c for c in candidates if c and any(map(str.isalpha, c))}
    close = difflib.get_close_matches(text.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None
