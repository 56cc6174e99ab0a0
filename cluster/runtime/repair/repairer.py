"""Mends what readers of the archive found damaged, with the bytes of members that have them.

Every read that meets damage says so to the archive's `DamageTracker`, be it the scrub, a replay or a copy. The
repairer looks at one place after the other, asks the others, and has the archive put right what `log_repair` allows. A
snapshot is the same on every member, frame by frame, so it is mended the same way, from a member that has it at the
same position and of the same term.

What nobody can give now is tried again, after a pause that doubles. When every member has answered and none has the
bytes, they are lost. If a start of this member would need them, the leader takes a new snapshot, after which no start
does; if there is none after `SNAPSHOT_WAIT_S`, this member stops and says why. Older damage is told and kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import structlog

from trimaran.archive import Archive, ArchiveError, ArchiveErrorCode, CorruptionError
from trimaran.archive.errors import is_failed_read
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.store.damage import DamagedPlace
from trimaran.archive.store.mending import LostWriteError
from trimaran.service_api import ClusterError, RemoteProtocolError
from trimaran.service_api.cluster_id import ClusterId
from trimaran.service_api.transport import NetworkStack
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.log.recording_log import RecordingLogEntry

from ...core import events as ev
from ...core.context import ConsensusContext
from ...core.control_toggle import ControlToggle
from ...core.log.log_repair import RepairPlan, RepairRange, Term, find_term_fault, plan_repair
from ...core.snapshots.shipped_snapshot import ShippedRecording
from .fetching import RepairPeer, ask_peers, fetch_range

RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
SNAPSHOT_WAIT_S: Final = 60.0
"""How long what is lost may wait for a snapshot that makes it superfluous."""

logger = structlog.get_logger()


class RepairOutcome(Enum):
    """How the attempt to mend a place ended."""

    MENDED = "mended"
    WAITS = "waits"
    """Nobody can give the bytes now; somebody may later."""
    LOST = "lost"
    """Every member has answered, and none has the bytes."""


@dataclass(slots=True)
class RepairCounts:
    """What was mended since this process began."""

    mended_count: int = 0
    mended_bytes: int = 0
    """The frames that were not valid, whole."""
    lost: dict[tuple[int, int], str] = field(default_factory=dict)
    """By recording id and position: places that nobody can mend, and why."""


@dataclass(slots=True)
class _Found:
    """A damaged place with which nothing could be done yet."""

    due_s: float = 0.0
    pause_s: float = RETRY_MIN_S
    lost_since_s: float | None = None


class Repairer:
    """Mends the archive of one member; `run` does it for what is found, `repair` for one place."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        *,
        network: NetworkStack,
        post: Callable[[object], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self.counts: Final = RepairCounts()
        self._ctx = ctx
        self._archive = archive
        self._network = network
        self._post = post
        self._on_failed = on_failed
        self._found = asyncio.Event()
        self._waiting: dict[tuple[int, int], _Found] = {}
        self._mending = asyncio.Lock()
        archive.damage.on_found = self._found.set

    def __repr__(self) -> str:
        return f"<Repairer waiting={len(self._waiting)} {self.counts}>"

    async def run(self) -> None:
        """Mend what is found, for as long as this member runs."""
        while True:
            places = self._archive.damage.places
            known = {(place.recording_id, place.position) for place in places}
            self._waiting = {key: found for key, found in self._waiting.items() if key in known}
            self.counts.lost = {key: why for key, why in self.counts.lost.items() if key in known}
            for place in places:
                await self._look_at(place)
            await self._wait()

    async def _wait(self) -> None:
        """Return when something is found, or is to be tried again."""
        now_s = asyncio.get_running_loop().time()
        due_s = min((found.due_s for found in self._waiting.values()), default=None)
        try:
            async with asyncio.timeout(None if due_s is None else max(RETRY_MIN_S, due_s - now_s)):
                await self._found.wait()
        except TimeoutError:
            return
        self._found.clear()

    async def _look_at(self, place: DamagedPlace) -> None:
        key = place.recording_id, place.position
        found, now_s = self._waiting.setdefault(key, _Found()), asyncio.get_running_loop().time()
        if now_s < found.due_s:
            return
        outcome = await self.repair(*key)
        if outcome is RepairOutcome.MENDED:
            self._waiting.pop(key, None)
            return
        found.due_s = asyncio.get_running_loop().time() + found.pause_s
        found.pause_s = min(2 * found.pause_s, RETRY_MAX_S)
        if outcome is RepairOutcome.LOST and self._is_needed_by_a_start(place):
            self._do_without(place, found, now_s)

    def _is_needed_by_a_start(self, place: DamagedPlace) -> bool:
        entries = self._newest_snapshot()
        if place.recording_id == self._ctx.log_recording_id:
            return place.position >= (entries[0].log_position if entries else 0)
        return any(entry.recording_id == place.recording_id for entry in entries)

    def _newest_snapshot(self) -> Sequence[RecordingLogEntry]:
        return self._ctx.recording_log.latest_snapshots(self._ctx.config.service_count)

    def _do_without(self, place: DamagedPlace, found: _Found, now_s: float) -> None:
        """Have a snapshot taken, after which nobody needs what is lost; stop when that comes to nothing."""
        if found.lost_since_s is None:
            found.lost_since_s = now_s
        why = self.counts.lost[place.recording_id, place.position]
        if now_s - found.lost_since_s < SNAPSHOT_WAIT_S:
            if self._ctx.leader_member_id == self._ctx.config.member_id:
                reason = f"{place.file_name} is damaged at position={place.position}"
                self._post(ev.ActionRequested(None, ControlToggle.SNAPSHOT, reason=reason))
            return
        self._on_failed(
            CorruptionError(
                f"no member has what is damaged here: file={place.file_name}: {why}; a start of this member needs it. "
                "Restore a backup, or make a cluster of what is left with `trimaran recover`",
                recording_id=place.recording_id,
                position=place.position,
            )
        )

    async def repair(self, recording_id: int, position: int) -> RepairOutcome:
        """Mend one damaged place, if a member can give what belongs there."""
        async with self._mending:
            try:
                descriptor = self._archive.present_descriptor(recording_id)
            except ArchiveError:
                return RepairOutcome.MENDED  # it was purged
            if recording_id == self._ctx.log_recording_id:
                plan, peers = await self._plan_log_repair(position)
            else:
                plan, peers = await self._plan_snapshot_repair(descriptor, position)
            for found in plan.ranges:
                if await self._mend(descriptor, found, peers[found.member_id], plan):
                    self.counts.lost.pop((recording_id, position), None)
                    return RepairOutcome.MENDED
        reason = "; ".join(plan.refusals) or "there is no other member"
        outcome = RepairOutcome.WAITS if plan.may_wait else RepairOutcome.LOST
        if outcome is RepairOutcome.LOST:
            self.counts.lost[recording_id, position] = reason
        logger.warning(
            "repair.failed", recording_id=recording_id, position=position, outcome=outcome.value, reason=reason
        )
        return outcome

    @property
    def _peers(self) -> dict[MemberId, RepairPeer]:
        others = {member.member_id for member in self._ctx.others}
        return {
            member_id: RepairPeer(member_id, address.consensus, address.archive)
            for member_id, address in self._ctx.roster.addresses.items()
            if member_id in others
        }

    async def _plan_log_repair(self, position: int) -> tuple[RepairPlan, dict[MemberId, RepairPeer]]:
        ctx, peers = self._ctx, self._peers
        answers, silent = await ask_peers(peers.values(), cluster_id=ClusterId(ctx.cluster_id), network=self._network)
        plan = plan_repair(
            position,
            commit_position=ctx.commit_position,
            terms=self._terms(),
            copies=[answer.log for _, answer in answers],
            silent=silent,
        )
        return plan, peers

    def _terms(self) -> list[Term]:
        return sorted(
            Term(entry.term_base_log_position, entry.leadership_term_id)
            for entry in self._ctx.recording_log.entries
            if entry.is_valid_term
        )

    async def _plan_snapshot_repair(
        self, descriptor: RecordingDescriptor, position: int
    ) -> tuple[RepairPlan, dict[MemberId, RepairPeer]]:
        """Find who has the same snapshot: of the same position, term and service."""
        ctx, peers, plan = self._ctx, self._peers, RepairPlan()
        recording_id = descriptor.recording_id
        snapshots = (entry for entry in ctx.recording_log.entries if entry.is_valid_snapshot)
        own = next((entry for entry in snapshots if entry.recording_id == recording_id), None)
        if own is None or descriptor.stop_position is None:
            plan.refusals.append(f"recording {recording_id} is neither the log nor a snapshot of it")
            return plan, peers
        answers, silent = await ask_peers(
            peers.values(),
            cluster_id=ClusterId(ctx.cluster_id),
            network=self._network,
            snapshot_position=own.log_position,
        )
        for peer, answer in answers:
            for theirs in answer.snapshot:
                if _identity(theirs) == _identity(own):
                    found = RepairRange(peer.member_id, theirs.recording_id, position, descriptor.stop_position)
                    plan.ranges.append(found)
                    break
            else:
                plan.refusals.append(f"member {peer.member_id} has no such snapshot of log_position={own.log_position}")
        plan.may_wait = bool(silent)
        plan.refusals += [f"member {member_id} does not answer" for member_id in silent]
        return plan, peers

    async def _mend(
        self, descriptor: RecordingDescriptor, found: RepairRange, peer: RepairPeer, plan: RepairPlan
    ) -> bool:
        """Copy what is damaged from a member; where that does not work, say why, and whether it may later."""
        recording_id = descriptor.recording_id
        try:
            end_position = await self._copy(descriptor, found, peer)
        except _DiskFailedError as error:
            self._on_failed(error.cause)
            plan.refusals.append(str(error))
            plan.may_wait = True
            return False
        except (ClusterError, OSError) as error:
            plan.refusals.append(f"member {found.member_id}: {error}")
            is_final = (
                is_failed_read(error)
                or isinstance(error, RemoteProtocolError)
                or (isinstance(error, ArchiveError) and error.code is ArchiveErrorCode.INVALID_POSITION)
            )
            plan.may_wait = plan.may_wait or not is_final
            return False
        self.counts.mended_count += 1
        self.counts.mended_bytes += end_position - found.position
        logger.warning(
            "recording.repaired",
            recording_id=recording_id,
            position=found.position,
            end_position=end_position,
            source_member_id=found.member_id,
            file=descriptor.segment_file_name(descriptor.segment_base_position(found.position)),
        )
        return True

    async def _copy(self, descriptor: RecordingDescriptor, found: RepairRange, peer: RepairPeer) -> int:
        """Put the other member's frames in the place of the damaged ones; give where that ended.

        Raises:
            ClusterError: it cannot be reached, or what it has is not what belongs here.
        """
        is_log = descriptor.recording_id == self._ctx.log_recording_id
        position = found.position
        chunks = fetch_range(
            peer,
            found.recording_id,
            descriptor,
            position,
            found.stop_position,
            is_log=is_log,
            cluster_id=ClusterId(self._ctx.cluster_id),
            network=self._network,
        )
        async with aclosing(chunks):
            async for chunk in chunks:
                if is_log and (fault := find_term_fault(chunk, position, self._terms())) is not None:
                    raise RemoteProtocolError(fault)
                end_position = await self._write(descriptor.recording_id, position, chunk)
                if end_position < position + len(chunk):
                    return end_position
                position = end_position
        if position == found.position:
            raise RemoteProtocolError(f"member {peer.member_id} gives nothing from position={position}")
        return position

    async def _write(self, recording_id: int, position: int, chunk: bytes) -> int:
        try:
            return await self._archive.mend_recording(recording_id, position, chunk)
        except ArchiveError as error:
            if isinstance(error, LostWriteError) or error.code is ArchiveErrorCode.STORAGE_FAILED:
                raise _DiskFailedError(error) from error
            raise


class _DiskFailedError(Exception):
    """This member's own disk refused, or does not keep what it takes."""

    def __init__(self, cause: ArchiveError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _identity(snapshot: RecordingLogEntry | ShippedRecording) -> tuple[int, int, int]:
    """What makes two snapshots the same one, on whichever members they were taken."""
    return snapshot.service_id, snapshot.log_position, snapshot.leadership_term_id
