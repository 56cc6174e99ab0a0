"""`archive.frames`: every column of every sample, damage, messages, and what it is to import."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.places import ROOT
from tests.unit.archive.streams import extract_sample, load_truth
from tests.waiting import patient
from trimaran import archive
from trimaran.archive import ReadProblem
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.errors import ArchiveError, ArchiveErrorCode, CorruptionError
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import FrameReader, MessageReader
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.types import TimeUnit
from trimaran.service_api.wire.log.fields import FieldOffsets, read_log_fields

NODES = {
    "single-node": (0,), "checksummed": (0,), "torn": (0,), "archive-only": (0,), "three-node-failover": (0, 1, 2)
}  # fmt: skip
COLUMNS = (
    *("recording_id", "position", "frame_length", "version", "flags", "type", "term_offset", "session_id"),
    *("stream_id", "term_id", "reserved_value", "template_id", "block_length", "leadership_term_id"),
    *("cluster_session_id", "correlation_id", "timestamp", "payload"),
)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Directory and truth by name."""
    target = tmp_path_factory.mktemp("samples")
    found = {}
    for scenario, nodes in NODES.items():
        extract_sample(scenario, target)
        for node in nodes:
            name = f"{scenario}-node{node}"
            found[name] = (target / scenario / f"node{node}" / "archive", load_truth(name))
    return found


@pytest.fixture(scope="module")
def checksummed(samples: dict[str, tuple[Path, dict[str, Any]]]) -> Path:
    return samples["checksummed-node0"][0]


def recording_ids(directory: Path) -> list[int]:
    entries = read_catalog(OsFileSystem(), directory).entries
    return [entry.descriptor.recording_id for entry in entries if entry.descriptor is not None]


def expected_rows(directory: Path, recording_id: int) -> Iterator[dict[str, Any]]:
    """The rows as `FrameReader` and the slow reading of fields give them."""
    entries = read_catalog(OsFileSystem(), directory).entries
    (descriptor,) = [e.descriptor for e in entries if e.descriptor and e.descriptor.recording_id == recording_id]
    for frame in FrameReader(directory, descriptor):
        begins = frame.type == 1 and frame.flags & 0x80
        fields = read_log_fields(frame.payload if begins else b"")
        row = {"recording_id": recording_id} | frame._asdict() | fields._asdict()
        yield {name: row[name] for name in COLUMNS}


def rows_of(reader: Any) -> list[dict[str, Any]]:
    """The rows of batches, with timestamps as the numbers that they are in the log."""
    table = reader.read_all()
    if "timestamp" in table.column_names:
        index = table.column_names.index("timestamp")
        table = table.set_column(index, "timestamp", table.column("timestamp").cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def test_the_log_says_the_unit_of_its_timestamps(checksummed: Path) -> None:
    schema = archive.frames(checksummed, columns=["timestamp"]).schema

    assert str(schema.field("timestamp").type) == "timestamp[ns, tz=UTC]"


def test_every_column_of_every_frame_is_as_the_plain_reader_says(
    samples: dict[str, tuple[Path, dict[str, Any]]],
) -> None:
    for directory, _ in samples.values():
        for recording_id in recording_ids(directory):
            reader = archive.frames(directory, recording_id=recording_id)

            assert tuple(reader.schema.names) == COLUMNS
            assert rows_of(reader) == list(expected_rows(directory, recording_id))


def test_counts_sums_and_counts_by_type_are_those_of_the_truth(
    samples: dict[str, tuple[Path, dict[str, Any]]],
) -> None:
    names: Counter[str] = Counter()
    for directory, truth in samples.values():
        for recording in truth["recordings"]:
            recording_id = recording["recording_id"]
            frames = archive.frames(directory, recording_id=recording_id).read_all()
            messages = archive.frames(directory, recording_id=recording_id, reassemble=True).read_all()

            assert frames.num_rows == len(recording["frames"])
            for column in ("position", "frame_length", "session_id", "term_id"):
                assert sum(frames.column(column).to_pylist()) == sum(frame[column] for frame in recording["frames"])
            assert messages.column("position").to_pylist() == [m["position"] for m in recording["messages"]]
            lengths = [length - 32 for length in messages.column("frame_length").to_pylist()]
            assert lengths == [m["length"] for m in recording["messages"]]
            assert list(map(len, messages.column("payload").to_pylist())) == lengths
            assert messages.column("template_id").to_pylist() == [m.get("template_id") for m in recording["messages"]]
            names.update(m["name"] for m in recording["messages"])

    assert names["SessionMessageHeader"] > 1000
    assert names["(application)"] > 10


def test_messages_are_joined_as_the_plain_reader_joins_them(checksummed: Path) -> None:
    for recording_id in recording_ids(checksummed):
        entries = read_catalog(OsFileSystem(), checksummed).entries
        descriptor = entries[recording_id].descriptor
        assert descriptor is not None
        expected = [
            {"position": m.position, "session_id": m.session_id, "payload": m.payload}
            | read_log_fields(m.payload)._asdict()
            for m in MessageReader(FrameReader(checksummed, descriptor))
        ]
        columns = ["position", "session_id", "payload", "template_id", "block_length", *FieldOffsets._fields]

        assert (
            rows_of(archive.frames(checksummed, recording_id=recording_id, reassemble=True, columns=columns))
            == expected
        )


@pytest.mark.parametrize(
    ("unit", "arrow_unit"), [(TimeUnit.MILLIS, "ms"), (TimeUnit.MICROS, "us"), (TimeUnit.NANOS, "ns")]
)
def test_timestamps_have_the_clusters_unit(checksummed: Path, unit: TimeUnit, arrow_unit: str) -> None:
    table = archive.frames(checksummed, recording_id=0, columns=["timestamp"], time_unit=unit).read_all()

    assert table.schema.field("timestamp").type == pa.timestamp(arrow_unit, tz="UTC")
    if unit is TimeUnit.NANOS:
        since_epoch_ns = table.column("timestamp").drop_null()[0].value  # as_py() would need pandas
        assert datetime.fromtimestamp(since_epoch_ns / 1e9, UTC).year >= 2025


def test_only_the_columns_asked_for_come_in_the_order_asked_for(checksummed: Path) -> None:
    reader = archive.frames(checksummed, columns=("type", "position", "recording_id"))

    table = reader.read_all()

    assert table.column_names == ["type", "position", "recording_id"]
    assert sorted(set(table.column("recording_id").to_pylist())) == recording_ids(checksummed)


def test_padding_is_left_out_when_asked(samples: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    directory, truth = samples["single-node-node0"]
    types = archive.frames(directory, padding=False, columns=["type"]).read_all().column("type").to_pylist()

    frames = [frame for recording in truth["recordings"] for frame in recording["frames"]]
    assert set(types) == {1}
    assert len(types) == sum(frame["type"] == 1 for frame in frames) < len(frames)


def test_batches_are_bounded(checksummed: Path) -> None:
    batches = list(archive.frames(checksummed, recording_id=0, batch_length_bytes=1 << 16))

    assert len(batches) > 4
    assert all(sum(batch.column("frame_length").to_pylist()) <= 1 << 16 for batch in batches)


def test_recordings_that_are_not_valid_are_read_only_by_name(samples: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    directory, truth = samples["archive-only-node0"]
    entries = {e["descriptor"]["recordingId"]: e["header"]["state"] for e in truth["catalog"]["entries"]}

    ids = set(archive.frames(directory, columns=["recording_id"]).read_all().column("recording_id").to_pylist())

    assert ids == {
        r["recording_id"] for r in truth["recordings"] if r["frames"] and entries[r["recording_id"]] == "VALID"
    }
    invalid = next(recording_id for recording_id, state in entries.items() if state == "INVALID")
    assert archive.frames(directory, recording_id=invalid).read_all().num_rows > 0


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    directory = extract_sample("checksummed", tmp_path) / "node0" / "archive"
    segment = directory / "0-65536.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)
    return directory


def test_rows_before_damage_come_then_the_error_says_where(damaged: Path) -> None:
    rows: list[list[int]] = []
    expected = [row["position"] for row in expected_rows(damaged, 0)]

    with pytest.raises(CorruptionError, match="wrong checksum: checksum=") as caught:
        rows.extend(batch.column("position").to_pylist() for batch in archive.frames(damaged))

    assert caught.value.recording_id == 0
    assert caught.value.position is not None
    assert expected[-1] < caught.value.position <= 65536 + 30_000
    assert [position for batch in rows for position in batch] == expected


def test_damage_is_told_and_the_other_recordings_are_read(damaged: Path) -> None:
    problems: list[ReadProblem] = []

    table = archive.frames(damaged, on_problem=problems.append).read_all()

    (problem,) = problems
    assert (problem.recording_id, "wrong checksum" in problem.reason) == (0, True)
    assert set(table.column("recording_id").to_pylist()) == set(recording_ids(damaged))
    assert archive.frames(damaged, checksums=False).read_all().num_rows > table.num_rows


def test_a_damaged_catalog_entry_is_damage(damaged: Path) -> None:
    catalog = damaged / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    entries = read_catalog(OsFileSystem(), damaged).entries
    data[entries[2].offset + 60] ^= 1
    catalog.write_bytes(data)
    problems: list[ReadProblem] = []

    table = archive.frames(damaged, on_problem=problems.append).read_all()

    assert [problem.position is None for problem in problems] == [False, True]
    assert f"offset={entries[2].offset}" in problems[1].reason
    assert set(table.column("recording_id").to_pylist()) == {0, 1, 3, 4, 5, 6}


def test_a_missing_segment_is_damage(checksummed: Path, tmp_path: Path) -> None:
    directory = extract_sample("checksummed", tmp_path) / "node0" / "archive"
    (directory / "0-131072.rec").unlink()

    with pytest.raises(CorruptionError, match=r"expected=0-131072\.rec.*position=131072"):
        archive.frames(directory, recording_id=0).read_all()


def test_the_end_of_an_active_recording_is_no_damage(samples: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    directory, truth = samples["torn-node0"]

    assert archive.frames(directory).read_all().num_rows == len(truth["recordings"][0]["frames"])


def test_a_position_before_the_oldest_is_refused(checksummed: Path) -> None:
    with pytest.raises(ArchiveError, match="oldest_position=0") as caught:
        archive.frames(checksummed, recording_id=0, start_position=-1)
    assert caught.value.code is ArchiveErrorCode.INVALID_POSITION


@pytest.mark.parametrize("reassemble", [False, True])
def test_a_start_position_between_two_frames_leaves_out_what_begins_before(checksummed: Path, reassemble: bool) -> None:
    """It was reported as damage. Positions at both ends of frames, between them, and where nothing can begin."""

    def positions(start_position: int | None) -> list[int]:
        found = archive.frames(
            checksummed, recording_id=0, start_position=start_position, columns=["position"], reassemble=reassemble
        )
        rows: list[int] = found.read_all().column("position").to_pylist()
        return rows

    whole = positions(None)
    chosen = [*whole[:3], *whole[len(whole) // 2 :: 97], whole[-1]]
    for start in [p + offset for p in chosen for offset in (-32, -1, 0, 1, 32) if p + offset >= 0]:
        assert positions(start) == [position for position in whole if position >= start]
    assert positions(whole[-1] + (1 << 20)) == []


def test_damage_before_the_start_position_is_passed_over(damaged: Path) -> None:
    problems: list[ReadProblem] = []
    archive.frames(damaged, recording_id=0, on_problem=problems.append).read_all()
    position = problems[0].position
    assert position is not None
    whole = archive.frames(damaged, recording_id=0, checksums=False, columns=["position"]).read_all()
    behind = [each for each in whole["position"].to_pylist() if each > position]

    for start in (behind[0], behind[0] + 1, behind[1]):
        found = archive.frames(damaged, recording_id=0, start_position=start, columns=["position"]).read_all()
        assert found["position"].to_pylist() == [each for each in behind if each >= start]
    with pytest.raises(CorruptionError, match=f"position={position}"):
        archive.frames(damaged, recording_id=0, start_position=position).read_all()


def test_what_cannot_be_meant_is_refused_with_one_clear_line(checksummed: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"column='postion' .*recording_id, "):
        archive.frames(checksummed, columns=["postion"])
    with pytest.raises(ConfigurationError, match=r"column.*twice"):
        archive.frames(checksummed, columns=["type", "type"])
    with pytest.raises(ConfigurationError, match="expected a recording_id"):
        archive.frames(checksummed, start_position=64)
    with pytest.raises(ConfigurationError, match="length_bytes=5 expected 65536 to 67108864"):
        archive.frames(checksummed, batch_length_bytes=5)
    with pytest.raises(ArchiveError, match=r"archive\.catalog"):
        archive.frames(tmp_path)
    with pytest.raises(ArchiveError, match=r"known=\[0, 1, 2, 3, 4, 5, 6\]") as caught:
        archive.frames(checksummed, recording_id=77)
    assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


def python(program: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=patient(60),
        check=True,
    )
    return done.stdout


def test_importing_the_archive_needs_neither_numpy_nor_pyarrow() -> None:
    loaded = "sorted({'numpy', 'pyarrow'} & set(sys.modules))"
    program = f"import sys, trimaran.archive, trimaran.archive.tool.app; print({loaded})"

    assert python(program) == "[]\n"


@pytest.mark.parametrize("missing", ["numpy", "pyarrow"])
def test_a_missing_library_is_named_with_what_to_install(missing: str, checksummed: Path) -> None:
    program = f"""
import sys
sys.modules[{missing!r}] = None
from trimaran import archive
try:
    archive.frames({str(checksummed)!r})
except Exception as error:
    print(type(error).__name__, error)
"""
    assert re.match(r"ConfigurationError .*pip install '\.\[arrow\]'", python(program))


def test_the_program_in_the_documentation_runs(checksummed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "archive-frames.md").read_text()
    program = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    assert "data/node-0/archive" in program

    exec(program.replace("data/node-0/archive", str(checksummed)), {})

    output = capsys.readouterr().out
    frames = load_truth("checksummed-node0")["recordings"][0]["frames"]
    assert f": {sum(frame['frame_length'] for frame in frames)}\n" in output
    assert "timestamp_count" in output
    assert re.search(r"\n\d+ messages\n", output)
