"""A copy of a member in which one byte of the log is another one, and nothing that the file says betrays it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

from trimaran import archive
from trimaran.service_api.wire.frame import HEADER_LENGTH, frame_crc

from .morning import RecordedMorning

SESSION_MESSAGE: Final = 1
_CRC_OFFSET: Final = 12


class ChangedCopy(NamedTuple):
    """The copy, and what was done to it."""

    directory: Path
    position: int
    """Of the frame that was changed, in bytes."""
    payload_offset: int
    """Of the byte in that frame's payload."""


def silently_changed_copy(morning: RecordedMorning) -> ChangedCopy:
    """Copy a member and change the last byte of a request in the middle of its log; the checksum is made to fit.

    A disk does not do that: it stands for a member whose software or memory was at fault before the entry was written.
    """
    source = morning.member(morning.survivor_member_id)
    target = morning.directory / "changed-copy"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    columns = ["position", "frame_length", "template_id"]
    rows = archive.frames(source / "archive", recording_id=0, columns=columns).read_all().to_pylist()
    requests = [row for row in rows if row["template_id"] == SESSION_MESSAGE]
    chosen = requests[len(requests) // 2]
    segments = {int(path.stem.partition("-")[2]): path for path in (target / "archive").glob("0-*.rec")}
    base_position = max(base for base in segments if base <= chosen["position"])
    with segments[base_position].open("r+b") as segment:
        segment.seek(chosen["position"] - base_position)
        frame = bytearray(segment.read(-(-chosen["frame_length"] // 32) * 32))
        frame[chosen["frame_length"] - 1] ^= 1
        checksum = frame_crc(frame, 0, chosen["frame_length"])
        frame[_CRC_OFFSET : _CRC_OFFSET + 4] = checksum.to_bytes(4, "little", signed=True)
        segment.seek(chosen["position"] - base_position)
        segment.write(frame)
    return ChangedCopy(target, chosen["position"], chosen["frame_length"] - HEADER_LENGTH - 1)
