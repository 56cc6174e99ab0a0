"""What a handler works with beside its message: time, who asks, and what is to follow.

What a handler asks for, to send or to schedule, is done when it has returned. One that raises has asked for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, Protocol
from uuid import UUID

from ..cluster import Cluster, ServiceLogger
from ..errors import LocalProtocolError
from ..outbox.effects import BEGINNING, EffectKey
from ..session import ClientSession
from ..types import ClusterSessionId, TimeUnit
from ..wire.topics import SCHEMA_TOPIC
from .handler_cluster import HandlerCluster, HandlerSession, checked_payload
from .messages import Effect, Event, TimerMessage

_NS: Final = {TimeUnit.MILLIS: 1_000_000, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1}
_DEADLINE_LIMIT: Final = 1 << 63
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class MessageKeeper(Protocol):
    """What keeps effects and the messages of timers, and knows the events: the service."""

    def encode_event(self, event: Event) -> bytes:
        """Write an event."""

    def announce_event(self, event: Event) -> bytes | None:
        """Give what tells the log by which schema an event of this class is written; None if the log has it."""

    def keep_timer(self, timer: TimerMessage) -> int:
        """Keep a timer's message until it fires; gives its id."""

    def drop_timer(self, timer_id: int) -> bool:
        """Forget a timer; False if there is none."""

    def keep_effect(self, effect: Effect) -> EffectKey:
        """Keep an effect in the outbox that takes it; gives its key."""


class Context:
    """The log entry that is handled. It is the same on every member, and valid until the handler returns."""

    def __init__(self, service: MessageKeeper, cluster: Cluster) -> None:
        self._service = service
        self._cluster = cluster
        self._session: ClientSession | None = None
        self.calls: list[Callable[[], object]] = []
        """What `perform` does when the handler has returned."""
        self._logged_bytes: list[int] = []
        """The lengths of the messages among these that go into the log."""
        self._newest_effect = BEGINNING
        self._handler_cluster: Any = HandlerCluster(self, cluster)  # Any: it hands on what it does not have
        self._random: Random | None = None
        self._is_query = False
        self.payload_limit_bytes: Final = cluster.payload_limit_bytes
        """The longest reply, answer or event, in bytes, header included: `Cluster.payload_limit_bytes`."""

    def __repr__(self) -> str:
        return f"<Context position={self.position}>"

    def begin(self, session: ClientSession | None, *, is_query: bool = False) -> None:
        """Make ready for the next entry, or for a query."""
        self._session, self._is_query, self._random = session, is_query, None
        if self.calls:
            self.calls, self._logged_bytes = [], []

    def perform(self) -> None:
        """Do what the handler has asked for: all of it, or nothing.

        Raises:
            BackPressureError: there is no room in the log for all its messages.
        """
        if self._logged_bytes:
            self._cluster.check_room(self._logged_bytes)
        calls, self.calls, self._logged_bytes = self.calls, [], []
        for call in calls:
            call()

    def defer(self, name: str, call: Callable[[], object], *, logged_bytes: int | None = None) -> None:
        """Have something done when the handler has returned; of a message for the log, say its length.

        Raises:
            LocalProtocolError: a query is answered.
        """
        self._check_logged(name)
        self.calls.append(call)
        if logged_bytes is not None:
            self._logged_bytes.append(logged_bytes)

    def make_effect_key(self) -> EffectKey:
        """Return the key of the next effect of the entry, whichever outbox it is in.

        Raises:
            LocalProtocolError: a query is answered.
        """
        self._check_logged("effect")
        position, newest = self.position, self._newest_effect
        number = newest.number + 1 if newest.log_position == position else 0
        self._newest_effect = EffectKey(position, number)
        return self._newest_effect

    # --- time and place

    @property
    def position(self) -> int:
        """The log position behind the entry, in bytes: it grows from entry to entry."""
        return self._cluster.log_position

    @property
    def time_ns(self) -> int:
        """Cluster time of the entry in nanoseconds since 1970. It never goes backwards."""
        return self._cluster.time * _NS[self._cluster.time_unit]

    @property
    def now(self) -> datetime:
        """Cluster time of the entry, in UTC: the same on every member, and when the entry is replayed."""
        return _EPOCH + timedelta(microseconds=self.time_ns // 1_000)

    @property
    def logger(self) -> ServiceLogger:
        """Writes log lines, each on one member and not again at a replay: `Cluster.logger`."""
        return self._cluster.logger

    @property
    def cluster(self) -> Cluster:
        """What an untyped service works with; what a handler sends by it waits until the handler has returned."""
        cluster: Cluster = self._handler_cluster
        return cluster

    @property
    def random(self) -> Random:
        """Random numbers that every member draws equally: of the position alone, so nobody may count on them as secret.

        Raises:
            LocalProtocolError: a query is answered, which is not in the log.
        """
        self._check_logged("random")
        if self._random is None:
            self._random = Random(f"{self.position} {self._cluster.time}")
        return self._random

    def uuid(self) -> UUID:
        """Draw a UUID of version 4, the same on every member."""
        return UUID(int=self.random.getrandbits(128), version=4)

    # --- who asks

    @property
    def session(self) -> ClientSession:
        """The session that sent the message.

        Raises:
            LocalProtocolError: a timer or a query is handled, which has none.
        """
        if self._session is None:
            raise LocalProtocolError("session: a timer and a query have none")
        return HandlerSession(self, self._session)

    @property
    def principal(self) -> bytes:
        """Who the client is, as its authenticator said; empty without authentication."""
        return self.session.encoded_principal

    # --- what is to follow

    def send(self, event: Event, *to: ClientSession | int) -> None:
        """Send an event to sessions, by themselves or their ids; to the one that sent the message where none is named.

        At most once: what a leader had sent and did not reach its client when it died, the next one does not send.

        Raises:
            LocalProtocolError: the service does not declare this event, or a query is answered.
        """
        self._check_logged("send")
        payload = checked_payload(self._service.encode_event(event), self.payload_limit_bytes)
        sessions = self._cluster.client_sessions
        for one in to or (self.session,):
            session = sessions.get(ClusterSessionId(one if isinstance(one, int) else one.id))
            if session is not None and not session.is_closing:
                self.calls.append(lambda session=session: session.offer(payload))  # type: ignore[misc]

    def broadcast(self, event: Event) -> None:
        """Send an event to every open session."""
        self._check_logged("broadcast")
        sessions = self._cluster.client_sessions
        if sessions:
            self.send(event, *sessions)

    def publish(self, topic: str, event: Event) -> None:
        """Publish an event to a topic, for subscribers outside the cluster: durable, and once; `Cluster.publish`.

        Before the first event of a class, its schema is published to `SCHEMA_TOPIC`: the log says how it is read.

        Raises:
            LocalProtocolError: the service does not declare this event, or a query is answered; or the topic's name; or
                the event is too long.
        """
        self._check_logged("publish")
        payload = self._service.encode_event(event)
        announcement = self._service.announce_event(event)
        if announcement is not None:
            self._handler_cluster.publish(SCHEMA_TOPIC, announcement)
        self._handler_cluster.publish(topic, payload)

    def effect(self, effect: Effect) -> EffectKey:
        """Have something done outside the cluster, by a worker: durable, and at least once; gives its key.

        It goes to the outbox that is declared for its class.

        Raises:
            LocalProtocolError: no outbox takes it, or several do, or it is too long; or a query is answered.
            BackPressureError: the outbox is full: no worker does what is in it.
        """
        self._check_logged("effect")
        return self._service.keep_effect(effect)

    def close_session(self) -> None:
        """Have the session closed that sent the message."""
        self.session.close()

    def schedule(
        self, message: TimerMessage, *, after: timedelta | float | None = None, at: datetime | None = None
    ) -> int:
        """Have the service's `on_timer` method called with a message, after some seconds or at a time; gives an id.

        Timers are in snapshots. One that is late, because there was no leader, fires as soon as there is one.

        Raises:
            LocalProtocolError: neither or both times are given, no method takes it, or a query is answered.
        """
        self._check_logged("schedule")
        if (after is None) == (at is None):
            raise LocalProtocolError("schedule: expected either after=seconds or at=datetime")
        if at is not None:
            if at.tzinfo is None:
                raise LocalProtocolError(f"schedule: at={at} has no time zone; expected one, such as datetime.UTC")
            deadline_ns = (at - _EPOCH) // timedelta(microseconds=1) * 1_000
        else:
            assert after is not None
            delay = after if isinstance(after, timedelta) else timedelta(seconds=after)
            deadline_ns = self.time_ns + delay // timedelta(microseconds=1) * 1_000
        deadline = -(-deadline_ns // _NS[self._cluster.time_unit])
        if not -_DEADLINE_LIMIT <= deadline < _DEADLINE_LIMIT:
            raise LocalProtocolError(
                f"schedule: deadline={deadline} expected a number of 64 bits: after={after} at={at}"
            )
        timer_id = self._service.keep_timer(message)
        self.calls.append(lambda: self._cluster.schedule_timer(timer_id, deadline))
        return timer_id

    def cancel(self, timer_id: int) -> bool:
        """Drop a timer; False if it has fired, or there is none."""
        self._check_logged("cancel")
        if not self._service.drop_timer(timer_id):
            return False
        self.calls.append(lambda: self._cluster.cancel_timer(timer_id))
        return True

    def _check_logged(self, what: str) -> None:
        if self._is_query:
            raise LocalProtocolError(f"{what}: a query is not in the log, and nothing may follow from it")
