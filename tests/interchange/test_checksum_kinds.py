"""CRC-32C, the other checksum that Aeron ships, is told, checked and written; one that nobody knows is read unchecked.

What the other tests of this folder say of each sample, frame for frame and message for message, they say of the samples
with CRC-32C, too.
"""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interchange.mutations import mutated, write_value
from tests.interchange.samples import Ended, frames_of, run, sample_of, truth_of
from trimaran.service_api.wire.checksum import crc32c

OWN_MASK = 0x5A5A_5A5A
"""A class of a user's: CRC-32 with some bits turned."""


def rows_of(result: Ended, *, exit_code: int = 0) -> list[dict[str, Any]]:
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def frames_in(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """The offset, aligned length and type of each frame of a segment."""
    offset = 0
    while offset < len(data) and (length := struct.unpack_from("<i", data, offset)[0]) > 0:
        aligned = -(-length // 32) * 32
        yield offset, aligned, struct.unpack_from("<H", data, offset + 6)[0]
        offset += aligned


@pytest.fixture
def unknown(samples: Path, tmp_path: Path) -> Path:
    """A member whose archive used a class that nobody here knows."""
    member = Path(shutil.copytree(samples / "checksummed" / "node0", tmp_path / "unknown"))
    for path in (member / "archive").glob("*.rec"):
        data = bytearray(path.read_bytes())
        for offset, length, kind in frames_in(data):
            if kind == 1:
                own = zlib.crc32(data[offset + 32 : offset + length]) ^ OWN_MASK
                struct.pack_into("<I", data, offset + 12, own)
        path.write_bytes(data)
    catalog = member / "archive" / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    offset = 32
    while (length := struct.unpack_from("<i", data, offset)[0]) > 0:
        own = zlib.crc32(data[offset + 32 : offset + 32 + length]) ^ OWN_MASK
        struct.pack_into("<I", data, offset + 8, own)
        offset += 32 + length
    catalog.write_bytes(data)
    return member


@pytest.mark.parametrize("name", ["application-crc32c-node0", "three-crc32c-node1"])
def test_verify_checks_crc32c_and_finds_one_wrong_bit(samples: Path, tmp_path: Path, name: str) -> None:
    source = sample_of(samples, name).directory
    frame = next(
        f for f in frames_of(truth_of(name)) if f["type"] == 1 and f["position"] > 1000 and f["frame_length"] > 100
    )

    def flip(path: Path) -> None:
        write_value(path, frame["position"] + 64, "<B", path.read_bytes()[frame["position"] + 64] ^ 1)

    damaged = mutated(source, tmp_path / "damaged", "0-0.rec", flip)

    sound = rows_of(run("archive", "verify", source, "-o", "jsonl"))
    (found,) = rows_of(run("archive", "verify", damaged, "--recording-id", 0, "-o", "jsonl"), exit_code=10)

    assert {(row["verdict"], row["checksum"], row["checksummed"]) for row in sound} == {("ok", "crc32c", True)}
    assert found["verdict"] == "wrong"
    assert found["problems"][0].startswith(f"position={frame['position']}")
    assert "wrong checksum" in found["problems"][0]


def test_crc32c_is_written_as_aeron_writes_it(samples: Path, tmp_path: Path) -> None:
    """Without its checksums, a directory of Aeron's gets the same bytes again from ours."""
    original = sample_of(samples, "application-crc32c-node0").directory / "archive"
    stripped = Path(shutil.copytree(original, tmp_path / "archive"))
    for path in stripped.glob("*.rec"):
        data = bytearray(path.read_bytes())
        for offset, _, kind in frames_in(data):
            if kind == 1:
                struct.pack_into("<i", data, offset + 12, 7)
        path.write_bytes(data)
    catalog = bytearray((stripped / "archive.catalog").read_bytes())
    offset = 32
    while (length := struct.unpack_from("<i", catalog, offset)[0]) > 0:
        struct.pack_into("<i", catalog, offset + 8, 0)
        offset += 32 + length
    (stripped / "archive.catalog").write_bytes(catalog)

    written = run("archive", "checksum", stripped, "--kind", "crc32c", "-o", "jsonl")

    assert {row["result"] for row in rows_of(written)} == {"written"}
    for path in [*original.glob("*.rec"), original / "archive.catalog"]:
        assert (stripped / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_plan_of_a_member_with_crc32c_names_no_problem(samples: Path) -> None:
    (plan,) = rows_of(run("recovery-plan", sample_of(samples, "three-crc32c-node0").directory, "-o", "jsonl"))

    assert (plan["problems"], plan["notes"]) == ([], [])
    assert len(plan["snapshots"]) == 3


@pytest.mark.parametrize("option", [(), ("--as-is",)])
def test_an_import_goes_on_with_crc32c(samples: Path, tmp_path: Path, option: tuple[str, ...]) -> None:
    source = sample_of(samples, "three-crc32c-node2").directory

    (document,) = rows_of(run("archive", "import", source, "--to", tmp_path / "member", *option, "-o", "jsonl"))

    assert (document["checksums_found"], document["checksums_written"]) == ("crc32c", "crc32c")
    assert (document["settings"]["checksums"], document["settings"]["checksum_kind"]) == (True, "crc32c")
    name = f"{document['log_recording_id']}-0.rec"
    original, copy = (source / "archive" / name).read_bytes(), (tmp_path / "member/archive" / name).read_bytes()
    assert copy == original
    offset, length, _ = next(frame for frame in frames_in(copy) if frame[2] == 1)
    assert struct.unpack_from("<I", copy, offset + 12) == (crc32c(copy[offset + 32 : offset + length]),)


def test_an_unknown_checksum_is_read_unchecked_and_said(unknown: Path) -> None:
    rows = rows_of(run("archive", "verify", unknown, "-o", "jsonl"))
    described = rows_of(run("archive", "describe", unknown, "--all", "-o", "jsonl"))
    dumped = run("archive", "dump", unknown, "--messages", "-o", "jsonl")

    truth = truth_of("checksummed-node0")
    assert {(row["verdict"], row["checksum"], row["checksummed"]) for row in rows} == {("ok", "unknown", False)}
    assert all("neither CRC-32 nor CRC-32C" in row["warnings"][0] for row in rows)
    assert {row["checksum"] for row in described} == {"unknown"}
    assert [row["frame_count"] for row in rows] == [len(recording["frames"]) for recording in truth["recordings"]]
    assert len(dumped.stdout.splitlines()) == sum(len(recording["messages"]) for recording in truth["recordings"])
    assert (dumped.exit_code, dumped.stderr) == (0, "")


def test_an_unknown_checksum_is_no_reason_to_invalidate_snapshots(unknown: Path) -> None:
    (plan,) = rows_of(run("recovery-plan", unknown, "-o", "jsonl"))
    marked = rows_of(run("archive", "verify", unknown, "--mark-invalid", "-o", "jsonl"))

    assert plan["problems"] == []
    assert "recording_ids=[0, 1, 2, 3, 4, 5, 6]" in plan["notes"][0]
    assert {row["state"] for row in marked} == {"VALID"}


def test_an_import_replaces_unknown_checksums_and_says_so(unknown: Path, tmp_path: Path) -> None:
    target = tmp_path / "member"

    refused = run("archive", "import", unknown, "--to", target, "--as-is", "-o", "jsonl")
    (document,) = rows_of(run("archive", "import", unknown, "--to", target, "-o", "jsonl"))

    assert refused.exit_code == 10
    assert "leave --as-is out" in refused.stderr
    assert (document["checksums_found"], document["checksums_written"]) == ("unknown", "crc32")
    assert "neither CRC-32 nor CRC-32C" in document["notes"][-1]
    assert {row["checksum"] for row in rows_of(run("archive", "verify", target, "-o", "jsonl"))} == {"crc32"}


@pytest.mark.parametrize("source", ["checksummed/node0", "application-crc32c/node0", "torn-variants/crc-01-clean"])
def test_one_wrong_bit_in_a_catalog_entry_stays_damage(samples: Path, tmp_path: Path, source: str) -> None:
    """The other entries say which checksum the archive used; where it is the only one, as in the last, the frames."""
    directory = mutated(
        samples / source,
        tmp_path / "member",
        "archive.catalog",
        lambda path: write_value(path, 32 + 8, "<i", "+1"),
    )

    result = run("archive", "describe", directory, "--all", "-o", "jsonl")

    assert result.exit_code == 10
    assert "entry checksum" in result.stderr


def test_what_the_real_tools_changed_in_a_directory_of_ours_is_taken_for_what_it_is(samples: Path) -> None:
    """A member here wrote CRC-32C; Aeron's tools then gave the catalog 2 MiB, and every frame a CRC-32."""
    member = samples / "tool-changed" / "node0"
    truth = truth_of("tool-changed-node0")

    rows = rows_of(run("archive", "verify", member, "-o", "jsonl"))
    (capacity,) = rows_of(run("archive", "capacity", member, "-o", "jsonl"))
    dumped = rows_of(run("archive", "dump", member, "-o", "jsonl"))
    (plan,) = rows_of(run("recovery-plan", member, "-o", "jsonl"))

    assert {(row["verdict"], row["checksum"], row["remarks"]) for row in rows} == {("ok", "crc32", "")}
    assert [row["frame_count"] for row in rows] == [len(recording["frames"]) for recording in truth["recordings"]]
    assert capacity["capacity_bytes"] == 2 << 20
    assert dumped == frames_of(truth)
    assert plan["problems"] == []


def test_one_recording_may_have_another_checksum_than_the_others(samples: Path, tmp_path: Path) -> None:
    """Aeron's tool writes checksums of a class into a single recording; each entry says its own."""
    archive = Path(shutil.copytree(samples / "single-node" / "node0" / "archive", tmp_path / "archive"))
    run("archive", "checksum", archive, "--recording-id", 1)
    run("archive", "checksum", archive, "--recording-id", 2, "--kind", "crc32c")

    rows = rows_of(run("archive", "verify", archive, "-o", "jsonl"))

    assert [(row["verdict"], row["checksum"]) for row in rows] == [("ok", "none"), ("ok", "crc32"), ("ok", "crc32c")]
