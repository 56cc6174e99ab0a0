"""The hot paths of a message, one by one, without sockets, disks or other processes.

Each is what a node or a client does with a message, in the code that does it there, on chunks of whole frames. So what
a path costs can be timed, and its instructions counted, which come out the same on a busy machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from ...client.config import ClientConfig
from ...client.protocol.effects import Dial
from ...client.protocol.protocol import ClientProtocol
from ...cluster.core.log.log_buffer import LogBuffer
from ...cluster.core.log.log_receiver import LogReceiver
from ...cluster.core.vocabulary.configuration import Configuration, ConfigurationHistory
from ...cluster.messages.consensus import AppendPosition
from ...cluster.service.agent import ClusteredServiceAgent
from ...cluster.service.bounded_log_adapter import BoundedLogAdapter
from ...service_api import ClientSession, ClusteredService
from ...service_api.types import (
    EGRESS_STREAM_ID,
    LOG_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TimeUnit,
)
from ...service_api.wire.frame import HEADER_LENGTH, encode_message
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.log.messages import SessionOpenEvent
from ...service_api.wire.session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER, EventCode
from ...service_api.wire.session_frame import PREFIX_LENGTH
from ..services.echo import EchoService
from .request_paths import make_request_paths
from .session_paths import make_session_paths
from .snapshot_paths import make_snapshot_paths
from .stand_ins import (
    CHUNK_MESSAGES,
    MEMBER_ENDPOINT,
    MTU_LENGTH_BYTES,
    TERM,
    TERM_LENGTH_BYTES,
    TIMESTAMP_MS,
    ChunkPath,
    NoLogReader,
    QuietModule,
    make_publisher,
    session_opened,
)
from .typed_paths import make_typed_paths

SESSION: Final = ClusterSessionId(1)


class _Outlet:
    """Takes egress and drops it."""

    def write(self, data: bytes | bytearray) -> None:
        """Drop."""


class _SilentService(ClusteredService):
    """Takes each message and does nothing with it."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Do nothing."""


class _Listener:
    """The cheapest listener of a client."""

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Drop."""

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Nothing."""

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Nothing."""


def make_paths(payload_length: int) -> Mapping[str, Callable[[], ChunkPath]]:
    """The paths by name; each makes its surroundings when it is called, and gives what takes a chunk through."""
    payloads = [random.Random(n).randbytes(payload_length) for n in range(CHUNK_MESSAGES)]
    return {
        "codec_encode": _encode,
        "codec_decode": _decode,
        "codec_unpack": _unpack,
        "client_offer": lambda: _offer(payloads),
        "ingest": lambda: _ingest(payloads),
        "follower_accept": lambda: _accept(payloads),
        "deliver": lambda: _deliver(payloads, _SilentService()),
        "deliver_and_egress": lambda: _deliver(payloads, EchoService()),
        "client_receive": lambda: _receive(payloads),
        **make_request_paths(payloads),
        **make_session_paths(payloads),
        **make_snapshot_paths(),
        **make_typed_paths(),
    }


def _message() -> AppendPosition:
    return AppendPosition(leadership_term_id=TERM, log_position=4096, follower_member_id=MemberId(1), flags=0)


def _encode() -> ChunkPath:
    message = _message()

    def run() -> None:
        for _ in range(CHUNK_MESSAGES):
            message.encode()

    return run


def _decode() -> ChunkPath:
    encoded = _message().encode()

    def run() -> None:
        for _ in range(CHUNK_MESSAGES):
            AppendPosition.decode(encoded)

    return run


def _unpack() -> ChunkPath:
    encoded = _message().encode()

    def run() -> None:
        for _ in range(CHUNK_MESSAGES):
            AppendPosition.unpack(encoded)

    return run


def _offer(payloads: list[bytes]) -> ChunkPath:
    protocol, connection_id = _open_session()

    def run() -> None:
        offer = protocol.offer
        for payload in payloads:
            offer(payload)
        protocol.data_to_send(connection_id)

    return run


def _ingress_chunk(payloads: list[bytes]) -> bytes:
    protocol, connection_id = _open_session()
    for payload in payloads:
        protocol.offer(payload)
    return bytes(protocol.data_to_send(connection_id) or b"")


def _ingest(payloads: list[bytes]) -> ChunkPath:
    """The leader stamps what a client sent and appends it to the window."""
    chunk = _ingress_chunk(payloads)
    received = bytearray(chunk)
    buffer = LogBuffer(position=0, retained_bytes=0)
    publisher = make_publisher(buffer)
    prefixes = (bytes(chunk[HEADER_LENGTH : HEADER_LENGTH + PREFIX_LENGTH]),)

    def run() -> None:
        received[:] = chunk
        publisher.append_ingress(received, 0, len(received), prefixes=prefixes, timestamp=TIMESTAMP_MS)
        buffer.take_pending()
        buffer.discard_before(buffer.append_position)

    return run


def _log_chunk(payloads: list[bytes]) -> bytes:
    buffer = LogBuffer(position=0, retained_bytes=0)
    received = bytearray(_ingress_chunk(payloads))
    prefixes = (bytes(received[HEADER_LENGTH : HEADER_LENGTH + PREFIX_LENGTH]),)
    make_publisher(buffer).append_ingress(received, 0, len(received), prefixes=prefixes, timestamp=TIMESTAMP_MS)
    return b"".join(buffer.take_pending())


def _accept(payloads: list[bytes]) -> ChunkPath:
    """A follower checks what the leader sent and appends it to its window."""
    buffer = LogBuffer(position=0, retained_bytes=0)
    received = bytearray(_log_chunk(payloads))
    rules = FrameRules(
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH_BYTES,
        mtu_length_bytes=MTU_LENGTH_BYTES,
        stream_id=LOG_STREAM_ID,
        checksummed=True,
        is_cluster_log=True,
    )
    receiver = LogReceiver(buffer, rules, ConfigurationHistory(Configuration(members=(), high_member_id=0)))

    def run() -> None:
        buffer.reset(0)
        receiver.accept(received, 0, len(received))

    return run


def _deliver(payloads: list[bytes], service: ClusteredService) -> ChunkPath:
    """A member hands committed messages to its service; the leader sends what that offers."""
    module: Any = QuietModule()  # the rest of its methods is for entries that do not occur here
    buffer = LogBuffer(position=0, retained_bytes=0)
    agent = ClusteredServiceAgent(
        [service],
        module,
        member_id=MemberId(0),
        time_unit=TimeUnit.MILLIS,
        max_payload_length=1 << 20,
    )
    adapter = BoundedLogAdapter(buffer, NoLogReader(), agent, module)
    agent.connect_egress(SESSION, _Outlet(), TERM)
    agent.on_session_open(
        SessionOpenEvent(
            leadership_term_id=TERM,
            correlation_id=CorrelationId(1),
            cluster_session_id=SESSION,
            timestamp=TIMESTAMP_MS,
            response_stream_id=102,
        )
    )
    chunk = _log_chunk(payloads)

    def run() -> None:
        buffer.append(chunk)
        buffer.take_pending()
        adapter.advance_limit(buffer.append_position)
        adapter.poll(1 << 30)
        buffer.discard_before(adapter.position)

    return run


def _receive(payloads: list[bytes]) -> ChunkPath:
    """A client takes what the leader sent it."""
    protocol, connection_id = _open_session()
    header = SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, TERM, SESSION, TIMESTAMP_MS)
    frames = (
        encode_message(header + payload, stream_id=EGRESS_STREAM_ID, mtu_length=MTU_LENGTH_BYTES)
        for payload in payloads
    )
    received = memoryview(b"".join(frames))

    def run() -> None:
        protocol.receive_data(connection_id, received, 0)

    return run


def _open_session() -> tuple[ClientProtocol, int]:
    """Bring a protocol to OPEN by answering its connect request."""
    config = ClientConfig(endpoints=(MEMBER_ENDPOINT,), outgoing_window_bytes=1 << 40)
    protocol = ClientProtocol(config, _Listener(), random=lambda: 0.0)
    protocol.start(0)
    (dial,) = protocol.take_effects()
    assert isinstance(dial, Dial)
    protocol.on_connected(dial.connection_id, 0)
    protocol.data_to_send(dial.connection_id)
    answer = session_opened(SESSION, CorrelationId(0))
    protocol.receive_data(dial.connection_id, memoryview(answer), 0)
    protocol.data_to_send(dial.connection_id)
    return protocol, dial.connection_id
