"""Recordings as files for others: Parquet, Arrow IPC or JSON lines, a file for each segment.

A segment that is full never changes again in a recording that is only appended to, so its file is written once
and kept by later runs; it has the segment's time, by which a segment is noticed that did change. The last one of a
recording is written again by each run, under a name that says so:

    0-65536.parquet            the frames of the full segment of recording 0 at position 65536
    0-131072.tail.parquet      of the segment that is not full yet; gone once the one above is there
    0-131072.damaged.parquet   what lies before a wrong frame; tried again by each run
    _export.json               what these files hold, so that another run does not mix in something else

A member's directory with groups holds several logs. Each has an export of its own in `group=0` and so on, as Hive names
the folders of a partition: readers of the whole make a column `group` of them.

Each file is written under a working name, synced, and renamed: what has one of these names is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...service_api.errors import ClusterError
from ...service_api.types import TimeUnit
from ..disk.file_system import OsFileSystem
from ..format.descriptor import RecordingDescriptor
from ..log.log_file import LogFile
from ..log.member_directory import ArchiveLocation
from .export_files import open_part_file
from .frame_batches import FrameSelection, ReadProblem

MANIFEST_NAME: Final = "_export.json"
_PART_NAME: Final = re.compile(r"(\d+)-(\d+)(\.tail|\.damaged)?\.(parquet|arrow|jsonl)")


class ExportRefusedError(ClusterError):
    """Going on would mix two exports, or lose a file."""


class ExportFormat(StrEnum):
    """What kind of files an export makes."""

    PARQUET = "parquet"
    ARROW = "arrow"
    JSONL = "jsonl"


class PartState(StrEnum):
    """What became of a part of an export."""

    WRITTEN = "written"
    KEPT = "kept"
    """It was there already."""
    TAIL = "tail"
    """It is written, and will be again: its segment is not full yet."""
    EMPTY = "empty"
    """Its segment holds no frame yet, so there is no file."""
    DAMAGED = "damaged"
    """Only what lies before the damage is written."""
    PURGED = "purged"
    """The recording does not have it any more, and it was not exported before."""


@dataclass(slots=True, frozen=True, kw_only=True)
class ExportOptions:
    """What an export holds, and in which form. `columns` are those of `archive.frames`, None for all."""

    format: ExportFormat = ExportFormat.PARQUET
    messages: bool = False
    columns: tuple[str, ...] | None = None
    time_unit: TimeUnit = TimeUnit.MILLIS
    checksums: bool | None = None
    bound_position: int | None = None
    """Frames that end beyond it are left out, such as what is not committed yet."""


class ExportPart(NamedTuple):
    """What one file holds: the frames of a recording in one segment. `stop_position` None: up to where they end."""

    descriptor: RecordingDescriptor
    base_position: int
    stop_position: int | None
    is_closed: bool

    @property
    def start_position(self) -> int:
        """Where its first frame begins."""
        return max(self.base_position, self.descriptor.start_position)


class PartResult(NamedTuple):
    """What became of a part: its file, how many rows it has, and the position behind the last."""

    part: ExportPart
    state: PartState
    file: str | None
    row_count: int | None
    """None for a file that was there already."""
    problem: ReadProblem | None = None


def open_export(
    target: Path, options: ExportOptions, descriptors: Iterable[RecordingDescriptor], *, overwrite: bool
) -> None:
    """Make the directory of an export, or check that this export goes on with what is there.

    Raises:
        ExportRefusedError: other files, or another export, are there, and they are not to be overwritten.
        OSError: the directory cannot be made or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    manifest_path = target / MANIFEST_NAME
    found = read_manifest(manifest_path)
    names = [name for name in os.listdir(target) if not name.startswith(".")]
    strangers = sorted(name for name in names if name != MANIFEST_NAME and not _PART_NAME.fullmatch(name))
    if strangers or (names and found is None and not overwrite):
        raise ExportRefusedError(f"not an export: {target} holds other files, such as {(strangers or names)[0]}")
    manifest = {
        "format": options.format.value,
        "messages": options.messages,
        "columns": None if options.columns is None else list(options.columns),
        "time_unit": options.time_unit.name,
        "recordings": {str(descriptor.recording_id): recording_identity(descriptor) for descriptor in descriptors},
    }
    if overwrite:
        for name in names:
            (target / name).unlink()
    elif found is not None:
        _refuse_differences(target, found, manifest)
        manifest["recordings"] = found["recordings"] | manifest["recordings"]
    if manifest != found or overwrite:
        working_path = target / f".{MANIFEST_NAME}.partial"
        working_path.write_text(json.dumps(manifest, indent=2) + "\n")
        publish(working_path, manifest_path)


def plan_parts(
    location: ArchiveLocation, descriptor: RecordingDescriptor, bound_position: int | None = None
) -> Iterator[ExportPart]:
    """Yield the parts of a recording in order; one whose segment file is missing is a part, too, and damaged."""
    bases = LogFile(location, descriptor).segment_base_positions()
    length, stop_position = descriptor.segment_file_length, descriptor.stop_position
    end = max(bases, default=-1) + 1 if stop_position is None else stop_position
    for base in range(descriptor.segment_base_position(descriptor.start_position), end, length):
        if bound_position is not None and base >= bound_position:
            return
        # Aeron and we make the next segment's file when one is full, at once.
        is_full = base + length in bases if stop_position is None else base + length <= stop_position
        is_closed = is_full and (bound_position is None or base + length <= bound_position)
        yield ExportPart(descriptor, base, base + length if is_full else stop_position, is_closed)


def find_holes(target: Path, descriptor: RecordingDescriptor) -> list[tuple[int, int]]:
    """Find the positions, from and to, that a recording lost since an earlier run and that no file here holds whole.

    A recording that lost its beginning before its first export has no hole: its export begins later.

    Raises:
        OSError: the directory of the export cannot be read.
    """
    found = [match for name in os.listdir(target) if (match := _PART_NAME.fullmatch(name)) is not None]
    known = [match for match in found if int(match[1]) == descriptor.recording_id]
    whole = {int(match[2]) for match in known if match[3] is None}
    length = descriptor.segment_file_length
    first = descriptor.segment_base_position(descriptor.start_position)
    holes: list[tuple[int, int]] = []
    for base in range(min((int(match[2]) for match in known), default=first), first, length):
        if base in whole:
            continue
        start = holes.pop()[0] if holes and holes[-1][1] == base else base
        holes.append((start, base + length))
    return holes


def export_part(
    location: ArchiveLocation,
    part: ExportPart,
    target: Path,
    options: ExportOptions,
    on_progress: Callable[[int], None] = lambda position: None,
) -> PartResult:
    """Write the file of a part, unless it is there already and its segment has not changed since.

    `on_progress` is told the position now and then.

    Raises:
        ConfigurationError: the format needs pyarrow, which is not there.
        OSError: a file cannot be read or written; nothing is left under a final name.
    """
    names = {state: _file_name(part, options.format, state) for state in PartState if state in _SUFFIXES}
    closed_name = names[PartState.WRITTEN]
    # The file of the export gets this time.
    changed_at_ns = LogFile(location, part.descriptor).changed_at_ns(part.base_position) or 0
    if part.is_closed and is_current(target / closed_name, changed_at_ns):
        _remove(target, (names[PartState.TAIL], names[PartState.DAMAGED]))
        return PartResult(part, PartState.KEPT, closed_name, None)
    problems: list[ReadProblem] = []
    working_path = target / f".{closed_name}.partial"
    try:
        file = open_part_file(working_path, options.format.value, options.columns, options.time_unit)
        with contextlib.closing(file):
            file.write_part(location, part.descriptor, _selection(part, options), problems.append, on_progress)
        state = PartState.DAMAGED if problems else PartState.WRITTEN if part.is_closed else PartState.TAIL
        if state is PartState.TAIL and not file.row_count:
            state = PartState.EMPTY
        else:
            if changed_at_ns:
                os.utime(working_path, ns=(changed_at_ns, changed_at_ns))
            publish(working_path, target / names[state])
        _remove(target, (name for other, name in names.items() if other is not state))
    finally:
        working_path.unlink(missing_ok=True)
    return PartResult(part, state, names.get(state), file.row_count, problems[0] if problems else None)


def publish(working_path: Path, path: Path) -> None:
    """Give a finished file its name, durably."""
    disk = OsFileSystem()
    handle = disk.open_file(working_path)
    try:
        disk.sync_file(handle)
    finally:
        disk.close_file(handle)
    disk.rename(working_path, path)
    disk.sync_directory(path.parent)


_SUFFIXES: Final = {PartState.WRITTEN: "", PartState.TAIL: ".tail", PartState.DAMAGED: ".damaged"}


def closed_file_name(part: ExportPart, export_format: ExportFormat) -> str:
    """Name the file of a full segment."""
    return _file_name(part, export_format, PartState.WRITTEN)


def _file_name(part: ExportPart, export_format: ExportFormat, state: PartState) -> str:
    return f"{part.descriptor.recording_id}-{part.base_position}{_SUFFIXES[state]}.{export_format.value}"


def _selection(part: ExportPart, options: ExportOptions) -> FrameSelection:
    # A segment may be added after the parts were planned: its frames belong to the next file. The part ends at a bound
    # and not at a stop position, so that its end is judged as that of its recording.
    end = part.base_position + part.descriptor.segment_file_length
    return FrameSelection(
        start_position=part.start_position,
        bound_position=end if options.bound_position is None else min(end, options.bound_position),
        checksums=options.checksums,
        reassemble=options.messages,
    )


def is_current(path: Path, changed_at_ns: int) -> bool:
    """Return whether the file of an export is there, and is of its segment as that was last changed then.

    A log that is cut back and grows again fills its segments with something else.
    """
    try:
        return path.stat().st_mtime_ns >= changed_at_ns
    except FileNotFoundError:
        return False


def _remove(target: Path, names: Iterable[str]) -> None:
    for name in names:
        (target / name).unlink(missing_ok=True)


def recording_identity(descriptor: RecordingDescriptor) -> dict[str, int]:
    """Return what tells a recording from another one of the same id, in another archive."""
    return {
        "start_timestamp_ms": descriptor.start_timestamp_ms,
        "initial_term_id": descriptor.initial_term_id,
        "stream_id": descriptor.stream_id,
        "segment_file_length": descriptor.segment_file_length,
    }


def read_manifest(path: Path) -> dict[str, Any] | None:
    """Read what the files of an export hold; None if there is none. `open_export` says what is in it.

    Raises:
        ExportRefusedError: it is no such file.
        OSError: it cannot be read.
    """
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:  # RecursionError: values in values without end
        raise ExportRefusedError(f"not the file of an export: {path}: {error}") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("recordings"), dict):
        raise ExportRefusedError(f"not the file of an export: {path}")
    return manifest


def _refuse_differences(target: Path, found: dict[str, Any], manifest: dict[str, Any]) -> None:
    for name in ("format", "messages", "columns", "time_unit"):
        if found.get(name) != manifest[name]:
            raise ExportRefusedError(
                f"{target} holds another export: {name}={found.get(name)} asked={manifest[name]}; "
                "name another directory, or overwrite it"
            )
    for recording_id, identity in manifest["recordings"].items():
        known = found["recordings"].get(recording_id, identity)
        if known != identity:
            raise ExportRefusedError(
                f"{target} holds the export of another archive: recording_id={recording_id} is {known} there, "
                f"and {identity} here; name another directory, or overwrite it"
            )
