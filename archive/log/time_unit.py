"""Which unit the timestamps of a recorded log have: the messages of a log do not say, but two others do.

A leadership term begins with a message that names the unit, and so does the log unless its beginning was purged. Then
there is a snapshot, whose first message names it, too. The places of the two fields are written down here; a test
compares them with the message classes of `trimaran.cluster.messages`. Source: schema 111, templates 24 and 100.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import islice
from typing import Final

from trimaran.service_api.types import LOG_STREAM_ID, TimeUnit
from trimaran.service_api.wire.sbe import MESSAGE_HEADER

from ..files.reader import FrameReader
from ..format.descriptor import RecordingDescriptor, RecordingState
from .locations import ArchiveLocation
from trimaran.service_api.wire.log.fields import (LOG_SCHEMA_ID, MESSAGE_HEADER_LENGTH)

TIME_UNIT_OFFSETS: Final = {24: 40, 100: 32}
"""By template id: where in its block a new leadership term event and a snapshot marker name the unit, as int32."""

_SEARCHED_FRAMES: Final = 10_000
"""How many frames of a log are looked at whose first message does not name the unit."""

_UNITS: Final = frozenset(unit.value for unit in TimeUnit)
_INT32: Final = struct.Struct("<i")


def find_time_unit(location: ArchiveLocation, descriptors: Iterable[RecordingDescriptor]) -> TimeUnit:
    """Find the unit of a cluster's timestamps in its recordings; milliseconds, Aeron's default, if none says.

    The first message of each recording is looked at, those of logs first and newer ones before older ones, then the
    beginning of the newest log.

    Raises:
        OSError: the disk or the store refused.
    """
    valid = [descriptor for descriptor in descriptors if descriptor.state is RecordingState.VALID]
    valid.sort(key=lambda descriptor: (descriptor.stream_id != LOG_STREAM_ID, -descriptor.recording_id))
    for descriptor in valid:
        unit = _search(location, descriptor, frame_limit=1)
        if unit is not None:
            return unit
    if valid and valid[0].stream_id == LOG_STREAM_ID:
        return _search(location, valid[0], frame_limit=_SEARCHED_FRAMES) or TimeUnit.MILLIS
    return TimeUnit.MILLIS


def read_time_unit(payload: bytes) -> TimeUnit | None:
    """Read the unit from a message that names it; None for any other, and where an old one does not name it yet."""
    if len(payload) < MESSAGE_HEADER_LENGTH:
        return None
    block_length, template_id, schema_id, _ = MESSAGE_HEADER.unpack_from(payload)
    offset = TIME_UNIT_OFFSETS.get(template_id)
    if schema_id != LOG_SCHEMA_ID or offset is None or block_length < offset + _INT32.size:
        return None
    if len(payload) < MESSAGE_HEADER_LENGTH + block_length:
        return None
    (value,) = _INT32.unpack_from(payload, MESSAGE_HEADER_LENGTH + offset)
    return TimeUnit(value) if value in _UNITS else None


def _search(location: ArchiveLocation, descriptor: RecordingDescriptor, *, frame_limit: int) -> TimeUnit | None:
    reader = FrameReader(location.directory, descriptor, checksummed=False, file_system=location.file_system)
    units = (read_time_unit(frame.payload) for frame in islice(reader, frame_limit))
    return next((unit for unit in units if unit is not None), None)
