"""`trimaran backup run`: the agent, or one for each group of the cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import structlog
import typer

from ....archive.config import ArchiveConfig
from ....archive.tool.output import output_about
from ....service_api.endpoint import Endpoint
from ....service_api.errors import first_leaf
from ....service_api.groups.group import Group
from ....service_api.groups.ports import group_endpoint
from ....service_api.operating_system import expect_member_system
from ....service_api.types import NULL_VALUE
from ....service_api.wire.checksum import ChecksumKind
from ...operating.backup.agent import BackupAgent
from ...operating.backup.choosing import BackupSource
from ...operating.backup.groups import settle_backup_directory
from ...operating.backup.metrics import BackupMetrics
from ...operating.backup.retention import KEPT_SNAPSHOTS
from ...operating.backup.running import run_backup
from ...operating.backup.settings import BackupSettings
from ...runtime.ground.host import Host
from ..app import report_error
from ..shared.event_loop import run_command_loop
from ..shared.every_group import asked_groups
from ..shared.logging import configure_logging
from ..shared.setting_flags import load_members_from_flags, load_network_from_flags, with_client_flags
from .prune import KeepDaysOption, retention_of
from .stopping import run_until_signal

_DEFAULTS: Final = BackupSettings(members=())


@with_client_flags
def run(
    directory: Annotated[Path, typer.Option("--directory", help="Where the backup is written; made if need be.")],
    source: Annotated[
        BackupSource,
        typer.Option("--source", help="Which member to copy from; follower: the leader only if no follower can serve."),
    ] = _DEFAULTS.source,
    from_snapshot: Annotated[
        bool,
        typer.Option(
            "--from-snapshot", help="Begin a new backup at the newest snapshot, not where the member's log begins."
        ),
    ] = False,
    keep_days: KeepDaysOption = None,
    keep_snapshots: Annotated[
        int,
        typer.Option("--keep-snapshots", min=1, help="The newest snapshots that stay. This alone removes no log."),
    ] = KEPT_SNAPSHOTS,
    query_interval: Annotated[
        float,
        typer.Option("--query-interval", min=0.1, metavar="SECONDS", help="Time between questions to the members."),
    ] = _DEFAULTS.query_interval_s,
    checksum: Annotated[
        str, typer.Option("--checksum", help="crc32, crc32c or none: the checksums of the members' logs.")
    ] = "crc32",
    metrics_endpoint: Annotated[
        str | None,
        typer.Option("--metrics-endpoint", metavar="HOST:PORT", help="Serve /metrics, /livez and /readyz over HTTP."),
    ] = None,
    log_format: Annotated[str, typer.Option("--log-format", help="auto, console or json.")] = "auto",
    **settings: Any,
) -> None:
    """Copy a cluster's snapshots and its committed log, and follow it until SIGTERM or SIGINT.

    It copies from one member, from another when that fails, and goes on where it was when started again. Groups have an
    agent and a directory DIR/group-K each. It needs the role of an observer, and changes nothing.
    """
    expect_member_system("trimaran backup run")
    configure_logging(log_format, member_id=NULL_VALUE)
    if checksum not in ("crc32", "crc32c", "none"):
        raise typer.BadParameter(f"{checksum}: expected crc32, crc32c or none")
    groups = asked_groups(settings)
    archive = ArchiveConfig(
        checksums=checksum != "none",
        checksum_kind=ChecksumKind.labelled("crc32" if checksum == "none" else checksum),
    )
    endpoint = None if metrics_endpoint is None else Endpoint.parse(metrics_endpoint, may_be_ephemeral=True)
    network = load_network_from_flags(settings)
    agents = []
    for group in groups:
        named = settings if group.count == 1 else settings | {"group": str(group.index)}
        wanted = BackupSettings(
            members=load_members_from_flags(named),
            source=source,
            from_snapshot=from_snapshot,
            retention=retention_of(keep_days, keep_snapshots),
            query_interval_s=query_interval,
        )
        place = settle_backup_directory(directory, group, is_only=len(groups) == 1)
        metrics = None if endpoint is None else _metrics_of(endpoint, group)
        agents.append(_Agent(group, place, wanted, archive, Host.of_operating_system(network), metrics))
    _run_all(agents)


def _metrics_of(endpoint: Endpoint, group: Group) -> Endpoint:
    return Endpoint.parse(group_endpoint(str(endpoint), group.index), may_be_ephemeral=True)


@dataclass(slots=True, frozen=True)
class _Agent:
    """An agent to be run, and the metrics beside it."""

    group: Group
    directory: Path
    settings: BackupSettings
    archive: ArchiveConfig
    host: Host
    metrics_endpoint: Endpoint | None

    async def run(self) -> None:
        """Run the agent, and the server of its metrics beside it."""
        agents: list[BackupAgent] = []
        metrics = BackupMetrics(lambda: agents[-1].describe() if agents else None, self.directory, self.host)
        if self.group.count > 1:
            structlog.contextvars.bind_contextvars(group=self.group.index)
        async with asyncio.TaskGroup() as group:
            if self.metrics_endpoint is not None:
                group.create_task(metrics.serve(self.metrics_endpoint), name="metrics")
            await run_backup(
                self.directory, self.settings, archive=self.archive, host=self.host, on_agent=agents.append
            )


def _run_all(agents: Sequence[_Agent]) -> None:
    """Run the agents on one event loop until a signal, or until one fails: the others are stopped then.

    Raises:
        ClusterError: the only agent failed.
        Exit: one of several failed; its group and why are printed.
    """
    failed: list[Group] = []

    async def run(agent: _Agent) -> None:
        try:
            await agent.run()
        except Exception:
            failed.append(agent.group)
            raise

    async def run_each() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for agent in agents:
                    tasks.create_task(run(agent), name=f"backup of {agent.group}")
        except ExceptionGroup as errors:
            raise first_leaf(errors) from errors

    try:
        run_command_loop(run_until_signal(run_each()))
    except Exception as error:
        if failed and failed[0].count > 1:
            with output_about(str(failed[0])):
                raise typer.Exit(report_error(error)) from error
        raise
