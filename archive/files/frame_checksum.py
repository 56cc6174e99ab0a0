"""Whether the frames of a recording carry checksums of a class that nobody here knows.

An archive computes the checksum of a catalog entry and those of the recording's frames with the same class. Where the
entry's fits neither CRC-32 nor CRC-32C, the frames decide: if their numbers change from frame to frame and are neither,
another class has computed them. If they are one of the two, or all the same, or no frames are found, the entry is
damaged.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from ...service_api.wire.checksum import KNOWN_CHECKSUMS, ChecksumKind
from ...service_api.wire.frame import HEADER_LENGTH, TYPE_DATA, wrap_int32
from ..disk.file_system import ReadableFileSystem
from ..errors import ArchiveError
from ..format.descriptor import RecordingDescriptor
from .reader import Frame, FrameReader

_LOOKED_AT_FRAMES: Final = 32


def has_unknown_checksums(file_system: ReadableFileSystem, directory: Path, descriptor: RecordingDescriptor) -> bool:
    """Return whether the first frames carry numbers that are computed from them, by no known checksum.

    Raises:
        OSError: a segment file cannot be read.
    """
    try:
        reader = FrameReader(directory, descriptor, checksummed=False, file_system=file_system)
        frames = [*islice((frame for frame in reader if frame.type == TYPE_DATA and frame.payload), _LOOKED_AT_FRAMES)]
    except ArchiveError:
        return False
    if any(_carries(frame, kind) for frame in frames for kind in KNOWN_CHECKSUMS):
        return False
    payloads, numbers = {frame.payload for frame in frames}, {frame.session_id for frame in frames}
    return 1 < len(payloads) == len(numbers)


def _carries(frame: Frame, kind: ChecksumKind) -> bool:
    padded = frame.payload + bytes(-(HEADER_LENGTH + len(frame.payload)) & 31)
    return wrap_int32(kind.compute(padded)) == frame.session_id
