"""A follower's gate to the log: bytes of the live log or of a catch-up replay in, whole valid frames out.

The gate takes a frame only if `FrameRules` passes it: the rules that this member's repair and readers apply to what it
has recorded. So what it acknowledges is what the leader wrote, and what it will find valid when it starts again.

Frames say where they belong, so two streams of the same log merge by one rule. A frame that begins where this log ends
is taken; one below is a duplicate and dropped; one above means a gap and is an error. Between the frames the leader
says how far the log is committed, in frames that belong to the link and not to the log.
"""

from __future__ import annotations

from typing import Final

from ....service_api import RemoteProtocolError
from ....service_api.wire.frame import (
    HEADER_LENGTH,
    TYPE_COMMIT,
    HeaderField,
    align,
    position_of,
    unpack_header,
)
from ....service_api.wire.frame_rules import FrameRules
from ....service_api.wire.link_frames import decode_commit_frame
from ....service_api.wire.log.log_rules import Before
from ..vocabulary.configuration import ConfigurationHistory
from .log_buffer import LogBuffer

_TYPE_OFFSET: Final = HeaderField.KIND.offset + 2


class LogReceiver:
    """Appends received frames to a `LogBuffer`. Only a follower holds one."""

    __slots__ = ("_committed", "_history", "_log_buffer", "_rules")

    def __init__(self, log_buffer: LogBuffer, rules: FrameRules, history: ConfigurationHistory) -> None:
        self._log_buffer = log_buffer
        self._history = history
        self._rules = rules
        self._committed: tuple[int, int] | None = None

    def accept(self, buffer: bytearray, start: int, end: int) -> int:
        """Take the whole frames at the start of `buffer[start:end]`; returns the offset of the first incomplete one.

        Raises:
            RemoteProtocolError: a gap, or a frame that cannot be part of this log. The fault is the leader's or the
                network's; the frames before it are taken.
        """
        log_buffer, skip_valid_frames, offset = self._log_buffer, self._rules.skip_valid_frames, start
        with memoryview(buffer) as view:
            while end - offset >= HEADER_LENGTH:
                if buffer[offset + _TYPE_OFFSET] == TYPE_COMMIT:
                    self._committed = decode_commit_frame(buffer, offset)
                    offset += HEADER_LENGTH
                    continue
                position = log_buffer.append_position
                valid_end, last, before = skip_valid_frames(view, offset, position, end, log_buffer.before)
                if last is not None:
                    frames = bytes(view[offset:valid_end])
                    self._history.note_frames(frames, position)
                    log_buffer.append(frames)
                    log_buffer.note_before(before)
                else:
                    valid_end = self._skip_frame(view, offset, end)
                    if valid_end == offset:
                        break
                offset = valid_end
        return offset

    def take_committed(self) -> tuple[int, int] | None:
        """Take what the newest commit frame since the last call said: a leadership term id, and a position."""
        committed, self._committed = self._committed, None
        return committed

    def needed_bytes(self, buffer: bytearray, start: int, end: int) -> int:
        """Return the length of the incomplete frame at `start`, or of one header if not even that is there."""
        if end - start < HEADER_LENGTH:
            return HEADER_LENGTH
        return align(unpack_header(buffer, start).frame_length)

    def _skip_frame(self, view: memoryview, offset: int, end: int) -> int:
        """Skip the frame at `offset`, which is incomplete, or not the next one of the log.

        Returns the offset after a duplicate, and `offset` itself for an incomplete frame. A duplicate is dropped, so
        only its header is checked.

        Raises:
            RemoteProtocolError: it is neither of these.
        """
        header, rules, append_position = unpack_header(view, offset), self._rules, self._log_buffer.append_position
        position = position_of(
            header.term_id,
            header.term_offset,
            initial_term_id=rules.initial_term_id,
            term_length_bytes=rules.term_length_bytes,
        )
        if position < append_position:
            fault = rules.find_header_fault(header, position)
        else:
            before = self._log_buffer.before if position == append_position else Before.UNKNOWN
            fault = rules.find_fault_so_far(header, view, offset, position, end, before)
        if fault is not None:
            raise RemoteProtocolError(f"log frame at position={position}: {fault}")
        if position > append_position:
            raise RemoteProtocolError(f"gap in the log: position={position} expected={append_position}")
        following = offset + header.aligned_length
        return following if position < append_position and following <= end else offset
