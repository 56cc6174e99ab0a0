"""Handles requests to start and stop replays."""

from __future__ import annotations

from typing import Final

from ....service_api.access.permissions import Permission
from ....service_api.types import NULL_POSITION, NULL_VALUE
from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...store.conductor import Archive
from ...store.replay import CHUNK_LENGTH_BYTES, ReplayLimit, ReplaySession
from ..control import ALL_LENGTH, CONTROL_STREAM_IDS, FOLLOW_LENGTH
from .control_session import ControlSession
from .served_archive import ServedArchive
from .served_replay import ServedReplay

SHORTEST_CHUNK_BYTES: Final = 4 << 10


async def on_replay(
    server: ServedArchive, session: ControlSession, request: messages.ReplayRequest | messages.BoundedReplayRequest
) -> None:
    """Begin a replay on this connection.

    Raises:
        ArchiveError: too many replays, an unknown recording, or a position that it does not have.
    """
    archive = server.archive
    if session.stream is not None:
        raise ArchiveError("a connection carries one stream only", code=ArchiveErrorCode.MAX_REPLAYS)
    if len(server.replays) >= server.replay_limit:
        raise ArchiveError(f"too many replays: limit={server.replay_limit}", code=ArchiveErrorCode.MAX_REPLAYS)
    descriptor = archive.readable_descriptor(request.recording_id)
    if descriptor.stream_id in CONTROL_STREAM_IDS:
        raise ArchiveError(
            f"cannot be replayed: stream_id={descriptor.stream_id} belongs to the control protocol",
            recording_id=request.recording_id,
        )
    position = descriptor.start_position if request.position == NULL_POSITION else request.position
    limit: ReplayLimit | None = None
    limit_recording_id: int | None = NULL_VALUE
    if isinstance(request, messages.BoundedReplayRequest):
        limit, limit_recording_id = ReplayLimit(position), request.limit_counter_id
        if limit_recording_id in server.counters:
            limit, limit_recording_id = server.counters[limit_recording_id], None
        elif limit_recording_id != NULL_VALUE:
            archive.present_descriptor(limit_recording_id)
    largest = request.file_io_max_length or CHUNK_LENGTH_BYTES
    replay = ReplaySession(
        archive,
        request.recording_id,
        position=position,
        stop_position=_stop_position_of(archive, request, position),
        sink=session,
        limit=limit,
        rate_limit_bytes_per_s=server.replay_rate_limit_bytes_per_s,
        chunk_length_bytes=min(max(largest, SHORTEST_CHUNK_BYTES), CHUNK_LENGTH_BYTES),
        is_frame_boundary=False,
    )
    replay_session_id = next(server.ids)
    served = ServedReplay(
        session,
        archive,
        replay,
        descriptor,
        replay_session_id=replay_session_id,
        correlation_id=request.correlation_id,
        limit=limit,
        limit_recording_id=limit_recording_id,
        replays=server.replays,
    )
    session.respond(request.correlation_id, replay_session_id)
    session.stream = served
    served.begin()


def _stop_position_of(
    archive: Archive, request: messages.ReplayRequest | messages.BoundedReplayRequest, position: int
) -> int | None:
    if request.length == FOLLOW_LENGTH:
        return None
    if request.length == ALL_LENGTH:
        return max(position, archive.recorded_position(request.recording_id))
    if request.length < 0 or request.length % 32:
        raise ArchiveError(
            f"invalid length: length={request.length} expected -2, -1 or a multiple of 32",
            recording_id=request.recording_id,
        )
    return position + request.length


async def on_stop_replay(server: ServedArchive, session: ControlSession, request: messages.StopReplayRequest) -> None:
    """Stop one replay: the own one, or, where editing is allowed, any.

    Raises:
        ArchiveError: there is no such replay that this client may stop.
    """
    replay = server.replays.get(request.replay_session_id)
    if (
        replay is not None
        and replay.session is not session
        and server.refusal_of(session, messages.StopAllReplaysRequest, Permission.ARCHIVE_WRITING) is not None
    ):
        replay = None
    if replay is None:
        raise ArchiveError(
            f"unknown replay: replay_session_id={request.replay_session_id}", code=ArchiveErrorCode.UNKNOWN_REPLAY
        )
    await (replay.stop() if replay.session is session else replay.stop_from_elsewhere())
    session.respond(request.correlation_id, request.replay_session_id)


async def on_stop_all_replays(
    server: ServedArchive, session: ControlSession, request: messages.StopAllReplaysRequest
) -> None:
    """Stop every replay of a recording, or of all (-1)."""
    replays = [r for r in server.replays.values() if request.recording_id in (NULL_VALUE, r.recording_id)]
    for replay in replays:
        await (replay.stop() if replay.session is session else replay.stop_from_elsewhere())
    session.respond(request.correlation_id, len(replays))
