"""The rules of a log for blocks of frames say the same as for one frame after the other."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.unit.archive.streams import TERM_LENGTH
from tests.unit.service_api.wire.log.sample_logs import MTU, make_log
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.reading.vector.scan import FrameScanner
from trimaran.service_api.types import LOG_STREAM_ID, RecordingId
from trimaran.service_api.wire.frame import iter_headers

FLIPS = 80


def descriptor_of(data: bytes, *, checksums: bool) -> RecordingDescriptor:
    return RecordingDescriptor(
        recording_id=RecordingId(0),
        start_timestamp_ms=0,
        start_position=0,
        stop_position=len(data),
        initial_term_id=0,
        segment_file_length=2 * TERM_LENGTH,
        term_buffer_length=TERM_LENGTH,
        mtu_length=MTU,
        session_id=7,
        stream_id=LOG_STREAM_ID,
        original_channel="aeron:udp?tags=1|alias=log-cm|group=true",
        checksummed=checksums,
    )


def scanned(directory: Path, descriptor: RecordingDescriptor, start: int) -> tuple[int, str, int]:
    scanner = FrameScanner(directory, descriptor, start_position=start)
    count = sum(len(block) for block in scanner)
    return scanner.position, scanner.detail, count


def read(directory: Path, descriptor: RecordingDescriptor, start: int) -> tuple[int, str, int]:
    reader = FrameReader(directory, descriptor, start_position=start)
    count = sum(1 for _ in reader)
    return reader.position, reader.detail, count


@pytest.mark.parametrize("checksums", [True, False])
def test_blocks_end_where_frames_do(tmp_path: Path, checksums: bool) -> None:
    data, random = make_log(checksums=checksums), Random(7)
    descriptor, path = descriptor_of(data, checksums=checksums), tmp_path / "0-0.rec"
    offsets = [offset for offset, _ in iter_headers(data)]
    starts = [0, *random.sample(offsets, 3)]
    path.write_bytes(data.ljust(2 * TERM_LENGTH, b"\0"))
    assert {scanned(tmp_path, descriptor, start)[0] for start in starts} == {len(data)}
    ended = set()
    for _ in range(FLIPS):
        offset, place = random.choice(offsets), random.choice([0, 5, 5, 5, 5, 24, 31, 40])
        bit = random.choice((6, 7)) if place == 5 else random.randrange(5)
        changed = bytearray(data)
        changed[offset + place] ^= 1 << bit
        path.write_bytes(changed.ljust(2 * TERM_LENGTH, b"\0"))
        start = random.choice(starts)
        found = scanned(tmp_path, descriptor, start)
        assert found == read(tmp_path, descriptor, start), (offset, place, bit, start)
        ended.add(found[0])

    assert len(ended) > FLIPS // 4
