"""The clusters that a scan measures: one runs at a time, and is started again when another is needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from trimaran.service_api.errors import ClusterError, first_leaf

from ..load.client_process import ClientParameters
from ..load.coordination import Event, load_figures, run_clients, share
from ..load.sessions import SESSIONS_PER_PROCESS
from ..logs.long_log import lengthen_log
from ..machine.data_directory import measurement_directory
from ..rig.member_status import wait_for_status, wait_until_serving
from ..rig.meter import METRICS_SETTING, Meter
from ..rig.processes import ClusterProcesses, ProcessGroup, require_connections
from ..rig.resident import resident_bytes
from ..services import ECHO_SERVICE
from ..statistics.report import Report

_START_LIMIT_S: Final = 60.0
_REPLAY_LIMIT_S: Final = 300.0
_POINT_LIMIT_S: Final = 240.0
_STOP_LIMIT_S: Final = 30.0
_WARMUP_LIMIT: Final = 20_000
_WARMUP_BYTES: Final = 64 << 20
_WARMUP_ROUNDS: Final = 20
_CONNECT_LIMIT_S: Final = 60.0


@dataclass(slots=True, frozen=True)
class Load:
    """An echo load in a closed loop."""

    payload: int
    inflight: int

    @property
    def warmup_count(self) -> int:
        """Messages before what is measured: enough for a steady rate, and not for long."""
        return max(
            self.inflight, min(_WARMUP_LIMIT, _WARMUP_ROUNDS * self.inflight + 500, _WARMUP_BYTES // self.payload)
        )


class _OnePoint:
    """Implements `ProgressLine`: what one point says goes into the line of the scan."""

    def __init__(self, on_step: Callable[[str], None], name: str) -> None:
        self._on_step = on_step
        self._name = name

    def describe(self, text: str) -> None:
        """Say what the point is at."""
        self._on_step(f"{self._name}: {text}")

    def update(self, done: int) -> None:
        """Nothing: the line counts points."""


class _MemoryMeter(Meter):
    """A meter that reads the members' memory, too, while the sessions are open."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        super().__init__(cluster)
        self._members = cluster.members
        self.resident_bytes: dict[str, int] = {}
        """By member name, after `end`."""

    async def end(self) -> None:
        """Read what was used since `begin`, and the memory."""
        await super().end()
        self.resident_bytes = {member.name: resident_bytes(member.pid) for member in self._members.values()}


class ScanBench:
    """Keeps a cluster for the points that can share one; leaving the `with` block ends it."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, str],
        *,
        seconds: float,
        on_step: Callable[[str], None],
        keep: bool = False,
    ) -> None:
        self._data_dir = data_dir
        self._keep = keep
        self._settings = {**settings, **METRICS_SETTING}
        self._seconds = seconds
        self._on_step = on_step
        self._running, self._log_place = ExitStack(), ExitStack()
        self._cluster: ClusterProcesses | None = None
        self._directory_count = 0
        self._log_directory: Path | None = None
        """Of the member whose log is made longer from point to point."""
        self._log_bytes = 0
        self.name = ""
        """Of the point that is measured, for the progress."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        self._log_place.close()

    def measure(self, member_count: int, load: Load) -> Report:
        """Put a load on a cluster of so many members.

        Raises:
            ClusterError: it could not be measured; the cluster has ended.
        """
        try:
            return self._load(self._start(member_count), load)
        except ClusterError:
            self._end()
            raise

    def measure_sessions(self, member_count: int, load: Load, *, session_count: int, is_shared: bool = False) -> Report:
        """Put a load on a fresh cluster that goes round so many sessions; those of a process may share connections.

        Raises:
            ClusterError: it could not be measured, as when processes may not open as many connections.
        """
        process_count = -(-session_count // SESSIONS_PER_PROCESS)
        connection_count = process_count if is_shared else session_count
        require_connections(max(connection_count, -(-connection_count // process_count) * member_count))
        self._end()
        try:
            cluster = self._start(member_count, session_settings(session_count))
            return self._load(
                cluster, load, session_count=session_count, process_count=process_count, is_shared=is_shared
            )
        finally:
            self._end()

    def measure_behind_log(self, load: Load, *, log_mib: int) -> Report:
        """Start one member on a log of so many MiB, which takes its time, and then put the load on it.

        Raises:
            ClusterError: it could not be measured.
        """
        self._end()
        try:
            directory = self._member_with_log(log_mib << 20)
            self._on_step(f"{self.name}: starting on the log")
            begin_ns = time.monotonic_ns()
            with ClusterProcesses(directory, ECHO_SERVICE, 1, settings=self._settings) as cluster:
                _wait_in_service(cluster, self._log_bytes)
                start_s = (time.monotonic_ns() - begin_ns) / 1e9
                return {**self._load(cluster, load), "start_s": round(start_s, 3)}
        except ClusterError:
            self._log_directory = None
            raise

    def _start(self, member_count: int, settings: Mapping[str, str] | None = None) -> ClusterProcesses:
        """Return the running cluster, or start one of another number of members."""
        cluster = self._cluster
        if cluster is not None and cluster.member_count == member_count:
            return cluster
        self._end()
        self._on_step(f"{self.name}: starting {member_count} members")
        directory = self._fresh_directory(self._running)
        given = {**self._settings, **(settings or {})}
        cluster = ClusterProcesses(directory, ECHO_SERVICE, member_count, settings=given)
        self._cluster = self._running.enter_context(cluster)
        asyncio.run(wait_until_serving(cluster, time_limit_s=_START_LIMIT_S))
        return cluster

    def _end(self) -> None:
        self._cluster = None
        self._running.close()

    def _load(
        self,
        cluster: ClusterProcesses,
        load: Load,
        *,
        session_count: int | None = None,
        process_count: int = 1,
        is_shared: bool = False,
    ) -> Report:
        parameters = [
            ClientParameters(
                endpoints=cluster.ingress_endpoints,
                payload_length=load.payload,
                inflight=share(load.inflight, process_count, index),
                warmup_count=share(load.warmup_count, process_count, index),
                message_count=share(load.warmup_count, process_count, index),
                rate_per_s=None,
                connect_timeout_s=_CONNECT_LIMIT_S,
                session_count=None if session_count is None else share(session_count, process_count, index),
                measure_s=self._seconds,
                is_shared=is_shared,
            )
            for index in range(process_count)
        ]
        meter = _MemoryMeter(cluster)
        try:
            results = asyncio.run(self._run(parameters, cluster, meter))
        except BaseExceptionGroup as group:
            raise first_leaf(group) from group
        figures = load_figures(results, meter.used)
        members = [usage for name, usage in meter.used.items() if name.startswith("member")]
        return {
            "members": cluster.member_count,
            "payload": load.payload,
            "inflight": load.inflight,
            "sessions": session_count or 1,
            "shared": is_shared,
            "client_processes": process_count,
            **figures,
            "written_bytes_per_message": round(
                sum(usage.written_bytes or 0 for usage in members) / len(members) / figures["messages"], 1
            ),
            "messages_per_sync": _messages_per_sync(figures),
            "resident_bytes": {
                **meter.resident_bytes,
                **{f"client-{index}": result["resident_bytes"] for index, result in enumerate(results)},
            },
        }

    async def _run(self, parameters: list[ClientParameters], cluster: ClusterProcesses, meter: Meter) -> list[Event]:
        with ProcessGroup() as group:
            results, _ = await run_clients(
                parameters,
                cluster,
                group,
                _OnePoint(self._on_step, self.name),
                data_dir=cluster.data_dir,
                time_limit_s=_POINT_LIMIT_S,
                meter=meter,
            )
        return results

    def _member_with_log(self, length_bytes: int) -> Path:
        """Make a member's log so long, or the one that is there as much longer."""
        if self._log_directory is None or self._log_bytes > length_bytes:
            self._log_place.close()
            self._log_directory = self._fresh_directory(self._log_place)
            self._on_step(f"{self.name}: a member's first start")
            with ClusterProcesses(self._log_directory, ECHO_SERVICE, 1, settings=self._settings) as cluster:
                _wait_in_service(cluster, 1)
                cluster.members[0].popen.terminate()
                cluster.members[0].popen.wait(_STOP_LIMIT_S)
            self._log_bytes = 0
        if length_bytes > self._log_bytes:
            self._on_step(f"{self.name}: making the log")
            log = asyncio.run(
                lengthen_log(
                    self._log_directory / "member-0",
                    length_bytes - self._log_bytes,
                    payload=32,
                    begin_ms=time.time_ns() // 1_000_000,
                )
            )
            self._log_bytes = log.stop_position
        return self._log_directory

    def _fresh_directory(self, place: ExitStack) -> Path:
        """Make a directory that goes with `place`."""
        self._directory_count += 1
        path = self._data_dir / f"cluster-{self._directory_count}"
        return place.enter_context(measurement_directory(path, keep=self._keep))


def session_settings(session_count: int) -> dict[str, str]:
    """Return what members need for so many sessions, which are silent for as long as the others take to open."""
    return {"session_limit": str(max(session_count, 10_000)), "session_timeout_ms": "60000"}


def _wait_in_service(cluster: ClusterProcesses, position: int) -> None:
    """Wait until the only member leads and has delivered its log up to a position."""
    asyncio.run(
        wait_for_status(
            cluster,
            0,
            lambda status: status.role == "LEADER" and status.delivered_position >= position,
            time_limit_s=_REPLAY_LIMIT_S,
        )
    )


def _messages_per_sync(figures: Report) -> float | None:
    """How many messages the leader makes durable with one sync; None where it does not sync or count."""
    syncs = figures["usage"].get(figures["leader"], {}).get("sync_count")
    return round(figures["messages"] / syncs, 1) if syncs else None
