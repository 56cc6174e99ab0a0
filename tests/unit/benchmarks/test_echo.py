"""The echo load: real client processes against members that a test makes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.client.fake_member import FakeCluster, fake_cluster
from trimaran.benchmarks.rig.processes import ProcessError
from trimaran.benchmarks.scenarios.echo import EchoParameters, run
from trimaran.service_api.errors import ClusterTimeoutError

pytestmark = pytest.mark.usefixtures("processes_are_forked")


def against(cluster: FakeCluster, **values: object) -> EchoParameters:
    defaults: dict[str, object] = {"messages": 500, "warmup": 50, "inflight": 16, "time_limit_s": 60.0}
    endpoints = tuple(cluster.endpoints)
    return EchoParameters(**{**defaults, **values, "endpoints": endpoints})  # type: ignore[arg-type]  # by name


async def test_a_closed_loop_reports_every_message(tmp_path: Path) -> None:
    async with fake_cluster(leader=1) as cluster:
        report = await asyncio.to_thread(run, against(cluster, clients=2), directory=tmp_path)

    assert report["messages"] == 500
    assert 0 < report["p50_us"] <= report["p99_us"] <= report["max_us"]
    assert list(report["cpu_seconds_per_100k"]) == ["client-0", "client-1"]
    assert len(cluster.members[1].payloads) == 550


async def test_an_open_loop_keeps_its_rate_and_tells_its_own_lag(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        report = await asyncio.to_thread(run, against(cluster, messages=400, rate=2_000.0), directory=tmp_path)

    # 400 messages, 0.5 ms apart: the last is due after 199.5 ms.
    assert report["duration_s"] >= 0.1995
    assert report["send_lag"]["max_us"] <= report["max_us"]


async def test_a_run_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        cluster.members[0].is_echoing = False

        with pytest.raises(ClusterTimeoutError):
            await asyncio.to_thread(run, against(cluster, time_limit_s=2.0), directory=tmp_path)

        await cluster.until(lambda: not any(member.connections for member in cluster.members))


async def test_a_leader_that_changes_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    async def run_until_failed(cluster: FakeCluster) -> None:
        with pytest.raises(ProcessError, match="leader changed"):
            await asyncio.to_thread(run, against(cluster), directory=tmp_path)

    async with fake_cluster() as cluster:
        cluster.members[0].is_echoing = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_until_failed(cluster))
            await cluster.until(lambda: bool(cluster.members[0].payloads))
            await cluster.until(lambda: bool(cluster.members[1].keep_alives))
            await cluster.elect(1)


def test_many_sessions_have_as_many_client_processes_as_may_open_the_files() -> None:
    counts = [EchoParameters(sessions=n, inflight=n).client_count for n in (1, 5_000, 10_000)]

    assert counts == [1, 1, 2]
