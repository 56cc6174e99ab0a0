"""The public names of the package by module; a test compares them with what type checkers see."""

from __future__ import annotations

from typing import Final

from ..service_api.lazy_exports import lazy_exports

HOMES: Final = {
    "Archive": "store.conductor",
    "ArchiveClient": "net.client",
    "ArchiveConfig": "config",
    "ArchiveError": "errors",
    "ArchiveErrorCode": "errors",
    "ArchiveServer": "net.server.archive_server",
    "ServedArchive": "net.server.served_archive",
    "CorruptionError": "errors",
    "Publication": "net.publication",
    "ReadProblem": "reading.frame_batches",
    "Recording": "store.recording",
    "RecordingDescriptor": "format.descriptor",
    "RecordingState": "format.descriptor",
    "frames": "reading.log_frames",
}

__getattr__, __dir__ = lazy_exports("trimaran.archive", HOMES)
