"""`trimaran snapshot take|list|describe|verify|invalidate`: take a snapshot of a cluster, look after those on a disk.

`take` asks the leader and waits until every member has the snapshot durably. The others work on one member's
directory: `list`, `describe` and `verify` change nothing and may run beside the node, `invalidate` needs a node that is
stopped.

Exit status: 0 fine; 1 the snapshot was not taken; 2 wrong usage, or the directory cannot be used; 10 `verify` found
something wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from trimaran.archive import ArchiveError, RecordingDescriptor
from trimaran.archive.disk.file_system import OsFileSystem, try_flock
from trimaran.archive.errors import ArchiveErrorCode
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.files.reader import FrameReader
from trimaran.archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, print_rows
from trimaran.service_api import ClusterError, ConfigurationError
from trimaran.service_api.types import RecordingId
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME, EntryType, RecordingLogEntry

from ..core.log.recording_log import RecordingLog
from ..documents.operations import Operation
from ..runtime.files.mark_file import MARK_FILE_NAME, DirectoryInUseError
from ..runtime.files.recording_log_file import RecordingLogFile
from ..runtime.snapshots.recovery import read_snapshots
from .operation import TimeoutOption, carry_out
from .setting_flags import with_member_flags
from .snapshot_describe import describe

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A member's directory, as in --directory.")]


app: Final = typer.Typer(
    help="Take, list, describe, verify and invalidate snapshots.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(slots=True, frozen=True)
class SnapshotRow:
    """One set of snapshots, as it is listed."""

    log_position: int
    leadership_term_id: int
    timestamp: int
    state: str
    """`valid`, `invalid`, or `incomplete`: a set without its last entry, which counts for nothing."""
    module_recording_id: int | None
    service_recording_id: int | None
    length_bytes: int | None
    """Of both recordings; None where the catalog does not have them."""


@app.command()
@with_member_flags
def take(
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    standby: Annotated[
        bool, typer.Option("--standby", help="Of nodes that stand by, which members of this cluster are not.")
    ] = False,
    **settings: Any,
) -> None:
    """Have every member take a snapshot; wait until each has its own, durably.

    The members come from flags, TRIMARAN_* variables and a TOML file, as for `trimaran node`.
    """
    carry_out(Operation.STANDBY_SNAPSHOT if standby else Operation.SNAPSHOT, timeout, output, settings)


@app.command("list")
def list_snapshots(directory: DirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the snapshots of a member, oldest first; of those that are valid the last one is what it starts from."""
    print_rows((asdict(row) for row in _rows(_MemberFiles(directory))), output, empty="no snapshots")


app.command(epilog="Example: trimaran snapshot describe data/node-0")(describe)


@app.command()
def verify(directory: DirectoryArgument) -> None:
    """Read every valid snapshot of a member to its end, and check all that can be checked without its service."""
    files = _MemberFiles(directory)
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
            typer.echo(f"log_position={entries[0].log_position} WRONG: {error}")
        else:
            typer.echo(f"log_position={entries[0].log_position} fine: service_messages={message_count}")
    if has_failed:
        raise typer.Exit(EXIT_UNHEALTHY)


@app.command()
def invalidate(directory: DirectoryArgument) -> None:
    """Mark the newest valid snapshot of a stopped member invalid: it starts from the one before, or from its log."""
    cluster_directory = _cluster_directory(directory)
    disk = OsFileSystem()
    try:
        lock = disk.open_file(cluster_directory / MARK_FILE_NAME, writable=False)
    except FileNotFoundError:
        raise ConfigurationError(f"no member's directory: file missing={cluster_directory / MARK_FILE_NAME}") from None
    try:
        if not try_flock(lock):
            raise DirectoryInUseError(cluster_directory, None)
        file = RecordingLogFile.open(cluster_directory, file_sync_level=2)
        try:
            newest = file.recording_log.newest_set()
            if not newest:
                raise ConfigurationError(f"no valid snapshot: directory={directory}")
            file.recording_log.invalidate_latest_snapshot()
            file.persist()
        finally:
            file.close()
    finally:
        disk.close_file(lock)
    typer.echo(f"snapshot invalidated: log_position={newest[0].log_position}")


class _MemberFiles:
    """The snapshots of one member, read without changing anything; a node may run beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "archive"
        path = _cluster_directory(directory) / RECORDING_LOG_FILE_NAME
        try:
            self.recording_log = RecordingLog.parse(path.read_bytes())
            content = read_catalog(OsFileSystem(), self.directory)
        except OSError as error:
            raise ConfigurationError(f"directory cannot be read: {error}") from error
        found = [entry.descriptor for entry in content.entries if entry.problem is None]
        self._descriptors = {descriptor.recording_id: descriptor for descriptor in found if descriptor is not None}

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What the catalog knows about a recording."""
        descriptor = self._descriptors.get(RecordingId(recording_id))
        if descriptor is None:
            raise ArchiveError("unknown recording", code=ArchiveErrorCode.UNKNOWN_RECORDING, recording_id=recording_id)
        return descriptor

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording."""
        return FrameReader(self.directory, self.descriptor(recording_id))

    def length_bytes(self, recording_id: int) -> int | None:
        """The length of a recording; None if it is not known."""
        descriptor = self._descriptors.get(RecordingId(recording_id))
        if descriptor is None or descriptor.stop_position is None:
            return None
        return descriptor.stop_position - descriptor.start_position


async def _read_to_the_end(files: _MemberFiles, entries: tuple[RecordingLogEntry, ...]) -> int:
    recovered = await read_snapshots(files, entries)
    return sum([1 for image in recovered.images async for _ in image])


def _rows(files: _MemberFiles) -> Iterator[SnapshotRow]:
    """Give the sets in the order of the recording log; an invalid set and a valid one may have the same place."""
    sets: dict[tuple[int, int, bool], dict[int, RecordingLogEntry]] = {}
    for entry in files.recording_log.entries:
        if entry.entry_type is EntryType.SNAPSHOT:
            key = entry.leadership_term_id, entry.log_position, entry.is_valid
            sets.setdefault(key, {})[entry.service_id] = entry
    for (term_id, position, is_valid), entries in sets.items():
        module, service = entries.get(-1), entries.get(0)
        is_complete = module is not None and service is not None
        lengths = [files.length_bytes(entry.recording_id) for entry in entries.values()]
        yield SnapshotRow(
            log_position=position,
            leadership_term_id=term_id,
            timestamp=max(entry.timestamp for entry in entries.values()),
            state=("valid" if is_valid else "invalid") if is_complete else "incomplete",
            module_recording_id=None if module is None else module.recording_id,
            service_recording_id=None if service is None else service.recording_id,
            length_bytes=None if None in lengths else sum(length for length in lengths if length is not None),
        )


def _cluster_directory(directory: Path) -> Path:
    return directory / "cluster"
