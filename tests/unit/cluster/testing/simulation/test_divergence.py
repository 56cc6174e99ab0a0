"""Services that no rule of the simulator sees through, found by the product's own comparison of digests."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial

import pytest

from trimaran.cluster.testing.simulation.clients.service_work import ServiceWork, draw_query_of, takes_requests
from trimaran.cluster.testing.simulation.run import Options, RunOutcome, run_seed
from trimaran.service_api import ClientSession, Cluster, ClusteredService, SnapshotImage, SnapshotPublication

SEED = 3
AGREE = "members' digests of their services agree"


class Tally(ClusteredService):
    """Deterministic: counts messages, and tells how many. It has no `state_hash`."""

    def __init__(self) -> None:
        self.count = 0

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        if snapshot is not None:
            async for message in snapshot:
                self.count = int(message)

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d" % self.count)

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        self.count += 1
        session.offer(b"%d" % self.count)

    def on_query(self, payload: memoryview) -> bytes:
        return b"%d" % self.count


class Dice(Tally):
    """Replies with a random number."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        session.offer(b"%d" % random.randrange(1 << 30))


class Forgetful(Tally):
    """Its snapshot forgets the message before."""

    newest = b""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        before, self.newest = self.newest, bytes(payload)
        session.offer(before)


class Unordered(Tally):
    """Writes its snapshot in another order on each member, as one does that iterates over a set."""

    numbers = itertools.count()

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d" % self.count)
        await snapshot.offer(b"%d" % self.count if next(self.numbers) % 2 else b" %d" % self.count)


class Asked(Tally):
    """Counts queries, too."""

    def on_query(self, payload: memoryview) -> bytes:
        self.count += 1
        return b""


class Stocked(Tally):
    """Deterministic but for a random key; `state_hash` returns the state."""

    def __init__(self) -> None:
        super().__init__()
        self.stock: dict[str, int] = {}

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.stock[random.choice("abcdefgh")] = len(payload)
        return b""

    def state_hash(self) -> object:
        return self.stock


class Messaged(Tally):
    """Is given messages of another service."""

    received: int = 0

    def on_service_message(self, service_id: int, timestamp: int, payload: memoryview) -> None:
        assert (service_id, bytes(payload[:4])) == (1, b"tell")
        type(self).received += 1

    @staticmethod
    def simulation_service_message(random: random.Random, number: int) -> bytes:
        return b"tell %d" % number


def run(service_class: type[ClusteredService], seed: int = SEED) -> RunOutcome:
    make_work: Callable[..., ServiceWork] = partial(
        ServiceWork, uses_requests=takes_requests(service_class), draw_query=draw_query_of(service_class)
    )
    wanted = Options(member_count=3, safety_timeouts=20)
    return run_seed(seed, wanted, make_service=service_class, make_work=make_work)


def test_a_deterministic_service_is_left_alone_and_its_queries_run() -> None:
    outcome = run(Tally)

    assert outcome.failure is None
    assert outcome.fired["query"] > 20


def test_no_queries_are_sent_where_they_are_left_out() -> None:
    assert draw_query_of(ClusteredService) is None


@pytest.mark.parametrize(("service_class", "rule"), [(Dice, AGREE), (Asked, "a query leaves the state as it is")])
def test_what_differs_from_the_first_entry_on_is_found_at_once(service_class: type[Tally], rule: str) -> None:
    failure = run(service_class).failure

    assert failure is not None
    assert failure.rule == rule


@pytest.mark.parametrize("service_class", [Forgetful, Unordered])
def test_what_snapshots_get_wrong_is_found_in_some_seeds(service_class: type[Tally]) -> None:
    found = (run(service_class, seed).failure for seed in range(20))
    failure = next(each for each in found if each is not None)

    assert failure.rule == AGREE


def test_a_difference_of_states_is_told_by_key() -> None:
    failure = run(Stocked).failure

    assert failure is not None
    assert failure.rule == "every service is given the same, and becomes the same"
    assert "difference=" in failure.message
    assert "['stock']" not in failure.message
    assert "expected=" in failure.message


def test_messages_of_another_service_reach_a_service_that_draws_them() -> None:
    """A seed draws whether there is another service."""
    outcomes = (run(Messaged, seed) for seed in range(6, 10))
    outcome = next(outcome for outcome in outcomes if outcome.failure or outcome.fired["relay"])

    assert outcome.failure is None
    assert Messaged.received > 0
