"""Every recording of every sample, in whatever state, and every kind of damage: as `archive.frames` says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interchange.samples import NODES, sample_of, truth_of, unpack_all
from tests.unit.archive.spark.source.test_partitions import expected, plan, read
from trimaran import archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.reading.frame_batches import ReadProblem

VARIANTS = sorted(truth_of("torn-variants"))


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("every-sample")
    yield unpack_all(root)
    shutil.rmtree(root)


@pytest.mark.parametrize("name", NODES)
def test_recordings_of_every_state_are_read_by_their_ids(samples: Path, name: str) -> None:
    """Truncated, purged, begun in the middle of a term, extended, empty, invalid, deleted, active."""
    directory = sample_of(samples, name).directory
    units = {"single-node-node0": "ms", "checksummed-node0": "ns"}
    entries = read_catalog(OsFileSystem(), directory / "archive").entries
    ids = [entry.descriptor.recording_id for entry in entries if entry.descriptor is not None]
    assert len(ids) == len(truth_of(name)["recordings"])
    for recording_id in ids:
        for messages in (False, True):
            found = plan(directory, recordingId=str(recording_id), messages=str(messages), splitBytes="64k")
            plain = archive.frames(directory, recording_id=recording_id, reassemble=messages).read_all()

            rows = read(found)

            assert rows.drop_columns(["timestamp"]).equals(
                plain.drop_columns(["timestamp"]).cast(rows.drop_columns(["timestamp"]).schema)
            )
            if units.get(name) == "ms":
                assert rows.equals(expected(directory, recording_id=recording_id, reassemble=messages))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_torn_recording_is_read_to_where_its_right_frames_end(samples: Path, name: str) -> None:
    """What a start of a real archive would cut off is no problem; a right frame behind a wrong one makes it one.

    So does a last frame of which nobody can tell whether it is whole.
    """
    directory = samples / "torn-variants" / name
    told: list[ReadProblem] = []
    plain_problems: list[ReadProblem] = []

    rows = read(plan(directory, splitBytes="64k"), told)

    plain = archive.frames(directory, on_problem=plain_problems.append).read_all()
    positions = rows.column("position").to_pylist()
    before = plain.column("position").to_pylist()
    assert positions[: len(before)] == before
    is_damaged = len(positions) > len(before) or "incomplete" in "".join(found.reason for found in told)
    assert [problem.position for problem in told[:1]] == ([plain_problems[0].position] if is_damaged else [])
    assert positions == sorted(set(positions))


def test_the_variants_have_both_torn_ends_and_damage(samples: Path) -> None:
    """So that the test above is about something."""
    going_on = set()
    for name in VARIANTS:
        told: list[ReadProblem] = []
        read(plan(samples / "torn-variants" / name), told)
        if told:
            going_on.add(name)

    assert 2 <= len(going_on) < len(VARIANTS) // 2
