"""`--cluster-id`: each command that asks a cluster refuses another one by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
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


@asynccontextmanager
async def leader_of(cluster_id: str, member_id: int) -> AsyncIterator[int]:
    """A member that leads a cluster; gives the port of its consensus endpoint."""
    answer = member_status(member_id, state="LEADER").model_copy(update={"cluster_id": cluster_id})
    server = await asyncio.get_running_loop().create_server(lambda: Member(answer), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def endpoints_with(consensus_port: int) -> str:
    return f"127.0.0.1:1,127.0.0.1:{consensus_port},127.0.0.1:2,127.0.0.1:3,127.0.0.1:4"


async def test_members_of_two_clusters_are_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of the two would be changed depends on whose leader has the higher term."""
    monkeypatch.setenv("COLUMNS", "300")

    async with leader_of(THEIRS, 1) as one, leader_of(WANTED, 2) as other:
        members = f"1,{endpoints_with(one)}|2,{endpoints_with(other)}"
        status, said = await asyncio.to_thread(run, "suspend", "--members", members)

    assert status == EXIT_REFUSED
    assert f"cluster {THEIRS}: members [1]" in said
    assert f"cluster {WANTED}: members [2]" in said
    assert "correct --members" in said


async def test_a_member_of_another_cluster_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be dialled for ever, and never be promoted."""
    monkeypatch.setenv("COLUMNS", "300")

    async with leader_of(WANTED, 1) as ours, leader_of(THEIRS, 3) as other:
        members = f"1,{endpoints_with(ours)}"
        words = ("member", "add", "--id", "3", "--endpoint", endpoints_with(other))
        status, said = await asyncio.to_thread(run, *words, "--members", members)

    assert status == EXIT_REFUSED
    assert has_facts(said, f"127.0.0.1:{other}", f"{THEIRS}", f"{WANTED}")
    assert "--join" in said
