"""Members in memory that run different code, as in an upgrade: what they find out about each other's states."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api import ClientSession, ClusteredService
from trimaran.service_api.typed import Command, Context, TypedService, handles, state


class Tally(ClusteredService):
    step = 1

    def __init__(self) -> None:
        self.total = 0

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.total += self.step
        return b"%d" % self.total

    def state_hash(self) -> object:
        return self.total


class OtherTally(Tally):
    step = 2


class NamedTally(Tally):
    def state_hash(self) -> object:
        return {"total": self.total}


class CountingTally(NamedTally):
    """Declares one field more."""

    def state_hash(self) -> object:
        return {"total": self.total, "doubled": 2 * self.total}


class Add(Command[int]):
    amount: int


class Sum(TypedService, name="sum"):
    total: int = state()
    amounts: dict[str, int] = state()

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.total += message.amount
        self.amounts[str(message.amount)] = message.amount
        return self.total


class SumWithCount(Sum):
    """Does the same, with one field more."""

    count: int = state()

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.count += 1
        return super().add(ctx, message)


class SumOfFloats(Sum):
    """Declares another type for a field."""

    total: float = state()  # type: ignore[assignment]  # as an author may


class SumWithFee(SumWithCount):
    """Does something else with each entry."""

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        return super().add(ctx, message) + self._take_fee()

    def _take_fee(self) -> int:
        self.total -= 1
        return 0


async def send(cluster: MemoryCluster, count: int) -> list[int]:
    client = await cluster.connect()
    if all(isinstance(service, TypedService) for service in cluster.services.values()):
        return [await TypedClient(client).call(Add(1)) for _ in range(count)]
    return [int(await client.request(b"")) for _ in range(count)]


async def found(cluster: MemoryCluster) -> dict[int, dict[str, list[int]]]:
    """In which fields each member differs from which members, once everything is processed."""
    await cluster.settle()
    await cluster.advance(2)
    return {
        int(member.member_id): {
            each.field: sorted(each.values.keys() - {member.member_id})
            for each in member.node.module.fields.differences
        }
        for member in cluster._cluster.running()
        if member.node is not None
    }


async def change_leader(cluster: MemoryCluster) -> None:
    """Begin another term: members compare their states where it begins."""
    await cluster.settle()
    before = await cluster.wait_for_leader()
    cluster.kill(before)
    await cluster.wait_for_leader()
    await cluster.restart(before)


def run_mixed(
    old: Callable[[], ClusteredService], new: Callable[[], ClusteredService]
) -> tuple[list[int], dict[int, dict[str, list[int]]]]:
    """Let member 2 run the new code, send five requests, and have another member lead; return replies and findings."""

    async def test() -> tuple[list[int], dict[int, dict[str, list[int]]]]:
        await cluster.restart(2, code=new, accept_code=True)
        totals = await send(cluster, 5)
        await change_leader(cluster)
        return totals, await found(cluster)

    with MemoryCluster(old) as cluster:
        cluster.run(cluster.wait_for_leader())
        totals, differences = cluster.run(test())
        return totals, differences


def test_states_that_differ_while_code_differs_are_found_and_nobody_is_stopped() -> None:
    totals, differences = run_mixed(Tally, OtherTally)

    assert totals in ([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert differences == {0: {"state_hash": [2]}, 1: {"state_hash": [2]}, 2: {"state_hash": [0, 1]}}


@pytest.mark.parametrize(("old", "new"), [(NamedTally, CountingTally), (Sum, SumWithCount), (Sum, SumOfFloats)])
def test_a_field_that_is_new_or_of_another_type_is_not_compared(
    old: Callable[[], ClusteredService], new: Callable[[], ClusteredService]
) -> None:
    totals, differences = run_mixed(old, new)

    assert totals == [1, 2, 3, 4, 5]
    assert differences == {0: {}, 1: {}, 2: {}}


def test_the_declared_field_that_differs_is_named() -> None:
    _, differences = run_mixed(Sum, SumWithFee)

    assert differences == {0: {"total": [2]}, 1: {"total": [2]}, 2: {"total": [0, 1]}}


def test_a_difference_ends_when_the_member_runs_the_code_of_the_others() -> None:
    async def test() -> None:
        await cluster.restart(2, code=OtherTally, accept_code=True)
        await send(cluster, 2)
        await change_leader(cluster)
        await cluster.restart(2)  # it replays the log, and says again what it comes to
        assert (await found(cluster))[2] == {"state_hash": [0, 1]}
        await cluster.restart(2, code=Tally, accept_code=True)
        assert await found(cluster) == {0: {}, 1: {}, 2: {}}

    with MemoryCluster(Tally) as cluster:
        cluster.run(cluster.wait_for_leader())
        cluster.run(test())
