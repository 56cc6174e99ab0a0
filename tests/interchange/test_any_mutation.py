"""Any bytes anywhere: whatever is in the files, every command ends soon, in little memory, and without a traceback."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.interchange.mutations import run_all, run_cluster
from tests.interchange.samples import files_of, run
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import FrameReader

EXAMPLES = settings(
    max_examples=25,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ROW_LIMIT = 65536 // 32
"""More frames than this do not fit into one segment."""

PLACES = st.one_of(st.integers(0, 400), st.integers(0, 6000), st.integers(0, 70_000))
"""Most of what matters lies at the beginning of a file."""
VALUES = st.one_of(
    st.binary(min_size=1, max_size=16),
    st.sampled_from([bytes(4), bytes(64), b"\xff" * 4, b"\xff" * 8, b"\x7f" * 4, b"\x00\x00\x00\x80", b"\x01\0\0\0"]),
)


@pytest.fixture(scope="module")
def small(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A member's directory with the snapshots of a real one and a log of one segment, with and without checksums."""
    directory = tmp_path_factory.mktemp("small") / "member"
    source = samples / "checksummed" / "node0"
    for path in files_of(source):
        if path.suffix != ".rec" or path.name in ("0-0.rec", "1-0.rec", "2-0.rec", "3-0.rec"):
            target = directory / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    plain = samples / "torn-variants" / "plain-01-clean"
    shutil.copytree(plain, directory / "plain")
    return directory


def names_in(directory: Path) -> list[str]:
    names = ("archive.catalog", "0-0.rec", "2-0.rec", "3-0.rec", "recording.log", "node-state.dat", "cluster-mark.dat")
    return [path.relative_to(directory).as_posix() for path in files_of(directory) if path.name in names]


def check_one(directory: Path) -> None:
    outcome = run_all(directory)
    assert len(outcome.dump.stdout.splitlines()) < 8 * ROW_LIMIT
    assert len(outcome.messages.stdout.splitlines()) < 8 * ROW_LIMIT
    for line in (*outcome.dump.stdout.splitlines(), *outcome.messages.stdout.splitlines()):
        assert "recording_id" in json.loads(line)
    for command in (("verify",), ("dump",), ("dump", "--messages")):
        assert run("archive", *command, directory / "plain").exit_code in (0, 10)


@EXAMPLES
@given(data=st.data())
def test_bytes_written_anywhere(small: Path, data: st.DataObject) -> None:
    path = small / data.draw(st.sampled_from(names_in(small)), label="file")
    before = path.read_bytes()
    changed = bytearray(before)
    for _ in range(data.draw(st.integers(1, 3), label="places")):
        offset = min(data.draw(PLACES, label="offset"), len(changed) - 1)
        value = data.draw(VALUES, label="value")[: len(changed) - offset]
        changed[offset : offset + len(value)] = value

    path.write_bytes(changed)
    try:
        check_one(small)
    finally:
        path.write_bytes(before)


@EXAMPLES
@given(data=st.data())
def test_a_file_cut_anywhere(small: Path, data: st.DataObject) -> None:
    path = small / data.draw(st.sampled_from(names_in(small)), label="file")
    before = path.read_bytes()

    path.write_bytes(before[: data.draw(PLACES, label="length")])
    try:
        check_one(small)
    finally:
        path.write_bytes(before)


@settings(EXAMPLES, max_examples=10)
@given(data=st.data())
def test_a_file_of_another_kind_in_its_place(small: Path, data: st.DataObject) -> None:
    names = st.sampled_from(names_in(small))
    path, other = small / data.draw(names, label="file"), small / data.draw(names, label="other")
    before = path.read_bytes()

    path.write_bytes(other.read_bytes())
    try:
        check_one(small)
    finally:
        path.write_bytes(before)


def test_the_directory_that_is_mutated_is_one_that_can_be_read(small: Path) -> None:
    """Or the tests above would show little. The rest of the log is missing, and the recordings after it are not."""
    cluster = run_cluster(small)

    assert (cluster.recording_log.exit_code, cluster.state.exit_code) == (0, 0)
    rows = [json.loads(line) for line in run("archive", "dump", small, "--messages").stdout.splitlines()]
    assert {row["recording_id"] for row in rows} == {0, 1, 2, 3}
    assert run("archive", "verify", small / "plain").exit_code == 0


@pytest.mark.parametrize("frame_length", [0, -1, 2**31 - 1, -(2**31), 65504])
def test_no_length_makes_a_reader_take_more_memory_than_a_block(
    samples: Path, tmp_path: Path, frame_length: int
) -> None:
    """Neither the length in a frame nor the terms, segments and mtu that a catalog names."""
    directory = Path(shutil.copytree(samples / "torn-variants" / "plain-01-clean", tmp_path / "damaged"))
    catalog = bytearray((directory / "archive.catalog").read_bytes())
    catalog[32 + 92 : 32 + 104] = b"".join(value.to_bytes(4, "little") for value in (1 << 26, 1 << 26, 65504))
    (directory / "archive.catalog").write_bytes(catalog)
    with (directory / "0-0.rec").open("r+b") as file:
        file.write((frame_length & 0xFFFF_FFFF).to_bytes(4, "little"))
        file.truncate(1 << 26)  # a hole
    (entry,) = read_catalog(OsFileSystem(), directory).entries
    assert entry.problem is None
    assert entry.descriptor is not None

    tracemalloc.start()
    try:
        reader = FrameReader(directory, entry.descriptor)
        frames = sum(1 for _ in reader)
        damage = reader.ending().damage
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert frames == 0
    assert damage is not None
    assert peak < 8 << 20
