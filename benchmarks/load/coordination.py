"""The harness's side of its client processes: start them, lead them through the phases, collect results."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ClusterTimeoutError
from ..rig.meter import Meter, Usage, usage_report
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessError, ProcessGroup
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, latency_figures, percentile_curve
from .client_process import ClientParameters
from .lines import ProcessParameters

Event = dict[str, Any]  # one line of JSON from a client process

_CHECK_INTERVAL_S: Final = 0.2
_LINE_LIMIT: Final = 16 << 20
"""The longest line that a client may print, in bytes: its histogram."""


class ClientProcess:
    """One client process and the lines to and from it."""

    def __init__(self, process: ManagedProcess, events: asyncio.StreamReader, pipe: asyncio.ReadTransport) -> None:
        self.process = process
        self._events = events
        self._pipe = pipe

    @classmethod
    async def spawn(
        cls,
        group: ProcessGroup,
        name: str,
        parameters: ProcessParameters,
        *,
        log_path: Path,
        module: str = "load.client_process",
    ) -> ClientProcess:
        """Start a client process in `group`: a module of `trimaran.benchmarks`, given its parameters."""
        process = group.spawn(
            name,
            (sys.executable, "-m", f"trimaran.benchmarks.{module}", parameters.to_json()),
            log_path=log_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        events = asyncio.StreamReader(limit=_LINE_LIMIT)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(events), process.popen.stdout
        )
        return cls(process, events, pipe)

    def close(self) -> None:
        """Stop reading; the process is its group's to end."""
        self._pipe.close()

    def go(self, what: str = "") -> None:
        """Let it do the next phase; `what` it is told besides."""
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(f"go {what}".strip().encode() + b"\n")
        self.process.popen.stdin.flush()

    async def wait_for(self, wanted: str, on_progress: Callable[[int], None] | None = None) -> Event:
        """Wait for an event.

        Raises:
            ProcessError: the process ended instead; the message has what it printed.
        """
        while line := await self._events.readline():
            event: Event = json.loads(line)
            if event["event"] == wanted:
                return event
            if on_progress is not None and event["event"] == "progress":
                on_progress(event["replies"])
        # The process closed its output, so it is about to end by itself: that takes no time worth a yield.
        self.process.popen.wait()
        process = self.process
        status = process.popen.returncode
        tail = process.log_tail()
        last = tail.rpartition("\n")[2]
        raise ProcessError(f"{process.name} failed: exit_status={status}: {last or 'nothing was said'}\n{tail}")


@asynccontextmanager
async def spawn_clients(
    group: ProcessGroup,
    parameters: Sequence[ProcessParameters],
    *,
    directory: Path,
    name: str = "client",
    module: str = "load.client_process",
) -> AsyncIterator[list[ClientProcess]]:
    """Start a client process for each of the parameters; what they print is in files of their names."""
    clients: list[ClientProcess] = []
    try:
        for index, told in enumerate(parameters):
            log_path = directory / f"{name}-{index}.log"
            clients.append(await ClientProcess.spawn(group, f"{name}-{index}", told, log_path=log_path, module=module))
        yield clients
    finally:
        for client in clients:
            client.close()


async def all_events(
    clients: Sequence[ClientProcess], wanted: str, on_progress: Callable[[int, int], None] | None = None
) -> list[Event]:
    """Wait for an event of every client; `on_progress` gets the client's index and its replies so far."""

    def progress_of(index: int) -> Callable[[int], None] | None:
        return None if on_progress is None else lambda replies: on_progress(index, replies)

    async with asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(client.wait_for(wanted, progress_of(index))) for index, client in enumerate(clients)
        ]
    return [task.result() for task in waiting]


def all_go(clients: Sequence[ClientProcess], what: str = "") -> None:
    """Let every client do the next phase; `what` each is told besides."""
    for client in clients:
        client.go(what)


async def run_clients(
    parameters: Sequence[ClientParameters],
    cluster: ClusterProcesses | None,
    group: ProcessGroup,
    progress: ProgressLine,
    *,
    data_dir: Path,
    time_limit_s: float,
    meter: Meter | None = None,
) -> tuple[list[Event], dict[str, float]]:
    """Start a client process for each of the parameters; return their results and all CPU times.

    A `meter` of the cluster has afterwards what every process used while it was measured, clients included; its
    `groups` of spans are looked at by clients that have `slow_ms`.

    Raises:
        ClusterTimeoutError: it took longer than the time limit. The errors of processes come in a group.
    """
    meter = meter or Meter(cluster)
    try:
        async with (
            asyncio.timeout(time_limit_s),
            asyncio.TaskGroup() as tasks,
            spawn_clients(group, parameters, directory=data_dir) as clients,
        ):
            watch = tasks.create_task(_watch_members(cluster))
            results = await _run_phases(clients, meter, progress)
            watch.cancel()
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={time_limit_s:g}") from error
    return results, {name: usage.cpu_s for name, usage in meter.used.items()}


async def _run_phases(clients: list[ClientProcess], meter: Meter, progress: ProgressLine) -> list[Event]:
    """Lead the clients through connect, warm-up and measurement; give their results."""
    counts = [0] * len(clients)

    def on_opened(index: int, count: int) -> None:
        counts[index] = count
        progress.describe(f"connecting: {sum(counts):,} sessions")

    def on_progress(index: int, count: int) -> None:
        counts[index] = count
        progress.update(sum(counts))

    progress.describe("connecting")
    await all_events(clients, "ready", on_opened)
    progress.describe("warming up")
    all_go(clients)
    await all_events(clients, "warmed")
    progress.describe("measuring")
    counts = [0] * len(clients)
    meter.client_pids = {client.process.name: client.process.pid for client in clients}
    await meter.begin()
    async with asyncio.TaskGroup() as tasks:
        measured = asyncio.Event()
        tasks.create_task(meter.beside(measured))
        all_go(clients)
        await all_events(clients, "measured", on_progress)
        measured.set()
    await meter.end()
    all_go(clients, json.dumps(meter.groups))
    results = await all_events(clients, "result")
    all_go(clients)
    for client, result in zip(clients, results, strict=True):
        meter.used[client.process.name] = Usage(result["user_seconds"], result["system_seconds"], None)
    return results


async def _watch_members(cluster: ClusterProcesses | None) -> None:
    """End the run as soon as a member ends."""
    while cluster is not None:
        cluster.check_running()
        await asyncio.sleep(_CHECK_INTERVAL_S)


def load_figures(results: list[Event], used: dict[str, Usage]) -> Report:
    """The figures of one load: from the results of its clients and from what every process used meanwhile."""
    latencies = Histogram()
    for result in results:
        latencies.add(Histogram.from_json(result["latencies"]))
    started_ns = min(result["started_ns"] for result in results)
    ended_ns = max(result["ended_ns"] for result in results)
    duration_s = (ended_ns - started_ns) / 1e9
    return {
        "throughput_msgs_per_s": round(latencies.count / duration_s),
        **latency_figures(latencies),
        "messages": latencies.count,
        "duration_s": round(duration_s, 3),
        "leader": f"member-{results[0]['leader_member_id']}",
        **usage_report(used, latencies.count),
        "latency_percentiles_us": percentile_curve(latencies),
    }


def share(total: int, count: int, index: int) -> int:
    """Split a total into whole parts that differ by one at most."""
    return total // count + (index < total % count)
