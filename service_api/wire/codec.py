"""Compiles a message model into straight-line encode, decode and unpack functions.

The problem: a pydantic construction costs about a microsecond, and a codec that loops over fields costs
several. The idea: the layout is known at import, so the functions are written out as source, once per
class, with every offset, constant and enum table in place; decoding fills the slots of a model directly,
for `struct` has already proven the ranges and the generated code checks the rest. The source is registered
in `linecache`, so a traceback shows its lines.

Two paths: the compiled one takes exactly the block that we write ourselves; any other version, any short
buffer and any wrong template go to `versioned`, which reads field by field and says what is wrong. Tests
hold the two equal.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pydantic import BaseModel

from ..errors import LocalProtocolError, RemoteProtocolError
from . import versioned
from .fields import BlockField, GroupField, MessageLayout, VarField, message_name_of
from .sbe import MESSAGE_HEADER


@dataclass(slots=True, frozen=True)
class Compiled:
    """The functions generated for one message class."""

    encode: Callable[[Any], bytes]
    decode: Callable[..., Any]
    unpack: Callable[..., tuple[Any, ...]]


def compile_codec(
    model: type[BaseModel],
    layout: MessageLayout,
    *,
    template_id: int,
    schema_id: int,
    version: int,
    header_length: int,
) -> Compiled:
    """Generate the codec of `model`.

    `header_length` is 8, or 16 where a frame length follows the SBE header (schema 112).
    """
    writer = _Writer(model, layout, header_length)
    header = MESSAGE_HEADER.pack(layout.block_length, template_id, schema_id, version)
    writer.bind("HEADER", int.from_bytes(header, "little"))
    writer.bind("other", versioned.decoder(model, layout, template_id, schema_id, header_length))
    writer.bind("other_unpack", versioned.unpacker(model, layout, template_id, schema_id, header_length))
    writer.encode()
    writer.decode()
    writer.unpack()
    namespace = writer.execute()
    return Compiled(namespace["encode"], namespace["decode"], namespace["unpack"])


def ascii_bytes(text: str) -> bytes:
    """Encode text as Aeron does: `?` stands for each UTF-16 unit outside ASCII."""
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        units = (c if c < "\x80" else "?" if c <= "\uffff" else "??" for c in text)
        return "".join(units).encode("ascii")


_MAX_GROUP_COUNT: Final = 65534
"""Source: SBE `groupSizeEncoding.numInGroup`, uint16 with 65535 as null."""


class _Writer:
    """Collects source lines and the constants that they name."""

    def __init__(self, model: type[BaseModel], layout: MessageLayout, header_length: int) -> None:
        self._model = model
        self._layout = layout
        self._header_length = header_length
        self._lines: list[str] = []
        self._indent = 0
        self._names: dict[str, Any] = {
            "RemoteProtocolError": RemoteProtocolError,
            "ascii_bytes": ascii_bytes,
            "from_wire": _from_wire,
            "length_of": struct.Struct("<I").unpack_from,
            "new": object.__new__,
            "pack_group": struct.Struct("<HH").pack,
            "pack_length": struct.Struct("<I").pack,
            "group_of": struct.Struct("<HH").unpack_from,
            "other_group": versioned.decode_group,
            "set_dict": versioned.set_dict,
            "set_extra": versioned.set_extra,
            "set_fields_set": versioned.set_fields_set,
            "set_private": versioned.set_private,
            "short": _short,
            "too_many": _too_many,
        }
        self.bind("NAME", message_name_of(model))
        extra = "ii" if header_length == 16 else ""
        layout_struct = struct.Struct(f"<Q{extra}{layout.block_format}")
        self.bind("pack", layout_struct.pack)
        self.bind("unpack_from", layout_struct.unpack_from)
        self.bind("SIZE", layout_struct.size)

    def bind(self, name: str, value: Any) -> str:
        """Make `value` known to the generated code under `name`."""
        self._names[name] = value
        return name

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self._lines.append("    " * self._indent + text)

    def execute(self) -> dict[str, Any]:
        """Compile what was collected, visible to tracebacks under a name of its own."""
        filename = f"<codec {self._model.__module__}.{self._model.__qualname__}>"
        source = "\n".join(self._lines) + "\n"
        linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
        namespace = dict(self._names)
        exec(compile(source, filename, "exec"), namespace)  # nosec B102
        return namespace

    # --- encode

    def encode(self) -> None:
        """Write `encode(self) -> bytes`."""
        layout = self._layout
        self.line("def encode(self):")
        self._indent += 1
        for field in layout.block:
            self._block_to_local(field, "self", "")
        values = "".join(f", {field.name}_" for field in layout.block)
        if not layout.groups and not layout.var_data:
            frame_length = ", SIZE, 0" if self._header_length == 16 else ""
            self.line(f"return pack(HEADER{frame_length}{values})")
        else:
            self.line("parts = []")
            self.line("add = parts.append")
            for group in layout.groups:
                self._encode_group(group)
            self._encode_var_data(layout.var_data, "self")
            self.line("body = b''.join(parts)")
            frame_length = ", SIZE + len(body), 0" if self._header_length == 16 else ""
            self.line(f"return pack(HEADER{frame_length}{values}) + body")
        self._indent -= 1

    def _block_to_local(self, field: BlockField, owner: str, prefix: str) -> None:
        local = f"{prefix}{field.name}_"
        self.line(f"{local} = {owner}.{field.name}")
        if field.optional:
            self.line(f"if {local} is None: {local} = {field.null}")

    def _encode_group(self, group: GroupField) -> None:
        layout = group.layout
        pack = self.bind(f"pack_{group.name}", struct.Struct("<" + layout.block_format).pack)
        self.line(f"elements = self.{group.name}")
        self.line(f"if len(elements) > {_MAX_GROUP_COUNT}: too_many(NAME + '.{group.name}', len(elements))")
        self.line(f"add(pack_group({layout.block_length}, len(elements)))")
        self.line("for element in elements:")
        self._indent += 1
        for field in layout.block:
            self._block_to_local(field, "element", "element_")
        self.line(f"add({pack}({', '.join(f'element_{field.name}_' for field in layout.block)}))")
        self._encode_var_data(layout.var_data, "element")
        self._indent -= 1

    def _encode_var_data(self, fields: Sequence[VarField], owner: str) -> None:
        for field in fields:
            value = f"{owner}.{field.name}"
            self.line(f"data = ascii_bytes({value})" if field.is_text else f"data = {value}")
            self.line("add(pack_length(len(data)))")
            self.line("add(data)")

    # --- decode

    def decode(self) -> None:
        """Write `decode(buffer, offset=0, length=None) -> model`."""
        layout = self._layout
        self.line("def decode(buffer, offset=0, length=None):")
        self._indent += 1
        self.line("end = len(buffer)")
        self.line("if length is not None:")
        self.line("    if length > end - offset: short(NAME, length, end - offset)")
        self.line("    end = offset + length")
        self.line("if end - offset < SIZE or offset < 0: return other(buffer, offset, end)")
        extra = "frame_length, padding, " if self._header_length == 16 else ""
        names = "".join(f"{field.name}_, " for field in layout.block)
        self.line(f"header, {extra}{names}= unpack_from(buffer, offset)")
        self.line("if header != HEADER: return other(buffer, offset, end)")
        if self._header_length == 16:
            self.line("if not SIZE <= frame_length <= end - offset: short(NAME, frame_length, end - offset)")
        self._block_from_wire(layout.block, "", "message")
        if layout.groups or layout.var_data:
            self.line("position = offset + SIZE")
        for group in layout.groups:
            self._decode_group(group)
        self._decode_var_data(layout.var_data, "")
        self._build("message", self._model, layout, "", "message")
        self.line("return message")
        self._indent -= 1

    def _block_from_wire(self, fields: Sequence[BlockField], prefix: str, key: str) -> None:
        for field in fields:
            local = f"{prefix}{field.name}_"
            if field.values is not None:
                table: dict[int, Any] = dict(field.values)
                table[field.null] = None
                name = self.bind(f"{key}_{field.name}_values", table)
                self.line(f"if {local} in {name}: {local} = {name}[{local}]")
                self.line(f"else: from_wire(NAME, {field.name!r}, {local}, {name})")
            elif field.optional:
                self.line(f"if {local} == {field.null}: {local} = None")

    def _decode_group(self, group: GroupField) -> None:
        layout, name = group.layout, group.name
        block = struct.Struct("<" + layout.block_format)
        self.line(f"if end - position < 4: short(NAME + '.{name}', 4, end - position)")
        self.line("block_length, count = group_of(buffer, position)")
        self.line(f"if block_length != {layout.block_length}:")
        self.bind(f"{name}_group", group)
        self.line(f"    {name}_, position = other_group(NAME, {name}_group, buffer, position, end)")
        self.line("else:")
        self._indent += 1
        self.line("position += 4")
        self.line(f"if count * {block.size} > end - position:")
        self.line(f"    short(NAME + '.{name}', count * {block.size}, end - position)")
        self.line("elements = []")
        self.line("for _ in range(count):")
        self._indent += 1
        self.line(f"if end - position < {block.size}: short(NAME + '.{name}', {block.size}, end - position)")
        names = "".join(f"element_{field.name}_, " for field in layout.block)
        self.line(f"{names}= {self.bind(f'unpack_{name}', block.unpack_from)}(buffer, position)")
        self.line(f"position += {block.size}")
        self._block_from_wire(layout.block, "element_", name)
        self._decode_var_data(layout.var_data, "element_")
        self._build("element", group.element, layout, "element_", name)
        self.line("elements.append(element)")
        self._indent -= 1
        self.line(f"{name}_ = tuple(elements)")
        self._indent -= 1

    def _decode_var_data(self, fields: Sequence[VarField], prefix: str) -> None:
        for field in fields:
            self.line(f"if end - position < 4: short(NAME + '.{field.name}', 4, end - position)")
            self.line("size, = length_of(buffer, position)")
            self.line("position += 4")
            self.line(f"if size > end - position: short(NAME + '.{field.name}', size, end - position)")
            data = "buffer[position:position + size]"
            decoded = f"str({data}, 'ascii', 'replace')" if field.is_text else f"bytes({data})"
            self.line(f"{prefix}{field.name}_ = {decoded}")
            self.line("position += size")

    def _build(self, local: str, model: type[BaseModel], layout: MessageLayout, prefix: str, key: str) -> None:
        """Fill the slots of a new `model`; one set of field names is shared by all, for models are frozen."""
        names = [*(f.name for f in layout.block), *(g.name for g in layout.groups)]
        names += [f.name for f in layout.var_data]
        entries = ", ".join(f"{name!r}: {prefix}{name}_" for name in names)
        self.line(f"{local} = new({self.bind(f'{key}_type', model)})")
        self.line(f"set_dict({local}, {{{entries}}})")
        self.line(f"set_fields_set({local}, {self.bind(f'{key}_fields', set(names))})")
        self.line(f"set_extra({local}, None)")
        self.line(f"set_private({local}, None)")

    # --- unpack

    def unpack(self) -> None:
        """Write `unpack(buffer, offset=0) -> tuple` of the raw block values."""
        skip = 3 if self._header_length == 16 else 1
        self.line("def unpack(buffer, offset=0):")
        self.line("    if len(buffer) - offset < SIZE: return other_unpack(buffer, offset, len(buffer))")
        self.line("    values = unpack_from(buffer, offset)")
        self.line("    if values[0] != HEADER: return other_unpack(buffer, offset, len(buffer))")
        self.line(f"    return values[{skip}:]")


def _from_wire(message: str, field: str, value: int, table: dict[int, Any]) -> NoReturn:
    """Refuse an enum value that the schema does not know."""
    known = sorted(key for key, meaning in table.items() if meaning is not None)
    raise RemoteProtocolError(f"{message}.{field}: value={value} expected one of {known}")


def _short(where: str, length: int, available: int) -> NoReturn:
    """Refuse a length that the bytes at hand do not hold."""
    raise RemoteProtocolError(f"{where}: length={length} available={available}")


def _too_many(where: str, count: int) -> NoReturn:
    raise LocalProtocolError(f"{where}: count={count} limit={_MAX_GROUP_COUNT}")
