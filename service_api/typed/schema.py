"""What a type looks like in bytes, as data: comparable, and the same in every process.

A schema is JSON: the name of a plain type ("int"), or a list whose first element says what follows: ["list", of],
["dict", key, value], ["tuple", ...], ["union", ...], ["literal", ...], ["enum", name, {member: value}], and
["record", name, [[field, schema, has_default], ...]]. Records in records are in full, so a schema stands alone. A
record within itself is ["self", name].

Three questions are answered here. Are two types the same? By fingerprint: 8 bytes of a digest of the schema. Can bytes
of one be read as the other? `find_change` says what is in the way. Which type holds the values of both? `join_types`
makes it, by the same rules: `find_change` finds nothing in the way from either.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import types
import typing
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

from ..errors import ConfigurationError
from ..wire.payload_header import FINGERPRINT_BYTES

Schema = Any
"""JSON; see the module."""

PLAIN_TYPES: Final[dict[Any, str]] = {
    type(None): "None",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    datetime.datetime: "datetime",
    datetime.date: "date",
    datetime.time: "time",
    datetime.timedelta: "timedelta",
    uuid.UUID: "UUID",
    Decimal: "Decimal",
}
_SEQUENCES: Final[dict[Any, str]] = {list: "list", set: "set", frozenset: "frozenset", deque: "list"}
_WIDER: Final = {("int", "float"), ("list", "set"), ("set", "list"), ("set", "frozenset"), ("frozenset", "set")}


class Field(NamedTuple):
    """One field of a record."""

    name: str
    type: Any
    """The annotation, resolved."""
    has_default: bool
    default: Any = None
    default_factory: Any = None


class CodecError(ConfigurationError):
    """A type that cannot be written in bytes: says where in it, and what can be instead."""


def is_pydantic(candidate: object) -> bool:
    """Whether it is a pydantic model."""
    return isinstance(candidate, type) and hasattr(candidate, "model_fields") and hasattr(candidate, "model_validate")


def is_record(candidate: object) -> bool:
    """Whether it has fields of its own: a dataclass, a `msgspec.Struct` or a pydantic model."""
    return isinstance(candidate, type) and (
        is_pydantic(candidate) or dataclasses.is_dataclass(candidate) or issubclass(candidate, msgspec.Struct)
    )


def is_frozen(record: Any) -> bool:
    """Whether the fields of a record cannot be set."""
    if is_pydantic(record):
        return bool(record.model_config.get("frozen"))
    if issubclass(record, msgspec.Struct):
        return bool(record.__struct_config__.frozen)
    return bool(record.__dataclass_params__.frozen)


def fields_of(record: type) -> list[Field]:
    """List the fields of a record in their order.

    Raises:
        CodecError: an annotation names what there is not.
    """
    try:
        if is_pydantic(record):
            models: Any = record
            return [
                Field(name, info.annotation, not info.is_required(), info.default, info.default_factory)
                for name, info in models.model_fields.items()
            ]
        hints = typing.get_type_hints(record, include_extras=True)
        if issubclass(record, msgspec.Struct):
            return [_struct_field(each, hints) for each in msgspec.structs.fields(record)]
        kind: Any = record
        return [_dataclass_field(each, hints) for each in dataclasses.fields(kind) if each.init]
    except (NameError, TypeError) as error:
        raise CodecError(f"{record.__qualname__}: an annotation cannot be read: {error}") from error


def _struct_field(each: Any, hints: Mapping[str, Any]) -> Field:
    factory = None if each.default_factory is msgspec.NODEFAULT else each.default_factory
    has_default = each.default is not msgspec.NODEFAULT or factory is not None
    return Field(each.name, hints[each.name], has_default, each.default, factory)


def _dataclass_field(each: dataclasses.Field[Any], hints: Mapping[str, Any]) -> Field:
    factory = None if each.default_factory is dataclasses.MISSING else each.default_factory
    has_default = each.default is not dataclasses.MISSING or factory is not None
    return Field(each.name, hints[each.name], has_default, each.default, factory)


def schema_of(annotation: Any, where: str, outer: tuple[type, ...] = ()) -> Schema:
    """Make the schema of a type; `where` says for errors what it is the type of.

    Raises:
        CodecError: it is, or holds, what has no form in bytes that is the same everywhere.
    """
    while get_origin(annotation) is Annotated or hasattr(annotation, "__supertype__"):
        annotation = getattr(annotation, "__supertype__", None) or get_args(annotation)[0]
    if annotation is None or annotation in PLAIN_TYPES:
        return PLAIN_TYPES[type(None) if annotation is None else annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return ["union", *(schema_of(each, where, outer) for each in arguments)]
    if origin is Literal:
        return ["literal", *(_checked_constant(each, where) for each in arguments)]
    if origin in _SEQUENCES and len(arguments) == 1:
        return [_SEQUENCES[origin], schema_of(arguments[0], where, outer)]
    if origin is dict and len(arguments) == 2:
        return ["dict", *(schema_of(each, where, outer) for each in arguments)]
    if origin is tuple and arguments:
        if len(arguments) == 2 and arguments[1] is ...:
            return ["list", schema_of(arguments[0], where, outer)]
        return ["tuple", *(schema_of(each, where, outer) for each in arguments)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ["enum", annotation.__name__, {each.name: _checked_constant(each.value, where) for each in annotation}]
    if is_record(annotation):
        return _record_schema(annotation, where, outer)
    raise CodecError(
        f"{where}: type={_shown(annotation)} cannot be written in bytes; expected one of "
        f"{', '.join(sorted(PLAIN_TYPES.values()))}, an Enum, Literal, a union, a dataclass, Struct or pydantic model, "
        "or list[...], set[...], dict[..., ...] or tuple[...] of these"
    )


def _checked_constant(value: object, where: str) -> object:
    if value is None or isinstance(value, bool | int | str):
        return value
    raise CodecError(f"{where}: value={value!r} of an Enum or Literal expected an int or a str")


def _record_schema(record: type, where: str, outer: tuple[type, ...]) -> Schema:
    if record in outer:
        return ["self", record.__name__]
    inner = (*outer, record)
    return [
        "record",
        record.__name__,
        [
            [each.name, schema_of(each.type, f"{where}.{each.name}", inner), each.has_default]
            for each in fields_of(record)
        ],
    ]


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def fingerprint_of(schema: Schema) -> bytes:
    """Return 8 bytes that stand for a schema."""
    text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=FINGERPRINT_BYTES).digest()


def show_type(schema: Schema) -> str:
    """Write a schema as an annotation."""
    if isinstance(schema, str):
        return schema
    kind, *rest = schema
    if kind == "union":
        return " | ".join(map(show_type, rest))
    if kind == "literal":
        return f"Literal[{', '.join(map(repr, rest))}]"
    if kind in ("record", "enum", "self"):
        return str(rest[0])
    return f"{kind}[{', '.join(map(show_type, rest))}]"


def find_change(old: Schema, new: Schema, where: str) -> str | None:
    """Say why bytes written by `old` cannot be read as `new`, or None: then fields are read by their names.

    A field may be added where it has a default, and removed; a type may become wider.
    """
    if old == new:
        return None
    if isinstance(new, list) and new[0] == "union":
        olds = old[1:] if isinstance(old, list) and old[0] == "union" else [old]
        lost = [one for one in olds if all(find_change(one, each, where) for each in new[1:])]
        return f"{where} was {show_type(lost[0])}, is {show_type(new)}" if lost else None
    if isinstance(old, str) or isinstance(new, str):
        is_wider = isinstance(old, str) and isinstance(new, str) and (old, new) in _WIDER
        return None if is_wider else f"{where} was {show_type(old)}, is {show_type(new)}"
    if old[0] == new[0] == "record":
        return find_field_change(old[2], new[2], where)
    if old[0] == new[0] == "enum":
        gone = [name for name, value in old[2].items() if value not in new[2].values()]
        return f"{where}: {new[1]} has no {gone[0]} any more" if gone else None
    if old[0] == new[0] == "literal":
        gone = [value for value in old[1:] if value not in new[1:]]
        return f"{where} was {gone[0]!r} at times, is {show_type(new)}" if gone else None
    if (old[0] != new[0] and (old[0], new[0]) not in _WIDER) or len(old) != len(new):
        return f"{where} was {show_type(old)}, is {show_type(new)}"
    changes = (find_change(*pair, f"{where}[]") for pair in zip(old[1:], new[1:], strict=True))
    return next((change for change in changes if change), None)


def find_field_change(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]], where: str) -> str | None:
    """Say why fields `[name, schema, has_default]` of `old` cannot be read as those of `new`, or None."""
    olds = {name: schema for name, schema, _ in old}
    for name, schema, has_default in new:
        if name not in olds:
            if not has_default:
                return f"{where}.{name} is new, and has no default"
            continue
        change = find_change(olds[name], schema, f"{where}.{name}")
        if change is not None:
            return change
    return None


def join_types(old: Schema, new: Schema) -> Schema:
    """Make a type that holds the values of both: bytes of either can be read as it, by the rules of `find_change`.

    Nothing gets lost: a record has the fields of both, those that one of them lacks with a default. Types of which
    neither is wider, such as int and str, become a union. Names are those of the newer type.
    """
    if old == new:
        return new
    joined, added = _members(old), _members(new)
    are_alone = max(sum(map(_is_named, each)) for each in (joined, added)) <= 1
    for member in added:
        joined = _join_member(joined, member, are_alone=are_alone)
    return joined[0] if len(joined) == 1 else ["union", *joined]


def _members(schema: Schema) -> list[Schema]:
    return schema[1:] if isinstance(schema, list) and schema[0] == "union" else [schema]


def _is_named(schema: Schema) -> bool:
    return isinstance(schema, list) and schema[0] in ("record", "enum")


def _join_member(members: list[Schema], new: Schema, *, are_alone: bool) -> list[Schema]:
    """Join a type into the one of some that it widens or is in, or add it.

    `are_alone` says that there are no two records among which it would have to be told by name which one is the older.
    """
    for index, old in enumerate(members):
        joined = None if _is_named(new) and not are_alone and old[:2] != new[:2] else _join_two(old, new)
        if joined is not None:
            kept = [*members[:index], joined, *members[index + 1 :]]
            return [each for each in kept if each is joined or not _is_in_plain(each, joined)]
    return [*members, new]


def _is_in_plain(schema: Schema, wide: Schema) -> bool:
    return isinstance(schema, str) and find_change(schema, wide, "") is None


def _join_two(old: Schema, new: Schema) -> Schema | None:
    """Join two types that are no unions into one that is none; None if neither becomes wider."""
    if old == new:
        return new
    if isinstance(old, str) or isinstance(new, str):
        return next((wide for slim, wide in ((old, new), (new, old)) if find_change(slim, wide, "") is None), None)
    kind = new[0]
    if kind in _SEQUENCES.values() and old[0] in _SEQUENCES.values():
        inner = join_types(old[1], new[1])
        wides = ([each, inner] for each in (kind, old[0]))
        return next((wide for wide in wides if not any(find_change(each, wide, "") for each in (old, new))), None)
    if old[0] != kind:
        return None
    if kind == "record":
        return ["record", new[1], join_fields(old[2], new[2])]
    if kind == "enum":
        values = set(new[2].values())
        members = new[2] | {name: value for name, value in old[2].items() if value not in values}
        return ["enum", new[1], members] if values <= set(members.values()) else None
    if kind == "literal":
        return [*new, *(value for value in old[1:] if value not in new[1:])]
    if (kind == "dict" and old[1] == new[1]) or (kind == "tuple" and len(old) == len(new)):
        return [kind, *(join_types(*pair) for pair in zip(old[1:], new[1:], strict=True))]
    return None


def join_fields(old: Sequence[Sequence[Any]], new: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Join the fields `[name, schema, has_default]` of two records: those of the newer one first."""
    olds = {name: (schema, has_default) for name, schema, has_default in old}
    news = {name for name, _, _ in new}
    joined = [
        [name, join_types(olds[name][0], schema), has_default or olds[name][1]]
        if name in olds
        else [name, schema, True]
        for name, schema, has_default in new
    ]
    return joined + [[name, schema, True] for name, (schema, _) in olds.items() if name not in news]
