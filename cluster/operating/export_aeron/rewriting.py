"""A log as Aeron is to read it, with every position as it was.

A request becomes the session message of its payload alone: 16 bytes less. Its frames then take 32 or 64 bytes less, or
as many as before; a padding frame *before* it takes the difference, so that it ends where it ended, and a service that
asks for the log position is told the same. A request that did not run, and what an operator had skipped, become
padding. So terms, snapshots, open sessions and timers need no change, and neither does any other entry.

Rejected: to shift what follows. The log position is in each term's first entry and each action, in recording.log, in
the snapshots, and perhaps in the state of the service, where nobody could change it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ....archive.log.log_file import LogFile
from ....service_api.types import ClusterSessionId
from ....service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    FrameHeader,
    encode_message,
    encode_padding,
    iter_headers,
    stamp_checksums,
    unpack_header,
)
from ....service_api.wire.log.messages import SessionCloseEvent, TimerEvent
from ....service_api.wire.message import MESSAGE_HEADER_LENGTH, message_header
from ....service_api.wire.request import REQUEST_HEADER, REQUEST_HEADER_LENGTH
from ....service_api.wire.sbe import MESSAGE_HEADER
from ....service_api.wire.session import SESSION_HEADER_LENGTH, SESSION_MESSAGE, SessionMessageHeader
from ...service.skipped_entries import ENTRY_SKIP_BEGIN
from .foreign_entries import (
    REQUEST_BEGIN,
    TIMER_BEGIN,
    ForeignEntry,
    is_own_timer_id,
    own_timer_text,
    read_blocks,
)
from .request_decisions import RequestDecisions, RequestOutcome

_CLOSE_BEGIN: Final = MESSAGE_HEADER.pack(*message_header(SessionCloseEvent))[:6]
_SESSION_MESSAGE_IDS: Final = MESSAGE_HEADER.pack(*SESSION_MESSAGE)[2:6]
_SESSION_MESSAGE_BEGIN: Final = MESSAGE_HEADER.pack(*SESSION_MESSAGE)


@dataclass(slots=True)
class RewriteCounts:
    """What was changed."""

    request_count: int = 0
    """Requests that are session messages now."""
    omitted_request_count: int = 0
    """Requests that did not run: padding now."""
    omitted_entry_count: int = 0
    """Skipped entries, and the entries that say so: padding now."""
    foreign: list[ForeignEntry] = field(default_factory=list)
    """What cannot be written so that Aeron comes to the same state."""


class LogRewriter:
    """Rewrites one log, from one position on."""

    def __init__(
        self, log: LogFile, skips: Mapping[int, int], decisions: RequestDecisions, *, service_count: int
    ) -> None:
        self._log = log
        self._skips = skips
        self._skipped_positions = sorted(skips)
        self._decisions = decisions
        self._service_count = service_count
        self._begins = (REQUEST_BEGIN, ENTRY_SKIP_BEGIN, _CLOSE_BEGIN, TIMER_BEGIN)
        self._open: list[bytes] = []
        """Frames of a message whose last one has not come."""
        self._open_position = 0
        self.counts = RewriteCounts()

    def blocks(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the log from `start` up to `end`, rewritten, in order; together exactly as long.

        Raises:
            CorruptionError: a frame is not valid.
            OSError: the disk refused.
        """
        for position, block in read_blocks(self._log, start, end):
            if self._open or self._needs_a_look(position, block):
                yield b"".join(self._rewrite(position, block))
            else:
                yield block
        yield self._take_open()

    def _needs_a_look(self, position: int, block: bytes) -> bool:
        if any(begin in block for begin in self._begins):
            return True
        if any(position < skipped <= position + len(block) for skipped in self._skipped_positions):
            return True
        return self._ends_inside_a_message(block)

    def _ends_inside_a_message(self, block: bytes) -> bool:
        """Whether the last message of a block goes on after it: only a message that is skipped is of interest."""
        return bool(self._skips) and not any(
            header.type == TYPE_PADDING or header.flags & FLAG_END for _, header in list(iter_headers(block))[-1:]
        )

    def _take_open(self) -> bytes:
        """Give the frames of a message that has no end as they were: no service receives it."""
        frames, self._open = b"".join(self._open), []
        return frames

    def _rewrite(self, position: int, block: bytes) -> Iterator[bytes]:
        for offset, header in iter_headers(block):
            frame = block[offset : offset + header.aligned_length]
            if header.type != TYPE_DATA or (not self._open and not header.flags & FLAG_BEGIN):
                yield self._take_open()
                yield frame
                continue
            if header.flags & FLAG_BEGIN:
                yield self._take_open()
                self._open_position = position + offset
            self._open.append(frame)
            if header.flags & FLAG_END:
                begin, frames = self._open_position, self._open
                self._open = []
                yield self._rewrite_message(begin, frames)

    def _rewrite_message(self, position: int, frames: list[bytes]) -> bytes:
        """Give the bytes that stand for a message's frames: as many."""
        raw = frames[0] if len(frames) == 1 else b"".join(frames)
        end = position + len(raw)
        encoded = b"".join(frame[HEADER_LENGTH : unpack_header(frame).frame_length] for frame in frames)
        if encoded.startswith(REQUEST_BEGIN) and len(encoded) >= REQUEST_HEADER_LENGTH:
            return self._rewrite_request(position, end, frames[0], encoded)
        if encoded.startswith(ENTRY_SKIP_BEGIN):
            self.counts.omitted_entry_count += 1
            return self._padding(len(raw), frames[0])
        if end in self._skips:
            return self._rewrite_skipped(position, raw, encoded)
        if encoded.startswith(_CLOSE_BEGIN):
            self._decisions.on_session_close(SessionCloseEvent.decode(encoded).cluster_session_id)
        elif encoded.startswith(TIMER_BEGIN):
            correlation_id = TimerEvent.decode(encoded).correlation_id
            if is_own_timer_id(correlation_id, self._service_count):
                self.counts.foreign.append(ForeignEntry(position, own_timer_text(correlation_id)))
        return raw

    def _rewrite_request(self, position: int, end: int, first_frame: bytes, encoded: bytes) -> bytes:
        length = end - position
        *_, session_id, _, sequence, acknowledged = REQUEST_HEADER.unpack_from(encoded)
        is_skipped = end in self._skips
        outcome = self._decisions.on_request(
            ClusterSessionId(session_id), sequence, acknowledged, is_skipped=is_skipped
        )
        if outcome is RequestOutcome.UNKNOWN:
            what = (
                f"whether request_sequence={sequence} of cluster_session_id={session_id} ran depends on the lengths of "
                "replies that its client had not acknowledged"
            )
            self.counts.foreign.append(ForeignEntry(position, what))
        if outcome is RequestOutcome.NOT_RUN:
            self.counts.omitted_request_count += 1
            return self._padding(length, first_frame)
        self.counts.request_count += 1
        message = b"".join(
            (
                _SESSION_MESSAGE_BEGIN,
                encoded[MESSAGE_HEADER_LENGTH:SESSION_HEADER_LENGTH],
                encoded[REQUEST_HEADER_LENGTH:],
            )
        )
        return self._message_at_end(length, first_frame, message)

    def _rewrite_skipped(self, position: int, raw: bytes, encoded: bytes) -> bytes:
        if encoded[2:6] == _SESSION_MESSAGE_IDS and SessionMessageHeader.decode(encoded).cluster_session_id > 0:
            self.counts.omitted_entry_count += 1
            return self._padding(len(raw), raw)
        self.counts.foreign.append(
            ForeignEntry(position, "a skipped entry that is no message of a client: Aeron's service would be given it")
        )
        return raw

    def _message_at_end(self, length: int, first_frame: bytes, message: bytes) -> bytes:
        """Lay out a message so that it ends where `length` bytes from the first frame's beginning on end."""
        header = unpack_header(first_frame)
        descriptor = self._log.descriptor
        frames = bytearray(self._frames_of(message, header, header.term_offset))
        padding_length = length - len(frames)
        if padding_length:
            frames = bytearray(self._frames_of(message, header, header.term_offset + padding_length))
        if descriptor.checksummed:
            stamp_checksums(frames, descriptor.checksum_kind)
        return (self._padding(padding_length, first_frame) if padding_length else b"") + bytes(frames)

    def _frames_of(self, message: bytes, header: FrameHeader, term_offset: int) -> bytes:
        return encode_message(
            message,
            stream_id=header.stream_id,
            mtu_length=self._log.descriptor.mtu_length,
            session_id=header.session_id,
            term_id=header.term_id,
            term_offset=term_offset,
        )

    def _padding(self, length: int, first_frame: bytes) -> bytes:
        header = unpack_header(first_frame)
        return encode_padding(
            length,
            stream_id=header.stream_id,
            session_id=self._log.descriptor.session_id,
            term_id=header.term_id,
            term_offset=header.term_offset,
        )
