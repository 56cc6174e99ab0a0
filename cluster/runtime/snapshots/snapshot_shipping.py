"""Gives a member that lacks the oldest part of the log another member's snapshot, from archive to archive.

The member that lacks it asks the leader which snapshot it has, and copies: the recordings of the set, and the log from
the beginning of the segment in which the snapshot's position lies, so that segments are cut at the same positions on
every member. All of this is new, beside what is there: elections go on, and nothing of the old is touched. When the
copies are durable and have been read through, the recording log that names them is put in the place of the old one, in
one step. That is the moment at which the member's state changes; it then ends, and begins again in the same process.
What no recording log names, a start removes, so a crash before or after that moment leaves the old state or the new.

Where the leader cannot read its snapshot, another member's is taken. The leader (`offers`) keeps what it has named for
as long as it is being read (`retention`). Should it go all the same, or the leader lead no more, the member starts
over.

A member whose log is empty gets the seed of a log that has one and still begins at 0, and no log: it records that from
0 on, as the others did. A member that has the seed keeps it.

Source: Raft paper §7, with files instead of messages; aeron.md §3.10 and §5.4 (Aeron ships no snapshots to members).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError
from ....archive.errors import is_failed_read
from ....archive.format.messages import RecordingDescriptorRow
from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.cluster_id import ClusterId
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ....service_api.types import (
    LOG_STREAM_ID,
    NULL_VALUE,
    SNAPSHOT_SHIPPING_STREAM_ID,
    MemberId,
)
from ....service_api.wire.message import decode_message
from ...core import effects as fx
from ...core import events as ev
from ...core.context import ConsensusContext
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ...core.log.shipped_snapshot import ShippedTerm, check_offer, make_recording_log
from ...documents.query import query_documents
from ...messages.shipping import SHIPPING_ANSWERS, LeadershipTerms, SnapshotOffer, SnapshotQuery
from ..files.copy_notes import CopyNotes
from ..files.recording_log_file import RecordingLogFile
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor, NodeEnd
from .recording_copies import DiskFailedError, RecordingCopier
from .recovery import read_snapshots

_QUERY_TIMEOUT_S: Final = 5.0
_PROGRESS_INTERVAL_NS: Final = 5_000_000_000
_TERM_LIMIT: Final = 1 << 20
"""More terms than any cluster goes through: what names more is no member."""

logger = structlog.get_logger()


@dataclass(slots=True)
class _Shipment:
    """A snapshot on its way here: what was made for it, and in the end the recording log that names it."""

    source_member_id: MemberId
    """The leader; another member where the leader cannot read what it has."""
    recording_ids: list[int]
    log_position: int = 0
    recording_log: RecordingLog | None = None
    """None until everything is durable and was read through."""
    copied_bytes: int = 0
    length_bytes: int = 0
    reported_ns: int = 0

    def begin_again(self, source_member_id: MemberId) -> None:
        """Take it from another member; what has come is removed."""
        self.source_member_id, self.recording_ids = source_member_id, []
        self.log_position = self.copied_bytes = self.length_bytes = 0


@dataclass(slots=True, frozen=True)
class FetchProgress:
    """How far a snapshot has come that is on its way here."""

    leader_member_id: MemberId
    """The member that it comes from."""
    log_position: int
    """Where it was taken; 0 until that member has answered."""
    copied_bytes: int
    length_bytes: int
    """All there is to copy, the log around it included; 0 until that member has answered."""


class SnapshotFetcher:
    """Gets another member's snapshot; one at a time."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        recording_log_file: RecordingLogFile,
        *,
        network: NetworkStack,
        copy_notes: CopyNotes,
        agent: AgentDoor,
        monotonic_ns: Callable[[], int],
        tasks: ActivityScope,
    ) -> None:
        self._ctx = ctx
        self._archive = archive
        self._recording_log_file = recording_log_file
        self._network = network
        self._copy_notes = copy_notes
        self._copier = RecordingCopier(ctx, archive, network)
        self._agent = agent
        self._monotonic_ns = monotonic_ns
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None
        self._shipment: _Shipment | None = None
        """The one on its way, or ready to be installed."""
        self._ready: _Shipment | None = None

    def __repr__(self) -> str:
        return f"<SnapshotFetcher task={self._task!r} ready={self._ready!r}>"

    @property
    def progress(self) -> FetchProgress | None:
        """How far the snapshot has come that is on its way here; None if none is."""
        shipment = self._shipment
        if shipment is None:
            return None
        return FetchProgress(
            shipment.source_member_id, shipment.log_position, shipment.copied_bytes, shipment.length_bytes
        )

    def fetch(self, effect: fx.FetchSnapshot) -> None:
        """Begin to get the snapshot of a member; how it ends comes back as an event."""
        self.stop()
        before, shipment = self._task, _Shipment(effect.leader_member_id, [])
        self._shipment = shipment
        self._task = self._tasks.create_task(
            self._run(shipment, before), name=f"snapshot-fetch-{effect.leader_member_id}"
        )

    def stop(self) -> None:
        """Get none any more, and drop what has come of it."""
        self._shipment = None
        if self._task is not None:
            self._task.cancel()
        ready, self._ready = self._ready, None
        if ready is not None:
            self._tasks.create_task(self._discard(ready), name="snapshot-fetch-discard")

    async def install(self, effect: fx.InstallSnapshot) -> None:
        """Put what was fetched in the place of what is here; this node ends then, to begin again."""
        ready = self._ready
        if ready is None or ready.log_position != effect.log_position or ready.recording_log is None:
            return  # it was stopped while its event was on the way
        recording_log = ready.recording_log
        await self._copy_notes.begin(ready.source_member_id, 0, ready.log_position)  # the state, and what is of the log
        await aiofiles.os.wrap(self._recording_log_file.replace)(recording_log)
        logger.info("snapshot.installed", log_position=ready.log_position, leader_member_id=ready.source_member_id)
        self._agent.restart(NodeEnd.SNAPSHOT_INSTALLED)

    async def _run(self, shipment: _Shipment, before: asyncio.Task[None] | None) -> None:
        """Get it, or remove what there is of it; only then say which."""
        outcome: object = None
        try:
            if before is not None and not before.done():
                await asyncio.wait([before])
            await self._fetch_from_who_can_read_it(shipment)
            outcome = ev.SnapshotFetched(shipment.log_position)
        except (ClusterError, OSError) as error:
            reason = f"{type(error).__name__}: {error}"
            logger.warning("snapshot_fetch.failed", leader_member_id=shipment.source_member_id, reason=reason)
            outcome = ev.SnapshotFetchFailed(reason)
        except DiskFailedError as error:
            self._agent.terminate(error.cause)
        finally:
            if not isinstance(outcome, ev.SnapshotFetched):
                if self._shipment is shipment:
                    self._shipment = None
                await self._discard(shipment)
        if isinstance(outcome, ev.SnapshotFetched):
            self._ready = shipment
        if outcome is not None:
            self._agent.post(outcome)

    async def _fetch_from_who_can_read_it(self, shipment: _Shipment) -> None:
        """Get the leader's snapshot, or where the leader cannot read it, another member's.

        Every complete snapshot is of a position that is committed, so any member's will do.

        Raises:
            ClusterError: the leader's answer, if it is no damage, or no other member has a snapshot that it can read.
        """
        leader_member_id = shipment.source_member_id
        logger.info(
            "snapshot_fetch.started", leader_member_id=leader_member_id, append_position=self._ctx.append_position
        )
        try:
            await self._fetch(shipment, *await self._query(leader_member_id))
            return
        except ArchiveError as error:
            if not is_failed_read(error):
                raise
            damage = error
        others = [one.member_id for one in self._ctx.others if one.member_id != leader_member_id]
        async with asyncio.TaskGroup() as group:  # at the same time: one that stands still costs no other's turn
            asked = [group.create_task(self._query_another(member_id)) for member_id in others]
        for member_id, answer in zip(others, [task.result() for task in asked], strict=True):
            if answer is None:
                continue
            logger.warning(
                "snapshot_fetch.source_changed",
                leader_member_id=leader_member_id,
                source_member_id=member_id,
                reason=str(damage),
            )
            await self._discard(shipment)
            shipment.begin_again(member_id)
            try:
                await self._fetch(shipment, *answer)
                return
            except ClusterError as error:
                logger.warning("snapshot_fetch.source_failed", source_member_id=member_id, reason=str(error))
        raise damage

    async def _query_another(self, member_id: MemberId) -> tuple[SnapshotOffer, list[ShippedTerm]] | None:
        """Ask a member which snapshot it has; None if it does not answer."""
        try:
            return await self._query(member_id)
        except ClusterError as error:
            logger.warning("snapshot_fetch.source_failed", source_member_id=member_id, reason=str(error))
            return None

    async def _fetch(self, shipment: _Shipment, offer: SnapshotOffer, terms: list[ShippedTerm]) -> None:
        """Copy everything, and read it through.

        Raises:
            ClusterError: the other member cannot be reached, or what it has is not valid.
        """
        peer, ctx = self._ctx.roster.address_of(shipment.source_member_id), self._ctx
        began_ns = shipment.reported_ns = self._monotonic_ns()
        snapshots = [
            RecordedSnapshot.of(found)
            for found in offer.snapshots
            if found.service_id < ctx.config.service_count  # a witness takes the consensus module's alone
        ]
        if not snapshots:
            raise ClusterError(f"member {shipment.source_member_id} has no snapshot: {offer.detail}")
        shipment.log_position = check_offer(terms, snapshots, service_count=ctx.config.service_count)
        if shipment.log_position <= ctx.snapshot_needed_after:
            raise ClusterError(
                f"snapshot is not newer than this log: log_position={shipment.log_position} "
                f"append_position={ctx.append_position}"
            )
        segment_length = max(self._archive.config.segment_length_bytes, self._archive.config.term_length_bytes)
        log_start = max(offer.log_start_position, shipment.log_position - shipment.log_position % segment_length)
        endpoint = Endpoint.parse(peer.archive)
        recording_ids = [*(found.recording_id for found in snapshots), offer.log_recording_id]
        remotes = await self._copier.list_remote(endpoint, recording_ids)
        shipment.length_bytes = (
            sum(max(0, remote.stop_position) for remote in remotes[:-1]) + shipment.log_position - log_start
        )
        copies = []
        for snapshot, remote in zip(snapshots, remotes, strict=False):
            copied_id = await self._copy(shipment, endpoint, remote, snapshot.stream_id)
            copies.append(replace(snapshot, recording_id=copied_id))
        log_id = NULL_VALUE  # of a seed: there is no log before it
        if shipment.log_position > 0:
            log_id = await self._copy(
                shipment,
                endpoint,
                remotes[-1],
                LOG_STREAM_ID,
                start_position=log_start,
                stop_position=shipment.log_position,
            )
        seed = [entry for entry in ctx.recording_log.entries if entry.is_seed and log_start == 0]
        recording_log = make_recording_log(terms, copies, log_recording_id=log_id, seed=seed)
        await read_snapshots(self._archive, recording_log.latest_snapshots(ctx.config.service_count))
        shipment.recording_log = recording_log
        logger.info(
            "snapshot_fetch.completed",
            leader_member_id=shipment.source_member_id,
            log_position=shipment.log_position,
            copied_bytes=shipment.copied_bytes,
            duration_ms=(self._monotonic_ns() - began_ns) // 1_000_000,
        )

    async def _query(self, member_id: MemberId) -> tuple[SnapshotOffer, list[ShippedTerm]]:
        """Ask a member which snapshot it has.

        Raises:
            ClusterError: it does not answer, or what it says is no answer.
        """
        ctx = self._ctx
        query = SnapshotQuery(follower_member_id=ctx.config.member_id, log_position=ctx.snapshot_needed_after)
        offer: SnapshotOffer | None = None
        terms: list[ShippedTerm] = []
        asking = query_documents(
            ctx.roster.address_of(member_id).consensus,
            SNAPSHOT_SHIPPING_STREAM_ID,
            _QUERY_TIMEOUT_S,
            request=query.encode(),
            cluster_id=ClusterId(ctx.cluster_id),
            network=self._network,
        )
        async with aclosing(asking) as documents:
            async for document in documents:
                message = decode_message(document, registry=SHIPPING_ANSWERS)
                if offer is None and isinstance(message, SnapshotOffer):
                    offer = message
                elif offer is not None and isinstance(message, LeadershipTerms):
                    terms += map(ShippedTerm.of, message.terms)
                else:
                    raise RemoteProtocolError(f"unexpected answer: {type(message).__name__}")
                if len(terms) >= min(offer.term_count, _TERM_LIMIT):
                    break
        if offer is None or len(terms) != offer.term_count:
            raise RemoteProtocolError(f"answer ends early: terms={len(terms)} offer={offer!r}")
        return offer, terms

    async def _copy(
        self,
        shipment: _Shipment,
        endpoint: Endpoint,
        remote: RecordingDescriptorRow,
        stream_id: int,
        *,
        start_position: int = 0,
        stop_position: int | None = None,
    ) -> int:
        """Copy a recording, or a part of it; give the id of the copy, which is durable and stopped."""
        copied_before = shipment.copied_bytes

        def on_progress(position: int) -> None:
            shipment.copied_bytes = copied_before + position - start_position
            self._report(shipment)

        return await self._copier.copy(
            endpoint,
            remote,
            stream_id,
            start_position=start_position,
            stop_position=stop_position,
            on_progress=on_progress,
            on_made=shipment.recording_ids.append,
        )

    def _report(self, shipment: _Shipment) -> None:
        """Say now and then how far it has come."""
        now_ns = self._monotonic_ns()
        if now_ns - shipment.reported_ns >= _PROGRESS_INTERVAL_NS:
            shipment.reported_ns = now_ns
            logger.info(
                "snapshot_fetch.progressed",
                leader_member_id=shipment.source_member_id,
                log_position=shipment.log_position,
                copied_bytes=shipment.copied_bytes,
            )

    async def _discard(self, shipment: _Shipment) -> None:
        """Remove what was made for a shipment that comes to nothing; what a crash leaves, the next start removes."""
        try:
            await self._copier.discard(shipment.recording_ids)
        except (ArchiveError, OSError) as error:
            self._agent.terminate(error)
