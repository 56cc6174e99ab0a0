"""`trimaran backup run`: the agent, until it is told to stop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ....archive.config import ArchiveConfig
from ....service_api.endpoint import Endpoint
from ....service_api.operating_system import expect_member_system
from ....service_api.types import NULL_VALUE
from ....service_api.wire.checksum import ChecksumKind
from ...operating.backup.agent import BackupAgent
from ...operating.backup.choosing import BackupSource
from ...operating.backup.metrics import BackupMetrics
from ...operating.backup.retention import KEPT_SNAPSHOTS
from ...operating.backup.running import run_backup
from ...operating.backup.settings import BackupSettings
from ...runtime.ground.host import Host
from ..shared.event_loop import run_command_loop
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
    """Copy a cluster's snapshots and its log, as far as it is committed, and follow it until SIGTERM or SIGINT.

    The agent copies from one member at a time, and goes on with another one when that fails. Started again on the same
    directory it goes on where it was. It needs the role of an observer, and changes nothing in the cluster.
    """
    expect_member_system("trimaran backup run")
    configure_logging(log_format, member_id=NULL_VALUE)
    if checksum not in ("crc32", "crc32c", "none"):
        raise typer.BadParameter(f"{checksum}: expected crc32, crc32c or none")
    wanted = BackupSettings(
        members=load_members_from_flags(settings),
        source=source,
        from_snapshot=from_snapshot,
        retention=retention_of(keep_days, keep_snapshots),
        query_interval_s=query_interval,
    )
    archive = ArchiveConfig(
        checksums=checksum != "none",
        checksum_kind=ChecksumKind.labelled("crc32" if checksum == "none" else checksum),
    )
    host = Host.of_operating_system(load_network_from_flags(settings))
    endpoint = None if metrics_endpoint is None else Endpoint.parse(metrics_endpoint, may_be_ephemeral=True)
    run_command_loop(run_until_signal(_run(directory, wanted, archive, host, endpoint)))


async def _run(
    directory: Path, settings: BackupSettings, archive: ArchiveConfig, host: Host, metrics_endpoint: Endpoint | None
) -> None:
    """Run the agent, and the server of its metrics beside it."""
    agents: list[BackupAgent] = []
    metrics = BackupMetrics(lambda: agents[-1].describe() if agents else None, directory, host)
    try:
        async with asyncio.TaskGroup() as group:
            if metrics_endpoint is not None:
                group.create_task(metrics.serve(metrics_endpoint), name="metrics")
            await run_backup(directory, settings, archive=archive, host=host, on_agent=agents.append)
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
