"""Edits recordings: truncate, purge, detach, attach and migrate segments.

Each edit has two parts. `plan_...` decides, without touching a file: it refuses what would break a recording that is
active, a replay that is running, or the range that a recording has. What it gives is then done by `perform`, which
blocks, under the journal (`edit_journal`): after a crash at any point the next start completes it.

The order of the steps keeps every reader right meanwhile: the catalog stops offering a range before its files go, and
offers one only when its files are there.
Source: Aeron `AeronArchive` (truncate, purge, detach, attach, migrate); that an edit is whole after a crash is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ...service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.log.log_rules import Before, what_follows
from ..disk.file_system import FileSystem, opened, read_fully, write_fully
from ..errors import ArchiveError, ArchiveErrorCode, CorruptionError, bad_position
from ..files.catalog import Catalog
from ..files.edit_journal import Edit, EditJournal, EditKind
from ..files.log_end import first_nonzero
from ..files.segment_files import SegmentFiles
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..format.frame_rules import frame_rules_of

_BLOCK_BYTES: Final = 1 << 20


@dataclass(slots=True, frozen=True, kw_only=True)
class EditContext:
    """What an edit needs from the archive that owns the recordings."""

    catalog: Catalog
    journal: EditJournal
    file_system: FileSystem
    directory: Path
    sync_level: int
    clock_ms: Callable[[], int]
    active: Container[int]
    """The ids of the recordings that are being appended to."""
    end_position: Callable[[int], int]
    """Up to where a recording is durable."""
    spared_positions: Callable[[int], Collection[int]]
    """Where those are that read a recording and are to be spared."""

    def files(self, descriptor: RecordingDescriptor) -> SegmentFiles:
        """Return the segment files of a recording."""
        return SegmentFiles(self.file_system, self.directory, descriptor, sync_level=self.sync_level)

    def valid(self, recording_id: int) -> RecordingDescriptor:
        """Return the descriptor of a recording whose data is here.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, also when it was purged or marked invalid.
        """
        descriptor = self.catalog.get(recording_id)
        if descriptor.state is not RecordingState.VALID:
            raise ArchiveError(
                f"recording is not usable: state={descriptor.state.name}",
                code=ArchiveErrorCode.UNKNOWN_RECORDING,
                recording_id=recording_id,
            )
        return descriptor

    def inactive(self, recording_id: int) -> tuple[RecordingDescriptor, int]:
        """Return the descriptor of a recording that nobody appends to, and its stop position.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, or ACTIVE_RECORDING.
        """
        descriptor = self.valid(recording_id)
        if recording_id in self.active or descriptor.stop_position is None:
            raise still_active(recording_id)
        return descriptor, descriptor.stop_position


def still_active(recording_id: int) -> ArchiveError:
    """Make the error for an edit that waits for the end of a recording."""
    return ArchiveError(
        "recording is active: stop it first", code=ArchiveErrorCode.ACTIVE_RECORDING, recording_id=recording_id
    )


def plan_truncation(ctx: EditContext, recording_id: int, position: int) -> Edit | None:
    """Decide on cutting a recording at `position`; None when it ends there already.

    Raises:
        ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_POSITION, or GENERIC: it is being read.
    """
    descriptor, stop_position = ctx.inactive(recording_id)
    if not descriptor.start_position <= position <= stop_position or position % 32:
        raise bad_position(
            f"cannot truncate: start_position={descriptor.start_position} stop_position={stop_position}",
            recording_id,
            position,
        )
    if position == stop_position:
        return None
    refuse_if_read(ctx, recording_id, "truncate")
    return Edit(kind=EditKind.TRUNCATE, recording_id=recording_id, position=position, timestamp_ms=ctx.clock_ms())


def plan_purge(ctx: EditContext, recording_id: int, position: int) -> Edit | None:
    """Decide on removing the segments wholly below `position`; None when there are none.

    Raises:
        ArchiveError: UNKNOWN_RECORDING, INVALID_POSITION, or GENERIC: somebody reads in these segments.
    """
    descriptor = ctx.valid(recording_id)
    end_position = ctx.end_position(recording_id)
    if position > end_position:
        raise bad_position(f"cannot purge: end_position={end_position}", recording_id, position)
    if position <= descriptor.start_position:
        return None
    base_position = descriptor.segment_base_position(position)
    if base_position <= descriptor.start_position:
        return None
    refuse_if_read(ctx, recording_id, "purge", below_position=base_position)
    return Edit(kind=EditKind.PURGE, recording_id=recording_id, position=base_position, timestamp_ms=ctx.clock_ms())


def plan_deletion(ctx: EditContext, recording_id: int) -> Edit:
    """Decide on removing the segments below the start of a recording.

    Raises:
        ArchiveError: UNKNOWN_RECORDING.
    """
    descriptor = ctx.valid(recording_id)
    base_position = descriptor.segment_base_position(descriptor.start_position)
    return Edit(kind=EditKind.PURGE, recording_id=recording_id, position=base_position, timestamp_ms=ctx.clock_ms())


def plan_detachment(ctx: EditContext, recording_id: int, position: int) -> RecordingDescriptor:
    """Decide on leaving out the segments below `position`: give the descriptor as it is to be.

    Raises:
        ArchiveError: UNKNOWN_RECORDING, INVALID_POSITION: no segment after the first begins there, or GENERIC:
            somebody reads in these segments.
    """
    descriptor = ctx.valid(recording_id)
    start_position, end_position = descriptor.start_position, ctx.end_position(recording_id)
    if not start_position < position <= end_position or position != descriptor.segment_base_position(position):
        first = descriptor.segment_base_position(start_position) + descriptor.segment_file_length
        last = descriptor.segment_base_position(end_position)
        expected = f"{first} to {last} in steps of {descriptor.segment_file_length}" if first <= last else "none"
        raise bad_position(
            f"cannot detach: start_position={start_position} end_position={end_position}; "
            f"segments after the first begin at: {expected}",
            recording_id,
            position,
        )
    refuse_if_read(ctx, recording_id, "detach", below_position=position)
    return replace(descriptor, start_position=position)


def plan_migration(ctx: EditContext, src_recording_id: int, dst_recording_id: int) -> Edit | None:
    """Decide on moving all segments of a recording to the front or the end of another; None when it is empty.

    Raises:
        ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_POSITION: they do not adjoin, or GENERIC: their
            layout differs, or the source is being read.
    """
    src, stop_position = ctx.inactive(src_recording_id)
    dst = ctx.valid(dst_recording_id)
    _refuse_if_layout_differs(src, dst)
    if src.start_position == stop_position:
        return None
    if stop_position == dst.start_position:
        join_position, joined = stop_position, src
    elif dst.stop_position is None or dst_recording_id in ctx.active:
        raise ArchiveError(
            f"cannot migrate: destination is active and does not begin where the source ends: "
            f"src_stop_position={stop_position} dst_start_position={dst.start_position}",
            code=ArchiveErrorCode.ACTIVE_RECORDING,
            recording_id=dst_recording_id,
            position=dst.start_position,
        )
    else:
        join_position, joined = src.start_position, dst
    is_adjoining = join_position in (dst.start_position, dst.stop_position)
    if not is_adjoining or joined.segment_base_position(join_position) != join_position:
        raise bad_position(
            "cannot migrate: the recordings do not join at a segment boundary: "
            f"src_recording_id={src_recording_id} src_start_position={src.start_position} "
            f"src_stop_position={stop_position} dst_start_position={dst.start_position} "
            f"dst_stop_position={dst.stop_position} segment_file_length={src.segment_file_length}",
            dst_recording_id,
            join_position,
        )
    refuse_if_read(ctx, src_recording_id, "migrate")
    return Edit(
        kind=EditKind.MIGRATE,
        recording_id=src_recording_id,
        position=src.start_position,
        stop_position=stop_position,
        dst_recording_id=dst_recording_id,
        timestamp_ms=ctx.clock_ms(),
    )


def perform(ctx: EditContext, edit: Edit) -> int:
    """Do what was planned, durably; give the number of segments that were removed, or moved. Blocks.

    Raises:
        ArchiveError: INVALID_POSITION, no frame begins at the position of a truncation; GENERIC, segments are in the
            way of a migration. Nothing was changed then.
        OSError: the disk refused; the edit is completed before the next change, or at the next start.
    """
    if edit.kind is EditKind.TRUNCATE:
        _check_frame_boundary(ctx, edit)
    elif edit.kind is EditKind.MIGRATE:
        _check_nothing_in_the_way(ctx, edit)
    ctx.journal.begin(edit)
    count = _STEPS[edit.kind](ctx, edit)
    ctx.journal.end()
    return count


def complete(ctx: EditContext) -> Edit | None:
    """Complete the edit that a crash or a failure left, if there is one; give it. Blocks."""
    edit = ctx.journal.read()
    if edit is not None:
        _STEPS[edit.kind](ctx, edit)
    if ctx.journal.is_pending:
        ctx.journal.end()
    return edit


def attach(ctx: EditContext, descriptor: RecordingDescriptor) -> int:
    """Take back the detached segments that adjoin the start of a recording; give their number. Blocks.

    Every frame in them is checked first. The lowest one may begin with zeros, where the recording once began inside a
    term. All of them or none: what is damaged has to be moved away before those after it are taken.

    Raises:
        CorruptionError: a frame is not valid, or a file has not the length of a segment.
        OSError: the disk refused.
    """
    files = ctx.files(descriptor)
    present = set(files.base_positions())
    start_position, length = descriptor.start_position, descriptor.segment_file_length
    base_position = descriptor.segment_base_position(start_position)
    if base_position != start_position:
        return 0
    count = 0
    while start_position == base_position and base_position - length in present:
        base_position -= length
        start_position = _check_detached(files, descriptor, base_position)
        count += 1
    if count:
        ctx.catalog.update(replace(descriptor, start_position=start_position))
    return count


def _truncate(ctx: EditContext, edit: Edit) -> int:
    descriptor = ctx.catalog.get(edit.recording_id)
    if descriptor.stop_position != edit.position:
        ctx.catalog.update(
            replace(descriptor, stop_position=edit.position, stop_timestamp_ms=edit.timestamp_ms),
        )
    files, base_position = ctx.files(descriptor), descriptor.segment_base_position(edit.position)
    count = files.remove_from(base_position + descriptor.segment_file_length)
    files.clean_after(base_position, edit.position)
    return count


def _purge(ctx: EditContext, edit: Edit) -> int:
    descriptor = ctx.catalog.get(edit.recording_id)
    if descriptor.start_position < edit.position:
        ctx.catalog.update(replace(descriptor, start_position=edit.position))
    return ctx.files(descriptor).remove_below(edit.position)


def _migrate(ctx: EditContext, edit: Edit) -> int:
    src, dst = ctx.catalog.get(edit.recording_id), ctx.catalog.get(edit.dst_recording_id)
    if src.stop_position != edit.position:
        ctx.catalog.update(replace(src, stop_position=edit.position, stop_timestamp_ms=edit.timestamp_ms))
    src_files, dst_files = ctx.files(src), ctx.files(dst)
    count = src_files.move_to(dst_files, src.segment_base_position(edit.position), edit.stop_position)
    stop_position = None if dst.stop_position is None else max(dst.stop_position, edit.stop_position)
    moved = replace(dst, start_position=min(dst.start_position, edit.position), stop_position=stop_position)
    if moved != dst:
        ctx.catalog.update(moved)
    src_files.clean_after(src.segment_base_position(edit.position), edit.position)
    return count


def _mend(ctx: EditContext, edit: Edit) -> int:
    descriptor = ctx.catalog.get(edit.recording_id)
    files, base_position = ctx.files(descriptor), descriptor.segment_base_position(edit.position)
    is_present = base_position in files.base_positions()
    segment = files.open_segment(base_position) if is_present else files.create_first(base_position, zero=False)
    try:
        write_fully(ctx.file_system, segment.handle, edit.data, edit.position - base_position)
        files.sync(segment)
        ctx.file_system.evict(segment.handle, edit.position - base_position, len(edit.data))
    finally:
        ctx.file_system.close_file(segment.handle)
    return 0


_STEPS: Final[dict[EditKind, Callable[[EditContext, Edit], int]]] = {
    EditKind.TRUNCATE: _truncate,
    EditKind.PURGE: _purge,
    EditKind.MIGRATE: _migrate,
    EditKind.MEND: _mend,
}


def refuse_if_read(ctx: EditContext, recording_id: int, what: str, *, below_position: int | None = None) -> None:
    """Refuse an edit that would take from a reader what it has yet to read: all of it, or what is below a position.

    Raises:
        ArchiveError: GENERIC: it is being read.
    """
    positions = ctx.spared_positions(recording_id)
    needed = [at for at in positions if below_position is None or at < below_position]
    if needed:
        raise ArchiveError(
            f"cannot {what}: the recording is being read: readers={len(needed)} lowest_position={min(needed)}; "
            "stop these replays first, or wait for their end",
            recording_id=recording_id,
            position=min(needed),
        )


def _refuse_if_layout_differs(src: RecordingDescriptor, dst: RecordingDescriptor) -> None:
    facts = (
        ("segment_file_length", src.segment_file_length, dst.segment_file_length),
        ("term_buffer_length", src.term_buffer_length, dst.term_buffer_length),
        ("mtu_length", src.mtu_length, dst.mtu_length),
        ("initial_term_id", src.initial_term_id, dst.initial_term_id),
        ("stream_id", src.stream_id, dst.stream_id),
        ("checksums", src.checksum_label, dst.checksum_label),
    )
    if src.recording_id == dst.recording_id:
        raise ArchiveError("cannot migrate: source and destination are the same", recording_id=src.recording_id)
    for name, theirs, ours in facts:
        if theirs != ours:
            raise ArchiveError(
                f"cannot migrate: src_recording_id={src.recording_id} has {name}={theirs} expected={ours}",
                recording_id=dst.recording_id,
            )


def _check_nothing_in_the_way(ctx: EditContext, edit: Edit) -> None:
    """See that the destination has no file where a segment is to go, but the blank one that awaits its next byte."""
    dst = ctx.catalog.get(edit.dst_recording_id)
    files = ctx.files(dst)
    first = ctx.catalog.get(edit.recording_id).segment_base_position(edit.position)
    for base_position in files.base_positions():
        if first <= base_position < edit.stop_position and not files.is_blank(base_position):
            raise ArchiveError(
                "cannot migrate: a detached segment of the destination is in the way: "
                f"file={dst.segment_file_name(base_position)}; delete the detached segments first",
                recording_id=edit.dst_recording_id,
                position=base_position,
            )


def _check_frame_boundary(ctx: EditContext, edit: Edit) -> None:
    """Walk the frames of the segment that holds the position of a truncation to see that one begins there."""
    descriptor = ctx.catalog.get(edit.recording_id)
    base_position = descriptor.segment_base_position(edit.position)
    begin_position = max(base_position, descriptor.start_position)
    if begin_position == edit.position:
        return
    rules = frame_rules_of(descriptor, checksummed=False)
    with opened(ctx.file_system, ctx.directory / descriptor.segment_file_name(base_position)) as handle:
        at, fault = _walk(ctx.file_system, handle, rules, base_position, begin_position, edit.position)
    if fault is not None or at != edit.position:
        raise bad_position(f"not a frame boundary: the frame before begins at {at}", edit.recording_id, edit.position)


def _check_detached(files: SegmentFiles, descriptor: RecordingDescriptor, base_position: int) -> int:
    """Check every frame of a detached segment; give the position of the first."""
    name, length = descriptor.segment_file_name(base_position), descriptor.segment_file_length
    with opened(files.file_system, files.directory / name) as handle:
        found = files.file_system.file_length(handle)
        if found != length:
            raise CorruptionError(
                f"cannot attach: file={name} length={found} expected={length}",
                recording_id=descriptor.recording_id,
                position=base_position,
            )
        start_position = base_position + _blank_length(files.file_system, handle, descriptor.term_buffer_length)
        at, fault = _walk(
            files.file_system, handle, frame_rules_of(descriptor), base_position, start_position, base_position + length
        )
    if fault is not None:
        raise CorruptionError(
            f"cannot attach: file={name} {fault}; nothing was changed, move the file away to attach those after it",
            recording_id=descriptor.recording_id,
            position=at,
        )
    return start_position


def _blank_length(file_system: FileSystem, handle: int, term_length: int) -> int:
    """Where in a segment the first frame begins: at its beginning, or after zeros within its first term."""
    written = first_nonzero(file_system, handle, 0, term_length)
    return 0 if written is None else written & -HEADER_LENGTH


def _walk(
    file_system: FileSystem, handle: int, rules: FrameRules, base_position: int, position: int, end_position: int
) -> tuple[int, str | None]:
    """Follow the frames of a segment from `position` to `end_position`; say where that ends and what is wrong there."""
    before = Before.UNKNOWN
    while position < end_position:
        data = read_fully(file_system, handle, min(_BLOCK_BYTES, end_position - position), position - base_position)
        end, _, before = rules.skip_valid_frames(data, 0, position, len(data), before)
        if end:
            position += end
            continue
        fault = rules.find_fault(data, 0, position, before)
        if fault is not None:
            return position, fault
        header = unpack_header(data)
        if header.type != TYPE_PADDING or position + header.aligned_length > end_position:
            return position, f"frame runs past the end: frame_length={header.frame_length} end={end_position}"
        position, before = position + header.aligned_length, what_follows(header, before)
    return position, None
