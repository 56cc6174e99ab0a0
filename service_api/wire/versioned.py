"""Reads messages field by field: those of other schema versions, and those that turn out to be malformed.

SBE's rule: a field is there if the message's version knows it; the block length in the header says where
the block ends, so a newer, longer block is skipped over. Fields that are absent take their null value, text
"" and data b"". This is the slow path of `codec`: it costs a few microseconds, and its job is to be right
and to name the value that is not.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from ..errors import RemoteProtocolError
from .fields import BlockField, GroupField, MessageLayout, VarField, message_name_of
from .frame import ReadableBuffer

_HEADER: Final = struct.Struct("<HHHH")
_FRAME_LENGTH: Final = struct.Struct("<i")
_LENGTH: Final = struct.Struct("<I")
_GROUP: Final = struct.Struct("<HH")

_Model = TypeVar("_Model", bound=BaseModel)

# The slots of a pydantic model, set through their descriptors: half the cost of object.__setattr__.
set_dict: Final = BaseModel.__dict__["__dict__"].__set__
set_extra: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
set_fields_set: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
set_private: Final = BaseModel.__dict__["__pydantic_private__"].__set__

Decoder = Callable[[ReadableBuffer, int, int], Any]
Unpacker = Callable[[ReadableBuffer, int, int], tuple[Any, ...]]


def decoder(
    model: type[BaseModel], layout: MessageLayout, template_id: int, schema_id: int, header_length: int
) -> Decoder:
    """Make the function (buffer, offset, end) -> model for any version of a message."""
    name = message_name_of(model)

    def decode(buffer: ReadableBuffer, offset: int, end: int) -> Any:
        block_length, version, end = _read_header(
            name,
            buffer,
            offset,
            end,
            template_id=template_id,
            schema_id=schema_id,
            header_length=header_length,
        )
        position = offset + header_length
        values = _block_values(name, layout.block, buffer, position, block_length, version)
        position += block_length
        for group in layout.groups:
            values[group.name], position = decode_group(name, group, buffer, position, end)
        _read_var_data(name, layout.var_data, buffer, position, end, version, values)
        return build(model, values)

    return decode


def unpacker(
    model: type[BaseModel], layout: MessageLayout, template_id: int, schema_id: int, header_length: int
) -> Unpacker:
    """Make the function (buffer, offset, end) -> raw block values for any version of a message."""
    name = message_name_of(model)

    def unpack(buffer: ReadableBuffer, offset: int, end: int) -> tuple[Any, ...]:
        block_length, version, _ = _read_header(
            name,
            buffer,
            offset,
            end,
            template_id=template_id,
            schema_id=schema_id,
            header_length=header_length,
        )
        raw = _read_block(name, layout.block, buffer, offset + header_length, block_length, version)
        return tuple(field.null if value is None else value for field, value in zip(layout.block, raw, strict=True))

    return unpack


def build(model: type[_Model], values: dict[str, Any]) -> _Model:
    """Make a model from values of all its fields that are known to be valid, without validating them.

    The wire has proven them, or they are a member's own. Where its code is not in the core's cache, because a message
    comes now and then, validation takes 8 us, as much as all the rest of an acknowledgement.
    """
    message = object.__new__(model)
    set_dict(message, values)
    set_fields_set(message, set(values))
    set_extra(message, None)
    set_private(message, None)
    return message


def decode_group(
    message: str, group: GroupField, buffer: ReadableBuffer, position: int, end: int
) -> tuple[tuple[Any, ...], int]:
    """Read a group whose elements may be longer than ours; give them and the position after it.

    Raises:
        RemoteProtocolError: the group is cut short, or its elements are shorter than ours.
    """
    where = f"{message}.{group.name}"
    _check(where, _GROUP.size, end - position)
    block_length, count = _GROUP.unpack_from(buffer, position)
    position += _GROUP.size
    if block_length < group.layout.block_length:
        raise RemoteProtocolError(f"{where}: block_length={block_length} expected={group.layout.block_length}")
    _check(where, count * block_length, end - position)
    elements = []
    for _ in range(count):
        _check(where, block_length, end - position)
        values = _block_values(where, group.layout.block, buffer, position, block_length, _NEWEST)
        position = _read_var_data(where, group.layout.var_data, buffer, position + block_length, end, _NEWEST, values)
        elements.append(build(group.element, values))
    return tuple(elements), position


_NEWEST: Final = 1 << 16
"""Later than any version: every field of ours is expected."""


def _read_header(
    name: str,
    buffer: ReadableBuffer,
    offset: int,
    end: int,
    *,
    template_id: int,
    schema_id: int,
    header_length: int,
) -> tuple[int, int, int]:
    """Check the header; give block length, version, and the end of the message."""
    if offset < 0:
        raise RemoteProtocolError(f"{name}: offset={offset} expected >= 0")
    _check(f"{name} header", header_length, end - offset)
    block_length, template, schema, version = _HEADER.unpack_from(buffer, offset)
    if schema != schema_id:
        raise RemoteProtocolError(f"{name}: schema_id={schema} expected={schema_id}")
    if template != template_id:
        raise RemoteProtocolError(f"{name}: template_id={template} expected={template_id}")
    if header_length == 16:
        (frame_length,) = _FRAME_LENGTH.unpack_from(buffer, offset + _HEADER.size)
        if not header_length <= frame_length <= end - offset:
            raise RemoteProtocolError(f"{name}: frame_length={frame_length} available={end - offset}")
        end = offset + frame_length
    _check(f"{name} block", block_length, end - offset - header_length)
    return block_length, version, end


def _read_block(
    where: str,
    fields: Sequence[BlockField],
    buffer: ReadableBuffer,
    start: int,
    block_length: int,
    version: int,
) -> list[int | None]:
    """Read the raw values of a block; None where the version does not have the field."""
    raw: list[int | None] = []
    for field in fields:
        if version < field.since:
            raw.append(None)
            continue
        if field.end > block_length:
            needs = f"field={field.name} needs={field.end}"
            raise RemoteProtocolError(f"{where}: block_length={block_length} version={version} {needs}")
        raw.append(struct.unpack_from("<" + field.format, buffer, start + field.offset)[0])
    return raw


def _block_values(
    where: str,
    fields: Sequence[BlockField],
    buffer: ReadableBuffer,
    start: int,
    block_length: int,
    version: int,
) -> dict[str, Any]:
    raw = _read_block(where, fields, buffer, start, block_length, version)
    return {field.name: _value_of(where, field, value) for field, value in zip(fields, raw, strict=True)}


def _value_of(where: str, field: BlockField, raw: int | None) -> Any:
    if raw is None:
        return field.absent
    if field.optional and raw == field.null:
        return None
    if field.values is None:
        return raw
    for value, meaning in field.values:
        if value == raw:
            return meaning
    known = [value for value, _ in field.values]
    raise RemoteProtocolError(f"{where}.{field.name}: value={raw} expected one of {known}")


def _read_var_data(
    where: str,
    fields: Sequence[VarField],
    buffer: ReadableBuffer,
    position: int,
    end: int,
    version: int,
    values: dict[str, Any],
) -> int:
    """Read texts and data into `values`; give the position after them."""
    for field in fields:
        if version < field.since:
            values[field.name] = "" if field.is_text else b""
            continue
        _check(f"{where}.{field.name}", _LENGTH.size, end - position)
        (size,) = _LENGTH.unpack_from(buffer, position)
        position += _LENGTH.size
        _check(f"{where}.{field.name}", size, end - position)
        data = bytes(buffer[position : position + size])
        values[field.name] = data.decode("ascii", "replace") if field.is_text else data
        position += size
    return position


def _check(where: str, length: int, available: int) -> None:
    if length > available:
        raise RemoteProtocolError(f"{where}: length={length} available={available}")
