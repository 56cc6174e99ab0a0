"""How a log ends, and its damage, is the same for every command and every library call.

The logs are the 36 torn variants of the real archive, logs with a mutated frame, and members' directories of ours that
end in every way (`ended_logs`). What Spark itself says is in `tests/spark/test_log_end.py`.

Not here: a start judges by itself (`store.repair`), and so do the referees of tests (`system/directory_checker.py`,
`cluster/testing/simulation/rules/referee.py`).
"""

from __future__ import annotations

import json
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.interchange.ended_logs import ENDED_LOGS, LONG, EndedLog
from tests.interchange.mutations import FRAME_HEADER, mutated, write_value
from tests.interchange.samples import Ended, run, truth_of
from tests.unit.archive.spark.member_logs import TERM_LENGTH
from trimaran.archive import CorruptionError, ReadProblem, frames
from trimaran.archive.files.log_end import LogEnd
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.archive.reading.following import PATIENCE_LOOKS, RecordingFollower
from trimaran.archive.spark.source.batch_reader import find_problems, read_partition
from trimaran.archive.spark.source.options import parse_options
from trimaran.archive.spark.source.partitions import plan_read
from trimaran.archive.spark.streaming.stream_cut import NO_LIMIT, BatchCutRules, LogWalk
from trimaran.archive.spark.streaming.stream_offset import LogOffset
from trimaran.cluster.directories.source import read_source
from trimaran.cluster.directories.survey import survey_source
from trimaran.cluster.runtime.files.recording_log_file import RecordingLogFile
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api.wire.frame import encode_frame, unpack_header


class Seen(NamedTuple):
    """What one command or call says: its damage, if it sees any, and where."""

    position: int | None
    """Of the damage; else of the end, or None where it does not say."""
    damage: str | None = None


TORN: Final = "ends in a torn write"
_DAMAGE: Final = re.compile(r"recording_id=0 position=(\d+): (?!ends in a torn write)(.*); file=")
_OF_RECORDING: Final = re.compile(r"recording_id=0 position=(\d+): (.*)")
_PROBLEM: Final = re.compile(r"trimaran: .*: recording_id=0 position=(\d+): (.*)")
_ERROR: Final = re.compile(r"recording is damaged: (.*) \(code=CORRUPT recording_id=0 position=(\d+)\)")

SERVICE: Final = """
from trimaran import ClusteredService


class Counter(ClusteredService):
    def on_session_message(self, session, timestamp, payload):
        pass
"""


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
    said = ("go on at position=", "last frame may be incomplete")
    damages = [match for match in found if match is not None and any(words in match[2] for words in said)]
    if not damages and "up to stop_position" not in str(row["problems"]):
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
    return first([problem for problem in problems if not problem.reason.startswith(TORN)])  # it tells of those, too


def first(problems: list[ReadProblem]) -> Seen:
    return Seen(problems[0].position, problems[0].reason) if problems else Seen(None)


def stream(directory: Path, target: Path) -> Seen:
    """What a stream of Spark finds when it plans a batch."""
    log = LogFile.find(MemberDirectory.find(directory))
    start = LogOffset(position=log.descriptor.start_position)
    walk = LogWalk(
        log.location.directory,
        log.descriptor,
        start,
        bound_position=NO_LIMIT,
        rules=BatchCutRules(),
        judges_blank=True,
    )
    walk.run()
    return Seen(walk.end_position, walk.ending or None)


def follow(directory: Path, target: Path) -> Seen:
    """What `tail -f` says that began at the beginning."""
    follower = RecordingFollower(LogFile.find(MemberDirectory.find(directory)))
    try:
        for _ in range(2 * PATIENCE_LOOKS):
            deque(follower.look(), maxlen=0)
    except CorruptionError as error:
        return of_error(error)
    return Seen(None)  # after the last whole message, which may be before the end


def as_member(directory: Path, target: Path) -> Path:
    """Give a member's directory; an archive without a cluster gets a recording log with one term."""
    found = MemberDirectory.find(directory)
    if found.recording_log is not None:
        return directory
    member, log = target / "member", LogFile.find(found)
    if not member.exists():
        (member / "cluster").mkdir(parents=True)
        (member / "archive").symlink_to(log.location.directory)
        file = RecordingLogFile.open(member / "cluster", file_sync_level=0)
        file.recording_log.append_term(
            recording_id=log.descriptor.recording_id, leadership_term_id=0, term_base_log_position=0, timestamp=1
        )
        file.persist()
        file.close()
    return member


def replay(directory: Path, target: Path) -> Seen:
    """How a replay reads all that is recorded."""
    log = MemberLog.open(as_member(directory, target))
    position, end_position = log.log.start_position, log.end_of("recorded")
    try:
        while position < end_position:
            position += len(log.read(log.log.recording_id, position, 1 << 20, stop_position=end_position))
    except CorruptionError as error:
        return of_error(error)
    finally:
        log.close_files()
    return Seen(position)


def survey(directory: Path, target: Path) -> Seen:
    """What an import finds before it writes anything; problems of messages are not asked for."""
    source = read_source(str(as_member(directory, target)), now_ms=None)
    try:
        found = survey_source(source, with_snapshots=False)
    except CorruptionError as error:
        return of_error(error)
    damages = [damage for problem in found.problems if (damage := _OF_RECORDING.fullmatch(problem)) is not None]
    return Seen(int(damages[0][1]), damages[0][2]) if damages else Seen(found.stop_position)


def of_error(error: CorruptionError) -> Seen:
    return of_text(str(error))


def of_text(text: str) -> Seen:
    found = _ERROR.search(text)
    assert found is not None, text
    return Seen(int(found[2]), found[1])


def replay_command(directory: Path, target: Path) -> Seen:
    words = ("--service", "service:Counter", "--service-dir", target, "--bound", "recorded", "--snapshot", "none")
    (target / "service.py").write_text(SERVICE)
    return of_status(run("replay", directory, *words))


def import_command(directory: Path, target: Path) -> Seen:
    return of_status(run("archive", "import", directory, "--to", target / "imported", "--dry-run"))


def of_status(result: Ended) -> Seen:
    if result.exit_code == 0:
        return Seen(None)
    assert result.exit_code == 10, result.stderr
    found = _PROBLEM.search(result.stderr)
    return of_text(result.stderr) if found is None else Seen(int(found[1]), found[2])


def command(*words: object) -> Callable[[Path, Path], Seen]:
    return lambda directory, target: told(*(directory if word == "DIR" else word for word in words))


FOLLOWERS: Final = frozenset({"follow", "Spark stream", "replay"})
"""They end, or wait, where the last frame may be incomplete: once another follows, it is not."""

UNDECIDABLE: Final = frozenset(
    {"plain-03-straddle-second-page-empty", "plain-07-straddle-second-page-legitimately-zero"}
)

TAILS: Final = frozenset({"archive tail"})

READERS: Final[dict[str, Callable[[Path, Path], Seen]]] = {
    "archive dump": command("archive", "dump", "DIR"),
    "archive dump --messages": command("archive", "dump", "DIR", "--messages"),
    "archive grep": command("archive", "grep", "DIR", "message"),
    "archive grep -c": command("archive", "grep", "DIR", "-c"),
    "archive tail": command("archive", "tail", "DIR"),
    "archive verify": verify,
    "archive diff": diff,
    "archive export": export,
    "archive grep --log": command("archive", "grep", "DIR", "--log"),
    "archive grep --log -o jsonl": command("archive", "grep", "DIR", "--log", "-o", "jsonl"),
    "follow": follow,
    "frames": arrow,
    "replay": replay,
    "Spark source": spark_source,
    "Spark stream": stream,
    "survey of an import": survey,
}

MEMBER_READERS: Final[dict[str, Callable[[Path, Path], Seen]]] = {
    **READERS,
    "archive import": import_command,
    "recovery-plan": lambda directory, target: of_status(run("recovery-plan", directory)),
    "replay command": replay_command,
}
"""They deliver the log, so it has to be one of a cluster."""


def expect_all_say(
    directory: Path,
    target: Path,
    end: LogEnd,
    readers: Mapping[str, Callable[[Path, Path], Seen]] = READERS,
    without: Set[str] = frozenset(),
) -> None:
    """Every reader gives the position and the damage of `end`; who does not say where an open log ends gives None."""
    found = {name: reader(directory, target) for name, reader in readers.items() if name not in without}

    if end.damage is not None:
        assert found == dict.fromkeys(found, Seen(end.position, end.damage))
    else:
        assert {name: seen for name, seen in found.items() if seen not in (Seen(None), Seen(end.position))} == {}


def end_of(directory: Path) -> LogEnd:
    return LogFile.find(MemberDirectory.find(directory)).ending()


@pytest.mark.parametrize("name", sorted(truth_of("torn-variants")))
def test_torn_variants(samples: Path, tmp_path: Path, name: str) -> None:
    directory = samples / "torn-variants" / name
    end = end_of(directory)

    is_damaged = end.kind == "damaged"
    is_undecidable = name in UNDECIDABLE
    is_in_the_middle = "in-the-middle" in name and name != "plain-16-damaged-byte-in-the-middle"
    assert is_damaged is (is_in_the_middle or is_undecidable)
    expect_all_say(directory, tmp_path, end, without=FOLLOWERS if is_undecidable else frozenset())


@pytest.mark.parametrize("name", sorted(UNDECIDABLE))
def test_a_last_frame_that_verify_and_aeron_refuse_is_no_row_of_any_reader(
    samples: Path, tmp_path: Path, name: str
) -> None:
    """Its second page is zeros, as after an unclean stop, and no checksum says whether it was written so."""
    directory = samples / "torn-variants" / name
    (verdict,) = json.loads(run("archive", "verify", directory, "-o", "json").stdout)
    assert truth_of("torn-variants")[name]["verify_truncate_no"]["asked_to_truncate"]
    assert "incomplete" in verdict["problems"][0]
    problems: list[ReadProblem] = []

    table = frames(directory, on_problem=problems.append).read_all()
    run("archive", "export", directory, "--to", tmp_path / "export", "--format", "parquet")
    exported = pq.read_table(next((tmp_path / "export").glob("*.parquet")))
    (partition, *_) = plan_read(parse_options({"path": str(directory)}), ("position",)).partitions
    schema = pa.schema([("position", pa.int64())])
    rows = pa.Table.from_batches(read_partition(partition, schema, problems.append), schema)

    assert [problem.position for problem in problems] == [verdict["stop_position"]] * 2
    assert table.num_rows == exported.num_rows == rows.num_rows == verdict["frame_count"]
    assert max(table.column("position").to_pylist()) < verdict["stop_position"]


@pytest.mark.parametrize("name", sorted(UNDECIDABLE))
def test_a_follower_waits_before_such_a_frame_and_gives_it_once_another_follows(
    samples: Path, tmp_path: Path, name: str
) -> None:
    directory = tmp_path / name
    shutil.copytree(samples / "torn-variants" / name, directory)
    follower = RecordingFollower(LogFile.find(MemberDirectory.find(directory)))
    end = end_of(directory)
    before = [message.position for _ in range(2 * PATIENCE_LOOKS) for message in follower.look()]

    data = (directory / "0-0.rec").read_bytes()
    header = unpack_header(data, end.position)
    following = end.position + header.aligned_length
    frame = encode_frame(
        b"x" * 100, stream_id=header.stream_id, session_id=7, term_id=header.term_id, term_offset=following
    )
    with (directory / "0-0.rec").open("r+b") as file:
        file.seek(following)
        file.write(frame)

    assert max(before) < end.position
    assert [message.position for message in follower.look()] == [end.position, following]
    positions = frames(directory, columns=["position"]).read_all().column(0).to_pylist()
    assert positions[-2:] == [end.position, following]


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
    directory = log.write(tmp_path / "member-0")
    end = end_of(directory)

    assert (end.kind, end.position, end.resumes_at) == (log.kind, log.position, log.resumes_at)
    assert end_of(directory / "archive") == end
    expect_all_say(directory, tmp_path, end, MEMBER_READERS, without=TAILS if log.is_before_tail else frozenset())


def test_the_long_log_has_several_segments() -> None:
    assert LONG.position > 2 * TERM_LENGTH
