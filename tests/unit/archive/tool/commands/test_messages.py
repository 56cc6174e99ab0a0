"""`trimaran archive grep|tail`, as a user runs them, on what a real Aeron wrote."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample, load_truth
from tests.waiting import patient
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import locate
from trimaran.archive.reading.following import RecordingFollower
from trimaran.archive.tool.commands.rows import MessageRows
from trimaran.archive.tool.commands.tail import FIRST_PAUSE_S, LONGEST_PAUSE_S, follow_rows
from trimaran.archive.tool.selection import expect_descriptor, load_catalog
from trimaran.cluster.cli.archive import VOCABULARY, app

Message = dict[str, Any]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("samples")
    for name in ("single-node", "checksummed", "archive-only"):
        extract_sample(name, directory)
    return directory


@pytest.fixture(scope="module")
def single(samples: Path) -> Path:
    return samples / "single-node" / "node0"


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    """The truth about every message of the single node, the log's first."""
    recordings = load_truth("single-node-node0")["recordings"]
    return [{"recording_id": r["recording_id"], **m} for r in recordings for m in r["messages"]]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def found(*arguments: object) -> list[Message]:
    result = run(*arguments, "-o", "jsonl")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def places(rows: list[Message]) -> list[tuple[int, int]]:
    return [(row["recording_id"], row["position"]) for row in rows]


@pytest.mark.parametrize(
    ("options", "is_wanted"),
    [
        ((), lambda m: True),
        (("--type", "TimerEvent"), lambda m: m["name"] == "TimerEvent"),
        (("--type", "Timer", "--type", "ClusterSession"), lambda m: m["name"] in ("Timer", "ClusterSession")),
        (("--type", "(application)"), lambda m: m["name"] == "(application)"),
        (("--type", "(opaque)"), lambda m: m["name"] == "(application)"),
        (("--session", "3"), lambda m: m.get("fields", {}).get("clusterSessionId") == 3),
        (("--recording-id", "2"), lambda m: m["recording_id"] == 2),
        (
            ("--since", "1795233685936", "--until", "1795233690000"),
            lambda m: 1795233685936 <= m.get("fields", {}).get("timestamp", 0) < 1795233690000,
        ),
        (
            ("--since", "2026-11-21T04:01:25.936Z", "--until", "2026-11-21T05:01:30+01:00"),
            lambda m: 1795233685936 <= m.get("fields", {}).get("timestamp", 0) < 1795233690000,
        ),
        (("--hex", "216563686f2033"), lambda m: "216563686f2033" in m.get("payload_hex", "")),
        (("^!echo [3-5] ",), lambda m: re.match("216563686f203[345]20", m.get("payload_hex", ""))),
        (
            ("-F", "-i", "!CLOSE please", "--type", "SessionMessageHeader"),
            lambda m: "21636c6f736520706c65617365" in m.get("payload_hex", ""),
        ),
    ],
)
def test_grep_finds_what_the_truth_says(
    single: Path, messages: list[Message], options: tuple[str, ...], is_wanted: Callable[[Message], bool]
) -> None:
    wanted = [message for message in messages if is_wanted(message)]

    rows = found("grep", single, *options)

    assert places(rows) == places(wanted)
    assert wanted
    counts = found("grep", single, *options, "-c")
    assert {row["recording_id"]: row["count"] for row in counts if row["count"]} == {
        number: sum(message["recording_id"] == number for message in wanted)
        for number in {message["recording_id"] for message in wanted}
    }


def test_grep_shows_messages_as_dump_does_and_where_in_the_payload_they_match(single: Path) -> None:
    (row,) = found("grep", single, "please", "--limit", 1)

    (message,) = found(
        "dump", single, "--messages", "--recording-id", 0, "--from-position", row["position"], "--limit", 1
    )
    assert {key: row[key] for key in message} == message
    assert (row["match_offset"], row["excerpt"], row["match"]) == (7, "!close please", True)


def test_a_pattern_does_not_match_in_the_header_of_a_session_message(single: Path, messages: list[Message]) -> None:
    header = r"^\x18\x00\x01\x00\x6f\x00"

    assert found("grep", single, header, "--type", "SessionMessageHeader") == []
    assert found("grep", single, r"^..\x14\x00\x6f\x00", "--recording-id", 0) != []


def test_grep_shows_what_is_around_a_match(single: Path, messages: list[Message]) -> None:
    log = [message for message in messages if message["recording_id"] == 0]
    matches = [index for index, message in enumerate(log) if message["name"] == "SessionOpenEvent"]
    wanted = sorted({near for index in matches for near in range(max(0, index - 2), index + 3)})

    rows = found("grep", single, "--recording-id", 0, "--type", "SessionOpenEvent", "-C", 2)

    assert places(rows) == places([log[index] for index in wanted])
    assert [row["match"] for row in rows] == [index in matches for index in wanted]


def test_grep_between_positions(single: Path, messages: list[Message]) -> None:
    log = [message for message in messages if message["recording_id"] == 0]
    begin, end = log[100]["position"], log[200]["position"]

    rows = found("grep", single, "--recording-id", 0, "--from-position", begin, "--to-position", end)

    assert places(rows) == places(log[100:200])


def test_grep_of_a_log_that_counts_nanoseconds(samples: Path) -> None:
    directory = samples / "checksummed" / "node0"
    truth = load_truth("checksummed-node0")["recordings"][0]["messages"]
    last = [m for m in truth if m["fields"]["timestamp"] >= 1795233719 * 10**9]

    rows = found("grep", directory, "--recording-id", 0, "--since", "2026-11-21T04:01:59")

    assert [row["position"] for row in rows] == [message["position"] for message in last] != []


def test_grep_of_an_archive_without_a_cluster_takes_the_session_of_the_frames(samples: Path) -> None:
    directory = samples / "archive-only" / "node0"
    recording = load_truth("archive-only-node0")["recordings"][4]
    session_id = recording["frames"][0]["session_id"]

    rows = found("grep", directory, "--session", session_id)

    assert [row["position"] for row in rows] == [message["position"] for message in recording["messages"]]


def test_grep_says_what_damage_kept_it_from(samples: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(samples / "checksummed" / "node0" / "archive", tmp_path / "archive"))
    segment = directory / "0-65536.rec"
    data = bytearray(segment.read_bytes())
    data[30_000] ^= 1
    segment.write_bytes(data)

    result = run("grep", directory, "-c", "-o", "jsonl")

    assert result.exit_code == 10
    assert "wrong checksum" in result.stderr
    assert "not searched" in result.stderr
    assert len(result.stdout.splitlines()) == 7


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--type", "TimerEvnt"), "such as ['TimerEvent'"),
        (("(",), "regular expression"),
        (("--hex", "0a1"), "hex bytes"),
        (("x", "--hex", "0a"), "not both"),
        (("--since", "yesterday"), "--since: bad time: 'yesterday'"),
        (("--until", "--5"), "--until: bad time: '--5'"),
        (("--since", "\u0663"), "--since: bad time"),
        (("--from-position", "96"), "need --recording-id"),
        (("--recording-id", "0", "--from-position", "97"), "multiple of 32"),
        (("--recording-id", "77"), "recording"),
    ],
)
def test_a_question_that_makes_no_sense_ends_in_one_line_and_2(
    single: Path, arguments: tuple[str, ...], reason: str
) -> None:
    result = run("grep", single, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_tail_shows_the_last_messages_of_the_log(single: Path, messages: list[Message]) -> None:
    log = [message for message in messages if message["recording_id"] == 0]

    assert places(found("tail", single, "-n", 30)) == places(log[-30:])
    assert found("tail", single, "-n", 0) == []


def test_tail_takes_the_active_recording_where_there_is_one(samples: Path) -> None:
    rows = found("tail", samples / "archive-only" / "node0", "-n", 1)

    assert [row["recording_id"] for row in rows] == [9]


def test_tail_asks_which_recording_where_it_cannot_be_told(samples: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(samples / "archive-only" / "node0" / "archive", tmp_path / "archive"))
    catalog = directory / "archive.catalog"
    data = bytearray(catalog.read_bytes())
    stop_position = data.rindex(b"\xff" * 8)
    data[stop_position : stop_position + 8] = bytes(8)
    catalog.write_bytes(data)

    result = run("tail", directory)

    assert result.exit_code == 2
    assert has_facts(result.stderr, "--recording-id", "[0, 1, 2, 4, 5, 6, 7, 9]")


def test_tail_f_is_no_document(single: Path) -> None:
    assert run("tail", single, "-f", "-o", "json").exit_code == 2


def test_following_looks_more_seldom_while_nothing_comes(samples: Path) -> None:
    directory = samples / "archive-only" / "node0" / "archive"
    descriptor = expect_descriptor(load_catalog(locate(directory)), 9)
    pauses: list[float] = []

    def wait(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 10:
            raise KeyboardInterrupt

    rows = MessageRows.of(LogFile.of(directory, descriptor), VOCABULARY)
    with pytest.raises(KeyboardInterrupt):
        list(follow_rows(RecordingFollower(LogFile.of(directory, descriptor)), rows, 0, wait=wait, is_followed=True))

    assert pauses[:2] == [2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_tail_f_shows_what_comes_and_ends_with_ctrl_c(samples: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(samples / "archive-only" / "node0" / "archive", tmp_path / "archive"))
    segment = directory / "9-0.rec"
    whole = segment.read_bytes()
    messages = load_truth("archive-only-node0")["recordings"][9]["messages"]
    begin = messages[-1]["position"]
    segment.write_bytes(whole[:begin] + bytes(len(whole) - begin))
    command = [sys.executable, "-m", "trimaran.archive", "tail", "-f", "-n", "1", "-o", "jsonl", str(directory)]

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            before = json.loads(process.stdout.readline())
            handle = os.open(segment, os.O_WRONLY)
            os.pwrite(handle, whole[begin:], begin)
            os.close(handle)
            after = json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)
            rest, errors = process.stdout.read(), process.stderr.read()
            status = process.wait(patient(30))
        finally:
            process.kill()

    assert [row["position"] for row in (before, after)] == [messages[-2]["position"], messages[-1]["position"]]
    assert (rest, errors, status) == ("", "", 0)


def test_progress_on_a_terminal_leaves_the_rows_in_their_pipe(single: Path, messages: list[Message]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trimaran.archive", "grep", "-o", "jsonl", str(single)]
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=patient(60), check=False)
        shown = os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)

    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == len(messages)
    assert b"recording 0" in shown
    assert b"position" not in shown
