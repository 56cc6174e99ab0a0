"""The disk of a member with cold storage as readers see it: segments that left are there, and are fetched when read.

Every reader of a directory lists it, opens segments by name, and asks the catalog where a recording begins. So that is
all there is to change: the listing has the cold segments as well, opening one fetches it, and the log begins where its
cold segments do. Who writes gets the plain disk.

A reader changes nothing in the directory: it uses what the member's cache has, as it is, and fetches everything else
into temporary files of its own (`fetched`). So a directory that cannot be written is read, too, and the scan of an
analyst takes no room from the replays of the member.

Code for cold storage is loaded where there is some: other readers need neither pydantic nor a store.
The record of the directory is read again whenever a segment is missed, for the member may run and move it meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..disk.file_system import OsFileSystem
from ..format.descriptor import RecordingDescriptor
from ..format.layout import COLD_RECORD_NAME, segment_file_name
from ..format.segment_names import parse_segment_file_name

if TYPE_CHECKING:
    from ..stored.cluster_store import ClusterStore
    from .record import ColdRecord


class ColdFileSystem(OsFileSystem):
    """Implements `ReadableFileSystem` for one archive directory with cold storage, and below it as the disk does.

    It can be pickled. Opening a segment raises `StoreError` where the store cannot give it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory: Final = directory
        self._stores: dict[str, ClusterStore] = {}

    def __repr__(self) -> str:
        return f"<ColdFileSystem {self.directory}>"

    def __reduce__(self) -> tuple[type[ColdFileSystem], tuple[Path]]:
        return ColdFileSystem, (self.directory,)

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file; a segment that is not there is looked for in cold storage, if it is to be read."""
        try:
            return super().open_file(path, create=create, writable=writable)
        except FileNotFoundError:
            parsed = parse_segment_file_name(path.name)
            if writable or parsed is None or path.parent != self.directory:
                raise
            record = self._record()
            if record is None or parsed[0] != record.recording_id:
                raise
            segment = next((found for found in record.segments if found.base_position == parsed[1]), None)
            if segment is None:
                raise
        from ..stored.cluster_store import ClusterStore
        from .cache import cached_path
        from .fetched import FETCHED

        with suppress(FileNotFoundError):
            return super().open_file(cached_path(self.directory, segment), writable=False)
        store = self._stores.get(record.url)
        if store is None:
            store = self._stores[record.url] = ClusterStore(record.url)
        return FETCHED.open_segment(store, segment)

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; in that of the archive those of cold segments are among them."""
        names = super().list_directory(path)
        record = self._record() if path == self.directory else None
        if record is None:
            return names
        cold = (segment_file_name(record.recording_id, segment.base_position) for segment in record.segments)
        return sorted({*names, *cold})

    def extend(self, descriptor: RecordingDescriptor) -> RecordingDescriptor:
        """Let a recording begin where its cold segments do."""
        record = self._record()
        if record is None or record.recording_id != descriptor.recording_id:
            return descriptor
        from .record import ColdIndex

        return ColdIndex(record.segments).extend(descriptor)

    def _record(self) -> ColdRecord | None:
        from .record import read_record

        return read_record(self.directory)


def readable_disk(directory: Path) -> OsFileSystem:
    """Return the disk through which an archive directory of this machine is read."""
    return ColdFileSystem(directory) if (directory / COLD_RECORD_NAME).exists() else OsFileSystem()
