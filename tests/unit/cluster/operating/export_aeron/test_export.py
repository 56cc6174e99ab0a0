"""`trimaran archive export-aeron`: what it writes, what it refuses, and that the source stays as it is."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.unit.cluster.operating.export_aeron.hand_made_log import messages
from tests.unit.cluster.time_travel.recorded import DEADLINE_S, member
from tests.waiting import patient, within
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.client import ClientConfig, ClusterClient
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.time_travel import replay_service
from trimaran.service_api import (
    ClientSession,
    Cluster,
    ClusteredService,
    ConfigurationError,
    SnapshotImage,
    SnapshotPublication,
)
from trimaran.service_api.wire.request import REQUEST_BLOCK_LENGTH
from trimaran.service_api.wire.session import SessionMessageHeader

HERE = "tests.unit.cluster.operating.export_aeron.test_export"
IN_FLIGHT = 600
"""More replies than are certain to be kept: 8 KiB each at most, in terms of 64 KiB."""


class Chain(ClusteredService):
    """Its state is a chain over payloads and positions; a request does what a message does."""

    def __init__(self) -> None:
        self.digest = ""
        self.count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        self.cluster = cluster
        if snapshot is not None:
            (state,) = [json.loads(message) async for message in snapshot]
            self.digest, self.count = state

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(json.dumps([self.digest, self.count]).encode())

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        text = f"{self.digest} {payload.hex()} {self.cluster.log_position} {timestamp}"
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.count += 1

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.on_session_message(session, timestamp, payload)
        return b"%d" % self.count

    def on_timer_event(self, correlation_id: int, timestamp: int) -> None:
        self.count += 1000


class Timed(Chain):
    """Sets a timer that does not fire."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        super().on_session_message(session, timestamp, payload)
        self.cluster.schedule_timer(5, timestamp + 3_600_000)


async def _serve(directory: Path, talk: Any, *services: ClusteredService, **settings: Any) -> None:  # Any: a coroutine
    async with within(DEADLINE_S), member(directory, *services, **settings) as (node, endpoint):
        config = ClientConfig(endpoints=(endpoint,), connect_timeout_s=patient(DEADLINE_S))
        async with await ClusterClient.connect([], config=config) as client:
            await talk(node, client)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Chain]:
    """Requests and messages of many lengths, before and after a snapshot; replies are kept in it."""
    directory, service = tmp_path_factory.mktemp("export") / "node-0", Chain()

    async def talk(node: Any, client: ClusterClient) -> None:  # Any: the node is opaque here
        for index in range(120):
            payload = b"p" * (index * 29 % 300) if index % 40 else b"long" * 1000
            await client.request(payload)
            await client.offer(payload)
            if index == 60:
                await asyncio.gather(*(client.request(b"at once %d" % number) for number in range(50)))
                await node.take_snapshot()

    asyncio.run(_serve(directory, talk, service))
    return directory, service


def export(*arguments: str | Path) -> tuple[int, Any, str]:  # Any: JSON
    app = build_app(["archive"])
    result = CliRunner().invoke(app, ["archive", "export-aeron", *map(str, arguments), "-o", "json"])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return -1, None, str(result.exception)
    return result.exit_code, json.loads(result.stdout)[0] if result.stdout else None, result.stderr


def obstacle_of(directory: Path) -> str | None:
    result = CliRunner().invoke(build_app(["recovery-plan"]), ["recovery-plan", str(directory), "-o", "json"])
    assert result.exit_code == 0, result.output
    found: str | None = json.loads(result.stdout)["aeron_obstacle"]
    return found


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in _files(directory)}


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def test_the_export_has_the_same_state_without_a_request(recorded: tuple[Path, Chain], tmp_path: Path) -> None:
    directory, service = recorded
    before = contents(directory)

    status, document, said = export(directory, tmp_path / "out")

    assert (status, document["is_written"], document["problems"]) == (0, True, []), said
    assert (document["requests_as_messages"], document["requests_omitted"]) == (170, 0)
    log = LogFile.find(MemberDirectory.find(tmp_path / "out"))
    request = REQUEST_BLOCK_LENGTH.to_bytes(2, "little") + SessionMessageHeader.TEMPLATE_ID.to_bytes(2, "little")
    assert request not in {bytes(message.payload[:4]) for message in messages(log)}
    for snapshot in ("newest", "none"):
        replayed = replay_service(tmp_path / "out", f"{HERE}:Chain", snapshot=snapshot, bound="recorded")
        (state,) = replayed.services
        assert (vars(state)["digest"], vars(state)["count"]) == (service.digest, service.count)
    assert contents(directory) == before


def test_recovery_plan_says_which_directory_an_aeron_member_would_misread(
    recorded: tuple[Path, Chain], tmp_path: Path
) -> None:
    directory, _ = recorded
    export(directory, tmp_path / "out")

    found = obstacle_of(directory)

    assert found is not None
    assert "`trimaran archive export-aeron`" in found
    assert obstacle_of(tmp_path / "out") is None


def test_a_dry_run_writes_nothing_and_a_target_that_is_there_is_refused(
    recorded: tuple[Path, Chain], tmp_path: Path
) -> None:
    directory, _ = recorded
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_bytes(b"")

    dry_status, document, _ = export(directory, tmp_path / "out", "--dry-run")
    status, _, said = export(directory, tmp_path / "there")

    assert (dry_status, document["is_written"]) == (0, False)
    assert not (tmp_path / "out").exists()
    assert status == -1
    assert has_facts(said, "target", "already")


@pytest.mark.parametrize("with_snapshot", [True, False], ids=["a snapshot after", "no snapshot after"])
def test_where_nobody_can_tell_which_requests_ran_the_log_begins_at_the_next_snapshot(
    tmp_path: Path, with_snapshot: bool
) -> None:
    """Without one there is no directory that has the state, and the word says what to do."""
    service = Chain()

    async def talk(node: Any, client: ClusterClient) -> None:  # Any: the node is opaque here
        await asyncio.gather(*(client.request(b"at once %d" % number) for number in range(IN_FLIGHT)))
        if with_snapshot:
            await node.take_snapshot()
            await client.request(b"after")

    asyncio.run(_serve(tmp_path / "node-0", talk, service))

    status, document, said = export(tmp_path / "node-0", tmp_path / "out")

    if not with_snapshot:
        assert status == 10
        assert not (tmp_path / "out").exists()
        assert "lengths of replies" in said
        assert "`trimaran shutdown`" in said
        return
    (position,) = document["snapshot_positions"]
    assert (status, document["start_position"], document["requests_as_messages"]) == (0, position, 1)
    assert any("position=" in note for note in document["notes"])
    (state,) = replay_service(tmp_path / "out", f"{HERE}:Chain", bound="recorded").services
    assert (vars(state)["digest"], vars(state)["count"]) == (service.digest, service.count)


@pytest.mark.parametrize("is_shared", [True, False])
def test_timers_of_several_services_have_to_have_shared_ids(tmp_path: Path, is_shared: bool) -> None:
    """In Aeron each service is told of every timer, by the id in the log."""

    async def talk(node: Any, client: ClusterClient) -> None:  # Any: the node is opaque here
        await client.offer(b"one")
        await client.request(b"two")
        await node.take_snapshot()

    asyncio.run(_serve(tmp_path / "node-0", talk, Chain(), Timed(), shared_timer_ids=is_shared))

    status, document, said = export(tmp_path / "node-0", tmp_path / "out")

    assert status == (0 if is_shared else 10), said
    assert (obstacle_of(tmp_path / "node-0") is None) is is_shared
    assert is_shared or "shared_timer_ids=false" in document["problems"][0]


def test_a_log_in_aeron_s_own_messages_needs_no_export(tmp_path: Path) -> None:
    async def talk(node: Any, client: ClusterClient) -> None:  # Any: the node is opaque here
        await client.offer(b"one")

    asyncio.run(_serve(tmp_path / "node-0", talk, Chain(), aeron_messages_only=True))

    assert obstacle_of(tmp_path / "node-0") is None


async def test_several_services_in_aeron_s_own_messages_need_shared_timer_ids(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs shared_timer_ids=true"):
        async with member(tmp_path / "node-0", Chain(), Timed(), aeron_messages_only=True):
            pass
