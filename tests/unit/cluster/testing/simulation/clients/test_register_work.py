"""Numbered messages of a session: against a member that answers as a test wants."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from tests.unit.client.fake_member import DEADLINE_S, FakeCluster, fake_cluster
from tests.waiting import until, within
from trimaran.client import ClientConfig
from trimaran.cluster.testing.simulation.clients.application import Application, Lane, Pace
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.register_work import RegisterWork
from trimaran.cluster.testing.simulation.services.registers import Answer, AnswerStatus, Request


def make_application(endpoints: list[str], history: History) -> Application:
    config = ClientConfig(endpoints=tuple(endpoints), connect_timeout_s=0.5, close_timeout_s=0.2)
    pace = Pace(close_rate=0.0, idle_rate=0.0, think_mean_s=0.0005, in_flight_limit=3)
    work = RegisterWork(1, histories=[history], now_ns=time.monotonic_ns, keys=range(4), unit_s=0.1)
    work.lanes = [Lane(work.messages(), pace, Random(1))]
    return Application(config, 1, work, random=Random(1))


def answers_of(cluster: FakeCluster, payloads: list[bytes], *, position: int = 32) -> list[bytes]:
    """Answers to messages as if each register were empty; positions ascend from the one given."""
    requests = [Request.decode(payload) for payload in payloads]
    return [
        Answer(AnswerStatus.OK, request.sequence, request.client_id, position + 32 * index).encode()
        for index, request in enumerate(requests)
    ]


@asynccontextmanager
async def held_messages(cluster: FakeCluster) -> AsyncIterator[tuple[Application, History]]:
    """Run an application until three messages have come, which nobody answers."""
    history = History()
    for fake in cluster.members:
        fake.is_echoing = False
    application = make_application(cluster.endpoints, history)
    async with within(3 * DEADLINE_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(application.run())
        await cluster.until(lambda: len(cluster.leader_member.payloads) == 3)
        yield application, history
        application.stop()


def answer_all(cluster: FakeCluster, payloads: list[bytes]) -> None:
    """Let the leader answer these messages."""
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
    async with fake_cluster(1) as cluster, held_messages(cluster) as (application, history):
        application.stop()
        (first, *_) = answers_of(cluster, cluster.leader_member.payloads)
        cluster.leader_member.connections[0].echo(change(Answer.decode(first)).encode())

        answer_all(cluster, cluster.leader_member.payloads)
        await until(lambda: history.pending_count == 0)

        assert len(history.faults) == 1
        assert fault in history.faults[0]


async def test_a_message_that_is_answered_in_two_ways_is_a_fault() -> None:
    async with fake_cluster(1) as cluster, held_messages(cluster) as (application, history):
        application.stop()
        payloads = cluster.leader_member.payloads
        (other, *_) = answers_of(cluster, payloads, position=4096)
        answer_all(cluster, payloads[:1])
        cluster.leader_member.connections[0].echo(other)

        answer_all(cluster, payloads)
        await until(lambda: history.pending_count == 0)

        assert len(history.faults) >= 1
        assert "message 1 was answered" in history.faults[0]
