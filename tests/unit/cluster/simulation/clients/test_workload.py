"""A workload and its history: against a real member on loopback, and against one that answers as a test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.unit.client.fake_member import DEADLINE_S, FakeCluster, fake_cluster, session_event
from tests.waiting import until, within
from trimaran.benchmarks.rig.processes import find_base_ports
from trimaran.client import ClientConfig
from trimaran.cluster.node import Node
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.cluster.simulation.clients.history import ClientOperation, History
from trimaran.cluster.simulation.clients.linearizability import (
    SearchVerdict,
    check_linearizability,
    check_log_order,
)
from trimaran.cluster.simulation.clients.register_model import RegisterModel, explained
from trimaran.cluster.simulation.clients.workload import Workload, WorkloadSettings
from trimaran.cluster.simulation.registers import Answer, AnswerStatus, Registers, Request
from trimaran.service_api.wire.session import EventCode

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
        service="trimaran.cluster.simulation.registers:Registers",
        file_sync_level=0,
        term_length_bytes=1 << 20,
        segment_length_bytes=1 << 20,
        startup_canvass_timeout_ms=800,
        election_timeout_ms=100,
        election_status_interval_ms=20,
        leader_heartbeat_timeout_ms=400,
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


def check(history: History) -> list[ClientOperation]:
    operations = explained(history)
    assert history.faults == []
    assert check_log_order(operations, RegisterModel()) == []
    assert check_linearizability(operations, RegisterModel()).verdict is SearchVerdict.LINEARIZABLE
    return operations


async def test_what_clients_of_a_real_member_see_is_linearizable(tmp_path: Path) -> None:
    history = History()
    async with member(tmp_path) as (endpoints, service):
        workloads = [make_workload(endpoints, history, number=number, seed=number) for number in range(3)]
        async with running(*workloads):
            await until(lambda: history.acknowledged_count >= 1500)

    operations = check(history)

    assert history.pending_count == 0
    assert history.acknowledged_count == sum(workload.acknowledged_count for workload in workloads)
    assert service.faults == []
    kinds = {operation.kind for operation in operations}
    assert kinds >= {"get", "put", "append", "compare_and_set", "write_later", "fire"}
    assert all(workload.lost_session_count == 0 for workload in workloads)


async def test_sessions_end_and_begin_under_another_client_id(tmp_path: Path) -> None:
    history = History()
    settings = WorkloadSettings(think_mean_s=0.0005, idle_rate=0.0, close_rate=0.1)
    async with member(tmp_path) as (endpoints, service):
        workload = make_workload(endpoints, history, settings=settings)
        async with running(workload):
            await until(lambda: workload.session_count >= 8)

    check(history)

    clients = sorted({operation.client_id for operation in history if operation.client_id is not None})
    assert clients == list(range(clients[0], clients[0] + len(clients)))
    # A session that opens as the workload is stopped sends nothing, so the history has no operation of its client.
    assert workload.session_count - len(clients) in (0, 1)
    assert history.acknowledged_count + history.unknown_count == len(history.operations)
    assert service.faults == []


async def test_a_workload_issues_no_more_than_its_limit(tmp_path: Path) -> None:
    history = History()
    settings = WorkloadSettings(think_mean_s=0.0005, idle_rate=0.0, operation_limit=20)
    async with member(tmp_path) as (endpoints, _), running(make_workload(endpoints, history, settings=settings)):
        await until(lambda: len(history.operations) == 20 and history.pending_count == 0)

    assert len(history.operations) == 20


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


def sequences(payloads: list[bytes]) -> list[int]:
    return [Request.decode(payload).sequence for payload in payloads]


async def test_unanswered_requests_go_to_the_new_leader_in_order() -> None:
    async with fake_cluster() as cluster, held_requests(cluster) as (workload, history):
        workload.stop()
        await cluster.elect(1)

        await cluster.until(lambda: len(cluster.members[1].payloads) == 3)
        answer_all(cluster, cluster.members[1].payloads)
        await until(lambda: history.pending_count == 0)

        assert cluster.members[1].payloads == cluster.members[0].payloads
        assert sequences(cluster.members[1].payloads) == [1, 2, 3]
        assert (history.acknowledged_count, workload.resent_count) == (3, 3)


async def test_requests_that_came_too_early_are_sent_again() -> None:
    async with fake_cluster(1) as cluster, held_requests(cluster) as (workload, history):
        workload.stop()
        fake = cluster.leader_member
        first = Request.decode(fake.payloads[0])
        fake.connections[0].echo(Answer(AnswerStatus.GAP, 3, first.client_id, 32).encode())

        await cluster.until(lambda: len(fake.payloads) == 6)
        answer_all(cluster, fake.payloads[:3])
        await until(lambda: history.pending_count == 0)

        assert sequences(fake.payloads) == [1, 2, 3, 1, 2, 3]
        assert (workload.gap_count, history.acknowledged_count) == (1, 3)


async def test_a_lost_session_leaves_its_requests_unknown_and_another_begins() -> None:
    async with fake_cluster(1) as cluster, held_requests(cluster) as (workload, history):
        connection = cluster.leader_member.connections[0]
        assert connection.session_id is not None
        connection.send(session_event(EventCode.CLOSED, session_id=connection.session_id, detail="timed out"))

        await until(lambda: workload.session_count == 2)
        await cluster.until(lambda: len(cluster.leader_member.payloads) == 6)

        assert (history.unknown_count, workload.lost_session_count) == (3, 1)
        assert len({Request.decode(payload).client_id for payload in cluster.leader_member.payloads}) == 2
        workload.abandon()
        workload.stop()
        answer_all(cluster, cluster.leader_member.payloads[3:])


async def test_connecting_is_tried_again_until_there_is_a_leader() -> None:
    async with fake_cluster(leader=-1) as cluster:
        history = History()
        workload = make_workload(cluster.endpoints, history)
        async with running(workload):
            await until(lambda: workload.refused_connect_count >= 1)
            await cluster.elect(0)
            await until(lambda: workload.session_count == 1)
            workload.abandon()
            workload.stop()
            await cluster.leader_member.stop()


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


async def test_a_cancelled_workload_leaves_nothing_pending() -> None:
    async with fake_cluster(1) as cluster:
        history = History()
        cluster.leader_member.is_echoing = False
        workload = make_workload(cluster.endpoints, history, settings=SLOW)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(workload.run())
            await cluster.until(lambda: len(cluster.leader_member.payloads) == 3)
            task.cancel()

    assert (history.pending_count, history.unknown_count) == (0, 3)


async def test_one_seed_draws_the_same_requests() -> None:
    drawn = []
    for _ in range(2):
        async with fake_cluster(1) as cluster, held_requests(cluster) as (workload, _history):
            drawn.append(list(cluster.leader_member.payloads))
            workload.abandon()
            workload.stop()

    assert drawn[0] == drawn[1]
