"""The field kinds of SBE messages and the layout that a model's annotations describe.

A message model is the single source of truth: the order, wire type, first version and null value of every
field are read from its annotations once, at import, into a `MessageLayout`. The codec, the notebooks'
schemas and the tests all work from that layout. An annotation that cannot be laid out is an error at
import, never at the first message.

Null values: an optional field (`X | None`) is None where the wire holds the null value of its type: int64
-2^63, int32 -2^31, uint8 255, enums and booleans -2^31. `Version` and `Capacity` are never None; 0 is their
null. Aeron itself mostly writes -1 for "none"; that is a plain value here (`NULL_VALUE`, `NULL_POSITION`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

from ..types import ClusterSessionId, CorrelationId, MemberId, RecordingId, TermId
from .sbe import INT32_NULL, INT64_NULL, UINT8_NULL, UINT16_NULL


@dataclass(slots=True, frozen=True)
class Wire:
    """How a value lies on the wire: a `struct` character, or "text" or "data", and its null value."""

    format: str
    null: int = 0
    is_time: bool = False
    """It is a point in time, in the unit of the cluster's clock (archive: epoch milliseconds)."""


@dataclass(slots=True, frozen=True)
class Since:
    """The schema version in which a field appeared; before it the field is absent and has its default."""

    version: int


@dataclass(slots=True, frozen=True)
class At:
    """The offset of a field in its block, where the schema leaves a gap before it."""

    offset: int


_INT64 = Field(ge=INT64_NULL, le=(1 << 63) - 1)
_INT32 = Field(ge=INT32_NULL, le=(1 << 31) - 1)

Int64 = Annotated[int, _INT64, Wire("q", INT64_NULL)]
Int32 = Annotated[int, _INT32, Wire("i", INT32_NULL)]
Int8 = Annotated[int, Field(ge=-128, le=127), Wire("b", -128)]
UInt8 = Annotated[int, Field(ge=0, le=254), Wire("B", UINT8_NULL)]
UInt16 = Annotated[int, Field(ge=0, le=65534), Wire("H", UINT16_NULL)]

Position = Annotated[int, _INT64, Wire("q", INT64_NULL)]
"""A byte offset in a log or recording; -1 where there is none."""
Timestamp = Annotated[int, _INT64, Wire("q", INT64_NULL, is_time=True)]
"""A time in the unit of the cluster clock (archive: epoch milliseconds); -1 where there is none."""
Version = Annotated[int, _INT32, Wire("i", 0)]
"""A semantic version as major << 16 | minor << 8 | patch; 0 where it was not given."""
Capacity = Annotated[int, Field(ge=0, le=(1 << 31) - 1), Wire("i", 0)]
"""A size in bytes; 0 where it was not given."""

WireTermId = Annotated[TermId, _INT64, Wire("q", INT64_NULL)]
WireMemberId = Annotated[MemberId, _INT32, Wire("i", INT32_NULL)]
WireSessionId = Annotated[ClusterSessionId, _INT64, Wire("q", INT64_NULL)]
WireRecordingId = Annotated[RecordingId, _INT64, Wire("q", INT64_NULL)]
WireCorrelationId = Annotated[CorrelationId, _INT64, Wire("q", INT64_NULL)]

Text = Annotated[str, Wire("text")]
"""US-ASCII with a uint32 length.

A UTF-16 unit outside ASCII is written as `?`; a byte above 0x7F is read as U+FFFD.
"""
Data = Annotated[bytes, Wire("data")]
"""Bytes with a uint32 length."""


@dataclass(slots=True, frozen=True)
class BlockField:
    """One fixed-length field of a block."""

    name: str
    wire_name: str
    format: str
    offset: int
    since: int
    null: int
    optional: bool
    values: tuple[tuple[int, Any], ...] | None
    """Of an enum or boolean, each wire value and what it stands for; None for numbers."""
    is_time: bool = False

    @property
    def end(self) -> int:
        """The offset just after the field."""
        return self.offset + struct.calcsize("<" + self.format)

    @property
    def absent(self) -> int | None:
        """The value of the field in a message older than the field."""
        return None if self.optional else self.null


@dataclass(slots=True, frozen=True)
class VarField:
    """One variable-length field: a uint32 length and that many bytes."""

    name: str
    wire_name: str
    is_text: bool
    since: int


@dataclass(slots=True, frozen=True)
class GroupField:
    """One repeating group: uint16 block length, uint16 count, and the elements."""

    name: str
    wire_name: str
    element: type[BaseModel]
    layout: MessageLayout


@dataclass(slots=True, frozen=True)
class MessageLayout:
    """What a model looks like on the wire: its block, then its groups, then its variable-length fields."""

    block: tuple[BlockField, ...]
    groups: tuple[GroupField, ...]
    var_data: tuple[VarField, ...]
    block_length: int

    @property
    def block_format(self) -> str:
        """The `struct` characters of the block, gaps included, without a byte order."""
        parts: list[str] = []
        position = 0
        for field in self.block:
            parts.append(_gap(field.offset - position) + field.format)
            position = field.end
        return "".join(parts) + _gap(self.block_length - position)


def layout_of(model: type[BaseModel], block_length: int | None = None) -> MessageLayout:
    """Read the layout from a model's annotations. `block_length` is given where the schema pads the block.

    Raises:
        TypeError: an annotation has no wire type, or fields are out of order.
    """
    fields = [_Annotation.of(model, name, info) for name, info in model.model_fields.items()]
    kinds = [field.kind for field in fields]
    if kinds != sorted(kinds):
        raise TypeError(f"{model.__name__}: block fields, groups, variable data expected in this order")
    block: list[BlockField] = []
    position = 0
    for field in (f for f in fields if f.kind == _BLOCK):
        offset = position if field.at is None else field.at
        if offset < position:
            raise TypeError(f"{model.__name__}.{field.name}: offset={offset} lies before {position}")
        block.append(field.block_field(offset))
        position = block[-1].end
    _check_versions(model, block)
    if block_length is not None and block_length < position:
        raise TypeError(f"{model.__name__}: block_length={block_length} fields end at {position}")
    return MessageLayout(
        block=tuple(block),
        groups=tuple(f.group_field() for f in fields if f.kind == _GROUP),
        var_data=tuple(f.var_field() for f in fields if f.kind == _VAR),
        block_length=position if block_length is None else block_length,
    )


def message_name_of(model: type[BaseModel]) -> str:
    """The name of a message in its schema, which is what errors say; the class name of a part of one."""
    name: str = vars(model).get("WIRE_NAME", model.__name__)
    return name


def wire_name_of(name: str) -> str:
    """Turn a Python field name into the schema's: leadership_term_id -> leadershipTermId."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_BLOCK, _GROUP, _VAR = range(3)


@dataclass(slots=True)
class _Annotation:
    """What one field's annotation says, once unwrapped."""

    owner: str
    name: str
    python_type: Any  # the bare type behind Annotated, NewType and None
    wire: Wire | None
    since: int
    at: int | None
    optional: bool
    element: type[BaseModel] | None

    @classmethod
    def of(cls, model: type[BaseModel], name: str, info: FieldInfo) -> _Annotation:
        """Unwrap the annotation of one field and check that it means something on the wire."""
        types, metadata = [], list(info.metadata)
        for part in _unwrap(info.annotation):
            if isinstance(part, _Meta):
                metadata.append(part.value)
            else:
                types.append(part)
        optional = NoneType in types
        concrete = [part for part in types if part is not NoneType]
        if len(concrete) != 1:
            raise TypeError(f"{model.__name__}.{name}: unsupported annotation {info.annotation!r}")
        wire = next((m for m in metadata if isinstance(m, Wire)), None)
        found = cls(
            owner=model.__name__,
            name=name,
            python_type=concrete[0],
            wire=wire,
            since=next((m.version for m in metadata if isinstance(m, Since)), 0),
            at=next((m.offset for m in metadata if isinstance(m, At)), None),
            optional=optional,
            element=_element_of(concrete[0]),
        )
        found._check(info)
        return found

    @property
    def kind(self) -> int:
        """Whether the field belongs to the block, is a group, or is variable data."""
        if self.element is not None:
            return _GROUP
        return _VAR if self.wire is not None and self.wire.format in ("text", "data") else _BLOCK

    def block_field(self, offset: int) -> BlockField:
        """Describe the field as a part of the block."""
        wire, values = self.wire, self._values()
        if wire is None:
            wire = Wire("i", INT32_NULL)  # enums and booleans, unless annotated with another one
        return BlockField(
            name=self.name,
            wire_name=wire_name_of(self.name),
            format=wire.format,
            offset=offset,
            since=self.since,
            null=wire.null,
            optional=self.optional,
            values=values,
            is_time=wire.is_time,
        )

    def group_field(self) -> GroupField:
        """Describe the field as a repeating group."""
        assert self.element is not None
        layout = layout_of(self.element)
        if layout.groups:
            raise TypeError(f"{self.owner}.{self.name}: a group inside a group is not supported")
        return GroupField(self.name, wire_name_of(self.name), self.element, layout)

    def var_field(self) -> VarField:
        """Describe the field as variable data."""
        assert self.wire is not None
        return VarField(self.name, wire_name_of(self.name), self.wire.format == "text", self.since)

    def _values(self) -> tuple[tuple[int, Any], ...] | None:
        if self.python_type is bool:
            return ((0, False), (1, True))
        if isinstance(self.python_type, type) and issubclass(self.python_type, IntEnum):
            return tuple((member.value, member) for member in self.python_type)
        return None

    def _check(self, info: FieldInfo) -> None:
        where = f"{self.owner}.{self.name}"
        has_values = self._values() is not None
        if self.wire is None and not has_values and self.element is None:
            raise TypeError(f"{where}: unsupported annotation {info.annotation!r}: no wire type")
        if has_values and self.kind != _BLOCK:
            raise TypeError(f"{where}: an enum or boolean is a number on the wire")
        if has_values and not self.optional:
            raise TypeError(f"{where}: an enum or boolean has a null value, so it must allow None")
        if self.optional and self.kind != _BLOCK:
            raise TypeError(f"{where}: a group, text or data cannot be None")
        if self.since and info.is_required():
            raise TypeError(f"{where}: since={self.since} needs a default")
        if self.kind == _GROUP and self.since:
            raise TypeError(f"{where}: a group with since={self.since} is not supported")


@dataclass(slots=True, frozen=True)
class _Meta:
    """Metadata met while unwrapping, told apart from types."""

    value: object


def _unwrap(annotation: Any) -> Iterator[Any]:
    """Yield the types of an annotation and, wrapped, its metadata: through Annotated, unions and NewType."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        yield from _unwrap(inner)
        yield from (_Meta(value) for value in metadata)
    elif origin is Union or origin is UnionType:
        for part in get_args(annotation):
            yield from _unwrap(part)
    elif hasattr(annotation, "__supertype__"):
        yield from _unwrap(annotation.__supertype__)
    else:
        yield annotation


def _element_of(annotation: Any) -> type[BaseModel] | None:
    """Return E where the annotation is tuple[E, ...] of models."""
    if get_origin(annotation) is not tuple:
        return None
    args = get_args(annotation)
    if len(args) == 2 and args[1] is Ellipsis and isinstance(args[0], type) and issubclass(args[0], BaseModel):
        return args[0]
    return None


def _check_versions(model: type[BaseModel], block: list[BlockField]) -> None:
    versions = [field.since for field in block]
    if versions != sorted(versions):
        raise TypeError(f"{model.__name__}: a field was added before an older one, since={versions}")


def _gap(length: int) -> str:
    return f"{length}x" if length else ""
