"""Reads the log up to the commit position and delivers it: the only way from the log to a service.

One walk serves the service and the consensus module. It reads the window while it can and the archive where the
window has moved on, so a slow service, a replay at start and ordinary delivery are one mechanism with one bound:
nothing past the commit position is ever delivered.

Source: Aeron `BoundedLogAdapter`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import islice, repeat
from typing import Any, Final, Protocol

import structlog

from ...service_api import InvariantViolation, invariant
from ...service_api.types import ClusterSessionId
from ...service_api.users_code import calls_users_code
from ...service_api.wire.frame import (
    FLAG_BEGIN,
    HEADER_LENGTH,
    TYPE_PADDING,
    UNFRAGMENTED_DATA,
    FrameLayout,
    HeaderField,
    unpack_header,
)
from ...service_api.wire.frame_run import MIN_RUN_FRAMES, FrameRun
from ...service_api.wire.log.code_digest import UNKNOWN_CODE, CodedTermEvent, read_code_digest, with_code_digest
from ...service_api.wire.log.messages import (
    LOG_MESSAGES,
    ClusterActionRequest,
    EntrySkip,
    FeatureLevelRaise,
    MembershipChangeEvent,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
    decode_feature_level_raise,
)
from ...service_api.wire.message import MESSAGE_HEADER_LENGTH, Message, decode_message, peek_header
from ...service_api.wire.pieces import DELIVERY_RUN_BYTES
from ...service_api.wire.request import REQUEST_BLOCK_LENGTH, REQUEST_HEADER
from ...service_api.wire.session import SessionMessageHeader
from ...service_api.wire.session_frame import (
    PAYLOAD_OFFSET,
    REQUEST_BLOCK,
    REQUEST_BLOCK_BYTES,
    REQUEST_PAYLOAD_OFFSET,
    SESSION_BLOCK,
    SessionField,
)
from ...service_api.wire.stream import MessageAssembler
from ..core.log.log_buffer import LogBuffer
from ..core.log.log_comparison import LogDifference
from ..core.vocabulary.held_entry import HeldEntry
from .agent import ClusteredServiceAgent
from .client_session import ContainerClientSession
from .digests import NEVER, DeliveryDigests
from .failures import FixedHeadroom
from .skipped_entries import decode_entry_skip, find_entry_skips, newest_timestamp

logger = structlog.get_logger()

_ARCHIVE_READ_BYTES: Final = 1 << 20

_TURN_NS: Final = 20_000_000
"""How long one `poll` may take.

A service that takes 1 ms for each message would otherwise stop the loop for seconds, and the heartbeats with it.
"""

_RUN_NS: Final = _TURN_NS // 8
"""How long it should take at most from one look at the clock to the next."""

_NEVER_NS: Final = 1 << 62
_NEVER_POSITION: Final = 1 << 62
MESSAGE_CALLBACK: Final = "on_session_message"
REQUEST_CALLBACK: Final = "on_request"
SERVICE_MESSAGE_CALLBACK: Final = "on_service_message"
DELIVERY: Final = "delivery"
"""What is blamed for a slow run of entries in which no callback for messages was called, such as a read of the disk."""

_LENGTH: Final = FrameLayout(HeaderField.FRAME_LENGTH).head
_START: Final = FrameLayout(HeaderField.KIND, SessionField.BLOCK_AND_TEMPLATE).head
_MESSAGE_FIELDS: Final = (
    HeaderField.FRAME_LENGTH,
    HeaderField.KIND,
    SessionField.BLOCK_AND_TEMPLATE,
    SessionField.CLUSTER_SESSION_ID,
    SessionField.TIMESTAMP,
)
_MESSAGE: Final = FrameLayout(*_MESSAGE_FIELDS).head
_REQUESTS: Final = FrameLayout(*_MESSAGE_FIELDS, SessionField.REQUEST_SEQUENCE, SessionField.ACKNOWLEDGED_SEQUENCE)
_BLOCK_LENGTH_END: Final = HEADER_LENGTH + len(REQUEST_BLOCK_BYTES)

_NAMED_FRAMES: Final = 16
"""Frames of a slow run whose callbacks are named. On a busy machine most runs of hundreds of messages count as slow:
to look at all of them took 1 us a message there."""

_LONGEST_FRAME_BYTES: Final = 1 << 16
_SHORTEST_RUN_BYTES: Final = MIN_RUN_FRAMES * ((PAYLOAD_OFFSET + 31) & -32)

_PROBE_AFTER_FRAMES: Final = MIN_RUN_FRAMES
"""So many messages of one length are delivered one by one before the following ones are tried as a run."""


class DeliveryBudget:
    """How many bytes of log are delivered between two looks at the clock: fewer where the service is slow.

    A run that took too long makes the next one a quarter as long, any other one twice as long, up to
    `DELIVERY_RUN_BYTES`.
    """

    __slots__ = ("run_bytes",)

    def __init__(self) -> None:
        self.run_bytes = DELIVERY_RUN_BYTES >> 4

    def __repr__(self) -> str:
        return f"<DeliveryBudget run_bytes={self.run_bytes}>"

    def on_run(self, duration_ns: int) -> None:
        """Take in how long a run took."""
        if duration_ns > _RUN_NS:
            self.run_bytes = max(1, self.run_bytes >> 2)
        elif self.run_bytes < DELIVERY_RUN_BYTES:
            self.run_bytes <<= 1


@lru_cache(maxsize=16)
def _payload_slices(length: int, frame_length: int) -> list[slice]:
    """Return where the payloads are in a run of frames of these lengths, for the longest run that is delivered."""
    return [
        slice(offset + PAYLOAD_OFFSET, offset + frame_length)
        for offset in range(0, max(length, DELIVERY_RUN_BYTES), length)
    ]


def _find_run(chunk: bytes, offset: int, end: int) -> FrameRun | None:
    """Return the session messages of one length at the start of `chunk[offset:end]` as a run; None where few are."""
    (frame_length,) = _LENGTH.unpack_from(chunk, offset)
    length = (frame_length + 31) & -32
    count = (end - offset) // length if length > 0 else 0
    if count < MIN_RUN_FRAMES or frame_length < PAYLOAD_OFFSET:
        return None
    if _START.unpack_from(chunk, offset) != (UNFRAGMENTED_DATA, SESSION_BLOCK):
        return None
    run = FrameRun.probe(chunk, offset, length, count)
    if run is None:
        return None
    run.keep_uniform(HeaderField.LENGTH_AND_KIND, SessionField.MESSAGE_HEADER)
    return run if run.count >= MIN_RUN_FRAMES else None


def _are_same(numbers: array[int]) -> bool:
    """Whether the numbers of a column are all the same, as most often they are."""
    return numbers == numbers[:1] * len(numbers)


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

    def on_replay_new_leadership_term(self, event: NewLeadershipTermEvent, code_digest: int) -> None:
        """A new leader's first entry."""

    def on_replay_timer_event(self, event: TimerEvent) -> None:
        """A timer fired."""

    def on_replay_cluster_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """A cluster action. True if delivery has to stand still behind it."""

    def on_replay_membership_change(self, event: MembershipChangeEvent, end_position: int) -> None:
        """The members changed."""

    def on_replay_feature_level(self, event: FeatureLevelRaise) -> None:
        """Another feature level is in force behind this entry; raises where the code here does not know it."""

    def on_replay_entry_skip(self, event: EntrySkip) -> bool:
        """An earlier entry is skipped. False if it was delivered here all the same: this member has to start again."""


class EgressWatch(Protocol):
    """Told the position that is delivered, before the replies of a piece go out, and after."""

    def before_egress(self, position: int) -> None:
        """They go out next."""

    def after_egress(self, position: int, began_ns: int) -> None:
        """They are with the connections; they went out from `began_ns` on."""


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
        digests: DeliveryDigests | None = None,
    ) -> None:
        self._digests = digests
        self._log_buffer = log_buffer
        self._reader = reader
        self._agent = agent
        self._module = module
        self._monotonic_ns = monotonic_ns
        self._budget = DeliveryBudget()
        self._headroom = FixedHeadroom()
        self._assembler = MessageAssembler()
        self._archived = b""
        """What was read from the archive last: a slow service takes several turns for it."""
        self._archived_position = 0
        self._held: HeldEntry | LogDifference | None = None
        self._skipped_positions: list[int] = []
        """Where entries end that are skipped, in order; those that were passed are taken out."""
        self._watched_position = _NEVER_POSITION
        """Where the next entry ends that is not delivered like the others: the one to hold before, or a skipped one."""
        self.is_held = False
        """Whether delivery has come to the entry that it holds before: it is paused for good."""
        self._searched_position = 0
        """While it holds: how far the log after that was looked through."""
        self.newest_timestamp = 0
        """Of what was looked through while delivery holds."""
        self.on_skip: Callable[[EntrySkip], None] = lambda skip: None
        """Told of an entry that has another one skipped: the one before which delivery holds, or one that was not
        known to be skipped."""
        self.position = 0
        self.limit_position = 0
        self.is_paused = False
        """Whether delivery stands still behind a cluster action until `resume`."""
        self._assembled_callback = DELIVERY
        """The callback of the last message that came in fragments."""
        self.slow_ns = _NEVER_NS
        """A run of entries that takes longer is told to `on_slow`: which callback, and when it began and ended."""
        self.on_slow: Callable[[str, int, int], None] = lambda callback, begin_ns, end_ns: None
        self.egress_watch: EgressWatch | None = None
        self.began_ns = self.ended_ns = 0
        """When the callbacks of the last `poll` that delivered began, and when they were through."""

    def __repr__(self) -> str:
        return f"<BoundedLogAdapter position={self.position} limit={self.limit_position}>"

    def start_from(self, position: int) -> None:
        """Begin at the position of a snapshot, everything below it being in the state that was loaded."""
        self.position = self.limit_position = position

    def know_skips(self, skipped_positions: Iterable[int], *, held: HeldEntry | LogDifference | None = None) -> None:
        """Before the first `poll`: the entries to pass over, by where they end, and the one to hold before.

        A difference that is older than the snapshot which delivery begins with has it hold at once.
        """
        self._skipped_positions = sorted(position for position in skipped_positions if position > self.position)
        self._held = held if held is not None and held.log_position > self.position else None
        self._watch_next()
        if isinstance(held, LogDifference) and self._held is None:
            self._held = held
            self._stand_still()

    def _stand_still(self) -> None:
        self.is_paused = self.is_held = True
        self._searched_position, self.newest_timestamp = self.position, self._agent.time

    @property
    def reached_position(self) -> int:
        """How far the log was delivered; while delivery holds, how far it was looked through after that."""
        return self._searched_position if self.is_held else self.position

    @property
    def has_pending_digests(self) -> bool:
        """Whether a digest of a service's state is in the making: `advance_digests` goes on with it."""
        return self._digests is not None and self._digests.is_pending

    def advance_digests(self) -> None:
        """Go on with it by one piece; called between two `poll`."""
        if self._digests is not None:
            self._digests.advance()

    def resume(self) -> None:
        """Deliver on behind a cluster action."""
        self.is_paused = False

    def advance_limit(self, position: int) -> None:
        """Allow delivery up to a committed position."""
        if position > self.limit_position:
            self.limit_position = position

    @calls_users_code
    def poll(self, limit_bytes: int) -> bool:
        """Deliver about `limit_bytes` of the log, less where the service is slow. True when more may be delivered.

        Raises:
            InvariantViolation: the log holds what no leader writes; the node must stop.
            ConfigurationError: the next entry raises the feature level above what the code here knows; so it must stop.
            ServiceFailedError: a callback failed for a reason of this member alone; the node must stop.
        """
        if self.is_held:
            return self._search(limit_bytes)
        stop_position = min(self.limit_position, self.position + limit_bytes)
        now_ns = self.began_ns = self._monotonic_ns()
        late_ns = now_ns + _TURN_NS
        self._agent.enter_messages()
        self._headroom.enter()
        try:
            while self.position < stop_position and now_ns < late_ns and not self.is_paused:
                chunk, offset = self._chunk(self.position)
                end = min(len(chunk), offset + self.limit_position - self.position)
                now_ns = self._deliver(chunk, offset, end, now_ns, late_ns)
        except BaseException:
            self._agent.abandon_messages()
            raise
        finally:
            self._headroom.leave()
        self.ended_ns = now_ns
        watch = self.egress_watch
        if watch is not None:
            watch.before_egress(self.position)
        self._agent.leave_messages()
        if watch is not None:
            watch.after_egress(self.position, now_ns)
        if self.is_held:  # since just now: what comes after is looked through
            return self.reached_position < self.limit_position
        return self.position < self.limit_position and not self.is_paused

    def _search(self, limit_bytes: int) -> bool:
        """While delivery holds: look through what is committed for an entry that has the held one skipped."""
        held, position = self._held, self._searched_position
        if held is None or position >= self.limit_position:
            return False
        chunk, offset = self._chunk(position)
        end = min(len(chunk), offset + self.limit_position - position)
        last = offset
        while last < end and (last == offset or last - offset < limit_bytes):
            (frame_length,) = _LENGTH.unpack_from(chunk, last)
            last += (frame_length + 31) & -32
        frames = chunk[offset:last]
        self.newest_timestamp = max(self.newest_timestamp, newest_timestamp(frames))
        self._searched_position = position + len(frames)
        find_entry_skips(frames, position, lambda skip: self.on_skip(skip) if _skips(skip, held.log_position) else None)
        return self._searched_position < self.limit_position

    def _chunk(self, position: int) -> tuple[bytes, int]:
        """Find bytes at a position, in the window or in the archive."""
        log_buffer = self._log_buffer
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

        Stops before the end when `late_ns` has come, or at a cluster action. Returns the time.
        """
        base, budget, digests = self.position - offset, self._budget, self._digests
        digest_position = NEVER if digests is None else digests.next_position
        while offset < end and now_ns < late_ns and not self.is_paused:
            run_end = min(end, offset + budget.run_bytes, digest_position - base)
            if self._watched_position - self.position <= budget.run_bytes + _LONGEST_FRAME_BYTES:
                if self._is_at_watched(chunk, offset):
                    break
                run_end = offset + 1  # one frame
            if chunk[offset + HEADER_LENGTH : offset + _BLOCK_LENGTH_END] == REQUEST_BLOCK_BYTES:
                position = self._deliver_requests(chunk, offset, run_end, self.position)
            else:
                position = self._deliver_messages(chunk, offset, run_end, self.position)
            if position == self.position:
                position = self._deliver_other_frame(chunk, offset, position)
            self.position = position
            begin_offset, offset = offset, position - base
            if digests is not None:
                if position >= digests.next_position:
                    digests.on_position(position)
                digest_position = digests.next_position
            begin_ns, now_ns = now_ns, self._monotonic_ns()
            budget.on_run(now_ns - begin_ns)
            if now_ns - begin_ns > self.slow_ns:
                self.on_slow(self._callbacks_of(chunk, begin_offset, offset), begin_ns, now_ns)
        return now_ns

    def _callbacks_of(self, chunk: bytes, offset: int, end: int) -> str:
        """Name the callbacks that the frames of `chunk[offset:end]` went to; looked up only after a slow run.

        A slow service has short runs, soon of one message: then there is one name. Of a longer run, which most likely
        lost the processor, only the first frames are looked at.
        """
        names: dict[str, None] = {}
        for _ in range(_NAMED_FRAMES):
            if offset >= end:
                break
            if len(chunk) < offset + PAYLOAD_OFFSET:
                chunk = chunk.ljust(offset + PAYLOAD_OFFSET, b"\0")  # a short frame at the end
            frame_length, kind, block, session_id, _ = _MESSAGE.unpack_from(chunk, offset)
            if kind != UNFRAGMENTED_DATA:
                names[self._assembled_callback] = None
            elif block == REQUEST_BLOCK:
                names[REQUEST_CALLBACK] = None
            elif block == SESSION_BLOCK:
                names[SERVICE_MESSAGE_CALLBACK if session_id < 0 else MESSAGE_CALLBACK] = None
            else:
                names[DELIVERY] = None
            offset += (frame_length + 31) & -32
        return "/".join(names)

    # --- entries that are skipped, or held before

    def _watch_next(self) -> None:
        held_position = _NEVER_POSITION if self._held is None else self._held.log_position
        skipped_position = self._skipped_positions[0] if self._skipped_positions else _NEVER_POSITION
        self._watched_position = min(skipped_position, held_position)

    def _is_at_watched(self, chunk: bytes, offset: int) -> bool:
        """Whether the frame at `offset` of `chunk`, at `self.position`, was passed over, or delivery holds before it.

        It ends a watched entry then. Of an entry of several frames, the ones before are delivered: they do nothing.
        """
        (frame_length,) = _LENGTH.unpack_from(chunk, offset)
        position = self.position + ((frame_length + 31) & -32)
        if position < self._watched_position:
            return False
        if position > self._watched_position:
            # Nothing ends there: what was noted is of another log.
            self._forget_watched()
            return False
        if self._held is not None and self._held.log_position == position and position not in self._skipped_positions:
            self._stand_still()
            return True
        with self._agent.passing_over():
            self.position = self._deliver_other_frame(chunk, offset, self.position)
        logger.warning("entry.skipped", log_position=position, reason="an operator had it skipped")
        self._forget_watched()
        return True

    def _forget_watched(self) -> None:
        watched = self._watched_position
        self._skipped_positions = [position for position in self._skipped_positions if position > watched]
        if self._held is not None and self._held.log_position <= watched:
            self._held = None
        self._watch_next()

    def _deliver_messages(self, chunk: bytes, offset: int, end: int, position: int) -> int:
        """Deliver the session messages that begin in `chunk[offset:end]`, up to the first other entry.

        The first of them is at `position` of the log, and may go on after `end`, where a whole one does not fit.
        Returns the position after the last; `position` itself if the frame there is no session message, or a fragment.
        """
        base = position - offset
        while offset < end:
            run = _find_run(chunk, offset, end) if end - offset >= _SHORTEST_RUN_BYTES else None
            if run is not None:
                following = self._deliver_run(run, position)
            else:
                following = self._deliver_each(chunk, offset, end, position)
            if following == position:
                break
            position = following
            offset = position - base
        return position

    def _deliver_run(self, run: FrameRun, position: int) -> int:
        """Deliver a run of session messages that differ in session, time and payload only: the hot loop.

        The first is at `position`. Sessions and times are read a column at a time. Returns the position after the last.
        """
        agent, length, frames = self._agent, run.length, run.view
        egress, on_session_message = agent.egress, agent.service.on_session_message
        session_of: Callable[[Any], ContainerClientSession | None] = agent.sessions.get  # Any: an id as it was read
        (frame_length,) = _LENGTH.unpack_from(frames)
        payloads = map(frames.__getitem__, islice(_payload_slices(length, frame_length), run.count))
        session_ids, timestamps = run.column(SessionField.CLUSTER_SESSION_ID), run.column(SessionField.TIMESTAMP)
        begin_position = position
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
                except BaseException as error:
                    agent.on_service_error(error)
            else:
                session_id = session_ids[(position - begin_position) // length - 1]
                if session_id < 0:
                    self._on_service_message(ClusterSessionId(session_id), timestamp, payload)
        return position

    def _deliver_each(self, chunk: bytes, offset: int, end: int, position: int) -> int:
        """Deliver session messages one by one, of whatever lengths, until enough of one length may follow.

        Otherwise as `_deliver_messages`.
        """
        agent, view = self._agent, memoryview(chunk)
        egress, sessions, on_session_message = agent.egress, agent.sessions, agent.service.on_session_message
        unpack, begin, last = _MESSAGE.unpack_from, offset, min(end, len(chunk) - PAYLOAD_OFFSET + 1)
        length_before = uniform_count = 0
        while offset < last:
            frame_length, kind, block, session_id, timestamp = unpack(chunk, offset)
            following = offset + ((frame_length + 31) & -32)
            if block != SESSION_BLOCK or kind != UNFRAGMENTED_DATA or frame_length < PAYLOAD_OFFSET:
                break
            if following > end and offset != begin:
                break
            position += following - offset
            egress.time = timestamp
            agent.log_position = position
            session = sessions.get(session_id)
            if session is not None:
                try:
                    on_session_message(session, timestamp, view[offset + PAYLOAD_OFFSET : offset + frame_length])
                except BaseException as error:
                    agent.on_service_error(error)
            elif session_id < 0:
                payload = view[offset + PAYLOAD_OFFSET : offset + frame_length]
                self._on_service_message(session_id, timestamp, payload)
            offset = following
            if frame_length != length_before:
                length_before, uniform_count = frame_length, 0
            elif (uniform_count := uniform_count + 1) == _PROBE_AFTER_FRAMES:
                break
        return position

    def _deliver_requests(self, chunk: bytes, offset: int, end: int, position: int) -> int:
        """Deliver the requests of one length that begin in `chunk[offset:end]`; otherwise as `_deliver_messages`."""
        agent, view = self._agent, memoryview(chunk)
        egress, sessions, on_request = agent.egress, agent.sessions, agent.requests.on_request
        (length,) = _LENGTH.unpack_from(chunk, offset)
        length = (length + 31) & -32
        if length < REQUEST_PAYLOAD_OFFSET:
            return position
        whole = (end - offset) // length * length or length
        run = view[offset : offset + whole]
        offset += REQUEST_PAYLOAD_OFFSET
        for frame_length, kind, block, session_id, timestamp, sequence, acknowledged in _REQUESTS.rows(
            length
        ).iter_unpack(run):
            if block != REQUEST_BLOCK or kind != UNFRAGMENTED_DATA or (frame_length + 31) & -32 != length:
                break
            payload_length = frame_length - REQUEST_PAYLOAD_OFFSET
            if payload_length < 0:
                break
            position += length
            egress.time = timestamp
            agent.log_position = position
            session = sessions.get(session_id)
            if session is not None:
                on_request(session, timestamp, sequence, acknowledged, view[offset : offset + payload_length])
            offset += length
        return position

    def _deliver_other_frame(self, chunk: bytes, offset: int, position: int) -> int:
        """Deliver the frame at `offset` of `chunk`, at `position` of the log, which is no ordinary session message.

        Returns the position after it.
        """
        header = unpack_header(chunk, offset)
        frame_length = header.frame_length
        invariant(
            frame_length >= HEADER_LENGTH,
            "a committed frame has a length",
            position=position,
            frame_length=frame_length,
        )
        position += header.aligned_length
        payload = chunk[offset + HEADER_LENGTH : offset + frame_length]
        if self._assembler.is_assembling and (header.type == TYPE_PADDING or header.flags & FLAG_BEGIN):
            # A leader died in the middle of a message, and the next one went on from there: nobody has the rest of it.
            self._assembler = MessageAssembler()
        encoded = self._assembler.append_fragment(header.type, header.flags, payload)
        if encoded is not None:
            self._agent.log_position = position
            self._on_message(encoded, position)
        return position

    def _on_message(self, encoded: bytes, position: int) -> None:
        """Deliver a whole message that ends at `position`."""
        message = (
            decode_entry_skip(encoded)
            or decode_feature_level_raise(encoded)
            or decode_message(encoded, registry=LOG_MESSAGES)
        )
        if type(message) is NewLeadershipTermEvent:
            message = with_code_digest(message, read_code_digest(encoded))
        timestamp = getattr(message, "timestamp", None)
        if timestamp is not None:
            self._agent.egress.time = timestamp
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(self, message, position)
        elif isinstance(message, SessionMessageHeader):
            self._on_session_message(message, encoded)
        else:
            raise InvariantViolation(f"log entry of an unexpected kind: {type(message).__name__} position={position}")

    def _on_service_message(self, session_id: ClusterSessionId, timestamp: int, payload: memoryview) -> None:
        service_id = self._module.on_replay_service_message(session_id, payload)
        if service_id is not None:
            self._agent.on_service_message(service_id, timestamp, payload)

    def _on_session_message(self, message: SessionMessageHeader, encoded: bytes) -> None:
        """A session message that was assembled from fragments, or has a block that nobody writes here."""
        session = self._agent.sessions.get(message.cluster_session_id)
        block_length = peek_header(encoded)[0]
        self._assembled_callback = (
            REQUEST_CALLBACK
            if block_length == REQUEST_BLOCK_LENGTH
            else SERVICE_MESSAGE_CALLBACK
            if message.cluster_session_id < 0
            else MESSAGE_CALLBACK
        )
        payload = memoryview(encoded)[MESSAGE_HEADER_LENGTH + block_length :]
        if session is None:
            if message.cluster_session_id < 0:
                self._on_service_message(message.cluster_session_id, message.timestamp, payload)
        elif block_length == REQUEST_BLOCK_LENGTH:
            sequence, acknowledged = REQUEST_HEADER.unpack_from(encoded)[-2:]
            self._agent.requests.on_request(session, message.timestamp, sequence, acknowledged, payload)
        else:
            self._agent.on_session_message(session, message.timestamp, payload)

    def _on_session_open(self, event: SessionOpenEvent, position: int) -> None:
        self._module.on_replay_session_open(event, position)
        self._agent.on_session_open(event)

    def _on_session_close(self, event: SessionCloseEvent, position: int) -> None:
        self._agent.on_session_close(event)
        self._module.on_replay_session_close(event)

    def _on_timer(self, event: TimerEvent, position: int) -> None:
        self._module.on_replay_timer_event(event)
        self._agent.on_timer_event(event)

    def _on_cluster_action(self, event: ClusterActionRequest, position: int) -> None:
        invariant(
            event.log_position == position,
            "a cluster action says where it ends",
            log_position=event.log_position,
            position=position,
        )
        if self._digests is not None:
            self._digests.on_cut(position)
        self.is_paused = self._module.on_replay_cluster_action(event, position)

    def _on_entry_skip(self, event: EntrySkip, position: int) -> None:
        self._on_cluster_action(event, position)
        if not self._module.on_replay_entry_skip(event):
            self.is_paused = True
            self.on_skip(event)

    def _on_feature_level(self, event: FeatureLevelRaise, position: int) -> None:
        self._module.on_replay_feature_level(event)
        self._agent.feature_level = event.feature_level
        self._on_cluster_action(event, position)

    def _on_new_term(self, event: NewLeadershipTermEvent, position: int) -> None:
        invariant(
            event.log_position == position,
            "a term's first entry says where it ends",
            log_position=event.log_position,
            position=position,
        )
        code_digest = event.code_digest if isinstance(event, CodedTermEvent) else UNKNOWN_CODE
        self._module.on_replay_new_leadership_term(event, code_digest)
        self._agent.on_new_leadership_term_event(event, code_digest)
        if self._digests is not None:
            self._digests.on_cut(position)


def _skips(skip: EntrySkip, position: int) -> bool:
    return skip.skipped_log_position == position


_HANDLERS: Final[dict[type[Message], Any]] = {  # Any: each handler takes the type it is keyed by
    SessionOpenEvent: BoundedLogAdapter._on_session_open,
    SessionCloseEvent: BoundedLogAdapter._on_session_close,
    TimerEvent: lambda adapter, event, position: adapter._on_timer(event, position),
    NewLeadershipTermEvent: BoundedLogAdapter._on_new_term,
    CodedTermEvent: BoundedLogAdapter._on_new_term,
    ClusterActionRequest: BoundedLogAdapter._on_cluster_action,
    EntrySkip: BoundedLogAdapter._on_entry_skip,
    FeatureLevelRaise: BoundedLogAdapter._on_feature_level,
    MembershipChangeEvent: lambda adapter, event, position: adapter._module.on_replay_membership_change(
        event, position
    ),
}
