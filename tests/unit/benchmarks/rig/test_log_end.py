"""The end of a log that is being written, over segments that are zero-filled ahead."""

from __future__ import annotations

from pathlib import Path

from trimaran.benchmarks.rig.log_end import log_end_position
from trimaran.service_api.types import LOG_STREAM_ID
from trimaran.service_api.wire.frame import encode_message

FRAME = encode_message(bytes(100), stream_id=LOG_STREAM_ID, mtu_length=1024)
SEGMENT = 4 * len(FRAME)


def write_segments(directory: Path, frame_count: int) -> None:
    data = FRAME * frame_count
    archive = directory / "archive"
    archive.mkdir(exist_ok=True)
    for base in range(0, len(data) + 1, SEGMENT):
        (archive / f"0-{base}.rec").write_bytes(data[base : base + SEGMENT].ljust(SEGMENT, b"\0"))


def test_the_log_of_a_member_that_has_none_ends_at_zero(tmp_path: Path) -> None:
    assert log_end_position(tmp_path) == 0


def test_the_end_is_found_in_any_segment_and_from_any_floor(tmp_path: Path) -> None:
    for frame_count in (0, 1, 3, 4, 5, 8, 10):
        write_segments(tmp_path, frame_count)
        end = frame_count * len(FRAME)

        for floor in range(0, end + 1, len(FRAME)):
            assert log_end_position(tmp_path, floor=floor) == end


def test_other_recordings_and_segments_in_the_making_are_passed_over(tmp_path: Path) -> None:
    write_segments(tmp_path, 3)
    (tmp_path / "archive" / "1-0.rec").write_bytes(FRAME * 4)
    (tmp_path / "archive" / f"0-{SEGMENT}.rec.next").write_bytes(FRAME * 4)

    assert log_end_position(tmp_path) == 3 * len(FRAME)
