"""The Aeron data frame: one layout for the link, the log in memory and the segment files.

A frame is a 32-byte little-endian header and a payload, padded with zeros to a multiple of 32. A position
is the byte offset of a frame in its stream, so it is always a multiple of 32, and the header of a frame at
position p holds term_offset = p mod term_length and term_id = initial_term_id + p div term_length (32-bit
wrap-around).

    offset size field
    0      4    frame_length    header + payload, not aligned; 0 means nothing was written from here on
    4      1    version         always 0
    5      1    flags           0x80 first, 0x40 last frame of a message; other bits are the application's
    6      2    type            0 padding, 1 data, 3 status, 5 setup, 81 commit
    8      4    term_offset
    12     4    session_id      of a recorded data frame: its checksum, where checksums are on
    16     4    stream_id
    20     4    term_id
    24     8    reserved_value

Code that reads or writes many frames takes several fields as one number, or one field of many frames as a column.
`HeaderField` names those numbers; `FrameLayout` compiles the fields that a caller needs into a `struct.Struct`.

Invariant: a message is never split over two terms; where it does not fit, a padding frame fills the term. Padding may
lie elsewhere, too: an Aeron application that gives a claim up leaves it in the middle of a term.
`link_frames` has the frames that exist on links only, never in a recording.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from ..errors import LocalProtocolError
from .checksum import ChecksumKind

ReadableBuffer = bytes | bytearray | memoryview
"""What every decoder reads from: anything `struct` can unpack, sliced without surprises."""

HEADER_LENGTH: Final = 32
FRAME_ALIGNMENT: Final = 32

FLAG_BEGIN: Final = 0x80
FLAG_END: Final = 0x40
UNFRAGMENTED: Final = 0xC0

TYPE_PADDING: Final = 0
TYPE_DATA: Final = 1
TYPE_STATUS: Final = 3
TYPE_SETUP: Final = 5
TYPE_COMMIT: Final = 81
"""Ours: a number that Aeron gives to no frame."""
RECORDED_TYPES: Final = frozenset((TYPE_PADDING, TYPE_DATA))
"""What a log or another recording holds."""
CONTROL_TYPES: Final = frozenset((TYPE_DATA, TYPE_STATUS, TYPE_SETUP))
"""What a connection carries besides recorded frames: messages, positions, and what streams follow."""

MAX_MESSAGE_LENGTH: Final = 16 << 20
"""The longest message, assembled, in bytes. Source: Aeron `FrameDescriptor.MAX_MESSAGE_LENGTH`."""

FRAME_HEADER: Final = struct.Struct("<iBBHiiiiq")
"""frame_length, version, flags, type, term_offset, session_id, stream_id, term_id, reserved_value."""

UNFRAGMENTED_DATA: Final = TYPE_DATA << 16 | UNFRAGMENTED << 8
"""The `KIND` of a data frame that holds a whole message."""

_CHECKSUM: Final = struct.Struct("<i")
_UINT32_MASK: Final = 0xFFFF_FFFF
_INT32_SIGN: Final = 0x8000_0000


class FrameHeader(NamedTuple):
    """The nine fields of a frame header, in wire order."""

    frame_length: int
    version: int
    flags: int
    type: int
    term_offset: int
    session_id: int
    stream_id: int
    term_id: int
    reserved_value: int

    @property
    def aligned_length(self) -> int:
        """How many bytes the frame takes, with the zeros that align it."""
        return (self.frame_length + 31) & -32


_new_header: Final = tuple.__new__
"""Makes a header of nine values in half the time that `FrameHeader._make` takes."""


class FrameField:
    """A number in a frame, or several as one: its offset in bytes and its `struct` character."""

    __slots__ = ("code", "long", "offset", "word")

    def __init__(self, offset: int, code: str) -> None:
        self.offset: Final = offset
        self.code: Final = code
        self.word: Final = offset >> 2
        """Its index where the frame is seen as 4-byte words."""
        self.long: Final = offset >> 3
        """The index of the 8-byte word that it is, or lies in."""

    def __repr__(self) -> str:
        return f"<FrameField offset={self.offset} code={self.code!r}>"


class HeaderField:
    """The numbers of a frame header. A namespace, and no `Enum`, which looks up a member in 0.3 us in Python 3.11."""

    FRAME_LENGTH: Final = FrameField(0, "i")
    KIND: Final = FrameField(4, "I")
    """version, flags and type; of an ordinary message `UNFRAGMENTED_DATA`."""
    TERM_OFFSET: Final = FrameField(8, "i")
    CHECKSUM: Final = FrameField(12, "I")
    """The session id; of a recorded data frame its checksum, where checksums are on."""
    STREAM_ID: Final = FrameField(16, "i")
    TERM_ID: Final = FrameField(20, "i")
    RESERVED_VALUE: Final = FrameField(24, "q")
    LENGTH_AND_KIND: Final = FrameField(0, "Q")
    TERM_OFFSET_AND_CHECKSUM: Final = FrameField(8, "q")
    STREAM_AND_TERM_ID: Final = FrameField(16, "q")


class FrameLayout:
    """The fields of a frame that a caller reads or writes, compiled to `struct.Struct`; other bytes are skipped.

    `fields` are in the order of their offsets. With `body`, an offset, the bytes of the frame from there on are one
    more field. `base` is the offset in the frame at which the struct begins.
    """

    __slots__ = ("fields", "head", "rows")

    def __init__(self, *fields: FrameField, body: int | None = None, base: int = 0) -> None:
        parts, end = ["<"], base
        for field in fields:
            parts += f"{field.offset - end}x", field.code
            end = field.offset + struct.calcsize("<" + field.code)
        head = "".join(parts)
        rest = f"{head}{{}}x" if body is None else f"{head}{body - end}x{{}}s"
        rest_offset = end if body is None else body
        self.fields: Final = fields
        self.head: Final = struct.Struct(head)
        """The fields alone."""
        self.rows: Final = lru_cache(maxsize=256)(lambda length: struct.Struct(rest.format(length - rest_offset)))
        """Returns the struct of a whole frame of an aligned length, for `iter_unpack`. Callers see few lengths: those
        used last are kept."""


def align(length: int) -> int:
    """Round `length` up to a multiple of 32."""
    return (length + 31) & -32


def iter_headers(chunk: ReadableBuffer) -> Iterator[tuple[int, FrameHeader]]:
    """Yield the offset and the header of each whole frame of `chunk`, which begins with a frame.

    Ends where fewer bytes are left than the frame takes, or where none begins: at a length below 32. The frames are
    not checked otherwise; `FrameRules` does that.
    """
    offset, length = 0, len(chunk)
    while length - offset >= HEADER_LENGTH:
        header = unpack_header(chunk, offset)
        end = offset + header.aligned_length
        if header.frame_length < HEADER_LENGTH or end > length:
            return
        yield offset, header
        offset = end


def wrap_int32(value: int) -> int:
    """Bring `value` into the range of a signed 32-bit integer, as Java arithmetic does."""
    value &= _UINT32_MASK
    return value - ((value & _INT32_SIGN) << 1)


def unpack_header(buffer: ReadableBuffer, offset: int = 0) -> FrameHeader:
    """Read the frame header at `offset`, of which the caller knows that all 32 bytes are there."""
    return _new_header(FrameHeader, FRAME_HEADER.unpack_from(buffer, offset))


def frame_crc(buffer: ReadableBuffer, offset: int, frame_length: int, kind: ChecksumKind = ChecksumKind.CRC32) -> int:
    """Compute the checksum of the data frame at `offset` as a signed 32-bit integer.

    A CRC over the payload and its zero padding, without the header; an empty payload gives 0. The caller
    vouches that the aligned end of the frame lies inside `buffer` (hot path: not checked here).
    Source: Aeron `RecordingWriter.computeChecksum`.
    """
    crc = kind.compute(buffer[offset + 32 : offset + ((frame_length + 31) & -32)])
    return crc - ((crc & _INT32_SIGN) << 1)


def payload_checksum(payload: ReadableBuffer, kind: ChecksumKind = ChecksumKind.CRC32) -> int:
    """Compute what `frame_crc` is of the data frame that holds this payload, before there is one."""
    crc = kind.compute(bytes(-len(payload) & (FRAME_ALIGNMENT - 1)), kind.compute(payload))
    return crc - ((crc & _INT32_SIGN) << 1)


def stamp_checksums(frames: bytearray | memoryview, kind: ChecksumKind = ChecksumKind.CRC32) -> int:
    """Write into the header of each data frame its checksum; return how many frames there are, all of them whole."""
    count = 0
    for offset, header in iter_headers(frames):
        if header.type != TYPE_PADDING:
            _CHECKSUM.pack_into(
                frames, offset + HeaderField.CHECKSUM.offset, frame_crc(frames, offset, header.frame_length, kind)
            )
        count += 1
    return count


def iter_whole_messages(frames: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each message that lies in one data frame of whole frames: the offset where its frame ends, and its bytes.

    What a payload holds is never taken for a message: only where a frame begins does one begin.
    """
    for offset, header in iter_headers(frames):
        if header.type == TYPE_DATA and header.flags & UNFRAGMENTED == UNFRAGMENTED:
            yield offset + header.aligned_length, frames[offset + HEADER_LENGTH : offset + header.frame_length]


def encode_frame(
    payload: ReadableBuffer,
    *,
    stream_id: int,
    session_id: int = 0,
    term_id: int = 0,
    term_offset: int = 0,
    flags: int = UNFRAGMENTED,
) -> bytes:
    """Build one data frame, zero-padded to a multiple of 32."""
    frame_length = HEADER_LENGTH + len(payload)
    header = FRAME_HEADER.pack(frame_length, 0, flags, TYPE_DATA, term_offset, session_id, stream_id, term_id, 0)
    return b"".join((header, payload, bytes(-frame_length & 31)))


def encode_padding(
    length: int, *, stream_id: int, session_id: int = 0, term_id: int = 0, term_offset: int = 0
) -> bytes:
    """Build a padding frame of `length` bytes (a multiple of 32, at least 32): a header and zeros.

    Raises:
        LocalProtocolError: it is another length.
    """
    if length < HEADER_LENGTH or length % FRAME_ALIGNMENT:
        raise LocalProtocolError(f"invalid padding frame: length={length} expected a multiple of 32")
    header = FRAME_HEADER.pack(length, 0, UNFRAGMENTED, TYPE_PADDING, term_offset, session_id, stream_id, term_id, 0)
    return header + bytes(length - HEADER_LENGTH)


def fragment(message: ReadableBuffer, mtu_length: int) -> list[tuple[int, ReadableBuffer]]:
    """Cut a message into the (flags, payload) of its frames, in order.

    Every frame but the last is exactly `mtu_length` bytes long with its header; the last holds the rest.
    """
    _check_message(len(message), mtu_length)
    room = mtu_length - HEADER_LENGTH
    if len(message) <= room:
        return [(UNFRAGMENTED, message)]
    pieces = [(0, message[start : start + room]) for start in range(0, len(message), room)]
    pieces[0] = (FLAG_BEGIN, pieces[0][1])
    pieces[-1] = (FLAG_END, pieces[-1][1])
    return pieces


def framed_length(message_length: int, mtu_length: int) -> int:
    """Compute how many bytes the aligned frames of a message take."""
    _check_message(message_length, mtu_length)
    whole, rest = divmod(message_length, mtu_length - HEADER_LENGTH)
    if whole and not rest:
        return whole * align(mtu_length)
    return whole * align(mtu_length) + align(HEADER_LENGTH + rest)


def encode_message(
    message: ReadableBuffer,
    *,
    stream_id: int,
    mtu_length: int,
    session_id: int = 0,
    term_id: int = 0,
    term_offset: int = 0,
    checksum_kind: ChecksumKind | None = None,
) -> bytes:
    """Build the adjacent frames of one message, the first of them at `term_offset`.

    With a `checksum_kind` each frame carries that checksum of its own, in the place of the session id.
    """
    if len(message) <= mtu_length - HEADER_LENGTH:
        _check_message(len(message), mtu_length)
        if checksum_kind is not None:
            session_id = payload_checksum(message, checksum_kind)
        return encode_frame(
            message, stream_id=stream_id, session_id=session_id, term_id=term_id, term_offset=term_offset
        )
    frames = []
    for flags, payload in fragment(memoryview(message), mtu_length):
        frame = encode_frame(
            payload,
            stream_id=stream_id,
            session_id=session_id if checksum_kind is None else payload_checksum(payload, checksum_kind),
            term_id=term_id,
            term_offset=term_offset,
            flags=flags,
        )
        frames.append(frame)
        term_offset += len(frame)
    return b"".join(frames)


def position_of(term_id: int, term_offset: int, *, initial_term_id: int, term_length_bytes: int) -> int:
    """Compute the stream position of a term offset; negative when the term lies before the initial one."""
    return wrap_int32(term_id - initial_term_id) * term_length_bytes + term_offset


def term_of(position: int, *, initial_term_id: int, term_length_bytes: int) -> tuple[int, int]:
    """Compute the (term_id, term_offset) of a stream position: the inverse of `position_of`."""
    term_id = initial_term_id + position // term_length_bytes
    if term_id >= _INT32_SIGN:
        term_id = wrap_int32(term_id)
    return term_id, position % term_length_bytes


def _check_message(message_length: int, mtu_length: int) -> None:
    if message_length > MAX_MESSAGE_LENGTH:
        raise LocalProtocolError(f"message too long: length={message_length} limit={MAX_MESSAGE_LENGTH}")
    if mtu_length <= HEADER_LENGTH or mtu_length % FRAME_ALIGNMENT:
        raise LocalProtocolError(f"invalid mtu: mtu_length={mtu_length} expected a multiple of 32 above 32")
