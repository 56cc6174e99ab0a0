"""Messages that services offer to the log: each of them is delivered once, in order, under any leader.

The problem: a service offers the same messages on every member, in the callbacks that all of them run at the same
positions, but only one member may append them, and that one may die at any moment.

The idea: a message gets its id where it is offered, so it has the same id on every member. Every member keeps what was
offered and not delivered yet. The leader appends it; all of them, the leader too, forget it when it is delivered. A
leader remembers only how much of its queue it has appended, and forgets that when it loses its place. The member that
leads next delivers its whole log before it appends anything, so what is left in its queue is in no log that can still
commit, and it appends exactly that.

Invariant: the queue holds the ids from `log_service_session_id + 1` to `next_service_session_id - 1`, without a gap. A
snapshot holds both numbers and the queue, all of them decided by delivered entries alone.

A service that is not deterministic breaks this: its ids mean other messages on other members. The log is right then.
An id that was delivered is delivered to nobody again, and every difference between the log and the queue is told.

Aeron before 1.47 has one queue for all services of a node: service 0 counts for all of them, and what two services
offer at once may lie in another order on each member. So in a log or snapshot of Aeron a message is looked for where
such a queue would have it: at the head of another service's queue, or among what came out of that snapshot.

Source: aeron.md §3.8; Aeron `PendingServiceMessageTracker`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from ...service_api import BackPressureError, RemoteProtocolError
from ...service_api.types import ClusterSessionId
from ...service_api.wire.log.code_digest import UNKNOWN_CODE
from ...service_api.wire.log.messages import encode_session_message
from ..messages import snapshot as wire
from ..messages.snapshot import PendingMessage
from . import effects as fx
from .context import ConsensusContext
from .log.log_publisher import LogPublisher

SERVICE_LIMIT: Final = 10
"""The most services that a node may run. Source: aeron.md §4.3."""

_SERVICE_ID_SHIFT: Final = 56
_FIRST_BASE: Final = -(1 << 63)

_TURN_LIMIT: Final = 256
"""Messages of one service appended in one turn: about half a millisecond, so that many do not delay ingress."""

_IN_FLIGHT_LIMIT: Final = 4096
"""Messages of one service appended and not delivered; more wait until some are."""

_MESSAGE_OVERHEAD_BYTES: Final = 64
"""What a message takes in the log besides its payload, about."""

_CAPACITY_LIMIT: Final = (1 << 31) - 1


def service_session_id_base(service_id: int) -> int:
    """Return the number that the session ids of a service's messages count up from."""
    return _FIRST_BASE + (service_id << _SERVICE_ID_SHIFT)


def service_id_of(session_id: int) -> int:
    """Return which service a negative session id belongs to."""
    return (session_id - _FIRST_BASE) >> _SERVICE_ID_SHIFT


@dataclass(slots=True, frozen=True)
class TrackerState:
    """What a snapshot holds of one service's messages."""

    service_id: int
    next_service_session_id: int
    log_service_session_id: int
    payloads: tuple[bytes, ...] = ()


class PendingServiceMessageTracker:
    """The messages that one service has offered and that are not delivered yet.

    Bound: `limit_bytes` of payloads and what they take in the log besides. An offer beyond it is refused, at the same
    position on every member, because all that counts is what was offered and what was delivered.
    """

    __slots__ = (
        "_appended",
        "_unsent",
        "inherited_count",
        "limit_bytes",
        "log_service_session_id",
        "next_service_session_id",
        "queued_bytes",
        "service_id",
    )

    def __init__(self, service_id: int, *, limit_bytes: int) -> None:
        self.service_id = service_id
        self.limit_bytes = limit_bytes
        self.log_service_session_id = service_session_id_base(service_id)
        """The id of the newest message that was delivered."""
        self.next_service_session_id = self.log_service_session_id + 1
        """The id of the next message that is offered."""
        self.queued_bytes = 0
        self.inherited_count = 0
        """How many of the oldest messages came out of a snapshot of Aeron: other members may have another order."""
        self._appended: deque[bytes] = deque()
        """Leader: what it has appended in this term, oldest first; it comes before what is unsent."""
        self._unsent: deque[bytes] = deque()

    def __repr__(self) -> str:
        return (
            f"<PendingServiceMessageTracker service={self.service_id} next={self.next_service_session_id} "
            f"log={self.log_service_session_id} appended={len(self._appended)} unsent={len(self._unsent)}>"
        )

    def __len__(self) -> int:
        return len(self._appended) + len(self._unsent)

    @property
    def payloads(self) -> tuple[bytes, ...]:
        """Every message that is not delivered, oldest first."""
        return (*self._appended, *self._unsent)

    @property
    def is_sendable(self) -> bool:
        """Leader: whether there is something to append, and room for it on its way."""
        return bool(self._unsent) and len(self._appended) < _IN_FLIGHT_LIMIT

    def check_room(self, lengths: Sequence[int]) -> None:
        """Refuse if messages of these lengths cannot all be taken in.

        Raises:
            BackPressureError: too much is offered and not delivered; the same on every member.
        """
        length = sum(lengths) + len(lengths) * _MESSAGE_OVERHEAD_BYTES
        if self.queued_bytes + length > self.limit_bytes:
            raise BackPressureError(
                f"too many offered bytes are not in the log yet: service_id={self.service_id} messages={len(self)} "
                f"bytes={self.queued_bytes} limit={self.limit_bytes} offered={length}"
            )

    def offer(self, payload: bytes) -> None:
        """Take in a message of the service, unless the log has delivered its id already.

        Raises:
            BackPressureError: as `check_room`.
        """
        self.check_room((len(payload),))
        length = len(payload) + _MESSAGE_OVERHEAD_BYTES
        session_id = self.next_service_session_id
        self.next_service_session_id = session_id + 1
        if session_id > self.log_service_session_id:
            self._unsent.append(payload)
            self.queued_bytes += length

    def take_unsent(self) -> Iterator[tuple[int, bytes]]:
        """Leader: take messages that are to be appended, with their ids, in order."""
        unsent, appended = self._unsent, self._appended
        session_id = self.next_service_session_id - len(unsent)
        for _ in range(min(_TURN_LIMIT, len(unsent), _IN_FLIGHT_LIMIT - len(appended))):
            payload = unsent.popleft()
            appended.append(payload)
            yield session_id, payload
            session_id += 1

    def on_delivered(self, session_id: int, payload: bytes | memoryview) -> str | None:
        """A message of this service is delivered, with an id above all before it; say in what it is not as queued."""
        expected_id = self.log_service_session_id + 1
        self.log_service_session_id = session_id
        problem = None if session_id == expected_id else f"expected_id={expected_id}: messages are missing in the log"
        if session_id >= self.next_service_session_id:
            problem = problem or f"next_id={self.next_service_session_id}: it was not offered here"
        queued = None
        for _ in range(len(self) - max(0, self.next_service_session_id - 1 - session_id)):
            queued = self._remove(0)
        if queued is not None and queued != payload:
            problem = (
                problem
                or f"length={len(payload)} length_here={len(queued)}: another message was offered on this member"
            )
        return problem

    def find(self, payload: bytes | memoryview, count: int) -> int | None:
        """Return the place of a message among the `count` oldest ones; None if it is not there."""
        oldest = islice(chain(self._appended, self._unsent), count)
        return next((index for index, queued in enumerate(oldest) if queued == payload), None)

    def deliver_from(self, holder: PendingServiceMessageTracker, index: int) -> None:
        """The next message of this service is delivered, and the queue of `holder` has it at a place."""
        holder._remove(index)
        holder.next_service_session_id -= 1
        self.log_service_session_id += 1
        self.next_service_session_id += 1

    def _remove(self, index: int) -> bytes:
        if index < self.inherited_count:
            self.inherited_count -= 1
        queue, place = self._appended, index
        if place >= len(queue):
            queue, place = self._unsent, place - len(queue)
        payload = queue[place]
        del queue[place]
        self.queued_bytes -= len(payload) + _MESSAGE_OVERHEAD_BYTES
        return payload

    def roll_back(self) -> None:
        """Leadership is lost: what was appended and not delivered may never be, so it is unsent again."""
        self._unsent.extendleft(reversed(self._appended))
        self._appended.clear()

    def state(self) -> TrackerState:
        """Return what belongs into a snapshot."""
        return TrackerState(
            self.service_id, self.next_service_session_id, self.log_service_session_id, payloads=self.payloads
        )

    def restore(self, state: TrackerState, *, is_order_known: bool = True) -> None:
        """Take over what a snapshot holds."""
        self.inherited_count = 0 if is_order_known else len(state.payloads)
        self.next_service_session_id = state.next_service_session_id
        self.log_service_session_id = state.log_service_session_id
        self._appended.clear()
        self._unsent = deque(state.payloads)
        self.queued_bytes = sum(len(payload) + _MESSAGE_OVERHEAD_BYTES for payload in state.payloads)


class ServiceMessages:
    """The messages of every service of one member."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        config = ctx.config
        self.divergence_count = 0
        """How often the log differed from what this member's service had offered."""
        self.trackers = tuple(
            PendingServiceMessageTracker(service_id, limit_bytes=config.service_queue_limit_bytes)
            for service_id in range(config.service_count)
        )

    def __repr__(self) -> str:
        return f"<ServiceMessages {[*self.trackers]}>"

    # --- every member, in log order

    def offer(self, service_id: int, payload: bytes) -> None:
        """Take in a message of a service.

        Raises:
            BackPressureError: the service has offered too much that is not delivered; the same on every member.
        """
        self.trackers[service_id].offer(payload)

    def on_replay_service_message(self, session_id: ClusterSessionId, payload: bytes | memoryview) -> int | None:
        """A service's message is delivered. Gives the id of that service; None if nobody may be given the message."""
        service_id = service_id_of(session_id)
        if service_id >= len(self.trackers):
            self._diverge(service_id, session_id, f"services={len(self.trackers)}: no such service")
            return None
        tracker = self.trackers[service_id]
        if session_id <= tracker.log_service_session_id:
            self._diverge(service_id, session_id, f"log_id={tracker.log_service_session_id}: delivered before")
            return None
        if self._has_one_queue and self._deliver_from_one_queue(tracker, session_id, payload):
            return service_id
        problem = tracker.on_delivered(session_id, payload)
        if problem is not None:
            self._diverge(service_id, session_id, problem)
        return service_id

    @property
    def _is_log_of_aeron(self) -> bool:
        """Return True if Aeron may have written the log here, with several services: its leaders name no code."""
        return len(self.trackers) > 1 and self._ctx.term_code_digest == UNKNOWN_CODE

    @property
    def _has_one_queue(self) -> bool:
        """Return True if a message may lie where one queue of all services would have it."""
        if len(self.trackers) == 1:
            return False
        return self._is_log_of_aeron or any(tracker.inherited_count for tracker in self.trackers)

    def _deliver_from_one_queue(
        self, tracker: PendingServiceMessageTracker, session_id: int, payload: bytes | memoryview
    ) -> bool:
        """Deliver a message that one queue of all services would have. False: it is not there, and nothing was done."""
        if session_id != tracker.log_service_session_id + 1:
            return False
        others = (other for other in self.trackers if other is not tracker and self._is_log_of_aeron)
        for holder in (tracker, *others):
            index = holder.find(payload, max(1, holder.inherited_count if holder is tracker else 0))
            if index is not None:
                tracker.deliver_from(holder, index)
                return True
        return False

    def _diverge(self, service_id: int, session_id: int, detail: str) -> None:
        """Say so the 1st, 2nd, 4th, 8th time: a service that differs once may differ with every message after it."""
        self.divergence_count += 1
        if self.divergence_count & (self.divergence_count - 1) == 0:
            number = session_id - service_session_id_base(service_id)
            self._ctx.emit(fx.ServiceDiverged(service_id, f"message={number} count={self.divergence_count} {detail}"))

    # --- the leader

    @property
    def is_due(self) -> bool:
        """Whether the leader has something to append, and may."""
        for tracker in self.trackers:
            if tracker.is_sendable:
                return self._has_room()
        return False

    def append(self, publisher: LogPublisher) -> None:
        """Append what was offered, a bounded piece of it."""
        ctx = self._ctx
        for tracker in self.trackers:
            if not tracker.is_sendable or not self._has_room():
                continue
            term_id, timestamp = ctx.leadership_term_id, ctx.stamp()
            for session_id, payload in tracker.take_unsent():
                publisher.append_message(encode_session_message(term_id, session_id, timestamp, payload))
                if not self._has_room():
                    break

    def _has_room(self) -> bool:
        ctx = self._ctx
        return ctx.log_buffer.append_position - ctx.commit_position <= ctx.config.ingress_window_bytes

    def roll_back(self) -> None:
        """This member leads no more, or not yet."""
        for tracker in self.trackers:
            tracker.roll_back()

    # --- snapshots

    def snapshot_messages(self) -> Iterator[wire.PendingMessageTracker | PendingMessage]:
        """Yield what a snapshot holds of this: per service its tracker and what is queued."""
        for tracker in self.trackers:
            state = tracker.state()
            yield wire.PendingMessageTracker(
                next_service_session_id=state.next_service_session_id,
                log_service_session_id=state.log_service_session_id,
                pending_message_capacity=min(tracker.queued_bytes, _CAPACITY_LIMIT),
                service_id=state.service_id,
            )
            first_id = state.next_service_session_id - len(state.payloads)
            for session_id, payload in enumerate(state.payloads, first_id):
                yield PendingMessage(session_id, payload)

    def restore(self, states: Sequence[TrackerState]) -> None:
        """Take over what a snapshot holds."""
        is_order_known = not self._is_log_of_aeron
        for state in states:
            self.trackers[state.service_id].restore(state, is_order_known=is_order_known)


def read_trackers(
    module: wire.ConsensusModuleSnapshot, messages: Sequence[wire.PendingMessageTracker | PendingMessage]
) -> tuple[TrackerState, ...]:
    """Read what a snapshot holds of services' messages; the module's own fields are service 0's, in old snapshots.

    Raises:
        RemoteProtocolError: the ids of the queued messages are not those that the trackers name.
    """
    ids = {0: (module.next_service_session_id, module.log_service_session_id)}
    queues: dict[int, list[PendingMessage]] = {}
    for message in messages:
        if isinstance(message, PendingMessage):
            queues.setdefault(service_id_of(message.session_id), []).append(message)
        else:
            ids[message.service_id] = message.next_service_session_id, message.log_service_session_id
    if negative := sorted(service_id for service_id in ids if service_id < 0):
        raise RemoteProtocolError(f"it holds trackers of no service: service_ids={negative} expected from 0")
    if strange := sorted(queues.keys() - ids.keys()):
        raise RemoteProtocolError(f"it holds messages of services without a tracker: service_ids={strange}")
    return tuple(_read_tracker(service_id, *ids[service_id], queues.get(service_id, ())) for service_id in sorted(ids))


def _read_tracker(service_id: int, next_id: int, log_id: int, queue: Sequence[PendingMessage]) -> TrackerState:
    expected_id = log_id + 1
    for message in queue:
        if message.session_id != expected_id:
            raise RemoteProtocolError(
                f"ids of queued messages are not contiguous: service_id={service_id} "
                f"session_id={message.session_id} expected={expected_id}"
            )
        expected_id += 1
    # A service that has offered less than the log holds, or was never asked, has nothing queued.
    if next_id > expected_id or (queue and next_id != expected_id):
        raise RemoteProtocolError(
            f"queued messages end too early: service_id={service_id} "
            f"next_service_session_id={next_id} expected={expected_id}"
        )
    base = service_session_id_base(service_id)
    return TrackerState(service_id, max(next_id, base + 1), log_id, tuple(message.payload for message in queue))
