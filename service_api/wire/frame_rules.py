"""What makes a frame of a recording valid: one set of rules for the follower's gate, repair, replication and readers.

A frame at position p must say so itself: its term offset and term id follow from p, its stream id from the
recording, and its length must end inside the term. With checksums its payload and padding must have the
CRC that it carries. Frames of zeros, of an older recording in the same place, or of another stream are thereby
told from what was written.

What an application may choose counts for nothing here. It sets the flags of a frame that it claims, so any bits of them
are valid; only the two that begin and end a message mean something. It gives a claim up or appends padding, so padding
may lie anywhere in a term and have any length up to the term's end. Source: Aeron `BufferClaim.flags`,
`BufferClaim.abort`, `ExclusivePublication.appendPadding`, `TermUnblocker`. So in a recording of an application a
flipped bit of the flags or of the reserved value is not seen, nor without checksums one of a payload.

A cluster's log is written by leaders only, and a snapshot by a member: there these fields are not free, and
`log.log_rules` says what they hold, and which frame may follow which. What lies before a frame is handed from each call
to the next.

A bit that turns a data frame into padding would take a message away; with checksums it is seen: no archive writes
anything but the header of padding, so padding whose bytes have the checksum that its header carries was a data frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .checksum import ChecksumKind
from .frame import (
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    RECORDED_TYPES,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
    UNFRAGMENTED_DATA,
    FrameHeader,
    FrameLayout,
    HeaderField,
    ReadableBuffer,
    frame_crc,
    unpack_header,
    wrap_int32,
)
from .frame_run import FrameRun
from .log.layout import SESSION_MESSAGE_HEADER
from .log.log_rules import (
    Before,
    find_end_fault,
    find_flags_fault,
    find_length_fault,
    find_order_fault,
    is_uniform_by_length,
    what_follows,
)

_DATA: Final = TYPE_DATA << 16
_PADDING: Final = TYPE_PADDING << 16
_KIND_BUT_FLAGS: Final = 0xFFFF_00FF

_HEADER: Final = FrameLayout(
    HeaderField.FRAME_LENGTH,
    HeaderField.KIND,
    HeaderField.TERM_OFFSET,
    HeaderField.CHECKSUM,
    HeaderField.STREAM_AND_TERM_ID,
    HeaderField.RESERVED_VALUE,
)
_FRAME: Final = FrameLayout(*_HEADER.fields, body=HEADER_LENGTH)

_PROBE_AFTER_FRAMES: Final = 16
"""So many frames of one length are checked one by one, where they are no run, before they are tried as one again."""

_IDENTITY: Final = struct.Struct("<ii")

_IDENTITY_NUMBER: Final = struct.Struct("<q")
_UNKNOWN, _MESSAGE = Before.UNKNOWN, Before.MESSAGE

_ZEROS: Final = tuple(bytes(-length % FRAME_ALIGNMENT) for length in range(FRAME_ALIGNMENT))
"""The end of a frame, by its length modulo 32."""

_TEMPLATE_ID: Final = 2
"""Where in the body of a frame that holds a whole message of a log the low byte of its template id is."""

_MESSAGE_OFFSET: Final = HEADER_LENGTH + 8
"""Where in a frame the block of its message begins."""

_Header = tuple[int, int, int, int, int, int]


@lru_cache(maxsize=16)
def _identity_number(stream_id: int, term_id: int) -> int:
    """Return the 8 bytes of `FrameRules.identity` as a number; a term's are asked for with each piece of it."""
    number: int = _IDENTITY_NUMBER.unpack(_IDENTITY.pack(stream_id, wrap_int32(term_id)))[0]
    return number


@dataclass(slots=True, frozen=True, kw_only=True)
class FrameRules:
    """What the frames of a recording share; `checksummed` says whether data frames carry a checksum, of this kind."""

    initial_term_id: int
    term_length_bytes: int
    mtu_length_bytes: int
    stream_id: int
    checksummed: bool
    checksum_kind: ChecksumKind = ChecksumKind.CRC32
    is_cluster_log: bool = False
    """True where this is a cluster's log, so that `log.log_rules` hold, too."""
    is_snapshot: bool = False
    """True for a snapshot: the same rules, but its messages may be of an application, and none lacks its end."""

    @property
    def is_cluster_written(self) -> bool:
        """Return whether no application chooses flags, order and reserved values here."""
        return self.is_cluster_log or self.is_snapshot

    def identity(self, term_count: int) -> bytes:
        """Return the stream id and term id that all frames of a term have; `term_count` is how many are before it."""
        return _IDENTITY.pack(self.stream_id, wrap_int32(self.initial_term_id + term_count))

    def find_header_fault(self, header: FrameHeader, position: int) -> str | None:
        """Return the fault of the header of the frame at `position`; None if it is valid. Length 0 is a fault, too."""
        frame_length, version, _, frame_type, term_offset, _, stream_id, term_id, _ = header
        term_count, expected_offset = divmod(position, self.term_length_bytes)
        if term_offset != expected_offset:
            return f"wrong term offset: term_offset={term_offset} expected={expected_offset}"
        expected_term_id = wrap_int32(self.initial_term_id + term_count)
        if term_id != expected_term_id:
            return f"wrong term id: term_id={term_id} expected={expected_term_id}"
        if stream_id != self.stream_id:
            return f"wrong stream id: stream_id={stream_id} expected={self.stream_id}"
        if version != 0:
            return f"unknown frame version: version={version} expected=0"
        room = self.term_length_bytes - expected_offset
        if frame_type == TYPE_DATA:
            if not HEADER_LENGTH <= frame_length <= min(self.mtu_length_bytes, room):
                limit = min(self.mtu_length_bytes, room)
                return f"invalid frame length: frame_length={frame_length} expected 32 to {limit}"
        elif frame_type == TYPE_PADDING:
            if not HEADER_LENGTH <= frame_length <= room:
                return f"invalid padding length: frame_length={frame_length} expected 32 to {room}"
        else:
            return f"unknown frame type: type={frame_type} expected 0 or 1"
        return find_flags_fault(header, room, term_offset, self.mtu_length_bytes) if self.is_cluster_written else None

    def is_unknown(self, header: FrameHeader, position: int) -> bool:
        """Return whether only the type of the frame at `position` is at fault, which an application may have chosen.

        Not in a log or a snapshot, which no application writes.
        """
        if header.type in RECORDED_TYPES or self.is_cluster_written:
            return False
        return self.find_header_fault(header._replace(type=TYPE_DATA), position) is None

    def needs_body(self, header: FrameHeader) -> bool:
        """Return whether the bytes after a header are needed to judge the frame, whose header is valid.

        Of padding they are where it may have been a data frame: with checksums, and where it is no longer than one.
        """
        if header.type != TYPE_PADDING:
            return True
        return self.checksummed and HEADER_LENGTH < header.frame_length <= self.mtu_length_bytes

    def find_body_fault(self, header: FrameHeader, buffer: ReadableBuffer, offset: int) -> str | None:
        """Return the fault of what follows the header of the frame at `offset` of `buffer`; None if it is valid.

        The frame must lie whole in the buffer if it `needs_body`.
        """
        fault = self.find_checksum_fault(header, buffer, offset)
        if fault is None and self.is_cluster_written and header.type != TYPE_PADDING:
            body = memoryview(buffer)[offset + HEADER_LENGTH : offset + header.aligned_length]
            fault = self._find_length_fault(header.frame_length, header.flags, body)
        return fault

    def _find_length_fault(self, frame_length: int, flags: int, body: ReadableBuffer) -> str | None:
        return (find_length_fault if self.is_cluster_log else find_end_fault)(frame_length, flags, body)

    def _is_length_valid(self, frame_length: int, body: bytes) -> bool:
        """Return whether `_find_length_fault` has no fault of a whole message: quicker for a session's message."""
        if not body.endswith(_ZEROS[frame_length & 31]):
            return False
        if not self.is_cluster_log:
            return True
        block_length, block_high, template_id, template_high = body[:4]
        is_message = template_id == SESSION_MESSAGE_HEADER and not (block_high or template_high)
        if is_message and frame_length >= _MESSAGE_OFFSET + block_length:
            return True
        return find_length_fault(frame_length, UNFRAGMENTED, body) is None

    def find_checksum_fault(self, header: FrameHeader, buffer: ReadableBuffer, offset: int) -> str | None:
        """Return the fault of the checksum of the frame at `offset` of `buffer`; None if it is valid.

        The frame must lie whole in the buffer if it `needs_body`.
        """
        if not self.checksummed or not self.needs_body(header):
            return None
        computed = frame_crc(buffer, offset, header.frame_length, self.checksum_kind)
        if header.type == TYPE_PADDING:
            if computed != header.session_id:
                return None
            return f"data frame turned into padding: its bytes have the checksum in its header: checksum={computed}"
        if computed != header.session_id:
            return f"wrong checksum: checksum={header.session_id} expected={computed}"
        return None

    def find_order_fault(
        self,
        header: FrameHeader,
        before: Before,
        buffer: ReadableBuffer,
        offset: int,
        position: int,
        end: int | None = None,
    ) -> str | None:
        """Return why the frame at `offset` of `buffer`, the one at `position`, may not follow what lies `before` it.

        None if it may, or if the bytes up to `end`, by default all of the buffer, do not say so yet.
        """
        if before is _UNKNOWN:
            return None
        room = self.term_length_bytes - position % self.term_length_bytes
        end = len(buffer) if end is None else end
        return find_order_fault(header, before, room, buffer, offset, end, may_lose_end=not self.is_snapshot)

    def find_fault(
        self, buffer: ReadableBuffer, offset: int, position: int, before: Before = Before.UNKNOWN
    ) -> str | None:
        """Return what is wrong with the frame at `offset` of `buffer`, which should be the one at `position`.

        Returns None if it is valid; a padding frame whose bytes say nothing may go on after the buffer.
        """
        available = len(buffer) - offset
        if available < HEADER_LENGTH:
            return f"incomplete frame header: available={available} expected=32"
        header = unpack_header(buffer, offset)
        fault = self.find_fault_so_far(header, buffer, offset, position, before=before)
        if fault is None and available < header.aligned_length and self.needs_body(header):
            return f"incomplete frame: frame_length={header.frame_length} available={available}"
        return fault

    def find_fault_so_far(
        self,
        header: FrameHeader,
        buffer: ReadableBuffer,
        offset: int,
        position: int,
        end: int | None = None,
        before: Before = Before.UNKNOWN,
    ) -> str | None:
        """Return what is wrong with the frame at `offset` of `buffer`, of which only a part may have arrived.

        `header` is the frame's, which should be the one at `position`; `end` is where what has arrived ends, by default
        with the buffer. Returns None for a frame that is valid, or that more bytes may make valid.
        """
        if end is None:
            end = len(buffer)
        fault = self.find_header_fault(header, position)
        if fault is None:
            fault = self.find_order_fault(header, before, buffer, offset, position, end)
        if fault is None and offset + header.aligned_length <= end:
            return self.find_body_fault(header, buffer, offset)
        return fault

    def find_before(self, data: bytes, position: int) -> tuple[Before, int | None]:
        """Find what lies before the frame at `position` of a log or snapshot, and where the frame before it begins.

        `data` is what is recorded before `position`, of one term, as long as the longest data frame, or as the term is
        up to there. A payload may hold what looks like a frame and ends where it does: where two disagree, nobody knows
        which of them is true. Nor does padding that ends with its term say anything.
        """
        found: tuple[Before, int | None] = (_UNKNOWN, None)
        if not self.is_cluster_written:
            return found
        begin = position - len(data)
        for offset in self._find_identities(data, begin):
            header = unpack_header(data, offset)
            if offset + header.aligned_length != len(data) or self.find_fault(data, offset, begin + offset) is not None:
                continue
            if header.type == TYPE_PADDING and position % self.term_length_bytes == 0:
                continue
            before = what_follows(header, _MESSAGE)
            if found[1] is not None and found[0] is not before:
                return _UNKNOWN, None
            found = before, begin + offset
        return found

    def skip_valid_frames(
        self, buffer: ReadableBuffer, offset: int, position: int, end: int, before: Before = Before.UNKNOWN
    ) -> tuple[int, int | None, Before]:
        """Skip the valid frames that lie whole within [offset, end) of `buffer`, at most to the end of their term.

        The first of them should be the frame at `position`, with `before` before it. Returns the offset after them, the
        offset of the last of them, None when there is none, and what lies before the next frame. This says the same as
        `find_fault` frame by frame, 4 times as fast, and 30 times where frames are uniform (`frame_run`); callers that
        need to know why it stopped ask `find_fault`.
        """
        view = memoryview(buffer)
        unpack, compute = _HEADER.head.unpack_from, self.checksum_kind.compute
        checksummed, mtu, is_log = self.checksummed, self.mtu_length_bytes, self.is_cluster_written
        term_count, term_offset = divmod(position, self.term_length_bytes)
        identity = _identity_number(self.stream_id, self.initial_term_id + term_count)
        shift = term_offset - offset
        term_end = self.term_length_bytes - shift
        end = min(end, term_end, len(view))
        last: int | None = None
        aligned_before = -1
        while offset + HEADER_LENGTH <= end:
            header: _Header = unpack(view, offset)
            length, kind, in_term, checksum, found_identity, reserved_value = header
            aligned = (length + 31) & -32
            following = offset + aligned
            if following > end or length < HEADER_LENGTH or in_term != offset + shift or found_identity != identity:
                break
            if is_log and (
                kind != UNFRAGMENTED_DATA or reserved_value or before > _MESSAGE or aligned == HEADER_LENGTH
            ):
                # Not one whole message after another: few frames of a log.
                if self.find_fault(view, offset, position - term_offset + in_term, before) is not None:
                    break
                before, aligned_before = what_follows(unpack_header(view, offset), before), -1
            elif kind & _KIND_BUT_FLAGS == _DATA:
                if length > mtu:
                    break
                if aligned == aligned_before or (last is None and following < end):
                    following = self._skip_frames_of_one_length(view, offset, end, header)
                    if following == offset:
                        break
                else:
                    body = view[offset + HEADER_LENGTH : following].tobytes()
                    if (checksummed and compute(body) != checksum) or (
                        is_log and not self._is_length_valid(length, body)
                    ):
                        break
                aligned_before = aligned
                if is_log:
                    before = _MESSAGE
            elif kind & _KIND_BUT_FLAGS != _PADDING or (
                checksummed
                and HEADER_LENGTH < length <= mtu
                and compute(view[offset + HEADER_LENGTH : following]) == checksum
            ):
                break
            last, offset = following - aligned, following
        return offset, last, before

    def _skip_frames_of_one_length(self, view: memoryview, offset: int, end: int, header: _Header) -> int:
        """Skip the valid data frames at `offset` that have the same kind and aligned length as the first of them.

        `header` is the first one's, of which all but the checksum has been checked; all must lie within [offset, end)
        and in one term, and in a log or snapshot each is a whole message. Returns the offset after them: after a whole
        run, or after some frames checked one by one, with perhaps more of them following.
        """
        length, kind, term_offset, _, identity, _ = header
        length = (length + 31) & -32
        count = (end - offset) // length
        is_log, is_ruled = self.is_cluster_log, self.is_cluster_written
        run = None
        if (
            not is_log
            or view[offset + HEADER_LENGTH + _TEMPLATE_ID] == SESSION_MESSAGE_HEADER
            or is_uniform_by_length(header[0], view[offset + HEADER_LENGTH : offset + length])
        ):
            run = FrameRun.probe(view, offset, length, count)
        if run is not None:
            valid_count = run.count_valid(
                term_offset=term_offset,
                checksummed=self.checksummed,
                kind=self.checksum_kind,
                is_log=is_log,
                is_snapshot=self.is_snapshot,
            )
            if valid_count:
                return offset + valid_count * length
        compute, checksummed, mtu = self.checksum_kind.compute, self.checksummed, self.mtu_length_bytes
        frames = view[offset : offset + min(count, _PROBE_AFTER_FRAMES) * length]
        for other_length, other_kind, in_term, checksum, other_identity, reserved_value, body in _FRAME.rows(
            length
        ).iter_unpack(frames):
            if (
                (other_length + 31) & -32 != length
                or other_length > mtu
                or other_kind != kind
                or in_term != term_offset
                or other_identity != identity
                or (checksummed and compute(body) != checksum)
            ):
                break
            if is_ruled and (reserved_value or not self._is_length_valid(other_length, body)):
                break
            term_offset += length
            offset += length
        return offset

    def find_valid_frames(self, data: bytes, position: int) -> Iterator[int]:
        """Yield the positions in `data`, which begins at `position`, where a whole valid frame begins.

        `data` must lie in one term.
        """
        for offset in self._find_identities(data, position):
            if self.find_fault(data, offset, position + offset) is None:
                yield position + offset

    def _find_identities(self, data: bytes, position: int) -> Iterator[int]:
        """Yield where in `data`, which begins at `position`, a header may begin.

        The search is for the 8 bytes of stream id and term id that all frames of a term share.
        """
        identity = self.identity(position // self.term_length_bytes)
        found = data.find(identity)
        while found >= 0:
            offset = found - HeaderField.STREAM_ID.offset
            if offset >= 0 and not offset % FRAME_ALIGNMENT and len(data) - offset >= HEADER_LENGTH:
                yield offset
            found = data.find(identity, found + 1)
