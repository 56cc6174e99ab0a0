"""A client that opens another session where one has ended: real members, virtual time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from trimaran import ClusterClient, RequestIndeterminateError
from trimaran.client import ConnectRejectedError, RejectedError, SessionClosed, SessionOpened
from trimaran.client.conductor import ClientConductor
from trimaran.client.config import ClientConfig
from trimaran.client.ready_made import KvClient, LocksClient, QueueClient
from trimaran.client.ready_made.queue import QueueJob
from trimaran.client.reopening import REJECTION_LIMIT
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api.errors import ClusterError, ConfigurationError, SessionClosedError
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService


@pytest.fixture
def memory() -> Iterator[MemoryCluster]:
    with MemoryCluster([KvService, LockService, QueueService]) as cluster:
        cluster.run(cluster.wait_for_leader())
        yield cluster


async def connect(memory: MemoryCluster, errors: list[ClusterError], is_shared: bool = False) -> ClusterClient:
    settings = {"reopen": True, "on_reopen": errors.append, "new_leader_timeout_s": 2.0, "connect_timeout_s": 2.0}
    return await (memory.share(**settings).open_session() if is_shared else memory.connect(**settings))


async def cut(memory: MemoryCluster, seconds: float = 20) -> None:
    """Cut the client off until its session has ended, on both sides."""
    memory.partition(["client"], [0, 1, 2])
    await memory.advance(seconds)
    memory.heal()


@pytest.mark.parametrize("is_shared", [False, True])
def test_calls_go_on_in_another_session(memory: MemoryCluster, is_shared: bool) -> None:
    async def test() -> None:
        errors: list[ClusterError] = []
        client = await connect(memory, errors, is_shared)
        kv, first_id = KvClient(client), client.cluster_session_id
        await kv.put("a", "1")

        await cut(memory)
        assert await kv.get("a") == b"1"
        assert await kv.put("a", "2") == 2

        assert client.cluster_session_id != first_id
        assert [type(error) for error in errors] == [SessionClosedError]
        await client.aclose()
        assert client.is_closed
        with pytest.raises(SessionClosedError):
            await kv.get("a")

    memory.run(test())


def test_calls_wait_for_the_next_session_as_long_as_they_have_time(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await connect(memory, [])
        kv = KvClient(client)
        await kv.put("a", "1")
        memory.partition(["client"], [0, 1, 2])
        late = asyncio.ensure_future(client.request(b"x", timeout_s=60))
        await memory.advance(15)
        assert not client.has_leader
        assert not client.is_closed
        assert not client.try_offer(b"x")
        waiting = asyncio.ensure_future(kv.put("a", "2"))
        with pytest.raises(RejectedError, match="timeout_s=1"):
            await client.request(b"x", timeout_s=1)
        memory.heal()
        assert await waiting == 2
        with pytest.raises(RequestIndeterminateError):
            await late  # it was sent in the session that has ended

    memory.run(test())


def test_the_end_of_a_client_ends_what_waits_for_a_session(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await connect(memory, [])
        memory.partition(["client"], [0, 1, 2])
        await memory.advance(15)
        asked = asyncio.ensure_future(client.query(b"x"))
        received = asyncio.ensure_future(anext(client.egress(), None))
        events = asyncio.ensure_future(anext(client.connection_events()))
        offered = asyncio.ensure_future(client.offer(b"x"))
        await asyncio.sleep(0.1)

        await client.aclose()

        with pytest.raises(SessionClosedError):
            await asked
        with pytest.raises(SessionClosedError):
            await offered
        assert await received is None
        await events
        memory.heal()

    memory.run(test())


def test_events_of_all_sessions_are_one_stream(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await connect(memory, [])

        async def read() -> list[type]:
            events = client.connection_events()
            return [type(event) async for event in events if isinstance(event, SessionOpened | SessionClosed)]

        reading = asyncio.ensure_future(read())
        await cut(memory)
        await KvClient(client).put("a", "1")
        await client.aclose()
        assert await reading == [SessionOpened, SessionClosed, SessionOpened, SessionClosed]

    memory.run(test())


def test_a_lock_is_lost_with_its_session_and_a_claim_that_waits_is_told(memory: MemoryCluster) -> None:
    async def test() -> None:
        errors: list[ClusterError] = []
        locks = LocksClient(await connect(memory, errors))
        other = LocksClient(await memory.connect())
        held = await locks.acquire("a")
        _ = await other.acquire("b")
        waiting = asyncio.ensure_future(locks.acquire("b"))
        await asyncio.sleep(0.5)

        memory.partition(["client"], [0, 1, 2])
        async with asyncio.timeout(15):
            await held.lost.wait()
        assert errors == []  # there is no other session yet
        await memory.advance(10)
        memory.heal()
        with pytest.raises(SessionClosedError, match="lock='b'"):
            await waiting
        assert await held.release() is False
        async with asyncio.timeout(20):
            assert (await locks.acquire("a")).token > held.token

    memory.run(test())


def test_a_watch_and_a_worker_go_on(memory: MemoryCluster) -> None:
    async def test() -> None:
        client = await connect(memory, [])
        kv, queues = KvClient(client), QueueClient(client)
        done: asyncio.Queue[bytes] = asyncio.Queue()

        async def handle(job: QueueJob) -> None:
            done.put_nowait(job.body)

        working = asyncio.ensure_future(queues.work("q", handle))
        async with kv.watch(prefix="w") as changes:
            await kv.put("w", "1")
            assert (await anext(changes)).value == b"1"
            await cut(memory)
            await kv.put("w", "2")
            await queues.send("q", "job")
            assert (await anext(changes)).value == b"2"
            assert await done.get() == b"job"
            begun_s = asyncio.get_running_loop().time()
            await kv.put("w", "3")
            assert (await anext(changes)).value == b"3"
            assert asyncio.get_running_loop().time() - begun_s < 0.5  # pushed, not asked for
        working.cancel()
        await asyncio.wait({working})

    memory.run(test())


def test_a_callback_that_raises_stops_nothing(memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: ClusterError) -> None:
        raise ZeroDivisionError

    async def test() -> None:
        failures: list[object] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_exception_handler", lambda context: failures.append(context["exception"]))
        client = await memory.connect(reopen=True, on_reopen=fail, new_leader_timeout_s=2.0)
        await cut(memory)
        assert await KvClient(client).put("a", "1") == 1
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    memory.run(test())


def test_a_callback_without_reopen_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_reopen"):
        ClientConfig(endpoints=("127.0.0.1:1",), on_reopen=print)


@pytest.mark.parametrize("seconds", [0, 8, 15, 15.7, 20])
def test_the_end_of_a_shared_connection_ends_clients_that_would_reopen(
    memory: MemoryCluster, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Also while they open their next sessions, and while they wait before they try again."""

    async def test() -> None:
        failures: list[dict[str, object]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_exception_handler", failures.append)
        shared = memory.share(reopen=True, new_leader_timeout_s=2.0, connect_timeout_s=2.0)
        clients = [await shared.open_session() for _ in range(3)]
        memory.partition(["client"], [0, 1, 2])
        await memory.advance(seconds)
        offered = asyncio.ensure_future(clients[0].offer(b"x")) if seconds > 10 else None
        received = asyncio.ensure_future(anext(clients[1].egress(), None))
        await asyncio.sleep(0)

        await shared.aclose()

        assert [client.is_closed for client in clients] == [True, True, True]
        if offered is not None:
            with pytest.raises(SessionClosedError):
                await offered
        assert await received is None
        with pytest.raises(SessionClosedError):
            await clients[2].request(b"x")
        assert shared.session_count == 0
        await memory.advance(10)
        gc.collect()
        assert failures == []
        memory.heal()

    memory.run(test())


def test_credentials_that_are_refused_are_not_tried_for_ever(memory: MemoryCluster) -> None:
    """What the client was let in with ended: every call says so, with the refusal."""

    async def test() -> None:
        client = await connect(memory, [])
        attempts = list[int]()

        async def refuse(endpoints: tuple[str, ...]) -> ClientConductor:
            attempts.append(1)
            raise ConnectRejectedError("AUTHENTICATION_REJECTED", "authentication rejected")

        assert client._reopening is not None
        client._reopening._open_session = refuse
        memory.partition(["client"], [0, 1, 2])
        await memory.advance(15)
        asked = asyncio.ensure_future(client.query(b"x", timeout_s=600))
        await memory.advance(60)

        with pytest.raises(SessionClosedError, match="code=AUTHENTICATION_REJECTED"):
            await asked
        assert client.is_closed
        assert len(attempts) == REJECTION_LIMIT
        with pytest.raises(SessionClosedError, match="code=AUTHENTICATION_REJECTED"):
            await client.request(b"x")
        memory.heal()

    memory.run(test())
