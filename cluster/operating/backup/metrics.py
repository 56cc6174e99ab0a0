"""The metrics of a backup in Prometheus' format, and the endpoint that serves them.

What `trimaran backup status` shows, as numbers: of the agent, and of each store that `backup ship --follow` writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiofiles.os
import structlog
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ....service_api import ClusterError, ConfigurationError
from ....service_api.distribution import installed_version
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import ConnectionGate
from ...auth.metrics_access import MetricsAccess
from ...runtime.answering.metrics_page import Labelled, RowsPage, SourceRow, rows_as_markdown
from ...runtime.answering.metrics_server import MetricsServer
from ...runtime.ground.host import Host
from .states import BackupState
from .status import STATUS_INTERVAL_S, BackupStatus
from .store_status import StoreStatus, read_store_statuses

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class BackupView:
    """What a page is made of."""

    status: BackupStatus
    stores: tuple[StoreStatus, ...]
    now_ms: int


class BackupMetric(SourceRow[BackupView]):
    """One metric of a backup."""

    __slots__ = ()


def _of_stores(read: Callable[[StoreStatus, BackupView], float | None]) -> Callable[[BackupView], Labelled]:
    def read_all(view: BackupView) -> Labelled:
        for store in view.stores:
            value = read(store, view)
            if value is not None:
                yield (store.url,), value

    return read_all


def _store_age(store: StoreStatus, view: BackupView) -> float | None:
    age_ms = store.age_ms(view.status.recorded_position, view.now_ms)
    return None if age_ms is None else age_ms / 1_000


def _store_lag(store: StoreStatus, view: BackupView) -> float:
    status, reached = view.status, store.log_stop_position
    return max(0, status.recorded_position - (status.log_start_position if reached is None else reached))


BACKUP_METRICS: Final = (
    BackupMetric(
        "trimaran_backup_info",
        "gauge",
        "always 1; the labels have the cluster id (empty until it is known) and the version",
        lambda v: [((v.status.cluster_id or "", installed_version()), 1)],
        ("cluster_id", "version"),
    ),
    BackupMetric(
        "trimaran_backup_state",
        "gauge",
        "what the agent does, by Aeron's numbers: 0 BACKUP_QUERY, ... 5 BACKING_UP, 6 RESET_BACKUP, 7 CLOSED",
        lambda v: BackupState[v.status.state],
    ),
    BackupMetric(
        "trimaran_backup_source_member_id",
        "gauge",
        "the member that it copies from; -1 while there is none",
        lambda v: -1 if v.status.source_member_id is None else v.status.source_member_id,
    ),
    BackupMetric(
        "trimaran_backup_log_start_position", "gauge", "where its log begins", lambda v: v.status.log_start_position
    ),
    BackupMetric(
        "trimaran_backup_recorded_position",
        "gauge",
        "where its log ends: a restore can go on from there",
        lambda v: v.status.recorded_position,
    ),
    BackupMetric(
        "trimaran_backup_commit_position",
        "gauge",
        "the highest commit position that a member has told",
        lambda v: v.status.commit_position,
    ),
    BackupMetric(
        "trimaran_backup_lag_bytes", "gauge", "committed log that it does not have yet", lambda v: v.status.lag_bytes
    ),
    BackupMetric(
        "trimaran_backup_behind_seconds",
        "gauge",
        "for how long it has lacked committed log: what a loss of the whole cluster would cost; 0 if it lacks nothing",
        lambda v: v.status.behind_s,
    ),
    BackupMetric("trimaran_backup_snapshots", "gauge", "snapshots in it", lambda v: v.status.snapshot_count),
    BackupMetric(
        "trimaran_backup_snapshot_position",
        "gauge",
        "the log position of the newest; -1 without one",
        lambda v: -1 if v.status.snapshot_position is None else v.status.snapshot_position,
    ),
    BackupMetric(
        "trimaran_backup_failures_total",
        "counter",
        "how often the agent gave up a source, or found none",
        lambda v: v.status.failure_count,
    ),
    BackupMetric(
        "trimaran_backup_store_position",
        "gauge",
        "where the log in a store ends",
        _of_stores(lambda store, v: store.log_stop_position),
        ("url",),
    ),
    BackupMetric(
        "trimaran_backup_store_lag_bytes",
        "gauge",
        "log of the backup that is not in the store yet",
        _of_stores(_store_lag),
        ("url",),
    ),
    BackupMetric(
        "trimaran_backup_store_behind_seconds",
        "gauge",
        "for how long the store may have lacked log of the backup: what a loss of everything else would cost",
        _of_stores(_store_age),
        ("url",),
    ),
    BackupMetric(
        "trimaran_backup_store_copies_total",
        "counter",
        "copies to the store that succeeded, since `backup ship --follow` began",
        _of_stores(lambda store, v: store.copy_count),
        ("url",),
    ),
    BackupMetric(
        "trimaran_backup_store_failures_total",
        "counter",
        "copies that failed",
        _of_stores(lambda store, v: store.failure_count),
        ("url",),
    ),
    BackupMetric(
        "trimaran_backup_store_written_bytes_total",
        "counter",
        "bytes of log and snapshots that were written to the store",
        _of_stores(lambda store, v: store.written_bytes),
        ("url",),
    ),
)
"""Every metric of a backup, in the order in which it is shown."""


def backup_metrics_as_markdown() -> str:
    """Draw the table of docs/metrics.md."""
    return rows_as_markdown(BACKUP_METRICS)


class BackupMetrics(RowsPage[BackupView]):
    """Serves the metrics of the agent that `describe` asks, and of the stores of a directory."""

    def __init__(self, describe: Callable[[], BackupStatus | None], directory: Path, host: Host) -> None:
        self._describe = describe
        self._directory = directory
        self._host = host
        self._stores: tuple[StoreStatus, ...] = ()
        super().__init__(BACKUP_METRICS, self._view)

    def __repr__(self) -> str:
        return f"<BackupMetrics {self._directory}>"

    def _view(self) -> BackupView | None:
        status = self._describe()
        return None if status is None else BackupView(status, self._stores, self._host.clock.epoch_time())

    def why_not_ready(self) -> str | None:
        """Return why the agent does not follow the log; None if it does."""
        status = self._describe()
        if status is None:
            return "no agent runs yet"
        return None if status.source_member_id is not None else f"{status.state}: {status.reason}"

    async def serve(
        self, endpoint: Endpoint, *, on_listening: Callable[[Endpoint], None] = lambda endpoint: None
    ) -> None:
        """Serve `/metrics`, `/livez` and `/readyz` until cancelled; `on_listening` is told of the port that was found.

        Raises:
            ConfigurationError: the endpoint cannot be listened on.
        """
        server = MetricsServer(
            self,
            content_type=CONTENT_TYPE_LATEST,
            monotonic_ns=self._host.clock.monotonic_ns,
            access=MetricsAccess(None),
        )
        try:
            found = await server.start(self._host.network, endpoint, gate=ConnectionGate())
        except OSError as error:
            raise ConfigurationError(f"cannot listen: metrics_endpoint={endpoint}: {error}") from error
        logger.info("metrics.listening", endpoint=str(found))
        on_listening(found)
        try:
            while True:
                await self._look()
                await asyncio.sleep(STATUS_INTERVAL_S)
        finally:
            server.close()

    async def _look(self) -> None:
        try:
            self._stores = tuple(await aiofiles.os.wrap(read_store_statuses)(self._directory))
        except FileNotFoundError:
            return  # the agent has not made the directory yet, or begins it again
        except (OSError, ClusterError) as error:
            logger.debug("backup.stores_unread", error=str(error))
