"""Commands ask a member of a newer version: they show what they know of its answers.

The answers have fields at every level that this version does not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.shared.test_inspection import members_view, sessions_view
from tests.unit.service_api.documents.test_document import with_unknown_fields
from trimaran.archive.tool.output import EXIT_UNREACHABLE
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.operations import Operation, OperationProgress
from trimaran.service_api.types import INSPECTION_STREAM_ID, OPERATION_STREAM_ID, STATUS_STREAM_ID

STATUS = member_status(1, state="LEADER").model_copy(update={"version": "9.0.0"})
SUSPENDED = OperationProgress(
    operation=Operation.SUSPEND,
    step=ActionStep.DONE,
    member_id=1,
    log_position=123_456,
    detail="suspended",
    is_final=True,
)


class NewerMember(FakeMember):
    """A member whose documents have fields of a later version."""

    def __init__(self) -> None:
        self.schema_version = 1
        super().__init__(1, {STATUS_STREAM_ID: STATUS, OPERATION_STREAM_ID: SUSPENDED})

    def document(self, stream_id: int) -> dict[str, Any]:
        document: dict[str, Any] = with_unknown_fields(super().document(stream_id))
        return document | {"schema_version": self.schema_version}


@pytest.fixture
def newer() -> Iterator[NewerMember]:
    with NewerMember() as member:
        yield member


def run(member: NewerMember, command: str, *arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(
        build_app(command.split()), [*command.split(), "--members", member.members, "--timeout", "20", *arguments]
    )


def shown(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_status_shows_a_newer_member(newer: NewerMember) -> None:
    report = shown(run(newer, "status", "-o", "json"))

    assert report["has_quorum"]
    assert report["members"][0]["status"] == json.loads(STATUS.model_dump_json())


def test_health_counts_a_newer_member_as_healthy(newer: NewerMember) -> None:
    assert shown(run(newer, "health", "-o", "json"))["problems"] == []


def test_a_newer_leader_does_what_it_is_asked(newer: NewerMember) -> None:
    report = shown(run(newer, "suspend", "-o", "json"))

    assert (report["outcome"], report["log_position"], report["leader_member_id"]) == ("done", 123_456, 1)


@pytest.mark.parametrize("view", [members_view(1), sessions_view(4, 5).model_copy(update={"answered_by": 1})])
def test_lists_of_a_newer_member_are_shown(newer: NewerMember, view: Any) -> None:
    newer.answers = {INSPECTION_STREAM_ID: view}

    command = "member list" if view.TOPIC == "members" else view.TOPIC
    assert shown(run(newer, command, "-o", "json")) == json.loads(view.model_dump_json())


def test_a_member_that_is_too_new_is_shown_with_what_to_do(newer: NewerMember) -> None:
    newer.schema_version = 2

    result = run(newer, "status", "-o", "json")

    assert result.exit_code == EXIT_UNREACHABLE
    assert has_facts(
        json.loads(result.stdout)["members"][0]["detail"], "schema_version=2 expected=1:", "newer", "upgrade"
    )
