"""The recovery time: from a backup of a long log, on a disk or in a store, to a cluster that serves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from ...cluster.operating.backup.shipping import ship_backup
from ..logs.long_log import LongLog, make_long_logs
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..rig.member_status import wait_until_delivered
from ..rig.processes import ClusterProcesses, ProcessError
from ..services import ECHO_SERVICE
from ..statistics.report import Report, progress_line
from .stores import RunStore, Store, store_of

_LIMIT_S: Final = 3_600.0


@dataclass(slots=True, frozen=True, kw_only=True)
class RestoreParameters:
    """Parameters of one run."""

    log_mib: Annotated[int, typer.Option(min=1, help="Length of the log, in MiB; 10240 for 10 GiB.")] = 256
    payload: Annotated[int, typer.Option(min=1, help="Bytes in a message.")] = 1_024
    store: Store = "none"


def run(parameters: RestoreParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, or something took too long.
    """
    with ExitStack() as stack:
        data_dir = stack.enter_context(data_directory(directory, "restore", keep=keep))
        store = stack.enter_context(store_of(parameters.store, data_dir))
        progress = stack.enter_context(progress_line(3))
        progress.describe(f"making a log of {parameters.log_mib} MiB")
        old = ClusterProcesses(data_dir, ECHO_SERVICE, 1)
        log = make_long_logs(old, parameters.log_mib << 20, payload=parameters.payload)
        source, log_bytes = old.directory_of(0), log.stop_position  # a directory as a backup's is a member's
        figures: dict[str, float] = {}
        if store is not None:
            progress.describe("shipping it to the store")
            ship_s = _timed(lambda: ship_backup(source, store.url, clock_ms=lambda: time.time_ns() // 1_000_000))
            figures |= {"ship_s": round(ship_s, 2), "ship_mib_per_s": round((log_bytes >> 20) / ship_s)}
        progress.update(1)
        progress.describe("restoring it")
        restored = ClusterProcesses(data_dir / "restored", ECHO_SERVICE, 1)
        restore_s = _timed(lambda: _restore(source, store, restored, data_dir))
        progress.update(2)
        progress.describe("starting the new cluster")
        in_service_s = _timed(lambda: _serve(restored, log))
        return {
            "scenario": "restore",
            "log_bytes": log_bytes,
            "messages": log.message_count,
            **figures,
            "restore_s": round(restore_s, 2),
            "restore_mib_per_s": round((log_bytes >> 20) / restore_s),
            "in_service_s": round(in_service_s, 2),
            "recovery_s": round(restore_s + in_service_s, 2),
            "parameters": asdict(parameters),
            "environment": {**describe(data_dir), "load_average": os.getloadavg()[0]},
        }


def _serve(cluster: ClusterProcesses, log: LongLog) -> None:
    """Start a cluster of one, wait until it leads and has delivered the log, and stop it in order."""
    with cluster:
        asyncio.run(wait_until_delivered(cluster, log.stop_position, time_limit_s=_LIMIT_S))


def _restore(source: Path, store: RunStore | None, target: ClusterProcesses, data_dir: Path) -> None:
    """Run the command, and put what it wrote where the new member has its files."""
    again = data_dir / "again"
    members = f"0=127.0.0.1:{target.base_ports[0]}"
    origin = str(source) if store is None else store.url
    command = (sys.executable, "-m", "trimaran", "backup", "restore", "--from", origin)
    result = subprocess.run(
        (*command, "--members", members, "--directory", str(again)),
        env=None if store is None else store.environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if result.returncode:
        raise ProcessError(f"restore failed: exit_status={result.returncode}\n{result.stdout}{result.stderr}")
    target.data_dir.mkdir()
    (again / "node-0").rename(target.directory_of(0))


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
