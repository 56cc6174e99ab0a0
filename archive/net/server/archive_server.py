"""The TCP edge of an archive: others query its recordings, record, replay, edit and replicate them.

One task per connection reads requests ([control_session.py]); what a connection streams is a second task in the same
group, so the end of either ends both. What outlives a connection is a replication: it belongs to the server. Bounds:
connections (more are refused by closing), replays, recordings and replications, each refused with its own code.

A cluster member serves its archive with the same class, for others to read: who may change it is decided by an
`AuthorisationService`, which says no unless the archive was meant to be written to.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any, Final

import structlog

from trimaran.service_api.authenticator import AcceptAll, Authenticator
from trimaran.service_api.authorisation import AuthorisationService
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import SOCKETS, Listener, NetworkStack, Purpose
from trimaran.service_api.types import NULL_VALUE
from trimaran.service_api.wire.frame import StatusFrame
from trimaran.service_api.wire.message import Message

from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...store.conductor import Archive
from . import editing_requests, queries, recordings, replays, replication_requests
from .control_session import READ_LENGTH_BYTES, ControlSession, Handler
from .policy import ReadOnly
from .recording_events import RecordingEvents
from .recording_session import RecordingSession
from .replays import ServedReplay
from .replication_session import ReplicationSession

CONNECTION_LIMIT: Final = 64
REPLAY_LIMIT: Final = 64
RECORDING_LIMIT: Final = 64
REPLICATION_LIMIT: Final = 16
IDLE_TIMEOUT_S: Final = 10.0

_HANDLERS: Final[Mapping[type[Message], Handler]] = {
    messages.ListRecordingRequest: queries.on_list_recording,
    messages.ListRecordingsRequest: queries.on_list_recordings,
    messages.ListRecordingsForUriRequest: queries.on_list_recordings_for_uri,
    messages.FindLastMatchingRecordingRequest: queries.on_find_last_matching,
    messages.ListRecordingSubscriptionsRequest: queries.on_list_subscriptions,
    messages.RecordingPositionRequest: queries.on_position,
    messages.StartPositionRequest: queries.on_position,
    messages.StopPositionRequest: queries.on_position,
    messages.MaxRecordedPositionRequest: queries.on_position,
    messages.ArchiveIdRequest: queries.on_archive_id,
    messages.StartRecordingRequest: recordings.on_start,
    messages.StartRecordingRequest2: recordings.on_start,
    messages.ExtendRecordingRequest: recordings.on_extend,
    messages.ExtendRecordingRequest2: recordings.on_extend,
    messages.StopRecordingRequest: recordings.on_stop,
    messages.StopRecordingSubscriptionRequest: recordings.on_stop_subscription,
    messages.StopRecordingByIdentityRequest: recordings.on_stop_by_identity,
    messages.ReplayRequest: replays.on_replay,
    messages.BoundedReplayRequest: replays.on_replay,
    messages.StopReplayRequest: replays.on_stop_replay,
    messages.StopAllReplaysRequest: replays.on_stop_all_replays,
    messages.TruncateRecordingRequest: editing_requests.on_truncate,
    messages.PurgeRecordingRequest: editing_requests.on_purge_recording,
    messages.PurgeSegmentsRequest: editing_requests.on_purge_segments,
    messages.DetachSegmentsRequest: editing_requests.on_detach_segments,
    messages.DeleteDetachedSegmentsRequest: editing_requests.on_delete_detached,
    messages.AttachSegmentsRequest: editing_requests.on_attach_segments,
    messages.MigrateSegmentsRequest: editing_requests.on_migrate_segments,
    messages.UpdateChannelRequest: editing_requests.on_update_channel,
    messages.ReplicateRequest: replication_requests.on_replicate,
    messages.TaggedReplicateRequest: replication_requests.on_replicate,
    messages.ReplicateRequest2: replication_requests.on_replicate,
    messages.StopReplicationRequest: replication_requests.on_stop_replication,
}

_log = structlog.get_logger(__name__)


class ArchiveServer:
    """Accepts connections for one archive. `start` binds; `aclose` ends every session and waits for it.

    `authenticator` decides who may have a session, `authorisation` what a session may do; by default everybody may have
    one, and nobody may change anything. `replay_rate_limit_bytes_per_s` is that of each replay. `preallocate`
    zero-writes the segments of recordings ahead. Everything is listened on and dialled through `network`.
    """

    def __init__(
        self,
        archive: Archive,
        *,
        authenticator: Authenticator | None = None,
        authorisation: AuthorisationService | None = None,
        archive_id: int = NULL_VALUE,
        connection_limit: int = CONNECTION_LIMIT,
        replay_limit: int = REPLAY_LIMIT,
        recording_limit: int = RECORDING_LIMIT,
        replication_limit: int = REPLICATION_LIMIT,
        replay_rate_limit_bytes_per_s: int | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        preallocate: bool = False,
        network: NetworkStack = SOCKETS,
    ) -> None:
        self.archive: Final = archive
        self.authenticator: Final = AcceptAll() if authenticator is None else authenticator
        self.authorisation: Final = ReadOnly() if authorisation is None else authorisation
        self.archive_id: Final = archive_id
        self.replay_limit: Final = replay_limit
        self.recording_limit: Final = recording_limit
        self.replication_limit: Final = replication_limit
        self.replay_rate_limit_bytes_per_s: Final = replay_rate_limit_bytes_per_s
        self.idle_timeout_s: Final = idle_timeout_s
        self.preallocate: Final = preallocate
        self.network: Final = network
        self.handlers: Final = _HANDLERS
        self.ids: Final = itertools.count(1)
        """Ids of control sessions, replays, publications and replications: never the same twice in one server."""
        self.events: Final = RecordingEvents()
        self.recordings: Final[dict[int, RecordingSession]] = {}
        """What is being published here, by recording id."""
        self.replays: Final[dict[int, ServedReplay]] = {}
        """By replay session id."""
        self.replications: Final[dict[int, ReplicationSession]] = {}
        """What this archive is copying from others, by replication id."""
        self._connection_limit = connection_limit
        self._listener: Listener | None = None
        self._sessions: dict[asyncio.Task[Any], None] = {}
        """In order of connection: a set would be run through in the order of addresses in memory."""

    def __repr__(self) -> str:
        return f"<ArchiveServer connections={len(self._sessions)}/{self._connection_limit}>"

    async def start(self, endpoint: Endpoint) -> None:
        """Listen; port 0 takes a free one, which `endpoint` names afterwards.

        Raises:
            OSError: the address is in use or not ours.
        """
        self._listener = await self.network.listen_for_streams(
            Purpose.ARCHIVE, endpoint, self._accept, limit_bytes=READ_LENGTH_BYTES
        )

    @property
    def endpoint(self) -> Endpoint:
        """What is listened on."""
        assert self._listener is not None
        return self._listener.endpoint

    async def aclose(self) -> None:
        """Stop listening, end every replication and session, and wait for them."""
        if self._listener is not None:
            self._listener.close()
        for replication in [*self.replications.values()]:
            await replication.stop()
        for task in self._sessions:
            task.cancel()
        if self._sessions:
            await asyncio.wait(list(self._sessions))
        if self._listener is not None:
            await self._listener.wait_closed()

    def replicate(self, replication: ReplicationSession) -> None:
        """Run a replication until it ends, or this server does."""
        self.replications[replication.replication_id] = replication
        task = asyncio.get_running_loop().create_task(
            replication.run(), name=f"replication-{replication.replication_id}"
        )
        replication.task = task
        task.add_done_callback(lambda _: self.replications.pop(replication.replication_id, None))

    def join_live(self, session: ControlSession, status: StatusFrame) -> None:
        """Let a session have the live stream that its status frame names.

        Raises:
            ArchiveError: UNKNOWN_SUBSCRIPTION, nobody publishes it here just now.
        """
        for recording in self.recordings.values():
            descriptor = recording.descriptor
            if (descriptor.session_id, descriptor.stream_id) == (status.session_id, status.stream_id):
                session.stream = recording.join(session)
                return
        raise ArchiveError(
            f"no such live stream here: session_id={status.session_id} stream_id={status.stream_id}",
            code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
        )

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Run one connection from its first byte to its last."""
        task = asyncio.current_task()
        if task is None or len(self._sessions) >= self._connection_limit:
            _log.warning("archive_connection.refused", connection_limit=self._connection_limit)
            writer.transport.abort()
            return
        self._sessions[task] = None
        try:
            await ControlSession(self, reader, writer).run()
        except asyncio.CancelledError:
            # Only `aclose` cancels; the task must end without an exception for the stream's own callback.
            pass
        finally:
            del self._sessions[task]
            writer.transport.abort()
