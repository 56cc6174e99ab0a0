"""What must hold of a backup: on its disk, by what a power loss would leave, and in the object store, at every moment.

No agent is believed: what is committed the referee knows from the members' disks.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from .....archive.disk.memory_file_system import MemoryFileSystem
from .....archive.format.catalog import parse_catalog
from .....archive.format.stored_names import NameKind, StoredName
from .....archive.stored.index import (
    CATALOG_NAME,
    INDEXES,
    RECORDING_LOG_NAME,
    BackupContents,
    StoredFile,
    WriterIndex,
    decode_file,
)
from .....service_api.documents.document import read_document
from .....service_api.types import LOG_STREAM_ID
from ....core.log.recording_log import RecordingLog
from ....operating.backup.agent import BackupAgent
from ....operating.backup.retention import KEEP_EVERYTHING, BackupRetention
from ..cluster import DIRECTORY
from ..kept_log import complete_snapshot_times, read_kept_log
from ..world.expect import expect

_COMMITTED: Final = "a backup holds what is committed, and nothing else"
_RECORDED: Final = "what a backup has recorded stays"
_POINTS: Final = "a backup can be restored to every point in time that it keeps"
_NAMED: Final = "the index of a backup names only what is there"


class BackupRules:
    """Watches one backup. Every method may raise `RuleBroken`."""

    def __init__(self, committed: bytearray, retention: BackupRetention = KEEP_EVERYTHING) -> None:
        self.recorded_position = 0
        """How far the log of the directory was seen to be recorded."""
        self.begun_count = 0
        """How many directories there were before this one, which could not go on."""
        self._committed = committed
        self._retention = retention
        self._past = _Past()
        self._stored_pasts: dict[str, _Past] = {}
        """By the URL of an index."""
        self._indexes: dict[str, WriterIndex] = {}
        """The indexes of complete backups, by their URL."""

    def __repr__(self) -> str:
        return f"<BackupRules recorded={self.recorded_position} begun={self.begun_count}>"

    # --- the directory

    def on_opened(self, agent: BackupAgent, disk: MemoryFileSystem) -> None:
        """An agent begins: what was there is there, unless another backup was begun, and then it stands beside."""
        begun_count = sum(name.startswith(f"{DIRECTORY.name}.") for name in disk.list_directory(DIRECTORY.parent))
        if begun_count != self.begun_count:
            self.begun_count, self.recorded_position, self._past = begun_count, 0, _Past()
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
        taken = {at: timestamp for at, timestamp in complete_snapshot_times(disk).items() if at > 0}
        expect(
            all(at <= self.recorded_position for at in taken),
            "a backup notes a snapshot once its log has reached it",
            positions=[*taken],
            recorded_position=self.recorded_position,
        )
        self._past.expect_points(taken, kept.start_position, self._retention)

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
                if url in {f"{place}/{each.name}" for each in stored.objects}:
                    _expect_stored(place, stored, objects)

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
            _expect_stored(place, stored, objects)
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
        recording_log = RecordingLog.parse(decode_file(contents.files[RECORDING_LOG_NAME]))
        complete = recording_log.complete_snapshots(recording_log.latest_service_count() or 0)
        taken = {found[0].log_position: found[0].timestamp for found in complete if found[0].log_position}
        past = self._stored_pasts.setdefault(url, _Past())
        past.expect_points(taken, contents.log_start_position, self._retention)
        log = _stored_log(place, index, contents, objects)
        expect(
            log == self._committed[contents.log_start_position : contents.log_stop_position],
            _COMMITTED,
            url=url,
            start_position=contents.log_start_position,
            stop_position=contents.log_stop_position,
            length=len(log),
        )


@dataclass(slots=True)
class _Past:
    """How much of the past one copy of the log had, when last looked at."""

    start_position: int | None = None
    oldest: int | None = None
    """The position of the oldest snapshot, once the log does not begin at 0."""
    newest_time: int = 0

    def expect_points(self, taken: dict[int, int], start_position: int, retention: BackupRetention) -> None:
        """Expect that the log begins where it did, or with a snapshot that is old enough. Times by positions."""
        oldest = min(taken, default=None)
        self.newest_time = max([self.newest_time, *taken.values()])
        if self.start_position is None:
            self.start_position = start_position
        if start_position > self.start_position or (start_position and self.oldest not in (None, oldest)):
            expect(
                oldest is not None
                and retention.keep_ms is not None
                and start_position <= oldest
                and taken[oldest] <= self.newest_time - retention.keep_ms,
                _POINTS,
                start_position=start_position,
                taken=taken,
                before=self,
                retention=retention,
            )
        self.start_position, self.oldest = start_position, oldest if start_position else None


def _expect_stored(place: str, stored: StoredFile, objects: dict[str, bytes]) -> None:
    digest = sha256()
    for each in stored.objects:
        data = objects.get(f"{place}/{each.name}")
        expect(data is not None and len(data) >= each.length, _NAMED, place=place, expected=each)
        assert data is not None
        digest.update(data[: each.length])
    expect(digest.hexdigest() == stored.sha256, _NAMED, place=place, expected=stored)


def _stored_log(place: str, index: WriterIndex, contents: BackupContents, objects: dict[str, bytes]) -> bytes:
    """Read the log that an index describes, as far as objects have it; it is as long as the index says."""
    catalog = parse_catalog(decode_file(contents.files[CATALOG_NAME]))
    log = next(found for found in catalog.readable if found.stream_id == LOG_STREAM_ID)
    files, parts = {file.path: file for file in index.files}, []
    for base, begin, end in log.clip(contents.log_start_position, contents.log_stop_position):
        stored = files.get(StoredName(f"archive/{log.segment_file_name(base)}"))
        if stored is not None:
            spans = stored.spans(begin - base, min(stored.length, end - base))
            parts += [objects.get(f"{place}/{name}", b"")[first:last] for name, first, last in spans]
    return b"".join(parts)
