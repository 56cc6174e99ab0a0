"""What makes a recorded frame right: the same rules for repair, verify, replication and readers.

A frame at position p must say so itself: its term offset and term id follow from p, its stream id from the
recording, and its length must end inside the term. With checksums its payload and padding must have the
CRC-32 it carries. Frames of zeros, of an older recording in the same place, or of another stream are thereby
told from what was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from trimaran.service_api.wire.checksum import crc32
from trimaran.service_api.wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
    frame_crc,
    wrap_int32,
)
from trimaran.service_api.wire.frame_run import LONGEST_RUN_BYTES, MOST_FRAMES, count_valid_frames

from .descriptor import RecordingDescriptor

Buffer = bytes | bytearray | memoryview
HeaderFields = tuple[int, int, int, int, int, int, int, int, int]

PAGE_LENGTH: Final = 4096
"""What a disk writes at once: a frame that crosses a page boundary may be there in part."""

_FRAME: Final = struct.Struct("<iIiIq")
"""frame_length; version, flags and type in one number; term_offset; checksum; stream id and term id in one number."""

_DATA: Final = TYPE_DATA << 16
_PADDING: Final = TYPE_PADDING << 16
_KIND_BUT_FLAGS: Final = 0xFFFF_00FF
_KIND_BUT_KNOWN_FLAGS: Final = _KIND_BUT_FLAGS | (0xFF & ~UNFRAGMENTED) << 8
_UNIFORM_FRAMES: Final = 3
_FIRST_RUN_FRAMES: Final = 64
"""After so many frames of one length this many are looked at as a run, and 8 times as many after each run."""

_IDENTITY: Final = struct.Struct("<ii")
_IDENTITY_OFFSET: Final = 16


@dataclass(slots=True, frozen=True, kw_only=True)
class FrameRules:
    """What the frames of a recording share; `checksummed` says whether data frames carry a CRC-32."""

    initial_term_id: int
    term_length_bytes: int
    mtu_length_bytes: int
    stream_id: int
    checksummed: bool

    @classmethod
    def of(cls, descriptor: RecordingDescriptor, *, checksummed: bool | None = None) -> Self:
        """Take the rules from a descriptor; `checksummed` overrides what the catalog says."""
        return cls(
            initial_term_id=descriptor.initial_term_id,
            term_length_bytes=descriptor.term_buffer_length,
            mtu_length_bytes=descriptor.mtu_length,
            stream_id=descriptor.stream_id,
            checksummed=descriptor.checksummed if checksummed is None else checksummed,
        )

    def find_header_fault(self, fields: HeaderFields, position: int) -> str | None:
        """Say what is wrong with the header of the frame at `position`, or None. A length of zero is a fault
        too.
        """
        frame_length, version, flags, frame_type, term_offset, _, stream_id, term_id, _ = fields
        term_count, expected_offset = divmod(position, self.term_length_bytes)
        if term_offset != expected_offset:
            return f"term offset wrong: term_offset={term_offset} expected={expected_offset}"
        expected_term_id = wrap_int32(self.initial_term_id + term_count)
        if term_id != expected_term_id:
            return f"term id wrong: term_id={term_id} expected={expected_term_id}"
        if stream_id != self.stream_id:
            return f"stream id wrong: stream_id={stream_id} expected={self.stream_id}"
        if version != 0:
            return f"frame version unknown: version={version} expected=0"
        room = self.term_length_bytes - expected_offset
        if frame_type == TYPE_DATA:
            if not HEADER_LENGTH <= frame_length <= min(self.mtu_length_bytes, room):
                limit = min(self.mtu_length_bytes, room)
                return f"frame length impossible: frame_length={frame_length} expected 32 to {limit}"
            if flags & ~UNFRAGMENTED:
                return f"frame flags unknown: flags={flags:#x} expected none but 0xc0"
            return None
        if frame_type == TYPE_PADDING:
            if frame_length != room:
                return f"padding does not fill its term: frame_length={frame_length} expected={room}"
            return None
        return f"frame type unknown: type={frame_type} expected 0 or 1"

    def find_checksum_fault(self, fields: HeaderFields, buffer: Buffer, offset: int) -> str | None:
        """Say that the payload at `offset` of `buffer` is not what was checksummed, or None."""
        if not self.checksummed or fields[3] != TYPE_DATA:
            return None
        computed = frame_crc(buffer, offset, fields[0])
        if computed != fields[5]:
            return f"checksum wrong: checksum={fields[5]} expected={computed}"
        return None

    def find_fault(self, buffer: Buffer, offset: int, position: int) -> str | None:
        """Say what is wrong with the frame at `offset` of `buffer`, which should be the one at `position`, or
        None.
        """
        if len(buffer) - offset < HEADER_LENGTH:
            return f"frame header cut short: available={len(buffer) - offset} expected=32"
        fields: HeaderFields = FRAME_HEADER.unpack_from(buffer, offset)
        fault = self.find_header_fault(fields, position)
        if fault is not None or fields[3] == TYPE_PADDING:
            return fault
        if len(buffer) - offset < (fields[0] + 31) & -32:
            return f"frame cut short: frame_length={fields[0]} available={len(buffer) - offset}"
        return self.find_checksum_fault(fields, buffer, offset)

    def skip_valid_frames(self, buffer: Buffer, offset: int, position: int, end: int) -> tuple[int, int | None]:
        """Skip the right frames that lie whole within [offset, end) of `buffer`, at most to the end of their term.

        Returns the offset behind them and the offset of the last of them, None when there is none. This says the same
        as `find_fault` frame by frame, 4 times as fast, and 30 times where frames are alike (`frame_run`); whoever
        needs to know why it stopped asks `find_fault`.
        """
        view = memoryview(buffer)
        unpack, compute, checksummed, mtu = _FRAME.unpack_from, crc32, self.checksummed, self.mtu_length_bytes
        term_count, term_offset = divmod(position, self.term_length_bytes)
        shift = term_offset - offset
        identity = wrap_int32(self.initial_term_id + term_count) << 32 | self.stream_id & 0xFFFF_FFFF
        term_end = self.term_length_bytes - shift
        end = min(end, term_end, len(view))
        last: int | None = None
        length_before, uniform_count, run_limit = -1, 0, _FIRST_RUN_FRAMES
        while offset + HEADER_LENGTH <= end:
            length, kind, in_term, checksum, found_identity = unpack(view, offset)
            aligned = (length + 31) & -32
            following = offset + aligned
            if found_identity != identity or in_term != offset + shift or length < HEADER_LENGTH or following > end:
                break
            if kind & _KIND_BUT_KNOWN_FLAGS == _DATA:
                if length > mtu:
                    break
                if length != length_before:
                    length_before, uniform_count = length, 0
                elif uniform_count >= _UNIFORM_FRAMES:
                    limit = min(run_limit, LONGEST_RUN_BYTES // aligned, (end - offset) // aligned)
                    count = count_valid_frames(
                        view, offset, limit, length=aligned, term_offset=in_term, checksummed=checksummed
                    )
                    run_limit = min(8 * limit, MOST_FRAMES) if count == limit else _FIRST_RUN_FRAMES
                    if count:
                        last, offset = offset + (count - 1) * aligned, offset + count * aligned
                        continue
                    uniform_count = -_FIRST_RUN_FRAMES
                uniform_count += 1
                if checksummed and compute(view[offset + HEADER_LENGTH : following]) != checksum:
                    break
            elif kind & _KIND_BUT_FLAGS != _PADDING or offset + length != term_end:
                break
            last, offset = offset, following
        return offset, last

    def find_valid_frames(self, data: bytes, position: int) -> Iterator[int]:
        """Yield the positions in `data`, which begins at `position`, where a whole right frame begins.

        `data` must lie in one term. The search is for the 8 bytes of stream id and term id that all its
        frames share.
        """
        term_id = wrap_int32(self.initial_term_id + position // self.term_length_bytes)
        identity = _IDENTITY.pack(self.stream_id, term_id)
        found = data.find(identity)
        while found >= 0:
            offset = found - _IDENTITY_OFFSET
            if offset >= 0 and not offset % 32 and self.find_fault(data, offset, position + offset) is None:
                yield position + offset
            found = data.find(identity, found + 1)


def find_blank_page(frame: Buffer, file_offset: int, frame_length: int) -> int | None:
    """Find the file offset from which a page part of the data frame at `file_offset` is all zeros; None: there is none.

    The part with the header is none of these. Without a checksum such a frame may be whole, or torn. Source: samples
    set A README §10.
    """
    page = file_offset // PAGE_LENGTH * PAGE_LENGTH + PAGE_LENGTH
    while page < file_offset + frame_length:
        part = bytes(frame[page - file_offset : page - file_offset + PAGE_LENGTH])
        if part.count(0) == len(part):
            return page
        page += PAGE_LENGTH
    return None
