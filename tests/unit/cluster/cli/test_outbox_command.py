"""`trimaran outbox` of a cluster with groups: all of them are asked, but a key is of one group."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from trimaran.archive.tool.output import EXIT_UNREACHABLE
from trimaran.cluster.cli.outbox import app
from trimaran.service_api.errors import ConfigurationError

NOBODY = ["--members", "0=127.0.0.1:1", "--groups", "2", "--timeout", "0.1"]


@pytest.mark.parametrize("arguments", [["list"], ["retry", "--all"], ["drop", "--all"]])
def test_every_group_is_asked_also_after_one_that_does_not_answer(arguments: list[str]) -> None:
    """Each error names its group, and the port that was tried is the group's own."""
    ended = CliRunner().invoke(app, [*arguments, *NOBODY])

    assert ended.exit_code == EXIT_UNREACHABLE
    assert ended.stdout == "group 0 of 2\n\ngroup 1 of 2\n"
    assert [line.partition(" no ")[0] for line in ended.stderr.splitlines()] == [
        "trimaran: group 0 of 2:",
        "trimaran: group 1 of 2:",
    ]


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_a_key_needs_the_group_that_gave_it(command: str) -> None:
    """Two groups may have given the same key."""
    ended = CliRunner().invoke(app, [command, "1472-0", *NOBODY])

    assert isinstance(ended.exception, ConfigurationError)
    assert "give --group, from 0 to 1" in str(ended.exception)
