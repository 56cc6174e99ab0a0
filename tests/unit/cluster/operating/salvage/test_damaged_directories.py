"""What `trimaran recover` says of directories that are damaged, and what it makes of them.

The directory is a sample that a real Aeron left, taken over by us, as a member leaves it that was killed: its catalog
does not say where the log ends.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.format.catalog import CATALOG_FILE_NAME, encode_catalog
from trimaran.cluster.cli.archive import app as archive_app
from trimaran.cluster.cli.recover.command import app
from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.runtime.files.cluster_id_file import ClusterIdFile
from trimaran.cluster.runtime.files.members_file import MEMBERS_FILE_NAME, MembersFile
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.wire.frame import FRAME_ALIGNMENT, HEADER_LENGTH, iter_headers
from trimaran.service_api.wire.log.layout import SESSION_MESSAGE_HEADER

LOG_END: Final = 1193536
NOBODY: Final = "0=127.0.0.1:9,1=127.0.0.1:19,2=127.0.0.1:29"
"""Members that are said to be gone, so that nobody asks there."""


def run(*arguments: str | Path) -> tuple[int, dict[str, Any], str]:  # Any: JSON
    """Run the command; gives its exit status, its document and what it said besides."""
    result = CliRunner().invoke(app, [*map(str, arguments), "-o", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return -1, {}, str(result.exception)
    return result.exit_code, json.loads(result.stdout)[0] if result.stdout else {}, result.stderr


def apply(target: Path, *directories: Path) -> tuple[int, dict[str, Any], str]:  # Any: JSON
    gone = [argument for member_id in "012" for argument in ("--gone", member_id)]
    return run("apply", *directories, "--members", NOBODY, "--old-members", NOBODY, *gone, "--to", target)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed member's directory; tests take copies."""
    base = tmp_path_factory.mktemp("salvage")
    node = base / "node"
    source = extract_sample("single-node", base / "aeron") / "node0"
    assert CliRunner().invoke(archive_app, ["import", str(source), "--to", str(node)]).exit_code == 0
    disk = OsFileSystem()
    entries = read_catalog(disk, node / "archive").entries
    recordings = [entry.descriptor for entry in entries if entry.descriptor is not None]
    recordings[0] = replace(recordings[0], stop_position=None, stop_timestamp_ms=None)
    (node / "archive" / CATALOG_FILE_NAME).write_bytes(encode_catalog(recordings, next_recording_id=len(recordings)))
    ClusterIdFile.open(node / "cluster", disk).store(ClusterId(77))
    members = Configuration.of_settings(member.configured() for member in parse_members(NOBODY))
    MembersFile.open(node / "cluster", disk).store(replace(members, log_position=64))
    return node


@pytest.fixture
def node(origin: Path, tmp_path: Path) -> Path:
    return shutil.copytree(origin, tmp_path / "a")


def segments(node: Path) -> list[Path]:
    """The log's segments in order."""
    return sorted((node / "archive").glob("0-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))


def test_what_is_whole_is_taken_whole(node: Path, tmp_path: Path) -> None:
    status, document, _ = apply(tmp_path / "out", node)

    assert status == 0
    assert document["term_base_log_position"] == LOG_END
    assert document["directories"][0]["damage"] == []


@pytest.mark.parametrize("lost_count", [1, 2])
def test_a_segment_that_is_lost_at_the_end_is_damage(node: Path, lost_count: int) -> None:
    """Whether or not an empty one follows, which a member keeps ready."""
    lost = segments(node)[-lost_count:]
    (node / "archive" / lost[-1].name).write_bytes(bytes(lost[-1].stat().st_size))
    lost[0].unlink()
    expected = int(lost[0].stem.partition("-")[2])

    status, document, _ = run("plan", node)

    assert status == 0
    assert document["directories"][0]["end_position"] == expected
    assert has_facts(document["directories"][0]["damage"][0], "segment", "missing", f"position={expected}")


def test_a_layout_of_zeros_in_the_catalog_is_refused(node: Path) -> None:
    """The snapshots alone do not say in what segments the log goes on."""
    with (node / "archive" / CATALOG_FILE_NAME).open("r+b") as file:
        file.seek(55)
        file.write(bytes(1000))

    status, document, _ = run("plan", node)

    assert status == 10
    assert "its layout" in document["directories"][0]["problems"][0]


def test_a_directory_of_which_nothing_can_be_read_makes_no_empty_cluster(node: Path, tmp_path: Path) -> None:
    for path in (node / "archive").glob("*.rec"):
        path.write_bytes(bytes(path.stat().st_size))

    status, document, _ = apply(tmp_path / "out", node)

    assert status == 10
    assert "nothing of" in " ".join(document["directories"][0]["problems"])
    assert not (tmp_path / "out").exists()


def test_a_damaged_file_of_members_is_told_and_the_log_is_whole(node: Path) -> None:
    path = node / "cluster" / MEMBERS_FILE_NAME
    path.write_bytes(path.read_bytes()[:-3])

    status, document, _ = run("plan", node)

    assert status == 0
    assert document["directories"][0]["damage"] == []
    assert "members cannot" in " ".join(document["directories"][0]["notes"])


def test_a_change_that_no_checksum_covers_is_found_between_two_of_one_cluster(node: Path, tmp_path: Path) -> None:
    """A message that does not say its length may have a zero more, of those that align its frame."""
    other = shutil.copytree(node, tmp_path / "b")
    path = segments(other)[0]
    at, length = next(
        (offset, header.frame_length)
        for offset, header in iter_headers(path.read_bytes())
        if header.frame_length % FRAME_ALIGNMENT
        and path.read_bytes()[offset + HEADER_LENGTH + 2] == SESSION_MESSAGE_HEADER
    )
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("<i", length + 1))

    status, document, _ = apply(tmp_path / "out", node, other)

    assert status == 10
    assert has_facts(document["problems"][0], "one cluster", "changed")
    assert f"position={at}," in document["problems"][0]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["new", "archive/new", "cluster/new/deep"])
def test_nothing_is_written_into_a_directory_that_was_given(node: Path, place: str) -> None:
    before = sorted(node.rglob("*"))

    status, _, error = apply(node / place, node)

    assert status == -1
    assert "only read" in error
    assert sorted(node.rglob("*")) == before


@pytest.mark.parametrize("seed", range(24))
def test_any_damage_gets_an_answer_and_what_is_made_is_whole(node: Path, tmp_path: Path, seed: int) -> None:
    """Bytes are changed, files are cut, emptied, removed, and get something behind them."""
    spoil(node, random.Random(seed))

    status, document, error = apply(tmp_path / "out", node)

    assert status in (0, 10), error
    if status == 0:
        found = run("plan", tmp_path / "out" / "node-1")[1]["directories"][0]
        assert found["damage"] == []
        assert found["is_usable"]
        assert found["end_position"] == document["end_position"]
        assert document["term_base_log_position"] <= LOG_END


def spoil(node: Path, rng: random.Random) -> None:
    """Damage up to three files."""
    for _ in range(rng.randint(1, 3)):
        path = rng.choice([path for path in sorted(node.rglob("*")) if path.is_file()])
        size = path.stat().st_size
        offset = rng.randrange(min(size, rng.choice([64, 512, 4096, 1 << 20])) or 1)
        with path.open("r+b") as file:
            match rng.choice(["change", "zero", "cut", "empty", "grow", "remove"]):
                case "change":
                    file.seek(offset)
                    file.write(rng.randbytes(rng.choice([1, 4, 32])))
                case "zero":
                    file.seek(offset)
                    file.write(bytes(rng.choice([4, 32, 1000])))
                case "cut":
                    file.truncate(offset)
                case "empty":
                    file.truncate(0)
                case "grow":
                    file.seek(0, 2)
                    file.write(rng.randbytes(rng.choice([1, 32, 64])))
                case _:
                    path.unlink()
