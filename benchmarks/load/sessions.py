"""Echo traffic that goes round many sessions of one process: a closed loop with a fixed number in flight over all.

Each session has its own connections, or all share one to each member. Each has its own order of messages, which is
checked: what a client with one session does is done so many times over. A reply on any session lets the next session of
the round send.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from ...client import ClientConfig, ClusterClient, SharedConnection
from ...service_api.wire.session import EventCode
from .echo import SEQUENCE, Phase, WaitingLoad, message_packer

CONNECTING_LIMIT: Final = 64
"""Sessions that are opened, or closed, at a time."""
SESSIONS_PER_PROCESS: Final = 5_000
"""With connections of their own to three members: 15,000 files, below the limit of 20,000 that many systems have."""


class _Session:
    """One session; the listener of its egress."""

    __slots__ = ("_load", "cluster", "received", "sent", "sent_at_ns")

    def __init__(self, load: SessionLoad) -> None:
        self._load = load
        self.cluster: ClusterClient | None = None
        self.sent = self.received = 0
        self.sent_at_ns: deque[int] = deque()
        """Of the messages in flight, oldest first."""

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take a reply; the load sends the next message, on another session."""
        now_ns = time.monotonic_ns()
        (sequence,) = SEQUENCE.unpack_from(payload)
        if sequence != self.received:
            self._load.fail(f"reply out of order: sequence={sequence} expected={self.received}")
        self.received += 1
        self._load.on_reply(now_ns, self.sent_at_ns.popleft())

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Give up: replies may be lost."""
        self._load.fail(f"leader changed: {leadership_term_id=} {leader_member_id=}")

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Give up when the session ends."""
        if code is not EventCode.OK:
            self._load.fail(f"session event: code={code.name} detail={detail!r}")


class SessionLoad(WaitingLoad):
    """Makes the traffic of all sessions of the process."""

    def __init__(self, *, payload_length: int, inflight: int) -> None:
        super().__init__()
        self._pack_message = message_packer(payload_length)
        self._inflight = inflight
        self._sessions: list[_Session] = []
        self._opened_count = 0
        self._next = 0
        """Whose turn it is, by index."""
        self._phase = Phase(0, 0)
        self._sent = self._received = 0
        """Of the current phase."""
        self._is_direct = False
        """Whether replies send the next message themselves; False while a coroutine does."""

    @property
    def received_count(self) -> int:
        """Replies of the current phase."""
        return self._received

    @asynccontextmanager
    async def connected(
        self,
        endpoints: list[str],
        session_count: int,
        *,
        connect_timeout_s: float,
        on_opened: Callable[[int], None],
        is_shared: bool = False,
    ) -> AsyncIterator[ClusterClient]:
        """Open the sessions, a few at a time, and close them in the end; gives the first one."""
        gate = asyncio.Semaphore(CONNECTING_LIMIT)
        config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=connect_timeout_s, client_info="benchmark")
        shared = SharedConnection(config)

        async def open_one(session: _Session) -> None:
            async with gate:
                if is_shared:
                    session.cluster = await shared.open_session(egress_listener=session)
                else:
                    session.cluster = await ClusterClient.connect(egress_listener=session, config=config)
                self._opened_count += 1
                on_opened(self._opened_count)

        async def close_one(session: _Session) -> None:
            async with gate:
                if session.cluster is not None:
                    await session.cluster.aclose()

        self._sessions = [_Session(self) for _ in range(session_count)]
        try:
            async with asyncio.TaskGroup() as tasks:
                for session in self._sessions:
                    tasks.create_task(open_one(session))
            first = self._sessions[0].cluster
            assert first is not None
            yield first
        finally:
            async with asyncio.TaskGroup() as tasks:
                for session in self._sessions:
                    tasks.create_task(close_one(session))

    async def run(self, message_count: int) -> Phase:
        """Send messages, one session after the other, and wait for their replies.

        Raises:
            LoadError: the replies are not those of an echo, or a session did not last.
        """
        phase = self._phase = Phase(0, message_count)
        self._sent = self._received = 0
        if message_count:
            phase.started_ns = time.monotonic_ns()
            await self._send(phase)
            await self._wait_for(lambda: self._received == message_count)
            phase.ended_ns = time.monotonic_ns()
        return phase

    def on_reply(self, now_ns: int, sent_at_ns: int) -> None:
        """Count a reply and send the next message."""
        self._phase.replied_at_ns.append(now_ns)
        self._phase.sent_at_ns.append(sent_at_ns)
        self._received += 1
        limit = self._phase.message_limit
        if self._is_direct and self._sent < limit:
            if not self._try_send(now_ns):
                self._is_direct = False
                self._wake.set()
        elif self._received == limit:
            self._wake.set()

    async def _send(self, phase: Phase) -> None:
        while self._sent < phase.message_limit:
            # Fill the window, waiting for room where a session has none; then replies keep it full.
            while self._sent < phase.message_limit and self._sent - self._received < self._inflight:
                if not self._try_send(time.monotonic_ns()):
                    await self._send_waiting()
            self._is_direct = True
            await self._wait_for(lambda: not self._is_direct or self._sent == phase.message_limit)
            self._is_direct = False

    def _try_send(self, now_ns: int) -> bool:
        """Send on the next session of the round; False when it has no room."""
        sessions = self._sessions
        session = sessions[self._next]
        cluster = session.cluster
        if cluster is None or not cluster.try_offer(self._pack_message(session.sent)):
            return False
        self._on_sent(session, now_ns)
        return True

    async def _send_waiting(self) -> None:
        session = self._sessions[self._next]
        assert session.cluster is not None
        payload = self._pack_message(session.sent)
        now_ns = time.monotonic_ns()
        await session.cluster.offer(payload)
        self._on_sent(session, now_ns)
        self._check()

    def _on_sent(self, session: _Session, now_ns: int) -> None:
        session.sent += 1
        session.sent_at_ns.append(now_ns)
        self._sent += 1
        self._next += 1
        if self._next == len(self._sessions):
            self._next = 0
