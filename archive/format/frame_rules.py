"""The rules of frames, applied to a recording's descriptor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from ...service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
)
from ...service_api.wire.checksum import ChecksumKind
from ...service_api.wire.frame import (
    FRAME_ALIGNMENT,
    HEADER_LENGTH,
    TYPE_PADDING,
    ReadableBuffer,
    align,
    unpack_header,
)
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.log.log_rules import Before
from .descriptor import RecordingDescriptor

PAGE_LENGTH: Final = 4096
"""What a disk writes at once: a frame that crosses a page boundary may be there in part."""


_LOG_ALIAS: Final = re.compile(r"[?|]alias=log(-cm)?(\||$)")
"""The part of a channel that only a log has: ours, and those of Aeron's leaders and followers."""
_SNAPSHOT_CHANNELS: Final = {
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID: re.compile(r"[?|]alias=consensus-module-snapshot(\||$)"),
    SERVICE_SNAPSHOT_STREAM_ID: re.compile(r"^trimaran:.*[?|]alias=service-[0-9]+-snapshot(\||$)"),
}
"""By stream id, the part of a channel that only a snapshot has. Aeron lets a service choose flags: only ours counts."""


def is_cluster_log(descriptor: RecordingDescriptor) -> bool:
    """Return whether a recording is a cluster's log, which only leaders write: its stream id and its channel say so.

    Nothing is known of a recording of an application that has the log's stream id by chance. Source: Aeron
    `ConsensusModuleAgent`, which names the channel of every log it records.
    """
    return descriptor.stream_id == LOG_STREAM_ID and _LOG_ALIAS.search(descriptor.original_channel) is not None


def is_ruled_snapshot(descriptor: RecordingDescriptor) -> bool:
    """Return whether a recording is a snapshot whose flags no application chose.

    Ours, and those of Aeron's consensus module. A service of Aeron's writes to its snapshot as to any other recording.
    Source: Aeron `ConsensusModuleAgent`, `ClusteredServiceAgent.onTakeSnapshot`.
    """
    channel = _SNAPSHOT_CHANNELS.get(descriptor.stream_id)
    return channel is not None and channel.search(descriptor.original_channel) is not None


def frame_rules_of(descriptor: RecordingDescriptor, *, checksummed: bool | None = None) -> FrameRules:
    """Return the rules for the frames of a recording; `checksummed` overrides what the catalog says.

    Frames whose checksum is of no known kind are not checked, or against a CRC-32 if they have to be.
    """
    kind = descriptor.checksum_kind
    return FrameRules(
        initial_term_id=descriptor.initial_term_id,
        term_length_bytes=descriptor.term_buffer_length,
        mtu_length_bytes=descriptor.mtu_length,
        stream_id=descriptor.stream_id,
        checksummed=descriptor.is_checkable if checksummed is None else checksummed,
        checksum_kind=ChecksumKind.CRC32 if kind is ChecksumKind.UNKNOWN else kind,
        is_cluster_log=is_cluster_log(descriptor),
        is_snapshot=is_ruled_snapshot(descriptor),
    )


def find_before(
    rules: FrameRules, start_position: int, position: int, read: Callable[[int, int], bytes]
) -> tuple[Before, int | None]:
    """Find what lies before the frame at `position` of a log or snapshot, and where the data frame before it begins.

    For who begins to read there. `UNKNOWN` and None where nobody can tell, as at the start of the recording. `read`
    gives so many bytes of the recording from a position on, or fewer.
    """
    if not rules.is_cluster_written or position <= start_position:
        return _NOTHING
    term_length = rules.term_length_bytes
    first = max(start_position, (position - 1) // term_length * term_length)
    found = _find_before(rules, first, position, read)
    if position % term_length:
        return found
    padding_position = _find_padding(rules, first, position, read)
    if padding_position is None:
        return found
    before, begin = _find_before(rules, first, padding_position, read)
    if before is Before.FRAGMENT:
        before = Before.LOST_END
    return (before, begin) if found == _NOTHING or found[0] is before else _NOTHING


_NOTHING: Final = (Before.UNKNOWN, None)


def _find_before(
    rules: FrameRules, first: int, position: int, read: Callable[[int, int], bytes]
) -> tuple[Before, int | None]:
    begin = max(first, position - align(rules.mtu_length_bytes))
    data = read(begin, position - begin)
    return rules.find_before(data, position) if len(data) == position - begin else _NOTHING


def _find_padding(rules: FrameRules, first: int, position: int, read: Callable[[int, int], bytes]) -> int | None:
    """Find where padding begins that ends with its term, at `position`; only zeros follow its header."""
    length = align(rules.mtu_length_bytes)
    while True:
        begin = max(first, position - length)
        data = read(begin, position - begin)
        written_length = len(data.rstrip(b"\0"))
        if written_length:
            offset = (written_length - 1) & -FRAME_ALIGNMENT
            header = unpack_header(data.ljust(offset + HEADER_LENGTH, b"\0"), offset)
            is_padding = header.type == TYPE_PADDING and rules.find_header_fault(header, begin + offset) is None
            return begin + offset if is_padding and begin + offset + header.aligned_length == position else None
        if begin == first:
            return None
        length *= 4


def may_end_torn(descriptor: RecordingDescriptor) -> bool:
    """Return whether nothing says of the last frame of a recording that all of it was written."""
    return descriptor.stop_position is None and not descriptor.is_checkable


def find_blank_page(frame: ReadableBuffer, file_offset: int, frame_length: int) -> int | None:
    """Find the file offset from which a page part of the data frame at `file_offset` is all zeros; None: there is none.

    The part with the header is none of these. Without a checksum such a frame may be whole, or torn. Source: samples
    set A README §10.
    """
    page = file_offset // PAGE_LENGTH * PAGE_LENGTH + PAGE_LENGTH
    while page < file_offset + frame_length:
        part = bytes(frame[page - file_offset : page - file_offset + PAGE_LENGTH])
        if part.count(0) == len(part):
            return page
        page += PAGE_LENGTH
    return None
