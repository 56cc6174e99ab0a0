"""Who sends how much: the rates of the sessions' messages, and one log line where they are too many.

A client that floods makes all others wait, and nobody sees which it is. The leader's publisher counts what it appends,
a run of messages at a time, by session (`LogPublisher.ingress_counts`). Once a second the counts of that second are put
by here, unread; they are added up only where somebody asks, or where a line is due. So a chunk costs one addition to a
table, and a session that is silent costs nothing.

Bounds: the counts of `_WINDOW_SECONDS`, and in each second an entry for each session that sent something. A line of
each kind in `LINE_INTERVAL_NS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Self

import structlog

from ....service_api.access.line_limiter import LineLimiter
from ....service_api.documents.document import printable_line
from ....service_api.types import ClusterSessionId
from ....service_api.wire.session_frame import session_of_prefix
from ...core.log.log_publisher import IngressCounts, LogPublisher
from ...core.sessions.sessions import ClusterSession

LINE_INTERVAL_NS: Final = 60_000_000_000
"""Between two lines about a full window, and between two about the log's rate."""
JUMP_FACTOR: Final = 4
"""The log's rate jumps where a second brings so many times what is usual."""
JUMP_BYTES_PER_S: Final = 8 << 20
"""A lower rate is no jump, whatever is usual."""

CLIENT_INFO_LIMIT: Final = 80
"""So many characters are shown of how a client calls itself."""

_WINDOW_SECONDS: Final = 5
_USUAL_SECONDS: Final = 30
"""A change of the rate is usual after about so long."""
_NS_PER_S: Final = 1_000_000_000

logger = structlog.get_logger()


class SessionClient(NamedTuple):
    """The known facts about the client of a session, as lines for people."""

    principal: str
    address: str
    """`-` where it is not known: the log does not hold it."""
    client_info: str
    """How it calls itself; empty on a member that did not open its session."""
    client_version: str
    """The version of its protocol; empty where that is not known."""

    @classmethod
    def of(cls, session: ClusterSession, address: str) -> Self:
        """Describe the client of a session, which comes from an address."""
        version = session.client_version
        return cls(
            principal=printable_line(session.encoded_principal.decode(errors="replace")),
            address=printable_line(address),
            client_info=printable_line(session.client_info[:CLIENT_INFO_LIMIT]),
            client_version=f"{version >> 16}.{version >> 8 & 255}.{version & 255}" if version else "",
        )


class SessionRate(NamedTuple):
    """How much a session has sent, in a second of the last few."""

    messages_per_s: float
    bytes_per_s: float
    """Bytes of the log, so with frame headers and padding."""


SILENT: Final = SessionRate(0.0, 0.0)


class _Second(NamedTuple):
    """The messages appended in about one second."""

    duration_ns: int
    counts: IngressCounts


class SessionTraffic:
    """The rates of sessions on a member that leads; elsewhere there are none."""

    def __init__(self, find_publisher: Callable[[], LogPublisher | None], monotonic_ns: Callable[[], int]) -> None:
        self._find_publisher = find_publisher
        self._monotonic_ns = monotonic_ns
        self.find_client: Callable[[ClusterSessionId], SessionClient | None] = lambda session_id: None
        """Finds the client of a session that is open."""
        self._lines = LineLimiter[str](interval_ns=LINE_INTERVAL_NS)
        self._seconds: deque[_Second] = deque(maxlen=_WINDOW_SECONDS)
        self._publisher: LogPublisher | None = None
        """Whose messages these are."""
        self._looked_ns = 0
        self._looked_position = 0
        self._usual_bytes_per_s = 0.0

    def __repr__(self) -> str:
        return f"<SessionTraffic seconds={len(self._seconds)} usual_bytes_per_s={self._usual_bytes_per_s:.0f}>"

    def look(self) -> None:
        """Put the counts of this second by; to be called once a second."""
        publisher, now_ns = self._find_publisher(), self._monotonic_ns()
        if publisher is None:
            self._publisher = None
            self._seconds.clear()
            return
        if publisher is not self._publisher:
            self._begin(publisher, now_ns)
            return
        position, duration_ns = publisher.log_buffer.append_position, now_ns - self._looked_ns
        if duration_ns <= 0:
            return
        self._seconds.append(_Second(duration_ns, publisher.take_counts()))
        bytes_per_s = (position - self._looked_position) * _NS_PER_S / duration_ns
        self._looked_ns, self._looked_position = now_ns, position
        usual = self._usual_bytes_per_s
        self._usual_bytes_per_s += (bytes_per_s - usual) / _USUAL_SECONDS
        if bytes_per_s >= max(JUMP_BYTES_PER_S, JUMP_FACTOR * usual):
            self._tell(logger.info, "ingress.rate_jumped", log_bytes_per_s=round(bytes_per_s), usual=round(usual))

    def on_window_filled(self) -> None:
        """Say which session sends the most: clients are not read, because the window is full."""
        self._tell(logger.warning, "ingress.window_filled")

    def find_rates(self) -> dict[ClusterSessionId, SessionRate]:
        """Return the rates of the sessions that sent something in the last seconds.

        It is empty where this member does not lead.
        """
        seconds = self._find_seconds()
        duration_s = _duration_s(seconds)
        messages: dict[ClusterSessionId, int] = {}
        sizes: dict[ClusterSessionId, int] = {}
        for second in seconds:
            for length, counts in second.counts:
                for prefix, count in counts.items():
                    session_id = session_of_prefix(prefix)
                    messages[session_id] = messages.get(session_id, 0) + count
                    sizes[session_id] = sizes.get(session_id, 0) + count * length
        return {
            session_id: SessionRate(round(count / duration_s, 1), round(sizes[session_id] / duration_s, 1))
            for session_id, count in messages.items()
        }

    def find_total(self) -> float | None:
        """Return the messages of all sessions in a second, over the last few; None where this member does not lead."""
        seconds = self._find_seconds()
        if not seconds:
            return None
        count = sum(sum(counts.values()) for second in seconds for _, counts in second.counts)
        return round(count / _duration_s(seconds), 1)

    def _find_seconds(self) -> list[_Second]:
        """Return what was counted in the last seconds and since; empty where this member does not lead."""
        publisher = self._find_publisher()
        if publisher is None:
            return []
        now = _Second(0, publisher.ingress_counts)
        if publisher is not self._publisher:
            return [now]
        return [*self._seconds, now._replace(duration_ns=max(0, self._monotonic_ns() - self._looked_ns))]

    def _begin(self, publisher: LogPublisher, now_ns: int) -> None:
        """Begin with a term that this member leads."""
        self._publisher = publisher
        self._seconds.clear()
        publisher.take_counts()
        self._looked_ns, self._looked_position = now_ns, publisher.log_buffer.append_position
        self._usual_bytes_per_s = 0.0

    def _tell(self, log: Callable[..., object], event: str, **facts: object) -> None:
        """Log a line about the session that sends the most, unless there was such a line just now."""
        count = self._lines.count(event, self._monotonic_ns())
        if count is None:
            return
        rates = self.find_rates()
        session_id = max(rates, key=lambda each: rates[each].bytes_per_s, default=None)
        if session_id is None:
            log(event, **facts, session_id=None, count=count)
            return
        rate, total = rates[session_id], sum(each.bytes_per_s for each in rates.values())
        client = self.find_client(session_id)
        log(
            event,
            **facts,
            session_id=session_id,
            **({} if client is None else client._asdict()),
            messages_per_s=round(rate.messages_per_s),
            bytes_per_s=round(rate.bytes_per_s),
            share_percent=round(100 * rate.bytes_per_s / total) if total else 0,
            session_count=len(rates),
            count=count,
        )


def _duration_s(seconds: Sequence[_Second]) -> float:
    """Return how long these took together; one second at least, so that a short time gives no high rate."""
    return max(1.0, sum(second.duration_ns for second in seconds) / _NS_PER_S)
