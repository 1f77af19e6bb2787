"""Dataclasses as plain JSON: stored form, check and schema all follow from the annotations.

A field is annotated with what it may hold: `str`, `int`, `float`, `bool`, `Any` (plain values),
`T | None`, `list[T]`, `tuple[T, ...]`, `dict[str, T]`, or another dataclass; a narrower range is
said by a `Field`: `Annotated[float, SHARE]`. A dataclass field with `metadata={"stored": False}` is
not written, and has its default when the record is read again.
"""

from __future__ import annotations

from dataclasses import MISSING, field, fields, is_dataclass
from dataclasses import Field as DataclassField
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from riskad.core.checks import InputError, enumerate_names
from riskad.storage.fields import (
    ANYTHING_PLAIN,
    COUNT,
    FLAG,
    NUMBER,
    SHARE,
    TEXT,
    Field,
    Number,
    Text,
)

T = TypeVar("T")
Count = Annotated[int, COUNT]
Share = Annotated[float, SHARE]

_PLAIN: dict[Any, Field] = {
    str: TEXT,
    bool: FLAG,
    int: Number(whole=True),
    float: NUMBER,
    Any: ANYTHING_PLAIN,
}
_JSON = {str: "string", bool: "boolean", int: "integer", float: "number"}


def to_plain(value: Any) -> Any:
    """Return a record as dicts, lists and plain values.

    Examples
    --------
    >>> from riskad.core.labels import LabelCounts
    >>> to_plain(LabelCounts(normal=2, anomaly=1, unlabelled=7))
    {'normal': 2, 'anomaly': 1, 'unlabelled': 7}
    """
    if is_dataclass(value):
        return {each.name: to_plain(getattr(value, each.name)) for each in _stored(type(value))}
    if isinstance(value, dict):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value


def from_plain(kind: type[T], value: Any) -> T:
    """Return the record that `to_plain` wrote; an `InputError` says what does not fit."""
    return cast(T, _read(kind, value, ""))


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a record with all its fields, stored or not."""
    bare, bounds = _bounds(kind)
    origin, arguments = get_origin(bare), get_args(bare)
    if origin in (Union, UnionType):
        return {"anyOf": [json_schema(each) for each in arguments]}
    if is_dataclass(bare):
        hints = get_type_hints(bare, include_extras=True)
        entries, required = {}, []
        for each in fields(bare):
            about = each.metadata.get("help", "")
            entries[each.name] = json_schema(hints[each.name]) | (
                {"description": about} if about else {}
            )
            if about or not _has_default(each):  # a report always holds all that it describes
                required.append(each.name)
        return {
            "type": "object",
            "properties": entries,
            "required": required,
            "additionalProperties": False,
        }
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple):
        return {"type": "array", "items": json_schema(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": json_schema(arguments[1])}
    schema: dict[str, Any] = {"type": _JSON[bare]} if bare in _JSON else {}
    if bare is NoneType:
        schema = {"type": "null"}
    if bare is float:  # what is not finite is written as null
        schema = {"type": ["number", "null"]}
    if isinstance(bounds, Number):
        ends = {"minimum": bounds.low, "maximum": bounds.high}
        schema |= {name: end for name, end in ends.items() if abs(end) != float("inf")}
    if isinstance(bounds, Text):
        schema |= {"minLength": bounds.shortest, "maxLength": bounds.longest}
    return schema


def _stored(kind: Any) -> tuple[DataclassField[Any], ...]:
    return tuple(each for each in fields(kind) if each.metadata.get("stored", True))


def _has_default(each: DataclassField[Any]) -> bool:
    return each.default is not MISSING or each.default_factory is not MISSING


def _bounds(annotation: Any) -> tuple[Any, Field | None]:
    """The bare annotation, and the `Field` beside it, if there is one."""
    if get_origin(annotation) is Annotated:
        bare, *more = get_args(annotation)
        return bare, next((each for each in more if isinstance(each, Field)), None)
    return annotation, None


def _read(annotation: Any, value: Any, where: str) -> Any:
    """The value of an annotation from plain values, each of which is checked."""
    bare, bounds = _bounds(annotation)
    origin, arguments = get_origin(bare), get_args(bare)
    if origin in (Union, UnionType):  # `T | None` is the only one that can be stored
        inner = next(each for each in arguments if each is not NoneType)
        return None if value is None else _read(inner, value, where)
    if is_dataclass(bare):
        stored = _stored(bare)
        names = [each.name for each in stored]
        needed = {each.name for each in stored if not _has_default(each)}
        if type(value) is not dict:
            raise InputError(f"{where}: expected a dict of {enumerate_names(names, len(names))}")
        if not needed <= set(value) <= set(names):
            odd = next(iter(set(value) - set(names)), None)
            what = f"there is no {odd!a}" if odd else f"{min(needed - set(value))!r} is missing"
            raise InputError(f"{where}{': ' if where else ''}{what}; expected {', '.join(names)}")
        hints = get_type_hints(bare, include_extras=True)
        before = f"{where}." if where else ""
        inside = {name: _read(hints[name], each, before + name) for name, each in value.items()}
        return cast(Any, bare)(**inside)
    if origin in (list, tuple):
        fixed = origin is tuple and Ellipsis not in arguments
        if type(value) is not list or (fixed and len(value) != len(arguments)):
            raise InputError(f"{where}: expected a list{f' of {len(arguments)}' * fixed}")
        return origin(_read(arguments[0], each, where) for each in value)
    if origin is dict:
        if type(value) is not dict:
            raise InputError(f"{where}: expected a dict")
        return {key: _read(arguments[1], each, f"{where}.{key}") for key, each in value.items()}
    try:
        (bounds or (Text(choices=arguments) if origin is Literal else _PLAIN[bare])).check(
            value, {}
        )
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return float(value) if bare is float else value


def about(text: str, default: Any = MISSING, *, stored: bool = True) -> Any:
    """Return a dataclass field with a sentence that says what it holds."""
    metadata = {"help": text, "stored": stored}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)
