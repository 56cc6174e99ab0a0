"""A replicated quota: at most 10 requests a minute from each host, across the death of any member.

Request:  sequence TAB host TAB epoch seconds TAB url        Reply:  sequence TAB allowed|denied TAB remaining

Time comes from the request, so the outcome depends on the order of the log alone, the same on every member.
A client numbers its requests 1, 2, 3, ... When a new leader takes over, it sends again, in order, what was
not answered: a request that was applied before gets the reply it got then, and nothing counts twice.
"""

from __future__ import annotations

import json
from bisect import bisect_right, insort
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from service_api import (
    ClientSession,
    CloseReason,
    Cluster,
    ClusteredService,
    SnapshotImage,
    SnapshotPublication,
)

ALLOWED_LIMIT = 10
WINDOW_S = 60
MEMORY_S = 24 * 3600  # a host's requests may arrive out of order by as much as this
ANSWER_LIMIT = 4096  # answers kept per session: the most requests a client may have unanswered


class Request(NamedTuple):
    """One web request. `sequence` counts the requests of a session from 1."""

    sequence: int
    host: str
    time_s: int
    url: str

    def encode(self) -> bytes:
        """The message a client offers."""
        return "\t".join(map(str, self)).encode()

    @classmethod
    def decode(cls, payload: memoryview) -> Request:
        """Read a message; raises ValueError if it is none."""
        sequence, host, time_s, url = str(payload, "utf-8").split("\t")
        return cls(int(sequence), host, int(time_s), url)


@dataclass
class Answers:
    """What a session has been told, the last few thousand requests of it."""

    last_sequence: int = 0
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=ANSWER_LIMIT))

    def find(self, sequence: int) -> str | None:
        """The decision on a request; None if it is forgotten, or not made yet."""
        age = self.last_sequence - sequence
        return self.decisions[-1 - age] if 0 <= age < len(self.decisions) else None


class AccessQuota(ClusteredService):
    """Allows a request of a host at time t if fewer than 10 of that host were allowed in (t - 60 s, t]."""

    def __init__(self) -> None:
        self.allowed_times: dict[str, list[int]] = {}  # by host, ascending
        self.answers: dict[int, Answers] = {}  # by session

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Decide on the session's next request; what comes again is answered from memory."""
        try:
            request = Request.decode(payload)
        except ValueError:
            session.offer(b"0\tmalformed\t0")
            return
        answers = self.answers.setdefault(session.id, Answers())
        if request.sequence == answers.last_sequence + 1:
            answers.decisions.append(self.decide(request.host, request.time_s))
            answers.last_sequence = request.sequence
        decision = answers.find(request.sequence)
        if decision is not None:  # else some before it were lost with a leader: all of them come again, in order
            session.offer(f"{request.sequence}\t{decision}".encode())

    def decide(self, host: str, time_s: int) -> str:
        """Apply the rule. Only what is allowed is remembered, and only what is allowed counts."""
        times = self.allowed_times.setdefault(host, [])
        count = bisect_right(times, time_s) - bisect_right(times, time_s - WINDOW_S)
        if count >= ALLOWED_LIMIT:
            return "denied\t0"
        insort(times, time_s)
        del times[: bisect_right(times, times[-1] - MEMORY_S)]
        return f"allowed\t{ALLOWED_LIMIT - 1 - count}"

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        """Forget a session that cannot ask again."""
        self.answers.pop(session.id, None)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        """One message per host and one per session."""
        for host, times in self.allowed_times.items():
            await snapshot.offer(json.dumps(["host", host, times]).encode())
        for session_id, answers in self.answers.items():
            entry = ["session", session_id, answers.last_sequence, list(answers.decisions)]
            await snapshot.offer(json.dumps(entry).encode())

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Load what `on_take_snapshot` wrote."""
        if snapshot is not None:
            async for message in snapshot:
                kind, key, *rest = json.loads(message)
                if kind == "host":
                    self.allowed_times[key] = rest[0]
                else:
                    self.answers[key] = Answers(rest[0], deque(rest[1], maxlen=ANSWER_LIMIT))
