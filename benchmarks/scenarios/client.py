"""Client: what an offer and a received message cost, without sockets and without a cluster.

It drives the sans-IO protocol with a session that is open, so the figures are Python's alone: the kernel's
share of a write or a read, once for hundreds of messages, is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from client.config import ClientConfig
from client.effects import Dial
from client.protocol import ClientProtocol
from service_api.types import EGRESS_STREAM_ID, ClusterSessionId, CorrelationId, MemberId, TermId
from service_api.wire.frame import encode_message
from service_api.wire.session import SESSION_MESSAGE_HEADER, EventCode, SessionEvent

from ..environment import describe, tune_garbage_collector
from ..report import Report

_ROUNDS = 20
_MTU = 65504


class _Discard:
    """Counts messages, as the cheapest listener would."""

    def __init__(self) -> None:
        self.count = 0

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        self.count += 1

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        pass

    def on_session_event(self, code: EventCode, detail: str) -> None:
        pass


def run(*, payload: int, messages: int) -> Report:
    """Measure in rounds; the median round counts."""
    listener = _Discard()
    protocol, connection_id = _open_session(listener)
    message = bytes(payload)
    batch = max(messages // _ROUNDS, 1)
    frame = _egress_frame(message)
    chunk = memoryview(frame * max((256 << 10) // len(frame), 1))
    chunk_messages = len(chunk) // len(frame)
    tune_garbage_collector()

    def offer_batch() -> int:
        offer = protocol.offer
        for _ in range(batch):
            offer(message)
        protocol.data_to_send(connection_id)
        return batch

    def receive_batch() -> int:
        calls = max(batch // chunk_messages, 1)
        for _ in range(calls):
            protocol.receive_data(connection_id, chunk, 0)
        return calls * chunk_messages

    return {
        "scenario": "client",
        "us_per_offer": _us_per_message(offer_batch),
        "us_per_received_message": _us_per_message(receive_batch),
        "parameters": {"payload": payload, "messages": messages},
        "environment": describe(None),
    }


def _us_per_message(run_batch: Callable[[], int]) -> float:
    rounds = []
    for _ in range(_ROUNDS):
        started_ns = time.perf_counter_ns()
        count = run_batch()
        rounds.append((time.perf_counter_ns() - started_ns) / count / 1000)
    return round(median(rounds), 3)


def _egress_frame(payload: bytes) -> bytes:
    header = SESSION_MESSAGE_HEADER.pack(24, 1, 111, 16, 0, 1, 0)
    return encode_message(header + payload, stream_id=EGRESS_STREAM_ID, mtu_length=_MTU)


def _open_session(listener: _Discard) -> tuple[ClientProtocol, int]:
    """Bring a protocol to OPEN by answering its connect request."""
    config = ClientConfig(endpoints=("127.0.0.1:1",), outgoing_window_bytes=1 << 40)
    protocol = ClientProtocol(config, listener, random=lambda: 0.0)
    protocol.start(0)
    (dial,) = protocol.take_effects()
    assert isinstance(dial, Dial)
    protocol.on_connected(dial.connection_id, 0)
    protocol.data_to_send(dial.connection_id)
    opened = SessionEvent(
        cluster_session_id=ClusterSessionId(1),
        correlation_id=CorrelationId(0),
        leadership_term_id=TermId(0),
        leader_member_id=MemberId(0),
        code=EventCode.OK,
        detail="0=127.0.0.1:1",
    )
    answer = encode_message(opened.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=_MTU)
    protocol.receive_data(dial.connection_id, memoryview(answer), 0)
    protocol.data_to_send(dial.connection_id)
    return protocol, dial.connection_id
