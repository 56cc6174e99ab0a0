"""Ourselves, through the same interface: three members, an echo to one client process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from ...service_api.distribution import installed_version
from ...service_api.ready_made import READY_MADE
from ..load.client_process import ClientParameters
from ..load.coordination import load_figures, run_clients
from ..rig.member_status import wait_until_serving
from ..rig.meter import Meter
from ..rig.processes import ClusterProcesses, ProcessGroup
from ..services import ECHO_SERVICE
from .peer import MEMBERS, START_TIMEOUT_S, LoadPoint, Measured, Missing, StoreOperation
from .store_client import StoreClientParameters, run_store_client

WITH_TLS: Final = " with TLS"
"""What the name of ourselves has in addition where we run with TLS."""

_TIME_LIMIT_S: Final = 120.0
_SESSION_LIMIT: Final = 20_000
"""The default is 10,000: sessions of the load before may still be closing."""


class _Silence:
    """Implements `ProgressLine`: the harness has one of its own."""

    def describe(self, text: str) -> None:
        """Nothing."""

    def update(self, done: int) -> None:
        """Nothing."""


SILENCE: Final = _Silence()


class Trimaran:
    """`trimaran node` at one file sync level, in plain text or with TLS."""

    client = "one process, its own asyncio client"
    _service = ECHO_SERVICE
    warmup_messages = 0

    def __init__(self, file_sync_level: int, *, with_tls: bool = False) -> None:
        self._settings: Mapping[str, str] = {"file_sync_level": str(file_sync_level)}
        self._with_tls = with_tls
        self.name = f"Trimaran{WITH_TLS if with_tls else ''}, file sync level {file_sync_level}"
        self.durability = "on disk (fdatasync) on a majority" if file_sync_level else "in the page cache of a majority"
        self._cluster: ClusterProcesses | None = None
        self._directory = Path()

    def find(self) -> str | Missing:
        """We are here."""
        return f"trimaran {installed_version()}"

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the members and wait for a leader."""
        self._directory = directory
        self._cluster = ClusterProcesses(
            directory, self._service, MEMBERS, settings=self._settings, group=group, with_tls=self._with_tls
        )
        for member_id in range(MEMBERS):
            self._cluster.start_member(member_id)
        asyncio.run(wait_until_serving(self._cluster, time_limit_s=START_TIMEOUT_S))

    @property
    def cluster(self) -> ClusterProcesses:
        """The members, once they are started."""
        assert self._cluster is not None
        return self._cluster

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Let a client process send and take echoes."""
        client = ClientParameters(
            endpoints=self.cluster.ingress_endpoints,
            payload_length=payload,
            inflight=inflight,
            warmup_count=0,
            message_count=messages,
            rate_per_s=None,
            connect_timeout_s=START_TIMEOUT_S,
            tls=None if self.cluster.client_tls is None else asdict(self.cluster.client_tls),
        )
        return asyncio.run(self._measure([client], self._directory))

    async def _measure(self, clients: Sequence[ClientParameters], directory: Path) -> Measured:
        """Run client processes; processor time is that of the time that they measured."""
        meter = Meter(self.cluster)
        with ProcessGroup() as group:
            results, _ = await run_clients(
                clients, self.cluster, group, SILENCE, data_dir=directory, time_limit_s=_TIME_LIMIT_S, meter=meter
            )
        found = load_figures(results, meter.used)
        used_us = {
            kind: sum(usage.cpu_s for name, usage in meter.used.items() if name.startswith(kind)) * 1e6
            for kind in ("client", "member")
        }
        return Measured(
            found["throughput_msgs_per_s"],
            p50_us=found["p50_us"],
            p99_us=found["p99_us"],
            client_cpu_us=used_us["client"] / found["messages"],
            server_cpu_us=used_us["member"] / found["messages"],
        )


class TrimaranKv(Trimaran):
    """`trimaran up kv`, and `locks` and `queue`, as an application calls them."""

    client = (
        "the clients of the services for asyncio, a task for each operation in flight; two processes where there are "
        "several sessions"
    )
    operations = frozenset(StoreOperation)
    _service = READY_MADE["kv"].target
    _others: Final = {StoreOperation.LOCK: READY_MADE["locks"].target, StoreOperation.JOB: READY_MADE["queue"].target}
    """The service of an operation that is not of the key-value store."""

    def __init__(self, file_sync_level: int) -> None:
        super().__init__(file_sync_level)
        self._settings = {
            **self._settings,
            "session_limit": str(_SESSION_LIMIT),
            "client_session_limit": str(_SESSION_LIMIT),
        }
        self.name = f"Trimaran kv, file sync level {file_sync_level}"
        self._group: ProcessGroup | None = None

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the members of the key-value store and wait for a leader."""
        self._group = group
        super().start(directory, group)

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Put with one session."""
        return self.operate(LoadPoint(inflight, operation=StoreOperation.PUT), messages=messages, payload=payload)

    def operate(self, point: LoadPoint, *, messages: int, payload: int) -> Measured:
        """Let client processes do an operation over and over."""
        assert point.operation is not None
        self._serve(self._others.get(point.operation, TrimaranKv._service))
        return run_store_client(
            StoreClientParameters(
                endpoints=self.cluster.ingress_endpoints,
                operation=point.operation,
                sessions=point.sessions,
                inflight=point.inflight,
                operations=messages,
                payload=payload,
            ),
            self._directory,
        )

    def _serve(self, service: str) -> None:
        """Have a cluster of a service: of another one than before in its own directory, once that cluster has ended."""
        if service == self.cluster.service:
            return
        assert self._group is not None
        for member_id in self.cluster.members:
            self.cluster.kill_member(member_id)
        directory = self._directory / service.rpartition(":")[2]
        directory.mkdir()
        self._service = service
        super().start(directory, self._group)
