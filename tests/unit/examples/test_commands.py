"""The commands that the examples tell their reader to run are commands that there are."""

from __future__ import annotations

import ast
import shlex

import pytest
from typer.main import get_command

from tests.places import ROOT
from trimaran.cluster.cli.app import build_app

COMMANDS = [
    line.partition("#")[0]
    for path in sorted((ROOT / "examples").glob("*.py"))
    for line in (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    if line.strip().startswith("trimaran ") and "..." not in line
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_an_example_is_taken(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    found = get_command(build_app([name])).commands[name]  # type: ignore[attr-defined]  # the root is a group

    context = found.make_context(name, arguments)

    assert context.params
