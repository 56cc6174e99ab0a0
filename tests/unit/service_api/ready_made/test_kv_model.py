"""The key-value store against a plain dict, and its watches in a cluster whose leaders die."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trimaran.client.ready_made import KvClient
from trimaran.cluster.testing import MemoryCluster, TypedHarness
from trimaran.service_api.ready_made.kv import (
    DeleteKey,
    DeleteKeys,
    KvChange,
    KvChanges,
    KvConflictError,
    KvError,
    KvOperation,
    KvService,
    ListKeys,
    PutKey,
    ReadChanges,
    RunTransaction,
    WatchKeys,
    delete_key,
    key_range,
    put_key,
    when_value,
)

KEYS = st.sampled_from([b"a", b"a/1", b"a/2", b"a\xff", b"b", b"b/1"])
VALUES = st.binary(max_size=3)
OPERATIONS = st.lists(
    st.one_of(st.builds(put_key, KEYS, VALUES), st.builds(delete_key, KEYS), st.just(put_key("a", "", ttl_s=-1.0))),
    max_size=5,
)


class KvMachine(RuleBasedStateMachine):
    """Commands, TTLs and snapshots in any order; the model is a dict and the list of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = TypedHarness(KvService)
        self.kv.call(WatchKeys(1, *key_range("a")))
        self.model: dict[bytes, bytes] = {}
        self.changed: list[tuple[bytes, bytes | None]] = []
        self.expires: dict[bytes, int] = {}
        self.now_s = 0
        self.seen: list[KvChange] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.model[key] = value
        self.expires.pop(key, None)
        self.changed.append((key, value))

    def delete(self, key: bytes) -> None:
        del self.model[key]
        self.expires.pop(key, None)
        self.changed.append((key, None))

    @rule(key=KEYS, value=VALUES, ttl_s=st.none() | st.integers(1, 5))
    def write(self, key: bytes, value: bytes, ttl_s: int | None) -> None:
        assert self.kv.call(PutKey(key, value, ttl_s=ttl_s)) == len(self.changed) + 1
        self.put(key, value)
        if ttl_s is not None:
            self.expires[key] = self.now_s + ttl_s

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.kv.call(DeleteKey(key)) is (key in self.model)
        if key in self.model:
            self.delete(key)

    @rule(prefix=KEYS)
    def remove_prefix(self, prefix: bytes) -> None:
        found = [key for key in sorted(self.model) if key.startswith(prefix)]
        assert self.kv.call(DeleteKeys(*key_range(prefix))) == len(found)
        for key in found:
            self.delete(key)

    @rule(key=KEYS, value=VALUES, success=OPERATIONS, failure=OPERATIONS)
    def transact(self, key: bytes, value: bytes, success: list[KvOperation], failure: list[KvOperation]) -> None:
        command = RunTransaction([when_value(key, value)], success, failure)
        chosen = success if self.model.get(key) == value else failure
        if any(each.ttl_s for each in chosen):
            with pytest.raises(KvError, match="ttl_s=-1"):
                self.kv.call(command)
            return
        assert self.kv.call(command).is_success is (self.model.get(key) == value)
        for each in chosen:
            if each.action == "put":
                self.put(each.key, each.value)
            elif each.key in self.model:
                self.delete(each.key)

    @precondition(lambda self: self.expires)
    @rule()
    def wait(self) -> None:
        self.now_s += 1
        self.kv.advance(1)
        due = {key for key, at_s in self.expires.items() if at_s <= self.now_s}
        # Which of two that are due at once goes first is the timers' business.
        fired = self.kv.ask(ReadChanges(b"", b"", len(self.changed))).changes
        assert {change.key for change in fired} == due
        assert all(change.is_expired for change in fired)
        for change in fired:
            self.delete(change.key)

    @rule()
    def restart(self) -> None:
        self.take_pushes()
        self.kv.restart()

    def take_pushes(self) -> None:
        for event in self.kv.events(KvChanges):
            assert [*event.watches.values()] == [self.seen[-1].revision if self.seen else 0]
            self.seen += event.changes
        self.kv.egress.clear()

    @invariant()
    def store_is_the_model(self) -> None:
        page = self.kv.ask(ListKeys(limit=1_000))
        assert [(entry.key, entry.value) for entry in page.entries] == sorted(self.model.items())
        assert page.revision == len(self.changed)
        assert self.kv.service.entry_bytes == sum(len(key) + len(value) for key, value in self.model.items())
        self.take_pushes()
        expected = [(key, value) for key, value in self.changed if key.startswith(b"a")]
        assert [(change.key, change.value) for change in self.seen] == expected
        assert self.kv.ask(ReadChanges(*key_range("a"), after_revision=0)).changes == self.seen


KvMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25)
TestKvMachine = KvMachine.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_a_watch_sees_each_change_once_while_leaders_die(seed: int) -> None:
    with MemoryCluster(KvService, seed=seed) as cluster:

        async def write(kv: KvClient) -> None:
            for number in range(60):
                await kv.put(f"jobs/{number % 7}", str(number))
                await kv.put("other", "")
                if number in (20, 40):
                    dead = cluster.kill_leader()
                    await cluster.restart(dead)

        async def test() -> None:
            writer, watcher = KvClient(await cluster.connect()), KvClient(await cluster.connect())
            live, late = watcher.watch(prefix="jobs/", from_revision=1), watcher.watch("jobs/0")
            values: list[bytes | None] = []
            async with asyncio.TaskGroup() as tasks, live, late:
                tasks.create_task(write(writer))
                async for change in live:
                    values.append(change.value)
                    if change.value == b"59":
                        break
                others = [(await anext(late)).value for _ in range(9)]
            assert values == [b"%d" % number for number in range(60)]
            assert others == [b"%d" % (number * 7) for number in range(9)]
            await cluster.assert_identical()

        cluster.run(test())


def test_transactions_of_clients_do_not_lose_each_others_writes() -> None:
    with MemoryCluster(KvService) as cluster:

        async def add(kv: KvClient) -> None:
            for _ in range(5):
                for _ in range(100):
                    try:
                        async with kv.transaction() as txn:
                            txn.put("sum", str(int(await txn.get("sum") or 0) + 1))
                        break
                    except KvConflictError:
                        continue

        async def test() -> None:
            clients = [KvClient(await cluster.connect()) for _ in range(3)]
            async with asyncio.TaskGroup() as tasks:
                for each in clients:
                    tasks.create_task(add(each))
            kv = clients[0]
            assert await kv.get("sum") == b"15"
            assert await kv.cas("sum", "15", "16")
            assert not await kv.cas("sum", "15", "17")
            assert not await kv.cas("sum", None, "17")
            assert await kv.cas("none", None, "")
            assert [entry.key async for entry in kv.scan()] == [b"none", b"sum"]
            assert await kv.delete_range("n", "o") == 1
            assert await kv.delete("sum")
            assert await kv.entry("sum") is None

        cluster.run(test())


def test_a_watch_that_nobody_reads_does_not_stop_its_client() -> None:
    with MemoryCluster(KvService) as cluster:

        async def test() -> None:
            kv = KvClient(await cluster.connect(egress_queue_limit=4))
            async with kv.watch(prefix="k") as changes:
                for number in range(30):
                    await kv.put("k", str(number))
                assert [(await anext(changes)).value for _ in range(30)] == [b"%d" % number for number in range(30)]

        cluster.run(test())
