"""`trimaran backup run`: the agent, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
import uvloop

from trimaran.archive.config import ArchiveConfig
from trimaran.service_api.types import NULL_VALUE
from trimaran.service_api.wire.checksum import ChecksumKind

from ...backup.choosing import BackupSource
from ...backup.running import run_backup
from ...backup.settings import BackupSettings
from ...runtime.host import Host
from ..shared.logging import configure_logging
from ..shared.setting_flags import load_members_from_flags, load_network_from_flags, with_member_flags
from .stopping import run_until_signal

_DEFAULTS: Final = BackupSettings(members=())


@with_member_flags
def run(
    directory: Annotated[Path, typer.Option("--directory", help="Where the backup is written; made if need be.")],
    source: Annotated[
        BackupSource,
        typer.Option("--source", help="Which member to copy from; follower: the leader only for want of one."),
    ] = _DEFAULTS.source,
    from_snapshot: Annotated[
        bool,
        typer.Option(
            "--from-snapshot", help="Begin a new backup at the newest snapshot, not where the member's log begins."
        ),
    ] = False,
    keep_snapshots: Annotated[
        int, typer.Option("--keep-snapshots", min=1, help="The newest snapshots that stay. Log is never removed.")
    ] = _DEFAULTS.keep_snapshots,
    query_interval: Annotated[
        float,
        typer.Option("--query-interval", min=0.1, metavar="SECONDS", help="Time between questions to the members."),
    ] = _DEFAULTS.query_interval_s,
    checksum: Annotated[
        str, typer.Option("--checksum", help="crc32, crc32c or none: the checksums of the members' logs.")
    ] = "crc32",
    log_format: Annotated[str, typer.Option("--log-format", help="auto, console or json.")] = "auto",
    **settings: Any,
) -> None:
    """Copy a cluster's snapshots and its log, as far as it is committed, and follow it until SIGTERM or SIGINT.

    The agent copies from one member at a time, and goes on with another one when that fails. Started again on the same
    directory it goes on where it was. It needs the role of an observer, and changes nothing in the cluster.
    """
    configure_logging(log_format, member_id=NULL_VALUE)
    if checksum not in ("crc32", "crc32c", "none"):
        raise typer.BadParameter(f"{checksum}: expected crc32, crc32c or none")
    wanted = BackupSettings(
        members=load_members_from_flags(settings),
        source=source,
        from_snapshot=from_snapshot,
        keep_snapshots=keep_snapshots,
        query_interval_s=query_interval,
    )
    archive = ArchiveConfig(
        checksums=checksum != "none",
        checksum_kind=ChecksumKind.labelled("crc32" if checksum == "none" else checksum),
    )
    host = Host.of_operating_system(load_network_from_flags(settings))
    uvloop.run(run_until_signal(run_backup(directory, wanted, archive=archive, host=host)))
