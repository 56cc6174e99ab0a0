"""Copies recordings from another member's archive into this one: of snapshots, and parts of the log.

A copy is a new recording that no recording log names yet. Who copies says when it counts; what a crash leaves of it the
next start removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ....archive import Archive, ArchiveError, Recording
from ....archive.config import RecordingLayout
from ....archive.format.messages import RecordingDescriptorRow
from ....archive.net.client import ArchiveClient
from ....archive.net.replication import layout_like, replicate
from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ....service_api.types import LOG_STREAM_ID, NULL_VALUE
from ...core.context import ConsensusContext


class DiskFailedError(Exception):
    """This member's own disk refused."""

    def __init__(self, cause: ArchiveError) -> None:
        super().__init__(str(cause))
        self.cause = cause


async def start_copy(
    archive: Archive, remote: RecordingDescriptorRow, start_position: int, layout: RecordingLayout | None
) -> Recording:
    """Begin the copy of another archive's recording, with nothing in it yet; without a layout, in the archive's own.

    Raises:
        ArchiveError: the own disk refused.
    """
    return await archive.start_recording(
        stream_id=remote.stream_id,
        session_id=NULL_VALUE,
        initial_term_id=remote.initial_term_id,
        start_position=start_position,
        channel=remote.original_channel,
        source_identity=remote.source_identity,
        preallocate=False,
        layout=layout,
    )


class RecordingCopier:
    """Copies to one archive, from those of members of the same cluster."""

    def __init__(self, ctx: ConsensusContext, archive: Archive, network: NetworkStack) -> None:
        self._ctx = ctx
        self._archive = archive
        self._network = network

    async def list_remote(self, endpoint: Endpoint, recording_ids: Sequence[int]) -> list[RecordingDescriptorRow]:
        """Ask another member's archive about its recordings.

        Raises:
            ClusterError: it cannot be reached, or has no such recording.
        """
        cluster_id = format_cluster_id(self._ctx.cluster_id) or ""
        async with ArchiveClient.connect(str(endpoint), cluster_id=cluster_id, network=self._network) as client:
            return [await client.list_recording(recording_id) for recording_id in recording_ids]

    async def copy(
        self,
        endpoint: Endpoint,
        remote: RecordingDescriptorRow,
        stream_id: int,
        *,
        start_position: int = 0,
        stop_position: int | None = None,
        on_progress: Callable[[int], None] = lambda position: None,
        on_made: Callable[[int], None],
    ) -> int:
        """Copy a recording, or a part of it; give the id of the copy, which is durable and stopped.

        `on_made` is told the id as soon as there is something to remove again. A snapshot that was imported has the
        terms of the cluster that wrote it; the log goes on with this one's.

        Raises:
            ClusterError: the other archive does not give it, or it is no recording of this stream.
            DiskFailedError: this member's own disk refused.
        """
        recording_id = remote.recording_id
        end_position = remote.stop_position if stop_position is None else stop_position
        is_placed = 0 <= start_position <= end_position and start_position % 32 == 0
        is_named = (remote.original_channel + remote.source_identity).isascii()
        if remote.stream_id != stream_id or not is_placed or not is_named:
            raise RemoteProtocolError(
                f"unexpected recording: recording_id={recording_id} stream_id={remote.stream_id} expected={stream_id} "
                f"start_position={start_position} stop_position={end_position} channel={remote.original_channel!r}"
            )
        layout = None if stream_id == LOG_STREAM_ID else layout_like(remote)
        try:
            recording = await start_copy(self._archive, remote, start_position, layout)
        except ArchiveError as error:
            raise DiskFailedError(error) from error
        on_made(recording.recording_id)
        try:
            await replicate(
                source=endpoint,
                network=self._network,
                src_recording_id=recording_id,
                recording=recording,
                stop_position=end_position,
                on_progress=on_progress,
                cluster_id=ClusterId(self._ctx.cluster_id),
            )
            await recording.stop()
        except ClusterError as error:
            if recording.failure is not None:
                raise DiskFailedError(recording.failure) from error
            raise
        return recording.recording_id

    async def discard(self, recording_ids: Iterable[int]) -> None:
        """Remove copies that come to nothing, whole or not.

        Raises:
            ArchiveError: this member's own disk refused.
        """
        for recording_id in recording_ids:
            active = self._archive.active_recording(recording_id)
            if active is not None and active.failure is None:
                await active.stop()
            if self._archive.active_recording(recording_id) is None:
                await self._archive.purge_recording(recording_id)
