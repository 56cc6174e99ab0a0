"""Commands that read one log say how to name a group's directory, where they are given that of a member with groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trimaran.archive.log.group_directories import settle_group_count
from trimaran.cluster.cli.app import build_app
from trimaran.service_api.errors import ConfigurationError

COMMANDS = [
    "archive capacity",
    "archive checksum",
    "archive compact",
    "archive delete-orphaned-segments",
    "archive describe",
    "archive dump",
    "archive grep",
    "archive grep --log",
    "archive mark-invalid",
    "archive serve --port 0",
    "archive tail",
    "archive verify",
    "errors",
    "recovery-plan",
    "recording-log",
    "replay --service x:Y",
    "reset-candidate-term",
    "snapshot describe",
    "snapshot list",
    "snapshot verify",
    "state",
]


def run(command: str, directory: Path) -> Result:
    name, *arguments = command.split()
    return CliRunner(env={"COLUMNS": "400"}).invoke(build_app([name]), [name, *arguments, str(directory)])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_a_member_with_groups_names_a_group(tmp_path: Path, command: str) -> None:
    """Nothing is made in the directory, either."""
    settle_group_count(tmp_path, 2)

    result = run(command, tmp_path)

    said = f"{tmp_path} holds 2 groups, each with a log of its own: name one of {tmp_path}/group-0 to group-1"
    assert said in (str(result.exception) if isinstance(result.exception, ConfigurationError) else result.output)
    assert result.exit_code != 0
    assert [file.name for file in tmp_path.iterdir()] == ["groups.json"]
