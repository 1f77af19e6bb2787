"""Allowed stored values: fields, by which everything in a model file is checked.

A class that may occur in a model file declares a `Field` for each of its attributes:

    _state_fields = {"coef_": Array("f", ("n_features_in_",)), "offset_": Number()}

`check_state` then checks a state against them: no attribute may be missing or unknown, and every
value must have its type, shape and range. Sizes in shapes are numbers or names. A name that is an
attribute of the state has its value; any other name takes the first size that it meets, and must be
the same wherever it appears.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from riskad.core.checks import InputError, enumerate_names, is_unicode

__all__ = [
    "ANYTHING_PLAIN",
    "COUNT",
    "FLAG",
    "NAME",
    "NAMES",
    "NUMBER",
    "POSITIVE",
    "SEED",
    "SHARE",
    "SIZE",
    "TEXT",
    "Array",
    "DictOf",
    "Either",
    "Field",
    "Fields",
    "Fixed",
    "ListOf",
    "Maybe",
    "Number",
    "Optional",
    "Plain",
    "Record",
    "Span",
    "State",
    "Text",
    "Tuple",
    "check_state",
    "require",
]

Sizes: TypeAlias = dict[str, int]
State: TypeAlias = Mapping[str, Any]

_LARGEST_WHOLE = 2**63 - 1
_KINDS = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "truth values"}


class Field(ABC):
    """The allowed values of an attribute."""

    @abstractmethod
    def check(self, value: Any, sizes: Sizes) -> None:
        """Raise an `InputError` that explains what is wrong with the value."""


Fields: TypeAlias = Mapping[str, Field]


def _unlike(expected: str, value: Any) -> InputError:
    return InputError(f": expected {expected}, got {_show(value)}")


def _within(where: str, field: Field, value: Any, sizes: Sizes) -> None:
    """Check a part of a value; an error names the part."""
    try:
        field.check(value, sizes)
    except InputError as error:
        raise InputError(f"{where}{error}") from None


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if hasattr(value, "get_params"):
        return f"a {type(value).__name__}"
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


# --- single values ------------------------------------------------------------------------


@dataclass(frozen=True)
class Number(Field):
    """A number between `low` and `high`; the ends are allowed unless `open`."""

    low: float = -np.inf
    high: float = np.inf
    whole: bool = False
    open: bool = False

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that are not numbers, or not in the range."""
        types = int if self.whole else (int, float)
        what = "a whole number" if self.whole else "a number"
        if not isinstance(value, types) or isinstance(value, bool):
            raise _unlike(what, value)
        if isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
            raise _unlike(what, value)
        if not np.isfinite(value):
            raise _unlike(f"{what} that is finite", value)
        inside = self.low < value < self.high if self.open else self.low <= value <= self.high
        if not inside:
            raise _unlike(f"{what} between {self.low:g} and {self.high:g}", value)


@dataclass(frozen=True)
class Flag(Field):
    """True or False."""

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse everything else."""
        if not isinstance(value, bool):
            raise _unlike("True or False", value)


@dataclass(frozen=True)
class Text(Field):
    """A text, one of `choices` if there are any."""

    choices: Collection[str] = ()
    longest: int = 1_000_000
    shortest: int = 0

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse other values."""
        if not isinstance(value, str) or not is_unicode(value):
            raise _unlike("a text", value)
        if not self.shortest <= len(value) <= self.longest:
            raise _unlike(f"a text of {self.shortest} to {self.longest:,} letters", value)
        if self.choices and value not in self.choices:
            raise _unlike(f"one of {enumerate_names(self.choices, 30)}", value)


@dataclass(frozen=True)
class Span(Field):
    """A slice from one position to a later one."""

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that are not slices."""
        if not isinstance(value, slice) or value.step is not None:
            raise _unlike("a slice", value)
        for end in (value.start, value.stop):
            COUNT.check(end, sizes)
        if value.start > value.stop:
            raise _unlike("a slice that goes on", value)


@dataclass(frozen=True)
class Record(Field):
    """An object of one of these types, by the names they are stored under."""

    types: Collection[str]
    fitted: bool = True

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse objects of other types, and unfitted ones."""
        if type(value).__name__ not in self.types:
            raise _unlike(" or ".join(self.types), value)
        estimator = self.fitted and hasattr(type(value), "get_params")
        if estimator and not set(vars(value)) > set(value.get_params(deep=False)):
            raise _unlike("a fitted one", value)


# --- choices ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Maybe(Field):
    """None, or a value of the field."""

    field: Field

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that the field refuses, except None."""
        if value is not None:
            self.field.check(value, sizes)


@dataclass(frozen=True)
class Optional(Field):
    """An attribute that not every state has."""

    field: Field

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that the field refuses."""
        self.field.check(value, sizes)


class Either(Field):
    """A value that one of several fields allows."""

    def __init__(self, *fields: Field):
        self.fields = fields

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that all of them refuse, with the message of the last."""
        for field in self.fields[:-1]:
            try:
                return field.check(value, sizes)
            except InputError:
                continue
        return self.fields[-1].check(value, sizes)


# --- several values -----------------------------------------------------------------------


@dataclass(frozen=True)
class Array(Field):
    """A NumPy array of numbers: its kind of numbers, its shape and the range of its values.

    `kinds` are letters of NumPy's: f, i, u, b; None in a shape is any size, and for a
    shape any shape. Infinities and NaN are
    refused unless allowed.
    """

    kinds: str = "f"
    shape: tuple[int | str | None, ...] | None = ("n",)
    low: float = -np.inf
    high: float = np.inf
    infinite: bool = False
    gaps: bool = False
    rising: bool = False

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse other types and shapes, and values out of range."""
        if not isinstance(value, np.ndarray) or value.dtype.kind not in self.kinds:
            what = " or ".join(dict.fromkeys(_KINDS[kind] for kind in self.kinds))
            raise _unlike(f"an array of {what}", value)
        if self.shape is not None and value.ndim != len(self.shape):
            raise _unlike(f"{len(self.shape)} dimensions", value)
        for size, wanted in zip(value.shape, self.shape or (), strict=self.shape is not None):
            expected = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
            if expected is not None and size != expected:
                raise _unlike(f"a size of {expected} ({wanted})", value)
        numbers = value
        if value.dtype.kind == "f":
            numbers = value[~np.isnan(value)]
            if not self.gaps and numbers.size < value.size:
                raise _unlike("an array without NaN", value)
            if not self.infinite and np.isinf(value).any():
                raise _unlike("an array without infinities", value)
        if numbers.size and (numbers.min() < self.low or numbers.max() > self.high):
            raise _unlike(f"values between {self.low:g} and {self.high:g}", value)
        if self.rising and not (value[1:] >= value[:-1]).all():
            raise _unlike("values in rising order", value)


@dataclass(frozen=True)
class Names(Field):
    """An array of different texts, such as the names of columns."""

    size: str = "n_features_in_"

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse anything but an array of different texts of this size."""
        if not isinstance(value, np.ndarray) or value.dtype != object:
            raise _unlike("names", value)
        if value.ndim != 1:
            raise _unlike("one dimension", value)
        for name in value:
            TEXT.check(name, sizes)
        if len(set(value)) < len(value):
            raise _unlike("different names", value)
        if len(value) != sizes.setdefault(self.size, len(value)):
            raise _unlike("a name each", value)


@dataclass(frozen=True)
class ListOf(Field):
    """A list or a tuple of values of one field; `size` as in shapes."""

    field: Field
    size: int | str | None = None

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse values that are not such a list."""
        if type(value) not in (list, tuple):
            raise _unlike("a list", value)
        for place, each in enumerate(value):
            _within(f"[{place}]", self.field, each, sizes)
        if self.size is not None:
            n = sizes.setdefault(self.size, len(value)) if isinstance(self.size, str) else self.size
            if len(value) != n:
                raise _unlike(f"{n} values", value)


class Tuple(Field):
    """A tuple of fixed length, each value with its own field."""

    def __init__(self, *fields: Field):
        self.fields = fields

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse other lengths and values."""
        if type(value) is not tuple or len(value) != len(self.fields):
            raise _unlike(f"a tuple of {len(self.fields)}", value)
        for place, (field, each) in enumerate(zip(self.fields, value, strict=True)):
            _within(f"[{place}]", field, each, sizes)


@dataclass(frozen=True)
class DictOf(Field):
    """A dict of values of one field; `keys` is the field of each key."""

    keys: Field
    values: Field

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse other keys and values."""
        if type(value) is not dict:
            raise _unlike("a dict", value)
        for key, each in value.items():
            _within("", self.keys, key, sizes)
            _within(f"[{key!a}]", self.values, each, sizes)


@dataclass(frozen=True)
class Fixed(Field):
    """A dict with these keys, of which those that are `Optional` may be missing."""

    fields: Mapping[str, Field]

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse other keys, and values that do not match their field."""
        if type(value) is not dict:
            raise _unlike("a dict", value)
        check_state(value, self.fields, sizes)


class Plain(Field):
    """Numbers, texts, truth values, None, arrays of them, and lists and dicts of these."""

    def check(self, value: Any, sizes: Sizes) -> None:
        """Refuse objects."""
        if isinstance(value, (list, tuple)):
            for each in value:
                self.check(each, sizes)
        elif isinstance(value, dict):
            self.check([*value.keys(), *value.values()], sizes)
        elif isinstance(value, str):
            TEXT.check(value, sizes)
        elif value is not None and not isinstance(value, (bool, int, float, np.ndarray)):
            raise _unlike("plain values", value)


# --- states -------------------------------------------------------------------------------


def check_state(
    state: Mapping[str, Any],
    fields: Mapping[str, Field],
    sizes: Sizes | None = None,
    needed: Iterable[str] | None = None,
) -> Sizes:
    """Check a state against its fields; an `InputError` names the attribute that does not match.

    `needed` are the required attributes; by default all that are not `Optional`.
    Returns the sizes that were found.

    >>> fields = {"coef_": Array("f", ("n_features_in_",)), "n_features_in_": COUNT}
    >>> check_state({"n_features_in_": 2, "coef_": np.zeros(3)}, fields)
    Traceback (most recent call last):
    riskad.core.checks.InputError: coef_: expected a size of 2 (n_features_in_), got an array of \
float64 of shape (3,)
    """
    unknown = sorted(set(state) - set(fields))
    if unknown:
        raise InputError(f"unknown entries {enumerate_names(unknown)}")
    missing = []
    for name in sorted(set(fields if needed is None else needed) - set(state)):
        if needed is not None or not isinstance(fields[name], Optional):
            missing.append(name)
    if missing:
        raise InputError(f"without {enumerate_names(missing)}")
    sizes = {} if sizes is None else sizes
    for whole in (True, False):  # numbers come first: they are the sizes of arrays
        for name, value in state.items():
            if isinstance(value, int) == whole:
                _within(name, fields[name], value, sizes)
                if whole and not isinstance(value, bool):
                    sizes[name] = value
    return sizes


def require(holds: bool, what: str) -> None:
    """Raise an `InputError` unless a relation between the values of a state holds."""
    if not holds:
        raise InputError(what)


NUMBER = Number()
POSITIVE = Number(0, open=True)
COUNT = Number(0, whole=True)
SHARE = Number(0, 1)
SIZE = Number(1, 10**6, whole=True)
SEED = Maybe(Number(0, 2**32 - 1, whole=True))
FLAG = Flag()
TEXT = Text()
NAME = Text(longest=10_000)  # of a column; names of features repeat it
NAMES = Names()
ANYTHING_PLAIN = Plain()
