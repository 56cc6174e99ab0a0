"""Segment files that are missing, cut, swapped or too long; catalogs, value by value."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.facts import has_facts
from tests.interchange.mutations import Field, Value, mutated, run_all, write_value
from tests.interchange.samples import link_directory, run, truth_of

STOPPED: Final = "three-node-failover"
ACTIVE: Final = "torn"
SEGMENT_LENGTH: Final = 65536

SEEN: Final = (0, 10, 10, 10)
"""The exit statuses of describe, verify, dump and dump --messages where segment files are wrong."""


class Damage(NamedTuple):
    """Something done to the segment files of recording 0, and where it is found."""

    name: str
    change: Callable[[Path], object]
    position: int
    reason: str


def frame_in_third_segment(scenario: str) -> int:
    """Where a frame with a payload of more than 64 bytes begins in the third segment."""
    frames = truth_of(f"{scenario}-node0")["recordings"][0]["frames"]
    return int(next(f["position"] for f in frames if f["position"] > 140_000 and f["frame_length"] > 128))


def truncate(name: str, length: int) -> Callable[[Path], object]:
    def change(directory: Path) -> None:
        data = (directory / name).read_bytes()
        (directory / name).unlink()
        (directory / name).write_bytes(data[:length])

    return change


def swap(first: str, second: str) -> Callable[[Path], object]:
    def change(directory: Path) -> None:
        (directory / first).rename(directory / "other")
        (directory / second).rename(directory / first)
        (directory / "other").rename(directory / second)

    return change


def replace_by_directory(name: str) -> Callable[[Path], object]:
    def change(directory: Path) -> None:
        (directory / name).unlink()
        (directory / name).mkdir()

    return change


def damages(scenario: str) -> list[Damage]:
    frame = frame_in_third_segment(scenario)
    inside = frame % SEGMENT_LENGTH
    third = f"0-{2 * SEGMENT_LENGTH}.rec"
    return [
        Damage("first missing", lambda d: (d / "0-0.rec").unlink(), 0, "no segment file: expected=0-0.rec"),
        Damage("middle missing", lambda d: (d / third).unlink(), 131072, f"no segment file: expected={third}"),
        Damage("cut between frames", truncate(third, inside), frame, "incomplete file: file_length="),
        Damage("cut in a header", truncate(third, inside + 7), frame, "file ends inside a frame header: available=7"),
        Damage("cut in a payload", truncate(third, inside + 40), frame, "file ends inside a frame: frame_length="),
        Damage("empty", truncate(third, 0), 131072, "incomplete file: file_length=0"),
        Damage("swapped", swap("0-65536.rec", third), 65536, "bad frame: wrong term id: term_id=2 expected=1"),
        Damage("a directory", replace_by_directory(third), 131072, "not readable: "),
    ]


CASES = [(scenario, damage) for scenario in (STOPPED, ACTIVE) for damage in damages(scenario)]


@pytest.mark.parametrize(("scenario", "damage"), CASES, ids=lambda value: getattr(value, "name", value))
def test_a_damaged_segment_file(samples: Path, tmp_path: Path, scenario: str, damage: Damage) -> None:
    directory = link_directory(samples / scenario / "node0", tmp_path / "damaged")
    damage.change(directory / "archive")

    outcome = run_all(directory, "--recording-id", 0)

    assert outcome.statuses == SEEN
    where = f"recording_id=0 position={damage.position}: "
    assert where in outcome.dump.stderr
    assert damage.reason in outcome.dump.stderr
    assert where in outcome.messages.stderr
    expected = [f for f in truth_of(f"{scenario}-node0")["recordings"][0]["frames"] if f["position"] < damage.position]
    assert len(outcome.dump.stdout.splitlines()) == len(expected)
    (verdict,) = map(json.loads, outcome.verify.stdout.splitlines())
    is_opened = damage.name != "a directory"
    assert verdict["verdict"] == "wrong"
    assert (f"position={damage.position}" if is_opened else "not readable: ") in verdict["problems"][0]


def test_the_last_segment_of_a_stopped_recording_may_not_be_missing(samples: Path, tmp_path: Path) -> None:
    directory = link_directory(samples / STOPPED / "node0", tmp_path / "damaged")
    (directory / "archive" / "0-393216.rec").unlink()

    outcome = run_all(directory, "--recording-id", 0)

    assert outcome.statuses == SEEN
    assert has_facts(outcome.dump.stderr, "recording_id=0 position=393216:", "expected=0-393216.rec")
    assert outcome.recovery_plan.exit_code == 10
    assert "expected=0-393216.rec" in outcome.recovery_plan.stderr


def test_a_recovery_plan_refuses_what_a_start_refuses(samples: Path, tmp_path: Path) -> None:
    """A wrong frame in the last segment of a log that was not stopped, with a valid one after it, is no torn end."""
    frames = truth_of("torn-node0")["recordings"][0]["frames"]
    frame = next(f for f in frames if f["position"] > 400_000)
    directory = mutated(
        samples / ACTIVE / "node0",
        tmp_path / "damaged",
        "0-393216.rec",
        lambda path: write_value(path, frame["position"] - 393216 + 20, "<i", 77),
    )

    outcome = run_all(directory)

    assert outcome.recovery_plan.exit_code == 10
    assert f"recording_id=0 position={frame['position']}" in outcome.recovery_plan.stderr
    assert has_facts(outcome.recovery_plan.stderr, "term_id=77 expected=6;", "go on")


def test_a_recovery_plan_takes_a_torn_end_for_what_it_is(samples: Path, tmp_path: Path) -> None:
    """As the start does: it cuts the last frame off."""
    last = truth_of("torn-node0")["recordings"][0]["frames"][-1]
    directory = mutated(
        samples / ACTIVE / "node0",
        tmp_path / "damaged",
        "0-393216.rec",
        lambda path: write_value(path, last["position"] - 393216 + 20, "<i", 77),
    )

    outcome = run_all(directory)

    assert outcome.recovery_plan.exit_code == 0
    assert json.loads(outcome.recovery_plan.stdout)["append_position"] == last["position"]


def test_a_segment_file_longer_than_it_may_be_is_read_to_its_length_only(samples: Path, tmp_path: Path) -> None:
    """However long: here it has a hole of a terabyte."""
    directory = link_directory(samples / STOPPED / "node0", tmp_path / "damaged", copied="0-65536.rec")
    with (directory / "archive" / "0-65536.rec").open("r+b") as file:
        file.truncate(1 << 40)

    outcome = run_all(directory, "--recording-id", 0)

    assert outcome.statuses == (0, 10, 0, 0)
    assert "file=0-65536.rec file_length=1099511627776 expected=65536" in (outcome.verify.stdout)
    assert len(outcome.dump.stdout.splitlines()) == 1033


ENTRY: Final = {
    "length": Field(0, "<i"),
    "state": Field(4, "<i"),
    "checksum": Field(8, "<i"),
    "controlSessionId": Field(32, "<q"),
    "correlationId": Field(40, "<q"),
    "recordingId": Field(48, "<q"),
    "startTimestamp": Field(56, "<q"),
    "stopTimestamp": Field(64, "<q"),
    "startPosition": Field(72, "<q"),
    "stopPosition": Field(80, "<q"),
    "initialTermId": Field(88, "<i"),
    "segmentFileLength": Field(92, "<i"),
    "termBufferLength": Field(96, "<i"),
    "mtuLength": Field(100, "<i"),
    "sessionId": Field(104, "<i"),
    "streamId": Field(108, "<i"),
    "strippedChannelLength": Field(112, "<I"),
    "strippedChannel": Field(120, "<B"),
}
"""An entry of the catalog; the first one lies at offset 32."""

IMPOSSIBLE: Final = (10, 10, 10, 10)
"""The catalog itself says that it is wrong."""
MISFIT: Final = (0, 10, 10, 10)
"""The entry could be right, and the frames are not as it says."""
UNSEEN: Final = (0, 0, 0, 0)
"""Nothing protects this value without checksums, and no frame depends on it."""
BEHIND: Final = (0, 10, 0, 0)
"""What the entry says is there; `verify` finds that more is."""

CATALOG_CASES: Final[tuple[tuple[str, Value, tuple[int, ...]], ...]] = (
    # field, value, statuses in a stopped recording without checksums
    ("length", 0, IMPOSSIBLE),
    ("length", -1, IMPOSSIBLE),
    ("length", 32, IMPOSSIBLE),
    ("length", "-64", IMPOSSIBLE),
    ("length", "+64", IMPOSSIBLE),
    ("length", "+1", IMPOSSIBLE),
    ("length", 2**31 - 1, IMPOSSIBLE),
    ("state", 3, IMPOSSIBLE),
    ("state", -1, IMPOSSIBLE),
    ("state", 0, UNSEEN),
    ("state", 2, UNSEEN),
    ("checksum", 1, IMPOSSIBLE),
    ("controlSessionId", "+1", UNSEEN),
    ("correlationId", "+1", UNSEEN),
    ("recordingId", -1, IMPOSSIBLE),
    ("recordingId", 1, IMPOSSIBLE),
    ("recordingId", 2**62, MISFIT),
    ("startTimestamp", "+1", UNSEEN),
    ("stopTimestamp", "+1", UNSEEN),
    ("startPosition", -32, IMPOSSIBLE),
    ("startPosition", 33, IMPOSSIBLE),
    ("startPosition", 2**62, IMPOSSIBLE),
    ("startPosition", 32, MISFIT),
    ("startPosition", 65536, UNSEEN),
    ("stopPosition", 33, IMPOSSIBLE),
    ("stopPosition", -2, IMPOSSIBLE),
    ("stopPosition", "-32", MISFIT),
    ("stopPosition", "+32", MISFIT),
    ("stopPosition", 2**62, MISFIT),
    ("stopPosition", 0, BEHIND),
    ("stopPosition", -1, UNSEEN),
    ("initialTermId", "+1", MISFIT),
    ("segmentFileLength", 0, IMPOSSIBLE),
    ("segmentFileLength", -1, IMPOSSIBLE),
    ("segmentFileLength", 65537, IMPOSSIBLE),
    ("segmentFileLength", 1 << 30, MISFIT),
    ("termBufferLength", 0, IMPOSSIBLE),
    ("termBufferLength", -1, IMPOSSIBLE),
    ("termBufferLength", 65535, IMPOSSIBLE),
    ("termBufferLength", 1 << 30, IMPOSSIBLE),
    ("termBufferLength", 32768, MISFIT),
    ("mtuLength", 0, IMPOSSIBLE),
    ("mtuLength", -1, IMPOSSIBLE),
    ("mtuLength", 1 << 30, IMPOSSIBLE),
    ("mtuLength", 64, MISFIT),
    ("mtuLength", 1440, MISFIT),
    ("sessionId", "+1", UNSEEN),
    ("streamId", "+1", MISFIT),
    ("strippedChannelLength", 0, IMPOSSIBLE),
    ("strippedChannelLength", "+1", IMPOSSIBLE),
    ("strippedChannelLength", 2**32 - 1, IMPOSSIBLE),
    ("strippedChannel", 0xFF, UNSEEN),
)

UNPROTECTED: Final = {("state", 0), ("state", 2)}
"""Outside of what the checksum of an entry covers, and as right as any other value there."""


def change_entry(field: str, value: Value) -> Callable[[Path], object]:
    place = ENTRY[field]
    return lambda path: write_value(path, 32 + place.offset, place.format, value)


@pytest.mark.parametrize(("field", "value", "expected"), CATALOG_CASES)
def test_a_changed_value_of_the_catalog(
    samples: Path, tmp_path: Path, field: str, value: Value, expected: tuple[int, ...]
) -> None:
    source = samples / STOPPED / "node0"
    outcome = run_all(mutated(source, tmp_path / "damaged", "archive.catalog", change_entry(field, value)))

    assert outcome.statuses == expected
    if expected is IMPOSSIBLE:
        for result in (outcome.describe, outcome.dump, outcome.messages):
            assert has_facts(result.stderr, "catalog entry", "offset=")
        assert outcome.recovery_plan.exit_code == 10
    elif expected is MISFIT:
        assert "recording_id=" in outcome.dump.stderr
        assert " position=" in outcome.dump.stderr


@pytest.mark.parametrize(("field", "value", "expected"), CATALOG_CASES)
def test_with_checksums_every_changed_value_of_the_catalog_is_found(
    samples: Path, tmp_path: Path, field: str, value: Value, expected: tuple[int, ...]
) -> None:
    """Only the state lies outside of what is checksummed. -1 for the end is what Aeron's own repair leaves."""
    source = samples / "checksummed" / "node0"
    outcome = run_all(mutated(source, tmp_path / "damaged", "archive.catalog", change_entry(field, value)))

    assert outcome.statuses == (expected if (field, value) in UNPROTECTED else IMPOSSIBLE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((Field(0, "<i"), version) for version in (0, -1, 0x0004_0000)),
        *((Field(4, "<i"), length) for length in (0, 64)),
        (Field(8, "<q"), -1),
        *((Field(16, "<i"), alignment) for alignment in (0, 32)),
    ],
)
def test_a_changed_header_of_the_catalog_ends_every_command_with_10(
    samples: Path, tmp_path: Path, field: Field, value: int
) -> None:
    directory = mutated(
        samples / STOPPED / "node0",
        tmp_path / "damaged",
        "archive.catalog",
        lambda path: write_value(path, field.offset, field.format, value),
    )

    outcome = run_all(directory)

    assert outcome.statuses == IMPOSSIBLE
    assert outcome.recovery_plan.exit_code == 10
    for result in (outcome.describe, outcome.verify, outcome.dump, outcome.messages):
        assert result.stdout == ""
        assert str(directory / "archive" / "archive.catalog") in result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 63, 64, 100, 144, 287, 288, 289, 1000])
def test_a_catalog_that_is_cut(samples: Path, tmp_path: Path, length: int) -> None:
    """What is behind the cut is gone; that it was there is known only inside an entry. Recordings lie without entry."""
    directory = link_directory(samples / STOPPED / "node0", tmp_path / "damaged")
    truncate("archive.catalog", length)(directory / "archive")

    outcome = run_all(directory)

    assert outcome.statuses == (UNSEEN if length in (32, 288) else IMPOSSIBLE)
    assert outcome.recovery_plan.exit_code == 10


def test_an_entry_whose_texts_are_broken_does_not_hide_the_ones_behind_it(samples: Path, tmp_path: Path) -> None:
    change = change_entry("strippedChannelLength", 2**32 - 1)
    directory = mutated(samples / STOPPED / "node0", tmp_path / "damaged", "archive.catalog", change)

    result = run("archive", "dump", directory)

    ids = {json.loads(line)["recording_id"] for line in result.stdout.splitlines()}
    assert ids == {1, 2, 3, 4}
    assert result.exit_code == 10


def test_the_archive_can_be_copied_away_from_the_member(samples: Path, tmp_path: Path) -> None:
    """The commands need the archive's directory only, and change nothing in it."""
    directory = tmp_path / "copy"
    shutil.copytree(samples / STOPPED / "node0" / "archive", directory)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}

    for command in ("describe", "verify", "dump"):
        assert run("archive", command, directory).exit_code == 0

    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
