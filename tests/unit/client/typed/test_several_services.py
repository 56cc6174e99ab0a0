"""Several typed services of one cluster: each message reaches the one that it is for, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from trimaran import ClusterClient, Command, Context, Event, Query, RejectedError, TypedService, answers, handles, state
from trimaran.client.errors import QueryRefusedError
from trimaran.client.ready_made import CountersClient, KvClient, LocksClient
from trimaran.client.typed import TypedClient
from trimaran.cluster.testing import ClientWorkload, MemoryCluster, simulate
from trimaran.cluster.time_travel.replay import replay_service
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError
from trimaran.service_api.ready_made.counters import CounterService
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.service import ClusteredService
from trimaran.service_api.session import ClientSession
from trimaran.service_api.typed import TimerMessage, on_timer
from trimaran.service_api.typed.codec import MessageCodec, ValueCodec, schema_to_bytes
from trimaran.service_api.typed.log_schemas import LogSchemas
from trimaran.service_api.wire.payload_header import PayloadKind


class Add(Command[int]):
    amount: int


class Total(Query[int]):
    pass


class Added(Event):
    amount: int


class Remind(TimerMessage):
    amount: int


class AddLater(Command[None]):
    amount: int


class Only(Command[str]):
    """What one of the services takes."""


class First(TypedService):
    """Two services take the same messages, and differ in nothing but the name."""

    events: ClassVar[tuple[type[Event], ...]] = (Added,)
    total: int = state()

    @handles(Add)
    def add(self, ctx: Context, message: Add) -> int:
        self.total += message.amount
        ctx.send(Added(message.amount))
        return self.total

    @handles(AddLater)
    def add_later(self, ctx: Context, message: AddLater) -> None:
        ctx.schedule(Remind(message.amount), after=1)

    @on_timer(Remind)
    def remind(self, ctx: Context, message: Remind) -> None:
        self.total += message.amount

    @answers(Total)
    def total_of(self, ctx: Context, message: Total) -> int:
        return self.total


class Second(First, name="second"):
    @handles(Only)
    def only(self, ctx: Context, message: Only) -> str:
        return "second"


class FirstClient(TypedClient, service="First"):
    pass


class SecondClient(TypedClient, service="second"):
    pass


class ThirdClient(TypedClient, service="third"):
    pass


class Untyped(ClusteredService):
    """Adds up the bytes that it is given."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.given.append(bytes(payload))
        return b"untyped " + payload

    def on_query(self, payload: memoryview) -> bytes:
        return b"untyped"

    def state_hash(self) -> object:
        return self.given


@pytest.fixture(params=[False, True], ids=["once", "doubled"])
def memory(request: pytest.FixtureRequest) -> Iterator[MemoryCluster]:
    """Members that run each service once, and such that run it twice to compare."""
    with MemoryCluster([First, Second], double_execution=request.param) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


def test_a_client_talks_to_the_service_that_it_names(memory: MemoryCluster) -> None:
    async def test() -> None:
        first, second = FirstClient(await memory.connect()), SecondClient(await memory.connect())
        heard = first.events(Added), second.events(Added)
        assert await first.call(Add(1)) == 1
        assert await second.call(Add(20)) == 20
        memory.kill_leader()
        assert await second.call(Add(20)) == 40
        assert (await first.ask(Total()), await second.ask(Total())) == (1, 40)
        assert [await anext(each) for each in heard] == [Added(1), Added(20)]
        services = memory.services[await memory.wait_for_leader()]
        assert [len(service.known_schemas) for service in services] == [1, 1]
        assert memory.service_errors == []

    memory.run(test())


def test_each_service_has_its_own_timers_and_snapshots(memory: MemoryCluster) -> None:
    async def test() -> None:
        first, second = FirstClient(await memory.connect()), SecondClient(await memory.connect())
        await first.call(AddLater(1))
        await second.call(AddLater(20))
        await second.call(AddLater(300))
        await memory.snapshot_and_restart()
        await memory.advance(2)
        assert (await first.ask(Total()), await second.ask(Total())) == (1, 320)
        await memory.assert_identical()

    memory.run(test())


def test_an_event_is_of_the_service_that_sent_it(memory: MemoryCluster) -> None:
    """One session with both: the classes of their events are the same."""

    async def test() -> None:
        cluster = await memory.connect()
        first, second = FirstClient(cluster), SecondClient(cluster)
        await first.call(Add(1))
        await second.call(Add(20))
        assert await anext(second.events(Added)) == Added(20)

    memory.run(test())


def test_a_client_without_a_name_finds_the_service_that_takes_a_message(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = TypedClient(await memory.connect())
        assert await client.call(Only()) == "second"
        with pytest.raises(LocalProtocolError, match=r"Add: First, second"):
            await client.call(Add(1))

        class Unknown(Command[int]):
            pass

        takes = r"First takes Add, AddLater, .*; second takes Add, AddLater, Only"
        with pytest.raises(LocalProtocolError, match=rf"Unknown: {takes}"):
            await client.call(Unknown())

    memory.run(test())


def test_a_service_that_does_not_run_is_told_with_those_that_do(memory: MemoryCluster) -> None:
    async def test() -> None:
        third = ThirdClient(await memory.connect())
        told = "third.*First, second"
        with pytest.raises(LocalProtocolError, match=told):
            await third.call(Add(1))
        with pytest.raises(LocalProtocolError, match=told):
            await anext(third.events(Added))

    memory.run(test())


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xc1\x31" + bytes(8), "service_id=3 .*First, second"),
        (
            b"hello",
            "no typed client.*First, second.*TypedClient",
        ),
        (b"", "no typed client"),
    ],
)
def test_a_request_that_no_service_takes_is_refused_and_runs_nowhere(
    memory: MemoryCluster, payload: bytes, told: str
) -> None:
    async def test() -> None:
        client = await memory.connect()
        with pytest.raises(RejectedError, match=told):
            await client.request(payload)
        assert memory.service_errors == []
        assert await FirstClient(client).call(Add(1)) == 1

    memory.run(test())


def test_bytes_for_another_service_are_refused_by_the_only_one_that_runs() -> None:
    async def test(memory: MemoryCluster) -> None:
        client = await memory.connect()
        with pytest.raises(QueryRefusedError, match=r"service_id=1,.*First.*service_id=0"):
            await client.query(b"\xc1\x12" + bytes(8))

    with MemoryCluster(First) as memory:
        memory.run(test(memory))


@pytest.mark.parametrize("services", [[Untyped, First], [First, Untyped]])
def test_an_untyped_service_beside_a_typed_one_gets_what_names_none(services: list[type[ClusteredService]]) -> None:
    async def test(memory: MemoryCluster) -> None:
        client = await memory.connect()
        typed = TypedClient(client)
        assert await typed.call(Add(7)) == 7
        assert await client.request(b"hello") == b"untyped hello"
        assert await client.request(b"\xc1\x71" + bytes(8)) == b"untyped \xc1\x71" + bytes(8)
        assert (await client.query(b"?")).payload == b"untyped"
        assert await typed.ask(Total()) == 7
        await memory.assert_identical()
        (untyped,) = (one for one in memory.services[await memory.wait_for_leader()] if isinstance(one, Untyped))
        assert untyped.given == [b"hello", b"\xc1\x71" + bytes(8)]
        assert memory.service_errors == []

    with MemoryCluster(services) as memory:
        memory.run(test(memory))


def test_a_cluster_without_typed_services_says_so() -> None:
    async def test(memory: MemoryCluster) -> None:
        with pytest.raises(LocalProtocolError, match=r"Add.*none runs"):
            await TypedClient(await memory.connect()).call(Add(1))

    with MemoryCluster([Untyped, Untyped]) as memory:
        memory.run(test(memory))


@pytest.mark.parametrize(("number", "service"), [*enumerate((Untyped, First, Second))])
def test_each_of_several_services_is_replayed_alone(
    number: int, service: type[ClusteredService], tmp_path: Path
) -> None:
    """Requests for a service that is not replayed reach no other one, though that could take their bytes."""

    async def test(memory: MemoryCluster) -> object:
        client = await memory.connect()
        await FirstClient(client).call(Add(1))
        await SecondClient(client).call(Add(20))
        await client.request(b"hello")
        await memory.settle()
        memory.save_directory(0, tmp_path / "node")
        return memory.services[0][number].state_hash()

    with MemoryCluster([Untyped, First, Second]) as memory:
        expected = memory.run(test(memory))

    replayed = replay_service(tmp_path / "node", service, service_id=number, service_count=3, bound="recorded")

    assert replayed.service.state_hash() == expected
    assert replayed.errors == []


def test_ready_made_services_run_beside_each_other() -> None:
    async def test(memory: MemoryCluster) -> None:
        counters, kv = CountersClient(await memory.connect()), KvClient(await memory.connect())
        assert await counters.add("visits") == 1
        await kv.put("visits", "many")
        assert await kv.get("visits") == b"many"
        assert await counters.get("visits") == 1
        with pytest.raises(LocalProtocolError, match=r"locks.*counters, kv"):
            await LocksClient(await memory.connect()).try_acquire("x")

    with MemoryCluster([CounterService, KvService]) as memory:
        memory.run(test(memory))


def test_two_services_of_one_name_are_refused() -> None:
    class Renamed(KvService):
        """A subclass is another version of the service, so it has its name."""

    with pytest.raises(ConfigurationError, match=r"services 0 and 2 .*name=kv"):
        MemoryCluster([KvService, First, Renamed])


def test_a_name_is_checked_when_the_class_is_defined() -> None:
    with pytest.raises(ConfigurationError, match=r"Spaced: name='a b' expected letters"):

        class Spaced(TypedService, name="a b"):
            pass


def test_the_log_says_which_service_a_message_is_for() -> None:
    schemas = LogSchemas()
    codec = MessageCodec(Add, ValueCodec(int, "the reply").schema)
    body = codec.encode(Add(5))

    schemas.view(codec.header(PayloadKind.SCHEMA, 3) + schema_to_bytes(codec.schema))

    seen = [schemas.view(codec.header(PayloadKind.COMMAND, service_id) + body) for service_id in (0, 3)]
    assert seen == [{"service_id": each, "message": "Add", "values": {"amount": 5}} for each in (0, 3)]


class Additions(ClientWorkload):
    """Adds to one of the services, by its own client; sums must be theirs alone."""

    def __init__(self) -> None:
        self.acknowledged = {"First": 0, "second": 0}
        self.sent = {"First": 0, "second": 0}

    async def use(self, client: ClusterClient, random: Random) -> None:
        kind, name, amount = random.choice(((FirstClient, "First", 1), (SecondClient, "second", 1_000)))
        self.sent[name] += amount
        await kind(client).call(Add(amount))
        self.acknowledged[name] += amount

    def invariant(self, service: Any) -> None:
        assert service.total % (1_000 if service.typed_name == "second" else 1) == 0
        assert service.total <= self.sent[service.typed_name]

    def at_rest(self, services: Any) -> None:
        for member in services:
            for service in member:
                assert self.acknowledged[service.typed_name] <= service.total <= self.sent[service.typed_name]


@pytest.mark.parametrize("seeds", [1, pytest.param(range(1, 8), marks=pytest.mark.campaign)])
def test_two_typed_services_under_faults(seeds: int | range) -> None:
    totals = simulate([First, Second], Additions, seeds=seeds, members=3, length=8)

    assert totals.failures == []
