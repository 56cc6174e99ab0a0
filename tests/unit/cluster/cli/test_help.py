"""The help of every command in a narrow terminal: no option is cut, settings show their defaults."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trimaran.cluster.cli.app import COMMANDS, build_app
from trimaran.cluster.settings.config import NodeConfig
from trimaran.cluster.settings.config_layers import flag_name


def help_of(arguments: list[str], width: int = 80) -> str:
    result = CliRunner().invoke(build_app(arguments), [*arguments, "--help"], env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.output


def find_commands() -> list[list[str]]:
    """Every command, and every command of a group."""
    found: list[list[str]] = []
    for name in COMMANDS:
        group = get_command(build_app([name])).commands[name]  # type: ignore[attr-defined]  # the root is a group
        found.append([name])
        found += [[name, inner] for inner in getattr(group, "commands", {})]
    return found


@pytest.mark.parametrize("arguments", find_commands(), ids=" ".join)
def test_the_help_of_a_command_cuts_nothing_at_80_columns(arguments: list[str]) -> None:
    root = get_command(build_app(arguments))
    for name in arguments:
        root = root.commands[name]  # type: ignore[attr-defined]  # each but the last is a group
    text = help_of(arguments)

    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    words = set(re.findall(r"-[-\w]*", text))
    options = [name for parameter in root.params for name in (*parameter.opts, *parameter.secondary_opts)]
    assert [name for name in options if name.startswith("-") and name not in words] == []


def test_the_help_of_a_node_shows_the_default_of_every_setting() -> None:
    text = " ".join(help_of(["node"]).split())

    for name, field in NodeConfig.model_fields.items():
        rest = text.split(f"{flag_name(name)} ", 1)[1]
        if field.is_required():
            assert "[required]" in rest.split(" --", 1)[0]
        elif field.default not in ("", 0):
            assert "[default: " in re.split(r" --(?!no-)[a-z]", rest, maxsplit=1)[0], name


def test_the_list_of_commands_names_each_with_its_whole_line() -> None:
    text = " ".join(help_of([]).split())

    for name, command in COMMANDS.items():
        assert f"{name} {command.help}" in text
