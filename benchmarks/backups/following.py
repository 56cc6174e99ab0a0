"""The recovery point: how old the newest message is that could be restored, while a backup follows a busy cluster.

Ten times a second the leader is asked how far it has committed, and the backup how far it has recorded. The age of the
backup is the time since the leader had committed no more than that: what a loss of every member at that moment costs.
The same for the store, by what the last copy that ended wrote; and how much the copies wrote for how much log.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer

from ...cluster.documents.query import query_status
from ...cluster.operating.backup.status import read_status
from ...cluster.operating.backup.store_status import StoreStatus, read_store_statuses
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterError, ClusterTimeoutError, first_leaf
from ..load.client_process import ClientParameters
from ..load.coordination import load_figures, run_clients
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..options import Payload, TimeLimit
from ..rig.member_status import consensus_endpoint, wait_until_serving
from ..rig.meter import METRICS_SETTING, Meter, fetch_page
from ..rig.processes import ClusterProcesses, ManagedProcess, ProcessError, ProcessGroup, find_base_ports
from ..services import ECHO_SERVICE
from ..statistics.report import ProgressLine, Report, progress_line
from .stores import RunStore, Store, store_of

_LOOK_INTERVAL_S: Final = 0.1
_START_LIMIT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 10.0


@dataclass(slots=True, frozen=True, kw_only=True)
class BackupParameters:
    """Parameters of one run."""

    rate: Annotated[float, typer.Option(min=1, help="Messages a second, open loop.")] = 100_000
    seconds: Annotated[float, typer.Option(min=0.1, help="For how long.")] = 10.0
    payload: Payload = 32
    store: Store = "none"
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.01, help="Seconds from one copy to the store to the next.")
    ] = 1.0
    time_limit_s: TimeLimit = 300.0


@dataclass(slots=True)
class Sampled:
    """What was seen. Times in seconds, positions in bytes of the log."""

    times: list[float] = field(default_factory=list)
    commit_positions: list[int] = field(default_factory=list)
    """The leader's, at those times."""
    backup_ages: list[float] = field(default_factory=list)
    store_ages: list[float] = field(default_factory=list)
    copies: list[StoreStatus] = field(default_factory=list)
    """The store's status at each look."""

    def age_of(self, position: int) -> float:
        """For how long the leader has had committed more than `position`, by the newest sample."""
        last_with_no_more = bisect_right(self.commit_positions, position) - 1
        if last_with_no_more == len(self.times) - 1:
            return 0.0
        return self.times[-1] - self.times[max(0, last_with_no_more)]


def run(parameters: BackupParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or something took too long.
    """
    count = int(parameters.rate * parameters.seconds)
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "backup", keep=keep))
        store = stack.enter_context(store_of(parameters.store, data_dir))
        cluster = stack.enter_context(ClusterProcesses(data_dir, ECHO_SERVICE, 3, settings=METRICS_SETTING))
        group = stack.enter_context(ProcessGroup())
        progress = stack.enter_context(progress_line(count))
        try:
            return asyncio.run(_measure(parameters, cluster, group, store, progress, count))
        except BaseExceptionGroup as errors:
            raise first_leaf(errors) from errors


async def _measure(
    parameters: BackupParameters,
    cluster: ClusterProcesses,
    group: ProcessGroup,
    store: RunStore | None,
    progress: ProgressLine,
    count: int,
) -> Report:
    data_dir = cluster.data_dir
    environment = await asyncio.to_thread(describe, data_dir)
    progress.describe("starting the cluster and its backup")
    await wait_until_serving(cluster, time_limit_s=_START_LIMIT_S)
    metrics = await _start_backup(cluster, group, store, parameters.interval_s)
    sampled, meter = Sampled(), Meter(cluster)
    client = ClientParameters(
        endpoints=cluster.ingress_endpoints,
        payload_length=parameters.payload,
        inflight=1024,
        warmup_count=0,
        message_count=count,
        rate_per_s=parameters.rate,
        connect_timeout_s=_START_LIMIT_S,
    )
    async with asyncio.TaskGroup() as tasks:
        sampling = tasks.create_task(_sample(cluster, metrics, sampled, has_store=store is not None))
        results, _ = await run_clients(
            [client], cluster, group, progress, data_dir=data_dir, time_limit_s=parameters.time_limit_s, meter=meter
        )
        sampling.cancel()
    return {
        "scenario": "backup",
        **load_figures(results, meter.used),
        "backup_age": _figures(sampled.backup_ages),
        **({} if store is None else {"store_age": _figures(sampled.store_ages), "store_cost": _cost(sampled.copies)}),
        "samples": len(sampled.times),
        "log_bytes": sampled.commit_positions[-1] - sampled.commit_positions[0],
        "parameters": asdict(parameters),
        "environment": {**environment, "load_average": os.getloadavg()[0]},
    }


async def _start_backup(
    cluster: ClusterProcesses, group: ProcessGroup, store: RunStore | None, interval_s: float
) -> Endpoint:
    """Start the agent, and what ships to the store once there is something; give where the agent's metrics are."""
    copy, data_dir = cluster.data_dir / "copy", cluster.data_dir
    members = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(cluster.base_ports))
    trimaran = (sys.executable, "-m", "trimaran", "backup")
    endpoint = Endpoint("127.0.0.1", find_base_ports(1)[0])
    follow = ("--directory", str(copy), "--query-interval", "1", "--metrics-endpoint", str(endpoint))
    agent = group.spawn("backup", (*trimaran, "run", "--members", members, *follow), log_path=data_dir / "backup.log")
    await _wait_until(lambda: _is_following(copy), agent)
    if store is not None:
        shipping = group.spawn(
            "ship",
            (*trimaran, "ship", str(copy), store.url, "--follow", "--interval", str(interval_s)),
            log_path=data_dir / "ship.log",
            environment=store.environment,
        )
        await _wait_until(lambda: any(found.copy_count for found in read_store_statuses(copy)), shipping)
    return endpoint


async def _wait_until(holds: Callable[[], bool], process: ManagedProcess) -> None:
    deadline = time.monotonic() + _START_LIMIT_S
    while not await asyncio.to_thread(holds):
        process.check_running()
        if time.monotonic() > deadline:
            raise ClusterTimeoutError(f"{process.name} did not begin in {_START_LIMIT_S:g} s: {process.log_tail()}")
        await asyncio.sleep(_LOOK_INTERVAL_S)


def _is_following(copy: Path) -> bool:
    try:
        return read_status(copy / "cluster").state == "BACKING_UP"
    except ClusterError:
        return False


async def _sample(cluster: ClusterProcesses, metrics: Endpoint, sampled: Sampled, *, has_store: bool) -> None:
    """Look until cancelled. What is committed is looked at last, so that an age is never too short."""
    copy, leader = cluster.data_dir / "copy", consensus_endpoint(cluster, await _find_leader(cluster))
    while True:
        recorded_position = _recorded_position(await fetch_page(metrics, cluster.network))
        stores = await asyncio.to_thread(read_store_statuses, copy) if has_store else []
        status = await query_status(leader, _ASK_TIMEOUT_S, network=cluster.network)
        sampled.times.append(time.monotonic())
        sampled.commit_positions.append(status.commit_position)
        sampled.backup_ages.append(sampled.age_of(recorded_position))
        sampled.copies += stores
        sampled.store_ages += [sampled.age_of(found.log_stop_position or 0) for found in stores]
        await asyncio.sleep(_LOOK_INTERVAL_S)


async def _find_leader(cluster: ClusterProcesses) -> int:
    for member_id in range(cluster.member_count):
        status = await query_status(consensus_endpoint(cluster, member_id), _ASK_TIMEOUT_S, network=cluster.network)
        if status.role == "LEADER":
            return member_id
    raise ProcessError("no member leads")


def _recorded_position(page: str) -> int:
    (line,) = (line for line in page.splitlines() if line.startswith("trimaran_backup_recorded_position "))
    return int(float(line.split()[1]))


def _cost(copies: list[StoreStatus]) -> dict[str, float]:
    """Say what was written between the first status and the last, for a byte of log and in an hour."""
    first, last = copies[0], copies[-1]
    log_bytes = (last.log_stop_position or 0) - (first.log_stop_position or 0)
    seconds = max(1, last.written_ms - first.written_ms) / 1_000
    return {
        "copies": last.copy_count - first.copy_count,
        "log_bytes": log_bytes,
        "written_per_log_byte": round((last.written_bytes - first.written_bytes) / max(1, log_bytes), 3),
        "objects_an_hour": round((last.written_count - first.written_count) * 3_600 / seconds),
    }


def _figures(ages: list[float]) -> dict[str, float]:
    """In milliseconds: what is lost in the median case, in one of a hundred, and at worst."""
    ordered = sorted(ages)
    return {
        "p50_ms": round(median(ordered) * 1_000),
        "p99_ms": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1_000),
        "max_ms": round(ordered[-1] * 1_000),
    }
