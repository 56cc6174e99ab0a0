"""Copies one range of the log out of another member's archive: the leader's, or that of the member followed instead.

What the leader cannot read comes from a member that has the whole range committed. Where nobody has it any more, only a
snapshot helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from ....archive import ArchiveError, ArchiveErrorCode, Recording
from ....archive.errors import is_failed_read
from ....archive.net.client import ArchiveClient
from ....archive.net.replication import replicate
from ....service_api import ClusterError
from ....service_api.cluster_id import ClusterId
from ....service_api.documents.member_status import MemberStatus
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ....service_api.types import MemberId
from ...core import effects as fx
from ...core import events as ev
from ...core.context import ConsensusContext
from ...documents.query import query_status
from ..files.copy_notes import CopyNotes

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class _HeldLog:
    """A log that another member has committed as far as this one asked."""

    status: MemberStatus
    recording_id: int


class LogReplication:
    """One copy of a range of the log, to the end of the recording here."""

    def __init__(
        self,
        ctx: ConsensusContext,
        recording: Recording,
        append: Callable[[Recording, bytes], None],
        *,
        has_cold_storage: bool,
        network: NetworkStack,
        copy_notes: CopyNotes,
    ) -> None:
        """`append` records a chunk that was copied."""
        self._ctx = ctx
        self._recording = recording
        self._append = append
        self._has_cold_storage = has_cold_storage
        self._network = network
        self._copy_notes = copy_notes

    def __repr__(self) -> str:
        return f"<LogReplication {self._recording!r}>"

    async def run(
        self, effect: fx.StartLogReplication
    ) -> ev.ReplicationDone | ev.BelowOldestSegment | ev.ActivityFailed:
        """Copy the range. Returns the end of it: whole, or only a snapshot helps, or a failure."""
        peer: Endpoint | None = None
        try:
            position = await self._copy_from_source(effect)
            if position == effect.stop_position:
                return ev.ReplicationDone(position)
            oldest_position = await self._ask_cold_limit(effect.leader_member_id)
            if oldest_position > self._recording.append_position:
                return ev.BelowOldestSegment(self._recording.append_position, oldest_position)
            peer = self._archive_of(effect.leader_member_id)
            try:
                position = await self._copy(effect.leader_member_id, effect.leader_recording_id, effect.stop_position)
            except ArchiveError as error:
                if self._recording.failure is not None or not is_failed_read(error):
                    raise
                return await self._copy_from_another(effect, error)
        except (ClusterError, OSError) as error:
            position, oldest_position = self._recording.append_position, 0
            if (
                peer is not None
                and isinstance(error, ArchiveError)
                and error.code is not ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
            ):
                oldest_position = await self._oldest_position(peer, effect.leader_recording_id)
            if oldest_position > position:
                return ev.BelowOldestSegment(position, oldest_position)
            return ev.ActivityFailed(f"log replication from member {effect.leader_member_id} failed: {error}")
        return ev.ReplicationDone(position)

    async def _ask_cold_limit(self, member_id: MemberId) -> int:
        """Ask a member for its `_cold_limit`; 0 where it does not answer."""
        if not self._has_cold_storage:
            return 0
        try:
            return self._cold_limit(await self._ask_status(member_id))
        except ClusterError:
            return 0

    def _cold_limit(self, status: MemberStatus) -> int:
        """From where on a member sends its log to others; 0 where nothing is in cold storage.

        Its archive would send all that is in cold storage.
        """
        cold = status.cold_storage if self._has_cold_storage else None
        return 0 if cold is None else cold.catchup_start_position

    async def _ask_status(self, member_id: MemberId) -> MemberStatus:
        timeout_s = self._ctx.config.leader_heartbeat_timeout_ns / 2e9
        return await query_status(self._ctx.roster.address_of(member_id).consensus, timeout_s, network=self._network)

    async def _copy(self, member_id: MemberId, recording_id: int, stop_position: int) -> int:
        await self._copy_notes.begin(member_id, self._recording.append_position, stop_position)
        try:
            return await replicate(
                source=self._archive_of(member_id),
                network=self._network,
                src_recording_id=recording_id,
                recording=self._recording,
                stop_position=stop_position,
                append=self._append,
                cluster_id=ClusterId(self._ctx.cluster_id),
            )
        finally:
            self._copy_notes.end(self._recording.append_position)

    async def _copy_from_source(self, effect: fx.StartLogReplication) -> int | None:
        """Copy from the member that this one follows in the leader's place; None: the leader is to be asked.

        Raises:
            ClusterError: the disk here has failed.
        """
        source_id = effect.source_id
        if source_id == effect.leader_member_id:
            return None
        held = await self._ask_held(effect.stop_position, source_id)
        if held is None or self._cold_limit(held.status) > self._recording.append_position:
            return None
        return await self._try_copy(source_id, held.recording_id, effect.stop_position)

    async def _copy_from_another(
        self, effect: fx.StartLogReplication, damage: ArchiveError
    ) -> ev.ReplicationDone | ev.BelowOldestSegment:
        """Copy what the leader cannot read from a member that has the whole range committed: it has the same bytes.

        Returns the end of it; or that the others have purged what is missing here, so that only a snapshot helps.

        Raises:
            ArchiveError: the leader's answer; no other member has it, or they cannot be asked.
        """
        below: ev.BelowOldestSegment | None = None
        others = [member.member_id for member in self._ctx.others if member.member_id != effect.leader_member_id]
        async with asyncio.TaskGroup() as group:  # at the same time: one that stands still costs no other's turn
            asked = [group.create_task(self._ask_held(effect.stop_position, other)) for other in others]
        for member_id, held in zip(others, [task.result() for task in asked], strict=True):
            if held is None:
                continue
            logger.warning(
                "log_replication.source_changed",
                leader_member_id=effect.leader_member_id,
                source_member_id=member_id,
                position=self._recording.append_position,
                stop_position=effect.stop_position,
                reason=str(damage),
            )
            position = await self._try_copy(member_id, held.recording_id, effect.stop_position)
            if position is not None:
                return ev.ReplicationDone(position)
            oldest_position = await self._oldest_position(self._archive_of(member_id), held.recording_id)
            if oldest_position > self._recording.append_position:
                below = ev.BelowOldestSegment(self._recording.append_position, oldest_position)
        if below is not None:
            return below
        raise damage

    async def _try_copy(self, member_id: MemberId, recording_id: int, stop_position: int) -> int | None:
        """Copy from a member that does not lead; None, and a line in the log, if it cannot give it.

        Raises:
            ClusterError: the disk here has failed.
        """
        try:
            return await self._copy(member_id, recording_id, stop_position)
        except ClusterError as error:
            if self._recording.failure is not None:
                raise
            logger.warning("log_replication.source_failed", source_member_id=member_id, reason=str(error))
            return None

    async def _ask_held(self, stop_position: int, member_id: MemberId) -> _HeldLog | None:
        """Ask a member for its log; None if it does not answer, or has not committed that far."""
        try:
            status = await self._ask_status(member_id)
        except ClusterError as error:
            logger.warning("log_replication.source_failed", source_member_id=member_id, reason=str(error))
            return None
        recording_id = status.log_recording_id
        if recording_id is None or status.commit_position < stop_position:
            return None
        return _HeldLog(status, recording_id)

    def _archive_of(self, member_id: MemberId) -> Endpoint:
        return Endpoint.parse(self._ctx.roster.address_of(member_id).archive)

    async def _oldest_position(self, peer: Endpoint, recording_id: int) -> int:
        """Ask another member's archive where its log begins; 0 if it does not answer."""
        try:
            async with ArchiveClient.connect(str(peer), network=self._network) as client:
                return (await client.list_recording(recording_id)).start_position
        except (ClusterError, OSError):
            return 0
