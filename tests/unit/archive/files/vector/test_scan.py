"""The vectorised reader finds what `FrameReader` finds, stops where it stops, and says why in the same words."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.archive.streams import STREAM_ID, TERM_LENGTH, StreamBuilder, extract_sample
from trimaran.archive import RecordingDescriptor
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.errors import ArchiveError
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.log_end import LogEnd
from trimaran.archive.files.reader import Frame, FrameReader, MessageReader
from trimaran.archive.files.vector.checksums import BlockChecksums
from trimaran.archive.files.vector.scan import BLOCK_LENGTH_BYTES, MIN_BLOCK_LENGTH_BYTES, FrameBlock, FrameScanner
from trimaran.archive.reading.vector.messages import MessageBlockJoiner
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import RecordingId
from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import FRAME_HEADER, TYPE_DATA, encode_padding

SAMPLES = ("single-node", "checksummed", "torn", "archive-only", "three-node-failover", "torn-variants")


def frames_of(block: FrameBlock) -> list[Frame]:
    """The frames of a block, one by one."""
    data = block.words.tobytes()
    found = []
    for slot, header, position in zip(block.slots.tolist(), block.headers, block.positions.tolist(), strict=True):
        fields = FRAME_HEADER.unpack(header.tobytes())
        payload = data[slot * 32 + 32 : slot * 32 + fields[0]] if fields[3] == TYPE_DATA else b""
        found.append(Frame._make((position, *fields, payload)))
    return found


def scan(scanner: FrameScanner) -> tuple[list[Frame], Any]:
    frames = [frame for block in scanner for frame in frames_of(block)]
    return frames, (scanner.position, scanner.stop_reason, scanner.detail, scanner.ending())


def read(reader: FrameReader) -> tuple[list[Frame], Any]:
    frames = list(reader)
    return frames, (reader.position, reader.stop_reason, reader.detail, reader.ending())


def descriptor_of(stop_position: int | None, **changes: Any) -> RecordingDescriptor:
    descriptor = RecordingDescriptor(
        recording_id=RecordingId(0),
        start_timestamp_ms=0,
        start_position=0,
        stop_position=stop_position,
        initial_term_id=0,
        segment_file_length=TERM_LENGTH,
        term_buffer_length=TERM_LENGTH,
        mtu_length=1408,
        session_id=0,
        stream_id=STREAM_ID,
        checksummed=True,
    )
    return replace(descriptor, **changes)


def write(directory: Path, descriptor: RecordingDescriptor, data: bytes | bytearray) -> None:
    """Put a stream into full segment files; it begins at the recording's start position."""
    length = descriptor.segment_file_length
    first = descriptor.segment_base_position(descriptor.start_position)
    data = bytes(descriptor.start_position - first) + data
    for offset in range(0, max(len(data), 1), length):
        name = descriptor.segment_file_name(first + offset)
        (directory / name).write_bytes(data[offset : offset + length].ljust(length, b"\0"))


def stream(lengths: Iterable[int], **builder: Any) -> bytes:
    source = StreamBuilder(**builder)
    return b"".join(chunk for length in lengths for chunk in source.message(length))


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    target = tmp_path_factory.mktemp("samples")
    for name in SAMPLES:
        extract_sample(name, target)
    return sorted(path.parent for path in target.rglob("archive.catalog"))


def recordings(archives: list[Path]) -> Iterable[tuple[Path, RecordingDescriptor]]:
    for directory in archives:
        for entry in read_catalog(OsFileSystem(), directory).entries:
            if entry.descriptor is not None:
                yield directory, entry.descriptor


@pytest.mark.parametrize("block_length", [BLOCK_LENGTH_BYTES, MIN_BLOCK_LENGTH_BYTES])
def test_every_recording_of_the_samples_reads_as_with_frame_reader(archives: list[Path], block_length: int) -> None:
    count = 0
    for directory, descriptor in recordings(archives):
        for checksummed in (None, True, False):
            expected = read(FrameReader(directory, descriptor, checksummed=checksummed))

            actual = scan(FrameScanner(directory, descriptor, checksummed=checksummed, block_length_bytes=block_length))

            assert actual == expected, (directory, descriptor)
            count += len(actual[0])

    assert count > 19_000


def test_every_start_and_stop_is_kept_as_with_frame_reader(archives: list[Path]) -> None:
    pick = random.Random(5)
    for directory, descriptor in recordings(archives):
        positions = [frame.position for frame in FrameReader(directory, descriptor)]
        for _ in range(4 if positions else 0):
            start, stop = pick.choice(positions), pick.choice(positions) + 32 * pick.randrange(3)
            expected = read(FrameReader(directory, descriptor, start_position=start, stop_position=stop))

            assert scan(FrameScanner(directory, descriptor, start_position=start, stop_position=stop)) == expected


def test_a_bound_leaves_out_what_ends_beyond_it(archives: list[Path]) -> None:
    directory, descriptor = max(recordings(archives), key=lambda recording: recording[1].stop_position or 0)
    frames = list(FrameReader(directory, descriptor))[:701]
    bound = frames[699].end_position

    for beyond in (0, (frames[700].end_position - bound) - 32):
        scanner = FrameScanner(directory, descriptor, bound_position=bound + beyond)

        assert scan(scanner)[0] == frames[:700]
        assert (scanner.position, scanner.detail, scanner.ending()) == (
            bound,
            f"bound_position={bound + beyond}",
            LogEnd(bound, "stopped"),
        )


def test_joined_messages_are_those_of_message_reader(archives: list[Path]) -> None:
    fragmented = 0
    for directory, descriptor in recordings(archives):
        for block_length in (BLOCK_LENGTH_BYTES, MIN_BLOCK_LENGTH_BYTES):
            reader = MessageReader(FrameReader(directory, descriptor))
            expected = list(reader)
            joiner = MessageBlockJoiner(FrameScanner(directory, descriptor, block_length_bytes=block_length))

            actual = [frame for block in joiner for frame in frames_of(block)]

            assert [(m.position, m.session_id, m.payload) for m in expected] == [
                (frame.position, frame.session_id, frame.payload) for frame in actual
            ]
            assert all((frame.flags, frame.type) == (0xC0, TYPE_DATA) for frame in actual)
            assert joiner.incomplete_message_count == reader.incomplete_message_count
        fragmented += sum(message.frame_count > 1 for message in expected)

    assert fragmented > 100


MUTATED_LENGTHS = [0, 1, 31, 32, 33, 64, 300, 1376, 1376, 1376, 20, 4000, 9000, 100, 64, 64, 64, 64, 64, 64] * 8
HEADER_VALUES = (
    0,
    1,
    -1,
    31,
    32,
    33,
    64,
    96,
    1408,
    1409,
    TERM_LENGTH,
    -(1 << 31),
    (1 << 31) - 1,
    1 << 16,
    2 << 16,
    100,
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, list[int]]:
    """A directory for a recording of three segments, its bytes, and where its frames begin."""
    directory = tmp_path_factory.mktemp("sound")
    data = stream(MUTATED_LENGTHS)
    write(directory, descriptor_of(len(data)), data)
    positions = [frame.position for frame in FrameReader(directory, descriptor_of(len(data)))]
    assert len(data) > 2 * TERM_LENGTH
    return directory, data, positions


@settings(max_examples=250)
@given(picks=st.data(), checksummed=st.booleans(), is_stopped=st.booleans())
def test_damage_ends_both_readers_at_the_same_place_for_the_same_reason(
    sound: tuple[Path, bytes, list[int]], picks: st.DataObject, checksummed: bool, is_stopped: bool
) -> None:
    """Any words of headers and payloads are changed, ranges are zeroed, files are cut or gone."""
    directory, data, positions = sound
    mutated = bytearray(data)
    for _ in range(picks.draw(st.integers(1, 3))):
        position = picks.draw(st.sampled_from(positions))
        if picks.draw(st.integers(0, 5)) == 0:
            end = position + picks.draw(st.integers(1, 3000))
            mutated[position:end] = bytes(len(mutated[position:end]))
            continue
        value = picks.draw(st.sampled_from(HEADER_VALUES) | st.integers(-(1 << 31), (1 << 31) - 1))
        struct.pack_into("<i", mutated, min(position + 4 * picks.draw(st.integers(0, 9)), len(data) - 4), value)
    descriptor = descriptor_of(len(data) if is_stopped else None)
    write(directory, descriptor, mutated)
    if picks.draw(st.integers(0, 3)) == 0:
        name = descriptor.segment_file_name(TERM_LENGTH * picks.draw(st.integers(0, 2)))
        os.truncate(directory / name, picks.draw(st.integers(0, TERM_LENGTH)))

    expected = read(FrameReader(directory, descriptor, checksummed=checksummed))
    actual = scan(FrameScanner(directory, descriptor, checksummed=checksummed))

    assert actual == expected


def test_payloads_that_hold_frames_for_their_own_place_are_not_taken_for_frames(tmp_path: Path) -> None:
    """Each payload of 1,376 bytes holds a right header at one of its slots, and the last ones hold many."""
    data = bytearray(stream([1376] * 200, checksums=False))
    descriptor = descriptor_of(len(data), checksummed=False)
    write(tmp_path, descriptor, data)
    positions = [f.position for f in FrameReader(tmp_path, descriptor) if f.type == TYPE_DATA]
    for index, position in enumerate(positions):
        for slot in range(1, 44) if index > 150 else (1 + index % 43,):
            place = position + 32 * slot
            term_id, offset = divmod(place, TERM_LENGTH)
            header = encode_padding(32, stream_id=STREAM_ID, term_id=term_id, term_offset=offset)
            data[place : place + 32] = header[:6] + b"\1" + header[7:]
    write(tmp_path, descriptor, data)

    actual = scan(FrameScanner(tmp_path, descriptor))

    assert actual == read(FrameReader(tmp_path, descriptor))
    assert len([f for f in actual[0] if f.type == TYPE_DATA]) == len(positions) == 200


@pytest.mark.parametrize("position", [0, 32 * 100, TERM_LENGTH - 32, TERM_LENGTH])
@pytest.mark.parametrize("initial_term_id", [0, -7, (1 << 31) - 2])
def test_recordings_begin_anywhere_with_any_term_id(tmp_path: Path, position: int, initial_term_id: int) -> None:
    """Term ids wrap around; the first segment begins at the term that holds the start."""
    lengths = [500] * 500
    data = stream(lengths, position=position, initial_term_id=initial_term_id)
    descriptor = descriptor_of(
        position + len(data),
        start_position=position,
        initial_term_id=initial_term_id,
        segment_file_length=2 * TERM_LENGTH,
    )
    write(tmp_path, descriptor, data)

    actual = scan(FrameScanner(tmp_path, descriptor))

    assert actual == read(FrameReader(tmp_path, descriptor))
    assert sum(frame.type == TYPE_DATA for frame in actual[0]) == 500


def test_two_swapped_payloads_have_the_wrong_checksums(tmp_path: Path) -> None:
    """A sum over the frames of a block that does not know their order would not see it."""
    data = bytearray(stream([64] * 100))
    data[96 * 10 + 32 : 96 * 11], data[96 * 20 + 32 : 96 * 21] = (
        data[96 * 20 + 32 : 96 * 21],
        data[96 * 10 + 32 : 96 * 11],
    )
    descriptor = descriptor_of(len(data))
    write(tmp_path, descriptor, data)

    frames, (position, _, detail, _) = scan(FrameScanner(tmp_path, descriptor))

    assert (len(frames), position) == (10, 960)
    assert "wrong checksum: checksum=" in detail


def test_one_wrong_bit_anywhere_in_a_block_is_found(tmp_path: Path) -> None:
    """All bits of the headers, some of every payload and of its padding."""
    sound = stream([0, 1, 31, 64, 200, 1376, 3])
    descriptor = descriptor_of(len(sound))
    write(tmp_path, descriptor, sound)
    bits = [
        8 * offset + bit
        for frame in FrameReader(tmp_path, descriptor)
        for offset in (*range(frame.position, frame.position + 24), *range(frame.position + 32, frame.end_position, 13))
        for bit in (range(8) if offset < frame.position + 32 else (offset % 8,))
    ]
    segment = tmp_path / "0-0.rec"
    missed = 0
    for bit in bits:
        with segment.open("r+b") as file:
            file.seek(bit // 8)
            file.write(bytes([sound[bit // 8] ^ 1 << bit % 8]))
            file.flush()

            found = scan(FrameScanner(tmp_path, descriptor))

            assert found == read(FrameReader(tmp_path, descriptor))
            missed += found[1][3] is None
            file.seek(bit // 8)
            file.write(sound[bit // 8 : bit // 8 + 1])

    assert len(bits) > 1000
    # Two flags of each frame, and what lengths say below the alignment: no reader can know better.
    assert missed <= 7 * 7


def test_right_checksums_are_seen_without_a_look_at_each(tmp_path: Path) -> None:
    data = stream([0, 0, 1, 32, 33, 1376, 100, 64, 64, 64])
    descriptor = descriptor_of(len(data))
    write(tmp_path, descriptor, data)
    (block,) = FrameScanner(tmp_path, descriptor, checksummed=False)
    buffer = block.words.view(np.uint8)

    for first, last in ((0, 10), (0, 1), (1, 3), (4, 6), (9, 10)):
        run = slice(first, last)
        assert BlockChecksums(10, ChecksumKind.CRC32).are_valid(buffer.copy(), block.slots[run], block.headers[run])

    buffer[64 * 2 + 40] ^= 1
    assert not BlockChecksums(10, ChecksumKind.CRC32).are_valid(buffer.copy(), block.slots, block.headers)


def test_padding_that_runs_past_the_stop_or_the_file_is_no_frame(tmp_path: Path) -> None:
    data = stream([1376] * 46 + [60_000])
    descriptor = descriptor_of(TERM_LENGTH, mtu_length=65504)
    write(tmp_path, descriptor, data)
    *_, padding = FrameReader(tmp_path, descriptor)
    assert padding.type == 0
    assert padding.frame_length > 64

    for stop_position in (padding.position + 32, padding.end_position - 32):
        found = scan(FrameScanner(tmp_path, descriptor, stop_position=stop_position))
        assert found == read(FrameReader(tmp_path, descriptor, stop_position=stop_position))
        assert "runs past" in found[1][2]

    os.truncate(tmp_path / "0-0.rec", padding.end_position - 1)
    found = scan(FrameScanner(tmp_path, descriptor))
    assert found == read(FrameReader(tmp_path, descriptor))
    assert "ends inside" in found[1][2]


def test_a_whole_message_behind_a_beginning_ends_the_hope_for_its_end(tmp_path: Path) -> None:
    """The block ends between the two, so what came before has to be remembered."""
    data = bytearray(stream([100, 100, 100, 100], checksums=False))
    for index, flags in enumerate((0x80, 0xC0, 0x40, 0xC0)):
        data[160 * index + 5] = flags
    descriptor = descriptor_of(len(data), checksummed=False)
    write(tmp_path, descriptor, data)
    blocks = chain(
        FrameScanner(tmp_path, descriptor, stop_position=320), FrameScanner(tmp_path, descriptor, start_position=320)
    )
    joiner = MessageBlockJoiner(blocks)

    positions = [frame.position for block in joiner for frame in frames_of(block)]

    assert positions == [160, 480]
    assert joiner.incomplete_message_count == 2


def test_a_file_that_is_cut_while_it_is_read_is_a_reason_to_stop(tmp_path: Path) -> None:
    lengths = [1000] * 1000
    data = stream(lengths, term_length=1 << 21)
    descriptor = descriptor_of(len(data), term_buffer_length=1 << 21, segment_file_length=1 << 21)
    write(tmp_path, descriptor, data)
    scanner = FrameScanner(tmp_path, descriptor, block_length_bytes=MIN_BLOCK_LENGTH_BYTES)
    blocks = iter(scanner)
    first = len(next(blocks))

    os.truncate(tmp_path / "0-0.rec", 100_000)
    rest = sum(map(len, blocks))

    assert first + rest == 100_000 // 1056
    assert "ends inside" in scanner.detail


def test_frames_longer_than_any_block_are_read_whole(tmp_path: Path) -> None:
    """The mtu decides how long a frame can be, up to its term."""
    source = StreamBuilder(term_length=1 << 22, mtu_length=1 << 20)
    data = b"".join(chunk for length in (900_000, 5, 1_000_000, 0, 1_048_544) for chunk in source.message(length))
    descriptor = descriptor_of(len(data), mtu_length=1 << 20, term_buffer_length=1 << 22, segment_file_length=1 << 22)
    write(tmp_path, descriptor, data)

    actual = scan(FrameScanner(tmp_path, descriptor, block_length_bytes=MIN_BLOCK_LENGTH_BYTES))

    assert actual == read(FrameReader(tmp_path, descriptor))
    assert [frame.frame_length - 32 for frame in actual[0]] == [900_000, 5, 1_000_000, 0, 1_048_544]


def test_an_impossible_mtu_of_a_catalog_entry_fits_no_frame_or_all(tmp_path: Path) -> None:
    data = stream([100, 0] * 10)
    write(tmp_path, descriptor_of(len(data)), data)

    for mtu in (0, 32, (1 << 31) - 1, -5):
        descriptor = descriptor_of(len(data), mtu_length=mtu)

        assert scan(FrameScanner(tmp_path, descriptor)) == read(FrameReader(tmp_path, descriptor))


def test_a_start_where_none_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="cannot read"):
        FrameScanner(tmp_path, descriptor_of(None), start_position=33)
    with pytest.raises(ConfigurationError, match="expected 65536 to 67108864"):
        FrameScanner(tmp_path, descriptor_of(None), block_length_bytes=100)
