"""The rules of a cluster's log: flags, reserved value, order of the fragments, and lengths."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.unit.cluster.log_rules import log_rules
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.service_api.types import (
    CloseReason,
    ClusterSessionId,
    CorrelationId,
    MemberId,
    TermId,
    TimeUnit,
)
from trimaran.service_api.wire.frame import (
    FLAG_END,
    HEADER_LENGTH,
    iter_headers,
    unpack_header,
)
from trimaran.service_api.wire.log.log_rules import Before
from trimaran.service_api.wire.log.messages import (
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
    encode_session_message,
)

TERM_LENGTH: Final = 64 << 10
MTU: Final = 1408
RULES: Final = replace(log_rules(term_length_bytes=TERM_LENGTH, mtu_length_bytes=MTU), is_cluster_log=True)
ROOM: Final = MTU - HEADER_LENGTH - 32
"""The payload of a session message that fills a frame."""


def make_publisher(position: int = 0, *, checksums: bool = True) -> LogPublisher:
    return LogPublisher(
        LogBuffer(position=position, retained_bytes=1 << 20),
        log_session_id=7,
        initial_term_id=0,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        checksums=checksums,
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


def make_log(*, checksums: bool = True, seed: int = 1) -> bytes:
    """Every kind of message, runs of uniform ones, fragments that fill their frames, and padding between two terms."""
    random, publisher = Random(seed), make_publisher(checksums=checksums)
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


def walk_slowly(data: bytes, rules=RULES, before: Before = Before.UNKNOWN) -> int:
    """Where the valid frames of `data`, a log from 0 on, end by the readable rules."""
    from trimaran.service_api.wire.log.log_rules import what_follows

    offset = 0
    while len(data) - offset >= HEADER_LENGTH and rules.find_fault(data, offset, offset, before) is None:
        header = unpack_header(data, offset)
        before = what_follows(header, before)
        offset += header.aligned_length
    return min(offset, len(data))


def walk_fast(data: bytes, rules=RULES) -> int:
    offset, before = 0, Before.UNKNOWN
    while True:
        offset, last, before = rules.skip_valid_frames(data, offset, offset, len(data), before)
        if last is None:
            return offset


@pytest.mark.parametrize("checksums", [True, False])
def test_a_log_is_valid(checksums: bool) -> None:
    data, rules = make_log(checksums=checksums), replace(RULES, checksummed=checksums)

    assert walk_slowly(data, rules) == len(data)
    assert walk_fast(data, rules) == len(data)


def header_bits(data: bytes) -> list[tuple[int, int, int]]:
    """All bits of the flags and reserved values, and the bits of lengths that alignment rounds away."""
    found = []
    for offset, _ in iter_headers(data):
        found += [(offset, 0, bit) for bit in range(5)]
        found += [(offset, 5, bit) for bit in range(8)]
        found += [(offset, 24 + byte, bit) for byte in (0, 3, 7) for bit in (0, 7)]
    return found


def flipped(data: bytes, place: tuple[int, int, int]) -> bytes:
    offset, byte, bit = place
    changed = bytearray(data)
    changed[offset + byte] ^= 1 << bit
    return bytes(changed)


@pytest.mark.parametrize("checksums", [True, False])
def test_a_flipped_bit_of_a_header_is_found_where_it_is_or_at_the_next_frame(checksums: bool) -> None:
    data, rules = make_log(checksums=checksums), replace(RULES, checksummed=checksums)
    bits = header_bits(data)
    unseen = set()
    for place in Random(2).sample(bits, 700):
        changed = flipped(data, place)
        end = walk_fast(changed, rules)
        assert end == walk_slowly(changed, rules)
        if end == len(data):
            unseen.add((place[1], place[2]))
            offset = place[0]
            message = data[offset + 34] == 1
            assert message or unpack_header(data, offset).flags != 0xC0, place
        else:
            assert end <= place[0] + 2 * MTU or unpack_header(data, place[0]).flags & FLAG_END == 0
    assert {byte for byte, _ in unseen} <= {0}, "only lengths of messages that do not say how long they are"
