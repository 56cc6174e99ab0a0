"""One value of one frame changed: every command says where and why, or shows what is there now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.interchange.mutations import FRAME_HEADER, Value, mutated, run_all, write_value
from tests.interchange.samples import run, truth_of

WRONG: Final = (0, 10, 10, 10)
"""The exit statuses of describe, verify, dump and dump --messages where the frame itself is wrong."""
UNSEEN: Final = (0, 0, 0, 0)
"""Nothing protects this value. It is shown as it is now."""
ORPHAN: Final = (0, 0, 0, 10)
"""Every frame is right, and fragments are no message."""


ACTIVE_FRAMES: Final[dict[str, dict[str, Any]]] = {
    "plain": {"position": 30240, "frame_length": 701},
    "crc": {"position": 24480, "frame_length": 699},
}
"""Of recordings that were never stopped, as the dump of a sound one shows them."""


class Base(NamedTuple):
    """A recording of a real Aeron and one whole-message frame in it."""

    directory: str
    recording_id: int
    segment: str
    frame: dict[str, Any]
    is_checksummed: bool
    is_ruled: bool
    """True where it is a snapshot of the consensus module, whose flags no application chose."""

    @property
    def end_position(self) -> int:
        length: int = -(-self.frame["frame_length"] // 32) * 32
        return length + int(self.frame["position"])


def pick(frames: list[dict[str, Any]]) -> dict[str, Any]:
    """A frame in the middle that holds a whole message with a payload, and is followed by another."""
    return next(f for f in frames[len(frames) // 2 :] if f["flags"] == 0xC0 and 96 < f["frame_length"] < 1300)


def bases() -> Iterator[Base]:
    for name, recording_id, is_checksummed in (("single-node", 2, False), ("checksummed", 3, True)):
        frames = truth_of(f"{name}-node0")["recordings"][recording_id]["frames"]
        yield Base(f"{name}/node0", recording_id, f"{recording_id}-0.rec", pick(frames), is_checksummed, True)
    for name, is_checksummed in (("plain", False), ("crc", True)):
        yield Base(f"torn-variants/{name}-01-clean", 0, "0-0.rec", ACTIVE_FRAMES[name], is_checksummed, False)


CASES: Final[tuple[tuple[str, Value, tuple[int, ...], tuple[int, ...]], ...]] = (
    # field, value, statuses without and with checksums
    ("frame_length", 0, WRONG, WRONG),
    ("frame_length", -1, WRONG, WRONG),
    ("frame_length", -(2**31), WRONG, WRONG),
    ("frame_length", 2**31 - 1, WRONG, WRONG),
    ("frame_length", 1, WRONG, WRONG),
    ("frame_length", 31, WRONG, WRONG),
    ("frame_length", 1409, WRONG, WRONG),
    ("frame_length", 65536, WRONG, WRONG),
    ("version", 1, WRONG, WRONG),
    ("version", 255, WRONG, WRONG),
    ("flags", 0x80, UNSEEN, UNSEEN),
    ("flags", 0x40, ORPHAN, ORPHAN),
    ("flags", 0x00, ORPHAN, ORPHAN),
    ("flags", 0xE0, UNSEEN, UNSEEN),
    ("flags", 0x01, ORPHAN, ORPHAN),
    ("type", 0, UNSEEN, WRONG),
    ("type", 2, WRONG, WRONG),
    ("type", 0xFFFF, WRONG, WRONG),
    ("term_offset", "+32", WRONG, WRONG),
    ("term_offset", "-32", WRONG, WRONG),
    ("term_offset", -1, WRONG, WRONG),
    ("session_id", "+1", UNSEEN, WRONG),
    ("stream_id", 0, WRONG, WRONG),
    ("stream_id", "+1", WRONG, WRONG),
    ("term_id", "+1", WRONG, WRONG),
    ("term_id", "-1", WRONG, WRONG),
    ("reserved_value", 1, UNSEEN, UNSEEN),
)


@pytest.mark.parametrize("base", list(bases()), ids=lambda base: base.directory)
@pytest.mark.parametrize(("field", "value", "plain", "checksummed"), CASES)
def test_a_changed_value_of_a_frame(
    samples: Path,
    tmp_path: Path,
    base: Base,
    field: str,
    value: Value,
    plain: tuple[int, ...],
    checksummed: tuple[int, ...],
) -> None:
    position = base.frame["position"]
    place = FRAME_HEADER[field]
    before = run("archive", "dump", samples / base.directory, "--recording-id", base.recording_id).stdout.splitlines()

    def change(path: Path) -> None:
        write_value(path, position + place.offset, place.format, value)

    directory = mutated(samples / base.directory, tmp_path / "mutated", base.segment, change)
    outcome = run_all(directory, "--recording-id", base.recording_id)

    expected = checksummed if base.is_checksummed else plain
    if base.is_ruled and field in ("flags", "reserved_value"):
        expected = WRONG
    assert outcome.statuses == expected
    where = f"recording_id={base.recording_id} position={position}: "
    rows = outcome.dump.stdout.splitlines()
    if expected == WRONG:
        (verdict,) = map(json.loads, outcome.verify.stdout.splitlines())
        is_unknown = field == "type" and value != 0 and not base.is_ruled  # an application may have chosen it
        assert (verdict["verdict"], verdict["stop_position"]) == ("unknown" if is_unknown else "wrong", position)
        assert f"position={position}" in verdict["problems"][0]
        assert where in outcome.dump.stderr
        assert where in outcome.messages.stderr
        assert rows == [line for line in before if json.loads(line)["position"] < position]
        return
    changed = [(json.loads(old), json.loads(new)) for old, new in zip(before, rows, strict=True) if old != new]
    assert [new["position"] for _, new in changed] == [position]
    assert [new for _, new in changed] == [old | {field: new[field]} for old, new in changed]
    if field == "flags" and value != 0xE0:
        assert where in outcome.messages.stderr


@pytest.mark.parametrize("base", list(bases()), ids=lambda base: base.directory)
@pytest.mark.parametrize("change", ["+32", "-32"])
def test_a_length_that_might_be_right_is_found_out_by_the_next_frame_or_the_checksum(
    samples: Path, tmp_path: Path, base: Base, change: str
) -> None:
    position = base.frame["position"]
    directory = mutated(
        samples / base.directory,
        tmp_path / "mutated",
        base.segment,
        lambda path: write_value(path, position, "<i", change),
    )

    outcome = run_all(directory, "--recording-id", base.recording_id)

    found = position if base.is_checksummed or base.is_ruled else base.end_position + int(change)
    assert outcome.statuses == WRONG
    assert f"recording_id={base.recording_id} position={found}: bad frame" in outcome.dump.stderr


@pytest.mark.parametrize("base", list(bases()), ids=lambda base: base.directory)
def test_a_changed_byte_of_a_payload_is_found_only_by_a_checksum(samples: Path, tmp_path: Path, base: Base) -> None:
    position = base.frame["position"]
    directory = mutated(
        samples / base.directory,
        tmp_path / "mutated",
        base.segment,
        lambda path: write_value(path, position + 32 + 40, "<b", 77),
    )

    outcome = run_all(directory, "--recording-id", base.recording_id)

    assert outcome.statuses == (WRONG if base.is_checksummed else UNSEEN)
    assert ("wrong checksum" in outcome.dump.stderr) is base.is_checksummed


def test_the_recordings_behind_a_damaged_one_are_dumped_all_the_same(samples: Path, tmp_path: Path) -> None:
    directory = mutated(
        samples / "single-node" / "node0",
        tmp_path / "mutated",
        "0-0.rec",
        lambda path: write_value(path, 0, "<i", -5),
    )

    result = run("archive", "dump", directory)

    rows = [json.loads(line) for line in result.stdout.splitlines()]
    frames = {r["recording_id"]: len(r["frames"]) for r in truth_of("single-node-node0")["recordings"]}
    assert result.exit_code == 10
    assert [sum(row["recording_id"] == recording_id for row in rows) for recording_id in frames] == [
        0,
        frames[1],
        frames[2],
    ]
