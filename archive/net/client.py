"""The asyncio client of an archive: record a stream, replay it, edit it, copy it, all over TCP and without a cluster.

    async with ArchiveClient.connect("127.0.0.1:8010") as archive:
        async with archive.record("orders", stream_id=7) as publication:
            position = await publication.offer(b"hello")
            await publication.recorded(position)  # durable
        async for message in archive.replay(publication.recording_id):
            print(message.position, message.payload)

Requests share one connection and may be in flight side by side. Every publication and every replay has a connection of
its own, so that none holds back another; all end with the client at the latest. A client belongs to one event loop.
Every refusal is an `ArchiveError` with the code, recording id, position and reason that the archive gave.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Self

from ...service_api.access.credentials import CredentialsSupplier
from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId, parse_cluster_id
from ...service_api.connecting import ClosedAtExit, Connecting
from ...service_api.endpoint import Endpoint
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.tls import TlsSettings, client_network
from ...service_api.types import NULL_POSITION, NULL_VALUE, RecordingId
from ...service_api.wire.message import Message
from ..format import messages
from .client_signals import ReplicationCall, SignalInbox
from .connection import ArchiveConnection, Credentials, OnChallenge
from .control import CONTROL_STREAM_ID, check_channel
from .publication import Publication
from .replay_merge import ReplayMerge
from .replay_reader import BoundedReplay, ReplayReader, SingleReplay
from .replication import fetch_descriptor
from .server.queries import LIST_LIMIT

EDIT_TIMEOUT_S: Final = 60.0
"""How long starting, stopping and editing may take: they wait for disks."""


class ArchiveClient(ClosedAtExit):
    """A control session with an archive; made by `connect`."""

    def __init__(
        self,
        network: NetworkStack,
        endpoint: Endpoint,
        *,
        credentials: Credentials,
        connect_timeout_s: float | None,
        timeout_s: float,
        cluster_id: ClusterId = NULL_CLUSTER_ID,
    ) -> None:
        self._network, self._endpoint = network, endpoint
        self._cluster_id = cluster_id
        self._credentials = credentials
        self._connect_timeout_s, self._timeout_s = connect_timeout_s, timeout_s
        self._control: ArchiveConnection | None = None
        self._connections: dict[ArchiveConnection, None] = {}
        self._signals = SignalInbox()

    def __repr__(self) -> str:
        return f"<ArchiveClient {self._endpoint} connections={len(self._connections)}>"

    @classmethod
    def connect(
        cls,
        endpoint: str,
        *,
        credentials: bytes | CredentialsSupplier = b"",
        on_challenge: OnChallenge | None = None,
        client_info: str = "",
        connect_timeout_s: float | None = None,
        timeout_s: float = 5.0,
        tls: TlsSettings | None = None,
        cluster_id: str = "",
        network: NetworkStack = SOCKETS,
    ) -> Connecting[Self]:
        """Open a control session with the archive at `host:port`.

        Enter what this gives with `async with`, or await it and call `aclose` in the end.

        `timeout_s` bounds every answer, and each dial unless `connect_timeout_s` is given. `credentials` and
        `on_challenge` are those of `ClusterClient.connect`. A connection that breaks is not dialled again, but for
        `replay_merge`.

        With `tls` the connection is encrypted; the archive shows that it is a member of the cluster whose id is given,
        or is named by the own certificate, and otherwise a certificate of its host name. An archive that knows that it
        is another cluster's refuses, also in plain text.

        Raises:
            ConfigurationError: the endpoint is not `host:port`, or a file of TLS or credentials cannot be used.

        Raises, when entered or awaited:
            ArchiveError: REPLICATION_CONNECTION_FAILURE, or what the archive answered.
            ClusterTimeoutError: it does not answer.
        """
        proof = Credentials.of(credentials, on_challenge, client_info)
        demanded = parse_cluster_id(cluster_id)
        client = cls(
            client_network(tls, cluster_id=demanded, network=network),
            Endpoint.parse(endpoint),
            credentials=proof,
            connect_timeout_s=connect_timeout_s,
            timeout_s=timeout_s,
            cluster_id=demanded,
        )
        return Connecting(client._open)

    async def _open(self) -> Self:
        self._control = await self._dial()
        self._control.on_message = self._signals.take
        self._control.on_lost = self._signals.fail
        return self

    # --- asking

    async def list_recording(self, recording_id: int) -> messages.RecordingDescriptorRow:
        """Fetch the descriptor of a recording; a stop position of -1 means that it is active.

        Raises:
            ArchiveError: UNKNOWN_RECORDING.
        """
        return await fetch_descriptor(self._session, recording_id)

    async def list_recordings(
        self,
        *,
        from_recording_id: int = 0,
        limit: int = LIST_LIMIT,
        channel_fragment: str = "",
        stream_id: int | None = None,
    ) -> list[messages.RecordingDescriptorRow]:
        """Fetch the descriptors of up to `limit` (1 to 1024) recordings, in order of their ids.

        With `stream_id`, only of that stream and of channels that contain `channel_fragment`.
        """
        fields: dict[str, Any] = {"from_recording_id": RecordingId(from_recording_id), "record_count": limit}
        request: type[Message] = messages.ListRecordingsRequest
        if stream_id is not None:
            request = messages.ListRecordingsForUriRequest
            fields |= {"stream_id": stream_id, "channel": channel_fragment}
        rows = await self._session.ask_rows(request, min(limit, LIST_LIMIT), is_range=True, **fields)
        return [row for row in rows if isinstance(row, messages.RecordingDescriptorRow)]

    async def list_recording_subscriptions(
        self, *, limit: int = LIST_LIMIT, channel_fragment: str = "", stream_id: int | None = None
    ) -> list[messages.RecordingSubscriptionDescriptor]:
        """Fetch what is being published into this archive just now."""
        rows = await self._session.ask_rows(
            messages.ListRecordingSubscriptionsRequest,
            limit,
            is_range=True,
            pseudo_index=0,
            subscription_count=limit,
            apply_stream_id=stream_id is not None,
            stream_id=0 if stream_id is None else stream_id,
            channel=channel_fragment,
        )
        return [row for row in rows if isinstance(row, messages.RecordingSubscriptionDescriptor)]

    async def find_last_matching(
        self, *, channel_fragment: str, stream_id: int, session_id: int, min_recording_id: int = 0
    ) -> int | None:
        """Find the newest recording of a stream and session whose channel contains a text; None if there is none."""
        response = await self._session.ask(
            messages.FindLastMatchingRecordingRequest,
            min_recording_id=RecordingId(min_recording_id),
            session_id=session_id,
            stream_id=stream_id,
            channel=channel_fragment,
        )
        return None if response.relevant_id == NULL_VALUE else response.relevant_id

    async def start_position(self, recording_id: int) -> int:
        """Fetch where a recording starts."""
        return await self._ask_id(messages.StartPositionRequest, recording_id)

    async def stop_position(self, recording_id: int) -> int | None:
        """Fetch where a recording stopped; None while it is active."""
        return _position(await self._ask_id(messages.StopPositionRequest, recording_id))

    async def recording_position(self, recording_id: int) -> int | None:
        """Fetch up to where an active recording is durable; None if it is not active."""
        return _position(await self._ask_id(messages.RecordingPositionRequest, recording_id))

    async def max_recorded_position(self, recording_id: int) -> int:
        """Fetch up to where a recording is durable, active or not."""
        return await self._ask_id(messages.MaxRecordedPositionRequest, recording_id)

    async def archive_id(self) -> int | None:
        """Fetch the id that the archive was given; None if it has none."""
        response = await self._session.ask(messages.ArchiveIdRequest)
        return None if response.relevant_id == NULL_VALUE else response.relevant_id

    async def keep_alive(self) -> None:
        """Make sure that the archive answers. The session is kept alive without it."""
        await self._session.ask(messages.KeepAliveRequest)

    # --- recording

    @asynccontextmanager
    async def record(self, channel: str, *, stream_id: int) -> AsyncIterator[Publication]:
        """Record what is published in the block. At its end everything is durable and the recording is stopped.

        `channel` is a text that recordings are found by; `stream_id` is any but 10, 20 and 30. A block that ends with
        an error leaves the recording with what the archive has of it.

        Raises:
            ArchiveError: MAX_RECORDINGS, STORAGE_SPACE, UNAUTHORISED_ACTION, ...
        """
        check_channel(channel)
        async with self._publish(messages.StartRecordingRequest2, channel=channel, stream_id=stream_id) as publication:
            yield publication

    @asynccontextmanager
    async def extend(self, recording_id: int) -> AsyncIterator[Publication]:
        """Go on with a recording that has stopped, from its stop position; otherwise as `record`.

        Raises:
            ArchiveError: UNKNOWN_RECORDING, ACTIVE_RECORDING, INVALID_EXTENSION, ...
        """
        descriptor = await self.list_recording(recording_id)
        async with self._publish(
            messages.ExtendRecordingRequest2,
            recording_id=RecordingId(recording_id),
            channel=descriptor.original_channel,
            stream_id=descriptor.stream_id,
        ) as publication:
            yield publication

    async def stop_recording(self, recording_id: int) -> bool:
        """Stop a recording of any publication; False if it was not active."""
        return bool(await self._edit(messages.StopRecordingByIdentityRequest, recording_id=RecordingId(recording_id)))

    async def stop_recordings(self, channel: str, *, stream_id: int) -> int:
        """Stop whatever is published with this channel and stream; give how many recordings that were.

        Raises:
            ArchiveError: UNKNOWN_SUBSCRIPTION.
        """
        return await self._edit(messages.StopRecordingRequest, channel=channel, stream_id=stream_id)

    # --- replaying

    def replay(
        self,
        recording_id: int,
        *,
        position: int | None = None,
        stop_position: int | None = None,
        follow: bool = False,
        limit_recording_id: int | None = None,
    ) -> ReplayReader:
        """Replay from `position`, the start by default, to `stop_position`, or what is recorded now, or with `follow`
        on and on until the recording stops. A `stop_position` that is not reached yet is waited for.

        With `limit_recording_id` the replay never passes the recorded position of that recording; with
        `COMMIT_POSITION_COUNTER_ID` never the commit position of the member that serves it. `position` has to be
        where a frame begins. What was asked for is sent when the reading begins, and refused then.
        """
        return ReplayReader(
            self._single_replay(recording_id, position, stop_position, follow, limit_recording_id, is_bounded=False)
        )

    def bounded_replay(
        self, recording_id: int, *, position: int | None = None, stop_position: int | None = None, follow: bool = False
    ) -> BoundedReplay:
        """As `replay`, and never beyond a position that you move with `limit`; at first nothing is sent."""
        return BoundedReplay(self._single_replay(recording_id, position, stop_position, follow, None, is_bounded=True))

    def replay_merge(
        self,
        recording_id: int,
        *,
        position: int | None = None,
        on_live: Callable[[int], None] | None = None,
        reconnect_timeout_s: float = 30.0,
    ) -> ReplayReader:
        """Replay from `position`, then join the live stream: no gap, no duplicate, whatever breaks, until the recording
        stops. `is_live` says where it is, `on_live(position)` is called when it has joined.

        Connections that break are dialled again; when nothing has come for `reconnect_timeout_s`, the reading raises.
        """
        return ReplayReader(
            ReplayMerge(
                self._dial, recording_id, position=position, on_live=on_live, reconnect_timeout_s=reconnect_timeout_s
            )
        )

    async def stop_replay(self, replay_session_id: int) -> None:
        """Stop a replay; its reader gets an error.

        Raises:
            ArchiveError: UNKNOWN_REPLAY.
        """
        await self._session.ask(messages.StopReplayRequest, replay_session_id=replay_session_id)

    async def stop_all_replays(self, recording_id: int | None = None) -> int:
        """Stop every replay of a recording, or of all; give how many that were. Their readers get errors."""
        return await self._ask_id(messages.StopAllReplaysRequest, NULL_VALUE if recording_id is None else recording_id)

    # --- editing: each is durable when it returns

    async def truncate_recording(self, recording_id: int, position: int) -> int:
        """Cut a recording that has stopped back to `position`; give how many segments were deleted."""
        return await self._edit(
            messages.TruncateRecordingRequest, recording_id=RecordingId(recording_id), position=position
        )

    async def purge_segments(self, recording_id: int, position: int) -> int:
        """Delete the segments that lie wholly below `position`; give how many."""
        return await self._edit(
            messages.PurgeSegmentsRequest, recording_id=RecordingId(recording_id), new_start_position=position
        )

    async def detach_segments(self, recording_id: int, position: int) -> None:
        """Take the segments below `position`, a segment's first, off the front; the files stay."""
        await self._edit(
            messages.DetachSegmentsRequest, recording_id=RecordingId(recording_id), new_start_position=position
        )

    async def delete_detached_segments(self, recording_id: int) -> int:
        """Delete the files of detached segments; give how many."""
        return await self._edit(messages.DeleteDetachedSegmentsRequest, recording_id=RecordingId(recording_id))

    async def attach_segments(self, recording_id: int) -> int:
        """Take detached segments back that adjoin the recording; give how many."""
        return await self._edit(messages.AttachSegmentsRequest, recording_id=RecordingId(recording_id))

    async def migrate_segments(self, *, src_recording_id: int, dst_recording_id: int) -> int:
        """Move the segments of one recording to another that they adjoin; give how many."""
        return await self._edit(
            messages.MigrateSegmentsRequest,
            src_recording_id=RecordingId(src_recording_id),
            dst_recording_id=RecordingId(dst_recording_id),
        )

    async def purge_recording(self, recording_id: int) -> int:
        """Delete a recording that has stopped; give how many segments were deleted."""
        return await self._edit(messages.PurgeRecordingRequest, recording_id=RecordingId(recording_id))

    async def update_channel(self, recording_id: int, channel: str) -> None:
        """Rename the channel of a recording."""
        check_channel(channel)
        await self._edit(messages.UpdateChannelRequest, recording_id=RecordingId(recording_id), channel=channel)

    # --- copying

    async def replicate(
        self,
        source: str,
        src_recording_id: int,
        *,
        dst_recording_id: int | None = None,
        stop_position: int | None = None,
        live: bool = False,
        credentials: bytes = b"",
    ) -> ReplicationCall:
        """Have this archive copy a recording of the archive at `source` (`host:port`), into a new recording or on from
        where `dst_recording_id` ends; to `stop_position`, or until the source's recording stops.

        With `live` the copy joins the source's live stream once it is near the end. The archive goes on copying when
        this client has gone; a copy that was interrupted goes on when it is asked for again.

        Raises:
            ArchiveError: UNAUTHORISED_ACTION, UNKNOWN_RECORDING, ACTIVE_RECORDING, MAX_RECORDINGS.
        """
        response = await self._session.ask(
            messages.ReplicateRequest2,
            src_recording_id=RecordingId(src_recording_id),
            dst_recording_id=RecordingId(NULL_VALUE if dst_recording_id is None else dst_recording_id),
            stop_position=NULL_POSITION if stop_position is None else stop_position,
            channel_tag_id=NULL_VALUE,
            subscription_tag_id=NULL_VALUE,
            src_control_stream_id=CONTROL_STREAM_ID,
            src_control_channel=source,
            live_destination=source if live else "",
            encoded_credentials=credentials,
        )
        return ReplicationCall(self._signals, response.relevant_id, response.correlation_id)

    async def stop_replication(self, replication_id: int) -> None:
        """End a replication where it is, durably.

        Raises:
            ArchiveError: UNKNOWN_REPLICATION.
        """
        await self._edit(messages.StopReplicationRequest, replication_id=replication_id)

    # --- being told

    async def signals(self) -> AsyncIterator[messages.RecordingSignalEvent]:
        """Yield what becomes of the recordings that this client edits and replicates, from now on.

        At most 256 that were not taken are kept; older ones are dropped.

        Raises:
            ArchiveError: the archive is gone.
        """
        async for signal in self._signals.follow():
            yield signal

    async def recording_events(
        self,
    ) -> AsyncIterator[messages.RecordingStarted | messages.RecordingProgress | messages.RecordingStopped]:
        """Yield an event for every recording that anybody makes here: started, progress, stopped, from now on.

        Of progress, only the newest position of each recording.

        Raises:
            ArchiveError: the archive is gone; or this was so slow that it would have missed events.
        """
        connection = await self._dial(wants_events=True)
        inbox = SignalInbox(limit=None)
        connection.on_message, connection.on_lost = inbox.take, inbox.fail
        try:
            async for event in inbox.follow_events():
                yield event
        finally:
            connection.abort()

    # --- inside

    @property
    def _session(self) -> ArchiveConnection:
        assert self._control is not None
        return self._control

    async def _ask_id(self, request: type[Message], recording_id: int) -> int:
        response = await self._session.ask(request, recording_id=RecordingId(recording_id))
        return response.relevant_id

    async def _edit(self, request: type[Message], **fields: Any) -> int:  # the fields of the request
        response = await self._session.ask(request, timeout_s=max(EDIT_TIMEOUT_S, self._timeout_s), **fields)
        return response.relevant_id

    async def _dial(self, *, wants_events: bool = False) -> ArchiveConnection:
        connection = await ArchiveConnection.dial(
            self._network,
            self._endpoint,
            credentials=self._credentials,
            timeout_s=self._timeout_s,
            connect_timeout_s=self._connect_timeout_s,
            wants_events=wants_events,
            cluster_id=self._cluster_id,
        )
        for known in [known for known in self._connections if known.failure is not None]:
            del self._connections[known]
        self._connections[connection] = None
        return connection

    @asynccontextmanager
    async def _publish(
        self,
        request: type[Message],
        **fields: Any,  # of the request
    ) -> AsyncIterator[Publication]:
        connection = await self._dial()
        publication = Publication(connection)
        try:
            timeout_s = max(EDIT_TIMEOUT_S, self._timeout_s)
            await connection.ask(
                request, source_location=messages.SourceLocation.LOCAL, auto_stop=True, timeout_s=timeout_s, **fields
            )
            await publication.begin(timeout_s)
            yield publication
            await publication.stop()
        finally:
            connection.abort()

    def _single_replay(
        self,
        recording_id: int,
        position: int | None,
        stop_position: int | None,
        follow: bool,
        limit_recording_id: int | None,
        *,
        is_bounded: bool,
    ) -> SingleReplay:
        return SingleReplay(
            self._dial,
            recording_id,
            position=position,
            stop_position=stop_position,
            follow=follow,
            limit_recording_id=limit_recording_id,
            is_bounded=is_bounded,
            timeout_s=self._timeout_s,
        )

    async def aclose(self) -> None:
        """Close the session, and every publication and replay. More calls do nothing."""
        for connection in self._connections:
            if connection is self._control:
                connection.close()
            else:
                connection.abort()
        self._connections.clear()


def _position(relevant_id: int) -> int | None:
    return None if relevant_id == NULL_POSITION else relevant_id
