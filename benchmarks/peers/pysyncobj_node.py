"""One node of PySyncObj, which takes commands as JSON lines on standard input.

Run it with `python -m trimaran.benchmarks.peers.pysyncobj_node SELF OTHER...`.

It turns the node's wheel itself, as fast as it goes, instead of the thread that does so every 50 ms. With a journal
file PySyncObj is slower and no more durable: it never syncs. Measured, messages a second by messages in flight:

    commands are sent              1       64    1,024
    each at once               3,759    8,926   13,366
    as a batch every 20 ms        49    3,103   34,077
    every 5 ms                   182   11,422   48,047
    every 1 ms                   552   19,671   69,854

So one command goes at once, and several as a batch every millisecond; a longer or a shorter period gives no more.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from array import array
from typing import Any, Final

from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

from ..statistics.histogram import Histogram

_TIME_LIMIT_S: Final = 100.0
_BATCH_PERIOD_S: Final = 0.001


class Store(SyncObj):  # type: ignore[misc]  # the package has no types
    """The replicated object: keeps the last message."""

    def __init__(self, address: str, others: list[str]) -> None:
        config = SyncObjConf(
            autoTick=False,
            appendEntriesPeriod=_BATCH_PERIOD_S,
            appendEntriesUseBatch=False,
            raftMinTimeout=1.0,
            raftMaxTimeout=2.0,
            connectionRetryTime=0.5,
            commandsQueueSize=1 << 20,
            logCompactionMinEntries=1 << 30,
            logCompactionMinTime=3600,
        )
        super().__init__(address, others, config)
        self._config = config
        self.last = b""

    def use_batches(self, is_used: bool) -> None:
        """Send commands as a batch each period, or each at once."""
        self._config.appendEntriesUseBatch = is_used

    @replicated  # type: ignore[untyped-decorator]  # the package has no types
    def put(self, message: bytes) -> int:
        """Take a message."""
        self.last = message
        return len(message)


def load(store: Store, *, inflight: int, messages: int, payload: int) -> dict[str, float]:
    """Keep so many calls in flight until so many are done."""
    store.use_batches(inflight > 1)
    message = b"x" * payload
    latencies_ns = array("q")
    failures: list[object] = []
    sent = 0

    def call() -> None:
        nonlocal sent
        sent += 1
        begin_ns = time.perf_counter_ns()

        def done(result: object, error: object) -> None:
            if error != FAIL_REASON.SUCCESS:
                failures.append(error)
            latencies_ns.append(time.perf_counter_ns() - begin_ns)
            if sent < messages:
                call()

        store.put(message, callback=done)

    started_ns = time.perf_counter_ns()
    for _ in range(min(inflight, messages)):
        call()
    deadline = time.monotonic() + _TIME_LIMIT_S
    while len(latencies_ns) < messages and not failures and time.monotonic() < deadline:
        store.doTick(0.0005)
    seconds = (time.perf_counter_ns() - started_ns) / 1e9
    if failures or len(latencies_ns) < messages:
        raise RuntimeError(f"done={len(latencies_ns)} of {messages} failure={failures[:1]}")
    histogram = Histogram()
    histogram.record_all(latencies_ns)
    return {
        "messages_per_s": messages / seconds,
        "p50_us": histogram.percentile_ns(50.0) / 1e3,
        "p99_us": histogram.percentile_ns(99.0) / 1e3,
    }


def answer(store: Store, request: dict[str, Any]) -> dict[str, object]:
    """Do what a line asks for."""
    try:
        if request["do"] == "role":
            leader = store._getLeader()
            if leader is None or not store.isReady():
                return {"role": "none"}
            return {"role": "leader" if str(leader) == str(store.selfNode) else "follower"}
        return dict(load(store, **{name: request[name] for name in ("inflight", "messages", "payload")}))
    except RuntimeError as error:
        return {"error": str(error)}


def main() -> None:
    """Turn the wheel and do what comes on stdin, until that ends."""
    store = Store(sys.argv[1], sys.argv[2:])
    pending = b""
    while True:
        store.doTick(0.0005)
        if not select.select([sys.stdin], [], [], 0)[0]:
            continue
        data = os.read(sys.stdin.fileno(), 65536)
        if not data:
            return
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            print(json.dumps(answer(store, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
