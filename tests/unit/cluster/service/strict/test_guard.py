"""Strict mode: what a callback calls is reported with its line, whoever imported it and through whichever library."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from time import monotonic as clock
from typing import Any

import pytest
import structlog.testing

from trimaran.cluster.service.strict.strict_log import log_findings
from trimaran.cluster.testing import MemoryCluster, ServiceHarness
from trimaran.service_api import Cluster, ClusteredService, ClusterError, SnapshotImage


@dataclass
class Shown:
    """Its `repr` asks for the thread, to find recursion."""

    part: int = 1


FORBIDDEN: dict[str, tuple[str, Callable[[], Any]]] = {
    "time.time()": ("wall-clock", lambda: time.time()),
    "time.monotonic()": ("wall-clock", lambda: clock()),
    "datetime.datetime.now()": ("wall-clock", lambda: datetime.now(UTC)),
    "datetime.date.today()": ("wall-clock", lambda: date.today()),
    "time.sleep()": ("wall-clock", lambda: time.sleep(0)),
    "random.random()": ("random", lambda: random.random()),
    "random.getrandbits()": ("random", lambda: random.choice([1, 2])),
    "random.Random()": ("random", lambda: Random()),
    "uuid.uuid4()": ("random", lambda: uuid.uuid4()),
    "secrets.token_bytes()": ("random", lambda: secrets.token_bytes(4)),
    "os.urandom()": ("random", lambda: os.urandom(4)),
    "os.environ()": ("environment", lambda: os.environ.get("HOME")),
    "os.getpid()": ("environment", lambda: os.getpid()),
    "open()": ("file", lambda: Path(os.devnull).read_bytes()),
    "os.stat()": ("file", lambda: Path("nothing here").exists()),
    "tempfile.TemporaryFile()": ("file", lambda: TemporaryFile().close()),
    "socket.socket()": ("network", lambda: socket.socket().close()),
    "subprocess.run()": ("process", lambda: subprocess.run([sys.executable, "-V"], capture_output=True, check=True)),
    "threading.Thread()": ("thread", lambda: threading.Thread(target=int).start()),
    "asyncio.get_running_loop()": ("event-loop", lambda: _loop()),
}
LEGAL: list[Callable[[], Any]] = [
    lambda: Random(7).random(),
    lambda: logging.getLogger("service").warning("a line"),
    lambda: structlog.get_logger().warning("service.spoke"),
    lambda: datetime.fromtimestamp(0, UTC),
    lambda: sorted({3, 1, 2}),
    lambda: __import__("colorsys"),
    lambda: repr(Shown()),
]


def _loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Calling(ClusteredService):
    """Calls what a request names by number."""

    def __init__(self, calls: list[Callable[[], Any]]) -> None:
        self.calls = calls

    def on_start(self, cluster: Cluster, image: SnapshotImage | None) -> None:
        self.cluster = cluster

    def on_request(self, session: object, timestamp: int, payload: memoryview) -> bytes:
        self.cluster.uuid()
        self.calls[int(bytes(payload))]()
        return b"done"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_call_that_leaves_the_log_is_told_of_with_its_line(what: str) -> None:
    rule, call = FORBIDDEN[what]
    harness = ServiceHarness(lambda: Calling([call]))
    line = _loop.__code__.co_firstlineno + 2 if "loop" in what else call.__code__.co_firstlineno

    with pytest.raises(AssertionError) as caught:
        harness.request(b"0")

    assert str(caught.value).startswith(f"{__file__}:{line}: {rule}: {what}; why: ")


@pytest.mark.parametrize("number", range(len(LEGAL)))
def test_what_loggers_imports_and_seeded_generators_do_is_no_finding(number: int) -> None:
    harness = ServiceHarness(lambda: Calling(LEGAL))

    assert harness.request(b"%d" % number) == b"done"


def test_nobody_is_watched_outside_of_callbacks() -> None:
    harness = ServiceHarness(lambda: Calling([lambda: time.time()]), strict=False)
    strict = ServiceHarness(lambda: Calling([int]))

    harness.request(b"0")
    strict.request(b"0")

    assert time.time() > 0
    assert sys.getprofile() is None


def test_a_memory_cluster_fails_at_its_end_and_answers_as_before() -> None:
    cluster = MemoryCluster(lambda: Calling([lambda: time.time()]))

    async def use() -> bytes:
        client = await cluster.connect()
        return await client.request(b"0")

    assert cluster.run(use()) == b"done"
    (finding,) = cluster.strict_findings
    assert (finding.rule, finding.what) == ("wall-clock", "time.time()")
    with pytest.raises(AssertionError, match=r"wall-clock: time\.time"):
        cluster.close()


def test_a_memory_cluster_that_is_not_strict_lets_it_pass() -> None:
    with MemoryCluster(lambda: Calling([lambda: time.time()]), strict=False) as cluster:

        async def use() -> bytes:
            client = await cluster.connect()
            return await client.request(b"0")

        assert cluster.run(use()) == b"done"


def test_a_callback_that_raises_does_not_end_the_watch() -> None:
    def fail() -> None:
        raise ValueError("no")

    cluster = MemoryCluster(lambda: Calling([fail, lambda: os.urandom(1)]))

    async def use() -> None:
        client = await cluster.connect()
        with pytest.raises(ClusterError):
            await client.request(b"0")
        await client.request(b"1")

    cluster.run(use())
    assert [finding.what for finding in cluster.strict_findings] == ["os.urandom()"]
    cluster.strict_findings.clear()
    cluster.close()


def test_a_node_logs_a_place_once_with_the_position_of_the_entry() -> None:
    with MemoryCluster(lambda: Calling([lambda: time.time()]), members=1, strict=False, logs=True) as cluster:
        (member,) = cluster._cluster.members.values()

        async def use() -> None:
            client = await cluster.connect()
            assert member.node is not None
            member.node.service_agent.guard = log_findings(member.node.service_agent)
            await client.request(b"0")
            await client.request(b"0")

        with structlog.testing.capture_logs() as lines:
            cluster.run(use())

    (line,) = [line for line in lines if line["event"] == "service.left_log"]
    assert (line["path"], line["what"], line["log_level"]) == (__file__, "time.time()", "error")
    assert line["culprit"] == f"test_guard.py:{line['line']}"
    assert line["log_position"] > 0
