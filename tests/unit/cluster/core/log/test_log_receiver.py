"""The follower's gate takes what the rules of recorded frames pass, and nothing else."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.log_rules import log_rules
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.service_api import RemoteProtocolError
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import (
    FRAME_HEADER,
    HEADER_LENGTH,
    TYPE_COMMIT,
    TYPE_DATA,
    TYPE_PADDING,
    encode_frame,
    encode_padding,
)
from trimaran.service_api.wire.frame_rules import FrameRules
from trimaran.service_api.wire.log.log_rules import Before

TERM_LENGTH: Final = 1 << 16
MTU: Final = 1408
RULES: Final = log_rules(initial_term_id=5, term_length_bytes=TERM_LENGTH, mtu_length_bytes=MTU)

Gate = tuple[LogReceiver, LogBuffer]


def gate_at(position: int, rules: FrameRules = RULES) -> Gate:
    buffer = LogBuffer(position=position, retained_bytes=1 << 20)
    return LogReceiver(buffer, rules, roster(0, 1).history), buffer


def taken_of(data: bytes, position: int) -> tuple[bytes, str]:
    """What the gate takes of a log that arrives in one piece, and what it says if it refuses the rest."""
    gate, buffer = gate_at(position)
    try:
        gate.accept(bytearray(data), 0, len(data))
    except RemoteProtocolError as error:
        return b"".join(buffer.chunks_from(position)), str(error)
    return b"".join(buffer.chunks_from(position)), ""


def frame_at(position: int, payload: bytes, **fields: int) -> bytes:
    """A data frame with its checksum; `fields` are header fields to set otherwise."""
    term_count, term_offset = divmod(position, TERM_LENGTH)
    frame = bytearray(encode_frame(payload, stream_id=LOG_STREAM_ID, term_id=5 + term_count, term_offset=term_offset))
    struct.pack_into("<I", frame, 12, zlib.crc32(frame[HEADER_LENGTH:]))
    for name, value in fields.items():
        offset, code = {"version": (4, "B"), "flags": (5, "B"), "type": (6, "H")}[name]
        struct.pack_into("<" + code, frame, offset, value)
    return bytes(frame)


HEADER_BITS: Final = st.lists(st.integers(0, 8 * HEADER_LENGTH - 1), max_size=3)
PLACES: Final = st.sampled_from([0, 96, TERM_LENGTH - 256, TERM_LENGTH - 96, 3 * TERM_LENGTH, 3 * TERM_LENGTH + 1408])


@settings(max_examples=400)
@example(position=0, kind=TYPE_DATA, payload_length=1, bits=[47], before=1, is_checksum_kept=False)
@given(
    position=PLACES,
    kind=st.sampled_from([TYPE_DATA, TYPE_PADDING]),
    payload_length=st.integers(0, 224),
    bits=HEADER_BITS,
    before=st.sampled_from([0, 1, 40]),
    is_checksum_kept=st.booleans(),
)
def test_gate_takes_exactly_what_the_rules_pass(
    position: int, kind: int, payload_length: int, bits: list[int], before: int, is_checksum_kept: bool
) -> None:
    """Any bits of a header changed, with and without a checksum that fits, alone and after a run of valid frames."""
    begin = position - 96 * before
    if begin < 0:
        begin, position = position, position + 96 * before
    if begin // TERM_LENGTH != position // TERM_LENGTH:
        begin = position
    log = b"".join(frame_at(at, b"x" * 64) for at in range(begin, position, 96))
    if kind == TYPE_DATA:
        frame = bytearray(frame_at(position, b"y" * payload_length))
    else:
        term_count, term_offset = divmod(position, TERM_LENGTH)
        frame = bytearray(
            encode_padding(
                TERM_LENGTH - term_offset, stream_id=LOG_STREAM_ID, term_id=5 + term_count, term_offset=term_offset
            )
        )
    for bit in bits:
        frame[bit // 8] ^= 1 << bit % 8
    frame_length = FRAME_HEADER.unpack_from(frame)[0]
    if not is_checksum_kept and HEADER_LENGTH <= frame_length <= 1 << 20:
        frame = frame.ljust((frame_length + 31) & -32, b"\0")
        struct.pack_into("<I", frame, 12, zlib.crc32(frame[HEADER_LENGTH : (frame_length + 31) & -32]))
    found_before = Before.MESSAGE if log else Before.UNKNOWN
    is_valid = RULES.find_fault(frame, 0, position, before=found_before) is None
    length = (frame_length + 31) & -32

    taken, _ = taken_of(log + frame, begin)

    assert taken.startswith(log)
    if is_valid and length <= len(frame):
        assert taken[len(log) : len(log) + length] == frame[:length]
    else:
        assert taken == log


def test_valid_frame_that_is_incomplete_waits_for_the_rest() -> None:
    """What can be said of it already is said at once: a wrong header does not wait for its payload."""
    frame = frame_at(0, b"x" * 200)
    gate, buffer = gate_at(0)

    assert gate.accept(bytearray(frame[:100]), 0, 100) == 0
    assert gate.needed_bytes(bytearray(frame[:100]), 0, 100) == len(frame)
    assert buffer.append_position == 0

    wrong = frame_at(0, b"x" * 200, version=1)
    with pytest.raises(RemoteProtocolError, match="unknown frame version"):
        gate.accept(bytearray(wrong[:100]), 0, 100)


def test_duplicate_that_is_no_frame_of_this_log_is_refused() -> None:
    frame = frame_at(0, b"x" * 64)
    gate, _ = gate_at(96)

    assert gate.accept(bytearray(frame), 0, len(frame)) == len(frame)
    with pytest.raises(RemoteProtocolError, match="log frame at position=0: unknown frame version"):
        gate.accept(bytearray(frame_at(0, b"x" * 64, version=1)), 0, len(frame))


def test_commit_frame_of_another_stream_is_refused() -> None:
    frame = FRAME_HEADER.pack(HEADER_LENGTH, 0, 0, TYPE_COMMIT, 0, 0, LOG_STREAM_ID + 1, 3, 96)
    gate, _ = gate_at(0)

    with pytest.raises(RemoteProtocolError, match=r"commit frame: .* stream_id=101,.* expected=.* stream_id=100,"):
        gate.accept(bytearray(frame), 0, len(frame))
