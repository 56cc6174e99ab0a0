"""The rules of frames, applied to a recording's descriptor."""

from __future__ import annotations

from typing import Final

from trimaran.service_api.wire.checksum import ChecksumKind
from trimaran.service_api.wire.frame import ReadableBuffer
from trimaran.service_api.wire.frame_rules import FrameRules

from .descriptor import RecordingDescriptor

PAGE_LENGTH: Final = 4096
"""What a disk writes at once: a frame that crosses a page boundary may be there in part."""


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
    )


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
