"""Editing recordings at the request of a control session: the archive decides, and says why where it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...format import messages
from ..control import check_channel

if TYPE_CHECKING:
    from .control_session import ControlSession


async def on_truncate(session: ControlSession, request: messages.TruncateRecordingRequest) -> None:
    """Cut a recording; the answer is how many segments were deleted."""
    count = await session.archive.truncate_recording(request.recording_id, request.position)
    session.respond(request.correlation_id, count)


async def on_purge_recording(session: ControlSession, request: messages.PurgeRecordingRequest) -> None:
    """Delete a recording; the answer is how many segments were deleted. The signal DELETE follows."""
    position = session.archive.present_descriptor(request.recording_id).start_position
    count = await session.archive.purge_recording(request.recording_id)
    session.respond(request.correlation_id, count)
    session.signal(messages.RecordingSignal.DELETE, recording_id=request.recording_id, position=position)


async def on_purge_segments(session: ControlSession, request: messages.PurgeSegmentsRequest) -> None:
    """Take segments off the front and delete them; the answer is how many."""
    count = await session.archive.purge_segments(request.recording_id, request.new_start_position)
    session.respond(request.correlation_id, count)
    _signal_deleted(session, request.recording_id)


async def on_detach_segments(session: ControlSession, request: messages.DetachSegmentsRequest) -> None:
    """Take segments off the front; the files stay."""
    await session.archive.detach_segments(request.recording_id, request.new_start_position)
    session.respond(request.correlation_id, 0)


async def on_delete_detached(session: ControlSession, request: messages.DeleteDetachedSegmentsRequest) -> None:
    """Delete detached segments; the answer is how many."""
    count = await session.archive.delete_detached_segments(request.recording_id)
    session.respond(request.correlation_id, count)
    _signal_deleted(session, request.recording_id)


async def on_attach_segments(session: ControlSession, request: messages.AttachSegmentsRequest) -> None:
    """Take detached segments back; the answer is how many."""
    count = await session.archive.attach_segments(request.recording_id)
    session.respond(request.correlation_id, count)


async def on_migrate_segments(session: ControlSession, request: messages.MigrateSegmentsRequest) -> None:
    """Move segments from one recording to another that they adjoin; the answer is how many."""
    count = await session.archive.migrate_segments(request.src_recording_id, request.dst_recording_id)
    session.respond(request.correlation_id, count)


async def on_update_channel(session: ControlSession, request: messages.UpdateChannelRequest) -> None:
    """Rename the channel of a recording."""
    check_channel(request.channel)
    await session.archive.update_channel(request.recording_id, request.channel)
    session.respond(request.correlation_id, 0)


def _signal_deleted(session: ControlSession, recording_id: int) -> None:
    position = session.archive.descriptor(recording_id).start_position
    session.signal(messages.RecordingSignal.DELETE, recording_id=recording_id, position=position)
