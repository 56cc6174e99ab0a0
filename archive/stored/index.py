"""The layout of a store, and its documents: the index of each writer, and the notes that keep writers and prunes apart.

    URL/CLUSTER_ID/segments/POSITION-SHA256.rec           a whole segment of the log, written once
    URL/CLUSTER_ID/backup-STARTED/RECORDING-POSITION.rec  what one backup has besides: log that was followed, snapshots
    URL/CLUSTER_ID/indexes/member-ID.json                 the index of a member's cold storage
    URL/CLUSTER_ID/indexes/backup-STARTED.json            the index of a backup
    URL/CLUSTER_ID/indexes/writing-WRITER.json            a note: this one writes now
    URL/CLUSTER_ID/indexes/pruning-ID.json                a note: a prune runs now

The problem: members and backups of one cluster have the same log, byte for byte, and must not write it once each; and
what removes objects must know all who need them. The idea: a whole segment is named by its position and its digest, so
all who have it mean the same object. Who needs an object says so in its index, and each writer has an index of its own,
so no two write one object with different content. An index is written after all that it names. What no index names is
not there, or not yet.

Segments are shared and never change. A segment that a backup has copied while it was being filled is the backup's own:
each copy adds an object with the bytes that are new, and the index says where the objects are cut. So a byte goes up
once. Small objects are written again as one, which has the name of the first of them: a later object of the same name
begins with the same bytes, and the index says how many of them count. Rejected: one whole object once the segment is
full, which sends each byte twice, and a store joins objects by itself only if they are large.

A store is not believed: who can write it can write an index. So no index holds the name of an object: names are made of
numbers and digests. The names of the small files in a backup's index are those of three files, or it is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from ...service_api.documents.document import (
    ClusterIdLine,
    Count,
    DocumentPart,
    Id,
    Position,
    SealedDocument,
    Sha256Line,
    read_document,
)
from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ..format.layout import SEGMENT_LENGTH_LIMIT_BYTES, segment_file_name
from ..format.stored_names import WRITER_PATTERN, NameKind, StoredName, take_name

SEGMENTS: Final = "segments"
INDEXES: Final = "indexes"
WRITING_PREFIX: Final = "writing-"
PRUNING_PREFIX: Final = "pruning-"
CATALOG_NAME: Final = StoredName("archive/archive.catalog")
RECORDING_LOG_NAME: Final = StoredName("cluster/recording.log")
CLUSTER_ID_NAME: Final = StoredName("cluster/cluster-id")
NOTE_LIMIT_MS: Final = 24 * 3_600_000
"""A note that is older was left by a process that has ended: nobody writes or prunes for so long without a new one."""

_REMEDY: Final = (
    "no Trimaran writes that: restore an older version of the object, or use another URL, and find out who else can "
    "write to the store"
)


def decode_file(text: str) -> bytes:
    """Read a small file from text.

    Raises:
        ValueError: it is not base64.
    """
    return base64.b64decode(text, validate=True)


def encode_file(data: bytes) -> str:
    """Write a small file as text."""
    return base64.b64encode(data).decode()


def _check_text(text: str) -> str:
    decode_file(text)
    return text


_FileName = Annotated[
    StoredName,
    AfterValidator(lambda text: take_name(text, NameKind.CATALOG, NameKind.RECORDING_LOG, NameKind.CLUSTER_ID)),
]
_FileText = Annotated[str, AfterValidator(_check_text)]
_FileLength = Annotated[int, Field(ge=0, le=SEGMENT_LENGTH_LIMIT_BYTES)]
_Writer = Annotated[str, Field(pattern=rf"^(?:{WRITER_PATTERN})$")]


def _check_cuts(cuts: tuple[int, ...]) -> tuple[int, ...]:
    if any(end <= begin for begin, end in pairwise([0, *cuts])):
        raise ValueError("cuts do not rise")
    return cuts


@dataclass(slots=True, frozen=True)
class StoredObject:
    """An object, and how much of it counts."""

    name: StoredName
    length: int


class StoredSegment(DocumentPart):
    """One segment of a log in the store: a whole segment file."""

    base_position: Position
    start_position: Position
    """Where its first frame begins: at `base_position`, unless the log of who wrote it began later."""
    length: _FileLength
    sha256: Sha256Line

    @property
    def end_position(self) -> int:
        """Where it ends in the log."""
        return self.base_position + self.length

    @property
    def name(self) -> StoredName:
        """Its object, below the cluster's place in the store."""
        return StoredName(f"{SEGMENTS}/{self.base_position:019d}-{self.sha256}.rec")


class StoredPart(DocumentPart):
    """The beginning of a segment file, or all of it, in objects that one backup alone has."""

    kind: Literal["log", "snapshot"]
    """`log`: of the log, which goes on. `snapshot`: of the recording of a snapshot, which never changes."""
    recording_id: Id
    base_position: Position
    """Where the segment begins."""
    length: _FileLength
    file_length: _FileLength
    """How long the file is in a directory; zeros stand for the rest."""
    sha256: Sha256Line
    """Length of all objects together."""
    cuts: Annotated[tuple[_FileLength, ...], AfterValidator(_check_cuts)] = ()
    """Where its objects begin but for the first, counted from `base_position`: each goes on where the last one ends."""

    @property
    def name(self) -> StoredName:
        """Its file, and its first object in the backup's own folder."""
        return self._name_at(0)

    @property
    def objects(self) -> list[StoredObject]:
        """Its objects, in order, by their names in the backup's own folder."""
        begins = [0, *self.cuts]
        return [
            StoredObject(self._name_at(begin), end - begin)
            for begin, end in zip(begins, [*self.cuts, self.length], strict=True)
        ]

    def _name_at(self, begin: int) -> StoredName:
        return StoredName(segment_file_name(self.recording_id, self.base_position + begin))


class BackupContents(DocumentPart):
    """The rest of a backup beside whole segments: where its log ends, its tail, snapshots and small files."""

    log_recording_id: Id
    log_start_position: Position
    log_stop_position: Position
    snapshot_positions: list[Position]
    written_ms: Count
    """Epoch time in milliseconds, by the clock of the machine that wrote it."""
    parts: list[StoredPart]
    files: dict[_FileName, _FileText]
    """The small files that change, by name, in base64."""
    ticks_per_ms: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """The unit of times in the log and the recording log."""


class WriterIndex(SealedDocument):
    """The segments that one writer has in the store, or has found there, whole."""

    KIND: ClassVar[str] = "index of a store"

    cluster_id: ClusterIdLine
    writer: _Writer
    """`member-ID`, or `backup-STARTED` with the time at which the copy of the log was begun: another has another."""
    segments: list[StoredSegment]
    """A backup may have more of them than belong to `backup`: a copy has not ended, or was cut off."""
    backup: BackupContents | None = None
    """A backup as it was at one moment; None for a member, and while the first copy has not ended."""

    @property
    def is_of_member(self) -> bool:
        """True for cold storage: the segments may be gone from the disks of all members."""
        return self.writer.startswith("member-")

    @property
    def started_ms(self) -> int:
        """When the copy of the log was begun, of a backup."""
        return int(self.writer.partition("-")[2])

    @property
    def names(self) -> set[StoredName]:
        """The names of its segments' objects."""
        return {segment.name for segment in self.segments}

    @property
    def files(self) -> list[StoredFile]:
        """The files of recordings that a backup has, in order of their segments; none where there is no backup."""
        contents = self.backup
        if contents is None:
            return []
        whole = [
            StoredFile(
                path=_path_of(segment_file_name(contents.log_recording_id, segment.base_position)),
                objects=(StoredObject(segment.name, segment.length),),
                length=segment.length,
                file_length=segment.length,
                sha256=segment.sha256,
            )
            for segment in self.segments
            if segment.end_position <= contents.log_stop_position
        ]
        parts = [
            StoredFile(
                path=_path_of(part.name),
                objects=tuple(replace(each, name=StoredName(f"{self.writer}/{each.name}")) for each in part.objects),
                length=part.length,
                file_length=part.file_length,
                sha256=part.sha256,
            )
            for part in contents.parts
        ]
        return whole + parts


@dataclass(slots=True, frozen=True)
class StoredFile:
    """A file of a backup's directory, and the objects that have its beginning."""

    path: StoredName
    """In the directory."""
    objects: tuple[StoredObject, ...]
    """In order, by their names below the cluster's place in the store; at least one."""
    length: int
    """How long they are together."""
    file_length: int
    """How long the file is in a directory; zeros stand for the rest."""
    sha256: str

    def spans(self, begin: int, end: int) -> Iterator[tuple[StoredName, int, int]]:
        """Yield the objects that have the bytes [begin, end), and which of their own bytes those are."""
        first = 0
        for each in self.objects:
            if begin < first + each.length and first < end:
                yield each.name, max(begin - first, 0), min(end - first, each.length)
            first += each.length

    def first_objects(self, length: int) -> tuple[StoredObject, ...]:
        """Return the objects that have the first bytes; an empty one where there are none."""
        spans = [StoredObject(name, end) for name, _, end in self.spans(0, length)]
        return tuple(spans) or (replace(self.objects[0], length=0),)


class Note(SealedDocument):
    """The note of a writer or a prune while it runs."""

    KIND: ClassVar[str] = "note in a store"

    written_ms: Count


def index_name(writer: str) -> StoredName:
    """Name the index of a writer."""
    return StoredName(f"{INDEXES}/{writer}.json")


def read_index(data: bytes, place: str) -> WriterIndex:
    """Read the index that was found at a place.

    Raises:
        RemoteProtocolError: it is no index, or has what no writer writes; the error has the place.
    """
    try:
        index = read_document(WriterIndex, data)
    except RemoteProtocolError as error:
        raise type(error)(f"{place}: {error}; {_REMEDY}") from error
    paths = {file.path for file in index.files}
    if len({segment.base_position for segment in index.segments}) < len(index.segments) or len(paths) < len(
        index.files
    ):
        raise RemoteProtocolError(f"{place}: a file is named twice; {_REMEDY}")
    for file in index.files:
        if file.length > file.file_length or min(each.length for each in file.objects) < 0:
            raise RemoteProtocolError(
                f"{place}: length={file.length} of {file.path} expected at most file_length={file.file_length}, and "
                f"{len(file.objects)} objects in it; {_REMEDY}"
            )
    return index


def older_layout(url: str, found: str) -> ConfigurationError:
    """Say that a store was written before backups and cold storage had one layout."""
    return ConfigurationError(
        f"{url} has {found}, which an older Trimaran wrote in a layout that this one does not read: name another URL, "
        "and keep this one, with the Trimaran that wrote it, for as long as you need what is there"
    )


def _path_of(file_name: str) -> StoredName:
    return StoredName(f"archive/{file_name}")
