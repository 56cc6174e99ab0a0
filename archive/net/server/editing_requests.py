"""Handles requests to edit recordings: the archive decides, and names the reason of a refusal."""

from __future__ import annotations

from ...format import messages
from ..control import check_channel
from .control_session import ControlSession
from .served_archive import ServedArchive


async def on_truncate(
    server: ServedArchive, session: ControlSession, request: messages.TruncateRecordingRequest
) -> None:
    """Cut a recording; the answer is how many segments were deleted."""
    count = await server.archive.truncate_recording(request.recording_id, request.position)
    session.respond(request.correlation_id, count)


async def on_purge_recording(
    server: ServedArchive, session: ControlSession, request: messages.PurgeRecordingRequest
) -> None:
    """Delete a recording; the answer is how many segments were deleted. The signal DELETE follows."""
    position = server.archive.present_descriptor(request.recording_id).start_position
    count = await server.archive.purge_recording(request.recording_id)
    session.respond(request.correlation_id, count)
    session.signal(messages.RecordingSignal.DELETE, recording_id=request.recording_id, position=position)


async def on_purge_segments(
    server: ServedArchive, session: ControlSession, request: messages.PurgeSegmentsRequest
) -> None:
    """Take segments off the front and delete them; the answer is how many."""
    count = await server.archive.purge_segments(request.recording_id, request.new_start_position)
    session.respond(request.correlation_id, count)
    _signal_deleted(server, session, request.recording_id)


async def on_detach_segments(
    server: ServedArchive, session: ControlSession, request: messages.DetachSegmentsRequest
) -> None:
    """Take segments off the front; the files stay."""
    await server.archive.detach_segments(request.recording_id, request.new_start_position)
    session.respond(request.correlation_id, 0)


async def on_delete_detached(
    server: ServedArchive, session: ControlSession, request: messages.DeleteDetachedSegmentsRequest
) -> None:
    """Delete detached segments; the answer is how many."""
    count = await server.archive.delete_detached_segments(request.recording_id)
    session.respond(request.correlation_id, count)
    _signal_deleted(server, session, request.recording_id)


async def on_attach_segments(
    server: ServedArchive, session: ControlSession, request: messages.AttachSegmentsRequest
) -> None:
    """Take detached segments back; the answer is how many."""
    count = await server.archive.attach_segments(request.recording_id)
    session.respond(request.correlation_id, count)


async def on_migrate_segments(
    server: ServedArchive, session: ControlSession, request: messages.MigrateSegmentsRequest
) -> None:
    """Move segments from one recording to another that they adjoin; the answer is how many."""
    count = await server.archive.migrate_segments(request.src_recording_id, request.dst_recording_id)
    session.respond(request.correlation_id, count)


async def on_update_channel(
    server: ServedArchive, session: ControlSession, request: messages.UpdateChannelRequest
) -> None:
    """Rename the channel of a recording."""
    check_channel(request.channel)
    await server.archive.update_channel(request.recording_id, request.channel)
    session.respond(request.correlation_id, 0)


def _signal_deleted(server: ServedArchive, session: ControlSession, recording_id: int) -> None:
    position = server.archive.descriptor(recording_id).start_position
    session.signal(messages.RecordingSignal.DELETE, recording_id=recording_id, position=position)
