"""Logs as leaders write them, with every kind of message and frame."""

from __future__ import annotations

from random import Random
from typing import Final

from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.service_api.types import (
    LOG_STREAM_ID,
    CloseReason,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
    TimeUnit,
)
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.messages import (
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
    encode_session_message,
)

TERM_LENGTH: Final = 64 << 10
MTU: Final = 1408
ROOM: Final = MTU - HEADER_LENGTH - 32
"""The payload of a session message that fills a frame."""


def make_publisher(position: int = 0, *, checksums: bool = True, stream_id: int = LOG_STREAM_ID) -> LogPublisher:
    return LogPublisher(
        LogBuffer(position=position, retained_bytes=1 << 20),
        log_session_id=7,
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        checksums=checksums,
        stream_id=stream_id,
    )


def new_term(position: int = 0) -> NewLeadershipTermEvent:
    return NewLeadershipTermEvent(
        leadership_term_id=TermId(1),
        log_position=0,
        timestamp=1,
        term_base_log_position=position,
        leader_member_id=MemberId(0),
        log_session_id=7,
        time_unit=TimeUnit.MILLIS,
    )


def session_message(length: int, random: Random) -> bytes:
    payload = bytes(random.randrange(1, 256) for _ in range(length))
    return encode_session_message(1, 1, 5, payload)


def make_log(*, checksums: bool = True, seed: int = 1, stream_id: int = LOG_STREAM_ID) -> bytes:
    """Every kind of message, runs of uniform ones, fragments that fill their frames, and padding between two terms."""
    random, publisher = Random(seed), make_publisher(checksums=checksums, stream_id=stream_id)
    publisher.append_positioned(new_term())
    for name in ("", "127.0.0.1:1", "a" * 40):
        publisher.append_message(
            SessionOpenEvent(
                leadership_term_id=TermId(1),
                correlation_id=CorrelationId(1),
                cluster_session_id=ClusterSessionId(1),
                timestamp=2,
                response_stream_id=102,
                response_channel=name,
                encoded_principal=name.encode()[:3],
            ).encode()
        )
    lengths = [40] * 40 + [1, 33, 40, 41] + [0, ROOM, ROOM + 1, 2 * (MTU - 32) - 32, 3 * (MTU - 32) - 32 + 5, ROOM, 7]
    for length in lengths:
        publisher.append_message(session_message(length, random))
    for number in range(20):
        publisher.append_message(
            TimerEvent(leadership_term_id=TermId(1), correlation_id=CorrelationId(number), timestamp=3).encode()
        )
    while publisher.log_buffer.append_position < TERM_LENGTH:
        publisher.append_message(session_message(2 * ROOM, random))
    publisher.append_message(
        SessionCloseEvent(
            leadership_term_id=TermId(1),
            cluster_session_id=ClusterSessionId(1),
            timestamp=4,
            close_reason=CloseReason.CLIENT_ACTION,
        ).encode()
    )
    for length in lengths:
        publisher.append_message(session_message(length, random))
    return b"".join(publisher.log_buffer.take_pending())
