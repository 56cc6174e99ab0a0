"""The base of every SBE message, and the choice of the class by what a header says.

A message is a frozen, strict pydantic model with its fields in wire order. Defining the class compiles its
codec and enters it into `MESSAGES`; a template id used twice, or an annotation without a wire type, fails
right there.

    bytes    SBE header (block_length, template_id, schema_id, version: uint16 each), block, groups, var data
    encode   the version of Aeron 1.52.2
    decode   any version: newer blocks are skipped over, absent fields are None, "" or b""
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict

from ..errors import LocalProtocolError, RemoteProtocolError
from .codec import compile_codec
from .fields import MessageLayout, layout_of
from .frame import ReadableBuffer
from .sbe import MESSAGE_HEADER

MESSAGE_HEADER_LENGTH: Final = MESSAGE_HEADER.size


class GroupElement(BaseModel):
    """One element of a repeating group; its fields are laid out like those of a message."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Message(BaseModel):
    """One SBE message. Subclasses with a `TEMPLATE_ID` are messages, those without are schemas.

    A subclass of a message is that message with a longer block. Readers of the message skip what is longer, so the
    registry keeps the message, and who knows the longer one asks for it by its class.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    SCHEMA_ID: ClassVar[int]
    SCHEMA_VERSION: ClassVar[int]
    TEMPLATE_ID: ClassVar[int]
    HEADER_LENGTH: ClassVar[int] = MESSAGE_HEADER_LENGTH
    WIRE_NAME: ClassVar[str]
    """The name in the schema; the class name unless given."""
    BLOCK_LENGTH: ClassVar[int | None] = None
    """The length of the block where the schema pads it; otherwise the sum of the fields."""
    LAYOUT: ClassVar[MessageLayout]

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Compile the codec of a message class and register it.

        Raises:
            TypeError: the class cannot be laid out, or its template id is taken.
        """
        super().__pydantic_init_subclass__(**kwargs)
        if not hasattr(cls, "TEMPLATE_ID"):
            return
        is_longer_block = "TEMPLATE_ID" not in cls.__dict__
        if "WIRE_NAME" not in cls.__dict__ and not is_longer_block:
            cls.WIRE_NAME = cls.__name__
        cls.LAYOUT = layout_of(cls, cls.BLOCK_LENGTH)
        compiled = compile_codec(
            cls,
            cls.LAYOUT,
            template_id=cls.TEMPLATE_ID,
            schema_id=cls.SCHEMA_ID,
            version=cls.SCHEMA_VERSION,
            header_length=cls.HEADER_LENGTH,
        )
        # Plain functions in place of the methods below: a class method in between would cost a tenth of the
        # decode.
        type.__setattr__(cls, "encode", compiled.encode)
        type.__setattr__(cls, "decode", staticmethod(compiled.decode))
        type.__setattr__(cls, "unpack", staticmethod(compiled.unpack))
        if is_longer_block:
            return
        key = registry_key(cls.SCHEMA_ID, cls.TEMPLATE_ID)
        if key in _messages:
            taken = _messages[key].__name__
            raise TypeError(f"{cls.__name__}: template_id={cls.TEMPLATE_ID} is taken by {taken}")
        _messages[key] = cls

    def encode(self) -> bytes:
        """Build the header and the body of the message.

        Raises:
            LocalProtocolError: the class is a schema and no message.
        """
        raise LocalProtocolError(f"{type(self).__name__} is a schema, not a message")

    @classmethod
    def decode(cls, buffer: ReadableBuffer, offset: int = 0, length: int | None = None) -> Self:
        """Read the message whose SBE header is at `offset`.

        `length` bounds it where other bytes follow; without it the buffer's end does. Bytes after the
        message are left alone (an application payload may follow).

        Raises:
            RemoteProtocolError: another message, cut short, or with a value that it cannot have; it is named.
        """
        raise LocalProtocolError(f"{cls.__name__} is a schema, not a message")

    @classmethod
    def unpack(cls, buffer: ReadableBuffer, offset: int = 0) -> tuple[Any, ...]:
        """Read the block alone, as raw wire values in wire order: enums as numbers, null values as they are.

        Raises:
            RemoteProtocolError: as `decode`, save that values are not checked.
        """
        raise LocalProtocolError(f"{cls.__name__} is a schema, not a message")


class ClusterMessage(Message):
    """A message of the cluster schema, in the version of Aeron 1.52.2."""

    SCHEMA_ID: ClassVar[int] = 111
    SCHEMA_VERSION: ClassVar[int] = 16


class PassedOverMessage(ClusterMessage):
    """A message of ours in a file that Aeron reads too: of Aeron's schema, with a template id that Aeron passes over.

    Aeron's loaders of snapshots stop at another schema id, and pass over template ids that they do not know. Version 17
    of the schema ends at template id 108; these ids are far above.
    """

    TEMPLATE_IDS: ClassVar[range] = range(8100, 8200)
    OPTIONAL_TEMPLATE_IDS: ClassVar[range] = range(8150, 8200)
    """Those that a Trimaran passes over, too, where it does not know them: state that it can do without."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Compile the codec of a message class and register it.

        Raises:
            TypeError: as of `Message`, or the template id is one that Aeron may use.
        """
        if hasattr(cls, "TEMPLATE_ID") and cls.TEMPLATE_ID not in cls.TEMPLATE_IDS:
            raise TypeError(f"{cls.__name__}: template_id={cls.TEMPLATE_ID} expected one of {cls.TEMPLATE_IDS}")
        super().__pydantic_init_subclass__(**kwargs)


def is_optional(encoded: ReadableBuffer) -> bool:
    """Whether this is a message in a file of a later version that this one may pass over.

    Raises:
        RemoteProtocolError: a message that this version has to know, or fewer bytes than one has.
    """
    _, template_id, schema_id, _ = peek_header(encoded)
    if schema_id != PassedOverMessage.SCHEMA_ID or template_id not in PassedOverMessage.TEMPLATE_IDS:
        return False
    if registry_key(schema_id, template_id) in MESSAGES:
        return False
    if template_id not in PassedOverMessage.OPTIONAL_TEMPLATE_IDS:
        raise RemoteProtocolError(
            f"template_id={template_id} is a message of a later version of Trimaran that holds state: run that version"
        )
    return True


class TrimaranMessage(Message):
    """A message that Aeron has no counterpart of, in a schema of our own: no tool of Aeron's takes it for another.

    It exists on links only. `PassedOverMessage` is for files.
    """

    SCHEMA_ID: ClassVar[int] = 811
    SCHEMA_VERSION: ClassVar[int] = 4
    """Rises with each field that is added, which then says `Since`: members of two versions read each other."""


Registry = Mapping[int, type[Message]]
"""Message classes by `registry_key`: what a link accepts."""

_messages: dict[int, type[Message]] = {}
MESSAGES: Final[Registry] = _messages
"""Every message class that has been imported."""

_KEY: Final = struct.Struct("<I")


def registry_key(schema_id: int, template_id: int) -> int:
    """Compute the key of a class in a registry: the two ids as they lie in the header."""
    return schema_id << 16 | template_id


def registry_of(*classes: type[Message]) -> Registry:
    """Collect the classes that one link or file may hold."""
    return {registry_key(cls.SCHEMA_ID, cls.TEMPLATE_ID): cls for cls in classes}


def message_header(message: type[Message]) -> tuple[int, int, int, int]:
    """Return what the SBE header of a message says: block length, template id, schema id, version."""
    return message.LAYOUT.block_length, message.TEMPLATE_ID, message.SCHEMA_ID, message.SCHEMA_VERSION


def message_struct(message: type[Message]) -> struct.Struct:
    """Lay out the four numbers of the SBE header, then those of the block: for hot paths, which make no models."""
    return struct.Struct(f"{MESSAGE_HEADER.format}{message.LAYOUT.block_format}")


def peek_header(buffer: ReadableBuffer, offset: int = 0) -> tuple[int, int, int, int]:
    """Read (block_length, template_id, schema_id, version) at `offset`.

    Raises:
        RemoteProtocolError: fewer than 8 bytes are there.
    """
    if offset < 0 or len(buffer) - offset < MESSAGE_HEADER_LENGTH:
        raise RemoteProtocolError(f"message header: length=8 available={len(buffer) - offset}")
    return MESSAGE_HEADER.unpack_from(buffer, offset)


def find_class(registry: Registry, buffer: ReadableBuffer, offset: int = 0) -> type[Message] | None:
    """Find which of these classes the message at `offset` names in its header; None if it names none of them."""
    if len(buffer) - offset < MESSAGE_HEADER_LENGTH:
        return None
    return registry.get(_KEY.unpack_from(buffer, offset + 2)[0])


def decode_message(
    buffer: ReadableBuffer, offset: int = 0, length: int | None = None, *, registry: Registry = MESSAGES
) -> Message:
    """Read the message at `offset`, of whichever class in `registry` the header names.

    Raises:
        RemoteProtocolError: a message that the registry does not hold, or one that is malformed.
    """
    if offset < 0 or len(buffer) - offset < MESSAGE_HEADER_LENGTH:
        raise RemoteProtocolError(f"message header: length=8 available={len(buffer) - offset}")
    (key,) = _KEY.unpack_from(buffer, offset + 2)
    model = registry.get(key)
    if model is None:
        raise RemoteProtocolError(f"unknown message: schema_id={key >> 16} template_id={key & 0xFFFF}")
    return model.decode(buffer, offset, length)
