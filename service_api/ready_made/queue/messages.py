"""What the queues are told and asked."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from ...typed import Command, Event, Query, Reply, ServiceError

QUEUE_NAME_LIMIT_BYTES: Final = 256
"""Of the name of a queue or schedule, in UTF-8."""
DEDUPLICATION_KEY_LIMIT_BYTES: Final = 512
BODY_LIMIT_BYTES: Final = 1 << 20
HEADER_LIMIT: Final = 32
HEADERS_LIMIT_BYTES: Final = 8_192
"""Names and values of all headers of a message, in UTF-8."""
PRIORITY_LIMIT: Final = 9
DEFAULT_LEASE_S: Final = 30.0
QUEUE_PAGE_LIMIT: Final = 1_000
"""Messages that one command receives or removes, and entries of a list."""


class QueueError(ServiceError):
    """An argument is wrong, or a limit is reached; the text names it, what it was and what was expected."""

    reason: str


class QueueFullError(ServiceError):
    """The queue, or the service, takes no more messages; nothing was sent. Messages that are dead count, too."""

    queue: str
    message_count: int
    size_bytes: int
    limit: str
    """Which limit is reached, and what it is."""


class StaleReceiptError(ServiceError):
    """The receipt is of no lease: it has ended, or the message was acknowledged. Another may have the message."""

    receipt: int


class MessageState(StrEnum):
    """Where a message of a queue stands."""

    READY = "ready"
    DELAYED = "delayed"
    """It becomes ready by itself: it was sent so, or a delivery has failed."""
    LEASED = "leased"
    DEAD = "dead"


class QueueSettings(Reply):
    """How a queue works. A queue that was not defined has the defaults."""

    max_deliveries: int = 5
    """A message whose delivery fails so often is dead."""
    backoff_s: float = 1.0
    """How long a message is delayed when its first delivery has failed; then twice as long each time."""
    backoff_limit_s: float = 300.0
    message_limit: int = 100_000
    size_limit_bytes: int = 256 << 20
    """Bodies, headers and keys of the messages in the queue, and 256 bytes for each."""
    key_window_s: float = 300.0
    """How long the key of a message is remembered, from when it was sent."""


class QueueDefinition(Reply):
    """A queue, and how it works."""

    name: str
    settings: QueueSettings


class DefineQueue(Command[QueueDefinition]):
    """Define a queue, or change it. What is in it stays."""

    name: str
    settings: QueueSettings


class DeleteQueue(Command[bool]):
    """Forget how a queue works; it must be empty. False if it was not defined."""

    name: str


class SentMessage(Reply):
    """A message that is in a queue, or was."""

    message_id: int
    is_duplicate: bool
    """Whether a message with this key was sent before: it is that one, and nothing was sent."""


class SendMessage(Command[SentMessage]):
    """Put a message into a queue."""

    queue: str
    body: bytes
    delay_s: float = 0.0
    priority: int = 0
    """0 to 9; greater ones are received first."""
    key: str = ""
    """A second message with this key is not sent, within the queue's `key_window_s`; empty: each is sent."""
    headers: dict[str, str] = field(default_factory=dict)


class ReceivedMessage(Reply):
    """A message that is leased to who has received it."""

    queue: str
    message_id: int
    receipt: int
    """Of this delivery: what `AckMessage` and the others take."""
    body: bytes
    headers: dict[str, str]
    priority: int
    delivery_count: int
    """Which delivery it is, from 1."""
    sent_at_s: float
    """Cluster time in seconds since 1970."""


class ReceiveMessages(Command[list[ReceivedMessage]]):
    """Lease messages that are ready: by priority, then in the order in which they were sent."""

    queue: str
    limit: int = 1
    """How many at most."""
    lease_s: float = DEFAULT_LEASE_S
    is_with_session: bool = False
    """Whether the leases end with the session, too."""
    waiter: int | None = None
    """If nothing is ready, a `QueueReady` with this number is sent once when something is. It replaces the waiter
    of this number, which ends in any case when something is received."""


class EndWaiter(Command[bool]):
    """Send no `QueueReady` with this number; False if there is no such waiter."""

    waiter: int


class QueueReady(Event):
    """A message is ready for a waiter; another may receive it first."""

    waiter: int


class WaiterState(Reply):
    """How a waiter stands."""

    is_waiting: bool
    """False once it was sent its event, which may be lost."""
    ready_count: int
    """Messages that are ready in its queue."""


class ReadWaiter(Query[WaiterState]):
    """Ask how a waiter stands: of a session, by its number."""

    session_id: int
    waiter: int
    queue: str


class AckMessage(Command[bool]):
    """The message of a receipt is done: remove it."""

    receipt: int


class NackMessage(Command[MessageState]):
    """The delivery of a receipt has failed: the message is delayed, or dead. Gives its state."""

    receipt: int
    delay_s: float | None = None
    """None: the queue's back-off."""
    reason: str = ""
    """Why; kept with the message, at most 1,000 characters."""
    is_counted: bool = True
    """False gives the message back as if it had not been delivered."""


class ExtendLease(Command[float]):
    """Have the lease of a receipt end so many seconds from now; gives when, in cluster time as seconds since 1970."""

    receipt: int
    lease_s: float = DEFAULT_LEASE_S


class DeadMessage(Reply):
    """A message that is dead."""

    message_id: int
    body: bytes
    headers: dict[str, str]
    priority: int
    delivery_count: int
    sent_at_s: float
    died_at_s: float
    reason: str
    """Of the last failure."""


class ListDeadMessages(Query[list[DeadMessage]]):
    """List dead messages by id, those after one: at most `limit`, and 1,000, and not much more than 1 MiB."""

    queue: str
    after: int = 0
    limit: int = 100


class ReviveMessage(Command[bool]):
    """Make a dead message ready, as if it had not been delivered; False if there is none of this id."""

    queue: str
    message_id: int


class PurgeMessages(Command[int]):
    """Remove messages that are in a state, at most 1,000; gives how many. Leased ones cannot be purged."""

    queue: str
    state: MessageState


class QueueStats(Reply):
    """What is in a queue."""

    name: str
    ready: int
    delayed: int
    leased: int
    dead: int
    size_bytes: int
    oldest_ready_age_s: float
    """How long ago the oldest message that is ready was sent; 0 if none is."""
    waiters: int


class ReadQueueStats(Query[QueueStats]):
    """Ask what is in a queue; one that nobody has used is empty."""

    name: str


class ListQueues(Query[list[QueueStats]]):
    """List queues that are defined or not empty, by name, those after one: at most `limit`, and 1,000."""

    prefix: str = ""
    after: str = ""
    limit: int = 100


class ReadQueueSettings(Query[QueueSettings]):
    """Ask how a queue works."""

    name: str


class QueueSchedule(Reply):
    """A schedule, and what it has done."""

    name: str
    queue: str
    body: bytes
    headers: dict[str, str]
    priority: int
    cron: str
    """Empty: it fires once."""
    next_at_s: float
    """Cluster time in seconds since 1970."""
    fired_count: int
    refused_count: int
    """How often the queue was full, and nothing was sent."""


class ScheduleMessages(Command[QueueSchedule]):
    """Have a message sent at the times of a cron line, or once. A schedule of this name is replaced."""

    name: str
    queue: str
    body: bytes
    cron: str = ""
    """Five fields, in UTC; see `cron`."""
    at_s: float | None = None
    """Once: cluster time in seconds since 1970; what is past is at once."""
    priority: int = 0
    headers: dict[str, str] = field(default_factory=dict)


class DeleteSchedule(Command[bool]):
    """Forget a schedule; False if there is none."""

    name: str


class ListSchedules(Query[list[QueueSchedule]]):
    """List schedules by name, those after one: at most `limit`, and 1,000."""

    after: str = ""
    limit: int = 100
