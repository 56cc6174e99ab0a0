"""What the service keeps of messages and schedules, and the keys by which it has them in order."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from .cron import parse_cron
from .limits import message_size
from .messages import MessageState, QueueError, QueueSchedule

S_NS: Final = 1_000_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MESSAGE_STATES: Final = {state: bytes([number]) for number, state in enumerate(MessageState)}
PRIORITIES: Final = range(10)


class StoredMessage(msgspec.Struct, frozen=True):
    """A message, and where it stands. Times are cluster time in nanoseconds.

    A Struct is copied with changes in 0.5 us, a frozen dataclass of 14 fields in 9 us.
    """

    queue: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    priority: int
    size_bytes: int
    sent_ns: int
    client: bytes
    """Whose share its bytes are of."""
    state: MessageState = MessageState.READY
    entered_ns: int = 0
    """When it came into its state."""
    due_ns: int = 0
    """When it becomes ready, or its lease ends; 0 if it is neither delayed nor leased."""
    delivery_count: int = 0
    receipt: int = 0
    """Of the lease; 0 if it is not leased."""
    receiver: bytes = b""
    """The client whose share the newest lease is of; empty before the first one."""
    reason: str = ""
    """Of the last delivery that failed."""


class StoredSchedule(msgspec.Struct, frozen=True):
    """What is sent, and when."""

    queue: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    priority: int
    cron: str
    next_ns: int
    client: bytes
    """Whose share its bytes are of, and those of the messages that it sends."""
    fired_count: int = 0
    refused_count: int = 0


def number_key(number: int) -> bytes:
    """Write a number so that keys are in the order of numbers."""
    return number.to_bytes(8, "big")


def queue_prefix(queue: str) -> bytes:
    """Return what the places of a queue begin with: no other queue has it."""
    name = queue.encode()
    return len(name).to_bytes(2, "big") + name


def queue_place(message_id: int, message: StoredMessage) -> bytes:
    """Where a message is among all: by queue, state, priority and id; dead ones by id alone."""
    rank = 0 if message.state is MessageState.DEAD else PRIORITIES[-1] - message.priority
    return queue_prefix(message.queue) + MESSAGE_STATES[message.state] + bytes([rank]) + number_key(message_id)


def due_key(due_ns: int, kind: bytes, rest: bytes) -> bytes:
    """Write what is due so that the earliest is first: 8 bytes of time, one of kind, and what it is."""
    return number_key(due_ns) + kind + rest


def pair_key(queue: str, key: str) -> bytes:
    """Write a queue and a key of its messages."""
    return queue_prefix(queue) + key.encode()


def split_pair(data: bytes) -> tuple[str, str]:
    """Read what `pair_key` has written."""
    end = 2 + int.from_bytes(data[:2], "big")
    return data[2:end].decode(), data[end:].decode()


def next_time_ns(cron: str, after_ns: int) -> int:
    """Return when a cron line fires next, in cluster time; QueueError if it means no time."""
    try:
        found = parse_cron(cron).next_after(EPOCH + timedelta(microseconds=after_ns // 1_000))
    except ValueError as error:
        raise QueueError(str(error)) from error
    return (found - EPOCH) // timedelta(microseconds=1) * 1_000


def schedule_size(schedule: StoredSchedule) -> int:
    """Return what a schedule counts, in bytes: as much as a message that it sends."""
    return message_size(schedule.body, dict(schedule.headers), schedule.priority, "")


def show_schedule(name: str, stored: StoredSchedule) -> QueueSchedule:
    """Return a schedule as clients see it."""
    return QueueSchedule(
        name,
        stored.queue,
        stored.body,
        dict(stored.headers),
        stored.priority,
        stored.cron,
        stored.next_ns / S_NS,
        stored.fired_count,
        stored.refused_count,
    )
