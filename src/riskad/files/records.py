"""Dataclasses as plain JSON: stored form, check and schema all follow from the annotations.

A field is annotated with what it may hold: `str`, `int`, `float`, `bool`, `Any` (plain values),
`date`, `T | None`, `list[T]`, `tuple[T, ...]`, `dict[str, T]`, or another dataclass; a `Field`
states a narrower range: `Annotated[float, SHARE]`. A dataclass field with
`metadata={"stored": False}` is not written, and has its default when the record is read again.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
from dataclasses import Field as DataclassField
from datetime import date
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as type_hints

from riskad.core.checks import InputError, enumerate_names
from riskad.files.fields import COUNT, TEXT, Number, Text, check, field_of, split_annotation

T = TypeVar("T")
Count = Annotated[int, COUNT]
_JSON = {str: "string", bool: "boolean", int: "integer", float: "number", NoneType: "null"}


def to_plain(value: Any) -> Any:
    """Return a record as dicts, lists and plain values."""
    if is_dataclass(value):
        stored = [each.name for each in fields(value) if each.metadata.get("stored", True)]
        return {name: to_plain(getattr(value, name)) for name in stored}
    if isinstance(value, dict):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a record with all its fields, stored or not."""
    bare, bound = split_annotation(kind)
    origin, inner = get_origin(bare), get_args(bare)
    if origin in (Union, UnionType):
        return {"anyOf": [json_schema(each) for each in inner]}
    if is_dataclass(bare):
        hints = type_hints(bare, include_extras=True)
        entries: dict[str, Any] = {}
        for each in fields(bare):
            help = each.metadata.get("help")
            entries[each.name] = json_schema(hints[each.name])
            entries[each.name] |= {"description": help} if help else {}
        # A report always holds all that it describes; of a request, what has a default may lack.
        required = [e.name for e in fields(bare) if e.metadata or not _has_default(e)]
        closed = {"required": required, "additionalProperties": False}
        return {"type": "object", "properties": entries, **closed}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (list, tuple):
        return {"type": "array", "items": json_schema(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": json_schema(inner[1])}
    schema: dict[str, Any] = {"type": _JSON[bare]} if bare in _JSON else {}
    if bare is float:  # what is not finite is written as null
        schema = {"type": ["number", "null"]}
    if isinstance(bound, Number):
        ends = {"minimum": bound.low, "maximum": bound.high}
        schema |= {name: end for name, end in ends.items() if abs(end) != float("inf")}
    if isinstance(bound, Text):
        schema |= {"minLength": bound.shortest, "maxLength": bound.longest}
    return schema


def from_plain(kind: type[T], value: Any, where: str = "") -> T:
    """Return the record that `to_plain` wrote; an `InputError` says what does not fit.

    `kind` may be any annotation, and `where` is the name of its field in messages.
    """
    bare, _ = split_annotation(kind)
    origin, inner = get_origin(bare), get_args(bare)
    record: Any
    if origin in (Union, UnionType):  # `T | None` is the only one that can be stored
        present = next(each for each in inner if each is not NoneType)
        record = None if value is None else from_plain(present, value, where)
    elif is_dataclass(bare):
        stored = {e.name: e for e in fields(bare) if e.metadata.get("stored", True)}
        if type(value) is not dict:
            raise InputError(f"{where}: expected a dict of {enumerate_names(stored, len(stored))}")
        needed = {name for name, each in stored.items() if not _has_default(each)}
        # All that has no default, and nothing that the record does not have.
        extra, missing = sorted(value.keys() - stored.keys()), sorted(needed - value.keys())
        if extra or missing:
            what = f"there is no {extra[0]!a}" if extra else f"{missing[0]!r} is missing"
            raise InputError(f"{where}{': ' * bool(where)}{what}; expected {', '.join(stored)}")
        hints, before = type_hints(bare, include_extras=True), f"{where}." if where else ""
        inside = {n: from_plain(hints[n], each, before + n) for n, each in value.items()}
        record = cast(Any, bare)(**inside)
    elif origin in (list, tuple):
        n = len(inner) if origin is tuple and Ellipsis not in inner else None
        if type(value) is not list or n not in (None, len(value)):
            raise InputError(f"{where}: expected a list{'' if n is None else f' of {n}'}")
        record = origin(from_plain(inner[0], each, where) for each in value)
    elif origin is dict:
        if type(value) is not dict:
            raise InputError(f"{where}: expected a dict")
        for key in value:
            check(key, TEXT, {}, where)
        record = {key: from_plain(inner[1], each, f"{where}.{key}") for key, each in value.items()}
    elif bare is date:
        check(value, TEXT, {}, where)
        try:
            record = date.fromisoformat(value)
        except ValueError:
            raise InputError(f"{where}={value!r} must be a day such as 2027-06-30.") from None
    else:
        check(value, field_of(kind), {}, where)
        # JSON writes 1.0 as 1 in some languages; the record holds a float.
        record = float(value) if bare is float else value
    return cast(T, record)


def _has_default(each: DataclassField[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def about(text: str, default: Any = MISSING, *, stored: bool = True) -> Any:
    """Return a dataclass field with a sentence that says what it holds."""
    metadata = {"help": text, "stored": stored}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)
