"""`trimaran config compare`: the settings in which members that run differ."""

from __future__ import annotations

import json

from tests.facts import has_facts
from tests.unit.cluster.cli.fake_member import FakeMember
from tests.unit.cluster.cli.test_member_log import member, run
from tests.unit.cluster.cli.test_operations import GONE
from trimaran.archive.tool.output import EXIT_UNREACHABLE

SAME = {"term_length_bytes": "64MiB", "groups": "1"}


def asked(*members: FakeMember, output: str = "table") -> tuple[int, str, str]:
    result = run("config compare", "|".join([*(each.members for each in members), GONE]), "-o", output)
    return result.exit_code, result.stdout, result.stderr


def test_settings_that_differ_are_shown_with_the_value_of_each_member() -> None:
    with (
        member(0, settings=SAME | {"session_limit": "10000"}) as zero,
        member(1, settings=SAME | {"session_limit": "200"}) as one,
        member(2, settings=SAME | {"session_limit": "10000", "newer": "true"}) as two,
    ):
        status, table, errors = asked(zero, one, two)
        _, rows, _ = asked(zero, one, two, output="json")

    heading, *lines = [line for line in table.splitlines() if line.strip(" ─")]
    assert status == 0
    assert heading.split() == ["setting", "member", "0", "member", "1", "member", "2"]
    assert [line.split() for line in lines] == [["session_limit", "10000", "200", "10000"], ["newer", "-", "-", "true"]]
    assert has_facts(errors, "member 7: refused:")
    assert json.loads(rows)[0] == {"setting": "session_limit", "values": {"0": "10000", "1": "200", "2": "10000"}}


def test_members_with_the_same_settings_do_not_differ() -> None:
    with member(0, settings=SAME) as zero, member(1, settings=SAME) as one:
        status, table, _ = asked(zero, one)

    assert (status, has_facts(table, "no setting differs", "2 members")) == (0, True)


def test_without_an_answer_the_command_says_why() -> None:
    status, table, errors = asked()

    assert (status, table) == (EXIT_UNREACHABLE, "")
    assert has_facts(errors, "member 7: refused:")
