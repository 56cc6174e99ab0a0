"""36 kinds of damage done to a recording that was active: `verify` and `dump` judge as the real tool, or more strictly.

What a start makes of each is in `tests/unit/archive/store/test_repair.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.facts import has_facts
from tests.interchange.samples import Sample, frames_of, run, sample_of, truth_of

VARIANTS = sorted(truth_of("torn-variants"))

EMPTY_NEXT = "the real tool takes the empty segment for the end and leaves a hole of zeros in front of it"
ASKED = "the real tool asks whether to cut the last frame off; ours cannot ask and says that nobody can tell"
NO_TRUTH = "the real tool ended with a memory fault"
IN_THE_MIDDLE = "in-the-middle"


class Stricter(NamedTuple):
    """Where our verdict is not the real one: whether all is well, where the frames end, and why that is safer."""

    is_well: bool
    stop_position: int
    why: str


STRICTER = {
    "plain-03-straddle-second-page-empty": Stricter(False, 23648, ASKED),
    "plain-07-straddle-second-page-legitimately-zero": Stricter(False, 15456, ASKED),
    "plain-11-next-segment-empty": Stricter(True, 40544, EMPTY_NEXT),
    "crc-03-straddle-second-page-empty": Stricter(False, 16256, "the checksum decides: no need to ask"),
    "crc-11-next-segment-empty": Stricter(True, 36224, EMPTY_NEXT),
    "crc-17-wrong-length-in-the-middle": Stricter(False, 18848, NO_TRUTH),
}


def real_verdict(truth: dict[str, Any]) -> tuple[bool, int | None]:
    """Whether the real tool found all well, and the stop position that it then wrote."""
    verdict = truth["verify_truncate_no"]
    (entry,) = verdict["after"]["catalog"]["entries"]
    return verdict["result"], entry["descriptor"]["stopPosition"] if verdict["result"] else None


@pytest.mark.parametrize("name", VARIANTS)
def test_verify_says_what_the_real_tool_says_or_is_stricter(samples: Path, name: str) -> None:
    result = run("archive", "verify", samples / "torn-variants" / name, "-o", "jsonl")

    row = json.loads(result.stdout)
    is_well = row["verdict"] == "ok"
    assert (result.exit_code == 0) is is_well
    assert all("position=" in problem for problem in row["problems"])
    if name in STRICTER:
        assert (is_well, row["stop_position"]) == STRICTER[name][:2]
        return
    expected, stop_position = real_verdict(truth_of("torn-variants")[name])
    assert is_well is expected
    if expected:
        assert row["stop_position"] == stop_position


def test_what_is_stricter_differs_and_has_a_reason() -> None:
    for name, ours in STRICTER.items():
        truth = truth_of("torn-variants")[name]
        if "result" in truth:  # no verdict at all
            assert ours.why == NO_TRUTH
            continue
        is_well, stop_position = real_verdict(truth)
        assert (ours.is_well, ours.stop_position) != (is_well, stop_position)
        assert truth["verify_truncate_no"]["asked_to_truncate"] == (not ours.is_well)
        assert ours.why


@pytest.mark.parametrize("name", VARIANTS)
def test_a_dump_ends_with_10_where_valid_frames_follow_the_damage(samples: Path, name: str) -> None:
    """It prints every frame before it. A torn write at the end is no damage, but it says so; `verify` is stricter.

    A last frame of which nobody can tell whether it is whole is damage, too.
    """
    directory = samples / "torn-variants" / name
    (verdict,) = json.loads(run("archive", "verify", directory, "-o", "json").stdout)
    is_readable = verdict["verdict"] == "ok"
    is_damaged = IN_THE_MIDDLE in name or (name in STRICTER and STRICTER[name].why == ASKED)

    for options in ((), ("--messages",)):
        result = run("archive", "dump", directory, *options)

        rows = [json.loads(line) for line in result.stdout.splitlines()]
        assert result.exit_code == (10 if is_damaged and not is_readable else 0)
        if not options:
            assert len(rows) == verdict["frame_count"]
        if not is_readable:
            torn = "" if is_damaged else "ends in a torn write: "
            assert f"recording_id=0 position={verdict['stop_position']}: {torn}" in result.stderr


def test_a_message_cut_by_the_end_is_noted_and_no_damage(samples: Path) -> None:
    """Only frames count where a recording ends: Aeron keeps the fragments of a message that its leader did not end."""
    result = run("archive", "dump", samples / "torn-variants" / "plain-02-mid-message", "--messages")

    assert result.exit_code == 0
    assert has_facts(result.stderr, "recording_id=0 position=16896:", "end_position=18304 frame_count=1\n")


def test_the_log_of_a_member_killed_in_full_traffic_ends_where_the_real_archive_ends_it(samples: Path) -> None:
    sample: Sample = sample_of(samples, "torn-node0")

    result = run("archive", "dump", sample.directory)

    last = json.loads(result.stdout.splitlines()[-1])
    assert last == frames_of(sample.truth)[-1]
    assert (
        last["position"] + -(-last["frame_length"] // 32) * 32 == sample.truth["after_archive_start"][0]["stopPosition"]
    )
