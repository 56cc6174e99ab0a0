"""What must hold of a backup: on its disk, by what a power loss would leave, and in the object store, at every moment.

No agent is believed: what is committed the referee knows from the members' disks.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from .....archive.disk.memory_file_system import MemoryFileSystem
from .....archive.format.catalog import parse_catalog
from .....archive.format.stored_names import NameKind, StoredName
from .....archive.stored.index import CATALOG_NAME, INDEXES, BackupContents, StoredFile, WriterIndex, decode_file
from .....service_api.documents.document import read_document
from .....service_api.types import LOG_STREAM_ID
from ....operating.backup.agent import BackupAgent
from ..cluster import DIRECTORY
from ..kept_log import complete_snapshot_positions, read_kept_log
from ..world.expect import expect

_COMMITTED: Final = "a backup holds what is committed, and nothing else"
_RECORDED: Final = "what a backup has recorded stays"
_NAMED: Final = "the index of a backup names only what is there"


class BackupRules:
    """Watches one backup. Every method may raise `RuleBroken`."""

    def __init__(self, committed: bytearray) -> None:
        self.recorded_position = 0
        """How far the log of the directory was seen to be recorded."""
        self.begun_count = 0
        """How many directories there were before this one, which could not go on."""
        self._committed = committed
        self._oldest_snapshot: int | None = None
        self._indexes: dict[str, WriterIndex] = {}
        """The indexes of complete backups, by their URL."""

    def __repr__(self) -> str:
        return f"<BackupRules recorded={self.recorded_position} begun={self.begun_count}>"

    # --- the directory

    def on_opened(self, agent: BackupAgent, disk: MemoryFileSystem) -> None:
        """An agent begins: what was there is there, unless another backup was begun, and then it stands beside."""
        begun_count = sum(name.startswith(f"{DIRECTORY.name}.") for name in disk.list_directory(DIRECTORY.parent))
        if begun_count != self.begun_count:
            self.begun_count, self.recorded_position, self._oldest_snapshot = begun_count, 0, None
        position = agent.directory.recorded_position
        expect(position >= self.recorded_position, _RECORDED, was=self.recorded_position, is_=position)

    def look(self, agent: BackupAgent, disk: MemoryFileSystem) -> None:
        """Look at the log when it has grown; cheap when it has not."""
        recording = agent.directory.recording
        if recording is None or recording.recorded_position == self.recorded_position:
            return
        position, descriptor = recording.recorded_position, recording.descriptor
        expect(position <= len(self._committed), _COMMITTED, position=position, committed=len(self._committed))
        for base, begin, end in descriptor.clip(max(self.recorded_position, descriptor.start_position), position):
            path = DIRECTORY / "archive" / descriptor.segment_file_name(base)
            data = disk.durable_read(path, end - begin, begin - base)
            expect(data == self._committed[begin:end], _COMMITTED, begin=begin, end=end)
        self.recorded_position = position

    def look_at_snapshots(self, disk: MemoryFileSystem) -> None:
        """Look at what was noted: each snapshot is whole and reached by the log, and one is where the log begins."""
        kept = read_kept_log(disk)
        if kept is None:
            return
        positions = sorted(at for at in complete_snapshot_positions(disk) if at > 0)
        expect(
            all(at <= self.recorded_position for at in positions),
            "a backup notes a snapshot once its log has reached it",
            positions=positions,
            recorded_position=self.recorded_position,
        )
        if kept.start_position == 0:
            return
        if self._oldest_snapshot is None and positions:
            self._oldest_snapshot = positions[0]
        expect(
            self._oldest_snapshot is None or self._oldest_snapshot in positions,
            "a backup keeps the snapshot that it begins with",
            oldest=self._oldest_snapshot,
            positions=positions,
            start_position=kept.start_position,
        )

    # --- the store

    def on_object(self, url: str, objects: dict[str, bytes]) -> None:
        """An object was written or removed: a reader of the index finds all that it names."""
        place, _, file = url.rpartition(f"/{INDEXES}/")
        if place and NameKind.INDEX.fits(file):
            self._on_index(place, url, objects)
            return
        for index_url, index in self._indexes.items():
            place = index_url.rpartition(f"/{INDEXES}/")[0]
            for stored in index.files:
                if url == f"{place}/{stored.name}":
                    _expect_stored(url, stored, objects)

    def find_index(self, started_ms: int) -> tuple[str, WriterIndex] | None:
        """Find the backup that was begun then: its URL and index."""
        return next(((url, index) for url, index in self._indexes.items() if index.started_ms == started_ms), None)

    def _on_index(self, place: str, url: str, objects: dict[str, bytes]) -> None:
        index = read_document(WriterIndex, objects[url]) if url in objects else None
        before = self._indexes.pop(url, None)
        if index is None or index.backup is None:
            return
        self._indexes[url] = index
        contents = index.backup
        for stored in index.files:
            _expect_stored(f"{place}/{stored.name}", stored, objects)
        was = 0 if before is None or before.backup is None else before.backup.log_stop_position
        expect(was <= contents.log_stop_position, "a backup in a store never goes back", was=before, is_=index)
        expect(
            contents.log_stop_position <= len(self._committed),
            _COMMITTED,
            position=contents.log_stop_position,
            committed=len(self._committed),
        )
        expect(
            all(at <= contents.log_stop_position for at in contents.snapshot_positions),
            "a backup notes a snapshot once its log has reached it",
            index=index,
        )
        log = _stored_log(place, index, contents, objects)
        expect(
            log == self._committed[contents.log_start_position : contents.log_stop_position],
            _COMMITTED,
            url=url,
            start_position=contents.log_start_position,
            stop_position=contents.log_stop_position,
            length=len(log),
        )


def _expect_stored(url: str, stored: StoredFile, objects: dict[str, bytes]) -> None:
    data = objects.get(url)
    expect(data is not None and len(data) >= stored.length, _NAMED, url=url, expected=stored.length)
    assert data is not None
    expect(sha256(data[: stored.length]).hexdigest() == stored.sha256, _NAMED, url=url, sha256=stored.sha256)


def _stored_log(place: str, index: WriterIndex, contents: BackupContents, objects: dict[str, bytes]) -> bytes:
    """Read the log that an index describes, as far as objects have it; it is as long as the index says."""
    catalog = parse_catalog(decode_file(contents.files[CATALOG_NAME]))
    log = next(found for found in catalog.readable if found.stream_id == LOG_STREAM_ID)
    files, parts = {file.path: file for file in index.files}, []
    for base, begin, end in log.clip(contents.log_start_position, contents.log_stop_position):
        stored = files.get(StoredName(f"archive/{log.segment_file_name(base)}"))
        if stored is not None:
            parts.append(objects.get(f"{place}/{stored.name}", b"")[begin - base : min(stored.length, end - base)])
    return b"".join(parts)
