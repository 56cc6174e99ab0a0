"""The frames that are messages themselves: setup, status and commit. They exist on links and never in a recording.

Each is a model with all its fields in wire order, from the frame length on; what the fields of a kind of frame always
hold is their default. `encode` and `decode` work from the layout of the model, as those of SBE messages do. Setup and
status frames have the layouts of Aeron's transport; the setup frame ends with two fields of ours: who speaks, and of
which cluster. The commit frame is ours: on the log link a leader says with it, between two data frames, how far the log
is committed.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict

from ..errors import RemoteProtocolError
from ..types import LOG_STREAM_ID, NULL_VALUE
from .checksum import ChecksumKind
from .fields import Int32, Int64, MessageLayout, Position, UInt8, UInt16, layout_of
from .frame import (
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    TYPE_COMMIT,
    TYPE_SETUP,
    TYPE_STATUS,
    ReadableBuffer,
    position_of,
    term_of,
)
from .versioned import build

_CHECKSUMMED: Final = 0x01
"""The flag of a setup frame: the data frames that follow carry a checksum. Ours; Aeron leaves it at 0."""
_CRC32C: Final = 0x02
"""The flag of a setup frame that says that it is a CRC-32C; else it is a CRC-32."""


class LinkFrame(BaseModel):
    """Base of the models: what every frame begins with."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    NAME: ClassVar[str]
    LAYOUT: ClassVar[MessageLayout]
    STRUCT: ClassVar[struct.Struct]
    """The fields of the frame, without the zeros that align it."""

    frame_length: Int32 = 0
    version: UInt8 = 0
    flags: UInt8 = 0
    type: UInt16 = 0

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Lay out the frame."""
        super().__pydantic_init_subclass__(**kwargs)
        cls.LAYOUT = layout_of(cls)
        cls.STRUCT = struct.Struct("<" + cls.LAYOUT.block_format)

    def encode(self) -> bytes:
        """Build the frame, zero-padded to a multiple of 32 bytes."""
        layout = self.STRUCT
        return layout.pack(*(getattr(self, field.name) for field in self.LAYOUT.block)) + bytes(
            -layout.size & FRAME_ALIGNMENT - 1
        )

    @classmethod
    def decode(cls, buffer: ReadableBuffer, offset: int = 0) -> Self:
        """Read the frame at `offset`.

        Raises:
            RemoteProtocolError: it is of another kind, cut short, or holds what no such frame can.
        """
        layout, available = cls.STRUCT, len(buffer) - offset
        if offset < 0 or available < layout.size:
            raise RemoteProtocolError(f"incomplete {cls.NAME} frame: available={available} expected={layout.size}")
        frame = build(cls, dict(zip(cls.model_fields, layout.unpack_from(buffer, offset), strict=True)))
        for name in ("frame_length", "type"):
            found, expected = getattr(frame, name), cls.model_fields[name].default
            if found != expected:
                raise RemoteProtocolError(f"{cls.NAME} frame: {name}={found} expected={expected}")
        frame._check()
        return frame

    def _check(self) -> None:
        """Refuse values that no such frame can have."""


class SetupFrame(LinkFrame):
    """The first frame on a connection: which stream follows, and from which position.

    52 bytes, padded to 64 on the wire. Source: Aeron transport protocol, setup frame: the first 40 bytes.
    """

    NAME: ClassVar[str] = "setup"

    frame_length: Int32 = 52
    type: UInt16 = TYPE_SETUP
    term_offset: Int32 = 0
    session_id: Int32
    stream_id: Int32
    initial_term_id: Int32 = 0
    active_term_id: Int32 = 0
    term_length_bytes: Int32 = 64 << 20
    mtu_length_bytes: Int32 = 65504
    ttl: Int32 = 0
    cluster_id: Int64 = 0
    """The cluster that the sender belongs to, or means; 0 where it does not know, which goes with every one."""
    member_id: Int32 = NULL_VALUE
    """The member that speaks; -1 for anybody else."""

    @classmethod
    def at_position(
        cls,
        position: int,
        *,
        session_id: int,
        stream_id: int,
        initial_term_id: int = 0,
        term_length_bytes: int = 64 << 20,
        mtu_length_bytes: int = 65504,
        checksummed: bool = False,
        checksum_kind: ChecksumKind = ChecksumKind.CRC32,
        cluster_id: int = 0,
        member_id: int = NULL_VALUE,
    ) -> Self:
        """Announce a stream that begins at `position`."""
        active_term_id, term_offset = term_of(
            position, initial_term_id=initial_term_id, term_length_bytes=term_length_bytes
        )
        return cls(
            flags=(_CHECKSUMMED | (_CRC32C if checksum_kind is ChecksumKind.CRC32C else 0)) if checksummed else 0,
            term_offset=term_offset,
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=initial_term_id,
            active_term_id=active_term_id,
            term_length_bytes=term_length_bytes,
            mtu_length_bytes=mtu_length_bytes,
            cluster_id=cluster_id,
            member_id=member_id,
        )

    @property
    def checksummed(self) -> bool:
        """Whether the data frames of the stream carry a checksum."""
        return bool(self.flags & _CHECKSUMMED)

    @property
    def checksum_kind(self) -> ChecksumKind:
        """Which checksum that is."""
        return ChecksumKind.CRC32C if self.flags & _CRC32C else ChecksumKind.CRC32

    @property
    def position(self) -> int:
        """The stream position at which the sender begins."""
        return position_of(
            self.active_term_id,
            self.term_offset,
            initial_term_id=self.initial_term_id,
            term_length_bytes=self.term_length_bytes,
        )

    def _check(self) -> None:
        term_offset, term_length, mtu = self.term_offset, self.term_length_bytes, self.mtu_length_bytes
        if term_length < FRAME_ALIGNMENT or term_length & (term_length - 1):
            raise RemoteProtocolError(f"setup frame: term_length={term_length} expected a power of two from 32")
        if not 0 <= term_offset < term_length or term_offset % FRAME_ALIGNMENT:
            raise RemoteProtocolError(f"setup frame: term_offset={term_offset} term_length={term_length}")
        if mtu <= HEADER_LENGTH:
            raise RemoteProtocolError(f"setup frame: mtu={mtu} expected more than 32")


class StatusFrame(LinkFrame):
    """The receiver's answer to a setup frame: the position from which it wants the stream.

    36 bytes, padded to 64 on the wire. Source: Aeron transport protocol, status message.
    """

    NAME: ClassVar[str] = "status"

    frame_length: Int32 = 36
    type: UInt16 = TYPE_STATUS
    session_id: Int32
    stream_id: Int32
    consumption_term_id: Int32 = 0
    consumption_term_offset: Int32 = 0
    receiver_window_bytes: Int32 = 0
    receiver_id: Int64 = 0

    @classmethod
    def at_position(
        cls, position: int, *, setup: SetupFrame, receiver_window_bytes: int = 0, receiver_id: int = 0
    ) -> Self:
        """Answer `setup`: begin at `position`."""
        term_id, term_offset = term_of(
            position, initial_term_id=setup.initial_term_id, term_length_bytes=setup.term_length_bytes
        )
        return cls(
            session_id=setup.session_id,
            stream_id=setup.stream_id,
            consumption_term_id=term_id,
            consumption_term_offset=term_offset,
            receiver_window_bytes=receiver_window_bytes,
            receiver_id=receiver_id,
        )

    def position(self, *, initial_term_id: int, term_length_bytes: int) -> int:
        """Compute the stream position asked for."""
        return position_of(
            self.consumption_term_id,
            self.consumption_term_offset,
            initial_term_id=initial_term_id,
            term_length_bytes=term_length_bytes,
        )


class CommitFrame(LinkFrame):
    """How far the log is committed, said by its leader: a frame header alone. `encode_commit_frame` makes no model."""

    NAME: ClassVar[str] = "commit"

    frame_length: Int32 = HEADER_LENGTH
    type: UInt16 = TYPE_COMMIT
    term_offset: Int32 = 0
    session_id: Int32 = 0
    stream_id: Int32 = LOG_STREAM_ID
    leadership_term_id: Int32
    position: Position


_COMMIT_BEGINNING: Final = tuple(
    field.default for name, field in CommitFrame.model_fields.items() if name not in ("leadership_term_id", "position")
)
"""What every commit frame begins with."""

_pack_commit: Final = CommitFrame.STRUCT.pack
_unpack_commit: Final = CommitFrame.STRUCT.unpack_from


def encode_commit_frame(leadership_term_id: int, position: int) -> bytes:
    """Build a `CommitFrame`, for each flush of the log link."""
    return _pack_commit(*_COMMIT_BEGINNING, leadership_term_id, position)


def decode_commit_frame(buffer: ReadableBuffer, offset: int) -> tuple[int, int]:
    """Read the leadership term id and the position of the `CommitFrame` at `offset`, all of which is there.

    Raises:
        RemoteProtocolError: something else in it is not as in every commit frame.
    """
    values = _unpack_commit(buffer, offset)
    if values[:-2] != _COMMIT_BEGINNING:
        found = build(CommitFrame, dict(zip(CommitFrame.model_fields, values, strict=True)))
        expected = CommitFrame(leadership_term_id=found.leadership_term_id, position=found.position)
        raise RemoteProtocolError(f"commit frame: {found!r} expected={expected!r}")
    return values[-2:]
