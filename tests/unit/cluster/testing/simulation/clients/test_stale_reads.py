"""Queries in whole simulated clusters, and what the check of stale reads finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.client import ClusterClient, QueryRefusedError, QueryResult
from trimaran.cluster.testing.simulation.clients.history import History, StaleRead
from trimaran.cluster.testing.simulation.clients.register_model import RegisterModel
from trimaran.cluster.testing.simulation.clients.register_operations import PUT, RegisterOutcome
from trimaran.cluster.testing.simulation.clients.stale_reads import check_stale_reads
from trimaran.cluster.testing.simulation.cluster import Settings
from trimaran.cluster.testing.simulation.services.registers import QUERY, Answer, Registers, Request, RequestKind
from trimaran.service_api import ClusterTimeoutError

KEY = QUERY.pack(1)


def put(sequence: int, value: int) -> bytes:
    return Request(RequestKind.PUT, 1, sequence, 1, value).encode()


def values(result: QueryResult) -> list[int]:
    return [write.value for write in Answer.decode(result.payload).writes]


@contextmanager
def registers(settings: Settings = QUICK) -> Iterator[SmallCluster]:
    """Make a cluster with registers that has a leader."""
    with small_cluster(settings=settings, make_service=Registers) as small:
        small.start()
        yield small


def use(small: SmallCluster, main: Callable[[ClusterClient], Coroutine[Any, Any, None]]) -> None:
    """Let a new client do something, and wait until it is done."""
    done: list[BaseException | None] = []

    async def run() -> None:
        try:
            async with asyncio.timeout(20), ClusterClient.connect(config=small.client_config()) as client:
                await main(client)
            done.append(None)
        except BaseException as error:
            done.append(error)
            raise

    small.cluster.add_client(f"client-{len(small.cluster.clients)}", run)
    small.wait(lambda: bool(done), limit_ns=30 * SECOND)
    assert done == [None]


@pytest.mark.parametrize("member_count", [1, 3, 5])
def test_client_reads_what_it_was_told_is_written(member_count: int) -> None:
    async def main(client: ClusterClient) -> None:
        replies = client.egress()
        for sequence in range(1, 4):
            await client.offer(put(sequence, sequence * 10))
            written = Answer.decode((await anext(replies)).payload)
            result = await client.query(KEY)
            assert values(result) == [sequence * 10]
            assert result.log_position >= written.log_position
            assert (result.staleness_s, result.member_id) == (0.0, client.leader_member_id)

    with registers(replace(QUICK, member_count=member_count)) as small:
        use(small, main)


def test_every_member_answers_what_may_be_stale_and_says_how_old_it_is() -> None:
    async def main(client: ClusterClient) -> None:
        await client.offer(put(1, 10))
        written = Answer.decode((await anext(client.egress())).payload)
        for member_id in range(3):
            fresh = await client.query(KEY, max_staleness_s=0, read_from=member_id)
            again = await client.query(KEY, max_staleness_s=5, read_from=member_id)
            assert values(fresh) == values(again) == [10]
            assert fresh.log_position >= written.log_position
            assert (fresh.member_id, again.member_id) == (member_id, member_id)
            assert fresh.staleness_s == 0 < again.staleness_s < 0.1

    with registers() as small:
        use(small, main)


def test_own_writes_are_read_from_a_follower_that_is_told_their_position() -> None:
    async def main(client: ClusterClient) -> None:
        replies = client.egress()
        for sequence in range(1, 20):
            await client.offer(put(sequence, sequence))
            written = Answer.decode((await anext(replies)).payload)
            result = await client.query(KEY, max_staleness_s=60, min_log_position=written.log_position)
            assert values(result) == [sequence]

    with registers() as small:
        use(small, main)


def test_queries_are_in_no_log() -> None:
    async def main(client: ClusterClient) -> None:
        first = await client.query(KEY)
        results = await asyncio.gather(*(client.query(KEY) for _ in range(200)))
        assert {result.log_position for result in results} == {first.log_position}

    with registers() as small:
        use(small, main)


def test_error_of_the_service_is_raised_at_the_client() -> None:
    async def main(client: ClusterClient) -> None:
        with pytest.raises(QueryRefusedError, match="SERVICE_FAILED"):
            await client.query(b"no key at all")
        assert values(await client.query(KEY)) == []

    with registers() as small:
        use(small, main)


def test_member_that_is_alone_refuses_and_the_timeout_says_so() -> None:
    async def main(client: ClusterClient) -> None:
        await client.query(KEY, max_staleness_s=0, read_from=follower.member_id)
        for other in small.cluster.members.values():
            if other is not follower:
                small.cluster.network.block(follower.machine.address, other.machine.address)
                small.cluster.network.block(other.machine.address, follower.machine.address)
        with pytest.raises(ClusterTimeoutError, match=f"member {follower.member_id}: TOO_STALE"):
            await client.query(KEY, max_staleness_s=0, read_from=follower.member_id, timeout_s=2)

    with registers() as small:
        follower = small.follower
        use(small, main)


# --- the check


def read(**changes: Any) -> StaleRead:
    made: dict[str, Any] = {
        "key": 1,
        "values": (10,),
        "member_id": 2,
        "log_position": 640,
        "staleness_ns": 0,
        "invoked_ns": 300,
        "returned_ns": 400,
    }
    return StaleRead(**{**made, **changes})


def history() -> History:
    """PUT 10 at 640, PUT 20 at 960, acknowledged at 100,000 and 200,000 ns."""
    made = History()
    for value, position, end_ns in ((10, 640, 100_000), (20, 960, 200_000)):
        operation = made.invoke(1, 1, PUT, value, now_ns=end_ns - 50)
        before = () if value == 10 else (10,)
        made.acknowledge(operation, RegisterOutcome(True, before), log_position=position, now_ns=end_ns)
    return made


@pytest.mark.parametrize(
    ("reads", "problem"),
    [
        ([read(invoked_ns=300_000, staleness_ns=150_000, returned_ns=301_000)], ""),
        ([read(values=(20,), invoked_ns=150_000)], "the log up to there makes it (10,)"),
        (
            [read(invoked_ns=300_000, staleness_ns=50_000, returned_ns=301_000)],
            "log_position=960 had been told of at 200000",
        ),
        (
            [
                read(values=(20,), log_position=992, invoked_ns=150_000, returned_ns=160_000),
                read(invoked_ns=180_000, returned_ns=190_000),
            ],
            "log_position=992",
        ),
    ],
    ids=["right", "not there at its position", "staler than it says", "behind another read"],
)
def test_read_that_the_log_does_not_explain_is_found(reads: list[StaleRead], problem: str) -> None:
    problems = check_stale_reads(history().operations, reads, RegisterModel())

    assert len(problems) == bool(problem)
    assert problem in "".join(problems)
