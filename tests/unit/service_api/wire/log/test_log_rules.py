"""The rules of a cluster's log and of its snapshots: flags, reserved value, order of the fragments, and lengths."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.facts import has_facts
from tests.unit.cluster.log_rules import log_rules
from tests.unit.service_api.wire.log.sample_logs import (
    MTU,
    ROOM,
    TERM_LENGTH,
    make_log,
    make_publisher,
    new_term,
    session_message,
)
from trimaran.service_api.types import CloseReason, ClusterSessionId, TermId
from trimaran.service_api.wire.frame import (
    FLAG_END,
    HEADER_LENGTH,
    encode_padding,
    iter_headers,
    unpack_header,
)
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.log.log_rules import Before, what_follows
from trimaran.service_api.wire.log.messages import SessionCloseEvent

RULES: Final = log_rules(term_length_bytes=TERM_LENGTH, mtu_length_bytes=MTU)
SNAPSHOT_RULES: Final = replace(RULES, is_cluster_log=False, is_snapshot=True)


def walk_slowly(data: bytes, rules: FrameRules = RULES, before: Before = Before.UNKNOWN) -> int:
    """Where the valid frames of `data`, a log from 0 on, end by the readable rules."""
    offset = 0
    while len(data) - offset >= HEADER_LENGTH and rules.find_fault(data, offset, offset, before) is None:
        header = unpack_header(data, offset)
        before = what_follows(header, before)
        offset += header.aligned_length
    return min(offset, len(data))


def walk_fast(data: bytes, rules: FrameRules = RULES) -> int:
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


def frames_of(*lengths: int) -> list[bytes]:
    """The frames of session messages of these lengths, one after the other."""
    publisher = make_publisher()
    for length in lengths:
        publisher.append_message(session_message(length, Random(3)))
    data = b"".join(publisher.log_buffer.take_pending())
    return [data[at : at + header.aligned_length] for at, header in iter_headers(data)]


def test_a_message_that_a_dead_leader_left_without_an_end_is_followed_by_the_next_term() -> None:
    first, *_ = frames_of(2 * ROOM)
    publisher = make_publisher(len(first))
    publisher.append_positioned(new_term(len(first)))
    data = first + b"".join(publisher.log_buffer.take_pending())

    assert walk_slowly(data) == walk_fast(data) == len(data)


def test_another_message_may_not_follow_one_without_an_end() -> None:
    first, *_ = frames_of(2 * ROOM)
    publisher = make_publisher(len(first))
    publisher.append_message(session_message(40, Random(3)))
    data = first + b"".join(publisher.log_buffer.take_pending())

    assert walk_slowly(data) == walk_fast(data) == len(first)
    assert has_facts(RULES.find_fault(data, len(first), len(first), Before.FRAGMENT) or "", "flags=0xc0")


def make_snapshot(checksums: bool, seed: int = 4) -> bytes:
    """Messages of an application: of one length with any bytes, of many lengths, and long ones; padding, too."""
    random, publisher = Random(seed), make_publisher(checksums=checksums)
    lengths = [64] * 60 + [61] * 60 + [0, 1, 7, 8, 33] + [MTU - 32, MTU - 31, 2 * MTU, 3 * (MTU - 32)]
    while publisher.log_buffer.append_position < TERM_LENGTH + 4 * MTU:
        for length in lengths:
            publisher.append_message(random.randbytes(max(0, length - 1)) + bytes([1] * (length > 0)))
    return b"".join(publisher.log_buffer.take_pending())


@pytest.mark.parametrize("checksums", [True, False])
def test_a_flipped_flag_or_reserved_value_of_a_snapshot_is_found(checksums: bool) -> None:
    data, rules = make_snapshot(checksums), replace(SNAPSHOT_RULES, checksummed=checksums)
    bits = [place for place in header_bits(data) if place[1]]

    assert walk_slowly(data, rules) == walk_fast(data, rules) == len(data)
    for place in Random(5).sample(bits, 500):
        changed = flipped(data, place)
        end = walk_fast(changed, rules)
        assert end == walk_slowly(changed, rules)
        assert place[0] - MTU <= end <= place[0] + MTU, place


def test_a_message_of_a_snapshot_may_look_like_one_of_a_log_that_does_not_fill_its_frame() -> None:
    publisher = make_publisher()
    close = SessionCloseEvent(
        leadership_term_id=TermId(1),
        cluster_session_id=ClusterSessionId(1),
        timestamp=4,
        close_reason=CloseReason.CLIENT_ACTION,
    ).encode()
    for _ in range(20):
        publisher.append_message(close[:-3])
    data = b"".join(publisher.log_buffer.take_pending())

    assert walk_slowly(data) == walk_fast(data) == 0
    assert walk_slowly(data, SNAPSHOT_RULES) == walk_fast(data, SNAPSHOT_RULES) == len(data)


def test_no_message_of_a_snapshot_loses_its_end_to_the_next_term() -> None:
    first, *_ = frames_of(2 * ROOM)
    publisher = make_publisher(len(first))
    publisher.append_positioned(new_term(len(first)))
    data = first + b"".join(publisher.log_buffer.take_pending())

    assert walk_slowly(data, SNAPSHOT_RULES) == walk_fast(data, SNAPSHOT_RULES) == len(first)


def test_a_log_may_begin_and_end_inside_a_message() -> None:
    """It was purged, or is being written: nobody knows what lies before, or comes."""
    frames = frames_of(3 * ROOM, 40)
    data = b"".join(frames)
    begin = len(frames[0])

    end, last, before = RULES.skip_valid_frames(data[begin:], 0, begin, len(data) - begin)
    assert (end, last) == (len(data) - begin, len(data) - begin - len(frames[-1]))
    assert before is Before.MESSAGE
    assert RULES.skip_valid_frames(data, 0, 0, begin)[2] is Before.FRAGMENT


def test_a_term_does_not_begin_inside_a_message() -> None:
    frame = bytearray(frames_of(40)[0])
    frame[5] = FLAG_END

    assert has_facts(RULES.find_fault(bytes(frame), 0, 0) or "", "flags=0x40")


def test_padding_may_lie_between_messages_and_not_inside_one() -> None:
    padding = encode_padding(96, stream_id=100, term_offset=1408)
    header = unpack_header(padding)

    assert RULES.find_fault(padding, 0, 1408, Before.MESSAGE) is None
    assert RULES.find_fault(padding, 0, 1408, Before.FRAGMENT) is not None
    assert what_follows(header, Before.FRAGMENT) is Before.LOST_END


def test_a_recording_of_an_application_may_hold_all_of_this() -> None:
    data, rules = make_log(), replace(RULES, is_cluster_log=False)

    for place in header_bits(data)[100:3000:37]:
        if place[1]:
            assert walk_fast(flipped(data, place), rules) == len(data)
