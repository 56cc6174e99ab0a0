"""What a start makes good before anybody uses an archive: edits, purges and tails that a crash left half-way."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import structlog

from ..errors import CorruptionError
from ..format.descriptor import RecordingDescriptor, RecordingState
from .damage import DamageTracker
from .editing import EditContext, complete
from .repair import repair_tail

_log = structlog.get_logger(__name__)


def make_good(ctx: EditContext, *, torn_limit_bytes: int, damage: DamageTracker | None = None) -> None:
    """Complete what a crash left of an edit or a purge, and find where each recording ends that was active. Blocks.

    The catalog is open. `torn_limit_bytes` is as for `repair_tail`. With a tracker, damage before the end of a
    recording is told to it, and the end is looked for behind it. Such an end is in doubt until the recording is
    extended, so the catalog's file does not get it: a start that is refused now is refused the next time, too.

    Raises:
        CorruptionError: something is wrong that no crash leaves; nothing was changed there.
        OSError: the disk refused.
    """
    edit = complete(ctx)
    if edit is not None:
        _log.info("recording.edit_completed", edit=edit.kind.name, recording_id=edit.recording_id)
    names = ctx.file_system.list_directory(ctx.directory)
    present = {name.partition("-")[0] for name in names}
    for descriptor in ctx.catalog.descriptors():
        # What a crash left of a purge: the catalog was told first.
        if descriptor.state is RecordingState.DELETED and str(descriptor.recording_id) in present:
            ctx.files(descriptor).remove_all()
        if descriptor.state is RecordingState.VALID and descriptor.stop_position is None:
            found_before = 0 if damage is None else damage.failed_read_count
            on_damage = None if damage is None else partial(_tell, damage, descriptor)
            result = repair_tail(
                ctx.files(descriptor), descriptor, torn_limit_bytes=torn_limit_bytes, on_damage=on_damage
            )
            is_in_doubt = damage is not None and damage.failed_read_count > found_before
            take = ctx.catalog.assume if is_in_doubt else ctx.catalog.update
            take(replace(descriptor, stop_position=result.stop_position, stop_timestamp_ms=ctx.clock_ms()))
            _log.info(
                "recording.tail_repaired",
                recording_id=descriptor.recording_id,
                stop_position=result.stop_position,
                reason=result.reason,
                cut=result.cut,
            )


def _tell(damage: DamageTracker, descriptor: RecordingDescriptor, error: CorruptionError) -> None:
    assert error.position is not None
    damage.on_failed_read(error, descriptor, error.position)
