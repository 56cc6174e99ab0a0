"""`trimaran member list`, `sessions` and `timers`: whose answer is shown, how, and how the command ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.core.rosters import roster_at
from tests.unit.cluster.runtime.links.linked import SETTINGS
from trimaran.archive.tool.output import EXIT_NO_LEADER, EXIT_UNREACHABLE, EXIT_USAGE
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.documents.inspection import (
    InspectionRefusal,
    InspectionRequest,
    MembersView,
    MemberView,
    SessionsView,
    SessionView,
    TimersView,
    TimerView,
    Topic,
    View,
)
from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.cluster.runtime.links.document_server import DocumentRow, answering_once
from trimaran.cluster.runtime.links.member_links import MemberLinks
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.documents.document import RoleName
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import ConnectionGate
from trimaran.service_api.net.transport import SOCKETS
from trimaran.service_api.types import INSPECTION_STREAM_ID

Answer = Callable[[InspectionRequest], bytes]


def members_view(
    answered_by: int, role: RoleName = "LEADER", term: int | None = 3, state: str | None = None
) -> MembersView:
    return MembersView(
        answered_by=answered_by,
        role=role,
        state=state or role,
        leader_member_id=answered_by if role == "LEADER" else None,
        leadership_term_id=term,
        candidate_term_id=term,
        commit_position=123_456,
        log_recording_id=0,
        total_count=1,
        members=[
            MemberView(
                member_id=answered_by,
                is_leader=role == "LEADER",
                is_connected=True,
                append_position=123_456,
                lag_bytes=0,
                silent_s=None,
                is_catching_up=False,
                ingress=f"10.0.0.{answered_by}:ingress",
                consensus=f"10.0.0.{answered_by}:consensus",
                log=f"10.0.0.{answered_by}:log",
                catchup=f"10.0.0.{answered_by}:catchup",
                archive=f"10.0.0.{answered_by}:9004",
            )
        ],
    )


def sessions_view(*ids: int, total: int | None = None) -> SessionsView:
    return SessionsView(
        answered_by=0,
        role="LEADER",
        state="LEADER",
        leadership_term_id=3,
        delivered_position=640,
        total_count=len(ids) if total is None else total,
        sessions=[
            SessionView(
                cluster_session_id=i,
                principal="alice",
                state="open",
                opened_log_position=96,
                idle_s=1.5,
                is_connected=True,
            )
            for i in ids
        ],
    )


def timers_view() -> TimersView:
    timers = [
        TimerView(correlation_id=9, service_id=0, deadline=900, due_in_s=-0.1),
        TimerView(correlation_id=8, service_id=1, deadline=3500, due_in_s=2.5),
    ]
    return TimersView(
        answered_by=0,
        role="LEADER",
        state="LEADER",
        leadership_term_id=3,
        cluster_time=1000,
        total_count=2,
        timers=timers,
    )


def gives(view: View | InspectionRefusal) -> Answer:
    return lambda request: view.model_dump_json().encode()


@asynccontextmanager
async def members_that_answer(**answers: Answer | None) -> AsyncIterator[str]:
    """Real consensus endpoints with fake answers, None for a member that is down; the value is for --members."""
    parts = []
    async with AsyncExitStack() as stack:
        scope = await stack.enter_async_context(ActivityScope())
        for name, answer in answers.items():
            member_id, consensus = int(name[1:]), f"127.0.0.1:{find_base_ports(1)[0]}"
            parts.append(f"{member_id},127.0.0.1:1,{consensus},127.0.0.1:3,127.0.0.1:4,127.0.0.1:5")
            if answer is None:
                continue

            async def reply(request: bytes, answer: Answer = answer) -> bytes:
                return answer(InspectionRequest.model_validate_json(request))

            links = MemberLinks(
                SETTINGS.model_copy(update={"member_id": member_id}),
                roster_at(member_id, {}),
                post=lambda event: None,
                find_seeded=lambda: None,
                make_status=lambda: b"",
                documents={INSPECTION_STREAM_ID: DocumentRow(answering_once(reply), lambda _: Permission.INSPECTION)},
                audit=AuditTrail(info=print, warn=print, monotonic_ns=lambda: 0),
            )
            await links.start(SOCKETS, Endpoint.parse(consensus), scope, gate=ConnectionGate())
            stack.callback(links.close)
        yield "|".join(parts)


async def run(command: str, *arguments: str) -> Result:
    def invoke() -> Result:
        return CliRunner(env={"COLUMNS": "160"}).invoke(
            build_app(command.split()), [*command.split(), "--timeout", "20", *arguments], catch_exceptions=False
        )

    return await asyncio.to_thread(invoke)


async def test_the_leader_of_the_highest_term_is_shown() -> None:
    """A leader that was cut off still takes itself for one."""
    async with members_that_answer(
        m0=gives(members_view(0, term=3)), m1=gives(members_view(1, term=4)), m2=gives(members_view(2, "FOLLOWER", 5))
    ) as members:
        result = await run("member list", "--members", members, "-o", "json")

    assert (result.exit_code, json.loads(result.stdout)["answered_by"]) == (0, 1)


async def test_without_a_leader_somebody_is_shown_and_the_status_says_so() -> None:
    async with members_that_answer(m0=gives(members_view(0, "FOLLOWER", 3)), m1=None) as members:
        result = await run("member list", "--members", members)
        asked = await run("member list", "--members", members, "--ask", "0")

    assert result.exit_code == EXIT_NO_LEADER
    assert has_facts(result.stderr, "no leader:", "member 0", "FOLLOWER\n")
    assert has_facts(result.stdout, "member 0, FOLLOWER", "term 3")
    assert (asked.exit_code, asked.stdout) == (0, result.stdout)


async def test_nobody_is_unreachable_and_each_member_has_its_reason() -> None:
    async with members_that_answer(m0=None, m1=None) as members:
        result = await run("sessions", "--members", members)

    assert (result.exit_code, result.stdout) == (EXIT_UNREACHABLE, "")
    assert result.stderr.count("refused: no process") == 2


async def test_a_member_that_is_another_one_is_not_shown() -> None:
    async with members_that_answer(m0=gives(members_view(1))) as members:
        result = await run("member list", "--members", members)

    assert result.exit_code == EXIT_UNREACHABLE
    assert "as member 1" in result.stderr


async def test_members_are_a_table() -> None:
    async with members_that_answer(m0=gives(members_view(0))) as members:
        result = await run("member list", "--members", members)

    heading, _, columns, row = [line.rstrip() for line in result.stdout.splitlines()]
    assert has_facts(heading, "1 member, leader 0,", "123,456;", "member 0, LEADER", "term 3")
    assert columns.split() == ["member", "role", "link", "append", "lag", "heard", "ingress", "archive"]
    assert row.split() == ["0", "LEADER", "self", "123,456", "0", "-", "10.0.0.0:ingress", "10.0.0.0:9004"]


async def test_sessions_say_that_there_are_more() -> None:
    async with members_that_answer(m0=gives(sessions_view(4, 5, total=5_000))) as members:
        result = await run("sessions", "--members", members)

    assert has_facts(result.stdout, "2 of 5,000 sessions", "--offset, --limit", "640;", "member 0")
    assert [line.split()[0] for line in result.stdout.splitlines()[3:]] == ["4", "5"]


async def test_the_window_is_what_was_asked_for() -> None:
    seen: list[InspectionRequest] = []

    def answer(request: InspectionRequest) -> bytes:
        seen.append(request)
        return sessions_view().model_dump_json().encode()

    async with members_that_answer(m0=answer) as members:
        await run("sessions", "--members", members, "--offset", "200", "--limit", "50")

    assert seen == [InspectionRequest(topic=Topic.SESSIONS, offset=200, limit=50)]


async def test_jsonl_is_a_row_a_line() -> None:
    async with members_that_answer(m0=gives(sessions_view(4, 5))) as members:
        result = await run("sessions", "--members", members, "-o", "jsonl")

    assert [json.loads(line)["cluster_session_id"] for line in result.stdout.splitlines()] == [4, 5]


async def test_timers_that_are_due_say_since_when() -> None:
    async with members_that_answer(m0=gives(timers_view())) as members:
        result = await run("timers", "--members", members)

    rows = [line.split() for line in result.stdout.splitlines()[3:]]
    assert rows == [["9", "0", "900", "100", "ms", "ago"], ["8", "1", "3500", "2.5", "s"]]


async def test_a_refusal_is_shown_as_what_it_is() -> None:
    refusal = InspectionRefusal(refused="not a request: errors=1")
    async with members_that_answer(m0=gives(refusal)) as members:
        result = await run("timers", "--members", members)

    assert result.exit_code == EXIT_UNREACHABLE
    assert has_facts(result.stderr, "refused:", "errors=1")


async def test_an_answer_about_something_else_is_invalid() -> None:
    async with members_that_answer(m0=gives(timers_view())) as members:
        result = await run("sessions", "--members", members)

    assert result.exit_code == EXIT_UNREACHABLE
    assert has_facts(result.stderr, "invalid:", "delivered_position: ")


@pytest.mark.parametrize("arguments", [("--limit", "0"), ("--limit", "1001"), ("--offset", "-1"), ("--watch", "0")])
async def test_wrong_usage_is_two(arguments: tuple[str, str]) -> None:
    result = await run("timers", "--members", "0=127.0.0.1:9000", *arguments)

    assert result.exit_code == EXIT_USAGE
