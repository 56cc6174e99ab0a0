"""Which module of the package has each of its public names; a test holds it against what type checkers see."""

from __future__ import annotations

from typing import Final

from .lazy_exports import lazy_exports

HOMES: Final = {
    "Archive": "conductor",
    "ArchiveClient": "client",
    "ArchiveConfig": "config",
    "ArchiveError": "errors",
    "ArchiveErrorCode": "errors",
    "ArchiveServer": "server",
    "CorruptionError": "errors",
    "Publication": "publication",
    "ReadProblem": "frame_batches",
    "Recording": "recording",
    "RecordingDescriptor": "descriptor",
    "RecordingState": "descriptor",
    "frames": "frame_batches",
}

__getattr__, __dir__ = lazy_exports("archive", HOMES)
