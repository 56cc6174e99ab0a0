"""Changes an archive directory on which no archive runs: states, checksums, the catalog's size, orphaned files.

Who calls holds the lock of the directory (`mark_file`). What must not be half done is written under another
name, synced, and renamed: a crash leaves the old file or the new one. The catalog is always written as a whole, and the
redo record of `archive.catalog` goes before that: the places that it names are those of the old file.
Order: the catalog gives up a recording before its files go, so what a crash leaves are files that nobody needs; and the
catalog says that a recording has checksums when all of its frames have.
Every function here blocks. Source: Aeron `ArchiveTool`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...service_api.wire.checksum import ChecksumKind
from ..disk.file_system import FileSystem, opened, read_file, write_new_file
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError
from ..files.catalog import REDO_FILE_NAME, Catalog, settle_checksums
from ..files.edit_journal import EDIT_FILE_NAME
from ..format.catalog import (
    CATALOG_FILE_NAME,
    ENTRY_HEADER_LENGTH,
    CatalogContent,
    CatalogEntry,
    entry_checksum,
    parse_catalog,
)
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.segment_names import parse_segment_file_name
from .stamping import stamp_recording

CAPACITY_LIMIT_BYTES: Final = 1 << 31
"""The largest catalog, as in Aeron, which keeps places in it in 32 bits."""

_NEW_FILE_NAME: Final = CATALOG_FILE_NAME + ".new"
_STATE: Final = struct.Struct("<i")
_STATE_OFFSET: Final = 4
_CHECKSUM_OFFSET: Final = 8
_UNFINISHED: Final = re.compile(r"\.(next|zero)\Z")
"""How the name of a segment ends that is not used yet."""


@dataclass(slots=True, frozen=True)
class SuperfluousFile:
    """A file that belongs to no recording as the catalog has it, and why."""

    name: str
    recording_id: int
    length_bytes: int
    reason: str


class OfflineArchive:
    """An archive directory while nobody runs on it."""

    def __init__(self, file_system: FileSystem, directory: Path) -> None:
        self._file_system = file_system
        self._directory = directory

    def __repr__(self) -> str:
        return f"<OfflineArchive directory={str(self._directory)!r}>"

    def settle(self) -> None:
        """Complete what a crash interrupted in the catalog, as the next start of an archive would.

        Raises:
            ArchiveError: an edit was interrupted, which only an archive completes.
            OSError: the disk refused.
        """
        if EDIT_FILE_NAME in self._file_system.list_directory(self._directory):
            raise ArchiveError(
                f"an edit of segments was interrupted here: file={EDIT_FILE_NAME}; start the archive once "
                "to complete the edit"
            )
        catalog = Catalog(self._file_system, self._directory, sync_level=2)
        try:
            catalog.open()
        except CorruptionError:
            return  # no redo record makes it whole: who reads it next sees what is wrong
        finally:
            catalog.close()

    def read(self) -> CatalogContent:
        """Read the catalog.

        Raises:
            CorruptionError: it is none.
        """
        return settle_checksums(self._file_system, self._directory, parse_catalog(self._read_bytes()))

    def set_state(self, recording_ids: set[int], state: RecordingState) -> None:
        """Set the state of recordings. It is not under the checksum of an entry, so that stays true."""
        data = bytearray(self._read_bytes())
        for entry in parse_catalog(bytes(data)).entries:
            if entry.descriptor is not None and entry.descriptor.recording_id in recording_ids:
                _STATE.pack_into(data, entry.offset + _STATE_OFFSET, state)
        self._write_catalog(bytes(data))

    def set_capacity(self, length_bytes: int) -> None:
        """Grow the catalog file to a length; it is never made shorter.

        Raises:
            ArchiveError: it is longer already, or may not be as long.
        """
        data = self._read_bytes()
        if not len(data) <= length_bytes <= CAPACITY_LIMIT_BYTES:
            raise ArchiveError(
                f"catalog cannot have this length: length={length_bytes} expected={len(data)} to {CAPACITY_LIMIT_BYTES}"
            )
        self._write_catalog(data, length_bytes)

    def compactable(self) -> list[CatalogEntry]:
        """Return the entries that `compact` removes: all that are not VALID.

        Raises:
            CorruptionError: an entry that should be kept is not valid, or one cannot be read at all.
        """
        entries = self.read().entries
        for entry in entries:
            if entry.descriptor is None or (
                entry.problem is not None and entry.descriptor.state is RecordingState.VALID
            ):
                raise CorruptionError(
                    f"catalog entry is not valid: offset={entry.offset} {entry.problem}; nothing was changed",
                    recording_id=None if entry.descriptor is None else entry.descriptor.recording_id,
                )
        return [entry for entry in entries if _state(entry) is not RecordingState.VALID]

    def compact(self) -> None:
        """Remove all entries that are not VALID, then their files. Ids are not given again, nor is the file shorter.

        Raises:
            CorruptionError: as `compactable`; nothing was changed.
            OSError: the disk refused.
        """
        doomed = {entry.offset: entry for entry in self.compactable()}
        data = self._read_bytes()
        content = parse_catalog(data)
        kept = b"".join(
            data[entry.offset : entry.offset + entry.length] for entry in content.entries if entry.offset not in doomed
        )
        self._write_catalog(data[:ENTRY_HEADER_LENGTH] + kept, len(data))
        gone = {entry.descriptor.recording_id for entry in doomed.values() if entry.descriptor is not None}
        self._remove([name for name, recording_id, _ in self._recording_files() if recording_id in gone])

    def files_of(self, recording_id: int) -> list[tuple[str, int]]:
        """Return the names and lengths of the files of a recording."""
        return [(name, self._length(name)) for name, found, _ in self._recording_files() if found == recording_id]

    def superfluous_files(self) -> Iterator[SuperfluousFile]:
        """Find the files that no recording needs: detached, left by a crash, or of a recording that is gone.

        Those of an INVALID recording are kept: it may be marked valid again.
        """
        found: dict[int, RecordingDescriptor] = {
            entry.descriptor.recording_id: entry.descriptor for entry in self.read().entries if entry.descriptor
        }
        for name, recording_id, base_position in self._recording_files():
            reason = _superfluous_because(found.get(recording_id), name, base_position)
            if reason is not None:
                yield SuperfluousFile(name, recording_id, self._length(name), reason)

    def remove_files(self, files: list[SuperfluousFile]) -> None:
        """Remove files, durably."""
        self._remove([file.name for file in files])

    def write_checksums(
        self, entry: CatalogEntry, kind: ChecksumKind, *, on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Write a checksum into every data frame of a stopped recording, in place of session ids, and into its entry.

        A segment at a time: a copy with checksums takes the place of the file. What a crash leaves is a recording of
        which some frames have checksums and the catalog says none has; doing it again completes it. Returns how many
        frames there are. `on_progress` is told how many bytes are done.

        Raises:
            ArchiveError: the recording was not stopped: its last frame might be torn, and would look valid then.
            CorruptionError: a frame is wrong; its segment was not changed.
            OSError: the disk refused.
        """
        assert entry.descriptor is not None
        descriptor = replace(entry.descriptor, checksum_kind=kind)
        if descriptor.stop_position is None:
            raise ArchiveError(
                "recording was not stopped: start the archive once to find its end",
                code=ArchiveErrorCode.ACTIVE_RECORDING,
                recording_id=descriptor.recording_id,
            )
        frame_count = stamp_recording(self._file_system, self._directory, descriptor, on_progress)
        data = bytearray(self._read_bytes())
        body = bytes(data[entry.offset + ENTRY_HEADER_LENGTH : entry.offset + entry.length])
        _STATE.pack_into(data, entry.offset + _CHECKSUM_OFFSET, entry_checksum(body, kind))
        self._write_catalog(bytes(data))
        return frame_count

    def _read_bytes(self) -> bytes:
        return read_file(self._file_system, self._directory / CATALOG_FILE_NAME)

    def _write_catalog(self, data: bytes, length_bytes: int = 0) -> None:
        """Put a new catalog in the place of the old one, with zeros after `data` up to a length."""
        disk = self._file_system
        write_new_file(disk, self._directory / _NEW_FILE_NAME, data, length=length_bytes, is_synced=True)
        self._forget_redo()
        disk.rename(self._directory / _NEW_FILE_NAME, self._directory / CATALOG_FILE_NAME)
        disk.sync_directory(self._directory)

    def _forget_redo(self) -> None:
        if REDO_FILE_NAME not in self._file_system.list_directory(self._directory):
            return
        handle = self._file_system.open_file(self._directory / REDO_FILE_NAME)
        try:
            self._file_system.set_length(handle, 0)
            self._file_system.sync_file(handle)
        finally:
            self._file_system.close_file(handle)

    def _recording_files(self) -> Iterator[tuple[str, int, int]]:
        """Yield each file of a recording, working names included: its name, recording id and base position."""
        for name in self._file_system.list_directory(self._directory):
            found = parse_segment_file_name(_UNFINISHED.sub("", name))
            if found is not None:
                yield name, *found

    def _length(self, name: str) -> int:
        with opened(self._file_system, self._directory / name) as handle:
            return self._file_system.file_length(handle)

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._file_system.remove(self._directory / name)
        self._file_system.sync_directory(self._directory)


def _state(entry: CatalogEntry) -> RecordingState | None:
    return None if entry.descriptor is None else entry.descriptor.state


def _superfluous_because(descriptor: RecordingDescriptor | None, name: str, base_position: int) -> str | None:
    """Return why no recording needs a file; None when one does."""
    if descriptor is None:
        return "its recording is not in the catalog"
    if descriptor.state is RecordingState.DELETED:
        return "its recording is deleted"
    if parse_segment_file_name(name) is None:
        return "never became a segment"
    if base_position < descriptor.segment_base_position(descriptor.start_position):
        return f"detached: before the start position, {descriptor.start_position}"
    stop_position = descriptor.stop_position
    if stop_position is not None and base_position > stop_position:
        return f"after the stop position, {stop_position}"
    return None
