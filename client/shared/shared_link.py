"""One connection to a member, with the channels of every session that uses it.

Out: each session in turn writes at most `_QUANTUM_BYTES` and the rest of one message, so a session that writes without
end holds up its neighbours by that much in a turn. All turns of one pass are one write. While the socket is full
nothing is written, and what sessions want to write stays with them, bounded for each.

In: each frame goes to the session that it names. Frames of a message in fragments stay together on a connection, so
those after the first are for the same session.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from ...service_api.errors import RemoteProtocolError
from ...service_api.wire.frame import FLAG_BEGIN, FLAG_END, HEADER_LENGTH, align, unpack_header
from ..conductor import ClientConductor
from ..config import ClientConfig, back_off_s
from ..connection import MemberConnection, describe_connection_error, dial_member
from ..protocol.egress_adapter import ClientSessionState
from ..protocol.ingress_publisher import IngressPublisher
from ..protocol.keep_alives import KeepAliveWatch
from ..protocol.session_identity import keep_alive_of
from .frame_owner import EVERYBODY, KIND_OFFSET, SESSION_ID_OFFSET, SESSION_MESSAGE_KIND, FrameOwner, owner_of
from .session_channel import SessionChannel

_QUANTUM_BYTES: Final = 32 << 10
_WRITE_BYTES: Final = 256 << 10
"""About what is written at once."""


class LinkOwner(Protocol):
    """What a link needs of the shared connection."""

    def defer_link(self, link: SharedLink) -> None:
        """Flush a link at the end of this turn of the loop."""

    def introduce(self, link: SharedLink) -> None:
        """Show the member whose the sessions are, if there are any, before anything else is sent."""

    def find_channel(self, link: SharedLink, owner: FrameOwner) -> SessionChannel | None:
        """Find whose a frame is; None drops it."""

    def channel_of_session(self, link: SharedLink, session_id: int) -> SessionChannel | None:
        """Find the channel of an open session."""

    def on_link_idle(self, link: SharedLink) -> None:
        """No session uses the link any more."""


class SharedLink:
    """The connection to one endpoint: dialled while a session wants it, and no longer."""

    def __init__(self, owner: LinkOwner, config: ClientConfig, endpoint: str, random: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self.publisher = IngressPublisher(config.mtu_length_bytes)
        """What the shared connection itself says."""
        self.is_introduced = False
        self.watch = KeepAliveWatch()
        self.channels: dict[ClientConductor, SessionChannel] = {}
        self._owner = owner
        self._config = config
        self._random = random
        self._connection: MemberConnection | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._failure_count = 0
        self._turns: deque[SessionChannel] = deque()
        self._is_deferred = False
        self._is_closed = False
        self._written_bytes = 0
        self._limits = b""
        """The last message about what sessions may send: it comes before the answer that opens one."""
        self._fragments_of: list[SessionChannel] | None = None
        """Whose the message is of which a part has come; None between messages."""

    def __repr__(self) -> str:
        return f"<SharedLink {self.endpoint} up={self.is_up} channels={len(self.channels)}>"

    @property
    def is_up(self) -> bool:
        """Whether the connection stands."""
        return self._connection is not None

    @property
    def sent_bytes(self) -> int:
        """How much of what was written the system has taken; -1 while there is no connection."""
        connection = self._connection
        return -1 if connection is None else self._written_bytes - connection.unsent_bytes

    # --- sessions

    async def attach(self, conductor: ClientConductor, connection_id: int, *, is_patient: bool) -> SessionChannel:
        """Return a session's channel, once the connection stands; a patient one waits for as many dials as it takes.

        Raises:
            OSError: the endpoint cannot be reached.
        """
        try:
            while not self.is_up:
                await self._wait_for_dial(conductor.loop, is_patient=is_patient)
        except BaseException:
            self._end_if_idle()
            raise
        channel = self.channels[conductor] = SessionChannel(self, conductor, connection_id)
        return channel

    async def _wait_for_dial(self, loop: asyncio.AbstractEventLoop, *, is_patient: bool) -> None:
        """Wait for the end of a dial; a patient session does not hear that it failed."""
        if self._attempt is None:
            # Not `create_task`: with eager tasks a dial that fails at once ends before it is noted.
            self._attempt = asyncio.Task(self._dial(), loop=loop, name=f"client-dial-{self.endpoint}")
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiting[waiter] = None
        try:
            await waiter
        except OSError:
            if not is_patient:
                raise
        finally:
            self._waiting.pop(waiter, None)

    def leave(self, channel: SessionChannel) -> None:
        """Forget a channel; after the last one, the connection is not needed any more."""
        self.channels.pop(channel.conductor, None)
        self._end_if_idle()

    def schedule(self, channel: SessionChannel) -> None:
        """Give a channel its turn, at the end of this turn of the loop at the earliest."""
        self._turns.append(channel)
        self.defer_flush()

    def keep_alive(self, session: ClientSessionState) -> None:
        """Say that the sessions are alive, in the name of one of them."""
        now_ns = int(asyncio.get_running_loop().time() * 1e9)
        self.watch.on_asked(now_ns, sent_bytes=self._written_bytes, is_backed_up=bool(self._turns))
        self.publisher.publish(keep_alive_of(session, now_ns))
        self.defer_flush()

    def give_up(self) -> None:
        """End the connection to a member whose process stands still."""
        connection = self._connection
        if connection is not None:
            connection.abort()
            self.on_lost(0, f"no answer to keep-alives: count={self.watch.unanswered_count}")

    def defer_flush(self) -> None:
        """Write at the end of this turn of the loop."""
        if not self._is_deferred:
            self._is_deferred = True
            self._owner.defer_link(self)

    def flush(self) -> None:
        """Write what sessions have to say, in turns, while the socket takes it."""
        self._is_deferred = False
        connection = self._connection
        if connection is None:
            return
        turns = self._turns
        while connection.is_writable and (turns or self.publisher.outgoing):
            data = self.publisher.take()
            while turns and len(data) < _WRITE_BYTES:
                channel = turns.popleft()
                data += channel.take(_QUANTUM_BYTES, self._written_bytes + len(data))
                if not channel.is_writable:
                    turns.append(channel)
                else:
                    channel.conductor.on_taken(channel.connection_id)
            self._written_bytes += len(data)
            connection.write(data)

    def close(self) -> asyncio.Future[None] | None:
        """End the connection once what was written is sent, and the dial at once; give what ends then."""
        self.flush()
        self._is_closed = True
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        connection, self._connection = self._connection, None
        if connection is None:
            return attempt
        connection.close()
        return connection.lost

    # --- the connection

    async def _dial(self) -> None:
        config = self._config
        if self._failure_count:
            wait_s = back_off_s(
                self._failure_count - 1,
                first_s=config.reconnect_min_s,
                limit_s=config.reconnect_max_s,
                random=self._random,
            )
            await asyncio.sleep(wait_s)
        self._failure_count += 1
        try:
            async with asyncio.timeout(config.dial_timeout_s):
                await dial_member(self, 0, self.endpoint, config)
        except OSError as error:
            self._attempt = None
            self._settle(error)

    def on_connected(self, connection: MemberConnection) -> None:
        """Take the connection into use: it says first what it is, and whose."""
        if self._is_closed:
            connection.abort()
            return
        self._attempt = None
        self._connection = connection
        self._written_bytes = 0
        self._turns.clear()
        self.publisher = IngressPublisher(self._config.mtu_length_bytes)
        self.publisher.setup(self._config.known_cluster_id)
        self.is_introduced = False
        self.watch = KeepAliveWatch()
        self._fragments_of, self._limits = None, b""
        self._owner.introduce(self)
        self.defer_flush()
        self._settle(None)

    def on_lost(self, connection_id: int, reason: str) -> None:
        """Tell every session that the connection is gone."""
        if self._connection is None:
            return
        self._connection = None
        channels, self.channels = self.channels, {}
        self._turns.clear()
        for channel in channels.values():
            channel.lost.set_result(None)
            channel.conductor.on_lost(channel.connection_id, reason)
        self._end_if_idle()

    def on_received(self, connection: MemberConnection, data: memoryview) -> int:
        """Hand each session its frames; return how many bytes the whole frames took."""
        if connection is not self._connection:
            return len(data)
        self._failure_count = self.watch.unanswered_count = 0
        try:
            return self._receive(data)
        except RemoteProtocolError as error:
            connection.abort()
            self.on_lost(0, str(error))
            return len(data)

    # --- inside

    def _settle(self, error: OSError | None) -> None:
        """Tell those who wait for the connection how the dial has ended."""
        for waiter in self._waiting:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(OSError(describe_connection_error(error)))

    def _end_if_idle(self) -> None:
        if not self.channels and not self._waiting:
            self._owner.on_link_idle(self)

    def _receive(self, data: memoryview) -> int:
        offset, end, mtu = 0, len(data), self._config.mtu_length_bytes
        run_start, run_channel = 0, None
        while end - offset >= HEADER_LENGTH:
            frame_length, _, flags, *_ = unpack_header(data, offset)
            if not HEADER_LENGTH <= frame_length <= mtu:
                raise RemoteProtocolError(f"egress frame_length={frame_length} expected={HEADER_LENGTH}..{mtu}")
            frame_end = offset + align(frame_length)
            if frame_end > end:
                break
            if (
                flags & FLAG_BEGIN
                and self._fragments_of is None
                and frame_length > SESSION_ID_OFFSET + 8
                and data[offset + KIND_OFFSET : offset + KIND_OFFSET + 4] == SESSION_MESSAGE_KIND
            ):
                at = offset + SESSION_ID_OFFSET
                session_id = int.from_bytes(data[at : at + 8], "little", signed=True)
                channel = self._owner.channel_of_session(self, session_id)
            else:
                if run_channel is not None and run_start < offset:
                    self._deliver(run_channel, data[run_start:offset])
                self._receive_control(data[offset:frame_end], flags, frame_length)
                offset = run_start = frame_end
                run_channel = None
                continue
            if not flags & FLAG_END:
                self._fragments_of = [] if channel is None else [channel]
            if channel is not run_channel:
                if run_channel is not None:
                    self._deliver(run_channel, data[run_start:offset])
                run_start, run_channel = offset, channel
            offset = frame_end
        if run_channel is not None and run_start < offset:
            self._deliver(run_channel, data[run_start:offset])
        return offset

    def _receive_control(self, frame: memoryview, flags: int, frame_length: int) -> None:
        """Hand over a frame that is not the first of an application's message."""
        channels = self._fragments_of
        if channels is None:
            channels = self._channels_for(frame[:frame_length]) if flags & FLAG_BEGIN else []
        self._fragments_of = None if flags & FLAG_END else channels
        for channel in channels:
            self._deliver(channel, frame)

    def _channels_for(self, frame: memoryview) -> list[SessionChannel]:
        owner = owner_of(frame)
        if owner is EVERYBODY:
            return [*self.channels.values()]
        if owner.keep_alive_answer is not None:
            self.watch.is_answered_here = True
            for each in [*self.channels.values()]:
                each.conductor.on_keep_alive_answer(each.connection_id, owner.keep_alive_answer)
            return []
        if owner.is_limits:
            self._limits = bytes(frame).ljust(align(len(frame)), b"\0")
            return []
        channel = self._owner.find_channel(self, owner)
        if channel is None:
            return []
        if owner.opened_session_id is not None and self._limits:
            self._deliver(channel, memoryview(self._limits))
        return [channel]

    def _deliver(self, channel: SessionChannel, frames: memoryview) -> None:
        if not channel.lost.done():
            channel.conductor.on_received(channel, frames)
