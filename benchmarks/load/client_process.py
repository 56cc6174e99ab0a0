"""A process that makes the traffic of one session, or of many.

Run it with `python -m trimaran.benchmarks.load.client_process PARAMETERS`.
PARAMETERS is the JSON of `ClientParameters`. It talks to the harness in lines: JSON events on standard
output, "go" on standard input before each phase. The end of standard input ends it.

    -> {"event": "progress", "replies": n}   while many sessions are opened: how many are
    -> {"event": "ready"}       connected, garbage collector tuned        <- go
    -> {"event": "warmed"}      the warm-up's replies are all there       <- go
    -> {"event": "progress", "replies": n}   a few times a second
    -> {"event": "measured"}    the replies are all there; nothing was counted yet  <- go, and spans to look at, if any
    -> {"event": "result", ...}  see `_result`                                      <- go
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import uvloop

from ...client import ClientConfig, ClusterClient, TlsSettings
from ..machine.environment import tune_garbage_collector
from ..rig.resident import resident_bytes
from ..statistics.histogram import Histogram
from .arrivals import Burst
from .collection_watch import CollectionWatch
from .echo import EchoLoad, Phase
from .lines import ProcessParameters, emit, next_go, open_commands, run_process
from .requests import RequestLoad, TypedRequestLoad
from .sessions import SessionLoad
from .slow_moments import STEP_BITS, latencies_since_sent, latencies_within, slow_moments

_PROGRESS_INTERVAL_S = 0.25
_SESSIONS_PER_LINE = 100

RunPhase: TypeAlias = Callable[[int], Coroutine[Any, Any, Phase]]
Load: TypeAlias = EchoLoad | RequestLoad | SessionLoad


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientParameters(ProcessParameters):
    """What one client process is told."""

    endpoints: list[str]
    payload_length: int
    inflight: int
    warmup_count: int
    message_count: int
    rate_per_s: float | None
    """Open loop: this client's share of the rate; None: closed loop."""
    bursts: Sequence[Sequence[float]] = ()
    """Open loop: when more is due, each the fields of a `Burst`."""
    slow_ms: float | None = None
    """Open loop: tell the moments in which messages took this long; None: tell none."""
    connect_timeout_s: float
    uses_requests: bool = False
    """Whether messages are requests, in a closed loop."""
    is_typed: bool = False
    """Whether requests are commands of a typed service."""
    batch_count: int = 1
    """Requests that are made in one call; 1: each by itself."""
    session_count: int | None = None
    """Sessions that the traffic goes round, in a closed loop; None: one, whose client is `EchoLoad`'s."""
    is_shared: bool = False
    """Whether these sessions share one connection to each member."""
    tls: dict[str, str] | None = None
    """The fields of `TlsSettings`, for one session; None: plain text."""
    measure_s: float | None = None
    """Measure for about so long, at the rate of the warm-up, and `message_count` messages at least."""


async def run(parameters: ClientParameters) -> None:
    """Connect, warm up, measure, report."""
    commands = await open_commands()
    watch = None if parameters.slow_ms is None else CollectionWatch()  # before anything is timed: it imports much
    async with _open_load(parameters) as (load, run_phase, cluster):
        tune_garbage_collector()
        emit("ready")
        await next_go(commands)
        warmup = await run_phase(parameters.warmup_count)
        message_count = _message_count(parameters, warmup)
        emit("warmed", message_count=message_count)
        await next_go(commands)
        before = os.times()
        with watch or nullcontext():
            async with asyncio.TaskGroup() as tasks:
                progress = tasks.create_task(_report_progress(load))
                phase = await run_phase(message_count)
                progress.cancel()
        after = os.times()
        emit("measured")
        groups = await next_go(commands)
        result = _result(phase, before, after, step_bits=0 if parameters.slow_ms is None else STEP_BITS)
        if parameters.slow_ms is not None and watch is not None:
            result |= _by_time(phase, parameters.slow_ms, json.loads(groups or "{}"))
            result["collections"] = watch.to_json()
        ran_twice_count = load.ran_twice_count if isinstance(load, RequestLoad) else 0
        emit("result", ran_twice_count=ran_twice_count, leader_member_id=cluster.leader_member_id, **result)
        await next_go(commands)


@asynccontextmanager
async def _open_load(parameters: ClientParameters) -> AsyncIterator[tuple[Load, RunPhase, ClusterClient]]:
    """Connect; gives the load, what runs a number of its messages, and a client of it."""
    length, inflight = parameters.payload_length, parameters.inflight
    timeout_s = parameters.connect_timeout_s
    if parameters.session_count is not None:
        sessions = SessionLoad(payload_length=length, inflight=inflight)
        async with sessions.connected(
            parameters.endpoints,
            parameters.session_count,
            connect_timeout_s=timeout_s,
            on_opened=_report_opened,
            is_shared=parameters.is_shared,
        ) as cluster:
            yield sessions, sessions.run, cluster
        return
    load: EchoLoad | RequestLoad
    if parameters.uses_requests:
        kind = TypedRequestLoad if parameters.is_typed else RequestLoad
        load = kind(payload_length=length, inflight=inflight, batch_count=parameters.batch_count)
    else:
        bursts = [Burst(*fields) for fields in parameters.bursts]
        load = EchoLoad(payload_length=length, inflight=inflight, rate_per_s=parameters.rate_per_s, bursts=bursts)
    config = ClientConfig(
        endpoints=tuple(parameters.endpoints),
        connect_timeout_s=timeout_s,
        client_info="benchmark",
        tls=None if parameters.tls is None else TlsSettings(**parameters.tls),
    )
    listener = load if isinstance(load, EchoLoad) else None
    async with ClusterClient.connect(egress_listener=listener, config=config) as cluster:
        yield load, partial(load.run, cluster), cluster


def _message_count(parameters: ClientParameters, warmup: Phase) -> int:
    """How many messages are measured: as told, or as many as take the time at the rate of the warm-up."""
    if parameters.measure_s is None:
        return parameters.message_count
    warmup_s = (warmup.ended_ns - warmup.started_ns) / 1e9
    return max(parameters.message_count, round(parameters.warmup_count / warmup_s * parameters.measure_s))


def _result(phase: Phase, before: os.times_result, after: os.times_result, *, step_bits: int) -> dict[str, Any]:  # JSON
    latencies, lags = Histogram(), Histogram()
    latencies.record_all(phase.latencies_ns, step_bits=step_bits)
    lags.record_all(phase.send_lags_ns, step_bits=step_bits)
    return {
        "started_ns": phase.started_ns,
        "ended_ns": phase.ended_ns,
        "user_seconds": after.user - before.user,
        "system_seconds": after.system - before.system,
        "latencies": latencies.to_json(),
        "send_lags": lags.to_json(),
        "resident_bytes": resident_bytes(os.getpid()),
    }


def _by_time(phase: Phase, slow_ms: float, groups: dict[str, list[list[int]]]) -> dict[str, Any]:  # JSON
    return {
        "moments": slow_moments(phase, round(slow_ms * 1e6)),
        "since_sent": latencies_since_sent(phase).to_json(),
        "groups": latencies_within(phase, groups),
    }


def _report_opened(count: int) -> None:
    if not count % _SESSIONS_PER_LINE:
        emit("progress", replies=count)


async def _report_progress(load: Load) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_INTERVAL_S)
        emit("progress", replies=load.received_count)


def main() -> None:
    """Run the process."""
    run_process(lambda: uvloop.run(run(ClientParameters.from_json(sys.argv[1]))))


if __name__ == "__main__":
    main()
