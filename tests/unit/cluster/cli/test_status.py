"""`trimaran status` as a process: where it finds members, what it prints where, how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.commands import run_trimaran_blocking
from tests.unit.cluster.cli.answers import answered, failed, member_status
from tests.waiting import patient
from trimaran.archive.tool.output import EXIT_NO_LEADER, EXIT_UNHEALTHY, EXIT_UNREACHABLE
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.shared.cluster_report import exit_status, make_report
from trimaran.cluster.documents.query import Outcome
from trimaran.cluster.settings.variables import clean_environment

DEADLINE_S = 60


def environment(**variables: str) -> dict[str, str]:
    clean = {name: value for name, value in clean_environment().items() if name != "COLUMNS"}
    return clean | {"TERM": "xterm"} | variables


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "trimaran", "status", *arguments]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    printed = run_trimaran_blocking("status", *arguments, TERM="xterm", **variables)
    return subprocess.CompletedProcess(arguments, printed.exit_status, printed.output, printed.errors)


def test_members_that_are_down_are_rows_and_the_exit_status_says_so() -> None:
    port = find_base_ports(1)[0]

    result = run("--members", f"0=127.0.0.1:{port}", "-o", "json")

    report = json.loads(result.stdout)
    assert result.returncode == EXIT_UNREACHABLE
    assert "0 of 1\n" in result.stderr
    assert report["has_quorum"] is False
    assert report["members"][0]["outcome"] == "refused"
    assert report["members"][0]["endpoint"] == f"127.0.0.1:{port + 1}"


def test_members_come_from_the_environment_or_the_nodes_own_file(tmp_path: Path) -> None:
    """A file that a node is started with does as it is."""
    members = f"3=127.0.0.1:{find_base_ports(1)[0]}"
    file = tmp_path / "node.toml"
    file.write_text(f'member_id = 3\nmembers = "{members}"\ndirectory = "data"\nservice = "m:C"\n')

    results = [
        run(TRIMARAN_MEMBERS=members),
        run("--config", str(file)),
        run(TRIMARAN_CONFIG=str(file), TRIMARAN_MEMBER_ID="3"),
    ]

    assert [result.returncode for result in results] == [EXIT_UNREACHABLE] * 3
    assert all("0 of 1" in result.stdout for result in results)
    assert all("refused" in result.stdout and "\x1b" not in result.stdout for result in results)


def test_the_exit_status_tells_no_answer_no_leader_and_no_majority_apart() -> None:
    """As `trimaran health` does."""
    leader, follower, down = (
        answered(member_status(1, state="LEADER")),
        answered(member_status(0)),
        failed(2, Outcome.REFUSED),
    )
    alone = answered(member_status(0, state="CANVASS", leader=None))

    assert exit_status(make_report([follower, leader, down], asked_at_ms=0)) == 0
    assert exit_status(make_report([failed(0), leader, down], asked_at_ms=0)) == EXIT_UNHEALTHY
    assert exit_status(make_report([alone, failed(1), down], asked_at_ms=0)) == EXIT_NO_LEADER
    assert exit_status(make_report([failed(0), failed(1), down], asked_at_ms=0)) == EXIT_UNREACHABLE


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "--members, TRIMARAN_MEMBERS or members"),
        (("--members", ""), "empty"),
        (("--members", "0=127.0.0.1"), "endpoint='127.0.0.1'"),
        (("--config", "absent.toml"), "file=absent.toml"),
        (("--members", "0=127.0.0.1:9000", "--watch", "0"), "Invalid value for '--watch'"),
        (("--members", "0=127.0.0.1:9000", "-o", "yaml"), "'yaml'"),
        (("--election-timeout-ms", "5"), "No such option"),
    ],
)
def test_wrong_usage_is_exit_status_2_and_nothing_is_asked(arguments: tuple[str, ...], expected: str) -> None:
    result = run(*arguments, COLUMNS="200")

    assert result.returncode == 2, result
    assert expected in result.stderr
    assert result.stdout == ""


def test_watching_prints_a_line_of_json_an_interval_until_ctrl_c() -> None:
    arguments = command("--members", f"0=127.0.0.1:{find_base_ports(1)[0]}", "-o", "json", "--watch", "0.1")

    with subprocess.Popen(
        arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        reports = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=patient(DEADLINE_S))

    assert (process.returncode, errors) == (0, "")
    assert all("0 of 1" in report["verdict"] for report in reports)
    times = [report["asked_at_ms"] for report in reports]
    assert times == sorted(times)


def test_a_reader_that_has_seen_enough_ends_the_watch_in_silence() -> None:
    arguments = command("--members", f"0=127.0.0.1:{find_base_ports(1)[0]}", "-o", "json", "--watch", "0.1")

    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()

    assert (process.returncode, errors) == (0, b"")


def test_watching_in_a_terminal_draws_in_one_place_and_puts_the_cursor_back() -> None:
    arguments = command("--members", f"0=127.0.0.1:{find_base_ports(1)[0]}", "--watch", "0.1")
    ours, theirs = pty.openpty()
    seen = b""

    with subprocess.Popen(arguments, env=environment(), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        while seen.count(b"no member answers") < 3:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:  # how a terminal says that nobody has it open any more
            os.close(ours)

    assert process.returncode == 0
    assert b"\x1b[31m" in seen  # down is red
    assert b"\x1b[1A" in seen  # up again, to draw over it
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
    assert b"Traceback" not in seen
