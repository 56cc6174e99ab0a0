"""`trimaran snapshot list`: the snapshots that a member's recording log names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from ....archive.tool.output import OutputFormat, OutputOption, print_rows
from ....service_api.wire.log.recording_log import EntryType, RecordingLogEntry
from .snapshot_files import DirectoryArgument, SnapshotFiles


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


def list_snapshots(directory: DirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the snapshots of a member, oldest first. The member starts from the last valid one."""
    print_rows((asdict(row) for row in _rows(SnapshotFiles(directory))), output, empty="no snapshots")


def _rows(files: SnapshotFiles) -> Iterator[SnapshotRow]:
    """Yield the sets in the order of the recording log; an invalid set and a valid one may have the same place."""
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
