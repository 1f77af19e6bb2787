"""Small validators whose messages say what was wrong, which value was given and what to do."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Real
from typing import Any, TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """A mistake in the user's input; the message explains how to fix it.

    The command line shows it without a traceback.

    Examples
    --------
    >>> import riskad
    >>> try:
    ...     riskad.ShallowRAD(prior=1.5).fit([[0.0], [1.0], [5.0]], [1, 0, -1])
    ... except riskad.InputError as error:
    ...     print(error)  # doctest: +ELLIPSIS
    prior must be a number strictly between 0 and 1, got 1.5. It is the share of normal rows, ...
    """


class MissingLibrary(InputError):
    """A required library is not installed; the message explains how to install it."""


@contextmanager
def required(message: str) -> Iterator[None]:
    """Raise a `MissingLibrary` with this message if an import of the block fails."""
    try:
        yield
    except ImportError as error:
        raise MissingLibrary(message) from error


class DataWarning(UserWarning):
    """A property of the data that does not stop the fit but that the user should know.

    Examples
    --------
    >>> import warnings
    >>> import riskad
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", riskad.DataWarning)
    ...     model = riskad.ShallowRAD().fit([[0.0, 1], [1.0, 1], [5.0, 1]], [1, 0, -1])
    >>> print(caught[0].message)
    1 column(s) hold a single value and cannot tell rows apart: 1. Drop them.
    """


def printable(text: object) -> str:
    r"""A text for a terminal: control characters and those that turn a line around are spelled out.

    Whatever reaches a terminal passes through here, because names and cells come from anywhere.
    Lines stay lines.

    >>> print(printable("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    text = str(text)
    # Nearly every text is printable as it is, and this is asked of every cell of a printed table.
    if text.replace("\n", "").isprintable():
        return text
    # repr spells out a control character between quotes, which go.
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def is_unicode(text: str) -> bool:
    """Whether a text can be written: not if it holds half a character, or bytes that are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shorten(text: str, longest: int) -> str:
    """Leave out the middle of a long text: paths and keys differ at their ends.

    >>> shorten("/data/photos/2026/line_4/part_020.png", 24)
    '/data/photos…art_020.png'
    """
    if len(text) <= longest:
        return text
    # One place is for the ellipsis; if the rest is odd, the beginning has one letter more.
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}\u2026{text[len(text) - end :]}"


def quoted(value: object, longest: int = 60) -> str:
    """A name or value of the user's in quotes, truncated if it is long."""
    # repr rather than quotation marks: it also spells out control characters, which must not reach
    # a terminal from a file.
    shown = repr(value)
    return shown if len(shown) <= longest else f"{shown[:longest]}\u2026"


def enumerate_names(names: Iterable[object], limit: int = 8) -> str:
    """Quote `names` in one line, at most `limit` of them.

    >>> enumerate_names(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    listed = list(names)
    shown = ", ".join(quoted(name) for name in listed[:limit])
    return shown if len(listed) <= limit else f"{shown} and {len(listed) - limit} more"


def with_article(name: str) -> str:
    """Put "a" or "an" before the name of a class."""
    return f"{'an' if name[:1] in 'AEIO' else 'a'} {name}"


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """Return `value` if it is one of `choices`; otherwise fail and suggest the closest choice."""
    if isinstance(value, str) and value in choices:
        return value
    # Below difflib's cutoff of 0.6: a wrong guess costs little, as all choices are listed before
    # it.
    close = difflib.get_close_matches(str(value).lower(), list(choices), n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InputError(f"{name}={value!r} is not known; choose from {', '.join(choices)}.{hint}")


def lookup(name: str, value: object, registry: Mapping[str, T]) -> T:
    """Return `registry[value]`, or fail as `check_choice` does."""
    return registry[check_choice(name, value, registry.keys())]


def check_in_interval(
    name: str, value: Any, low: float, high: float, remedy: str = "", closed: bool = False
) -> float:
    """Return `value` as a float if it is between `low` and `high`; ends count only if `closed`."""
    # True would pass for 1; and NaN lies in no interval, since every comparison with it is false.
    if isinstance(value, Real) and not isinstance(value, bool):
        number = math.nan
        with suppress(OverflowError):  # of a whole number with more than 308 digits
            number = float(value)
        if low <= number <= high if closed else low < number < high:
            return number
    between = "between" if closed else "strictly between"
    ending = f" {remedy}" if remedy else ""
    raise InputError(
        f"{name} must be a number {between} {low:g} and {high:g}, got {value!r}.{ending}"
    )


def describe_column_difference(expected: Collection[str], got: Collection[str]) -> str:
    """Describe, line by line, how the columns at scoring time differ from those at fitting time.

    >>> print(describe_column_difference(["age", "amount"], ["amuont", "age"]))
    - missing: 'amount' (did you mean 'amuont'?)
    + unexpected: 'amuont'
    """
    missing = [name for name in expected if name not in set(got)]
    unexpected = [name for name in got if name not in set(expected)]
    lines = []
    # A wrong file may differ in thousands of columns; 20 are enough to see it.
    for name in missing[:20]:
        # Only among the unexpected names: one that was expected is no misspelling of another.
        close = difflib.get_close_matches(name, unexpected, n=1)
        guess = f" (did you mean {quoted(close[0])}?)" if close else ""
        lines.append(f"- missing: {quoted(name)}{guess}")
    lines += [f"+ unexpected: {quoted(name)}" for name in unexpected[:20]]
    hidden = max(len(missing) - 20, 0) + max(len(unexpected) - 20, 0)
    if hidden:
        lines.append(f"... and {hidden} more")
    # Nothing missing and nothing new: the same columns in another order.
    if not lines and list(expected) != list(got):
        lines.append(f"the order differs: fitted on {enumerate_names(expected)}")
        lines.append(f"                   now given {enumerate_names(got)}")
    return "\n".join(lines)
