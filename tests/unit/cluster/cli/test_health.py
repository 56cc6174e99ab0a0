"""`trimaran health`: what counts as a problem, and which exit status comes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import answered, failed, member_status
from trimaran.archive.tool.output import EXIT_NO_LEADER, EXIT_UNHEALTHY, EXIT_UNREACHABLE
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.cli.health import HealthReport, diagnose
from trimaran.cluster.cli.shared.cluster_report import MemberReport, make_report
from trimaran.cluster.documents.health import ProblemKind
from trimaran.cluster.documents.query import Outcome
from trimaran.cluster.settings.health_limits import HealthLimits
from trimaran.service_api.documents.member_status import DifferingMember, MemberStatus
from trimaran.service_api.types import STATUS_STREAM_ID
from trimaran.service_api.wire.frame import encode_frame

LIMIT = 1000


def diagnosed(*answers: MemberReport, member_id: int | None = None) -> HealthReport:
    limits = HealthLimits(
        max_lag_bytes=LIMIT,
        max_stall_ms=10_000,
        max_log_after_snapshot_bytes=1 << 30,
        max_snapshot_age_ms=3_600_000,
        min_disk_free_percent=5,
        min_disk_time_ms=1_800_000,
        max_upgrade_ms=3_600_000,
    )
    return diagnose(make_report(answers, asked_at_ms=5), limits, member_id)


def problems(report: HealthReport) -> list[tuple[str, int | None]]:
    return [(problem.kind.value, problem.member_id) for problem in report.problems]


def three(*changed: MemberReport) -> list[MemberReport]:
    """Member 1 leads in term 3, and all is well but for those given."""
    by_id = {m.member_id: m for m in changed}
    well = [answered(member_status(i, state="LEADER" if i == 1 else "FOLLOWER")) for i in range(3)]
    return [by_id.get(member.member_id, member) for member in well]


def test_a_cluster_whose_members_are_all_in_one_term_is_healthy() -> None:
    report = diagnosed(*three())

    assert (report.is_healthy, report.exit_status, report.problems) == (True, 0, [])


@pytest.mark.parametrize(("member_id", "status"), [(0, 0), (1, 0), (2, EXIT_UNHEALTHY)])
def test_a_member_alone_has_no_problems_of_others(member_id: int, status: int) -> None:
    """A watchdog that restarted members because another one is down would take the cluster down."""
    report = diagnosed(*three(failed(2, Outcome.REFUSED)), member_id=member_id)

    assert (report.exit_status, report.is_healthy) == (status, status == 0)


def test_a_member_that_answers_is_well_where_no_other_does() -> None:
    alone = [answered(member_status(0, state="CANVASS")), failed(1, Outcome.REFUSED), failed(2, Outcome.REFUSED)]

    assert diagnosed(*alone, member_id=0).problems == []
    assert diagnosed(*alone, member_id=1).exit_status == EXIT_UNHEALTHY


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.ANSWERED])
def test_a_member_that_does_not_answer_makes_it_unhealthy(outcome: Outcome) -> None:
    report = diagnosed(*three(failed(2, outcome)))

    assert report.exit_status == EXIT_UNHEALTHY
    assert problems(report) == [("other_cluster" if outcome is Outcome.OTHER_CLUSTER else "no_answer", 2)]
    assert f"{outcome.value}: no process" in report.problems[0].detail


def test_members_that_do_not_hear_each_other_are_named_with_what_differs() -> None:
    other = DifferingMember(member_id=2, detail="service_count=1 here, 2 at member 2")
    deaf = member_status(0).model_copy(update={"differing_members": [other]})
    alone = deaf.model_copy(update={"member_id": 1, "state": "CANVASS", "leader_member_id": None})

    report = diagnosed(*three(answered(deaf)))
    leaderless = diagnosed(answered(alone), failed(2))

    assert (report.exit_status, problems(report)) == (EXIT_UNHEALTHY, [("differs", 0)])
    assert has_facts(report.problems[0].detail, "member 2: service_count=1", "2")
    assert problems(leaderless) == [("no_leader", None), ("differs", 1), ("no_answer", 2)]


def test_a_member_in_an_election_or_another_term_is_named() -> None:
    canvassing = answered(member_status(0, state="CANVASS", leader=None, election=None))
    late = answered(member_status(2, term=2, leader=0))

    report = diagnosed(*three(canvassing), failed(3), answered(member_status(4)))
    other = diagnosed(*three(late))

    assert (report.exit_status, problems(report)) == (10, [("not_in_term", 0), ("no_answer", 3)])
    assert report.problems[0].detail == "CANVASS in term 3"
    assert (other.exit_status, problems(other)) == (10, [("not_in_term", 2)])


def test_a_member_that_is_not_counted_yet_is_named_so_that_nobody_empties_another_directory() -> None:
    """One that is in an election says why it does not stand, there."""
    new = member_status(2).model_copy(update={"has_vote": False})
    canvassing = member_status(0, state="CANVASS", leader=None).model_copy(update={"has_vote": False})

    assert problems(diagnosed(*three(answered(new)))) == [("no_vote", 2)]
    assert problems(diagnosed(*three(answered(canvassing)))) == [("not_in_term", 0)]


def test_a_leader_without_a_majority_is_a_problem_of_the_cluster() -> None:
    report = diagnosed(*three(failed(0), failed(2)))

    assert report.exit_status == EXIT_UNHEALTHY
    assert problems(report) == [("no_quorum", None), ("no_answer", 0), ("no_answer", 2)]


def test_members_without_a_leader_are_eleven() -> None:
    lost = [answered(member_status(i, state="CANVASS", leader=None)) for i in range(2)]

    report = diagnosed(*lost, failed(2))

    assert report.exit_status == EXIT_NO_LEADER
    assert problems(report) == [("no_leader", None), ("no_answer", 2)]


def test_nobody_is_three() -> None:
    report = diagnosed(failed(0), failed(1), failed(2))

    assert report.exit_status == EXIT_UNREACHABLE
    assert {problem.kind for problem in report.problems} == {ProblemKind.NO_ANSWER}


@pytest.mark.parametrize(("lag", "expected"), [(LIMIT, []), (LIMIT + 1, [("behind", 2)])])
def test_a_member_may_be_behind_by_so_much(lag: int, expected: Sequence[tuple[str, int]]) -> None:
    report = diagnosed(*three(answered(member_status(2, append=123_456 - lag))))

    assert problems(report) == expected


def test_a_service_that_is_behind_is_a_problem_too() -> None:
    status = member_status(2).model_copy(update={"delivered_position": 123_456 - LIMIT - 1})

    assert problems(diagnosed(*three(answered(status)))) == [("behind", 2)]


class Member(asyncio.Protocol):
    """Answers whatever it is sent with one status."""

    def __init__(self, status: MemberStatus) -> None:
        self.status = status

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(encode_frame(self.status.model_dump_json().encode(), stream_id=STATUS_STREAM_ID))
        transport.close()


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(["health"]), ["health", *arguments], catch_exceptions=False)
    return result.exit_code, result.stdout


async def test_the_command_asks_the_members_and_ends_with_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Member(member_status(1, state="LEADER")), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    alone = f"1,127.0.0.1:1,127.0.0.1:{port},127.0.0.1:2,127.0.0.1:3,127.0.0.1:4"
    with_another = f"{alone}|0,127.0.0.1:5,127.0.0.1:6,127.0.0.1:7,127.0.0.1:8,127.0.0.1:9"

    async with server:
        well = await asyncio.to_thread(run, "--members", alone)
        half = await asyncio.to_thread(run, "--members", with_another, "-o", "json")

    assert well == (0, "healthy: leader 1 in term 3, 1 of 1 members, commit 123,456\n")
    assert half[0] == 10
    assert [problem["kind"] for problem in json.loads(half[1])["problems"]] == ["no_quorum", "no_answer"]
