"""The help of every command in a narrow terminal: a screen at most, its own options first, nothing cut."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from trimaran.cluster.cli.app import COMMANDS, build_app
from trimaran.cluster.settings.config import TLS_PREFIX, NodeConfig
from trimaran.cluster.settings.config_layers import flag_name
from trimaran.cluster.settings.fields import HEADINGS

SCREEN_LINE_COUNT: Final = 45


def help_of(arguments: list[str], flag: str = "--help") -> str:
    result = CliRunner().invoke(build_app(arguments), [*arguments, flag], env={"COLUMNS": "80"})
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


def command_of(arguments: list[str]) -> Any:  # of click, or of typer's copy of it
    found: Any = get_command(build_app(arguments))
    for name in arguments:
        found = found.commands[name]
    return found


@pytest.mark.parametrize("arguments", find_commands(), ids=" ".join)
def test_the_help_of_a_command_fits_a_screen_and_cuts_nothing_at_80_columns(arguments: list[str]) -> None:
    """What is left out stands in a panel that `--help-all` shows."""
    text = help_of(arguments)
    all_text = help_of(arguments, "--help-all") if "--help-all" in text else text

    assert max(map(len, all_text.splitlines())) <= 80
    assert "…" not in all_text
    assert len(text.splitlines()) <= SCREEN_LINE_COUNT
    words = set(re.findall(r"-[-\w]*", all_text))
    parameters = command_of(arguments).params
    options = [name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)]
    assert [name for name in options if name.startswith("-") and name not in words] == []


@pytest.mark.parametrize("arguments", find_commands(), ids=" ".join)
def test_the_options_of_many_commands_stand_in_the_last_panel(arguments: list[str]) -> None:
    own, shared = help_of(arguments).split("\nOptions of many commands:\n") if len(arguments) > 1 else ("", "--help")

    assert "--help" in shared
    for option in ("--config", "--output", "--groups", "--user"):
        assert f"{option} " not in own


def test_what_a_file_or_the_environment_may_give_is_not_said_to_be_required() -> None:
    for arguments in (["status"], ["kv", "put"], ["node"]):
        assert "--members MEMBERS" in help_of(arguments)
        assert "[required]" not in help_of(arguments).split("\nOptions", 1)[1]


def test_a_client_knows_every_setting_of_tls() -> None:
    text = help_of(["status"])

    assert all(flag_name(name) in text for name in NodeConfig.model_fields if name.startswith(TLS_PREFIX))


def test_the_whole_help_of_a_node_shows_every_setting_with_its_default_under_its_heading() -> None:
    text = help_of(["node"], "--help-all")

    for heading in HEADINGS:
        assert f"\nSettings: {heading}:\n" in text
    words = " ".join(text.split())
    for name, field in NodeConfig.model_fields.items():
        rest = words.split(f"{flag_name(name)} ", 1)[1]
        if not field.is_required() and field.default not in ("", 0):
            assert "[default: " in re.split(r" --(?!no-)[a-z]", rest, maxsplit=1)[0], name


def test_the_list_of_commands_names_each_with_its_whole_line() -> None:
    text = " ".join(help_of([]).split())

    for name, command in COMMANDS.items():
        assert f"{name} {command.help}" in text
