"""The services that tests of the kit run."""

from __future__ import annotations

from trimaran import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication
from trimaran.service_api import CloseReason

TIMER_ID = 7


class Counter(ClusteredService):
    """Adds up numbers; `later N` adds N in five seconds, `tell N` through a message of the service."""

    def __init__(self) -> None:
        self.total = self.later = 0
        self.closed: list[CloseReason] = []

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            async for message in snapshot:
                self.total, self.later = map(int, message.split())

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self._run(bytes(payload))
        return str(self.total).encode()

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        if bytes(payload) == b"bye":
            session.close()
        else:
            self._run(bytes(payload))
            session.offer(str(self.total).encode())

    def _run(self, words: bytes) -> None:
        *verb, number = words.split()
        if verb == [b"later"]:
            self.later = int(number)
            self.cluster.schedule_timer(TIMER_ID, self.cluster.time + 5_000)
        elif verb == [b"tell"]:
            self.cluster.offer(number)
        else:
            self.total += int(number)

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.total += int(bytes(payload))

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.total += self.later

    def on_session_close(self, session: ClientSession, timestamp: int, close_reason: CloseReason) -> None:
        self.closed.append(close_reason)

    def on_query(self, payload: memoryview) -> bytes:
        return str(self.total).encode()

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(f"{self.total} {self.later}".encode())


class Doubling(Counter):
    """The next version: counts twice."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        super().on_request(session, timestamp, payload)
        return super().on_request(session, timestamp, payload)


class Diverging(Counter):
    """State that depends on the member."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        super().on_request(session, timestamp, payload)
        self.later = int(self.cluster.member_id)
        return b""


class Endless(Counter):
    """Answers each message of its own with another one."""

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        self.cluster.offer(payload)
