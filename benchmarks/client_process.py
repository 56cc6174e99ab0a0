"""A process that makes the traffic of one session: `python -m benchmarks.client_process PARAMETERS`.

PARAMETERS is the JSON of `ClientParameters`. It talks to the harness in lines: JSON events on standard
output, "go" on standard input before each phase. The end of standard input ends it.

    -> {"event": "ready"}       connected, garbage collector tuned        <- go
    -> {"event": "warmed"}      the warm-up's replies are all there       <- go
    -> {"event": "progress", "replies": n}   a few times a second
    -> {"event": "result", ...}  see `_result`
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any, Self

import uvloop

from client import ClusterClient
from service_api.errors import ClusterError

from .environment import tune_garbage_collector
from .histogram import Histogram
from .load import EchoLoad, Phase
from .report import first_leaf
from .request_load import RequestLoad

_PROGRESS_INTERVAL_S = 0.25


@dataclass(slots=True, frozen=True, kw_only=True)
class ClientParameters:
    """What one client process is told."""

    endpoints: list[str]
    payload_length: int
    inflight: int
    warmup_count: int
    message_count: int
    rate_per_s: float | None
    """Open loop: this client's share of the rate; None: closed loop."""
    connect_timeout_s: float
    uses_requests: bool = False
    """Whether messages are requests, in a closed loop."""

    def to_json(self) -> str:
        """Give the form that the process takes."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` gave."""
        return cls(**json.loads(text))


async def run(parameters: ClientParameters) -> None:
    """Connect, warm up, measure, report."""
    commands = await _open_commands()
    load = _make_load(parameters)
    async with ClusterClient.connect(
        parameters.endpoints,
        egress_listener=load if isinstance(load, EchoLoad) else None,
        connect_timeout_s=parameters.connect_timeout_s,
        client_info="benchmark",
    ) as cluster:
        tune_garbage_collector()
        _emit("ready", leader_member_id=cluster.leader_member_id)
        await _next_go(commands)
        await load.run(cluster, parameters.warmup_count)
        _emit("warmed")
        await _next_go(commands)
        cpu_seconds = _cpu_seconds()
        async with asyncio.TaskGroup() as tasks:
            progress = tasks.create_task(_report_progress(load))
            phase = await load.run(cluster, parameters.message_count)
            progress.cancel()
        ran_twice_count = load.ran_twice_count if isinstance(load, RequestLoad) else 0
        _emit("result", ran_twice_count=ran_twice_count, **_result(phase, _cpu_seconds() - cpu_seconds))
        await _next_go(commands)


def _make_load(parameters: ClientParameters) -> EchoLoad | RequestLoad:
    length, inflight = parameters.payload_length, parameters.inflight
    if parameters.uses_requests:
        return RequestLoad(payload_length=length, inflight=inflight)
    return EchoLoad(payload_length=length, inflight=inflight, rate_per_s=parameters.rate_per_s)


def _result(phase: Phase, cpu_seconds: float) -> dict[str, Any]:  # JSON
    latencies, lags = Histogram(), Histogram()
    latencies.record_all(phase.latencies_ns)
    lags.record_all(phase.send_lags_ns)
    return {
        "started_ns": phase.started_ns,
        "ended_ns": phase.ended_ns,
        "cpu_seconds": cpu_seconds,
        "latencies": latencies.to_json(),
        "send_lags": lags.to_json(),
    }


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _emit(event: str, **values: object) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


async def _report_progress(load: EchoLoad | RequestLoad) -> None:
    while True:
        await asyncio.sleep(_PROGRESS_INTERVAL_S)
        _emit("progress", replies=load.received_count)


async def _open_commands() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _next_go(commands: asyncio.StreamReader) -> None:
    if not await commands.readline():
        raise ClusterError("the harness is gone: end of standard input")


def main() -> None:
    """Run the process; a failure is one line on standard error and exit status 1."""
    try:
        uvloop.run(run(ClientParameters.from_json(sys.argv[1])))
    except (ClusterError, BaseExceptionGroup) as error:
        leaf = first_leaf(error)
        if not isinstance(leaf, ClusterError):
            raise
        print(f"benchmark client: {leaf}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
