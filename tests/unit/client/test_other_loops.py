"""A client belongs to one event loop: from any other place each public method refuses, and says what to do."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.unit.client.fake_member import fake_cluster
from trimaran.client import ClusterClient
from trimaran.client.streams import ConnectionEvents, EgressIterator
from trimaran.service_api.connecting import ClosedAtExit
from trimaran.service_api.errors import LocalProtocolError

USES: dict[str, Callable[[ClusterClient], object]] = {
    "try_offer": lambda client: client.try_offer(b"x"),
    "offer": lambda client: client.offer(b"x"),
    "query": lambda client: client.query(b"x"),
    "egress": lambda client: client.egress(),
    "connection_events": lambda client: client.connection_events(),
    "drain": lambda client: client.drain(),
    "request": lambda client: client.request(b"x"),
    "request_many": lambda client: client.request_many([b"x"]),
    "take_snapshot": lambda client: client.take_snapshot(),
    "transfer_leadership": lambda client: client.transfer_leadership(),
    "call_at_session_end": lambda client: client.call_at_session_end(lambda: None),
    "forget_at_session_end": lambda client: client.forget_at_session_end(lambda: None),
    "aclose": lambda client: client.aclose(),
    "__aexit__": lambda client: client.__aexit__(None, None, None),
}
HARMLESS = {"connect", "__aenter__"}
"""Makes a client of the loop that runs; gives the client itself."""


async def outcome(use: Callable[[], object]) -> str:
    """What a use comes to: the words of the error, or nothing."""
    try:
        result = use()
        if inspect.isawaitable(result):
            await result
    except LocalProtocolError as error:
        return str(error)
    return ""


def in_another_loop(main: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """Run a coroutine on a new loop in a thread of its own."""
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(main())))
    thread.start()
    thread.join()
    return results[0]


def test_every_public_method_is_asked() -> None:
    methods = {
        name
        for name, member in inspect.getmembers(ClusterClient, callable)
        if name in {**vars(ClosedAtExit), **vars(ClusterClient)}
        and (not name.startswith("_") or name in ("__aenter__", "__aexit__"))
    }

    assert methods == USES.keys() | HARMLESS


@pytest.mark.parametrize("name", USES)
async def test_another_event_loop_is_refused(name: str) -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        said = await asyncio.to_thread(in_another_loop, lambda: outcome(lambda: USES[name](client)))

        assert "another event" in said
        assert not client.is_closed


@pytest.mark.parametrize("name", USES)
async def test_a_thread_without_a_loop_is_refused(name: str) -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:

        def use() -> str:
            try:
                result = USES[name](client)
                if inspect.iscoroutine(result):
                    result.send(None)
            except LocalProtocolError as error:
                return str(error)
            return ""

        said = await asyncio.to_thread(use)

        assert "another event" in said
        assert not client.is_closed


@pytest.mark.parametrize("kind", [EgressIterator, ConnectionEvents])
async def test_an_iterator_that_went_to_another_loop_is_refused_also_when_something_is_there(kind: type) -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        iterator: AsyncIterator[object] = client.egress() if kind is EgressIterator else client.connection_events()
        assert isinstance(iterator, kind)
        await client.offer(b"x")
        await cluster.until(lambda: bool(cluster.members[0].payloads))

        said = await asyncio.to_thread(in_another_loop, lambda: outcome(lambda: anext(iterator)))

        assert "another event" in said


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
async def test_a_fork_is_refused() -> None:
    async with fake_cluster(1) as cluster, ClusterClient.connect(cluster.endpoints) as client:
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                client.try_offer(b"x")
                said = "accepted"
            except LocalProtocolError as error:
                said = str(error)
            os.write(write_end, said.encode())
            os._exit(0)
        os.close(write_end)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        said = os.read(read_end, 1000).decode()
        os.close(read_end)

        assert status == 0
        assert "another event" in said
