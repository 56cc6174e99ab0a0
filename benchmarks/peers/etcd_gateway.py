"""The operations of etcd that h2load has no way to do: a watch beside puts, and a lock that is handed round.

An answer decides the next request there, so the load is in Python, on etcd's JSON gateway: HTTP/1.1 connections that
stay open, a thread for each session. The gateway costs etcd an inner call by gRPC for each request, which our own rows
do not have; compare these rows with that in mind.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from typing import Any, Final

from ...service_api.errors import ClusterError
from ..statistics.histogram import Histogram
from .peer import SCANNED_KEYS, STORE_KEY, Measured

_Operation = Callable[[int], object]
"""One turn of a session, which is given the number of the turn."""

_TIMEOUT_S: Final = 60.0
_LEASE_S: Final = 120
_PUTS_AT_ONCE: Final = 100


class Gateway:
    """One connection to the JSON gateway of a member."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def call(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        """Send a request and give its answer.

        Raises:
            ClusterError: etcd refused it.
            OSError: it does not listen or answer.
        """
        answer = self.open(path, body)
        found: dict[str, Any] = json.loads(answer.read())
        return found

    def open(self, path: str, body: dict[str, object]) -> http.client.HTTPResponse:
        """Send a request and give its answer to be read line by line.

        Raises:
            ClusterError: etcd refused it.
        """
        self._connection.request("POST", path, json.dumps(body))
        answer = self._connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ClusterError(f"etcd refused {path}: status={answer.status} {answer.read()[:300]!r}")
        return answer


def watch_puts(port: int, count: int, value: bytes) -> Measured:
    """Put one key so often, one after the other, and measure until a watch has shown each.

    Raises:
        ClusterError: the watch ended, or showed something else.
    """
    asked: dict[str, object] = {"create_request": {"key": _base64(STORE_KEY)}}
    with (
        closing(Gateway(port)) as watching,
        closing(Gateway(port)) as putting,
        closing(watching.open("/v3/watch", asked)) as shown,
    ):
        _next(shown)  # it says that the watch is there

        def put_and_see(number: int) -> None:
            wanted = _base64(b"%d-" % number + value)
            putting.call("/v3/kv/put", {"key": _base64(STORE_KEY), "value": wanted})
            seen = [event["kv"]["value"] for event in _next(shown).get("events", ())]
            if seen != [wanted]:
                raise ClusterError(f"the watch showed {seen} expected {[wanted]}")

        return _measure(1, count, lambda: nullcontext(put_and_see))


def hand_lock_round(port: int, sessions: int, count: int) -> Measured:
    """Let sessions take one lock and give it back, so often in all.

    Raises:
        ClusterError: etcd refused something.
    """

    @contextmanager
    def open_session() -> Iterator[_Operation]:
        with closing(Gateway(port)) as gateway:
            lease = gateway.call("/v3/lease/grant", {"TTL": _LEASE_S})["ID"]

            def hold(_: int) -> None:
                taken = gateway.call("/v3/lock/lock", {"name": _base64(STORE_KEY), "lease": lease})
                gateway.call("/v3/lock/unlock", {"key": taken["key"]})

            yield hold

    return _measure(sessions, count, open_session)


def write_scanned_keys(port: int, value: bytes) -> None:
    """Write the keys that are scanned.

    Raises:
        ClusterError: etcd refused it.
    """
    with closing(Gateway(port)) as gateway:
        for first in range(0, SCANNED_KEYS, _PUTS_AT_ONCE):
            keys = (b"scanned-%06d" % number for number in range(first, min(first + _PUTS_AT_ONCE, SCANNED_KEYS)))
            puts = [{"requestPut": {"key": _base64(key), "value": _base64(value)}} for key in keys]
            gateway.call("/v3/kv/txn", {"success": puts})


def _measure(sessions: int, count: int, open_session: Callable[[], AbstractContextManager[_Operation]]) -> Measured:
    """Run `count` operations in all from threads, a session in each."""
    numbers = itertools.count()
    latencies = Histogram()

    def work(operate: _Operation) -> array[int]:
        latencies_ns = array("q")
        while (number := next(numbers)) < count:
            begin_ns = time.perf_counter_ns()
            operate(number)
            latencies_ns.append(time.perf_counter_ns() - begin_ns)
        return latencies_ns

    with ExitStack() as stack:
        opened = [stack.enter_context(open_session()) for _ in range(sessions)]
        pool = stack.enter_context(ThreadPoolExecutor(sessions))
        begin_s, cpu_s = time.monotonic(), time.process_time()
        for found in pool.map(work, opened):
            latencies.record_all(found)
        took_s, cpu_s = time.monotonic() - begin_s, time.process_time() - cpu_s
    return Measured.of(latencies, took_s, client_s=cpu_s)


def _next(shown: http.client.HTTPResponse) -> dict[str, Any]:
    """Read the next line of a watch.

    Raises:
        ClusterError: it has ended.
    """
    line = shown.readline()
    if not line:
        raise ClusterError("the watch has ended")
    result: dict[str, Any] = json.loads(line)["result"]
    return result


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
