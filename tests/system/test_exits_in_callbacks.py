"""A service that ends the process or its task: never is its member alive and stuck."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.exiting import EXITS
from tests.waiting import within
from trimaran.benchmarks.rig.member_status import consensus_endpoint
from trimaran.client import ClusterClient, QueryRefusedError, RequestFailedError
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.service_api import ClusterError

pytestmark = pytest.mark.slow

WORDS = {
    "on_session_open": b"",
    "on_session_message": b"message",
    "on_request": b"anything",
    "on_timer_event": b"timer",
    "on_service_message": b"offer",
    "on_session_close": b"close",
    "on_start": b"",
    "on_role_change": b"",
    "on_new_leadership_term_event": b"",
}
"""What a client sends that brings each callback about; some come by themselves."""

OUTSIDE = ("on_start", "on_role_change")
"""Belong to no entry of the log."""

EXITING = [callback for callback in WORDS if callback not in OUTSIDE]
CASES = [
    *((callback, "KeyboardInterrupt") for callback in EXITING),
    *((callback, "SystemExit") for callback in OUTSIDE),
    *(("on_request", kind) for kind in EXITS if kind != "SystemExit"),
]
ALIVE = [(callback, kind) for callback in ("on_query", "on_take_snapshot") for kind in EXITS]


def service_of(callback: str, kind: str) -> str:
    return f"tests.system.exiting:{callback}_{kind}"


async def talk(cluster: SystemCluster, word: bytes) -> None:
    """Bring a callback about; the member ends meanwhile."""
    with suppress(ClusterError, OSError, TimeoutError):
        async with within(20), ClusterClient.connect(cluster.endpoints) as client:
            if word == b"message":
                await client.offer(b"message")
            if word and word != b"close":
                await client.request(word)


@pytest.mark.parametrize(("callback", "kind"), [*dict.fromkeys(CASES)])
async def test_a_member_whose_callback_ends_the_process_stops_and_says_where(
    data_dir: Path, callback: str, kind: str
) -> None:
    """Members stayed alive and stuck, and `trimaran health` said that all was well."""
    cluster = SystemCluster(data_dir, member_count=1, service=service_of(callback, kind))
    cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
    member = cluster.start(0)
    try:
        talking = asyncio.create_task(talk(cluster, WORDS[callback]))
        assert await member.wait_exit() == 1, member.process.log_tail()
        talking.cancel()
        said = member.process.log_tail()
        assert f"error={kind}" in said
        assert callback in said
        assert "Traceback" not in said
    finally:
        if member.process.is_running:
            member.kill()
        cluster.processes.group.stop()


@pytest.mark.parametrize("callback", EXITING)
async def test_an_exit_in_an_entry_is_an_error_of_that_entry(data_dir: Path, callback: str) -> None:
    """A request of one client ended every member, one after another."""
    async with SystemCluster(data_dir, member_count=1, service=service_of(callback, "SystemExit")) as cluster:
        await cluster.wait_for_leader()
        member = cluster.members[0]
        if callback == "on_request":
            async with ClusterClient.connect(cluster.endpoints) as client:
                with pytest.raises(RequestFailedError, match="SystemExit"):
                    await client.request(b"anything")
        else:
            await talk(cluster, WORDS[callback])
        await member.wait_for_event("service.failed", error="SystemExit()")
        async with ClusterClient.connect(cluster.endpoints) as client:
            await client.offer(b"still here")


@pytest.mark.parametrize(("callback", "kind"), ALIVE)
async def test_an_exit_where_nothing_is_replicated_costs_the_query_or_the_snapshot(
    data_dir: Path, callback: str, kind: str
) -> None:
    async with SystemCluster(data_dir, member_count=1, service=service_of(callback, kind)) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            if callback == "on_query":
                with pytest.raises(QueryRefusedError, match=kind):
                    await client.query(b"")
            else:
                endpoint = consensus_endpoint(cluster.processes, 0)
                *_, last = [step async for step in run_operation(endpoint, Operation.SNAPSHOT, 30.0)]
                assert last.step is ActionStep.FAILED
                assert kind in last.detail
            assert await client.request(b"anything") == b"done"


@pytest.mark.parametrize("kind", EXITS)
async def test_a_member_that_is_stopped_ends_whatever_its_last_callback_raises(data_dir: Path, kind: str) -> None:
    cluster = SystemCluster(data_dir, member_count=1, service=service_of("on_terminate", kind))
    cluster.processes.data_dir.mkdir(parents=True, exist_ok=True)
    member = cluster.start(0)
    try:
        await member.wait_for_event("node.started")
        member.terminate()
        assert await member.wait_exit() == 1
        assert f"error={kind}" in member.process.log_tail()
    finally:
        if member.process.is_running:
            member.kill()
        cluster.processes.group.stop()
