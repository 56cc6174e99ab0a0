"""Handles requests to start, extend and stop recordings."""

from __future__ import annotations

from ....service_api.wire.frame import wrap_int32
from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...store.recording import Recording
from ..control import CONTROL_STREAM_IDS, check_channel
from .control_session import ControlSession
from .recording_session import RecordingSession
from .served_archive import ServedArchive

_StartRequest = messages.StartRecordingRequest | messages.StartRecordingRequest2
_ExtendRequest = messages.ExtendRecordingRequest | messages.ExtendRecordingRequest2


async def on_start(server: ServedArchive, session: ControlSession, request: _StartRequest) -> None:
    """Begin a recording of what this connection publishes from here on.

    Raises:
        ArchiveError: too many recordings, a channel that cannot be served, or a stream of the control protocol.
    """
    _check_room(server, session)
    check_channel(request.channel)
    if request.stream_id in CONTROL_STREAM_IDS:
        raise ArchiveError(f"cannot be recorded: stream_id={request.stream_id} belongs to the control protocol")
    recording = await server.archive.start_recording(
        stream_id=request.stream_id,
        session_id=wrap_int32(next(server.ids)),
        channel=request.channel,
        source_identity=session.peer,
        preallocate=server.preallocate,
    )
    _begin(server, session, recording, request.correlation_id, messages.RecordingSignal.START)


async def on_extend(server: ServedArchive, session: ControlSession, request: _ExtendRequest) -> None:
    """Go on with a recording, from its stop position, with what this connection publishes from here on.

    Raises:
        ArchiveError: too many recordings, or the recording is unknown, active or of another stream.
    """
    _check_room(server, session)
    descriptor = server.archive.present_descriptor(request.recording_id)
    if request.stream_id != descriptor.stream_id:
        raise ArchiveError(
            f"stream_id={request.stream_id} expected={descriptor.stream_id}",
            code=ArchiveErrorCode.INVALID_EXTENSION,
            recording_id=request.recording_id,
        )
    recording = await server.archive.extend_recording(
        request.recording_id, session_id=wrap_int32(next(server.ids)), preallocate=server.preallocate
    )
    _begin(server, session, recording, request.correlation_id, messages.RecordingSignal.EXTEND)


def _check_room(server: ServedArchive, session: ControlSession) -> None:
    if session.stream is not None:
        raise ArchiveError("a connection carries one stream only", code=ArchiveErrorCode.ACTIVE_SUBSCRIPTION)
    if len(server.recordings) >= server.recording_limit:
        raise ArchiveError(f"too many recordings: limit={server.recording_limit}", code=ArchiveErrorCode.MAX_RECORDINGS)


def _begin(
    server: ServedArchive,
    session: ControlSession,
    recording: Recording,
    correlation_id: int,
    signal: messages.RecordingSignal,
) -> None:
    publication = RecordingSession(
        session, recording, correlation_id=correlation_id, events=server.events, publications=server.recordings
    )
    server.recordings[publication.recording_id] = publication
    session.stream = publication
    session.respond(correlation_id, publication.subscription_id)
    publication.begin(signal)


async def on_stop(server: ServedArchive, session: ControlSession, request: messages.StopRecordingRequest) -> None:
    """Stop whatever is published here with this channel and stream."""
    found = [
        publication
        for publication in server.recordings.values()
        if (publication.descriptor.original_channel, publication.descriptor.stream_id)
        == (request.channel, request.stream_id)
    ]
    await _stop_all(
        session, found, request.correlation_id, f"channel={request.channel!r} stream_id={request.stream_id}"
    )


async def on_stop_subscription(
    server: ServedArchive, session: ControlSession, request: messages.StopRecordingSubscriptionRequest
) -> None:
    """Stop what is published under a subscription id."""
    found = [p for p in server.recordings.values() if p.subscription_id == request.subscription_id]
    await _stop_all(session, found, request.correlation_id, f"subscription_id={request.subscription_id}")


async def _stop_all(session: ControlSession, found: list[RecordingSession], correlation_id: int, asked: str) -> None:
    if not found:
        raise ArchiveError(f"this stream is not being recorded: {asked}", code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION)
    for publication in found:
        await publication.stop()
    session.respond(correlation_id, len(found))


async def on_stop_by_identity(
    server: ServedArchive, session: ControlSession, request: messages.StopRecordingByIdentityRequest
) -> None:
    """Stop a recording; the answer is 1, or 0 if it was not active."""
    server.archive.present_descriptor(request.recording_id)
    publication = server.recordings.get(request.recording_id)
    if publication is not None:
        was_active = await publication.stop()
    else:
        was_active = await server.archive.stop_recording(request.recording_id)
    session.respond(request.correlation_id, int(was_active))
