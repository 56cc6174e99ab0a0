"""`--cluster-id`: each command that asks a cluster refuses another one by name."""

from __future__ import annotations

import asyncio

import pytest
from typer.testing import CliRunner

from tests.unit.cluster.cli.answers import member_status
from tests.unit.cluster.cli.test_health import Member
from trimaran.archive.tool.output import EXIT_REFUSED, EXIT_UNREACHABLE
from trimaran.cluster.cli.app import build_app

THEIRS, WANTED = "3f9a0c12d45e77b1", "51e21e7bd9fa3e06"
SAID = f"another cluster: cluster_id={THEIRS} expected={WANTED}"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(list(arguments)), list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["status"], EXIT_UNREACHABLE),
        (["health"], EXIT_UNREACHABLE),
        (["snapshot", "take"], EXIT_REFUSED),
        (["suspend"], EXIT_REFUSED),
        (["shutdown"], EXIT_REFUSED),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
async def test_a_command_that_demands_a_cluster_refuses_another_by_name(
    command: list[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Member(member_status(1, state="LEADER")), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    members = f"1,127.0.0.1:1,127.0.0.1:{port},127.0.0.1:2,127.0.0.1:3,127.0.0.1:4"

    async with server:
        refused = await asyncio.to_thread(run, *command, "--members", members, "--cluster-id", WANTED)
        bad = await asyncio.to_thread(run, *command, "--members", members, "--cluster-id", "mine")

    assert refused[0] == status
    assert SAID in refused[1]
    assert isinstance(bad[0], int)
    assert bad[0] != 0
