"""The outputs of a service while the log is delivered to it: egress, timers, offers, and what a follower drops.

Each output says at which log position it was made: the end of the entry that was being delivered, as
`Cluster.log_position` says it. Ids are those of the log, so that outputs can be held against the log's entries.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple


class OutputKind(StrEnum):
    """What a service did."""

    MESSAGE = "message"
    """`ClientSession.offer`: a message to a client."""
    REPLY = "reply"
    """What `on_request` returned, or the error it raised; also a kept reply that is sent once more."""
    OFFER = "offer"
    """`Cluster.offer`: a message to all services, through the log."""
    TIMER_SCHEDULED = "timer_scheduled"
    TIMER_CANCELLED = "timer_cancelled"
    """A timer that was set; to cancel one that is not does nothing."""
    SESSION_CLOSE = "session_close"
    """`ClientSession.close`: asked once for each session."""
    ERROR = "error"
    """A callback raised; the payload is the type of the exception and its text."""


class Output(NamedTuple):
    """One thing that a service gave out. Values that its kind has not are None, or empty."""

    position: int
    """The end of the log entry that was being delivered, in bytes."""
    timestamp: int
    """Cluster time of that entry, in the log's unit."""
    kind: OutputKind
    cluster_session_id: int | None = None
    """The client's; of an offer the id that its message has in the log, which is negative."""
    correlation_id: int | None = None
    """Of a timer its id in the log, of a reply the sequence of its request."""
    code: int | None = None
    """Of a reply: 0, or why there is none; see `RequestCode`."""
    deadline: int | None = None
    """Of a timer that is scheduled, in the log's unit."""
    payload: bytes = b""


Sink = Callable[[Output], None]
"""Who is told of each output, in order. `list.append` keeps them all: mind the memory."""


class CallbackFailure(NamedTuple):
    """A callback that raised while the log was delivered; a member logs it and goes on, and so does a replay."""

    position: int
    timestamp: int
    service: str
    """The class of the service."""
    error: str
    """The type of the exception, and its text."""
    traceback: str
