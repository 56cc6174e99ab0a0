"""Every command has the same opinion about who leads, also in the moments in which members claim different things."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from typer.testing import CliRunner, Result

from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.shared.test_inspection import members_view
from trimaran.archive.tool.output import EXIT_NO_LEADER, EXIT_UNHEALTHY
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.operations import Operation, OperationProgress
from trimaran.service_api.types import INSPECTION_STREAM_ID, OPERATION_STREAM_ID, STATUS_STREAM_ID

ASKING = ("status", "health", "member list", "suspend", "snapshot take")


def fake(member_id: int, state: str, leader: int, term: int) -> FakeMember:
    """A member that answers everything with the same opinion of its state and its term."""
    status = member_status(member_id, state=state, leader=leader, term=term)
    done = OperationProgress(
        operation=Operation.SUSPEND,
        step=ActionStep.DONE,
        member_id=member_id,
        log_position=123_456,
        detail="suspended",
        is_final=True,
    )
    view = members_view(member_id, status.role, term, state)
    return FakeMember(member_id, {STATUS_STREAM_ID: status, OPERATION_STREAM_ID: done, INSPECTION_STREAM_ID: view})


@pytest.fixture
def replaying() -> Iterator[str]:
    """Member 1 has won the election of term 4, and replays its log: it has the role, and does not lead yet."""
    with ExitStack() as stack:
        states = ("FOLLOWER_READY", "LEADER_REPLAY", "FOLLOWER_READY")
        cluster = [stack.enter_context(fake(i, state, 1, 4)) for i, state in enumerate(states)]
        yield "|".join(member.members for member in cluster)


@pytest.fixture
def two_leaders() -> Iterator[str]:
    """Member 0 was cut off and still claims term 3; member 1 leads term 4."""
    with ExitStack() as stack:
        claims = ((0, "LEADER", 0, 3), (1, "LEADER", 1, 4), (2, "FOLLOWER", 1, 4))
        cluster = [stack.enter_context(fake(*claim)) for claim in claims]
        yield "|".join(member.members for member in cluster)


def run(command: str, members: str, *arguments: str) -> Result:
    words = command.split()
    return CliRunner(env={"COLUMNS": "200"}).invoke(
        build_app(words), [*words, "--members", members, "--timeout", "20", *arguments]
    )


@pytest.mark.parametrize("command", ASKING)
def test_the_winner_of_an_election_does_not_lead_while_it_replays(command: str, replaying: str) -> None:
    result = run(command, replaying)

    assert result.exit_code == EXIT_NO_LEADER, result.output
    assert "no leader" in result.output


def test_of_two_claimed_leaders_the_one_of_the_higher_term_leads(two_leaders: str) -> None:
    status = run("status", two_leaders, "-o", "json")
    health = run("health", two_leaders, "-o", "json")
    members = run("member list", two_leaders, "-o", "json")
    suspend = run("suspend", two_leaders, "-o", "json")

    assert (status.exit_code, json.loads(status.stdout)["leader_member_id"]) == (0, 1)
    assert health.exit_code == EXIT_UNHEALTHY
    assert [(p["kind"], p["member_id"]) for p in json.loads(health.stdout)["problems"]] == [("not_in_term", 0)]
    assert (members.exit_code, json.loads(members.stdout)["answered_by"]) == (0, 1)
    assert (suspend.exit_code, json.loads(suspend.stdout)["leader_member_id"]) == (0, 1)
