"""Handles queries of a control session about the recordings of an archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....service_api.types import NULL_POSITION, NULL_VALUE, CorrelationId, RecordingId
from ...errors import ArchiveError
from ...format import messages
from ...format.descriptor import RecordingDescriptor
from ..control import PROTOCOL_VERSION
from .control_session import ControlSession
from .served_archive import ServedArchive

LIST_LIMIT: Final = 1024
"""How many recordings one request lists at most: who wants more asks again, from the next id on."""

_PositionRequest = (
    messages.RecordingPositionRequest
    | messages.StartPositionRequest
    | messages.StopPositionRequest
    | messages.MaxRecordedPositionRequest
)


async def on_list_recording(
    server: ServedArchive, session: ControlSession, request: messages.ListRecordingRequest
) -> None:
    """Send one descriptor."""
    descriptor = server.archive.readable_descriptor(request.recording_id)
    session.send(_describe(session, descriptor, request.correlation_id))


async def on_list_recordings(
    server: ServedArchive, session: ControlSession, request: messages.ListRecordingsRequest
) -> None:
    """Send up to the number asked for; fewer are ended by RECORDING_UNKNOWN, as Aeron does."""
    found = server.archive.descriptors(
        from_recording_id=request.from_recording_id, limit=_row_limit(request.record_count)
    )
    await _send_descriptors(server, session, found, request)


async def on_list_recordings_for_uri(
    server: ServedArchive, session: ControlSession, request: messages.ListRecordingsForUriRequest
) -> None:
    """As `on_list_recordings`, of one stream and of channels with a fragment."""
    found = server.archive.descriptors(
        from_recording_id=request.from_recording_id,
        limit=_row_limit(request.record_count),
        channel_fragment=request.channel,
        stream_id=request.stream_id,
    )
    await _send_descriptors(server, session, found, request)


async def on_find_last_matching(
    server: ServedArchive, session: ControlSession, request: messages.FindLastMatchingRecordingRequest
) -> None:
    """Answer with the id of the newest recording that fits; NULL_VALUE when there is none."""
    recording_id = server.archive.find_last_matching(
        min_recording_id=request.min_recording_id,
        channel_fragment=request.channel,
        stream_id=request.stream_id,
        session_id=request.session_id,
    )
    session.respond(request.correlation_id, NULL_VALUE if recording_id is None else recording_id)


async def on_position(server: ServedArchive, session: ControlSession, request: _PositionRequest) -> None:
    """Answer with a position; NULL_POSITION where the recording has none of the kind."""
    archive, recording_id = server.archive, request.recording_id
    descriptor = archive.readable_descriptor(recording_id)
    position: int | None
    if isinstance(request, messages.StartPositionRequest):
        position = descriptor.start_position
    elif isinstance(request, messages.StopPositionRequest):
        position = descriptor.stop_position
    elif isinstance(request, messages.MaxRecordedPositionRequest):
        position = archive.recorded_position(recording_id)
    else:
        recording = archive.active_recording(recording_id)
        position = None if recording is None else recording.recorded_position
    session.respond(request.correlation_id, NULL_POSITION if position is None else position)


async def on_archive_id(server: ServedArchive, session: ControlSession, request: messages.ArchiveIdRequest) -> None:
    """Answer with the id that the archive was given."""
    session.respond(request.correlation_id, server.archive_id)


async def on_list_subscriptions(
    server: ServedArchive, session: ControlSession, request: messages.ListRecordingSubscriptionsRequest
) -> None:
    """Send what is being published here just now; fewer than asked for are ended by SUBSCRIPTION_UNKNOWN."""
    fitting = [
        recording
        for recording in server.recordings.values()
        if request.channel in recording.descriptor.original_channel
        and (not request.apply_stream_id or recording.descriptor.stream_id == request.stream_id)
    ][max(0, request.pseudo_index) :][: _row_limit(request.subscription_count)]
    for recording in fitting:
        session.send(
            messages.RecordingSubscriptionDescriptor(
                control_session_id=session.control_session_id,
                correlation_id=request.correlation_id,
                subscription_id=recording.subscription_id,
                stream_id=recording.descriptor.stream_id,
                stripped_channel=recording.descriptor.stripped_channel,
            )
        )
    if len(fitting) < request.subscription_count:
        _end_rows(session, request.correlation_id, 0, messages.ControlResponseCode.SUBSCRIPTION_UNKNOWN)


def _row_limit(count: int) -> int:
    if count <= 0:
        raise ArchiveError(f"invalid count: count={count} expected 1 to {LIST_LIMIT}")
    return min(count, LIST_LIMIT)


async def _send_descriptors(
    server: ServedArchive,
    session: ControlSession,
    found: Sequence[RecordingDescriptor],
    request: messages.ListRecordingsRequest | messages.ListRecordingsForUriRequest,
) -> None:
    for descriptor in found:
        shown = server.archive.readable_descriptor(descriptor.recording_id)
        session.send(_describe(session, shown, request.correlation_id))
        await session.drain()
    if len(found) < request.record_count:
        following = found[-1].recording_id + 1 if found else request.from_recording_id
        _end_rows(session, request.correlation_id, following, messages.ControlResponseCode.RECORDING_UNKNOWN)


def _end_rows(
    session: ControlSession, correlation_id: int, relevant_id: int, code: messages.ControlResponseCode
) -> None:
    session.send(
        messages.ControlResponse(
            control_session_id=session.control_session_id,
            correlation_id=CorrelationId(correlation_id),
            relevant_id=relevant_id,
            code=code,
            version=PROTOCOL_VERSION,
        )
    )


def _describe(
    session: ControlSession, descriptor: RecordingDescriptor, correlation_id: int
) -> messages.RecordingDescriptorRow:
    stop_timestamp, stop_position = descriptor.stop_timestamp_ms, descriptor.stop_position
    return messages.RecordingDescriptorRow(
        control_session_id=session.control_session_id,
        correlation_id=CorrelationId(correlation_id),
        recording_id=RecordingId(descriptor.recording_id),
        start_timestamp=descriptor.start_timestamp_ms,
        stop_timestamp=NULL_VALUE if stop_timestamp is None else stop_timestamp,
        start_position=descriptor.start_position,
        stop_position=NULL_POSITION if stop_position is None else stop_position,
        initial_term_id=descriptor.initial_term_id,
        segment_file_length=descriptor.segment_file_length,
        term_buffer_length=descriptor.term_buffer_length,
        mtu_length=descriptor.mtu_length,
        session_id=descriptor.session_id,
        stream_id=descriptor.stream_id,
        stripped_channel=descriptor.stripped_channel,
        original_channel=descriptor.original_channel,
        source_identity=descriptor.source_identity,
    )
