"""The manifest of a backup in an object store: which objects belong to it, how long they are, and their digests.

It is written last, so what it names is there. Objects that it does not name are not part of the backup, or not yet. The
two small files that change, the catalog and `recording.log`, are in it as well: a reader of the manifest needs no
second look at them, which might be newer. Of the segment that is still being filled a later object has the same
beginning; the manifest says how much of it counts.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import ClassVar, Final

from trimaran.service_api.documents import ClusterIdLine, Count, Document, DocumentPart, Position

MANIFEST_NAME: Final = "manifest.json"
DRAFT_NAME: Final = "manifest-draft.json"
"""What a copy that has not ended has written; no reader takes it for a backup."""
CATALOG_NAME: Final = "archive/archive.catalog"
RECORDING_LOG_NAME: Final = "cluster/recording.log"
CLUSTER_ID_NAME: Final = "cluster/cluster-id"


class StoredObject(DocumentPart):
    """One object: its first `length` bytes have this digest."""

    name: str
    """Below the backup's URL."""
    length: Count
    file_length: Count
    """How long the file is in a directory; zeros stand for the rest."""
    sha256: str
    """In hexadecimal digits."""
    is_final: bool
    """Whether it never changes again."""


class Manifest(Document):
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
    files: dict[str, str]
    """The small files that change, by name, in base64."""

    @property
    def by_name(self) -> dict[str, StoredObject]:
        """The objects by their names."""
        return {found.name: found for found in self.objects}


def encode_file(data: bytes) -> str:
    """Write a small file as text."""
    return base64.b64encode(data).decode()


def decode_file(text: str) -> bytes:
    """Read a small file from text.

    Raises:
        ValueError: it is none.
    """
    return base64.b64decode(text, validate=True)


def object_digest(data: bytes | memoryview) -> str:
    """Return the digest of bytes as a manifest has it."""
    return sha256(data).hexdigest()
