"""How a log ends, and its damage, is the same for every command and every library call.

The logs are the 36 torn variants of the real archive, logs with a mutated frame, and members' directories of ours that
end in every way (`ended_logs`). What Spark itself says is in `tests/spark/test_log_end.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.interchange.ended_logs import ENDED_LOGS, LONG, EndedLog
from tests.interchange.mutations import FRAME_HEADER, mutated, write_value
from tests.interchange.samples import run, truth_of
from tests.unit.archive.spark.member_logs import TERM_LENGTH
from trimaran.archive import ArchiveError, ReadProblem, frames
from trimaran.archive.files.log_end import LogEnd
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.spark.source.batch_reader import find_problems
from trimaran.archive.spark.source.options import parse_options
from trimaran.archive.spark.source.partitions import plan_read
from trimaran.cluster.import_aeron.source import read_source
from trimaran.cluster.import_aeron.survey import survey_source
from trimaran.cluster.time_travel.member_log import MemberLog


class Seen(NamedTuple):
    """What one command or call says: its damage, if it sees any, and where."""

    position: int | None
    """Of the damage; else of the end, or None where it does not say."""
    damage: str | None = None


_DAMAGE: Final = re.compile(r"recording_id=0 position=(\d+): (?!ends in a torn write)(.*); file=")


def told(*words: object) -> Seen:
    """What a command prints on standard error and ends with."""
    result = run(*words)
    found = _DAMAGE.search(result.stderr)
    assert (result.exit_code == 10) is (found is not None), result.stderr
    assert result.exit_code in (0, 10)
    return Seen(None) if found is None else Seen(int(found[1]), found[2])


def diff(directory: Path, target: Path) -> Seen:
    assert told("archive", "diff", directory, directory, "-o", "jsonl") == of_side(directory)
    return of_side(directory)


def of_side(directory: Path) -> Seen:
    side = json.loads(run("archive", "diff", directory, directory, "-o", "jsonl").stdout)["a"]
    return Seen(side["end_position"] if side["damage"] is not None else None, side["damage"])


def verify(directory: Path, target: Path) -> Seen:
    """It calls a torn write wrong, too, as the real tool does."""
    result = run("archive", "verify", directory, "-o", "jsonl")
    (row,) = map(json.loads, result.stdout.splitlines())
    found = [re.match(r"position=(\d+)(?: stop_position=\d+)?: (.*)", problem) for problem in row["problems"]]
    damages = [match for match in found if match is not None and "go on at position=" in match[2]]
    if not damages and "expected frames up to stop_position" not in str(row["problems"]):
        return Seen(row["stop_position"])
    match = damages[0] if damages else found[0]
    assert match is not None
    return Seen(int(match[1]), match[2])


def export(directory: Path, target: Path) -> Seen:
    result = run("archive", "export", directory, "--to", target / "export", "--format", "jsonl", "-o", "jsonl")
    remarks = [row["remarks"] for row in map(json.loads, result.stdout.splitlines()) if row["remarks"]]
    assert (result.exit_code == 10) is bool(remarks)
    if not remarks:
        return Seen(None)
    place, _, damage = remarks[0].partition(": ")
    return Seen(int(place.removeprefix("position=")), damage)


def arrow(directory: Path, target: Path) -> Seen:
    problems: list[ReadProblem] = []
    for _ in frames(directory, on_problem=problems.append):
        pass
    return first(problems)


def spark_source(directory: Path, target: Path) -> Seen:
    problems: list[ReadProblem] = []
    for partition in plan_read(parse_options({"path": str(directory)}), ("position",)).partitions:
        find_problems(partition, problems.append)
    return first(problems)


def first(problems: list[ReadProblem]) -> Seen:
    return Seen(problems[0].position, problems[0].reason) if problems else Seen(None)


def command(*words: object) -> Callable[[Path, Path], Seen]:
    return lambda directory, target: told(*(directory if word == "DIR" else word for word in words))


READERS: Final[dict[str, Callable[[Path, Path], Seen]]] = {
    "archive dump": command("archive", "dump", "DIR"),
    "archive dump --messages": command("archive", "dump", "DIR", "--messages"),
    "archive grep": command("archive", "grep", "DIR", "message"),
    "archive grep -c": command("archive", "grep", "DIR", "-c"),
    "archive tail": command("archive", "tail", "DIR"),
    "archive verify": verify,
    "archive diff": diff,
    "archive export": export,
    "log dump": command("log", "dump", "DIR"),
    "log dump -o jsonl": command("log", "dump", "DIR", "-o", "jsonl"),
    "log tail": command("log", "tail", "DIR"),
    "frames": arrow,
    "Spark source": spark_source,
}


def expect_all_say(directory: Path, target: Path, end: LogEnd) -> None:
    """Every reader gives the position and the damage of `end`; who does not say where an open log ends gives None."""
    found = {name: reader(directory, target) for name, reader in READERS.items()}

    damaged = Seen(end.position, end.damage)
    for name, seen in found.items():
        if end.damage is not None:
            assert seen == damaged, name
        else:
            assert seen in (Seen(None), Seen(end.position)), name


def end_of(directory: Path) -> LogEnd:
    return LogFile.find(MemberDirectory.find(directory)).ending()


@pytest.mark.parametrize("name", sorted(truth_of("torn-variants")))
def test_torn_variants(samples: Path, tmp_path: Path, name: str) -> None:
    directory = samples / "torn-variants" / name
    end = end_of(directory)

    is_damaged = end.kind == "damaged"
    assert is_damaged is ("in-the-middle" in name and name != "plain-16-damaged-byte-in-the-middle")
    expect_all_say(directory, tmp_path, end)


@pytest.mark.parametrize("base", ["plain-01-clean", "crc-01-clean"])
@pytest.mark.parametrize(
    ("field", "value"), [("frame_length", 0), ("frame_length", 31), ("term_id", "+1"), ("type", 2)]
)
def test_mutated_frames(samples: Path, tmp_path: Path, base: str, field: str, value: int | str) -> None:
    position = {"plain-01-clean": 30240, "crc-01-clean": 24480}[base]
    place = FRAME_HEADER[field]
    directory = mutated(
        samples / "torn-variants" / base,
        tmp_path / "mutated",
        "0-0.rec",
        lambda path: write_value(path, position + place.offset, place.format, value),
    )

    end = end_of(directory)

    assert (end.kind, end.position) == ("damaged", position)
    assert end.resumes_at is not None
    expect_all_say(directory, tmp_path, end)


@pytest.mark.parametrize("log", ENDED_LOGS, ids=lambda log: log.name.replace(" ", "_"))
def test_logs_of_members(tmp_path: Path, log: EndedLog) -> None:
    directory = log.write(tmp_path / "member")
    end = end_of(directory)

    assert (end.kind, end.position, end.resumes_at) == (log.kind, log.position, log.resumes_at)
    assert end_of(directory / "archive") == end
    expect_all_say(directory, tmp_path, end)
    assert replayed(directory) == (end.position, end.kind == "damaged")
    assert imported(directory) == (end.position, end.kind == "damaged")


def replayed(directory: Path) -> tuple[int, bool]:
    """Where a replay of all that is recorded ends, and whether in damage."""
    log = MemberLog.open(directory)
    position = log.log.start_position
    end_position = log.end_of("recorded")
    try:
        while position < end_position:
            position += len(log.read(log.log.recording_id, position, 1 << 20, stop_position=end_position))
    except ArchiveError:
        return position, True
    finally:
        log.close_files()
    return position, False


def imported(directory: Path) -> tuple[int, bool]:
    """Where the log of an import ends, and whether it is refused for damage."""
    try:
        survey = survey_source(read_source(str(directory), now_ms=None), with_snapshots=False)
    except ArchiveError as error:
        found = re.search(r"\bposition=(\d+)\)", str(error))
        assert found is not None
        return int(found[1]), True
    damages = [int(found[1]) for p in survey.problems if (found := re.match(r"recording_id=0 position=(\d+) stop", p))]
    return (damages[0], True) if damages else (survey.stop_position, False)


def test_the_long_log_has_several_segments() -> None:
    assert LONG.position > 2 * TERM_LENGTH
