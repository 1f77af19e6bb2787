"""Allowed stored values: bounds, by which everything in a model file is checked.

A class that may occur in a model file states its stored fields once, as annotations, and where a
type says too little, with a bound:

    coef_: Annotated[np.ndarray, Array("f", ("n_features_in_",))]
    offset_: float
    rate: RateEstimate | None

A dataclass stores all of its fields, any other class those whose annotation has a bound. No
attribute may be missing or unknown, and every value must have its type, shape and range. Sizes in
shapes are numbers, names, or sums of these, such as "d+1". A name that is an attribute of the state
has its value; any other name takes the first size that it meets, and must be the same wherever it
appears. Attributes are checked in the order in which the class states them. What no bound can say,
a relation between values, is checked by the class (`_check_state`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as type_hints

import numpy as np

from riskad.core.checks import InputError, enumerate_names, is_unicode

State: TypeAlias = Mapping[str, Any]
Sizes: TypeAlias = dict[str, int]
# Of an int64 of NumPy: larger numbers would fail in the middle of a computation.
_LARGEST_WHOLE = 2**63 - 1
_KINDS = {"f": "numbers", "i": "whole numbers", "u": "whole numbers", "b": "truth values"}


class Field:
    """The allowed values of an attribute."""


Fields: TypeAlias = Mapping[str, Field]


@dataclass(frozen=True)
class Number(Field):
    """A number between `low` and `high`; the ends are allowed unless `open`."""

    low: float = -np.inf
    high: float = np.inf
    whole: bool = False
    open: bool = False


@dataclass(frozen=True)
class Text(Field):
    """A text, one of `choices` if there are any."""

    choices: Collection[str] = ()
    longest: int = 1_000_000
    shortest: int = 0


class Flag(Field):
    """True or False."""


class Plain(Field):
    """Numbers, texts, truth values, None, arrays of them, and lists and dicts of these."""


@dataclass(frozen=True)
class Record(Field):
    """An object of one of these types, by the names they are stored under.

    `sizes` are attributes of it, numbers or what has a length, and the sizes that they must have.
    """

    types: Collection[str]
    sizes: Mapping[str, int | str] = dataclasses.field(default_factory=dict)
    fitted: bool = True


@dataclass(frozen=True)
class Maybe(Field):
    """None, or a value of the field."""

    field: Field


@dataclass(frozen=True)
class Optional(Field):
    """An attribute that not every state has."""

    field: Field


class Either(Field):
    """A value that one of several fields allows; the message of a refusal is that of the last."""

    def __init__(self, *fields: Field):
        self.fields = fields


@dataclass(frozen=True, kw_only=True)
class Several(Field):
    """What may be said of all values of a list, an array or a dict.

    Values `below` a size are positions among so many. `rising` values, in an array along its last
    axis, never fall; gaps are passed over. `most` is the largest number of values.
    """

    below: str | None = None
    rising: bool = False
    different: bool = False
    nonempty: bool = False
    most: int | None = None


@dataclass(frozen=True)
class Array(Several):
    """A NumPy array of numbers: its kind of numbers, its shape and the range of its values.

    `kinds` are letters of NumPy's: f, i, u, b; None in a shape is any size, and for a shape any
    shape; `itemsizes` are the bytes that a number may take. Infinities and NaN (gaps) are refused
    unless allowed.
    """

    kinds: str = "f"
    shape: tuple[int | str | None, ...] | None = ("n",)
    low: float = -np.inf
    high: float = np.inf
    infinite: bool = False
    gaps: bool = False
    itemsizes: Collection[int] = ()


@dataclass(frozen=True)
class Names(Field):
    """An array of different texts, such as the names of columns."""

    size: str = "n_features_in_"


@dataclass(frozen=True)
class ListOf(Several):
    """A list or a tuple of values of one field; `size` as in shapes."""

    field: Field
    size: int | str | None = None


class Tuple(Field):
    """A tuple of fixed length, each value with its own field."""

    def __init__(self, *fields: Field):
        self.fields = fields


@dataclass(frozen=True)
class DictOf(Several):
    """A dict of values of one field; `keys` is the field of each key, `size` as in shapes."""

    keys: Field
    values: Field
    size: int | str | None = None


@dataclass(frozen=True)
class Fixed(Field):
    """A dict with these keys, of which those that are `Optional` may be missing."""

    fields: Mapping[str, Field]


NUMBER = Number()
POSITIVE = Number(0, open=True)
COUNT = Number(0, whole=True)
SHARE = Number(0, 1)
SIZE = Number(1, 10**6, whole=True)
LARGEST_SEED = 2**32 - 1  # of NumPy's RandomState, and of scikit-learn
SEED = Maybe(Number(0, LARGEST_SEED, whole=True))
FLAG = Flag()
TEXT = Text()
NAME = Text(longest=10_000)  # of a column; names of features repeat it
NAMES = Names()
_OF_TYPE: dict[Any, Field] = {str: TEXT, bool: FLAG, int: Number(whole=True), float: NUMBER}
_OF_TYPE[Any] = Plain()


# --- from annotations ---------------------------------------------------------------------


def split_annotation(annotation: Any) -> tuple[Any, Field | None]:
    """Return the bare annotation, and the bound beside it, if there is one."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    bare, *others = get_args(annotation)
    return bare, next((each for each in others if isinstance(each, Field)), None)


def field_of(annotation: Any) -> Field:
    """Return the bound of an annotation, or what its type allows.

    >>> field_of(float | None)
    Maybe(field=Number(low=-inf, high=inf, whole=False, open=False))
    """
    bare, bound = split_annotation(annotation)
    origin, inner = get_origin(bare), get_args(bare)
    if bound is not None:
        return bound
    if bare in _OF_TYPE:
        return _OF_TYPE[bare]
    if origin is Literal:
        return Text(choices=inner)
    if origin in (Union, UnionType):
        some = [field_of(each) for each in inner if each is not NoneType]
        either = some[0] if len(some) == 1 else Either(*some)
        return Maybe(either) if NoneType in inner else either
    if origin is list or (origin is tuple and Ellipsis in inner):
        return ListOf(field_of(inner[0]))
    if origin is tuple:
        return Tuple(*map(field_of, inner))
    if origin is dict:
        keys, values = map(field_of, inner)
        return DictOf(keys, values)
    if isinstance(bare, type):
        return Record((bare.__name__,))
    raise TypeError(f"{bare!r} says too little of what is stored; add a bound: Annotated[...]")


@functools.cache
def fields_of(cls: type) -> Fields:
    """Return the stored fields of a class, including those of its base classes."""
    hints = type_hints(cls, include_extras=True)
    fields = {name: hint for name, hint in hints.items() if split_annotation(hint)[1] is not None}
    if dataclasses.is_dataclass(cls):
        fields = {each.name: hints[each.name] for each in dataclasses.fields(cls)}
    return {name: field_of(hint) for name, hint in fields.items()}


# --- checks -------------------------------------------------------------------------------


def check_state(
    state: State, fields: Fields, sizes: Sizes | None = None, needed: Iterable[str] | None = None
) -> None:
    """Check a state against its fields; an `InputError` names the attribute that does not match.

    `needed` are the required attributes; by default all that are not `Optional`.

    >>> fields = {"coef_": Array("f", ("n_features_in_",)), "n_features_in_": COUNT}
    >>> check_state({"n_features_in_": 2, "coef_": np.zeros(3)}, fields)
    Traceback (most recent call last):
    riskad.core.checks.InputError: coef_: expected a size of 2 (n_features_in_), got an array of \
float64 of shape (3,)
    """
    if needed is None:
        needed = [name for name, field in fields.items() if not isinstance(field, Optional)]
    if unknown := sorted(set(state) - set(fields)):
        raise InputError(f"unknown entries {enumerate_names(unknown)}")
    if missing := sorted(set(needed) - set(state)):
        raise InputError(f"without {enumerate_names(missing)}")
    sizes = {} if sizes is None else sizes
    for whole in (True, False):  # numbers come first: they are the sizes of arrays
        for name in (name for name in fields if name in state):
            value = state[name]
            if isinstance(value, int) == whole:
                check(value, fields[name], sizes, name)
                if whole and not isinstance(value, bool):
                    sizes[name] = value


def require(holds: bool, what: str) -> None:
    """Raise an `InputError` unless a relation between the values of a state holds."""
    if not holds:
        raise InputError(what)


def expect(holds: bool, what: str, value: Any, where: str = "") -> None:
    """Raise an `InputError` that says what was expected in place of a value."""
    if holds:
        return
    if isinstance(value, np.ndarray):
        text = f"an array of {value.dtype} of shape {value.shape}"
    elif hasattr(value, "get_params"):
        text = f"a {type(value).__name__}"
    else:
        text = ascii(value)
        text = text if len(text) <= 80 else f"{text[:77]}..."
    raise InputError(f"{where}{': ' * bool(where)}expected {what}, got {text}")


def check(value: Any, field: Field, sizes: Sizes, where: str = "") -> None:
    """Raise an `InputError` that says what is wrong with a value, unless its field allows it."""
    match field:
        case Number(low, high, whole, open_):
            what = "a whole number" if whole else "a number"
            # True is an int for Python.
            right = isinstance(value, int if whole else (int, float)) and type(value) is not bool
            right = right and not (isinstance(value, int) and abs(value) > _LARGEST_WHOLE)
            expect(right, what, value, where)
            expect(math.isfinite(value), f"{what} that is finite", value, where)
            if not (low < value < high if open_ else low <= value <= high):
                expect(False, f"{what} between {low:g} and {high:g}", value, where)
        case Text(choices, longest, shortest):
            expect(isinstance(value, str) and is_unicode(value), "a text", value, where)
            if not shortest <= len(value) <= longest:
                expect(False, f"a text of {shortest} to {longest:,} letters", value, where)
            if choices and value not in choices:
                expect(False, f"one of {enumerate_names(choices, 30)}", value, where)
        case Flag():
            expect(isinstance(value, bool), "True or False", value, where)
        case Maybe(inner):
            if value is not None:
                check(value, inner, sizes, where)
        case Optional(inner):
            check(value, inner, sizes, where)
        case Array():
            _check_array(value, field, sizes, where)
        case ListOf(inner, size):
            expect(type(value) in (list, tuple), "a list", value, where)
            for place, each in enumerate(value):
                check(each, inner, sizes, f"{where}[{place}]")
            _check_several(value, field, sizes, where, size)
        case DictOf(keys, values, size):
            expect(type(value) is dict, "a dict", value, where)
            for key, each in value.items():
                check(key, keys, sizes, where)
                check(each, values, sizes, f"{where}[{key!a}]")
            _check_several(value, field, sizes, where, size)
        case Record(types, parts, fitted):
            expect(type(value).__name__ in types, " or ".join(types), value, where)
            estimator = fitted and hasattr(type(value), "get_params")
            # A fitted estimator has more attributes than its parameters.
            complete = not estimator or set(vars(value)) > set(value.get_params(deep=False))
            expect(complete, "a fitted one", value, where)
            # Attributes of the object must fit sizes that other attributes of the state have set.
            for name, size in parts.items():
                part = getattr(value, name)
                n = len(part) if hasattr(part, "__len__") else part
                if (expected := _expected(size, n, sizes)) != n:
                    what = f"{name} is {n}, expected {expected} ({size})"
                    raise InputError(f"{where}: of another size: {what}")
        case Tuple():
            right = type(value) is tuple and len(value) == len(field.fields)
            expect(right, f"a tuple of {len(field.fields)}", value, where)
            for place, (inner, each) in enumerate(zip(field.fields, value, strict=True)):
                check(each, inner, sizes, f"{where}[{place}]")
        case Fixed(fields):
            expect(type(value) is dict, "a dict", value, where)
            try:
                check_state(value, fields, sizes)
            except InputError as error:
                raise InputError(f"{where}{error}") from None
        case Either():
            for inner in field.fields[:-1]:
                try:
                    return check(value, inner, sizes, where)
                except InputError:
                    continue
            check(value, field.fields[-1], sizes, where)
        case Names(size):
            right = isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 1
            expect(right, "names", value, where)
            for name in value:
                check(name, TEXT, sizes, where)
            expect(len(set(value)) == len(value), "different names", value, where)
            n = sizes.setdefault(size, len(value))
            expect(len(value) == n, "a name each", value, where)
        case Plain():
            if isinstance(value, list | tuple | dict):
                for each in [*value, *value.values()] if isinstance(value, dict) else value:
                    check(each, field, sizes, where)
            elif isinstance(value, str):
                check(value, TEXT, sizes, where)
            else:
                plain = value is None or isinstance(value, bool | int | float | np.ndarray)
                expect(plain, "plain values", value, where)
        case _:
            raise TypeError(f"{field!r} is no bound that riskad knows")


def _check_array(value: Any, field: Array, sizes: Sizes, where: str) -> None:
    kinds = " or ".join(dict.fromkeys(_KINDS[kind] for kind in field.kinds))
    right = isinstance(value, np.ndarray) and value.dtype.kind in field.kinds
    expect(right, f"an array of {kinds}", value, where)
    if field.itemsizes:
        bits = " or ".join(str(8 * size) for size in field.itemsizes)
        expect(value.itemsize in field.itemsizes, f"numbers of {bits} bits", value, where)
    if field.shape is not None:
        expect(value.ndim == len(field.shape), f"{len(field.shape)} dimensions", value, where)
        for size, dimension in zip(value.shape, field.shape, strict=True):
            expected = _expected(dimension, size, sizes)
            expect(size == expected, f"a size of {expected} ({dimension})", value, where)
    numbers = value
    if value.dtype.kind == "f":
        # NaN compares false with everything: it must be counted apart from the range.
        numbers = value[~np.isnan(value)]
        if not field.gaps:
            expect(numbers.size == value.size, "an array without NaN", value, where)
        if not field.infinite:
            expect(not np.isinf(value).any(), "an array without infinities", value, where)
    if numbers.size and (numbers.min() < field.low or numbers.max() > field.high):
        expect(False, f"values between {field.low:g} and {field.high:g}", value, where)
    _check_several(value, field, sizes, where)


def _expected(size: int | str | None, n: int, sizes: Sizes) -> int:
    """Return what a size must be; a name that has none yet takes it from n."""
    if not isinstance(size, str):
        return n if size is None else size
    terms = [int(term) if term.isdecimal() else sizes.get(term, term) for term in size.split("+")]
    if new := [term for term in terms if isinstance(term, str)]:
        # What the others leave, shared among equal terms.
        rest = n - sum(term for term in terms if not isinstance(term, str))
        sizes[new[0]] = max(0, rest // len(new))
    return sum(sizes[term] if isinstance(term, str) else term for term in terms)


def _check_several(
    values: Any, field: Several, sizes: Sizes, where: str, size: int | str | None = None
) -> None:
    n = 1 if isinstance(values, np.ndarray) and not values.ndim else len(values)
    expected = _expected(size, n, sizes)
    expect(n == expected, f"{expected} values", values, where)
    expect(n > 0 or not field.nonempty, "at least one value", values, where)
    if field.most is not None:
        expect(n <= field.most, f"at most {field.most:,} values", values, where)
    if field.below is not None and n and np.max(values) >= sizes[field.below]:
        expect(False, f"values below {sizes[field.below]} ({field.below})", values, where)
    if field.rising:
        ordered = np.asarray(values)
        # Differences of unsigned numbers would wrap around.
        falls = (ordered[..., 1:] < ordered[..., :-1]).any()
        expect(not falls, "values in rising order", values, where)
    if field.different:
        # A set of an array's numbers would make a Python object of each.
        once = np.unique(values) if isinstance(values, np.ndarray) else set(values)
        expect(len(once) == n, "different values", values, where)
