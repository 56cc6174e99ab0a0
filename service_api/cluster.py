"""What the framework hands to a service: its view of the cluster, and where snapshots come from and go to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from .groups.group import Group
from .session import ClientSession
from .types import ClusterSessionId, MemberId, Role, TimeUnit

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID


class Cluster(Protocol):
    """The cluster as one service sees it, at the log position of the callback that runs.

    What sends something, `offer`, `publish`, `schedule_timer`, `cancel_timer`, `close_client_session` and what a
    `ClientSession` offers, is legal in log-ordered callbacks only: `on_session_*`, `on_service_message`,
    `on_timer_event` and `on_new_leadership_term_event`. Anywhere else members would differ, so it raises at once.

    Source: Aeron `Cluster`.
    """

    @property
    def member_id(self) -> MemberId:
        """The id of the member this service runs in. Replicated state must not depend on it."""

    @property
    def service_id(self) -> int:
        """The id of this service among those of a node: 0 where a node runs one."""

    @property
    def role(self) -> Role:
        """FOLLOWER, or LEADER from the beginning of a term that this member leads. Never CANDIDATE.

        While old entries are replayed it is FOLLOWER, on the next leader too. Replicated state must not depend on it.
        """

    @property
    def is_replaying(self) -> bool:
        """Whether the entries that come were in the log before the member took part in the current term.

        True in `on_start` and for each entry that the member's log held when its last election ended: it is replayed,
        copied from another member, or left over from an earlier term. Replicated state must not depend on it. A
        service that acts outside the cluster, "only as leader", looks at `role`.
        """

    @property
    def time(self) -> int:
        """Cluster time of the log entry being processed, in `time_unit`. It never goes backwards."""

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of `time` and of every timestamp and deadline."""

    @property
    def group(self) -> Group:
        """Which of the cluster's groups this one is: its index and how many there are; one of one without groups.

        It never changes, so replicated state may depend on it. Refuse a key of another group:

            self.cluster.group.check_key(account_id)
        """

    @property
    def log_position(self) -> int:
        """The end of the log entry being processed, in bytes."""

    @property
    def feature_level(self) -> int:
        """Which behaviour the service has to have at the entry being processed; 0 until an operator raises it.

        It never falls, and is never above what the services of any member declare (`ClusteredService.feature_level`).
        It rises at one entry of the log, so it is the same on every member and in every replay of the entry:

            if self.cluster.feature_level >= 2:
                ...  # what entries do since then; those before do in a replay what they did
        """

    @property
    def payload_limit_bytes(self) -> int:
        """The longest reply, answer to a query, message to a session, event or message to the services, in bytes.

        It depends on the log's term length alone, so it is the same on every member and in every replay. A list that
        may be longer is answered page by page.
        """

    @property
    def client_sessions(self) -> Mapping[ClusterSessionId, ClientSession]:
        """The open client sessions by id, in ascending order of id; the same on every member."""

    @property
    def random(self) -> Random:
        """Random numbers that are the same on every member and in every replay.

        The generator starts again at each log entry, with a seed made of the entry's position, its time and the
        service's id, so there is nothing of it to put into a snapshot. You may keep the object. The numbers are no
        secret: who knows the log can compute them. To draw is legal where `offer` is; `seed` and `setstate` are
        refused.

            winner = self.cluster.random.choice(sorted(self.tickets))
        """

    def uuid(self) -> UUID:
        """Return a UUID drawn from `random`: the same on every member, and no other call of this cluster gives it.

        Raises:
            LocalProtocolError: the call is not legal in this callback.
        """

    @property
    def logger(self) -> ServiceLogger:
        """A logger that speaks once: on the leader, and not when old entries are replayed.

        self.cluster.logger.info("order.filled", order_id=order_id)
        """

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        """Ask for a client session to be closed, as `ClientSession.close` does; False if there is no such session.

        Raises:
            LocalProtocolError: the call is not legal in this callback.
        """

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Ask for `on_timer_event(correlation_id)` once cluster time reaches `deadline`, in `time_unit`.

        The same id again moves the deadline; a deadline in the past fires at once. An event that is in the log already
        still comes, and takes the timer of that id along. Every service of a node has ids of its own: any 64-bit number
        where there is one service, 0 to 2^56 - 1 where there are several.

        Raises:
            LocalProtocolError: the id or the deadline is out of range, or the call is not legal in this callback.
        """

    def cancel_timer(self, correlation_id: int) -> bool:
        """Drop a timer; False if there is none. An event already in the log still comes.

        Raises:
            LocalProtocolError: the id is out of range, or the call is not legal in this callback.
        """

    def offer(self, payload: bytes | bytearray | memoryview) -> None:
        """Send a message through the log to every service of the cluster's members: `on_service_message` follows.

        Offer on every member, whatever its role: all of them keep the message, one of them appends it, and it is
        delivered once, after every message that this service offered before, also when leaders fail and members start
        again. So what is offered must depend on replicated state alone.

        Raises:
            BackPressureError: so much of this service is offered and not delivered that there is no room, by the
                setting `service_queue_limit_bytes`; raised at the same position on every member.
            LocalProtocolError: the payload is larger than the log's largest message, or the call is not legal in this
                callback.
        """

    def check_room(self, lengths: Sequence[int]) -> None:
        """Make sure that messages of these lengths, in bytes, can all be offered or published by this callback now.

        The length of an event counts with its topic: `encode_topic_message`. A typed service asks before it sends what
        a handler wants sent, so that it sends all or nothing.

        Raises:
            BackPressureError: as for `offer`.
            LocalProtocolError: the call is not legal in this callback.
        """

    def publish(self, topic: str, payload: bytes | bytearray | memoryview) -> None:
        """Publish an event to a topic, for subscribers outside the cluster: `subscribe(topics=[...])`.

        It is a message in the log, as that of `offer`: publish on every member; it stands in the log once, after what
        this service offered and published before. It is delivered to no service.

        Raises:
            BackPressureError: as for `offer`.
            LocalProtocolError: the topic is no text of 1 to 255 bytes that can be printed; or as for `offer`.
        """


class ServiceLogger(Protocol):
    """The log lines of a service, as an event and fields.

    A line is written by the leader, at an entry that is new to it. A follower writes none, and neither does a member
    that replays. So each line stands in the logs of the cluster once; it is missing where the leader failed at that
    entry. Each line has `service_id` and `log_position`.
    """

    def bind(self, **fields: object) -> ServiceLogger:
        """Return a logger that adds these fields to each line."""

    def debug(self, event: str, **fields: object) -> None:
        """Write a line of level debug."""

    def info(self, event: str, **fields: object) -> None:
        """Write a line of level info."""

    def warning(self, event: str, **fields: object) -> None:
        """Write a line of level warning."""

    def error(self, event: str, **fields: object) -> None:
        """Write a line of level error."""


class SnapshotImage(Protocol):
    """A snapshot to load: the messages the service once wrote, in order.

    A second loop over it goes on where the first one stopped, so a service and its base can each read their own part.
    """

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class SnapshotPublication(Protocol):
    """Where a service writes its snapshot, message by message."""

    async def offer(self, message: bytes | bytearray | memoryview) -> None:
        """Append one message of the service's own making to the snapshot, waiting for room."""
