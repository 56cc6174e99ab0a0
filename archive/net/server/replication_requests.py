"""Handles replication requests, in any version of the request."""

from __future__ import annotations

import re
from typing import Final

from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError
from ....service_api.types import NULL_POSITION, NULL_VALUE
from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...store.conductor import Archive
from .control_session import ControlSession
from .replication_session import ReplicationSession, make_order
from .served_archive import ServedArchive

_AERON_CHANNEL: Final = re.compile(r"aeron:[a-z]+\?(?:.*\|)?endpoint=(?P<endpoint>[^|]*)(?:\|.*)?")

_ReplicateRequest = messages.ReplicateRequest | messages.TaggedReplicateRequest | messages.ReplicateRequest2


async def on_replicate(server: ServedArchive, session: ControlSession, request: _ReplicateRequest) -> None:
    """Begin to copy a recording of another archive; the answer is the replication id.

    Raises:
        ArchiveError: too many replications, or an order that cannot be carried out.
    """
    if len(server.replications) >= server.replication_limit:
        raise ArchiveError(
            f"too many replications: limit={server.replication_limit}", code=ArchiveErrorCode.MAX_RECORDINGS
        )
    order = make_order(_as_newest(request), parse_channel(request.src_control_channel))
    if order.dst_recording_id is not None:
        _check_destination(server.archive, order.dst_recording_id)
    replication = ReplicationSession(
        session,
        server.archive,
        order,
        replication_id=next(server.ids),
        preallocate=server.preallocate,
        network=server.network,
    )
    session.respond(request.correlation_id, replication.replication_id)
    server.replications[replication.replication_id] = replication
    replication.start(lambda: server.replications.pop(replication.replication_id, None))


async def on_stop_replication(
    server: ServedArchive, session: ControlSession, request: messages.StopReplicationRequest
) -> None:
    """End a replication where it is.

    Raises:
        ArchiveError: there is no such replication.
    """
    replication = server.replications.get(request.replication_id)
    if replication is None:
        raise ArchiveError(
            f"unknown replication: replication_id={request.replication_id}", code=ArchiveErrorCode.UNKNOWN_REPLICATION
        )
    await replication.stop()
    session.respond(request.correlation_id, request.replication_id)


def parse_channel(channel: str) -> Endpoint:
    """Read the endpoint of an archive from `host:port`, or from the `endpoint` of a channel in Aeron's form.

    Raises:
        ArchiveError: the text is neither.
    """
    match = _AERON_CHANNEL.fullmatch(channel)
    try:
        return Endpoint.parse(channel if match is None else match["endpoint"])
    except ConfigurationError as error:
        raise ArchiveError(f"channel={channel!r} expected host:port of the source archive: {error}") from None


def _check_destination(archive: Archive, recording_id: int) -> None:
    archive.present_descriptor(recording_id)
    if archive.active_recording(recording_id) is not None:
        raise ArchiveError("recording is active", code=ArchiveErrorCode.ACTIVE_RECORDING, recording_id=recording_id)


def _as_newest(request: _ReplicateRequest) -> messages.ReplicateRequest2:
    """Say an older request in the words of the newest one."""
    if isinstance(request, messages.ReplicateRequest2):
        return request
    return messages.ReplicateRequest2(
        control_session_id=request.control_session_id,
        correlation_id=request.correlation_id,
        src_recording_id=request.src_recording_id,
        dst_recording_id=request.dst_recording_id,
        stop_position=NULL_POSITION,
        channel_tag_id=NULL_VALUE,
        subscription_tag_id=NULL_VALUE,
        src_control_stream_id=request.src_control_stream_id,
        src_control_channel=request.src_control_channel,
        live_destination=request.live_destination,
    )
