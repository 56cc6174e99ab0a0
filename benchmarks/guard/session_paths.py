"""The hot paths of many sessions with one message in flight each: what one pass of a loop brings.

A chunk is one message of each of `CHUNK_MESSAGES` sessions. `sessions_…` have connections of their own; `shared_…` are
on one connection of a client process. Sockets are not there, so what is counted is our own work for a connection and a
message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from ...client import ClusterClient, SharedConnection
from ...cluster.core.log.log_buffer import LogBuffer
from ...cluster.runtime.links.ingress import Ingress
from ...cluster.runtime.links.ingress_bytes import IngressBytes
from ...cluster.service.agent import ClusteredServiceAgent
from ...cluster.service.bounded_log_adapter import BoundedLogAdapter
from ...service_api.net.connection_gate import ConnectionGate
from ...service_api.net.transport import Purpose
from ...service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TimeUnit,
)
from ...service_api.wire.frame import encode_message
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.log.messages import SessionOpenEvent
from ...service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER, EventCode
from ..services.echo import EchoService
from .stand_ins import (
    MTU_LENGTH_BYTES,
    TERM,
    TIMESTAMP_MS,
    ChunkPath,
    DroppingTransport,
    LeadingOwner,
    NeverTimer,
    NoLogReader,
    OpeningMember,
    PassLoop,
    QuietModule,
    opening_config,
    receive,
)

_LONGER_BYTES: Final = 64
"""What every other message of `sessions_ingest_mixed` is longer by."""


class _NextSender:
    """Sends the next message when a reply comes."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self.client: ClusterClient | None = None

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Send."""
        if self.client is not None:
            self.client.try_offer(self._payload)

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing."""


def make_session_paths(payloads: Sequence[bytes]) -> Mapping[str, Callable[[], ChunkPath]]:
    """Make the paths by name, each with a session for each payload."""
    longer = [payload + bytes(_LONGER_BYTES * (number % 2)) for number, payload in enumerate(payloads)]
    return {
        "sessions_ingest": lambda: _ingest(payloads),
        "sessions_ingest_mixed": lambda: _ingest(longer),
        "sessions_deliver_and_egress": lambda: _deliver(payloads, is_shared=False),
        "sessions_client_round": lambda: _client_round(payloads, is_shared=False),
        "shared_ingest": lambda: _shared_ingest(payloads),
        "shared_deliver_and_egress": lambda: _deliver(payloads, is_shared=True),
        "shared_client_round": lambda: _client_round(payloads, is_shared=True),
    }


def _messages(payloads: Sequence[bytes], *, timestamp: int, stream_id: int) -> list[bytes]:
    """Encode a frame of each session: they are numbered from 1."""
    return [
        encode_message(
            SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, TERM, number, timestamp) + payload,
            stream_id=stream_id,
            mtu_length=MTU_LENGTH_BYTES,
        )
        for number, payload in enumerate(payloads, 1)
    ]


def _open_connections(count: int, log_buffer: LogBuffer) -> list[IngressBytes]:
    """Open so many connections to a member that leads."""
    owner: Any = LeadingOwner(log_buffer)
    gate: Any = ConnectionGate(call_later=lambda delay_s, call: cast(asyncio.TimerHandle, NeverTimer()))
    ingress = Ingress(owner, gate=gate)
    connections = []
    for number in range(count):
        accepted = gate.enter(Purpose.INGRESS, ("127.0.0.1", number))
        assert accepted is not None
        accepted.admit()
        connection = IngressBytes(ingress, accepted)
        connection.connection_made(DroppingTransport())
        receive(connection, SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID).encode())
        connections.append(connection)
    return connections


def _bind_sessions(count: int, log_buffer: LogBuffer, *, is_shared: bool) -> list[IngressBytes]:
    """Give each of so many sessions the connection that it is on."""
    connections = _open_connections(1 if is_shared else count, log_buffer) * (count if is_shared else 1)
    for number, connection in enumerate(connections, 1):
        connection.life.bind(ClusterSessionId(number), TERM)
    return connections


def _ingest(payloads: Sequence[bytes]) -> ChunkPath:
    """The leader receives a message on each connection, stamps them and appends them to the window."""
    log_buffer = LogBuffer(position=0, retained_bytes=0)
    frames = _messages(payloads, timestamp=0, stream_id=INGRESS_STREAM_ID)
    connections = _bind_sessions(len(payloads), log_buffer, is_shared=False)
    return _append_arrivals(log_buffer, [*zip(connections, frames, strict=True)])


def _shared_ingest(payloads: Sequence[bytes]) -> ChunkPath:
    """The leader receives a message of each session on their one connection."""
    log_buffer = LogBuffer(position=0, retained_bytes=0)
    frames = _messages(payloads, timestamp=0, stream_id=INGRESS_STREAM_ID)
    connection = _bind_sessions(len(payloads), log_buffer, is_shared=True)[0]
    return _append_arrivals(log_buffer, [(connection, b"".join(frames))])


def _append_arrivals(log_buffer: LogBuffer, arrivals: Sequence[tuple[IngressBytes, bytes]]) -> ChunkPath:
    loop = PassLoop()

    def receive_all() -> None:
        for connection, data in arrivals:
            receive(connection, data)

    def run() -> None:
        loop.run(receive_all)
        log_buffer.take_pending()
        log_buffer.discard_before(log_buffer.append_position)

    return run


def _deliver(payloads: Sequence[bytes], *, is_shared: bool) -> ChunkPath:
    """The leader hands a message of each session to its service, and each reply to its connection."""
    module: Any = QuietModule()  # the rest of its methods is for entries that do not occur here
    log_buffer = LogBuffer(position=0, retained_bytes=0)
    agent = ClusteredServiceAgent(
        [EchoService()], module, member_id=MemberId(0), time_unit=TimeUnit.MILLIS, max_payload_length=1 << 20
    )
    adapter = BoundedLogAdapter(log_buffer, NoLogReader(), agent, module)
    for number, connection in enumerate(_bind_sessions(len(payloads), log_buffer, is_shared=is_shared), 1):
        agent.connect_egress(ClusterSessionId(number), connection.egress, TERM)
        agent.on_session_open(
            SessionOpenEvent(
                leadership_term_id=TERM,
                correlation_id=CorrelationId(1),
                cluster_session_id=ClusterSessionId(number),
                timestamp=TIMESTAMP_MS,
                response_stream_id=102,
            )
        )
    log = b"".join(_messages(payloads, timestamp=TIMESTAMP_MS, stream_id=INGRESS_STREAM_ID))
    loop = PassLoop()

    def deliver_all() -> None:
        log_buffer.append(log)
        log_buffer.take_pending()
        adapter.advance_limit(log_buffer.append_position)
        adapter.poll(1 << 30)
        log_buffer.discard_before(adapter.position)

    return lambda: loop.run(deliver_all)


def _client_round(payloads: Sequence[bytes], *, is_shared: bool) -> ChunkPath:
    """Each session of a client process takes a reply and sends the next message."""
    member, loop = OpeningMember(), PassLoop()
    config = opening_config(member)
    shared = SharedConnection(config) if is_shared else None
    senders = [_NextSender(payload) for payload in payloads]

    async def open_all() -> None:
        for sender in senders:
            sender.client = await (
                ClusterClient.connect(egress_listener=sender, config=config)
                if shared is None
                else shared.open_session(egress_listener=sender)
            )

    loop.complete(open_all())
    member.is_open = True
    replies = _messages(payloads, timestamp=TIMESTAMP_MS, stream_id=EGRESS_STREAM_ID)
    if is_shared:
        replies = [b"".join(replies)]
    arrivals = [*zip(member.protocols, replies, strict=True)]

    def receive_all() -> None:
        for protocol, data in arrivals:
            receive(protocol, data)

    return lambda: loop.run(receive_all)
