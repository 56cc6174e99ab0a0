"""What stands for the rest of a process where a hot path runs alone: no sockets, disks, timers or other members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from ...client import ClientConfig
from ...cluster.core.log.log_buffer import LogBuffer
from ...cluster.core.log.log_publisher import LogPublisher
from ...service_api.net.transport import Purpose
from ...service_api.types import EGRESS_STREAM_ID, ClusterSessionId, CorrelationId, MemberId, TermId
from ...service_api.wire.frame import HEADER_LENGTH, align, encode_message, unpack_header
from ...service_api.wire.message import peek_header
from ...service_api.wire.session import EventCode, SessionConnectRequest, SessionEvent

CHUNK_MESSAGES: Final = 256
"""Messages in a chunk: a quarter of what is in flight at peak."""

TERM: Final = TermId(0)
TERM_LENGTH_BYTES: Final = 64 << 20
MTU_LENGTH_BYTES: Final = 65504
TIMESTAMP_MS: Final = 1_700_000_000_000
MEMBER_ENDPOINT: Final = "127.0.0.1:1"

ChunkPath = Callable[[], object]
"""Takes one chunk of messages through."""


def make_publisher(buffer: LogBuffer) -> LogPublisher:
    """Make what a leader appends with to a window."""
    return LogPublisher(
        buffer,
        log_session_id=7,
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH_BYTES,
        mtu_length_bytes=MTU_LENGTH_BYTES,
        checksums=True,
    )


def session_opened(session_id: int, correlation_id: CorrelationId) -> bytes:
    """Return the frame of a leader's answer that a session is open."""
    opened = SessionEvent(
        cluster_session_id=ClusterSessionId(session_id),
        correlation_id=correlation_id,
        leadership_term_id=TERM,
        leader_member_id=MemberId(0),
        code=EventCode.OK,
        detail=f"0={MEMBER_ENDPOINT}",
    )
    return encode_message(opened.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)


def receive(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    """Let a connection receive bytes, as a loop does."""
    memoryview(protocol.get_buffer(-1))[: len(data)] = data
    protocol.buffer_updated(len(data))


class QuietModule:
    """A consensus module that nothing is asked of: stands for `ModuleRequests` and `ModuleReplay`."""

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Nothing: no session is closed here."""


class NoLogReader:
    """The log below the window: the window holds everything."""

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Never called."""
        raise AssertionError(f"read at position={position} in {limit_bytes} to {stop_position}")


class LeadingOwner:
    """The agent of a member that leads: stands for `IngressOwner`."""

    def __init__(self, log_buffer: LogBuffer) -> None:
        self.publisher: LogPublisher | None = make_publisher(log_buffer)

    def post(self, event: object) -> None:
        """Drop."""

    def schedule_flush(self) -> None:
        """Nothing."""

    def monotonic_ns(self) -> int:
        """Return a time."""
        return 1

    def stamp(self) -> int:
        """Return a time."""
        return TIMESTAMP_MS

    def is_window_full(self) -> bool:
        """Say that there is room."""
        return False


class DroppingTransport(asyncio.Transport):
    """Takes what is written and drops it."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known."""
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing waits."""

    def get_write_buffer_size(self) -> int:
        """Nothing waits."""
        return 0

    def is_closing(self) -> bool:
        """It stays."""
        return False

    def pause_reading(self) -> None:
        """Nothing."""

    def resume_reading(self) -> None:
        """Nothing."""

    def write(self, data: Any) -> None:
        """Drop."""


class NeverTimer:
    """A timer that never fires."""

    def cancel(self) -> None:
        """Nothing."""


class PassLoop:
    """An event loop without descriptors: runs what is called soon, pass after pass, and nothing at a later time."""

    def __init__(self) -> None:
        self._ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def run(self, call: Callable[[], object]) -> None:
        """Call a function, and what is to be called soon then, as on a running loop."""
        asyncio._set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            call()
            while self._ready:
                ready, self._ready = self._ready, []
                for callback, arguments in ready:
                    callback(*arguments)
        finally:
            asyncio._set_running_loop(None)

    def complete(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, which no time may have to pass for."""
        tasks = list[asyncio.Task[None]]()
        self.run(lambda: tasks.append(self.create_task(coroutine)))
        tasks[0].result()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        """Call in this `run`."""
        self._ready.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> NeverTimer:
        """Forget: no time passes."""
        return NeverTimer()

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> NeverTimer:
        """Forget: no time passes."""
        return NeverTimer()

    def time(self) -> float:
        """Return a time."""
        return 1.0

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(self, coro: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Run a coroutine in this `run`."""
        return asyncio.Task(coro, loop=cast(asyncio.AbstractEventLoop, self), name=name)

    def get_debug(self) -> bool:
        """Say no."""
        return False


class AnsweringTransport(DroppingTransport):
    """Opens each session that is asked for, and drops all else."""

    def __init__(self, member: OpeningMember, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._member = member
        self._protocol = protocol

    def write(self, data: Any) -> None:
        """Answer, in the next pass of the loop."""
        if self._member.is_open:
            return
        offset = 0
        while offset < len(data):
            frame_length, *_ = unpack_header(data, offset)
            message = bytes(data[offset + HEADER_LENGTH : offset + frame_length])
            offset += align(frame_length)
            if message and peek_header(message)[1] == SessionConnectRequest.TEMPLATE_ID:
                answer = self._member.answer(SessionConnectRequest.decode(message).correlation_id)
                asyncio.get_running_loop().call_soon(receive, self._protocol, answer)


class OpeningMember:
    """A leader that opens every session: clients reach it through `dial`, as through a `NetworkStack`."""

    cluster_id = 0

    def __init__(self) -> None:
        self.is_open = False
        """Whether nothing is answered any more."""
        self.protocols: list[asyncio.BufferedProtocol] = []
        """Of the connections, in the order of dialling."""
        self._session_count = 0

    def answer(self, correlation_id: CorrelationId) -> bytes:
        """Return the frame that opens the next session: they are numbered from 1."""
        self._session_count += 1
        return session_opened(self._session_count, correlation_id)

    async def dial(
        self, purpose: Purpose, endpoint: object, make_protocol: Callable[[], asyncio.BufferedProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BufferedProtocol]:
        """Connect."""
        protocol = make_protocol()
        transport = AnsweringTransport(self, protocol)
        self.protocols.append(protocol)
        protocol.connection_made(transport)
        return transport, protocol


def opening_config(member: OpeningMember) -> ClientConfig:
    """Return settings of clients of this member, without bounds that a path could meet."""
    network: Any = member  # no more of a `NetworkStack` is used than it has
    return ClientConfig(
        endpoints=(MEMBER_ENDPOINT,), outgoing_window_bytes=1 << 40, network=network, random=lambda: 0.0
    )
