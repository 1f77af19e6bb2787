"""Label codes: the three codes, and the check that accepts nothing else.

Inside the package a label is one of three int8 codes:

==========  ====  ========================================
NORMAL       +1   a person or a test said the row is normal
ANOMALY      -1   a person or a test said it is an anomaly
UNLABELLED    0   nobody said
==========  ====  ========================================

Other libraries use the same numbers for other things, and data files use words. So the user always
states what a value means; it is never guessed. `riskad.core.label_parsing` translates labels, and
`check_codes` accepts only the three codes. A `y` that holds only 0 and 1 can be read in several
ways and is refused, unless it comes from one of the translations: they return `LabelCodes`, an
array that records that its meaning is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.core.label_values import LabelColumn, factorise, show_counts

__all__ = [
    "ANOMALY",
    "KINDS",
    "NORMAL",
    "UNLABELLED",
    "LabelCodes",
    "LabelCounts",
    "ambiguity_hint",
    "check_codes",
    "check_rows_match",
    "count_labels",
    "is_said",
    "read_codes",
    "refuse_ambiguous",
]


NORMAL = 1
ANOMALY = -1
UNLABELLED = 0

KINDS = (UNLABELLED, NORMAL, ANOMALY)
"""The kinds of label in the order of per-kind arrays: `array[code]` finds -1 at the end."""

Codes: TypeAlias = NDArray[np.int8]


class LabelCodes(np.ndarray[tuple[Any, ...], np.dtype[np.int8]]):
    """int8 codes whose meaning is known; otherwise a usual array.

    Slices of it are `LabelCodes`, too. Arrays computed from it are plain arrays.

    >>> codes = LabelCodes.of(np.array([1, 0, 0], dtype=np.int8))
    >>> codes[1:], codes == 1
    (LabelCodes([0, 0], dtype=int8), array([ True, False, False]))
    """

    @classmethod
    def of(cls, codes: NDArray[np.int8]) -> LabelCodes:
        """The same codes, not copied, marked as codes whose meaning is known."""
        return codes.view(cls)

    def __array_wrap__(
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        return array[()] if return_scalar else np.asarray(array)


def check_codes(y: Any) -> LabelCodes:
    """Return `y` as int8 codes, or raise an error that shows how to translate it.

    Accepts only the numbers +1 (normal), -1 (anomaly) and 0 (unlabelled), as integers or floats;
    text, truth values and missing values are refused. A `y` of only 0 and 1, which other libraries
    read differently, is also refused, unless it is `LabelCodes`, the result of `parse_labels` and
    the `from_*` functions. An int8 array is not copied.

    >>> check_codes([1.0, -1.0, 0.0])
    LabelCodes([ 1, -1,  0], dtype=int8)
    >>> check_codes(["ok", "fraud"])
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), \
got 'ok' (1 row), 'fraud' (1 row). Say what the values mean: riskad.parse_labels(y, normal=..., \
anomaly=...).
    >>> check_codes(LabelCodes.of(np.array([0, 1], dtype=np.int8)))
    LabelCodes([0, 1], dtype=int8)
    """
    codes = read_codes(y)
    if not is_said(y):
        refuse_ambiguous(count_labels(codes))
    return codes


def check_rows_match(X: Any, codes: Codes) -> None:
    """Each row of X must have one label."""
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if len(codes) != n_rows:
        raise InputError(
            f"X has {n_rows:,} rows and y {len(codes):,} labels. Give one label for each row, 0 "
            "where nobody checked."
        )


def is_said(y: Any) -> bool:
    """Whether `y` comes from a translation, so that its 0 and 1 have one meaning."""
    return isinstance(y, LabelCodes) and y.dtype == np.int8


def read_codes(y: Any) -> LabelCodes:
    """The codes of `y` as `check_codes` reads them, but a `y` of only 0 and 1 is accepted."""
    from sklearn.utils import column_or_1d  # here, so that importing this module stays light

    y = _on_host(y)
    try:
        values = column_or_1d(y)
    except (ValueError, TypeError) as error:
        raise InputError(f"y must hold one label for each row: {error}") from error
    codes = _as_codes(values)
    if codes is None:
        raise InputError(_refusal(values))
    return LabelCodes.of(codes)


def _on_host(y: Any) -> Any:
    """A torch tensor as an array; a frame of one column as that column."""
    if hasattr(y, "detach") and hasattr(y, "cpu"):  # by its methods, without importing torch
        return y.detach().cpu().numpy()
    if hasattr(y, "columns") and len(getattr(y, "shape", ())) == 2 and y.shape[1] == 1:
        return y[y.columns[0]]
    return y


def _as_codes(values: NDArray[Any]) -> Codes | None:
    """Return `values` as int8 if all are codes, otherwise None."""
    if values.dtype == object:
        distinct, _ = factorise(values)
        if any(isinstance(v, (bool, np.bool_)) or not isinstance(v, Real) for v in distinct):
            return None
        values = values.astype(np.float64)
    if values.dtype.kind not in "iuf":
        return None
    with np.errstate(invalid="ignore"):  # NaN becomes some int8, which does not equal it
        codes: Codes = values.astype(np.int8, copy=False)
    if not codes.size:
        return codes
    exact = codes is values or bool((codes == values).all())
    return codes if exact and codes.min() >= ANOMALY and codes.max() <= NORMAL else None


def _refusal(values: NDArray[Any]) -> str:
    counts = LabelColumn.read(values).counts()
    return (
        "y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), "
        f"got {show_counts(counts)}. {_remedy(set(counts))}"
    )


def _remedy(texts: set[str | None]) -> str:
    """Report which translation fits values that are not codes."""
    present = texts - {None}
    if present <= {"0"}:
        return "No row is labelled: label some rows as normal or as anomaly."
    if present <= {"True", "False"}:
        return (
            "If True is anomaly and False is normal: riskad.core.label_parsing.from_pyod(y); if "
            "False is unlabelled: riskad.core.label_parsing.from_deepod(y); if True is normal: "
            "riskad.parse_labels(y, normal=True, anomaly=False)."
        )
    if present <= {"1", "-1", "0"}:
        meant = {"1": "normal=1", "-1": "anomaly=-1", "0": "unlabelled=0"}
        arguments = [argument for text, argument in meant.items() if text in present]
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
    """Return the readings of a `y` that holds only 0 and 1, or "" for any other `y`.

    By our codes this `y` means normal and unlabelled; users of another library may mean something
    else.

    >>> print(ambiguity_hint(np.array([0, 1, 0], dtype=np.int8)))
    y holds only 0 (2 rows) and 1 (1 row), which can mean several things. Say which, with one of \
these in place of y:
      1 normal, 0 unlabelled:                     riskad.parse_labels(y, normal=1, unlabelled=0)
      1 anomaly, 0 normal (PyOD):                 riskad.core.label_parsing.from_pyod(y)
      1 anomaly, 0 unlabelled (DeepOD, ADBench):  riskad.core.label_parsing.from_deepod(y)
    >>> ambiguity_hint(np.array([0, 1, -1], dtype=np.int8))
    ''
    """
    seen = codes if isinstance(codes, LabelCounts) else count_labels(codes)
    if seen.anomaly or not seen.normal or not seen.unlabelled:
        return ""
    zeros, ones = show_counts({"0": seen.unlabelled}), show_counts({"1": seen.normal})
    return "\n".join(
        [
            f"y holds only {zeros} and {ones}, which can mean several things. Say which, with one "
            "of these in place of y:",
            "  1 normal, 0 unlabelled:                     "
            "riskad.parse_labels(y, normal=1, unlabelled=0)",
            "  1 anomaly, 0 normal (PyOD):                 riskad.core.label_parsing.from_pyod(y)",
            "  1 anomaly, 0 unlabelled (DeepOD, ADBench):  "
            "riskad.core.label_parsing.from_deepod(y)",
        ]
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
    """Count the rows of each kind.

    >>> count_labels(np.array([1, 0, 0, -1], dtype=np.int8))
    LabelCounts(normal=1, anomaly=1, unlabelled=2)
    """
    normal, anomaly = (int(np.count_nonzero(codes == code)) for code in (NORMAL, ANOMALY))
    return LabelCounts(normal, anomaly, len(codes) - normal - anomaly)
