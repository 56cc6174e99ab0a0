"""The archive benchmark from end to end, on recordings of one term each."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from trimaran.archive.files.reader import FrameReader
from trimaran.benchmarks.logs.recordings import TERM_LENGTH_BYTES, make_recording
from trimaran.benchmarks.scenarios.archive import SHAPES, ArchiveParameters, run
from trimaran.service_api.errors import ConfigurationError


def test_every_reader_is_measured_on_every_recording(tmp_path: Path) -> None:
    report = run(ArchiveParameters(mib=16, rounds=1, verify_mib=16), directory=tmp_path, keep=False)

    for shape in SHAPES:
        assert all(value > 0 for value in report[shape].values())
        assert {"scan, checksums, share of zlib.crc32", "all columns, GB/s"} <= report[shape].keys()
    assert report["verify"]["frames"] > 10_000
    assert 20 < report["verify"]["greatest memory, MiB"] < 500
    assert report["environment"]["page_cache"] == "warm"


def test_recordings_are_right_to_the_last_frame(tmp_path: Path) -> None:
    lengths = iter(random.Random(1).choices([64, 100, 1408], k=1 << 20))
    descriptor = make_recording(tmp_path, 2 * TERM_LENGTH_BYTES, lambda pick: next(lengths))
    reader = FrameReader(tmp_path, descriptor)

    assert {frame.term_id for frame in reader} == {0, 1}
    assert reader.position == descriptor.stop_position == 2 * TERM_LENGTH_BYTES
    assert reader.ending().damage is None


@pytest.mark.parametrize("changes", [{"mib": 1}, {"rounds": 0}, {"verify_mib": 3}])
def test_what_cannot_be_measured_is_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="expected at least"):
        ArchiveParameters(**changes)
