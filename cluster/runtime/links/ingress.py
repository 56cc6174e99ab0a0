"""The ingress connections: clients' messages come in, and their egress goes out, on one connection.

The hot path is one call per received chunk. All connections receive into one shared buffer, which works because the
loop asks for a buffer and reports what it put there without anything in between; only an incomplete frame is kept per
connection. What is done with the frames of one connection is in `ingress_bytes`.

Bounds: while more than the ingress window is appended and not delivered, no connection is read. What is unfinished, of
frames and of messages in fragments, is bounded for all connections together; what clients do not take of their egress
is so by `egress_tracker`. How many connections there may be, and for how long without a session, the gate knows.

Connections take turns: in one turn of the loop each is read once, at most `RECEIVE_BUFFER_BYTES`. The one that fills
the window is read last when reading goes on; otherwise a greedy client that the loop asks first would fill the window
again each time, and no other would ever be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self

from ....service_api.cluster_id import NULL_CLUSTER_ID
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import ConnectionGate
from ....service_api.net.transport import Listener, NetworkStack, Purpose
from ...core import events as ev
from ...core.context import ConsensusContext
from ...settings.config import NodeConfig
from ..watching.stage_watch import StageWatch
from .connection_life import WINDOW
from .egress_tracker import DEFAULT_LIMIT_BYTES, EgressTracker
from .freed_memory import FreedMemory
from .gathered_ingress import GatheredIngress
from .ingress_bytes import IngressBytes
from .ingress_owner import IngressOwner
from .session_traffic import SessionTraffic

RECEIVE_BUFFER_BYTES: Final = 512 << 10
_UNFINISHED_LIMIT_BYTES: Final = 128 << 20
_SESSION_OPEN_TIMEOUT_S: Final = 30.0
_CONNECTION_BYTES: Final = 64 << 10
"""About what a connection on any endpoint leaves behind: buffers of TLS, or of what it sent."""
_SILENCE_NS: Final = 1_000_000_000
"""How long clients are not read before they are told that this process runs."""
_LOOK_LIMIT: Final = 1000
"""Connections looked at in one go for whether their clients have left."""


class Ingress:
    """The ingress endpoint and its connections."""

    def __init__(
        self,
        owner: IngressOwner,
        *,
        gate: ConnectionGate,
        egress_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        unfinished_limit_bytes: int = _UNFINISHED_LIMIT_BYTES,
        session_open_timeout_s: float = _SESSION_OPEN_TIMEOUT_S,
        trim_memory: Callable[[], None] = lambda: None,
        find_cluster_id: Callable[[], int] = lambda: NULL_CLUSTER_ID,
        whole_cluster_id: int = NULL_CLUSTER_ID,
    ) -> None:
        self.owner = owner
        self.stages = StageWatch(owner.monotonic_ns)
        """Where the time of requests goes, from here on."""
        self.traffic: Final = SessionTraffic(lambda: owner.publisher, owner.monotonic_ns)
        self.find_cluster_id = find_cluster_id
        self.whole_cluster_id = whole_cluster_id
        self.egress: Final = EgressTracker(egress_limit_bytes, owner.monotonic_ns)
        self._memory = FreedMemory(trim_memory, owner.monotonic_ns)
        self._unfinished_peak_bytes = 0
        self._arrived_count = 0
        self.gate = gate
        self.session_open_timeout_s = session_open_timeout_s
        self.unfinished_bytes = 0
        """Of frames and messages whose end has not come, of all connections."""
        self.unfinished_limit_bytes = unfinished_limit_bytes
        self.buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self.view = memoryview(self.buffer)
        self.connections: dict[int, IngressBytes] = {}
        """By number, in the order in which they are read again after a pause."""
        self.gathered = GatheredIngress(self)
        self.farewells: dict[asyncio.Transport, None] = {}
        """Connections that have been ended, while their clients read why."""
        self._next_connection_id = 1
        self._listener: Listener | None = None
        self.is_paused = False
        """Whether no connection is read."""
        self._paused_from_ns = self._paused_until_ns = 0
        self._looked_id = 0
        """The last connection that was looked at for whether its client has left."""

    @classmethod
    def of_config(
        cls,
        owner: IngressOwner,
        ctx: ConsensusContext,
        config: NodeConfig,
        *,
        gate: ConnectionGate,
        trim_memory: Callable[[], None],
    ) -> Self:
        """Make the ingress of a member with these settings."""
        return cls(
            owner,
            gate=gate,
            egress_limit_bytes=config.egress_limit_bytes,
            unfinished_limit_bytes=config.unfinished_limit_bytes,
            session_open_timeout_s=config.session_open_timeout_ms / 1000,
            trim_memory=trim_memory,
            find_cluster_id=lambda: ctx.cluster_id,
            whole_cluster_id=ctx.whole_cluster_id,
        )

    def __repr__(self) -> str:
        return f"<Ingress connections={len(self.connections)} paused={self.is_paused}>"

    @property
    def free_view(self) -> memoryview:
        """Where the next connection receives: after what is gathered."""
        end = self.gathered.end
        return self.view[end:] if end else self.view

    async def start(self, network: NetworkStack, endpoint: Endpoint) -> None:
        """Listen.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        self._listener = await network.listen(
            Purpose.INGRESS, endpoint, lambda accepted: IngressBytes(self, accepted), gate=self.gate
        )

    def register(self, connection: IngressBytes) -> int:
        """Number a new connection."""
        connection_id = self._next_connection_id
        self._next_connection_id += 1
        self.connections[connection_id] = connection
        self.gathered.look(len(self.connections))
        if self.is_paused:
            connection.hold(WINDOW)
            # Once more later: uvloop, and asyncio until Python 3.11.3, begin to read after `connection_made`, whatever
            # was asked for in it.
            asyncio.get_running_loop().call_soon(connection.begin_held)
        return connection_id

    def forget(self, connection_id: int) -> None:
        """Tell the core that a connection is gone, once; its sessions' egress is discarded from now on."""
        connection = self.connections.get(connection_id)
        if connection is None:
            return
        self.egress.end(connection.egress)
        session_ids = [*connection.life.session_ids]
        connection.life.unbind()
        for session_id in session_ids:
            self.owner.disconnect_egress(session_id)
        self.unfinished_bytes -= connection.drop_unfinished()
        del self.connections[connection_id]
        self.gathered.look(len(self.connections))
        self.owner.post_soon(ev.ClientDisconnected(connection_id))

    def change_unfinished(self, difference_bytes: int) -> None:
        """Count what is unfinished; beyond the limit the connection that holds the most is ended."""
        self.unfinished_bytes += difference_bytes
        self._unfinished_peak_bytes = max(self._unfinished_peak_bytes, self.unfinished_bytes)
        while self.unfinished_bytes > self.unfinished_limit_bytes:
            greediest = max(self.connections.values(), key=lambda connection: connection.unfinished_bytes)
            if not greediest.unfinished_bytes:
                return
            greediest.life.refuse(
                f"too much is unfinished on all connections: unfinished_bytes={self.unfinished_bytes} "
                f"limit={self.unfinished_limit_bytes} of this one={greediest.unfinished_bytes}"
            )

    def unbind_all(self) -> None:
        """Stop taking session messages: this member does not lead any more."""
        for connection in self.connections.values():
            connection.life.unbind()

    def pause(self) -> None:
        """Stop reading every connection: the ingress window is full, or the leader holds."""
        if not self.is_paused:
            self._paused_from_ns = self.owner.monotonic_ns()
        self.is_paused = True
        for connection in self.connections.values():
            connection.hold(WINDOW)

    def on_window_filled(self, connection_id: int) -> None:
        """Stop reading; the connection that filled the window is the last one that is read when reading goes on."""
        self.connections[connection_id] = self.connections.pop(connection_id)
        if not self.is_paused:  # a leader that holds has paused before
            self.traffic.on_window_filled()
        self.pause()

    def resume(self) -> None:
        """Read again, if reading was paused."""
        if self.is_paused:
            self.is_paused = False
            self._paused_until_ns = self.owner.monotonic_ns()
            for connection in self.connections.values():
                connection.resume(WINDOW)

    def last_activity_ns(self, connection_id: int) -> int | None:
        """When a connection last brought anything, or could not, because it was not read.

        None for a connection that is gone.
        """
        connection = self.connections.get(connection_id)
        if connection is None:
            return None
        if self.is_paused:
            return self.owner.monotonic_ns()
        return max(connection.last_activity_ns, self._paused_until_ns)

    def close_half_open_connections(self) -> None:
        """Drop connections that are not read and whose clients have left; to be called once in a while.

        Or a leader that is suspended for long would run out of sockets: clients give up one that is silent and dial
        again. What the session's own connection still holds of messages is kept for when it is read again. Each call
        looks at `_LOOK_LIMIT` connections at most, in turn: 3 us each.
        """
        looked = sorted(number for number in self.connections if number > self._looked_id)[:_LOOK_LIMIT]
        for number in looked:
            self.connections[number].abort_if_peer_closed()
        self._looked_id = looked[-1] if len(looked) == _LOOK_LIMIT else 0

    @property
    def egress_waiting_bytes(self) -> int:
        """How much egress has been written and not been taken by the sockets yet, of all connections."""
        return self.egress.held_bytes + sum(
            connection.egress.unsent_bytes
            for connection in self.connections.values()
            if connection.egress.waiting is None
        )

    def look(self) -> None:
        """Do what is due once a second: keep egress to its limit, give memory back, end what no session needs."""
        self.traffic.look()
        self.close_half_open_connections()
        if self.is_paused and self.owner.monotonic_ns() - self._paused_from_ns >= _SILENCE_NS:
            for connection in self.connections.values():
                connection.life.answer_keep_alive()  # it may have asked, and was not read
        self.egress.look(connection.egress for connection in self.connections.values())
        self.gate.look(self.session_open_timeout_s)
        arrived_count = self.gate.arrived_count
        left_bytes = (arrived_count - self._arrived_count) * _CONNECTION_BYTES
        self._arrived_count = arrived_count
        peak_bytes = self.egress.take_peak_bytes() + self._unfinished_peak_bytes
        self._unfinished_peak_bytes = self.unfinished_bytes
        self._memory.look(peak_bytes, self.egress.held_bytes + self.unfinished_bytes, left_bytes)

    def close(self) -> None:
        """Stop listening, let what is written go out, and drop every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in [*self.connections.values()]:
            connection.life.close()
        for transport in [*self.farewells]:
            transport.abort()
