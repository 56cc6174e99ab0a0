"""The unit of the timestamps in a recorded log, found in the messages that name it.

A leadership term begins with a message that names the unit, and so does the log unless its beginning was purged. Then
there is a snapshot, whose first message names it, too. Source: schema 111, templates 24 and 100.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from ...service_api.types import LOG_STREAM_ID, TimeUnit
from ...service_api.wire.log.fields import read_time_unit
from ..cold.file_system import ColdFileSystem
from ..files.reader import FrameReader
from ..format.descriptor import RecordingDescriptor, RecordingState
from .member_directory import ArchiveLocation

_SEARCHED_FRAMES: Final = 10_000
"""How many frames of a log are looked at whose first message does not name the unit."""


def find_time_unit(location: ArchiveLocation, descriptors: Iterable[RecordingDescriptor]) -> TimeUnit:
    """Find the unit of a cluster's timestamps in its recordings; milliseconds, Aeron's default, if none says.

    The first message of each recording is looked at, those of logs first and newer ones before older ones, then the
    beginning of the newest log. A log that begins in cold storage comes last: a snapshot on the disk says the same.

    Raises:
        OSError: the disk or the store refused.
    """
    valid = [descriptor for descriptor in descriptors if descriptor.state is RecordingState.VALID]
    valid.sort(
        key=lambda descriptor: (
            _is_cold(location, descriptor),
            descriptor.stream_id != LOG_STREAM_ID,
            -descriptor.recording_id,
        )
    )
    for descriptor in valid:
        unit = _search(location, descriptor, frame_limit=1)
        if unit is not None:
            return unit
    log = next((descriptor for descriptor in valid if descriptor.stream_id == LOG_STREAM_ID), None)
    return (None if log is None else _search(location, log, frame_limit=_SEARCHED_FRAMES)) or TimeUnit.MILLIS


def _is_cold(location: ArchiveLocation, descriptor: RecordingDescriptor) -> bool:
    """Whether the beginning of a recording is in cold storage."""
    if not isinstance(location.file_system, ColdFileSystem):
        return False
    base_position = descriptor.segment_base_position(descriptor.start_position)
    return not (location.directory / descriptor.segment_file_name(base_position)).exists()


def _search(location: ArchiveLocation, descriptor: RecordingDescriptor, *, frame_limit: int) -> TimeUnit | None:
    reader = FrameReader(location.directory, descriptor, checksummed=False, file_system=location.file_system)
    units = (read_time_unit(frame.payload) for frame in islice(reader, frame_limit))
    return next((unit for unit in units if unit is not None), None)
