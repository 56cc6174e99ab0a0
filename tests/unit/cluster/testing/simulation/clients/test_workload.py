"""A workload and its history: against a real member on loopback, and against one that answers as a test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.unit.client.fake_member import DEADLINE_S, FakeCluster, fake_cluster
from tests.waiting import until, within
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client import ClientConfig
from trimaran.cluster.node.node import Node
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.workload import Workload, WorkloadSettings
from trimaran.cluster.testing.simulation.services.registers import Answer, AnswerStatus, Registers, Request

BUSY = WorkloadSettings(think_mean_s=0.0005, idle_rate=0.0, timer_delay_max_ms=20)


def make_workload(
    endpoints: list[str], history: History, *, number: int = 1, settings: WorkloadSettings = BUSY, seed: int = 1
) -> Workload:
    config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=0.5, close_timeout_s=0.2)
    return Workload(config, number, history=history, random=Random(seed), now_ns=time.monotonic_ns, settings=settings)


@asynccontextmanager
async def running(*workloads: Workload) -> AsyncIterator[None]:
    """Run workloads until the block has ended, then let them end."""
    async with within(3 * DEADLINE_S), asyncio.TaskGroup() as tasks:
        for workload in workloads:
            tasks.create_task(workload.run())
        yield
        for workload in workloads:
            workload.stop()


@asynccontextmanager
async def member(directory: Path) -> AsyncIterator[tuple[list[str], Registers]]:
    """Run the only member of a cluster in this process."""
    config = NodeConfig(
        member_id=0,
        members=parse_members(f"0=127.0.0.1:{find_base_ports(1)[0]}"),
        directory=directory,
        service="trimaran.cluster.testing.simulation.services.registers:Registers",
        file_sync_level=0,
        term_length_bytes=1 << 20,
        segment_length_bytes=1 << 20,
        startup_canvass_timeout_ms=20_000,
        election_timeout_ms=100,
        election_status_interval_ms=20,
        leader_heartbeat_timeout_ms=10_000,
        leader_heartbeat_interval_ms=40,
    )
    service = Registers()
    async with Node.open(config, service) as node, asyncio.TaskGroup() as tasks:
        running_node = tasks.create_task(node.run())
        try:
            yield [config.me.ingress], service
        finally:
            node.stop()
            with suppress(asyncio.CancelledError):
                await running_node


# --- a member that a test plays


SLOW = WorkloadSettings(close_rate=0.0, idle_rate=0.0, think_mean_s=0.0005, in_flight_limit=3, padding_max_bytes=0)


def answers_of(cluster: FakeCluster, payloads: list[bytes], *, position: int = 32) -> list[bytes]:
    """Answers to requests as if each register were empty; positions ascend from the one given."""
    requests = [Request.decode(payload) for payload in payloads]
    return [
        Answer(AnswerStatus.OK, request.sequence, request.client_id, position + 32 * index).encode()
        for index, request in enumerate(requests)
    ]


@asynccontextmanager
async def held_requests(cluster: FakeCluster) -> AsyncIterator[tuple[Workload, History]]:
    """Run a workload until three requests have come, which nobody answers."""
    history = History()
    for fake in cluster.members:
        fake.is_echoing = False
    workload = make_workload(cluster.endpoints, history, settings=SLOW)
    async with running(workload):
        await cluster.until(lambda: len(cluster.leader_member.payloads) == 3)
        yield workload, history


def answer_all(cluster: FakeCluster, payloads: list[bytes]) -> None:
    """Let the leader answer these requests."""
    fake = cluster.leader_member
    bound = [connection for connection in fake.connections if connection.session_id is not None]
    for answer in answers_of(cluster, payloads):
        bound[-1].echo(answer)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda answer: answer._replace(client_id=5), "an answer to nothing it has asked"),
        (lambda answer: answer._replace(sequence=9), "an answer to nothing it has asked"),
    ],
)
async def test_an_answer_to_another_client_is_a_fault(change: Callable[[Answer], Answer], fault: str) -> None:
    async with fake_cluster(1) as cluster, held_requests(cluster) as (workload, history):
        workload.stop()
        (first, *_) = answers_of(cluster, cluster.leader_member.payloads)
        cluster.leader_member.connections[0].echo(change(Answer.decode(first)).encode())

        answer_all(cluster, cluster.leader_member.payloads)
        await until(lambda: history.pending_count == 0)

        assert len(history.faults) == 1
        assert fault in history.faults[0]


async def test_a_request_that_is_answered_in_two_ways_is_a_fault() -> None:
    async with fake_cluster(1) as cluster, held_requests(cluster) as (workload, history):
        workload.stop()
        payloads = cluster.leader_member.payloads
        (other, *_) = answers_of(cluster, payloads, position=4096)
        answer_all(cluster, payloads[:1])
        cluster.leader_member.connections[0].echo(other)

        answer_all(cluster, payloads)
        await until(lambda: history.pending_count == 0)

        assert len(history.faults) >= 1
        assert "request 1 was answered" in history.faults[0]
