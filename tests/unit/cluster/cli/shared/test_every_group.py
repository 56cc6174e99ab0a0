"""Commands over the groups of a cluster: one after the other, or the one that is named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from trimaran.archive.tool.output import OutputFormat, fail, print_line, print_object, print_rows
from trimaran.cluster.cli.shared.every_group import of_every_group
from trimaran.cluster.cli.shared.setting_flags import load_consensus_endpoints
from trimaran.service_api.errors import ConfigurationError

MEMBERS = "0=127.0.0.1:9000,1=127.0.0.1:9010"


class Command:
    """A command that notes which members it would ask, and ends with a status for each group."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = statuses
        self.asked: list[dict[int, str]] = []
        self.run = of_every_group(self._run)

    def _run(self, **values: Any) -> None:
        self.asked.append(
            load_consensus_endpoints({n: v for n, v in values.items() if n not in ("output", "watch_every", "follow")})
        )
        if self.statuses[len(self.asked) - 1]:
            raise typer.Exit(self.statuses[len(self.asked) - 1])


def settings(**changes: object) -> dict[str, object]:
    return {"members": MEMBERS, "cluster_id": None, "groups": None, "group": None, "config_file": None, **changes}


def test_a_cluster_without_groups_is_asked_once_and_nothing_is_added(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the same as before, and ends with the same status."""
    command = Command(0)

    command.run(**settings())

    assert command.asked == [{0: "127.0.0.1:9001", 1: "127.0.0.1:9011"}]
    assert capsys.readouterr().out == ""


def test_every_group_is_asked_and_the_first_bad_status_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those after a group that cannot be reached."""
    command = Command(0, 11, 3)

    with pytest.raises(typer.Exit) as ended:
        command.run(**settings(groups="3", output=OutputFormat.TABLE))

    assert ended.value.exit_code == 11
    assert [asked[1] for asked in command.asked] == ["127.0.0.1:9011", "127.0.0.1:9111", "127.0.0.1:9211"]
    assert capsys.readouterr().out == "group 0 of 3\n\ngroup 1 of 3\n\ngroup 2 of 3\n"


def test_objects_are_printed_without_lines_between(capsys: pytest.CaptureFixture[str]) -> None:
    """Each names its group."""
    command = Command(0, 0)

    command.run(**settings(groups="2", output=OutputFormat.JSONL))

    assert (len(command.asked), capsys.readouterr().out) == (2, "")


@pytest.mark.parametrize("group", [None, "1"])
def test_each_object_and_each_error_names_its_group(group: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those of a group that is asked alone."""

    @of_every_group
    def command(**values: Any) -> None:
        print_line({"member_id": 2})
        print_rows([{"member_id": 3}], OutputFormat.JSON)
        print_object({"member_id": 4}, OutputFormat.JSONL, lambda: "")
        fail("refused")

    with pytest.raises(typer.Exit):
        command(**settings(groups="2", group=group, output=OutputFormat.JSONL))

    printed = capsys.readouterr()
    wanted = ["0/2", "1/2"] if group is None else ["1/2"]
    assert re.findall(r'"group": "(.*)"', printed.out) == [each for each in wanted for _ in range(3)]
    assert printed.err.splitlines() == [f"trimaran: group {each[0]} of 2: refused" for each in wanted]


def test_without_groups_nothing_names_one(capsys: pytest.CaptureFixture[str]) -> None:
    """A cluster without groups prints what it always did."""

    @of_every_group
    def command(**values: Any) -> None:
        print_line({"member_id": 2})
        fail("refused")

    with pytest.raises(typer.Exit):
        command(**settings(output=OutputFormat.JSONL))

    assert capsys.readouterr() == ('{"member_id": 2}\n', "trimaran: refused\n")


def test_a_group_that_is_named_is_asked_alone(tmp_path: Path) -> None:
    """How many there are may be in the file."""
    file = tmp_path / "cluster.toml"
    file.write_text(f'members = "{MEMBERS}"\ngroups = 4\n')
    command = Command(0)

    command.run(**settings(members=None, config_file=str(file), group="2"))

    assert command.asked == [{0: "127.0.0.1:9201", 1: "127.0.0.1:9211"}]


@pytest.mark.parametrize("group", ["4", "-1", "x"])
def test_a_group_that_there_is_not_is_refused(group: str) -> None:
    """It names the bounds."""
    with pytest.raises(ConfigurationError, match=f"group='{group}' from --group: expected 0 to 3, for groups=4"):
        Command(0).run(**settings(groups="4", group=group))


def test_a_command_for_one_group_asks_for_it() -> None:
    """Such as `trimaran log skip`."""
    with pytest.raises(ConfigurationError, match=r"groups=4.*--group, from 0 to 3"):
        load_consensus_endpoints(settings(groups="4"))


@pytest.mark.parametrize(("endless", "flag"), [({"watch_every": 1.0}, "--watch"), ({"follow": True}, "--follow")])
def test_watching_is_for_one_group(endless: dict[str, object], flag: str) -> None:
    """It would never come to the second one."""
    with pytest.raises(ConfigurationError, match=f"{flag} of groups=2: give --group"):
        Command(0).run(**settings(groups="2", **endless))

    command = Command(0)
    command.run(**settings(groups="2", group="1", **endless))
    assert len(command.asked) == 1
