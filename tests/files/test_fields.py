"""Bounds of stored values: sizes that refer to each other, positions, order and differences."""

import itertools

import numpy as np
import pytest
from support.loops import each

from riskad.core.checks import InputError
from riskad.files.fields import COUNT, TEXT, Array, DictOf, ListOf, Maybe, Record, check_state

WHOLE = {"d": COUNT}


class Part:
    """What a record holds: a number, and values that have a length."""

    def __init__(self, n, values):
        self.n = n
        self.values = values


def is_allowed(fields, state):
    try:
        check_state(state, fields)
    except InputError:
        return False
    return True


@each("first", ["a", "b"])
def test_a_size_may_be_one_more_than_another(first):
    """Whichever of the two comes first in the file or in the class."""
    shapes = {"a": ("d",), "b": ("d+1", "d+1")}
    fields = {name: Array("f", shapes[name]) for name in sorted(shapes, reverse=first == "b")}
    for a in range(4):
        for b in range(4):
            state = {"a": np.zeros(a), "b": np.zeros((b, b))}
            assert is_allowed(fields, state) == (b == a + 1)
            assert is_allowed(WHOLE | fields, {"d": 2} | state) == (a == 2 and b == 3)


def test_a_size_may_be_a_sum():
    """A name without a size has what the others leave, in equal parts."""
    shapes = {"nodes": ("n+s+s",), "leaves": ("n+s",), "splits": ("s",)}
    fields = {"n": COUNT} | {name: Array("f", shape) for name, shape in shapes.items()}
    fields |= {"named": DictOf(TEXT, COUNT, "s")}
    for n, nodes, leaves, splits, named in itertools.product(range(3), *[range(6)] * 3, range(3)):
        arrays = {"nodes": np.zeros(nodes), "leaves": np.zeros(leaves), "splits": np.zeros(splits)}
        state = {"n": n, "named": dict.fromkeys("abc"[:named], 0)} | arrays
        right = nodes == n + 2 * splits and leaves == n + splits and named == splits
        assert is_allowed(fields, state) == right


def test_an_array_cannot_be_shorter_than_what_is_added():
    assert not is_allowed({"b": Array("f", ("d+1",))}, {"b": np.zeros(0)})


def test_parts_have_the_sizes_that_a_record_states():
    sizes = {"n": "d", "values": "d+1"}
    fields = WHOLE | {"part": Maybe(Record(("Part",), sizes))}
    assert is_allowed(fields, {"d": 2, "part": None})
    for n in range(4):
        for length in range(5):
            state = {"d": 2, "part": Part(n, [0] * length)}
            assert is_allowed(fields, state) == (n == 2 and length == 3)
    message = r"part: of another size: n is 1, expected 2 \(d\)"
    with pytest.raises(InputError, match=message):
        check_state({"d": 2, "part": Part(1, [0] * 3)}, fields)


def test_positions_are_below_a_size_in_order_and_different():
    bounds = {"below": "d", "rising": True, "different": True}
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(300):
        d, values = int(rng.integers(0, 5)), rng.integers(0, 5, rng.integers(0, 4)).tolist()
        right = values == sorted(set(values)) and all(value < d for value in values)
        outcomes.add(right)
        for field, stored in (
            (ListOf(COUNT, **bounds), values),
            (Array("i", low=0, **bounds), np.array(values, dtype=int)),
            (Array("u", **bounds), np.array(values, dtype=np.uint64)),
        ):
            assert is_allowed(WHOLE | {"places": field}, {"places": stored, "d": d}) == right
    assert outcomes == {True, False}


def test_a_size_from_an_array_holds_for_positions_that_a_file_names_first():
    fields = {"rows": Array("f", ("n",)), "places": Array("i", ("m",), low=0, below="n")}
    for places, right in (([0, 1], True), ([2], False)):
        state = {"places": np.array(places), "rows": np.zeros(2)}
        assert is_allowed(fields, state) == right


@each(
    ("field", "right", "wrong", "message"),
    [
        (ListOf(TEXT, different=True), ["b", "a"], ["a", "b", "a"], "different values"),
        (ListOf(TEXT, nonempty=True), ["a"], [], "at least one value"),
        (ListOf(TEXT, most=2), ["a", "b"], ["a", "b", "c"], "at most 2 values"),
        (Array(nonempty=True), np.zeros(1), np.zeros(0), "at least one value"),
        (Array("f", (None, 2), most=3), np.zeros((3, 2)), np.zeros((4, 2)), "at most 3 values"),
        (Array("u", rising=True), np.array([0, 1], "u8"), np.array([1, 0], "u8"), "rising order"),
        (
            Array("f", (None, 3), gaps=True, rising=True),
            np.array([[1.0, np.nan, 2.0], [0.0, 0.0, 0.0]]),
            np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 1.0]]),
            "rising order",
        ),
        (Array("f", itemsizes=(4, 8)), np.zeros(1, "f4"), np.zeros(1, "f2"), "32 or 64 bits"),
        (DictOf(TEXT, COUNT, nonempty=True), {"a": 1}, {}, "at least one value"),
    ],
)
def test_bounds_of_all_values_together(field, right, wrong, message):
    check_state({"x": right}, {"x": field})
    with pytest.raises(InputError, match=message):
        check_state({"x": wrong}, {"x": field})
