"""The manifest of a backup in an object store: which objects belong to it, how long they are, and their digests.

It is written last, so what it names is there. Objects that it does not name are not part of the backup, or not yet. The
two small files that change, the catalog and `recording.log`, are in it as well: a reader of the manifest needs no
second look at them, which might be newer. Of the segment that is still being filled a later object has the same
beginning; the manifest says how much of it counts.

A store is not believed: who can write it can write the manifest. So a manifest with any other names than those of
segments and of the three small files is refused as a whole, and so is one with a file longer than any segment.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field

from ....archive.format.layout import SEGMENT_LENGTH_LIMIT_BYTES
from ....archive.format.stored_names import NameKind, StoredName, take_name
from ....service_api.documents.document import (
    ClusterIdLine,
    Count,
    DocumentPart,
    Position,
    SealedDocument,
    Sha256Line,
    read_document,
)
from ....service_api.errors import RemoteProtocolError

MANIFEST_NAME: Final = StoredName("manifest.json")
DRAFT_NAME: Final = StoredName("manifest-draft.json")
"""The name under which a copy writes before it has ended; no reader takes it for a backup."""
CATALOG_NAME: Final = StoredName("archive/archive.catalog")
RECORDING_LOG_NAME: Final = StoredName("cluster/recording.log")
CLUSTER_ID_NAME: Final = StoredName("cluster/cluster-id")


def decode_file(text: str) -> bytes:
    """Read a small file from text.

    Raises:
        ValueError: it is not base64.
    """
    return base64.b64decode(text, validate=True)


def _check_text(text: str) -> str:
    decode_file(text)
    return text


_SegmentName = Annotated[StoredName, AfterValidator(lambda text: take_name(text, NameKind.SEGMENT))]
_FileName = Annotated[
    StoredName,
    AfterValidator(lambda text: take_name(text, NameKind.CATALOG, NameKind.RECORDING_LOG, NameKind.CLUSTER_ID)),
]
_FileText = Annotated[str, AfterValidator(_check_text)]
_FileLength = Annotated[int, Field(ge=0, le=SEGMENT_LENGTH_LIMIT_BYTES)]
_REMEDY: Final = (
    "`trimaran backup ship` does not write that: restore an older version of the object, or use another backup, and "
    "find out who else can write to the store"
)


class StoredObject(DocumentPart):
    """One object: its first `length` bytes have this digest."""

    name: _SegmentName
    """Below the backup's URL."""
    length: _FileLength
    file_length: _FileLength
    """How long the file is in a directory; zeros stand for the rest."""
    sha256: Sha256Line
    is_final: bool
    """Whether it never changes again."""


class Manifest(SealedDocument):
    """A backup as it was at one moment."""

    KIND: ClassVar[str] = "manifest of a backup"

    cluster_id: ClusterIdLine
    log_started_ms: Count
    """When the copy of the log was begun, by the clock of its machine: another copy has another time."""
    log_start_position: Position
    log_stop_position: Position
    snapshot_positions: list[Position]
    written_ms: Count
    """Epoch time in milliseconds, by the clock of the machine that wrote it."""
    objects: list[StoredObject]
    files: dict[_FileName, _FileText]
    """The small files that change, by name, in base64."""

    @property
    def by_name(self) -> dict[StoredName, StoredObject]:
        """The objects by their names."""
        return {found.name: found for found in self.objects}


def decode_manifest(data: bytes, place: str) -> Manifest:
    """Read the manifest that was found at a place.

    Raises:
        RemoteProtocolError: it is no manifest, or names what no backup has; the error has the place.
    """
    try:
        manifest = read_document(Manifest, data)
    except RemoteProtocolError as error:
        raise type(error)(f"{place}: {error}; {_REMEDY}") from error
    if len(manifest.by_name) < len(manifest.objects):
        raise RemoteProtocolError(f"{place}: an object is named twice; {_REMEDY}")
    for found in manifest.objects:
        if found.length > found.file_length:
            raise RemoteProtocolError(
                f"{place}: length={found.length} of {found.name} expected at most file_length={found.file_length}; "
                f"{_REMEDY}"
            )
    return manifest


def encode_file(data: bytes) -> str:
    """Write a small file as text."""
    return base64.b64encode(data).decode()


def object_digest(data: bytes | memoryview) -> str:
    """Return the digest of bytes as a manifest has it."""
    return sha256(data).hexdigest()
