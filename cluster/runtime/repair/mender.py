"""Mends one damaged place of an archive with the bytes of a member that has them.

What may be taken of a log, `log_repair` decides. A snapshot is the same on every member, frame by frame, so it is
mended in the same way, from a member that has it of the same position, term and service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError, ArchiveErrorCode
from ....archive.errors import is_disk_failure, is_failed_read
from ....archive.format.descriptor import RecordingDescriptor
from ....archive.store.mending import LostWriteError
from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.cluster_id import ClusterId
from ....service_api.net.transport import NetworkStack
from ....service_api.types import MemberId
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...core.log.log_repair import RepairPlan, RepairRange, Term, find_term_fault, plan_repair
from ...core.log.recording_log import RecordedSnapshot, RecordingLog
from ..files.log_copies_file import LogCopiesFile
from .fetching import RepairPeer, ask_peers, fetch_range

logger = structlog.get_logger()


class RepairOutcome(Enum):
    """How the attempt to mend a place ended."""

    MENDED = "mended"
    WAITS = "waits"
    """Nobody can give the bytes now; somebody may later."""
    LOST = "lost"
    """Every member has answered, and none has the bytes."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RepairFacts:
    """What this member knows by itself."""

    log_recording_id: int
    commit_position: int | None
    """None at a start: then what others have committed counts."""
    recording_log: RecordingLog
    peers: Mapping[MemberId, RepairPeer]
    cluster_id: ClusterId

    @property
    def terms(self) -> list[Term]:
        """The leadership terms of the log, in order."""
        return sorted(
            Term(entry.term_base_log_position, entry.leadership_term_id)
            for entry in self.recording_log.entries
            if entry.is_valid_term
        )


@dataclass(slots=True)
class RepairCounts:
    """What was mended since this process began."""

    mended_count: int = 0
    mended_bytes: int = 0
    """The frames that were not valid, whole."""
    lost: dict[tuple[int, int], str] = field(default_factory=dict)
    """By recording id and position: places that nobody can mend, and why."""


class Mender:
    """Mends places of one archive, one at a time."""

    def __init__(
        self,
        archive: Archive,
        *,
        network: NetworkStack,
        facts: Callable[[], RepairFacts],
        copies: LogCopiesFile,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """`on_failed` is told when the own disk refuses a write, or does not keep it."""
        self.counts: Final = RepairCounts()
        self._archive = archive
        self._network = network
        self.facts: Final = facts
        self._copies = copies
        self._on_failed = on_failed
        self._mending = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Mender {self.counts}>"

    async def mend(self, recording_id: int, position: int) -> tuple[RepairOutcome, str]:
        """Mend one damaged place, if a member can give what belongs there; otherwise say why not."""
        async with self._mending:
            try:
                descriptor = self._archive.present_descriptor(recording_id)
            except ArchiveError:
                return RepairOutcome.MENDED, ""  # it was purged
            facts = self.facts()
            if recording_id == facts.log_recording_id:
                plan = await self._plan_log_repair(facts, self._find_begin(recording_id, position))
            else:
                plan = await self._plan_snapshot_repair(facts, descriptor, position)
            for found in plan.ranges:
                if await self._mend_from(facts, descriptor, found, plan, position):
                    self.counts.lost.pop((recording_id, position), None)
                    return RepairOutcome.MENDED, ""
        reason = "; ".join(plan.refusals) or "there is no other member"
        outcome = RepairOutcome.WAITS if plan.may_wait else RepairOutcome.LOST
        if outcome is RepairOutcome.LOST:
            self.counts.lost[recording_id, position] = reason
        logger.warning(
            "repair.failed", recording_id=recording_id, position=position, outcome=outcome.value, reason=reason
        )
        return outcome, reason

    def _find_begin(self, recording_id: int, position: int) -> int:
        """Find where the frame begins that is to be put right: the one before may have lost a flag."""
        try:
            return self._archive.find_damage(recording_id, position)
        except ArchiveError:
            return position

    async def replace(self, found: RepairRange, frames: bytes) -> None:
        """Put a member's valid frames in the place of valid ones of the log here, as `log_comparison` has decided.

        Raises:
            ClusterError: the frames do not belong there, or the disk here refused.
        """
        async with self._mending:
            facts = self.facts()
            descriptor = self._archive.present_descriptor(facts.log_recording_id)
            if (fault := find_term_fault(frames, found.position, facts.terms)) is not None:
                raise RemoteProtocolError(fault)
            position = found.position
            while frames:
                room = descriptor.segment_base_position(position) + descriptor.segment_file_length - position
                try:
                    await self._write_copy(found, descriptor.recording_id, position, frames[:room])
                except _DiskFailedError as error:
                    raise error.cause  # noqa: B904 - its own cause is what the disk said
                position, frames = position + len(frames[:room]), frames[room:]
        self._note_mended(descriptor, found, position)

    async def _plan_log_repair(self, facts: RepairFacts, position: int) -> RepairPlan:
        answers, silent = await ask_peers(facts.peers.values(), cluster_id=facts.cluster_id, network=self._network)
        return plan_repair(
            position,
            commit_position=facts.commit_position,
            terms=facts.terms,
            copies=[answer.log for _, answer in answers],
            silent=silent,
        )

    async def _plan_snapshot_repair(
        self, facts: RepairFacts, descriptor: RecordingDescriptor, position: int
    ) -> RepairPlan:
        """Find who has the same snapshot: of the same position, term and service."""
        plan, recording_id = RepairPlan(), descriptor.recording_id
        snapshots = (entry for entry in facts.recording_log.entries if entry.is_valid_snapshot)
        own = next((entry for entry in snapshots if entry.recording_id == recording_id), None)
        if own is None or descriptor.stop_position is None:
            plan.refusals.append(f"recording {recording_id} is neither the log nor a snapshot of it")
            return plan
        answers, silent = await ask_peers(
            facts.peers.values(),
            cluster_id=facts.cluster_id,
            network=self._network,
            snapshot_position=own.log_position,
        )
        for peer, answer in answers:
            same = next((theirs for theirs in answer.snapshot if _identity(theirs) == _identity(own)), None)
            if same is None:
                plan.refusals.append(f"member {peer.member_id} has no such snapshot of log_position={own.log_position}")
            else:
                plan.ranges.append(RepairRange(peer.member_id, same.recording_id, position, descriptor.stop_position))
        plan.may_wait = bool(silent)
        plan.refusals += [f"member {member_id} does not answer" for member_id in silent]
        return plan

    async def _mend_from(
        self,
        facts: RepairFacts,
        descriptor: RecordingDescriptor,
        found: RepairRange,
        plan: RepairPlan,
        met_position: int,
    ) -> bool:
        """Copy what is damaged from a member; where that does not work, note why, and whether it may later.

        `met_position` is where a read has met the damage.
        """
        try:
            end_position = await self._copy(facts, descriptor, found, met_position)
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
        if end_position == found.position:
            return True  # it was mended meanwhile
        self._note_mended(descriptor, found, end_position)
        return True

    def _note_mended(self, descriptor: RecordingDescriptor, found: RepairRange, end_position: int) -> None:
        self.counts.mended_count += 1
        self.counts.mended_bytes += end_position - found.position
        logger.warning(
            "recording.repaired",
            recording_id=descriptor.recording_id,
            position=found.position,
            end_position=end_position,
            source_member_id=found.member_id,
            file=descriptor.segment_file_name(descriptor.segment_base_position(found.position)),
        )

    async def _copy(
        self, facts: RepairFacts, descriptor: RecordingDescriptor, found: RepairRange, met_position: int
    ) -> int:
        """Put the other member's frames in the place of the damaged ones; give where that ended.

        Raises:
            ClusterError: it cannot be reached, or what it has is not what belongs here.
        """
        is_log = descriptor.recording_id == facts.log_recording_id
        position, terms = found.position, facts.terms
        chunks = fetch_range(
            facts.peers[found.member_id],
            found.recording_id,
            descriptor,
            position,
            found.stop_position,
            is_log=is_log,
            cluster_id=facts.cluster_id,
            network=self._network,
        )
        segment_end = descriptor.segment_base_position(position) + descriptor.segment_file_length
        met_end = min(met_position + 1, segment_end)
        held = b""
        async with aclosing(chunks):
            async for part in chunks:
                chunk = held + part
                if position + len(chunk) < min(met_end, found.stop_position):
                    held = chunk  # what is damaged shows in two frames
                    continue
                held = b""
                if is_log and (fault := find_term_fault(chunk, position, terms)) is not None:
                    raise RemoteProtocolError(fault)
                write = self._write_copy if is_log else self._write
                end_position = await write(found, descriptor.recording_id, position, chunk)
                if end_position < position + len(chunk):
                    return end_position
                position = end_position
        if position == found.position:
            raise RemoteProtocolError(f"member {found.member_id} gives nothing from position={position}")
        return position

    async def _write_copy(self, found: RepairRange, recording_id: int, position: int, chunk: bytes) -> int:
        """Write a part of the log, and note whose bytes stand there: first of all of it, then of what was damaged."""
        copies, persist = self._copies.copies, aiofiles.os.wrap(self._copies.persist)
        stop_position, before = position + len(chunk), [*copies.ranges]
        copies.note(position, stop_position, {found.member_id, *found.copies.find_sources(position, stop_position)})
        await persist()
        end_position = await self._write(found, recording_id, position, chunk)
        copies.drop(end_position, stop_position)
        for each in before:
            copies.note(max(each.position, end_position), min(each.stop_position, stop_position), each.source_ids)
        await persist()
        return end_position

    async def _write(self, found: RepairRange, recording_id: int, position: int, chunk: bytes) -> int:
        try:
            return await self._archive.mend_recording(recording_id, position, chunk, replaces=found.replaces)
        except ArchiveError as error:
            if isinstance(error, LostWriteError) or is_disk_failure(error):
                raise _DiskFailedError(error) from error
            raise


class _DiskFailedError(Exception):
    """This member's own disk refused, or does not keep what it takes."""

    def __init__(self, cause: ArchiveError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _identity(snapshot: RecordingLogEntry | RecordedSnapshot) -> tuple[int, int, int]:
    """What makes two snapshots the same one."""
    return snapshot.service_id, snapshot.log_position, snapshot.leadership_term_id
