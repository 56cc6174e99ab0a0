"""What the clients of the queues share, with asyncio and without."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from ...service_api.errors import LocalProtocolError
from ...service_api.ready_made.queue import ReceivedMessage, ScheduleMessages, SendMessage

QUEUE_POLL_S: Final = 1.0
"""How often a client that waits asks whether something is ready; also how soon a worker notices that it is to stop."""
CONSUME_WAIT_S: Final = 60.0
QUEUE_PAGE: Final = 100
PURGE_PAGES: Final = 100_000
# A session belongs to one process, so no two waiters of a session have one number.
WAITER_NUMBERS: Final = itertools.count(1)


class LeasedJob:
    """A message that is leased, whichever client has it."""

    def __init__(self, message: ReceivedMessage, lease_s: float) -> None:
        self.message = message
        self.lease_s = lease_s

    def __repr__(self) -> str:
        message = self.message
        return f"<{type(self).__name__} {message.queue} id={message.message_id} delivery={message.delivery_count}>"

    @property
    def id(self) -> int:
        """Of the message: the same for each delivery."""
        return self.message.message_id

    @property
    def body(self) -> bytes:
        """What was sent."""
        return self.message.body

    @property
    def headers(self) -> dict[str, str]:
        """What was sent beside it."""
        return self.message.headers

    @property
    def delivery_count(self) -> int:
        """Which delivery this is, from 1."""
        return self.message.delivery_count


def make_send(
    queue: str, body: str | bytes, delay_s: float, priority: int, key: str, headers: Mapping[str, str] | None
) -> SendMessage:
    """Make the command of `send`."""
    return SendMessage(queue, _bytes(body), delay_s, priority, key, dict(headers or {}))


def make_schedule(
    name: str,
    queue: str,
    body: str | bytes,
    cron: str,
    at: datetime | None,
    priority: int,
    headers: Mapping[str, str] | None,
) -> ScheduleMessages:
    """Make the command of `schedule`."""
    if at is not None and at.tzinfo is None:
        raise LocalProtocolError(f"at={at.isoformat()} has no time zone, expected one, such as datetime.UTC")
    at_s = None if at is None else at.astimezone(UTC).timestamp()
    return ScheduleMessages(name, queue, _bytes(body), cron, at_s, priority, dict(headers or {}))


def _bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body
