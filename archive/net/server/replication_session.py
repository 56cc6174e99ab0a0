"""One replication: an archive copies a recording of another, across broken links and restarts, and may merge to live.

The copy begins where the local recording ends, so it can be asked for again at any time, also after a restart of this
archive. Only what is durable at the source ever comes, and every frame is checked, so the copy is equal byte for byte
up to where it goes. It ends at the stop position, or where the source's recording has stopped; a source that cannot be
reached is tried again until nothing has come for `give_up_after_s`.
Source: Aeron `ReplicationSession`, signals of schema 101 `RecordingSignal`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ....service_api.endpoint import Endpoint
from ....service_api.errors import ClusterError
from ....service_api.net.transport import NetworkStack
from ...errors import ArchiveError, ArchiveErrorCode
from ...format import messages
from ...format.frame_rules import frame_rules_of
from ...store.conductor import Archive
from ...store.recording import Recording
from ..connection import ArchiveConnection, Credentials
from ..frame_stream import FrameStream, open_replay
from ..replay_merge import FIRST_PAUSE_S, LONGEST_PAUSE_S, ReplayMerge, is_connection_failure
from ..replication import check_fit, copy, fetch_descriptor, layout_like
from .control_session import ControlSession

CONNECT_TIMEOUT_S: Final = 5.0
GIVE_UP_AFTER_S: Final = 60.0

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True, kw_only=True)
class ReplicationOrder:
    """What is to be copied, from where, and how far."""

    source: Endpoint
    src_recording_id: int
    dst_recording_id: int | None
    """None makes a new recording."""
    stop_position: int | None
    """None: to the end of the source's recording, following it as it grows."""
    merges_to_live: bool
    credentials: bytes
    correlation_id: int


class ReplicationSession:
    """One replication. It goes on when the session that asked for it has gone; that is then not told any more."""

    def __init__(
        self,
        session: ControlSession,
        archive: Archive,
        order: ReplicationOrder,
        *,
        replication_id: int,
        preallocate: bool,
        network: NetworkStack,
    ) -> None:
        self.replication_id: Final = replication_id
        self.order: Final = order
        self._task: asyncio.Task[None] | None = None
        self._session = session
        self._archive = archive
        self._preallocate = preallocate
        self._network = network
        self._recording: Recording | None = None
        self._progress_s = 0.0
        """When something last came, on the loop's clock."""
        self._pause_s = FIRST_PAUSE_S

    def __repr__(self) -> str:
        return f"<ReplicationSession id={self.replication_id} src={self.order.src_recording_id} to={self._recording!r}>"

    def start(self, on_end: Callable[[], object]) -> None:
        """Run until the end, or until `stop`; tell `on_end` then."""
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"replication-{self.replication_id}")
        self._task.add_done_callback(lambda _: on_end())

    async def stop(self) -> None:
        """End it where it is, durably."""
        task = self._task
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        """Copy until the end, and tell the session that asked what becomes of it."""
        signal = messages.RecordingSignal
        self._progress_s = asyncio.get_running_loop().time()
        is_complete = False
        try:
            await self._copy()
            is_complete = True
        except ClusterError as error:
            _log.warning("replication.failed", replication=repr(self), reason=str(error))
            self._refuse(error)
        except asyncio.CancelledError:
            _log.info("replication.stopped", replication=repr(self))
        finally:
            recording = self._recording
            position = -1 if recording is None else await self._finish(recording)
            if is_complete:
                self._tell(signal.SYNC, position)
            if recording is not None:
                self._tell(signal.STOP, position)
            self._tell(signal.REPLICATE_END, position)

    async def _copy(self) -> None:
        """Try until it is complete, or there is no use in trying."""
        while True:
            try:
                await self._attempt()
            except ClusterError as error:
                idle_s = asyncio.get_running_loop().time() - self._progress_s
                if not is_connection_failure(error) or idle_s >= GIVE_UP_AFTER_S:
                    raise
                _log.info("replication.interrupted", replication=repr(self), reason=str(error))
            else:
                return
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    async def _attempt(self) -> None:
        order = self.order
        connection = await self._dial()
        try:
            remote = await fetch_descriptor(connection, order.src_recording_id)
            if self._recording is None:
                self._recording = await self._open_destination(remote)
            recording = self._recording
            check_fit(remote, recording.descriptor)
            if order.stop_position is not None and recording.append_position >= order.stop_position:
                return
            if order.merges_to_live:
                await self._copy_live(recording)
                return
            stream = await open_replay(
                connection,
                order.src_recording_id,
                position=recording.append_position,
                stop_position=order.stop_position,
                follow=True,
                rules=frame_rules_of(recording.descriptor),
                timeout_s=CONNECT_TIMEOUT_S,
            )
            self._check_checksums(stream, recording)
            await copy(stream.read, recording, stop_position=order.stop_position, on_progress=self._on_progress)
        finally:
            connection.abort()

    async def _copy_live(self, recording: Recording) -> None:
        merge = ReplayMerge(
            self._dial,
            self.order.src_recording_id,
            position=recording.append_position,
            on_live=lambda position: self._tell(messages.RecordingSignal.MERGE, position),
            reconnect_timeout_s=0,
            rules=frame_rules_of(recording.descriptor),
            on_state=lambda state, reason: _log.debug(
                "replay_merge.state_changed", merge=repr(merge), new=state.name, reason=reason
            ),
        )
        stop_position = self.order.stop_position
        try:
            if stop_position is None:
                await copy(merge.read, recording, stop_position=None, on_progress=self._on_progress)
            else:
                await copy(
                    lambda: _read_up_to(merge, stop_position),
                    recording,
                    stop_position=stop_position,
                    on_progress=self._on_progress,
                )
        finally:
            merge.close()

    async def _dial(self) -> ArchiveConnection:
        order = self.order
        return await ArchiveConnection.dial(
            self._network,
            order.source,
            credentials=Credentials(encoded=order.credentials, client_info="trimaran replication"),
            timeout_s=CONNECT_TIMEOUT_S,
        )

    async def _open_destination(self, remote: messages.RecordingDescriptorRow) -> Recording:
        """Make the local recording, or go on with it."""
        archive, order, signal = self._archive, self.order, messages.RecordingSignal
        if order.dst_recording_id is not None:
            local = archive.present_descriptor(order.dst_recording_id)
            check_fit(remote, local)
            recording = await archive.extend_recording(
                order.dst_recording_id, session_id=remote.session_id, preallocate=self._preallocate
            )
            self._recording = recording
            self._tell(signal.EXTEND, recording.append_position)
            return recording
        recording = await archive.start_recording(
            stream_id=remote.stream_id,
            session_id=remote.session_id,
            initial_term_id=remote.initial_term_id,
            start_position=remote.start_position,
            channel=remote.original_channel,
            source_identity=remote.source_identity,
            layout=layout_like(remote),
            preallocate=self._preallocate,
        )
        self._recording = recording
        self._tell(signal.REPLICATE, recording.append_position)
        return recording

    def _check_checksums(self, stream: FrameStream, recording: Recording) -> None:
        """Refuse a source whose frames carry no checksums where ours have to, or the reverse."""
        assert stream.setup is not None
        setup, descriptor = stream.setup, recording.descriptor
        theirs = setup.checksum_kind.label if setup.checksummed else "none"
        if theirs != descriptor.checksum_label:
            raise ArchiveError(
                f"recordings cannot be joined: checksums={theirs} expected={descriptor.checksum_label}",
                code=ArchiveErrorCode.INVALID_EXTENSION,
                recording_id=recording.recording_id,
            )

    async def _finish(self, recording: Recording) -> int:
        """Stop the local recording; give the position where it ends."""
        try:
            return await recording.stop()
        except ArchiveError as error:
            self._refuse(error)
            return recording.recorded_position

    def _on_progress(self, position: int) -> None:
        self._progress_s = asyncio.get_running_loop().time()
        self._pause_s = FIRST_PAUSE_S

    def _tell(self, signal: messages.RecordingSignal, position: int) -> None:
        self._session.signal(
            signal,
            recording_id=-1 if self._recording is None else self._recording.recording_id,
            position=position,
            subscription_id=self.replication_id,
            correlation_id=self.order.correlation_id,
        )

    def _refuse(self, error: ClusterError) -> None:
        if not self._session.is_over:
            told = error if isinstance(error, ArchiveError) else ArchiveError(str(error))
            self._session.refuse(told, self.order.correlation_id)


async def _read_up_to(merge: ReplayMerge, stop_position: int) -> bytes:
    """Of what a live stream brings, give the frames that end at the stop position at most."""
    begin_position = merge.position
    chunk = await merge.read()
    if begin_position + len(chunk) <= stop_position:
        return chunk
    length, _, _ = merge.rules.skip_valid_frames(chunk, 0, begin_position, stop_position - begin_position)
    return chunk[:length]


def make_order(request: messages.ReplicateRequest2, source: Endpoint) -> ReplicationOrder:
    """Read an order from a request; -1 is what is not set.

    Raises:
        ArchiveError: the stop position is no multiple of 32.
    """
    if request.stop_position != -1 and (request.stop_position < 0 or request.stop_position % 32):
        raise ArchiveError(
            "cannot replicate: the stop position is not a multiple of 32",
            code=ArchiveErrorCode.INVALID_POSITION,
            recording_id=request.src_recording_id,
            position=request.stop_position,
        )
    return ReplicationOrder(
        source=source,
        src_recording_id=request.src_recording_id,
        dst_recording_id=None if request.dst_recording_id < 0 else request.dst_recording_id,
        stop_position=None if request.stop_position == -1 else request.stop_position,
        merges_to_live=bool(request.live_destination),
        credentials=request.encoded_credentials,
        correlation_id=request.correlation_id,
    )
