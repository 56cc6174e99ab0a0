"""Clients for a service of the user's own send what the service says, in session after session."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random

from tests.unit.client.fake_member import fake_cluster, session_event
from tests.waiting import until, within
from trimaran.client import ClientConfig
from trimaran.cluster.testing.simulation.clients.application import Application, Pace
from trimaran.cluster.testing.simulation.clients.history import History
from trimaran.cluster.testing.simulation.clients.service_work import ServiceWork, draw_request_of, takes_requests
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES
from trimaran.cluster.testing.simulation.run import Options, RunOutcome, run_seed
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.wire.session import EventCode

CALM = Options(member_count=3, without=frozenset(KIND_NAMES), safety_timeouts=3)


class Mute(ClusteredService):
    """Answers nothing, and says nothing about requests."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        return


class Numbered(ClusteredService):
    """Notes what it is sent; every member in the same list."""

    seen: list[bytes]

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.seen.append(bytes(payload))
        session.offer(payload)

    @staticmethod
    def simulation_request(random: Random, number: int) -> bytes:
        return b"request %d" % number


def run(service: type[ClusteredService], options: Options = CALM) -> RunOutcome:
    return run_seed(
        5,
        options,
        make_service=service,
        make_work=partial(ServiceWork, draw_request=draw_request_of(service), uses_requests=takes_requests(service)),
    )


def test_requests_are_drawn_by_the_service_and_numbered_in_each_session() -> None:
    class Seen(Numbered):
        seen: list[bytes] = []  # noqa: RUF012  # shared on purpose

    outcome = run(Seen)

    assert outcome.failure is None
    assert outcome.acknowledged_count > 0
    assert {b"request 0", b"request 1"} <= set(Seen.seen)


class Asked(Numbered):
    """Is asked the same with `request`; every other answer is an error."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> memoryview:
        self.seen.append(bytes(payload))
        if payload[-1] % 2:
            raise ValueError("odd")
        return payload


def test_a_service_that_takes_requests_is_asked_and_may_answer_with_errors() -> None:
    class Seen(Asked):
        seen: list[bytes] = []  # noqa: RUF012  # shared on purpose

    outcome = run(Seen)

    assert outcome.failure is None
    assert outcome.acknowledged_count > 0
    assert {b"request 0", b"request 1"} <= set(Seen.seen)


def test_an_assertion_that_fails_in_a_request_fails_the_seed() -> None:
    class Wrong(Asked):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> memoryview:
            raise AssertionError("cannot be")

    outcome = run(Wrong)

    assert outcome.failure is not None
    assert outcome.failure.rule == "no callback of a service raises"


def test_a_service_that_answers_nothing_is_served_all_the_same() -> None:
    outcome = run(Mute)

    assert outcome.failure is None
    assert outcome.acknowledged_count == 0
    assert outcome.committed_bytes > 0


def test_no_more_is_sent_than_the_limit_says() -> None:
    class Seen(Numbered):
        seen: list[bytes] = []  # noqa: RUF012  # shared on purpose

    run(Seen, Options(member_count=1, client_count=1, safety_timeouts=3, operation_limit=4))

    assert 0 < len(set(Seen.seen)) <= 4


async def test_a_session_that_ends_while_there_is_no_room_is_followed_by_another() -> None:
    async with within(60), fake_cluster() as cluster:
        member = cluster.leader_member
        member.is_echoing = member.is_reading = False
        pace = Pace(think_mean_s=1e-6, idle_rate=0.0, close_rate=0.0)
        work = ServiceWork(
            1, history=History(), pace=pace, random=Random(1), draw_request=lambda random, number: bytes(4_000)
        )
        config = ClientConfig(endpoints=tuple(cluster.endpoints), outgoing_window_bytes=8_192)
        application = Application(config, 1, work, random=Random(1))
        running = asyncio.create_task(application.run())
        member.is_reading = True
        await until(lambda: bool(member.connections) and member.connections[0].session_id is not None)
        member.is_reading = False
        await until(lambda: application.begun_count > pace.in_flight_limit)

        member.connections[0].send(session_event(EventCode.CLOSED, detail="TIMEOUT"))
        member.is_reading = True
        await cluster.notify()
        await until(lambda: application.session_count == 2 or running.done())
        application.stop()

        await running
