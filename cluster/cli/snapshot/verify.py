"""`trimaran snapshot verify`: read every valid snapshot of a member to its end."""

from __future__ import annotations

import asyncio

import typer

from ....archive.tool.output import EXIT_UNHEALTHY
from ....service_api import ClusterError
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...runtime.snapshots.recovery import read_snapshots
from .snapshot_files import DirectoryArgument, SnapshotFiles


def verify_snapshot(directory: DirectoryArgument) -> None:
    """Read every valid snapshot of a member to its end, and check everything that can be checked without its service.

    Exit status 0: every snapshot is intact; 10: one is damaged.
    """
    files = SnapshotFiles(directory)
    log = files.recording_log
    sets = []
    while found := log.newest_set():
        sets.append(found)
        log.invalidate_latest_snapshot()  # in memory: it makes way for the one before it
    has_failed = False
    for entries in reversed(sets):
        try:
            message_count = asyncio.run(_read_to_the_end(files, entries))
        except ClusterError as error:
            has_failed = True
            typer.echo(f"log_position={entries[0].log_position} INVALID: {error}")
        else:
            typer.echo(f"log_position={entries[0].log_position} valid: service_messages={message_count}")
    if has_failed:
        raise typer.Exit(EXIT_UNHEALTHY)


async def _read_to_the_end(files: SnapshotFiles, entries: tuple[RecordingLogEntry, ...]) -> int:
    recovered = await read_snapshots(files, entries)
    return sum([1 for image in recovered.images async for _ in image])
