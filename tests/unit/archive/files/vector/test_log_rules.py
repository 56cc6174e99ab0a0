"""The rules of a log and of a snapshot for blocks of frames say the same as for one frame after the other."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.unit.archive.streams import TERM_LENGTH
from tests.unit.service_api.wire.log.sample_logs import MTU, make_log
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.files.vector.scan import FrameScanner
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.service_api.types import CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, LOG_STREAM_ID, RecordingId
from trimaran.service_api.wire.frame import iter_headers

FLIPS = 80


def descriptor_of(data: bytes, *, checksums: bool, is_snapshot: bool) -> RecordingDescriptor:
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
        stream_id=CONSENSUS_MODULE_SNAPSHOT_STREAM_ID if is_snapshot else LOG_STREAM_ID,
        original_channel=f"aeron:udp?alias={'consensus-module-snapshot' if is_snapshot else 'log-cm'}|group=true",
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


@pytest.mark.parametrize(("checksums", "is_snapshot"), [(True, False), (False, False), (True, True)])
def test_blocks_end_where_frames_do(tmp_path: Path, checksums: bool, is_snapshot: bool) -> None:
    stream_id = CONSENSUS_MODULE_SNAPSHOT_STREAM_ID if is_snapshot else LOG_STREAM_ID
    data, random = make_log(checksums=checksums, stream_id=stream_id), Random(7)
    descriptor = descriptor_of(data, checksums=checksums, is_snapshot=is_snapshot)
    path = tmp_path / "0-0.rec"
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
