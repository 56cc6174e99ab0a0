"""Where the log of a running member ends, read from its segment files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from trimaran.archive.format.layout import parse_segment_file_name
from trimaran.service_api.wire.frame import FRAME_HEADER, HEADER_LENGTH, align

LOG_RECORDING_ID: Final = 0
"""The log is the first recording of every member."""


def log_end_position(member_directory: Path, *, floor: int = 0) -> int:
    """Walk the frames from `floor`, a position at which one begins or the log ends, to the last one."""
    archive = member_directory / "archive"
    names = [(path, parse_segment_file_name(path.name)) for path in archive.iterdir()] if archive.exists() else []
    segments = sorted((name[1], path) for path, name in names if name is not None and name[0] == LOG_RECORDING_ID)
    position = floor
    for base_position, path in segments:
        position = _walk(path, base_position, position)
    return position


def _walk(path: Path, base_position: int, position: int) -> int:
    """Walk the frames of one segment, if the position lies in it."""
    with path.open("rb") as file:
        length = file.seek(0, 2)
        if not length or not base_position <= position < base_position + length:
            return position
        with mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ) as data:
            offset = position - base_position
            while offset + HEADER_LENGTH <= length:
                frame_length = FRAME_HEADER.unpack_from(data, offset)[0]
                if frame_length <= 0:
                    break
                offset += align(frame_length)
    return base_position + offset
