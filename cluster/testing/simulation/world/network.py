"""Simulated TCP between machines: bytes in order, late, held back or cut off; never lost, doubled or changed.

What a real network does to packets shows above TCP as four things only, and these are what there is: bytes come
later, in pieces of any length; bytes stop coming, for as long as a direction is blocked; the connection is reset; and
nothing is heard at all of a machine without power. A sender that gets no acknowledgement gives up after its
TCP_USER_TIMEOUT, if it set one. Receive windows are bounded, so back pressure reaches the sender.
"""

from __future__ import annotations

import asyncio
import socket
from asyncio import BaseProtocol, BufferedProtocol, Handle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, cast

from .....service_api.access.identity import STRANGER, Caller
from .....service_api.endpoint import Endpoint
from .....service_api.net.connection_gate import ConnectionGate
from .....service_api.net.transport import Listener, MakeProtocol, NetworkStack, P, PeerRefusedError, Purpose
from .....service_api.types import MemberId
from .loop import SimulatedLoop
from .scheduler import Scheduler

WINDOW_BYTES: Final = 256 << 10
"""What may be on its way or unread at the receiver; the rest waits at the sender."""

_CLIENT_PORTS_BEGIN: Final = 40_000
_KEEP_ALIVE_NS: Final = 1_500_000_000
_KEEP_ALIVE_LIMIT: Final = 3
"""How many keep-alive probes in a row may go unanswered."""
_RETRANSMISSION_LIMIT_NS: Final = 1_000_000_000
"""How long after a block has ended TCP may take to notice."""

_FIN: Final = b""
_RESET: Final = None
Segment = bytes | bytearray | None
"""Bytes, the orderly end, or a reset."""


@dataclass(slots=True)
class LinkQuality:
    """How long a segment takes from one machine to another, in nanoseconds, and how often it is cut in two."""

    delay_min_ns: int = 50_000
    delay_mean_ns: int = 200_000
    split_rate: float = 0.0


@dataclass(slots=True)
class _Block:
    """A direction that lets nothing through: since when, and for how many reasons."""

    since_ns: int
    count: int = 0


class Network(NetworkStack):
    """The machines' addresses, who listens where, and what is wrong between them.

    As with TLS, each process shows who it is: by the address of its machine. Who is not identified is a stranger.
    """

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler = scheduler
        self.quality = LinkQuality()
        self.segment_watchers: list[Callable[[SimulatedTransport, bytes | bytearray], None]] = []
        """Called with what a process writes, when it writes it."""
        self.trace: Callable[[int, int], None] = lambda connection_number, length: None
        """Called with every arrival: the number of the connection's end, the bytes (-1: its end, -2: reset)."""
        self._random = random
        self._listeners: dict[Endpoint, _SimulatedListener] = {}
        self._blocked: dict[tuple[str, str], _Block] = {}
        """Directions that let nothing through."""
        self._without_power: dict[str, None] = {}
        self.transports: dict[SimulatedTransport, None] = {}
        self._next_port = _CLIENT_PORTS_BEGIN
        self._count = 0
        self._callers: dict[str, Caller] = {}

    def __repr__(self) -> str:
        return f"<Network connections={len(self.transports) // 2} blocked={sorted(self._blocked)}>"

    # --- who processes are

    def identify(self, address: str, caller: Caller) -> None:
        """Say what a process at an address shows, on either side of a connection."""
        self._callers[address] = caller

    def caller_at(self, address: str) -> Caller:
        """Return what a process at an address shows."""
        return self._callers.get(address, STRANGER)

    # --- what processes do

    async def listen(
        self, purpose: Purpose, endpoint: Endpoint, make_protocol: MakeProtocol, *, gate: ConnectionGate
    ) -> Listener:
        """Accept connections to the machine whose process this is.

        Raises:
            OSError: the address is another machine's, or taken.
        """
        loop = _running_loop()
        if endpoint.host != loop.address or endpoint in self._listeners:
            raise OSError(98, f"address in use or not ours: {endpoint} machine={loop.address}")
        listener = self._listeners[endpoint] = _SimulatedListener(self, loop, purpose, make_protocol, endpoint, gate)
        return listener

    async def dial(
        self,
        purpose: Purpose,
        endpoint: Endpoint,
        make_protocol: Callable[[], P],
        *,
        member_id: MemberId | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect: one way there, one way back; without an answer where a direction is blocked.

        Raises:
            ConnectionRefusedError: the machine is there and nobody listens.
            PeerRefusedError: it is not the member that is meant.
        """
        loop = _running_loop()
        reached: asyncio.Future[_SimulatedListener | None] = loop.create_future()
        self._travel(
            loop.address,
            endpoint.host,
            lambda: self._syn(loop, reached, endpoint),
            lambda: loop.is_dead or reached.done(),
        )
        listener = await reached
        if listener is None or listener.is_closed:
            raise ConnectionRefusedError(111, f"connection refused: {endpoint}")
        if member_id is not None and (shown := self.caller_at(endpoint.host)).member_id not in (None, member_id):
            raise PeerRefusedError(f"{endpoint} is not member {member_id}: it shows {shown}")
        self._next_port += 1
        here, there = (loop.address, self._next_port), (endpoint.host, endpoint.port)
        mine = SimulatedTransport(self, loop, here, there)
        theirs = SimulatedTransport(self, listener.loop, there, here)
        mine.peer, theirs.peer = theirs, mine
        for transport in (mine, theirs):
            self.transports[transport] = None
        listener.loop.call_soon(listener.accept, theirs)
        return mine, mine.begin(make_protocol)

    def _syn(self, loop: SimulatedLoop, reached: asyncio.Future[_SimulatedListener | None], endpoint: Endpoint) -> None:
        listener = self._listeners.get(endpoint)
        answer = listener if listener is not None and not listener.is_closed else None
        self._travel(endpoint.host, loop.address, lambda: loop.call_soon(_answer, reached, answer))

    def _travel(
        self, source: str, target: str, arrive: Callable[[], object], is_moot: Callable[[], bool] = lambda: False
    ) -> None:
        """Let a small packet travel; blocked, it is sent again every now and then, as long as somebody wants it."""
        if is_moot():
            return
        delay_ns = self.delay_ns()
        if self.is_blocked(source, target):
            self.scheduler.call_after(300_000_000 + delay_ns, self._travel, source, target, arrive, is_moot)
        else:
            self.scheduler.call_after(delay_ns, arrive)

    # --- what goes wrong

    def is_blocked(self, source: str, target: str) -> bool:
        """Whether nothing gets from one machine to another just now."""
        if not self._blocked and not self._without_power:
            return False  # nearly always, and asked at every segment
        return (source, target) in self._blocked or target in self._without_power or source in self._without_power

    def block(self, source: str, target: str) -> None:
        """Let nothing through in this direction, until as many `unblock` as `block` were called."""
        if source != target:
            self._blocked.setdefault((source, target), _Block(self.scheduler.now_ns)).count += 1

    def unblock(self, source: str, target: str) -> None:
        """Take one reason away; without any left, everything gets through again, and TCP notices a little later."""
        block = self._blocked.get((source, target))
        if block is None:
            return
        block.count -= 1
        if block.count > 0:
            return
        del self._blocked[source, target]
        since_ns = block.since_ns
        for transport in [*self.transports]:
            if (transport.address[0], transport.peer_address[0]) in ((source, target), (target, source)):
                limit_ns = min(self.scheduler.now_ns - since_ns, _RETRANSMISSION_LIMIT_NS)
                self.scheduler.call_after(int(self._random.random() * limit_ns), transport.retransmit)

    def unblock_all(self) -> None:
        """Mend the network."""
        for direction, block in [*self._blocked.items()]:
            block.count = 1
            self.unblock(*direction)

    def lose_power(self, address: str) -> None:
        """A machine goes dark: nobody hears of it, and what it had open is forgotten."""
        self._without_power[address] = None
        self._drop_listeners(address)
        for transport in [*self.transports]:
            if transport.address[0] == address:
                transport.vanish()

    def regain_power(self, address: str) -> None:
        """A machine is there again: it knows nothing of old connections, and says so to senders."""
        self._without_power.pop(address, None)
        for transport in [*self.transports]:
            if transport.peer_address[0] == address:
                self.scheduler.call_after(self.delay_ns(), transport.retransmit)

    def close_process(self, loop: SimulatedLoop) -> None:
        """A process is gone and its machine is not: the kernel closes its sockets."""
        for endpoint, listener in [*self._listeners.items()]:
            if listener.loop is loop:
                del self._listeners[endpoint]
                listener.is_closed = True
        for transport in [*self.transports]:
            if transport.loop is loop:
                transport.close_by_kernel()

    def reset(self, transport: SimulatedTransport) -> None:
        """Something on the way resets a connection: both ends hear of it."""
        for end in (transport, transport.peer):
            end.lose(ConnectionResetError(104, "connection reset by the network"))

    def delay_ns(self) -> int:
        """How long a segment takes: rarely much longer than the mean."""
        quality = self.quality
        spread_ns = quality.delay_mean_ns - quality.delay_min_ns
        return quality.delay_min_ns + int(self._random.expovariate(1.0) * spread_ns)

    def split(self, length: int) -> int:
        """Return how many of `length` bytes come in one piece."""
        if length > 1 and self._random.random() < self.quality.split_rate:
            return self._random.randrange(1, length)
        return length

    def number(self) -> int:
        """Count connections' ends."""
        self._count += 1
        return self._count

    def forget_listener(self, listener: _SimulatedListener) -> None:
        """Stop listening."""
        if self._listeners.get(listener.endpoint) is listener:
            del self._listeners[listener.endpoint]

    def _drop_listeners(self, host: str) -> None:
        for endpoint, listener in [*self._listeners.items()]:
            if endpoint.host == host:
                del self._listeners[endpoint]
                listener.is_closed = True


def _running_loop() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def _answer(reached: asyncio.Future[_SimulatedListener | None], listener: _SimulatedListener | None) -> None:
    if not reached.done():
        reached.set_result(listener)


class _SimulatedListener(Listener):
    """A listening socket."""

    def __init__(
        self,
        network: Network,
        loop: SimulatedLoop,
        purpose: Purpose,
        make_protocol: MakeProtocol,
        endpoint: Endpoint,
        gate: ConnectionGate,
    ) -> None:
        self.network, self.loop, self.endpoint = network, loop, endpoint
        self._purpose, self._make_protocol, self._gate = purpose, make_protocol, gate
        self.is_closed = False

    def accept(self, transport: SimulatedTransport) -> None:
        """Let a connection in, as the gate says."""
        accepted = self._gate.enter(self._purpose, transport.peer_address)
        if accepted is None:
            transport.begin(asyncio.Protocol)
            transport.abort()
            return
        accepted.identify(self.network.caller_at(transport.peer_address[0]))
        transport.begin(partial(self._make_protocol, accepted))

    def close(self) -> None:
        """Stop listening."""
        self.is_closed = True
        self.network.forget_listener(self)

    async def wait_closed(self) -> None:
        """Nothing to wait for."""


class _Socket:
    """The few socket options that the product sets."""

    family = socket.AF_INET

    def __init__(self, transport: SimulatedTransport) -> None:
        self._transport = transport

    def fileno(self) -> int:
        """Tell that there is nothing to ask the system about."""
        return -1

    def setsockopt(self, level: int, option: int, value: int) -> None:
        """Note the user timeout and keep-alives; the rest means nothing here."""
        if (level, option) == (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", -1)):
            self._transport.user_timeout_ns = value * 1_000_000
        elif (level, option, bool(value)) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE, True):
            self._transport.keep_alive()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    peer: SimulatedTransport

    def __init__(
        self, network: Network, loop: SimulatedLoop, address: tuple[str, int], peer_address: tuple[str, int]
    ) -> None:
        super().__init__()
        self.loop, self.address, self.peer_address = loop, address, peer_address
        self.number = network.number()
        self.user_timeout_ns: int | None = None
        self._network = network
        self._protocol: Any = None  # one of asyncio's three kinds
        self._outgoing: deque[Segment] = deque()
        self._outgoing_bytes = 0
        self._unread: deque[Segment] = deque()
        """Arrived while nothing was read."""
        self._in_flight_bytes = 0
        """Sent and not acknowledged by the peer's reading."""
        self._unacknowledged_bytes = 0
        """Read here, and not yet acknowledged to the peer, since nothing gets there."""
        self._last_arrival_ns = 0
        self._stalled_since_ns: int | None = None
        self._high_bytes, self._low_bytes = 64 << 10, 16 << 10
        self._is_writing_paused = False
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._has_vanished = False
        self._is_kept_alive = False

    def __repr__(self) -> str:
        return f"<SimulatedTransport {self.number} {self.address} to {self.peer_address}>"

    def __hash__(self) -> int:
        return self.number

    def begin(self, make_protocol: Callable[[], P]) -> P:
        """Make the protocol and tell it that the connection is there."""
        protocol = self._protocol = make_protocol()
        if self._is_lost:
            return protocol
        protocol.connection_made(self)
        while self._unread and self._is_reading and not self._is_lost:
            self._take(self._unread.popleft())
        return protocol

    # --- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the addresses, or as much of a socket as is needed."""
        if name == "socket":
            return _Socket(self)
        return {"peername": self.peer_address, "sockname": self.address}.get(name, default)

    def is_closing(self) -> bool:
        """Whether the end has begun."""
        return self._is_closing

    def set_protocol(self, protocol: BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._protocol = protocol

    def get_protocol(self) -> BaseProtocol:
        """Return the protocol."""
        return cast(BaseProtocol, self._protocol)

    def is_reading(self) -> bool:
        """Whether arriving bytes are read."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Leave what arrives in the socket."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Read again, unless the end has begun."""
        if not self._is_reading and not self._is_closing:
            self._is_reading = True
            if self._unread:
                self.loop.call_soon(self._read_waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Say when writing is to pause and to go on."""
        self._high_bytes = 64 << 10 if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that the socket has not taken."""
        return self._outgoing_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and the high limit."""
        return self._low_bytes, self._high_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; a buffer that may change afterwards is copied."""
        if self._is_closing or self._is_lost or not data:
            return
        piece = bytes(data) if isinstance(data, memoryview) else data
        network = self._network
        for watch in network.segment_watchers:
            watch(self, piece)
        self._outgoing.append(piece)
        self._outgoing_bytes += len(piece)
        self._pump()
        if self._outgoing_bytes > self._high_bytes and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:  # an iterable of bytes, as in asyncio
        """Send several pieces."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """Half-closing is not simulated."""
        return False

    def close(self) -> None:
        """End the connection once everything is written."""
        if not self._is_closing:
            self._is_closing = True
            self._is_reading = False
            self._outgoing.append(_FIN)
            self._pump()

    def abort(self) -> None:
        """End the connection now."""
        if self._is_lost:
            return
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._send_now(_RESET)
        self.lose(None)

    # --- out

    def _pump(self) -> None:
        """Send as much as the window allows."""
        network, outgoing = self._network, self._outgoing
        if self._is_lost:
            return
        waits = bool(outgoing and outgoing[0])  # bytes, not the end
        if waits and network.is_blocked(self.address[0], self.peer_address[0]):
            self._notice_stall()
            return
        while waits and self._in_flight_bytes < WINDOW_BYTES:
            segment = outgoing.popleft()
            assert segment
            cut = network.split(len(segment))
            if cut < len(segment):
                outgoing.appendleft(segment[cut:])
                segment = segment[:cut]
            self._outgoing_bytes -= len(segment)
            self._in_flight_bytes += len(segment)
            self._send_now(segment)
            waits = bool(outgoing and outgoing[0])
        if outgoing and not waits:
            # Nothing waits in the process: asyncio says at once that it is over, and the kernel sees to the rest.
            self._send_now(outgoing.popleft())
            self.lose(None)
        if self._is_writing_paused and self._outgoing_bytes <= self._low_bytes and not self._is_lost:
            self._is_writing_paused = False
            self.loop.call_soon(self._resume_writing)

    def _send_now(self, segment: Segment) -> None:
        """Put a segment on the wire. A blocked direction holds back an end or a reset as well."""
        network = self._network
        if network.is_blocked(self.address[0], self.peer_address[0]):
            if not self._has_vanished and not self.peer._has_vanished:
                network._travel(self.address[0], self.peer_address[0], lambda: self._arrive_last(segment))
            return
        begin_ns = network.scheduler.now_ns + self.loop.clock.ahead_ns
        self._last_arrival_ns = max(begin_ns + network.delay_ns(), self._last_arrival_ns)
        network.scheduler.call_at(self._last_arrival_ns, self._arrive_at_peer, segment)

    def _arrive_last(self, segment: Segment) -> None:
        """Let an end that a block held back arrive after the bytes that were on their way before the block."""
        now_ns = self._network.scheduler.now_ns
        self._network.scheduler.call_at(max(now_ns, self._last_arrival_ns), self._arrive_at_peer, segment)

    def _arrive_at_peer(self, segment: Segment) -> None:
        peer = self.peer
        if peer._has_vanished:
            # The machine knows nothing of this connection: it answers with a reset.
            self._network._travel(peer.address[0], self.address[0], lambda: self.lose(_reset_by_peer()))
            return
        if peer._is_lost:
            if segment:
                peer._send_now(_RESET)  # bytes for a socket that is no more
            return
        if segment and self._network.is_blocked(peer.address[0], self.address[0]):
            self._notice_stall()  # it has arrived, and nobody can say so
        peer.loop.scheduler.soon(Handle(peer._on_segment, (segment,), peer.loop))

    def _resume_writing(self) -> None:
        if not self._is_lost:
            self._protocol.resume_writing()

    def _notice_stall(self) -> None:
        """Give up when nothing is acknowledged for the user timeout."""
        if self._stalled_since_ns is None and self.user_timeout_ns is not None:
            since_ns = self._stalled_since_ns = self._network.scheduler.now_ns
            self._network.scheduler.call_after(self.user_timeout_ns, self._check_stall, since_ns)

    def _check_stall(self, since_ns: int) -> None:
        if self._stalled_since_ns == since_ns and not self._is_lost:
            self.lose(TimeoutError(110, "connection timed out"))

    def retransmit(self) -> None:
        """Try again what was held back, and acknowledge what was read."""
        network = self._network
        if self.peer._has_vanished and not self._is_lost and (self._outgoing or self._in_flight_bytes):
            network._travel(self.peer_address[0], self.address[0], lambda: self.lose(_reset_by_peer()))
            return
        if network.is_blocked(self.address[0], self.peer_address[0]):
            return
        if not network.is_blocked(self.peer_address[0], self.address[0]):
            self._stalled_since_ns = None
        self._acknowledge(0)
        self._pump()

    def keep_alive(self) -> None:
        """Ask from now on, every now and then, whether the other machine still knows of this connection.

        A stand-in for TCP's keep-alives: what the product sets for them is of the order of `_KEEP_ALIVE_NS`.
        """
        if not self._is_kept_alive:
            self._is_kept_alive = True
            self._network.scheduler.call_after(_KEEP_ALIVE_NS, self._ask_whether_alive, 0)

    def _ask_whether_alive(self, unanswered_count: int) -> None:
        network = self._network
        if self._is_lost:
            return
        there, back = (self.address[0], self.peer_address[0]), (self.peer_address[0], self.address[0])
        is_silent = network.is_blocked(*there) or network.is_blocked(*back)
        if self.peer._has_vanished and not is_silent:
            self.lose(_reset_by_peer())
        elif is_silent and unanswered_count == _KEEP_ALIVE_LIMIT:
            self.lose(TimeoutError(110, "connection timed out"))
        else:
            count = unanswered_count + 1 if is_silent else 0
            network.scheduler.call_after(_KEEP_ALIVE_NS, self._ask_whether_alive, count)

    # --- in

    def _on_segment(self, segment: Segment) -> None:
        """Runs on this end's loop."""
        if self._is_lost:
            return
        if segment is _RESET:
            self.lose(_reset_by_peer())
        elif not self._is_reading or self._unread or self._protocol is None:
            if not self._is_closing:
                self._unread.append(segment)
        else:
            self._take(segment)

    def _read_waiting(self) -> None:
        while self._unread and self._is_reading and not self._is_lost:
            self._take(self._unread.popleft())

    def _take(self, segment: Segment) -> None:
        protocol = self._protocol
        if not segment:
            self._network.trace(self.number, -1)
            if not protocol.eof_received():
                self.close()
            return
        length = len(segment)
        self._network.trace(self.number, length)
        if isinstance(protocol, BufferedProtocol):
            self._take_buffered(protocol, segment)
        else:
            protocol.data_received(bytes(segment))
        self._acknowledge(length)

    def _take_buffered(self, protocol: BufferedProtocol, segment: bytes | bytearray) -> None:
        offset, view = 0, memoryview(segment)
        while offset < len(segment) and not self._is_lost:
            if not self._is_reading:
                # It paused in the middle: the kernel would have kept the rest.
                self._unread.appendleft(bytes(view[offset:]))
                self._in_flight_credit(len(segment) - offset)
                return
            buffer = memoryview(protocol.get_buffer(-1))
            taken = min(len(buffer), len(segment) - offset)
            buffer[:taken] = view[offset : offset + taken]
            protocol.buffer_updated(taken)
            offset += taken

    def _in_flight_credit(self, length: int) -> None:
        """Bytes that went back to the unread ones are not acknowledged yet."""
        self._unacknowledged_bytes -= length

    def _acknowledge(self, length: int) -> None:
        self._unacknowledged_bytes += length
        if self._unacknowledged_bytes and not self._network.is_blocked(self.address[0], self.peer_address[0]):
            acknowledged, self._unacknowledged_bytes = self._unacknowledged_bytes, 0
            self.peer._on_acknowledged(acknowledged)

    def _on_acknowledged(self, length: int) -> None:
        self._in_flight_bytes -= length
        self._stalled_since_ns = None
        if self._outgoing:
            self._pump()

    # --- ends

    def lose(self, error: Exception | None) -> None:
        """The connection is over on this end."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._unread.clear()
        self._network.transports.pop(self, None)
        self._network.trace(self.number, -2)
        self.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def close_by_kernel(self) -> None:
        """The process is gone: what the socket had taken is on its way, and then the end."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._network.transports.pop(self, None)
        self._send_now(_RESET if self._unread else _FIN)

    def vanish(self) -> None:
        """The machine lost power: no last word."""
        self._is_lost = self._is_closing = self._has_vanished = True
        self._network.transports.pop(self, None)


def _reset_by_peer() -> ConnectionResetError:
    return ConnectionResetError(104, "connection reset by peer")
