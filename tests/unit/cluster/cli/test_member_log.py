"""`trimaran errors` and `member-log`: what members that run say of themselves, of whom, and who does not answer."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.test_operations import GONE, answer
from trimaran.archive.tool.output import EXIT_UNREACHABLE, EXIT_USAGE
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.diagnosis import Diagnosis, ErrorRow, LogLineRow
from trimaran.cluster.documents.operations import Operation
from trimaran.service_api import ConfigurationError
from trimaran.service_api.types import DIAGNOSIS_STREAM_ID, OPERATION_STREAM_ID

T0 = 1_700_000_000_000


def run(command: str, members: str, *arguments: str) -> Result:
    words = command.split()
    return CliRunner(env={"COLUMNS": "200"}).invoke(build_app(words), [*words, "--members", members, *arguments])


def error_row(event: str, last_ms: int) -> ErrorRow:
    return ErrorRow(
        count=2,
        first_ms=T0,
        last_ms=last_ms,
        level="error",
        event=event,
        kind="ValueError",
        place="quota.py:31 Quota.on_request",
        message="log_position=96",
        trace="Traceback",
    )


def line_row(event: str, time_ms: int, **fields: str) -> LogLineRow:
    return LogLineRow(time_ms=time_ms, level="info", event=event, fields=fields)


def member(member_id: int, **parts: object) -> FakeMember:
    document = Diagnosis.model_validate({"answered_by": member_id, **parts})
    return FakeMember(member_id, {DIAGNOSIS_STREAM_ID: document})


def test_errors_of_every_member_that_answers_are_shown() -> None:
    with (
        member(0, errors=[error_row("service.failed", T0 + 1)]) as zero,
        member(1, errors=[error_row("sync.slow", T0 + 2)]) as one,
    ):
        members = f"{zero.members}|{one.members}|{GONE}"
        table, rows = run("errors", members), run("errors", members, "-o", "json")
        alone = run("errors", members, "--member", "1", "-o", "jsonl")

    assert table.exit_code == 0
    assert has_facts(table.stdout, "member 0\n", "service.failed ValueError", "member 1\n", "sync.slow")
    assert has_facts(table.stderr, "member 7: refused:")
    assert [(row["member_id"], row["event"], row["count"]) for row in json.loads(rows.stdout)] == [
        (0, "service.failed", 2),
        (1, "sync.slow", 2),
    ]
    assert [json.loads(line)["member_id"] for line in alone.stdout.splitlines()] == [1]


def test_without_an_answer_the_command_says_why() -> None:
    result = run("errors", GONE)

    assert (result.exit_code, result.stdout) == (EXIT_UNREACHABLE, "")
    assert has_facts(result.stderr, "member 7: refused:")


def test_lines_of_all_members_are_in_the_order_of_their_time() -> None:
    with (
        member(0, lines=[line_row("a", T0 + 1), line_row("c", T0 + 30, reason="it's late\x1b")]) as zero,
        member(1, lines=[line_row("b", T0 + 20, term="3")]) as one,
    ):
        members = f"{zero.members}|{one.members}"
        table, rows = run("member-log tail", members), run("member-log tail", members, "-o", "jsonl")

    heading, *lines = table.stdout.splitlines()
    assert heading.split() == ["time", "member", "level", "line"]
    assert [line.split()[1:4] for line in lines] == [["0", "info", "a"], ["1", "info", "b"], ["0", "info", "c"]]
    assert "\x1b" not in table.stdout
    assert json.loads(rows.stdout.splitlines()[1]) == {
        "time": "2023-11-14T22:13:20.020Z",
        "member_id": 1,
        "level": "info",
        "event": "b",
        "fields": {"term": "3"},
    }


@pytest.mark.parametrize("text", ["yesterday", "12", "-5m"])
def test_a_time_that_is_none_is_the_users_mistake(text: str) -> None:
    result = run("errors", GONE, f"--since={text}")

    if text == "12":  # milliseconds
        assert result.exit_code == EXIT_UNREACHABLE
    else:
        assert isinstance(result.exception, ConfigurationError)


@pytest.mark.parametrize(("step", "status"), [(ActionStep.DONE, 0), (ActionStep.REFUSED, 12)])
def test_the_level_of_one_member_is_changed(step: ActionStep, status: int) -> None:
    told = answer(Operation.LOG_LEVEL, step, "it logs from debug on", position=None)
    with FakeMember(0, {OPERATION_STREAM_ID: told}) as zero:
        result = run("member-log level debug", zero.members, "--member", "0")

    assert result.exit_code == status, result.output
    assert has_facts(result.output, "log-level", "debug")


def test_the_level_is_one_members() -> None:
    assert run("member-log level debug", GONE).exit_code == EXIT_USAGE
    assert run("member-log level debug", GONE, "--member", "0").exit_code == EXIT_USAGE
