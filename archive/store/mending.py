"""Puts bytes of another copy in the place of a damaged range: checked before they are written, and after.

Who brings the bytes has made sure that they are what was recorded here: this room knows only frames. It takes what is
valid where the recording's own frames are not, up to the first own frame that is valid again, and that one has to be
the same in both. A valid frame of its own that differs is no damage but another history: nothing is written then,
unless the caller knows by other means that the own frames are wrong.

The bytes are in the journal of edits, durably, before the first of them overwrites anything, so a crash in between
leaves the old bytes or the new ones at the next start, and no end of a log that looks torn. Only bytes that differ are
written. Then the pages are dropped and read again: a disk that takes bytes and does not keep them is told from one that
has lost some.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from ...service_api.wire.frame import HeaderField, unpack_header
from ...service_api.wire.frame_rules import FrameRules
from ..disk.file_system import opened, read_fully
from ..errors import ArchiveError, CorruptionError, bad_position, is_damage
from ..files.edit_journal import Edit, EditKind
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from .editing import EditContext

_FLAGS_OFFSET: Final = HeaderField.KIND.offset + 1

_BLOCK_BYTES: Final = 4096
"""In steps of this length is read what cannot be read at once: a page, and what a disk loses at least."""


class LostWriteError(CorruptionError):
    """What was written and synced is not what the disk gives back: it must not be trusted with anything."""


@dataclass(slots=True, frozen=True)
class Mending:
    """What is to be written, and up to where the recording is right once it is."""

    edit: Edit | None
    """None where there is nothing to write."""
    end_position: int


def plan_mending(
    ctx: EditContext, descriptor: RecordingDescriptor, position: int, frames: bytes, *, replaces: bool = False
) -> Mending:
    """Decide what of `frames`, which belong at `position`, is to be written, and write nothing. Blocks.

    With `replaces` all of them belong there, whatever is there now.

    Raises:
        ArchiveError: INVALID_POSITION, they do not lie within one segment of what is recorded.
        CorruptionError: a frame among them is not valid, or an own valid frame differs from them.
        OSError: the disk refused for another reason than damage.
    """
    recording_id, end_position = descriptor.recording_id, position + len(frames)
    recorded_position = ctx.end_position(recording_id)
    last_position = min(recorded_position, descriptor.segment_base_position(position) + descriptor.segment_file_length)
    if not frames or position % 32 or not descriptor.start_position <= position < end_position <= last_position:
        raise bad_position(
            f"cannot mend: end_position={end_position} start_position={descriptor.start_position} "
            f"recorded_position={recorded_position} segment_file_length={descriptor.segment_file_length}",
            recording_id,
            position,
        )
    rules = frame_rules_of(descriptor)
    own = read_own(ctx, descriptor, position, unlike=bytes(0xFF - byte for byte in frames))
    length = _damaged_length(rules, recording_id, position, own, frames, replaces=replaces)
    if own[:length] == frames[:length]:
        return Mending(None, position + length)
    first = next(at for at in range(length) if own[at] != frames[at])
    last = next(at for at in reversed(range(length)) if own[at] != frames[at])
    edit = Edit(
        kind=EditKind.MEND,
        recording_id=recording_id,
        position=position + first,
        stop_position=position + last + 1,
        timestamp_ms=ctx.clock_ms(),
        data=frames[first : last + 1],
    )
    return Mending(edit, position + length)


def _damaged_length(
    rules: FrameRules, recording_id: int, position: int, own: bytes, frames: bytes, *, replaces: bool
) -> int:
    """Return the length of the leading frames of which the own copies are not valid; 0 if all are the same.

    In a log or a snapshot the first one may be the same: it is the frame before the damage, or it has lost a flag
    itself, which shows at the next one. Two frames of one history that differ in nothing but flags are one frame and
    a flipped bit. Where the frames are to replace what is there, it is the length of all.
    """
    at, leads, differs = 0, rules.is_cluster_written, False
    while at < len(frames):
        fault = rules.find_fault(frames, at, position + at)
        length = unpack_header(frames, at).aligned_length if fault is None else 0
        if fault is not None or at + length > len(frames):
            raise CorruptionError(
                f"cannot mend with a frame that is not valid: {fault or 'it is not whole'}",
                recording_id=recording_id,
                position=position + at,
            )
        mine, theirs = own[at : at + length], frames[at : at + length]
        if replaces:
            at += length
            continue
        is_flipped = rules.is_cluster_written and _without_flags(mine) == _without_flags(theirs)
        if mine != theirs and not is_flipped and rules.find_fault(mine, 0, position + at) is None:
            raise CorruptionError(
                "cannot mend: the frame here is valid and differs from the one of the other copy, so they do not have "
                "the same history",
                recording_id=recording_id,
                position=position + at,
            )
        if mine == theirs and not leads:
            break
        leads, differs = mine != theirs and is_flipped, differs or mine != theirs
        at += length
    return at if differs or replaces else 0


def _without_flags(frame: bytes) -> bytes:
    return frame[:_FLAGS_OFFSET] + frame[_FLAGS_OFFSET + 1 :]


def read_own(ctx: EditContext, descriptor: RecordingDescriptor, position: int, *, unlike: bytes) -> bytes:
    """Read bytes of one segment as they are, checked by nobody; for what cannot be read, those of `unlike`."""
    base_position = descriptor.segment_base_position(position)
    offset, length = position - base_position, len(unlike)
    try:
        with opened(ctx.file_system, ctx.directory / descriptor.segment_file_name(base_position)) as handle:
            own = b""
            while len(own) < length:
                at = len(own)
                step = length - at if at == 0 else min(_BLOCK_BYTES - (offset + at) % _BLOCK_BYTES, length - at)
                try:
                    data = read_fully(ctx.file_system, handle, step, offset + at)
                except OSError as error:
                    if not is_damage(error):
                        raise
                    step = min(_BLOCK_BYTES - (offset + at) % _BLOCK_BYTES, length - at)
                    data = b""
                own += data + unlike[at + len(data) : at + step]
            return own
    except FileNotFoundError:
        return unlike


class _Readable(Protocol):
    """An archive, as far as it is read."""

    def read(self, recording_id: int, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Read whole valid frames."""


def read_back(archive: _Readable, recording_id: int, position: int, end_position: int) -> None:
    """Read a range that was written again, from the disk.

    Raises:
        LostWriteError: it still cannot be read.
    """
    at = position
    try:
        while at < end_position:
            at += len(archive.read(recording_id, at, end_position - at, stop_position=end_position))
    except ArchiveError as error:
        raise LostWriteError(
            f"the disk does not keep what is written to it: the range from position={position} was written again and "
            f"synced, and cannot be read: {error.message}; replace the disk",
            recording_id=recording_id,
            position=at,
        ) from error
