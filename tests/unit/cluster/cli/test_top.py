"""`trimaran top`: one frame of members and sessions, at 80 columns, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import termios
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import answered, member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.shared.test_inspection import sessions_view
from tests.unit.cluster.cli.test_operations import GONE
from tests.waiting import within
from trimaran.archive.tool.output import EXIT_UNREACHABLE
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.cli.shared.cluster_report import make_report
from trimaran.cluster.cli.shared.watching import ended_by_key
from trimaran.cluster.cli.top import find_log_rates
from trimaran.service_api.documents.member_status import SyncStatus
from trimaran.service_api.types import INSPECTION_STREAM_ID, STATUS_STREAM_ID

SYNCS = SyncStatus(count=300, slow_count=30, slow_s=0.1, p99_s=0.205, max_s=0.31)
LEADER = member_status(0, state="LEADER", leader=0, append=9_000_000).model_copy(
    update={"messages_per_s": 51_234.5, "syncs": SYNCS}
)
FOLLOWER = member_status(1, leader=0, append=8_000_000)


def busy_sessions() -> BaseModel:
    view = sessions_view(4, 5, total=5_000)
    busy = {"messages_per_s": 51_000.0, "bytes_per_s": 4.9e6, "address": "10.0.0.9", "client_info": "batch-job-7"}
    return view.model_copy(update={"sessions": [view.sessions[0].model_copy(update=busy), view.sessions[1]]})


def run(*statuses: Mapping[int, BaseModel], width: int = 80, arguments: tuple[str, ...] = ("--once",)) -> Result:
    with ExitStack() as stack:
        found = [stack.enter_context(FakeMember(number, each)).members for number, each in enumerate(statuses)]
        command = ["top", "--interval", "0.1", "--members", "|".join([*found, GONE]), *arguments]
        return CliRunner(env={"COLUMNS": str(width)}).invoke(build_app(["top"]), command)


def cluster() -> list[dict[int, BaseModel]]:
    return [{STATUS_STREAM_ID: each, INSPECTION_STREAM_ID: busy_sessions()} for each in (LEADER, FOLLOWER)]


def test_one_frame_has_the_members_and_the_busiest_sessions_at_80_columns() -> None:
    result = run(*cluster())

    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    assert has_facts(result.stdout, "leader 0", "2 of 5,000 sessions")
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["id"] == ["id", "role", "state", "term", "lag", "log/s", "messages/s", "sync", "p99", "loop", "errors"]
    assert rows["0"][:9] == ["0", "LEADER", "LEADER", "3", "0", "0", "51,234", "205.0", "ms"]
    assert rows["1"][:8] == ["1", "FOLLOWER", "FOLLOWER", "3", "976.6K", "0", "-", "-"]
    assert rows["7"][:4] == ["7", "-", "refused", "-"]
    assert rows["4"] == ["4", "51,000", "4.7M", "10.0.0.9", "alice", "batch-job-7"]
    assert rows["5"] == ["5", "-", "-", "-", "alice", "-"]


def test_json_has_the_same_frame() -> None:
    frame = json.loads(run(*cluster(), arguments=("--once", "-o", "json", "--sessions", "0")).stdout)

    assert (frame["report"]["leader_member_id"], frame["log_bytes_per_s"]) == (0, {"0": 0.0, "1": 0.0})
    assert (frame["sessions"], frame["session_count"]) == ([], None)


def test_a_cluster_that_does_not_answer_is_told_by_the_status() -> None:
    result = run()

    assert result.exit_code == EXIT_UNREACHABLE
    assert has_facts(result.stderr, "no member answers")


def test_rates_are_of_members_whose_process_is_the_same() -> None:
    before = make_report([answered(LEADER), answered(FOLLOWER)], asked_at_ms=1_000)
    grown = LEADER.model_copy(update={"append_position": LEADER.append_position + 3_000})
    after = make_report([answered(grown), answered(FOLLOWER.model_copy(update={"pid": 1}))], asked_at_ms=3_000)

    assert find_log_rates(before, after) == {0: 1_500.0}


@pytest.mark.parametrize("key", [b"q", b"xxQ"])
async def test_a_key_ends_it_and_the_terminal_is_as_before(key: bytes) -> None:
    controller, terminal = pty.openpty()
    try:
        before, end = termios.tcgetattr(terminal), asyncio.Event()
        with ended_by_key(terminal, end):
            assert not termios.tcgetattr(terminal)[3] & termios.ECHO
            os.write(controller, b"a")
            os.write(controller, key)
            async with within(5.0):
                await end.wait()
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(controller)
        os.close(terminal)


async def test_what_is_no_terminal_is_not_read() -> None:
    reader, writer = os.pipe()
    try:
        with ended_by_key(reader, asyncio.Event()):
            os.write(writer, b"q")
        assert os.read(reader, 10) == b"q"
    finally:
        os.close(reader)
        os.close(writer)
