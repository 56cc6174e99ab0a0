"""Reads the log up to the commit position and delivers it: the only way from the log to a service.

One walk serves the service and the consensus module. It reads the window while it can and the archive where the
window has moved on, so a slow service, a replay at start and ordinary delivery are one mechanism with one bound:
nothing past the commit position is ever delivered.

Source: Aeron `BoundedLogAdapter`.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, Final, Protocol

from trimaran.service_api import InvariantViolation, invariant
from trimaran.service_api.types import ClusterSessionId
from trimaran.service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, TYPE_PADDING, UNFRAGMENTED
from trimaran.service_api.wire.frame_run import count_agreeing
from trimaran.service_api.wire.log.messages import (
    LOG_MESSAGES,
    ClusterActionRequest,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from trimaran.service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, decode_message
from trimaran.service_api.wire.request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER, REQUEST_HEADER_LENGTH
from trimaran.service_api.wire.session import SESSION_HEADER_LENGTH, SessionMessageHeader
from trimaran.service_api.wire.stream import MessageAssembler

from ..core.log.log_buffer import LogBuffer
from .agent import ClusteredServiceAgent
from .client_session import ContainerClientSession

_LENGTH: Final = struct.Struct("<i")
_UNFRAGMENTED_DATA: Final = TYPE_DATA << 16 | UNFRAGMENTED << 8
_SESSION_MESSAGE: Final = SessionMessageHeader.TEMPLATE_ID << 16 | SessionMessageHeader.LAYOUT.block_length
_REQUEST: Final = SessionMessageHeader.TEMPLATE_ID << 16 | REQUEST_BLOCK_LENGTH
"""Template id and block length in one number: what a message begins with."""

_BLOCK_LENGTH_END: Final = HEADER_LENGTH + 2
_REQUEST_BLOCK: Final = struct.pack("<H", REQUEST_BLOCK_LENGTH)
_PAYLOAD_OFFSET: Final = HEADER_LENGTH + SESSION_HEADER_LENGTH
_REQUEST_PAYLOAD_OFFSET: Final = HEADER_LENGTH + REQUEST_HEADER_LENGTH
_ARCHIVE_READ_BYTES: Final = 1 << 20

_LONGEST_RUN_BYTES: Final = 64 << 10
_TURN_NS: Final = 20_000_000
_RUN_NS: Final = _TURN_NS // 8
"""How long one `poll` may take, and how long a run of messages should at most, between two looks at the clock.

A service that takes 1 ms a message would otherwise stop the loop for seconds, and the heartbeats with it.
"""

_NEVER_NS: Final = 1 << 62


_SESSION_FRAME: Final = struct.Struct("<iI24xI4x8xqq")
"""A log frame with a session message: frame_length; version, flags and type in one number; block length and template id
in one number; cluster session id, timestamp.
"""

_KIND_AND_MESSAGE: Final = struct.Struct("<4xI24xI")
_HEAD: Final = 0
_MESSAGE: Final = HEADER_LENGTH // 8
_SESSION_ID: Final = (HEADER_LENGTH + 16) // 8
_TIMESTAMP: Final = (HEADER_LENGTH + 24) // 8
"""Which 64-bit numbers of such a frame these are."""

_MIN_RUN_FRAMES: Final = 16
"""Of fewer messages of one length a run is not worth looking at as a whole."""


@lru_cache(maxsize=16)
def _payload_slices(length: int, frame_length: int) -> list[slice]:
    """Where the payloads are in a run of frames of these lengths, for the longest run there is."""
    return [
        slice(offset + _PAYLOAD_OFFSET, offset + frame_length)
        for offset in range(0, max(length, _LONGEST_RUN_BYTES), length)
    ]


def _uniform_run_columns(chunk: bytes, offset: int, end: int) -> array[int]:
    """Give the session messages of one length at the front of `chunk[offset:end]`, as numbers; none where few are."""
    (frame_length,) = _LENGTH.unpack_from(chunk, offset)
    length = (frame_length + 31) & -32
    count = (end - offset) // length if length > 0 else 0
    far = offset + (_MIN_RUN_FRAMES - 1) * length
    numbers, row = array("q"), length >> 3
    if (
        count < _MIN_RUN_FRAMES
        or frame_length < _PAYLOAD_OFFSET
        or chunk[far : far + 8] != chunk[offset : offset + 8]
        or _KIND_AND_MESSAGE.unpack_from(chunk, offset) != (_UNFRAGMENTED_DATA, _SESSION_MESSAGE)
    ):
        return numbers
    numbers.frombytes(memoryview(chunk)[offset : offset + count * length])
    for column in (_HEAD, _MESSAGE):
        values = numbers[column : count * row : row].tobytes()
        count = count_agreeing(values, values[:8] * count, 8)
    del numbers[count * row if count >= _MIN_RUN_FRAMES else 0 :]
    return numbers


def _are_same(numbers: array[int]) -> bool:
    """Whether the numbers of a column are all the same, as most often they are."""
    return numbers == numbers[:1] * len(numbers)


@lru_cache(maxsize=256)
def _request_frames(length: int) -> struct.Struct:
    """Lay out a log frame with a request: as `_SESSION_FRAME`, then request_sequence and acknowledged_sequence."""
    return struct.Struct(f"<iI24xI4x8xqqqq{length - _REQUEST_PAYLOAD_OFFSET}x")


class LogBytesReader(Protocol):
    """Reads what the window no longer holds."""

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Whole frames from `position`, at least one, none beyond `stop_position`."""


class ModuleReplay(Protocol):
    """What the consensus module learns from delivered entries."""

    def on_replay_session_open(self, event: SessionOpenEvent, end_position: int) -> None:
        """A session was opened."""

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A session was closed."""

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: memoryview) -> int | None:
        """A message of a service. Gives the id of that service; None if no service may be given the message."""

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent) -> None:
        """A new leader's first entry."""

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        """A timer fired."""

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action. True if delivery has to stand still behind it."""


class BoundedLogAdapter:
    """Delivers log entries in order. `position` is how far it has come; `limit_position` how far it may go.

    Invariant: position <= limit_position <= commit position.
    """

    def __init__(
        self,
        log_buffer: LogBuffer,
        reader: LogBytesReader,
        agent: ClusteredServiceAgent,
        module: ModuleReplay,
        *,
        monotonic_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self._log_buffer = log_buffer
        self._reader = reader
        self._agent = agent
        self._module = module
        self._monotonic_ns = monotonic_ns
        self._run_bytes = _LONGEST_RUN_BYTES >> 4
        self._assembler = MessageAssembler()
        self._archived = b""
        """What was read from the archive last: a slow service takes several turns for it."""
        self._archived_position = 0
        self.position = 0
        self.limit_position = 0
        self.is_paused = False
        """Whether delivery stands still behind a cluster action until `resume`."""
        self.slow_ns = _NEVER_NS
        """A `poll` that takes longer is told to `on_slow`, with when it began and ended."""
        self.on_slow: Callable[[int, int], None] = lambda begin_ns, end_ns: None

    def __repr__(self) -> str:
        return f"<BoundedLogAdapter position={self.position} limit={self.limit_position}>"

    def start_from(self, position: int) -> None:
        """Begin at the position of a snapshot, everything below it being in the state that was loaded."""
        self.position = self.limit_position = position

    def resume(self) -> None:
        """Deliver on behind a cluster action."""
        self.is_paused = False

    def advance_limit(self, position: int) -> None:
        """Allow delivery up to a committed position."""
        self.limit_position = max(self.limit_position, position)

    def poll(self, limit_bytes: int) -> bool:
        """Deliver about `limit_bytes` of the log, less where the service is slow. True when more may be delivered.

        Raises:
            InvariantViolation: the log holds what no leader writes; the node must stop.
        """
        stop_position = min(self.limit_position, self.position + limit_bytes)
        begin_ns = now_ns = self._monotonic_ns()
        late_ns = now_ns + _TURN_NS
        self._agent.enter_messages()
        try:
            while self.position < stop_position and now_ns < late_ns and not self.is_paused:
                chunk, offset = self._chunk()
                end = min(len(chunk), offset + self.limit_position - self.position)
                now_ns = self._deliver(chunk, offset, end, now_ns, late_ns)
        finally:
            self._agent.leave_messages()
        if now_ns - begin_ns > self.slow_ns:
            self.on_slow(begin_ns, now_ns)
        return self.position < self.limit_position and not self.is_paused

    def _chunk(self) -> tuple[bytes, int]:
        """Find bytes at the current position, in the window or in the archive."""
        log_buffer, position = self._log_buffer, self.position
        # Beyond the window is what a replay of a recording delivers: it has none.
        if log_buffer.base_position <= position < log_buffer.append_position:
            found = log_buffer.chunk_at(position)
            if found is not None:
                self._archived = b""
                return found
        offset = position - self._archived_position
        if offset < len(self._archived):
            return self._archived, offset
        data = self._reader.read(position, _ARCHIVE_READ_BYTES, stop_position=self.limit_position)
        self._archived, self._archived_position = data, position
        invariant(
            len(data) > 0,
            "committed entries can be read",
            position=position,
            limit_position=self.limit_position,
        )
        return data, 0

    def _deliver(self, chunk: bytes, offset: int, end: int, now_ns: int, late_ns: int) -> int:
        """Deliver the frames of `chunk[offset:end]`, runs of session messages of one length at a time.

        Stops before the end when `late_ns` has come. Gives the time.
        """
        base = self.position - offset
        while offset < end and now_ns < late_ns and not self.is_paused:
            if chunk[offset + HEADER_LENGTH : offset + _BLOCK_LENGTH_END] == _REQUEST_BLOCK:
                self._deliver_requests(chunk, offset, min(end, offset + self._run_bytes))
            else:
                self._deliver_messages(chunk, offset, min(end, offset + self._run_bytes))
            if self.position == base + offset:
                self._deliver_other_frame(chunk, offset)
            offset = self.position - base
            begin_ns, now_ns = now_ns, self._monotonic_ns()
            if now_ns - begin_ns > _RUN_NS:
                self._run_bytes = max(1, self._run_bytes >> 2)
            elif self._run_bytes < _LONGEST_RUN_BYTES:
                self._run_bytes <<= 1
        return now_ns

    def _deliver_messages(self, chunk: bytes, offset: int, end: int) -> None:
        """Deliver the session messages that begin in `chunk[offset:end]`, up to the first other entry.

        The first of them may go on beyond `end`, where a whole one does not fit.
        """
        while offset < end:
            position = self.position
            numbers = _uniform_run_columns(chunk, offset, end)
            if numbers:
                self._deliver_uniform_run(memoryview(chunk)[offset : offset + 8 * len(numbers)], numbers)
            else:
                self._deliver_each(chunk, offset, end)
            if self.position == position:
                return
            offset += self.position - position

    def _deliver_uniform_run(self, run: memoryview, numbers: array[int]) -> None:
        """Deliver a run of session messages that differ in session, time and payload only: the hot loop.

        What they share was looked at once; sessions and times are read a column at a time, from `numbers`, which is the
        run as an array: a slice with a step takes half as long from that.
        """
        agent = self._agent
        egress, on_session_message = agent.egress, agent.service.on_session_message
        session_of: Callable[[Any], ContainerClientSession | None] = agent.sessions.get  # Any: an id as it was read
        (frame_length,) = _LENGTH.unpack_from(run)
        length = (frame_length + 31) & -32
        row = length >> 3
        payloads = map(run.__getitem__, islice(_payload_slices(length, frame_length), len(run) // length))
        session_ids, timestamps = numbers[_SESSION_ID::row], numbers[_TIMESTAMP::row]
        begin_position = position = self.position
        try:
            for session, timestamp, payload in zip(
                repeat(session_of(session_ids[0])) if _are_same(session_ids) else map(session_of, session_ids),
                repeat(timestamps[0]) if _are_same(timestamps) else timestamps,
                payloads,
                strict=False,  # what is the same has no end
            ):
                position += length
                egress.time = timestamp
                agent.log_position = position
                if session is not None:
                    try:
                        on_session_message(session, timestamp, payload)
                    except Exception as error:
                        agent.on_service_error(error)
                else:
                    session_id = session_ids[(position - begin_position) // length - 1]
                    if session_id < 0:
                        self._on_service_message(ClusterSessionId(session_id), timestamp, payload)
        finally:
            self.position = position

    def _deliver_each(self, chunk: bytes, offset: int, end: int) -> None:
        """Deliver session messages one by one, of whatever lengths, until enough of one length may follow."""
        agent, view, position = self._agent, memoryview(chunk), self.position
        egress, sessions, on_session_message = agent.egress, agent.sessions, agent.service.on_session_message
        unpack, begin, last = _SESSION_FRAME.unpack_from, offset, min(end, len(chunk) - _PAYLOAD_OFFSET + 1)
        length_before = uniform_count = 0
        while offset < last:
            frame_length, kind, message, session_id, timestamp = unpack(chunk, offset)
            following = offset + ((frame_length + 31) & -32)
            if message != _SESSION_MESSAGE or kind != _UNFRAGMENTED_DATA or frame_length < _PAYLOAD_OFFSET:
                return
            if following > end and offset != begin:
                return
            position += following - offset
            egress.time = timestamp
            agent.log_position = self.position = position
            session = sessions.get(session_id)
            if session is not None:
                try:
                    on_session_message(session, timestamp, view[offset + _PAYLOAD_OFFSET : offset + frame_length])
                except Exception as error:
                    agent.on_service_error(error)
            elif session_id < 0:
                payload = view[offset + _PAYLOAD_OFFSET : offset + frame_length]
                self._on_service_message(session_id, timestamp, payload)
            offset = following
            if frame_length != length_before:
                length_before, uniform_count = frame_length, 0
            elif (uniform_count := uniform_count + 1) == _MIN_RUN_FRAMES:
                return

    def _deliver_requests(self, chunk: bytes, offset: int, end: int) -> None:
        """Deliver the requests of one length that begin in `chunk[offset:end]`; otherwise as `_deliver_messages`."""
        agent, view = self._agent, memoryview(chunk)
        egress, sessions, on_request = agent.egress, agent.sessions, agent.requests.on_request
        (length,) = _LENGTH.unpack_from(chunk, offset)
        length = (length + 31) & -32
        if length < _REQUEST_PAYLOAD_OFFSET:
            return
        position = self.position
        whole = (end - offset) // length * length or length
        run = view[offset : offset + whole]
        offset += _REQUEST_PAYLOAD_OFFSET
        for frame_length, kind, message, session_id, timestamp, sequence, acknowledged in _request_frames(
            length
        ).iter_unpack(run):
            if message != _REQUEST or kind != _UNFRAGMENTED_DATA or (frame_length + 31) & -32 != length:
                return
            payload_length = frame_length - _REQUEST_PAYLOAD_OFFSET
            if payload_length < 0:
                return
            position += length
            egress.time = timestamp
            agent.log_position = self.position = position
            session = sessions.get(session_id)
            if session is not None:
                on_request(session, timestamp, sequence, acknowledged, view[offset : offset + payload_length])
            offset += length

    def _deliver_other_frame(self, chunk: bytes, offset: int) -> None:
        """Deliver one frame that is not an ordinary session message."""
        frame_length, flags, frame_type = struct.unpack_from("<ixBH", chunk, offset)
        invariant(
            frame_length >= HEADER_LENGTH,
            "a committed frame has a length",
            position=self.position,
            frame_length=frame_length,
        )
        self.position += (frame_length + 31) & -32
        payload = chunk[offset + HEADER_LENGTH : offset + frame_length]
        if self._assembler.is_assembling and (frame_type == TYPE_PADDING or flags & FLAG_BEGIN):
            # A leader died in the middle of a message, and the next one went on from there: nobody has the rest of it.
            self._assembler = MessageAssembler()
        encoded = self._assembler.append_fragment(frame_type, flags, payload)
        if encoded is not None:
            self._agent.log_position = self.position
            self._on_message(encoded)

    def _on_message(self, encoded: bytes) -> None:
        message = decode_message(encoded, registry=LOG_MESSAGES)
        timestamp = getattr(message, "timestamp", None)
        if timestamp is not None:
            self._agent.egress.time = timestamp
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message)
        elif isinstance(message, SessionMessageHeader):
            self._on_session_message(message, encoded)
        else:
            raise InvariantViolation(
                f"log entry of an unexpected kind: {type(message).__name__} position={self.position}"
            )

    def _on_service_message(self, session_id: ClusterSessionId, timestamp: int, payload: memoryview) -> None:
        service_id = self._module.on_replay_service_message(session_id, payload)
        if service_id is not None:
            self._agent.on_service_message(service_id, timestamp, payload)

    def _on_session_message(self, message: SessionMessageHeader, encoded: bytes) -> None:
        """A session message that was assembled from fragments, or has a block that nobody writes here."""
        session = self._agent.sessions.get(message.cluster_session_id)
        block_length = int.from_bytes(encoded[:2], "little")
        payload = memoryview(encoded)[MESSAGE_HEADER_LENGTH + block_length :]
        if session is None:
            if message.cluster_session_id < 0:
                self._on_service_message(message.cluster_session_id, message.timestamp, payload)
        elif block_length == REQUEST_BLOCK_LENGTH:
            sequence, acknowledged = REQUEST_HEADER.unpack_from(encoded)[-2:]
            self._agent.requests.on_request(session, message.timestamp, sequence, acknowledged, payload)
        else:
            self._agent.on_session_message(session, message.timestamp, payload)

    def _on_session_open(self, event: SessionOpenEvent) -> None:
        self._module.on_replay_session_open(event, self.position)
        self._agent.on_session_open(event)

    def _on_session_close(self, event: SessionCloseEvent) -> None:
        self._agent.on_session_close(event)
        self._module.on_replay_session_close(event)

    def _on_timer(self, event: TimerEvent) -> None:
        self._module.on_replay_timer_event(event)
        self._agent.on_timer_event(event)

    def _on_cluster_action(self, event: ClusterActionRequest) -> None:
        invariant(
            event.log_position == self.position,
            "a cluster action says where it ends",
            log_position=event.log_position,
            position=self.position,
        )
        self.is_paused = self._module.on_replay_cluster_action(event, self.position)

    def _on_new_term(self, event: NewLeadershipTermEvent) -> None:
        invariant(
            event.log_position == self.position,
            "a term's first entry says where it ends",
            log_position=event.log_position,
            position=self.position,
        )
        self._module.on_replay_new_leadership_term(event)
        self._agent.on_new_leadership_term_event(event)


_HANDLERS: Final[dict[type[Message], Any]] = {  # Any: each handler takes the type it is keyed by
    SessionOpenEvent: BoundedLogAdapter._on_session_open,
    SessionCloseEvent: BoundedLogAdapter._on_session_close,
    TimerEvent: BoundedLogAdapter._on_timer,
    NewLeadershipTermEvent: BoundedLogAdapter._on_new_term,
    ClusterActionRequest: BoundedLogAdapter._on_cluster_action,
    MembershipChangeEvent: lambda adapter, event: None,  # in logs from before Aeron 1.41: members are in the settings
}
