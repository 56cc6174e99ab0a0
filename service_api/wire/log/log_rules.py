"""The rules for frames of a cluster's log, and of its snapshots, beyond the rules for frames of every recording.

No checksum covers a frame's flags, its reserved value, and as much of its length as alignment rounds away. In a log
they are not free, because only a leader writes it, a whole message at a time:

- A frame has the flags of a whole message, of its first, of a middle or of its last fragment, and no others. Its
  reserved value is 0. Padding has the flags of a whole message.
- Every fragment but the last is as long as a frame may be, and leaves room for the next one in its term.
- After the end of a message a message begins, and after a fragment that is not the last one comes the next fragment.
- After the last byte of a frame there are zeros. A message that says how long it is fills its frame.

Two messages have no end. A leader that dies may leave the first fragments of a message: then the next leader's first
entry follows, in front of it at most the padding to the end of a term. And where a log ends, the rest of a message may
be about to come. A log that was purged begins with a term, so with a message; what reads from anywhere else does not
know what lies before, and takes the first frame as it is (`Before.UNKNOWN`).

A snapshot is written in the same way by one process, from position 0 to its end, so it has no such message. Its
messages may be an application's: what they say of their length is not known.

Source: Aeron `LogPublisher`, `ConsensusModuleSnapshotTaker`, `ExclusivePublication.offer`; samples set A README §2.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from ..frame import (
    FLAG_BEGIN,
    FLAG_END,
    HEADER_LENGTH,
    TYPE_PADDING,
    UNFRAGMENTED,
    FrameHeader,
    ReadableBuffer,
    align,
)
from ..sbe import MESSAGE_HEADER
from .layout import (
    LOG_SCHEMA_ID,
    LOG_SCHEMA_VERSION,
    NEW_LEADERSHIP_TERM_EVENT,
    SESSION_MESSAGE_HEADER,
    VAR_DATA_COUNTS,
)

OTHER_FLAGS: Final = 0xFF ^ UNFRAGMENTED

FIRST_ENTRY_LENGTH: Final = HEADER_LENGTH + MESSAGE_HEADER.size
"""The bytes of a frame that tell whether it holds the first entry of a leadership term."""

_TEMPLATE_ID: Final = 2
"""Where the low byte of a message's template id is."""
_TEMPLATE_AND_SCHEMA: Final = slice(2, 6)
_NEW_TERM: Final = struct.pack("<HH", NEW_LEADERSHIP_TERM_EVENT, LOG_SCHEMA_ID)
_DATA_LENGTH: Final = struct.Struct("<I")
_ZEROS: Final = tuple(bytes(-length % 32) for length in range(32))


class Before(IntEnum):
    """The kind of bytes before a frame of a log: it says which frames may follow."""

    UNKNOWN = 0
    """Nobody has looked, or it is no log."""
    MESSAGE = 1
    """The end of a message."""
    FRAGMENT = 2
    """A fragment that is not the last one of its message."""
    LOST_END = 3
    """Padding, and before it a message without an end."""


_UNKNOWN, _MESSAGE, _FRAGMENT, _LOST_END = Before
"""As plain names: looking up a member of an enum costs as much as the comparison."""


def what_follows(header: FrameHeader, before: Before) -> Before:
    """Return what lies before the frame after this one."""
    if header.type != TYPE_PADDING:
        return _MESSAGE if header.flags & FLAG_END else _FRAGMENT
    return _LOST_END if before is _FRAGMENT else before


def find_flags_fault(header: FrameHeader, room: int, term_offset: int, mtu_length_bytes: int) -> str | None:
    """Return the fault of a header in a log whose other fields are valid; `room` is what is left of the term."""
    length, flags = header.frame_length, header.flags
    if flags & OTHER_FLAGS:
        return f"flags of no message of a log: flags={flags:#04x} expected 0xc0, 0x80, 0x00 or 0x40"
    if header.reserved_value != 0:
        return f"reserved value in a log: reserved_value={header.reserved_value} expected=0"
    if flags == UNFRAGMENTED:
        return None
    if header.type == TYPE_PADDING:
        return f"flags of no padding: flags={flags:#04x} expected=0xc0"
    if not flags & FLAG_END:
        if length != mtu_length_bytes:
            return f"fragment before another is too short: frame_length={length} expected={mtu_length_bytes}"
        if header.aligned_length >= room:
            return f"fragment without room for the next one: frame_length={length} term_rest={room}"
    elif length == HEADER_LENGTH:
        return f"last fragment of a message is empty: frame_length={length}"
    if term_offset == 0 and not flags & FLAG_BEGIN:
        return f"message does not begin in its term: flags={flags:#04x} expected 0xc0 or 0x80"
    return None


def find_order_fault(
    header: FrameHeader, before: Before, room: int, buffer: ReadableBuffer, offset: int, end: int, *, may_lose_end: bool
) -> str | None:
    """Return why the frame at `offset` of `buffer`, whose header is valid, may not follow what lies before it.

    Only the bytes before `end` have arrived: where they do not say which message the frame holds, nothing is said.
    `may_lose_end` says that the first entry of a term may follow a message without an end.
    """
    if before is _UNKNOWN:
        return None
    if header.type == TYPE_PADDING:
        if before is _FRAGMENT and header.aligned_length < room:
            return f"padding inside a message: frame_length={header.frame_length} expected={room}"
        return None
    if before is _MESSAGE:
        return None if header.flags & FLAG_BEGIN else f"fragment without a beginning: flags={header.flags:#04x}"
    if not header.flags & FLAG_BEGIN:
        return None if before is _FRAGMENT else f"fragment of a message of another term: flags={header.flags:#04x}"
    begin = offset + HEADER_LENGTH
    if may_lose_end:
        if end - offset < min(FIRST_ENTRY_LENGTH, header.aligned_length):
            return None
        if bytes(buffer[begin : begin + MESSAGE_HEADER.size])[_TEMPLATE_AND_SCHEMA] == _NEW_TERM:
            return None
    return f"message begins before the end of the one before it: flags={header.flags:#04x}"


def find_end_fault(frame_length: int, flags: int, body: ReadableBuffer) -> str | None:
    """Return why a data frame of a log or snapshot does not end where it says; arguments as of `find_length_fault`."""
    if bytes(body[frame_length - HEADER_LENGTH :]) != _ZEROS[frame_length & 31]:
        return f"bytes after the end of the frame: frame_length={frame_length}"
    return None


def find_length_fault(frame_length: int, flags: int, body: ReadableBuffer) -> str | None:
    """Return why a data frame of a log has another length than what it holds.

    `body` is the frame after its header, with the zeros that align it. A message that would take more or fewer of
    these is no fault of the frame: who decodes it says that it cannot.
    """
    fault = find_end_fault(frame_length, flags, body)
    length = frame_length - HEADER_LENGTH
    if fault is not None:
        return fault
    if flags != UNFRAGMENTED or length < MESSAGE_HEADER.size:
        return None
    block_length, template_id, schema_id, version = MESSAGE_HEADER.unpack_from(body)
    count = VAR_DATA_COUNTS.get(template_id)
    if count is None or schema_id != LOG_SCHEMA_ID:
        return None
    expected = MESSAGE_HEADER.size + block_length
    for _ in range(count):
        if expected + _DATA_LENGTH.size > len(body):
            return None
        expected += _DATA_LENGTH.size + _DATA_LENGTH.unpack_from(body, expected)[0]
    if align(HEADER_LENGTH + expected) != HEADER_LENGTH + len(body) or length == expected:
        return None
    if length > expected and (template_id == SESSION_MESSAGE_HEADER or version > LOG_SCHEMA_VERSION):
        return None
    return (
        f"message does not fill its frame: frame_length={frame_length} template_id={template_id} "
        f"expected={HEADER_LENGTH + expected}"
    )


def is_uniform_by_length(frame_length: int, body: ReadableBuffer) -> bool:
    """Return whether a whole message fits its frame, and with it any of its length, block length and template id."""
    if body[_TEMPLATE_ID] == SESSION_MESSAGE_HEADER:
        return True
    return VAR_DATA_COUNTS.get(body[_TEMPLATE_ID]) == 0 and find_length_fault(frame_length, UNFRAGMENTED, body) is None
