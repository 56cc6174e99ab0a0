"""The key-value store under faults: what clients saw has an order, and a store that is wrong is found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple

import pytest

from trimaran import ClusterClient
from trimaran.client.ready_made import KvClient
from trimaran.cluster.testing import ClientWorkload, simulate
from trimaran.cluster.testing.simulation.clients.history import ClientOperation, History
from trimaran.cluster.testing.simulation.clients.linearizability import (
    SearchVerdict,
    SequentialModel,
    check_linearizability,
)
from trimaran.cluster.testing.simulation.world.loop import SimulatedLoop
from trimaran.service_api.ready_made.kv import ChangePage, KvService, ReadChanges, RunTransaction, TransactionAnswer
from trimaran.service_api.typed import Context, answers, handles

KEYS = ("a", "b")


class Change(NamedTuple):
    """What a write expects, and what it writes."""

    expected: str | None
    value: str


class OneKey(SequentialModel[str | None]):
    """One key of a store."""

    def initial_state(self) -> str | None:
        return None

    def apply(self, state: str | None, operation: ClientOperation) -> tuple[str | None, Hashable]:
        argument = operation.argument
        if operation.kind == "get":
            return state, state
        assert isinstance(argument, Change)
        if operation.kind == "put":
            return argument.value, None
        return (argument.value, True) if state == argument.expected else (state, False)


class Writes(ClientWorkload):
    """Gets, puts and compare-and-sets of two keys, each value written once at most."""

    def __init__(self) -> None:
        self.history = History()
        self.count = 0

    async def use(self, client: ClusterClient, random: Random) -> None:
        kv = KvClient(client)
        key = random.choice(KEYS)
        kind = random.choice(("get", "put", "cas", "cas"))
        self.count += 1
        value = str(self.count)
        before = None if kind == "put" else await self._get(kv, key)
        if kind == "get":
            return
        argument = Change(before, value)
        operation = self.history.invoke(None, key, kind, argument, now_ns=_now_ns())
        outcome: Hashable = None
        if kind == "put":
            await kv.put(key, argument.value)
        else:
            outcome = await kv.cas(key, argument.expected, argument.value)
        self.history.acknowledge(operation, outcome, log_position=0, now_ns=_now_ns())

    async def _get(self, kv: KvClient, key: str) -> str | None:
        operation = self.history.invoke(None, key, "get", None, now_ns=_now_ns())
        found = await kv.get(key)
        value = None if found is None else found.decode()
        self.history.acknowledge(operation, value, log_position=0, now_ns=_now_ns())
        return value

    def at_rest(self, services: Sequence[Any]) -> None:
        """The history of the store says which writes nobody acknowledged took effect, so few are open."""
        service = services[0]
        written = {change[1].decode() for change in service.history.values()}
        operations = []
        for operation in self.history:
            argument = operation.argument
            if operation.is_acknowledged:
                operations.append(operation)
            elif isinstance(argument, Change) and argument.value in written:
                operations.append(replace(operation, returned_ns=None))
        report = check_linearizability(operations, OneKey())
        assert report.verdict is SearchVerdict.LINEARIZABLE, report.violations
        assert all(one.state_hash() == service.state_hash() for one in services)


class BlindStore(KvService):
    """Does what a transaction says without a look at what it compares."""

    @handles(RunTransaction)
    def run_transaction(self, ctx: Context, message: RunTransaction) -> TransactionAnswer:
        return super().run_transaction(ctx, RunTransaction([], message.success, []))


class Watches(ClientWorkload):
    """Each client watches through all its sessions, and writes."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[int, bytes]]] = {}
        self.count = 0

    async def use(self, client: ClusterClient, random: Random) -> None:
        kv = KvClient(client)
        number = random.randrange(3)
        seen = self.seen.setdefault(number, [])
        self.count += 1
        await kv.put(f"{'ab'[self.count % 2]}/{self.count}", str(self.count))
        first = seen[-1][0] + 1 if seen else 1
        found: list[tuple[int, bytes]] = []
        async with kv.watch(prefix="a/", from_revision=first) as changes:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    for _ in range(6):
                        change = await anext(changes)
                        found.append((change.revision, change.key))
        # Another client may have gone on with this list meanwhile.
        if (seen[-1][0] + 1 if seen else 1) == first:
            seen += found

    def at_rest(self, services: Sequence[Any]) -> None:
        happened = [(revision, change[0]) for revision, change in services[0].history.items() if change[0] < b"b"]
        for seen in self.seen.values():
            assert seen == happened[: len(seen)]


class ForgetfulStore(KvService):
    """Gives no changes that lie behind, as if each push arrived."""

    @answers(ReadChanges)
    def read_changes(self, ctx: Context, message: ReadChanges) -> ChangePage:
        page = super().read_changes(ctx, message)
        return replace(page, changes=page.changes[1:]) if len(page.changes) > 2 else page


def _now_ns() -> int:
    """The time of the simulation: clients have clocks of their own, which differ."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop.scheduler.now_ns


@pytest.mark.parametrize("seeds", [1, pytest.param(range(1, 4), marks=pytest.mark.campaign)])
def test_what_clients_of_the_store_see_is_linearizable_under_faults(seeds: int | range) -> None:
    totals = simulate(KvService, Writes, seeds=seeds, members=3, length=8)

    assert sum(totals.fired.values()) > 0


def test_a_store_that_does_not_compare_is_found() -> None:
    with pytest.raises(AssertionError, match="at rest"):
        simulate(BlindStore, Writes, seeds=5, members=3, length=8, shrink_runs=0)


@pytest.mark.parametrize("seeds", [1, pytest.param(range(1, 4), marks=pytest.mark.campaign)])
def test_watches_see_each_change_once_under_faults(seeds: int | range) -> None:
    totals = simulate(KvService, Watches, seeds=seeds, members=3, length=8)

    assert sum(totals.fired.values()) > 0


def test_a_store_that_forgets_changes_is_found() -> None:
    with pytest.raises(AssertionError, match="at rest"):
        simulate(ForgetfulStore, Watches, seeds=5, members=3, length=8, shrink_runs=0)
