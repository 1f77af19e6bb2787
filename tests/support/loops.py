"""Grids of cases as one test: a loop over all combinations in place of hundreds of cases.

A property that holds for every loss and every risk is one test. `each` takes the arguments of
`pytest.mark.parametrize`, and a failure names the combination.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Any], Any]:
    """Run a test for every value, or tuple of values, of one or several arguments."""
    single = isinstance(names, str)
    arguments = (names,) if single else names
    choices = [(value,) if single else tuple(value) for value in values]
    assert choices, "a loop over nothing tests nothing"

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def loop(*args: Any, **kwargs: Any) -> None:
            for choice in choices:
                chosen = dict(zip(arguments, choice, strict=True))
                try:
                    test(*args, **kwargs, **chosen)
                except BaseException as error:
                    error.add_note(f"with {', '.join(f'{k}={v!r}' for k, v in chosen.items())}")
                    raise

        signature = inspect.signature(test)
        left = [each for name, each in signature.parameters.items() if name not in arguments]
        loop.__signature__ = signature.replace(parameters=left)  # what pytest is to provide
        return loop

    return decorate
