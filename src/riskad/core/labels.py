"""The only room that knows how labels are spelled.

Inside the package a label is one of three int8 codes:

==========  ====  ========================================
NORMAL       +1   a person or a test said the row is normal
ANOMALY      -1   a person or a test said it is an anomaly
UNLABELLED    0   nobody said
==========  ====  ========================================

Other libraries use the same numbers for other things, and data files use words. What a
value means is therefore always said by the user, never guessed: `parse_labels` translates
any spelling, the `from_*` functions the conventions of other libraries, and `check_codes`
is the gate that lets only the three codes through. Of these a `y` that holds nothing but 0 and
1 can be read in several ways and is refused, unless it comes from one of the translations:
they return `LabelCodes`, an array that remembers that its meaning was said.

How two values compare, in `y` and in the spellings given for it:

- Values compare by their text, without surrounding blanks, and case matters.
- A whole number is the same however it is written: `1`, `1.0`, `"1"`, `"1.0"`, `"+1"`.
  `"01"` is not a number but a text of its own.
- A truth value is the same in any case: `True`, `"true"`, `"TRUE"`. It is not a number:
  `True` does not match `1`.
- `None`, NaN, NaT, pandas' NA, masked entries and blank text are missing. Missing always
  means unlabelled. The *text* `"NA"` or `"nan"` is not missing; say `unlabelled="NA"`.
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

from riskad.core.checks import InputError, check_choice

__all__ = [
    "ANOMALY",
    "NORMAL",
    "UNLABELLED",
    "LabelCodes",
    "LabelCounts",
    "ambiguity_hint",
    "check_codes",
    "check_rows_match",
    "count_labels",
    "from_anomatools",
    "from_deepod",
    "from_deepsad",
    "from_pulearn",
    "from_pyod",
    "from_sklearn",
    "is_said",
    "parse_distinct",
    "parse_labels",
    "read_codes",
    "refuse_ambiguous",
]

NORMAL = 1
ANOMALY = -1
UNLABELLED = 0

Codes: TypeAlias = NDArray[np.int8]


class LabelCodes(np.ndarray[tuple[Any, ...], np.dtype[np.int8]]):
    """int8 codes of which somebody has said what they mean; an array like any other otherwise.

    Rows of it are such codes, too. What is calculated from it is a plain array.

    >>> codes = LabelCodes.of(np.array([1, 0, 0], dtype=np.int8))
    >>> codes[1:], codes == 1
    (LabelCodes([0, 0], dtype=int8), array([ True, False, False]))
    """

    @classmethod
    def of(cls, codes: NDArray[np.int8]) -> LabelCodes:
        """The same codes, not copied, as codes whose meaning is known."""
        return codes.view(cls)

    def __array_wrap__(
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> Any:
        return array[()] if return_scalar else np.asarray(array)


_UNKNOWN = 2  # inside a translation only: a value that was given no meaning
_MAX_SHOWN = 8
_WHOLE_NUMBER = re.compile(r"([+-]?)(0|[1-9][0-9]*)(\.0*)?")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-][0-9]+)?")
_MISSING_TEXT = ("None", "nan", "NaN", "NaT", "<NA>")


# --- what a value is ---------------------------------------------------------------------


def _canonical(value: object) -> str | None:
    """Return the text by which `value` is compared, or None if it is missing.

    >>> [_canonical(value) for value in (1, 1.0, "+1.0", True, " ok ", "01", float("nan"), "")]
    ['1', '1', '1', 'True', 'ok', '01', None, None]
    """
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = str(value).strip()
    # By its text, a missing value is recognised without importing the library it came from.
    if not text or (not isinstance(value, str) and text in _MISSING_TEXT):
        return None
    if text.lower() in ("true", "false"):
        return text.capitalize()
    whole = _WHOLE_NUMBER.fullmatch(text)
    return str(int(whole[1] + whole[2])) if whole else text


def _as_column(y: Any, name: str) -> NDArray[Any]:
    """Return `y` as a one-dimensional array, without turning mixed lists into text."""
    if isinstance(y, np.ma.MaskedArray):
        y = np.where(np.ma.getmaskarray(y), np.array(None), y.data)
    values = np.asarray(y, dtype=object if isinstance(y, (list, tuple)) else None)
    if values.ndim == 2 and values.shape[1] == 1:
        return values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{name} must hold one label for each row, got shape {values.shape}.")
    return values


def _factorise(values: NDArray[Any]) -> tuple[list[object], NDArray[np.intp]]:
    """Return the distinct values and, for each row, the place of its value among them."""
    if values.dtype.kind in "biuf":
        distinct, places = np.unique(values, return_inverse=True)
        return distinct.tolist(), places
    rows = values.tolist()
    keys = rows
    if not set(map(type, rows)) <= {str, NoneType}:
        # Type and text make the key: True == 1 and nan != nan, so values would not do.
        keys = list(zip(map(type, rows), map(str, rows), strict=True))
    examples = dict(zip(keys, rows, strict=True))
    place_of = {key: place for place, key in enumerate(examples)}
    places = np.fromiter(map(place_of.__getitem__, keys), dtype=np.intp, count=len(keys))
    return list(examples.values()), places


@dataclass(frozen=True)
class _Column:
    """A label column as distinct texts (None if missing), and each row's place among them."""

    texts: list[str | None]
    places: NDArray[np.intp]

    @classmethod
    def read(cls, values: NDArray[Any]) -> _Column:
        distinct, places = _factorise(values)
        return cls([_canonical(value) for value in distinct], places)

    def counts(self) -> dict[str | None, int]:
        """Return the number of rows of each text, the most frequent first."""
        per_place = np.bincount(self.places, minlength=len(self.texts))
        total: Counter[str | None] = Counter()
        for text, count in zip(self.texts, per_place.tolist(), strict=True):
            total[text] += count
        return dict(total.most_common())

    def translate(self, meaning: Mapping[str | None, int]) -> LabelCodes:
        """Return each row's code; `_UNKNOWN` where its text has no meaning."""
        code_of_place = [meaning.get(text, _UNKNOWN) for text in self.texts]
        return LabelCodes.of(np.array(code_of_place, dtype=np.int8)[self.places])


# --- how a value is shown ----------------------------------------------------------------


def _show(text: str | None) -> str:
    """Quote a text, but show a number or a truth value as such.

    >>> [_show(text) for text in ("ok", "-2.5", "True", None)]
    ["'ok'", '-2.5', 'True', 'missing']
    """
    if text is None:
        return "missing"
    bare = text in ("True", "False") or _NUMBER.fullmatch(text)
    return text if bare else repr(text)


def _show_counts(counts: Mapping[str | None, int]) -> str:
    """List values with the number of rows of each.

    >>> _show_counts({"ok": 1200, "fraud": 1})
    "'ok' (1,200 rows), 'fraud' (1 row)"
    """
    if not counts:
        return "no values at all"
    shown = [
        f"{_show(text)} ({count:,} row{'' if count == 1 else 's'})"
        for text, count in list(counts.items())[:_MAX_SHOWN]
    ]
    hidden = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {hidden:,} more values" if hidden else "")


def _nearest(text: str, candidates: Iterable[str | None]) -> str | None:
    """Return the candidate of which `text` may be a misspelling.

    >>> _nearest("Fruad", ["ok", "fraud"]), _nearest("1", ["-1"])
    ('fraud', None)
    """
    # -1 is no misspelling of 1: only texts with letters are compared.
    by_lower = {c.lower(): c for c in candidates if c and any(map(str.isalpha, c))}
    close = difflib.get_close_matches(text.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None


# --- from any spelling -------------------------------------------------------------------


def _spellings(kind: str, given: object) -> list[str]:
    """Return the texts of one spelling or of a collection of them."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        given = [] if given is None else [given]
    texts = [_canonical(value) for value in given]
    if None in texts and kind != "unlabelled":
        raise InputError(
            f"{kind}={list(given)!r} includes a missing value, but missing always means "
            f"unlabelled. Write a word into the rows you mean and give that as {kind}."
        )
    return [text for text in texts if text is not None]


def _meanings(spelled: Mapping[str, list[str]]) -> dict[str | None, int]:
    """Return the code of each text, where a text may have one meaning only."""
    code_of_kind = {"normal": NORMAL, "anomaly": ANOMALY, "unlabelled": UNLABELLED}
    kind_of: dict[str, str] = {}
    for kind, texts in spelled.items():
        for text in texts:
            if kind_of.setdefault(text, kind) != kind:
                raise InputError(
                    f"{_show(text)} is given both as {kind_of[text]} and as {kind}; "
                    "a value can have one meaning only."
                )
    return {None: UNLABELLED} | {text: code_of_kind[kind] for text, kind in kind_of.items()}


def _check_occur(
    kind: str, texts: list[str], counts: Mapping[str | None, int], every: bool, name: str
) -> None:
    """Fail if none of `texts` occurs (or, with `every`, if one does not): it may be a typo."""
    absent = [text for text in texts if text not in counts]
    if not absent or (len(absent) < len(texts) and not every):
        return
    nearest = _nearest(absent[0], counts)
    guess = f" Did you mean {_show(nearest)}?" if nearest else ""
    raise InputError(
        f"{kind}={_show(absent[0])} never occurs in {name}.{guess} "
        f"Values seen: {_show_counts(counts)}. "
        "Give the value as it is written there, or leave it out if no row is labelled so."
    )


def _check_known(
    counts: Mapping[str | None, int], meaning: Mapping[str | None, int], name: str, remedy: str
) -> None:
    """Fail if a value was given no meaning."""
    unknown = {text: count for text, count in counts.items() if text not in meaning}
    if not unknown:
        return
    guesses = "".join(
        f" By {_show(text)}, did you mean {_show(nearest)}?"
        for text in list(unknown)[:_MAX_SHOWN]
        if text and (nearest := _nearest(text, meaning))
    )
    raise InputError(
        f"{name} holds values of unknown meaning: {_show_counts(unknown)}.{guesses} {remedy}"
    )


def parse_labels(
    y: Any,
    *,
    normal: object = None,
    anomaly: object = None,
    unlabelled: object = None,
    others: str = "raise",
    name: str = "y",
) -> LabelCodes:
    """Translate labels of any spelling into +1 normal, -1 anomaly, 0 unlabelled.

    Parameters
    ----------
    y
        One label for each row: a list, an array, a pandas or polars Series, a categorical.
    normal, anomaly, unlabelled
        The value, or a collection of the values, that mean this. At least one of `normal`
        and `anomaly` is needed, and must occur in `y`: a misspelled one would otherwise
        pass unseen. Missing values are unlabelled without being told. How values compare is
        written at the top of `riskad.core.labels`.
    others : {"raise", "unlabelled"}
        What to do with any other value. With "unlabelled", *every* spelling of `normal` and
        `anomaly` must occur, since nothing else would show that one is misspelled.
    name
        What to call `y` in messages.

    Returns
    -------
    `LabelCodes`, an int8 array with the codes of the rows. Estimators take it as it is, even where
    it holds nothing but 0 and 1.

    Examples
    --------
    >>> from riskad.core.labels import parse_labels
    >>> parse_labels(["ok", "fraud", "", None, "ok"], normal="ok", anomaly="fraud")
    LabelCodes([ 1, -1,  0,  0,  1], dtype=int8)
    >>> parse_labels([0, 1, 1, 9], normal=0, anomaly=1, unlabelled=[8, 9])
    LabelCodes([ 1, -1, -1,  0], dtype=int8)
    >>> parse_labels(["fraud", "open", "held"], anomaly="fraud", others="unlabelled")
    LabelCodes([-1,  0,  0], dtype=int8)
    >>> parse_labels(["ok", "fruad"], normal="ok", anomaly="fraud")
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: anomaly='fraud' never occurs in y. Did you mean 'fruad'? Values \
seen: 'ok' (1 row), 'fruad' (1 row). Give the value as it is written there, or leave it out if \
no row is labelled so.
    """
    column = _Column.read(_as_column(y, name))
    given = {"normal": normal, "anomaly": anomaly, "unlabelled": unlabelled}
    codes = column.translate(_read_meanings(column.counts(), given, others, name))
    codes[codes == _UNKNOWN] = UNLABELLED
    return codes


def parse_distinct(
    counts: Mapping[Any, int],
    *,
    normal: object = None,
    anomaly: object = None,
    unlabelled: object = None,
    others: str = "raise",
    name: str = "y",
) -> dict[Any, int]:
    """The code of each distinct label, from the number of rows that have it.

    As `parse_labels`, for columns that are not in memory. With neither `normal` nor `anomaly`
    labels must be codes already.

    >>> parse_distinct({"ok": 900, "fraud": 7, None: 10**9}, normal="ok", anomaly="fraud")
    {'ok': 1, 'fraud': -1, None: 0}
    """
    if normal is None and anomaly is None:
        return _own_codes(counts, name)
    given = {"normal": normal, "anomaly": anomaly, "unlabelled": unlabelled}
    by_text: Counter[str | None] = Counter()
    for value, n_rows in counts.items():
        by_text[_canonical(value)] += n_rows
    meaning = _read_meanings(dict(by_text.most_common()), given, others, name)
    return {value: meaning.get(_canonical(value), UNLABELLED) for value in counts}


def _own_codes(counts: Mapping[Any, int], name: str) -> dict[Any, int]:
    """The distinct labels as the codes they are; a missing one is unlabelled."""
    values = [value for value in counts if value is not None]
    code_of = dict(zip(values, read_codes(values).tolist(), strict=True))
    codes = {value: code_of.get(value, UNLABELLED) for value in counts}
    if set(codes.values()) == {NORMAL, UNLABELLED}:
        by_text = {_canonical(value): n_rows for value, n_rows in counts.items()}
        zero = "0" if "0" in by_text else "missing"
        raise InputError(
            f"{name} holds only {_show_counts(by_text)}, which can mean several things. Say which: "
            f"normal=1, unlabelled=0 if 1 is normal and {zero} unlabelled; anomaly=1, "
            f"unlabelled=0 if 1 is an anomaly and {zero} unlabelled; normal=0, anomaly=1 if 0 is "
            "normal and 1 an anomaly."
        )
    return codes


def _read_meanings(
    counts: Mapping[str | None, int], given: Mapping[str, object], others: str, name: str
) -> dict[str | None, int]:
    """What texts mean, if what was given fits what is there."""
    lenient = check_choice("others", others, ("raise", "unlabelled")) == "unlabelled"
    spelled = {kind: _spellings(kind, value) for kind, value in given.items()}
    meaning = _meanings(spelled)
    if not spelled["normal"] and not spelled["anomaly"]:
        raise InputError(
            f"Say which value means normal, which means anomaly, or both: normal=..., "
            f"anomaly=.... Values seen in {name}: {_show_counts(counts)}."
        )
    for kind in ("normal", "anomaly"):
        _check_occur(kind, spelled[kind], counts, every=lenient, name=name)
    if not lenient:
        _check_known(
            counts,
            meaning,
            name,
            "Say what each means with normal=..., anomaly=... or unlabelled=...; or, with "
            'others="unlabelled", that every other value is unlabelled.',
        )
    return meaning


# --- from the conventions of other libraries ---------------------------------------------


def _from_convention(y: Any, library: str, **spelled: list[str]) -> LabelCodes:
    """Translate by a fixed convention, in which a kind of label may well be absent."""
    column = _Column.read(_as_column(y, "y"))
    meaning = _meanings(spelled)
    listed = "; ".join(f"{kind} is {' or '.join(texts)}" for kind, texts in spelled.items())
    _check_known(
        column.counts(),
        meaning,
        "y",
        f"In {library}, {listed}. For other values use riskad.parse_labels(y, normal=..., "
        "anomaly=...).",
    )
    return column.translate(meaning)


def from_pyod(y: Any) -> LabelCodes:
    """Translate PyOD's labels (XGBOD, DevNet): 1 or True is anomaly, 0 or False is normal.

    >>> from_pyod([0, 0, 1])
    LabelCodes([ 1,  1, -1], dtype=int8)
    """
    return _from_convention(y, "PyOD", anomaly=["1", "True"], normal=["0", "False"])


def from_deepod(y: Any) -> LabelCodes:
    """Translate the labels of DeepOD and ADBench: 1 or True is anomaly, 0 or False unlabelled.

    >>> from_deepod([0, 0, 1])
    LabelCodes([ 0,  0, -1], dtype=int8)
    """
    return _from_convention(y, "DeepOD", anomaly=["1", "True"], unlabelled=["0", "False"])


def from_sklearn(y: Any, *, normal: object = None, anomaly: object = None) -> LabelCodes:
    """Translate labels of `sklearn.semi_supervised`: -1 is unlabelled, you name the classes.

    >>> from_sklearn([0, 1, -1, -1], normal=0, anomaly=1)
    LabelCodes([ 1, -1,  0,  0], dtype=int8)
    """
    return parse_labels(y, normal=normal, anomaly=anomaly, unlabelled=-1)


def from_deepsad(y: Any) -> LabelCodes:
    """Check Deep SAD's labels, which are our own: 1 normal, -1 anomaly, 0 unlabelled.

    >>> from_deepsad([1, -1, 0])
    LabelCodes([ 1, -1,  0], dtype=int8)
    """
    return read_codes(y)


def from_anomatools(y: Any) -> LabelCodes:
    """Translate the labels of anomatools: 1 is anomaly, -1 is normal, 0 is unlabelled.

    >>> from_anomatools([1, -1, 0])
    LabelCodes([-1,  1,  0], dtype=int8)
    """
    return _from_convention(y, "anomatools", anomaly=["1"], normal=["-1"], unlabelled=["0"])


def from_pulearn(y: Any, *, positive: str) -> LabelCodes:
    """Translate the labels of pulearn: 1 or True is a labelled positive; 0, -1, False unlabelled.

    Whether a positive is a normal row or an anomaly depends on the task: say it.

    >>> from_pulearn([1, 0, -1], positive="anomaly")
    LabelCodes([-1,  0,  0], dtype=int8)
    >>> from_pulearn([True, False], positive="normal")
    LabelCodes([1, 0], dtype=int8)
    """
    kind = check_choice("positive", positive, ("normal", "anomaly"))
    spelled = {kind: ["1", "True"], "unlabelled": ["0", "-1", "False"]}
    return _from_convention(y, "pulearn", **spelled)


# --- the gate ----------------------------------------------------------------------------


def check_codes(y: Any) -> LabelCodes:
    """Return `y` as int8 codes, or say how to translate it.

    Only the numbers +1 (normal), -1 (anomaly) and 0 (unlabelled) pass, as integers or floats;
    text, truth values and missing values do not. Neither does a `y` of 0 and 1 alone, which other
    libraries read in other ways, unless it is `LabelCodes`: what `parse_labels` and the `from_*`
    functions return. An int8 array passes without being copied.

    >>> check_codes([1.0, -1.0, 0.0])
    LabelCodes([ 1, -1,  0], dtype=int8)
    >>> check_codes(["ok", "fraud"])
    Traceback (most recent call last):
        ...
    riskad.core.checks.InputError: y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), \
got 'ok' (1 row), 'fraud' (1 row). Say what the values mean: riskad.parse_labels(y, normal=..., \
anomaly=...).
    >>> check_codes(parse_labels([0, 1], normal=1, unlabelled=0))
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
    """The codes of `y` as `check_codes` reads them, taken at their word: 0 and 1 alone pass."""
    from sklearn.utils import column_or_1d  # here, so that importing this room stays light

    try:
        values = column_or_1d(_on_host(y))
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
        distinct, _ = _factorise(values)
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
    counts = _Column.read(values).counts()
    return (
        "y must hold only +1 (normal), -1 (anomaly) and 0 (unlabelled), "
        f"got {_show_counts(counts)}. {_remedy(set(counts))}"
    )


def _remedy(texts: set[str | None]) -> str:
    """Say which translation fits values that are not codes."""
    present = texts - {None}
    if present <= {"0"}:
        return "No row is labelled: label some rows as normal or as anomaly."
    if present <= {"True", "False"}:
        return (
            "If True is anomaly and False is normal: riskad.core.labels.from_pyod(y); if False is "
            "unlabelled: riskad.core.labels.from_deepod(y); if True is normal: "
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
        # Seen in the wild: it numbers the classes of y anew for every method but predict.
        remedy += (
            " If you called cross_val_predict, it turns -1, 0, 1 into 0, 1, 2 before fit "
            'unless method="predict".'
        )
    return remedy


def refuse_ambiguous(counts: LabelCounts) -> None:
    """Refuse labels that hold only 0 and 1, where nobody has said what these mean."""
    if hint := ambiguity_hint(counts):
        raise InputError(hint)


def ambiguity_hint(codes: Codes | LabelCounts) -> str:
    """Return the readings of a `y` that holds only 0 and 1, or "" for any other `y`.

    By our codes such a `y` says normal and unlabelled; who comes from another library may
    mean something else by it.

    >>> print(ambiguity_hint(np.array([0, 1, 0], dtype=np.int8)))
    y holds only 0 (2 rows) and 1 (1 row), which can mean several things. Say which, with one of \
these in place of y:
      1 normal, 0 unlabelled:                     riskad.parse_labels(y, normal=1, unlabelled=0)
      1 anomaly, 0 normal (PyOD):                 riskad.core.labels.from_pyod(y)
      1 anomaly, 0 unlabelled (DeepOD, ADBench):  riskad.core.labels.from_deepod(y)
    >>> ambiguity_hint(np.array([0, 1, -1], dtype=np.int8))
    ''
    """
    seen = codes if isinstance(codes, LabelCounts) else count_labels(codes)
    if seen.anomaly or not seen.normal or not seen.unlabelled:
        return ""
    zeros, ones = _show_counts({"0": seen.unlabelled}), _show_counts({"1": seen.normal})
    return "\n".join(
        [
            f"y holds only {zeros} and {ones}, which can mean several things. Say which, with one "
            "of these in place of y:",
            "  1 normal, 0 unlabelled:                     "
            "riskad.parse_labels(y, normal=1, unlabelled=0)",
            "  1 anomaly, 0 normal (PyOD):                 riskad.core.labels.from_pyod(y)",
            "  1 anomaly, 0 unlabelled (DeepOD, ADBench):  riskad.core.labels.from_deepod(y)",
        ]
    )


# --- counting ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelCounts:
    """How many rows carry each kind of label.

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
