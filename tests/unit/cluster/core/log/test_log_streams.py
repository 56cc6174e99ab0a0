"""The log's bytes: written by the leader's publisher, carried in any pieces, taken by a follower's receiver."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cluster.core.rosters import roster
from tests.unit.cluster.log_rules import log_rules
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.log_publisher import LogPublisher
from trimaran.cluster.core.log.log_receiver import LogReceiver
from trimaran.service_api import LocalProtocolError, RemoteProtocolError
from trimaran.service_api.wire.frame import (
    FLAG_BEGIN,
    FLAG_END,
    HEADER_LENGTH,
    TYPE_DATA,
    TYPE_PADDING,
    UNFRAGMENTED,
    FrameHeader,
    align,
    frame_crc,
    unpack_header,
)
from trimaran.service_api.wire.link_frames import encode_commit_frame
from trimaran.service_api.wire.session_frame import PREFIX_LENGTH, ingress_prefixes
from trimaran.service_api.wire.stream import MessageAssembler

TERM_LENGTH = 4096
MTU = 288
PREFIX = struct.pack("<HHHHqq", 24, 1, 111, 16, 3, 9)
PREFIXES = ingress_prefixes(3, 9)


def buffer_at(position: int = 0, *, retained_bytes: int = 1 << 20) -> LogBuffer:
    return LogBuffer(position=position, retained_bytes=retained_bytes)


def publisher(buffer: LogBuffer, *, checksums: bool = True, initial_term_id: int = 0) -> LogPublisher:
    return LogPublisher(
        buffer,
        log_session_id=77,
        initial_term_id=initial_term_id,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        checksums=checksums,
    )


def receiver(buffer: LogBuffer, *, checksums: bool = True, initial_term_id: int = 0) -> LogReceiver:
    rules = log_rules(
        initial_term_id=initial_term_id,
        term_length_bytes=TERM_LENGTH,
        mtu_length_bytes=MTU,
        checksummed=checksums,
    )
    return LogReceiver(buffer, rules, roster(0, 1).history)


def content(buffer: LogBuffer, position: int | None = None) -> bytes:
    return b"".join(buffer.chunks_from(buffer.base_position if position is None else position))


def frames(data: bytes) -> list[tuple[int, FrameHeader]]:
    found, offset = [], 0
    while offset < len(data):
        header = unpack_header(data, offset)
        found.append((offset, header))
        offset += (header.frame_length + 31) & -32
    return found


def messages(data: bytes) -> list[bytes]:
    """The messages of a piece of log, fragments joined."""
    assembler, found = MessageAssembler(), []
    for offset, header in frames(data):
        payload = data[offset + HEADER_LENGTH : offset + header.frame_length]
        message = assembler.append_fragment(header.type, header.flags, payload)
        if message is not None:
            found.append(message)
    return found


def ingress(*payloads: bytes, prefix: bytes = PREFIX) -> bytearray:
    """Session messages as a client lays them out."""
    chunk = bytearray()
    for payload in payloads:
        length = HEADER_LENGTH + PREFIX_LENGTH + 8 + len(payload)
        chunk += struct.pack("<iBBHiiiiq", length, 0, UNFRAGMENTED, TYPE_DATA, 0, 0, 101, 0, 0)
        chunk += prefix + bytes(8) + payload + bytes(-length & 31)
    return chunk


def feed(gate: LogReceiver, data: bytes | bytearray, cuts: list[int]) -> None:
    """Let data arrive in pieces of these lengths, over and over."""
    pending, offset, index = bytearray(), 0, 0
    while offset < len(data):
        length = cuts[index % len(cuts)]
        pending += data[offset : offset + length]
        offset += length
        index += 1
        del pending[: gate.accept(pending, 0, len(pending))]
    assert pending == b""


# --- the leader's pen


def test_ingress_frames_are_stamped_in_place() -> None:
    """Term offset, term id, stream id, timestamp and checksum: everything else stays as the client laid it out."""
    buffer = buffer_at(TERM_LENGTH + 96)
    chunk = ingress(b"hello", b"world")

    taken = publisher(buffer, initial_term_id=5).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=1234)

    data = content(buffer)
    assert (taken, len(data)) == (len(chunk), 192)
    for index, (offset, header) in enumerate(frames(data)):
        assert header == FrameHeader(
            69, 0, UNFRAGMENTED, TYPE_DATA, 96 + 96 * index, frame_crc(data, offset, 69), 100, 6, 0
        )
        assert data[offset + 32 : offset + 64] == PREFIX + (1234).to_bytes(8, "little")
    assert [message[32:] for message in messages(data)] == [b"hello", b"world"]


def test_without_checksums_the_frame_carries_the_log_session() -> None:
    buffer = buffer_at()
    chunk = ingress(b"hello")

    publisher(buffer, checksums=False).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)
    publisher(buffer, checksums=False).append_message(b"x" * 40)

    assert [header.session_id for _, header in frames(content(buffer))] == [77, 77]


def test_received_chunk_is_appended_as_one_chunk() -> None:
    """One immutable object for the window, the recording and every link."""
    buffer = buffer_at()
    chunk = ingress(*[b"x"] * 10)

    publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert [len(piece) for piece in buffer.take_pending()] == [960]


@pytest.mark.parametrize("cut", range(1, 192, 7))
def test_incomplete_ingress_frame_is_left_where_it_is(cut: int) -> None:
    """The caller keeps it until the rest has come."""
    buffer = buffer_at()
    chunk = ingress(b"hello", b"world")

    taken = publisher(buffer).append_ingress(chunk, 0, cut, prefixes=PREFIXES, timestamp=0)

    assert taken == cut // 96 * 96 == buffer.append_position


@pytest.mark.parametrize("kind", ["other session", "fragment", "setup frame", "too short"])
def test_ingress_stops_at_a_frame_of_any_other_kind(kind: str) -> None:
    """It is looked at with care, outside the hot path."""
    buffer = buffer_at()
    odd = ingress(b"world", prefix=PREFIX if kind != "other session" else PREFIX[:-1] + b"\x01")
    match kind:
        case "fragment":
            odd[5] = FLAG_BEGIN
        case "setup frame":
            odd[6] = 5
        case "too short":
            odd[0] = 63
    chunk = ingress(b"hello") + odd

    taken = publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert (taken, len(messages(content(buffer)))) == (96, 1)


@pytest.mark.parametrize("frame_length", [31, 0, -1, MTU + 1, 1 << 30])
def test_impossible_ingress_length_is_left_to_the_caller(frame_length: int) -> None:
    """No frame at all, or one longer than the log's mtu that the edge has to cut up."""
    buffer = buffer_at()
    chunk = ingress(b"hello")
    struct.pack_into("<i", chunk, 0, frame_length)

    assert publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0) == 0
    assert content(buffer) == b""


@pytest.mark.parametrize("left", range(0, 320, 32))
def test_message_never_crosses_a_term(left: int) -> None:
    """Hazard 25 of aeron.md §10: what is left of the term is padding, if it is anything."""
    start = TERM_LENGTH - left if left else 0
    buffer = buffer_at(start)
    pen = publisher(buffer)
    expected_end = pen.end_position_of(200)

    end = pen.append_message(b"m" * 200)

    data = content(buffer)
    kinds = [(header.type, header.frame_length) for _, header in frames(data)]
    padding = [(TYPE_PADDING, left)] if 0 < left < 256 else []
    assert kinds == [*padding, (TYPE_DATA, 232)]
    assert end == expected_end == start + len(data)
    assert {header.term_id for _, header in frames(data)[len(padding) :]} == {1 if 0 < left < 256 else 0}
    assert end // TERM_LENGTH == (end - 256) // TERM_LENGTH or end % TERM_LENGTH == 0


def test_ingress_run_is_cut_at_the_end_of_a_term() -> None:
    """With padding where the next frame does not fit, without where the term is filled exactly."""
    buffer = buffer_at()
    chunk = ingress(*[b"x"] * 50)

    publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    found = frames(content(buffer))
    assert [header.frame_length for _, header in found if header.type == TYPE_PADDING] == [TERM_LENGTH % 96]
    assert len(messages(content(buffer))) == 50
    assert [header.term_offset for offset, header in found] == [offset % TERM_LENGTH for offset, _ in found]


def test_a_frame_that_is_not_appended_fills_no_term() -> None:
    """Such as one for the term of an older leader: what comes next may still fit."""
    buffer = buffer_at(TERM_LENGTH - 64)
    chunk = ingress(b"hello", prefix=PREFIX[:-1] + b"\x01")

    taken = publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert (taken, buffer.append_position) == (0, TERM_LENGTH - 64)


def test_term_that_is_filled_exactly_gets_no_padding() -> None:
    buffer = buffer_at()
    chunk = ingress(*[b"x" * 64] * 33)  # 128 bytes each: 32 of them are a term

    publisher(buffer).append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)

    assert {header.type for _, header in frames(content(buffer))} == {TYPE_DATA}
    assert [header.term_id for _, header in frames(content(buffer))] == [0] * 32 + [1]


def test_long_message_is_cut_into_fragments_side_by_side() -> None:
    """Every one but the last is exactly one mtu long."""
    buffer = buffer_at()

    publisher(buffer).append_message(bytes(range(256)) * 2)

    headers = [header for _, header in frames(content(buffer))]
    assert [(header.frame_length, header.flags) for header in headers] == [(288, FLAG_BEGIN), (288, FLAG_END)]
    assert messages(content(buffer)) == [bytes(range(256)) * 2]


def test_message_longer_than_an_eighth_of_a_term_is_refused() -> None:
    """Aeron.md §3.14: max message length."""
    buffer = buffer_at()

    publisher(buffer).append_message(bytes(TERM_LENGTH // 8))
    with pytest.raises(LocalProtocolError, match="message too long: length=513 limit=512"):
        publisher(buffer).append_message(bytes(TERM_LENGTH // 8 + 1))


# --- the follower's gate


payloads = st.lists(st.binary(max_size=TERM_LENGTH // 8 - 32), min_size=1, max_size=25)
cuts = st.lists(st.integers(1, 700), min_size=1, max_size=8)


@settings(max_examples=60)
@given(payloads, cuts, st.integers(0, 2 * TERM_LENGTH // 32), st.booleans(), st.sampled_from([0, 7, (1 << 31) - 2]))
def test_log_arrives_as_it_was_written_however_it_is_cut(
    payloads: list[bytes], cuts: list[int], units: int, checksums: bool, initial_term_id: int
) -> None:
    """DESIGN §2, idea 3: the same bytes everywhere; term ids wrap around like Aeron's."""
    written, taken = buffer_at(units * 32), buffer_at(units * 32)
    pen = publisher(written, checksums=checksums, initial_term_id=initial_term_id)
    for payload in payloads:
        if len(payload) <= MTU - 64 and len(payload) % 2:
            chunk = ingress(payload)
            assert pen.append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=5) == len(chunk)
        else:
            pen.append_message(PREFIX + bytes(8) + payload)

    feed(receiver(taken, checksums=checksums, initial_term_id=initial_term_id), content(written), cuts)

    assert content(taken) == content(written)
    assert [message[32:] for message in messages(content(taken))] == payloads


def sample_log() -> bytes:
    """A padding frame, fragments and plain frames around the end of a term."""
    buffer = buffer_at(TERM_LENGTH - 160)
    pen = publisher(buffer)
    pen.append_message(b"a" * 60)
    pen.append_message(b"b" * 300)
    pen.append_message(b"c" * 10)
    data = content(buffer)
    assert [header.type for _, header in frames(data)] == [1, 0, 1, 1, 1]
    return data


def test_log_is_taken_whole_at_every_cut() -> None:
    """Every one of them: a cut takes the whole frames before it and no byte more."""
    data = sample_log()
    ends = {offset for offset, _ in frames(data)} | {len(data)}
    for cut in range(len(data) + 1):
        buffer = buffer_at(TERM_LENGTH - 160)
        gate = receiver(buffer)

        consumed = gate.accept(bytearray(data), 0, cut)

        assert consumed == max(end for end in ends if end <= cut)
        assert content(buffer) == data[:consumed]
        gate.accept(bytearray(data), consumed, len(data))
        assert content(buffer) == data


def test_receiver_says_how_much_it_needs() -> None:
    data = bytearray(sample_log())
    gate = receiver(buffer_at(TERM_LENGTH - 160))

    assert gate.needed_bytes(data, 0, 31) == HEADER_LENGTH
    assert gate.needed_bytes(data, 0, 40) == 96


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), min_size=1, max_size=12))
def test_overlapping_streams_merge_without_doubles(pieces: list[tuple[int, int]]) -> None:
    """Live log and catch-up replay bring the same log: what is there already is dropped, in any order of pieces."""
    written, taken = buffer_at(), buffer_at()
    for number in range(12):
        publisher(written).append_message(bytes([number]) * 500)
    data, gate = content(written), receiver(taken)
    starts = [offset for offset, header in frames(data) if header.flags & FLAG_BEGIN]
    for first, last in pieces:
        begin, end = starts[first], [*starts, len(data)][last + 1]
        if begin <= taken.append_position and begin < end:
            gate.accept(bytearray(data[begin:end]), 0, end - begin)
    gate.accept(bytearray(data), 0, len(data))

    assert content(taken) == data


def test_gap_in_the_log_is_an_error_and_nothing_beyond_it_is_taken() -> None:
    written, taken = buffer_at(), buffer_at()
    for _ in range(3):
        publisher(written).append_message(bytes(40))
    data = content(written)

    with pytest.raises(RemoteProtocolError, match="position=192 expected=96"):
        receiver(taken).accept(bytearray(data[:96] + data[192:]), 0, 192)

    assert content(taken) == data[:96]


def test_every_corrupt_byte_that_the_format_can_tell_is_refused() -> None:
    """Everything but padding's session id and zeros, and a length that takes in zeros which align the frame.

    Aeron's frame has its checksum behind the header. A message that does not say how long it is cannot tell whether a
    zero after it belongs to it.
    """
    data = sample_log()
    uncovered = set()
    for offset, header in frames(data):
        if header.type == TYPE_DATA and header.frame_length % 32 and not header.frame_length & 1:
            uncovered.add(offset)
        if header.type == TYPE_PADDING:
            uncovered |= {*range(offset + 12, offset + 16)}
            uncovered |= {*range(offset + 32, offset + header.frame_length)}
    missed = set()
    for index in range(len(data)):
        buffer, broken = buffer_at(TERM_LENGTH - 160), bytearray(data)
        broken[index] ^= 0x01
        with contextlib.suppress(RemoteProtocolError):
            receiver(buffer).accept(broken, 0, len(broken))
        if not data.startswith(content(buffer)):
            missed.add(index)

    assert missed == uncovered


def with_commits(data: bytes, positions: list[int]) -> bytes:
    """A log as a leader sends it: in front of each frame, while there are any, how far it is committed."""
    sent, waiting = bytearray(), list(positions)
    for offset, header in frames(data):
        if waiting:
            sent += encode_commit_frame(3, waiting.pop(0))
        sent += data[offset : offset + align(header.frame_length)]
    return bytes(sent)


@pytest.mark.parametrize("cut", [1, 31, 32, 33, 100, 1 << 20])
def test_what_the_leader_says_of_the_commit_between_frames_is_taken_and_no_part_of_the_log(cut: int) -> None:
    """Also at the start of the log, where a commit frame's place could be that of the first frame."""
    data = like_frames([32, 200])
    buffer = buffer_at()
    gate = LogReceiver(buffer, log_rules(term_length_bytes=1 << 16), roster(0, 1).history)

    feed(gate, with_commits(data, [0, 96, 96, 1 << 40, 192]), [cut])

    assert content(buffer) == data
    assert gate.take_committed() == (3, 192)
    assert gate.take_committed() is None


@pytest.mark.parametrize(("offset", "value"), [(0, 64), (4, 1), (5, 0x80)])
def test_commit_frame_that_is_none_is_refused(offset: int, value: int) -> None:
    """Of another length, of another version, with flags."""
    frame = bytearray(encode_commit_frame(3, 96) + bytes(32))
    frame[offset] = value

    with pytest.raises(RemoteProtocolError, match="frame"):
        receiver(buffer_at()).accept(frame, 0, len(frame))


def like_frames(payload_lengths: list[int]) -> bytes:
    """The log of a hundred messages of each of these lengths, one length after the other."""
    written = buffer_at()
    pen = long_term_publisher(written)
    for length in payload_lengths:
        chunk = ingress(*(number.to_bytes(2, "little").ljust(length, b"x") for number in range(100)))
        pen.append_ingress(chunk, 0, len(chunk), prefixes=PREFIXES, timestamp=0)
    return content(written)


def long_term_publisher(buffer: LogBuffer) -> LogPublisher:
    return LogPublisher(
        buffer,
        log_session_id=77,
        initial_term_id=0,
        term_length_bytes=1 << 16,
        mtu_length_bytes=1408,
        checksums=True,
    )


@settings(max_examples=200)
@given(st.binary(min_size=32, max_size=200))
def test_noise_is_refused_and_never_crashes_the_gate(noise: bytes) -> None:
    """Only whole, fitting, verified frames are taken."""
    buffer = buffer_at()
    try:
        consumed = receiver(buffer).accept(bytearray(noise), 0, len(noise))
    except RemoteProtocolError:
        consumed = 0

    assert len(content(buffer)) <= consumed or consumed == 0
    assert len(content(buffer)) % 32 == 0
