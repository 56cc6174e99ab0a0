"""Compares this member's log with those of the others, where digests say that something differs.

The problem: a member's service comes to another state. That may be the service, or a log whose bytes changed in a way
that no check sees. Before the service is blamed and the member stops, the recordings are compared byte by byte:

    the logs are equal                                  the service differs: this member stops, as the digests say
    a majority of independent members has other bytes   these take the place of the own ones; this member starts again
    nobody can say who is right                         this member holds before the range, and compares again

A digest may not arrive: a member starts again in order to hold, perhaps before all its links are up. So a member also
compares its log when another one says that it holds. It holds in turn only if it has read the range from its own disk
since it began. If the range came live, this member's state is of the bytes as the leader appended them.

`core.log.log_comparison` decides. A member that starts again does so in its process, with a service that knows nothing,
from a snapshot before the range. Holding is no stop: the member records the log and votes, and delivers nothing of the
range or after it, so a majority that holds acknowledges nothing. It goes on when the members that differed have the
same bytes, or an operator has named one whose bytes are valid.

The range is noted durably before a byte is changed, and until all is done: a crash leaves a member that holds.

Bounds: one piece of `_PIECE_BYTES` is held at a time. The whole log is read once on each member that answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError
from ....archive.errors import REFILL_ADVICE, is_damage
from ....archive.format.descriptor import RecordingDescriptor
from ....service_api import ClusterError
from ....service_api.net.transport import NetworkStack
from ....service_api.types import MemberId
from ....service_api.wire.frame import unpack_header
from ...core.context import ConsensusContext
from ...core.log.log_comparison import LogDifference, LogVerdict, decide_range
from ...core.log.log_copies import count_independent
from ...core.log.log_repair import OtherCopy, RepairRange, plan_repair
from ...core.vocabulary.reluctance import Reluctance
from ..files.member_files import MemberFiles
from .fetching import ask_peers, fetch_range, fetch_start_position
from .mender import Mender, RepairFacts, RepairOutcome

_PIECE_BYTES: Final = 1 << 20
"""A longer range that differs is decided on piece by piece."""
_PAUSE_S: Final = 5.0
_NEIGHBOURS_PAUSE_S: Final = 30.0
"""Between two comparisons because another member holds: each reads the whole log."""
_NO_END: Final = 1 << 62

logger = structlog.get_logger()


class _Piece(NamedTuple):
    """A range in which a member's log differs from this one."""

    position: int
    stop_position: int
    member_id: MemberId


@dataclass(slots=True)
class LogComparison:
    """The result of a comparison of logs."""

    compared: dict[MemberId, tuple[int, int]] = field(default_factory=dict)
    """Members whose logs were read, and from where to where."""
    silent: dict[MemberId, str] = field(default_factory=dict)
    """Members that could not be compared with, or not to the end, and why."""
    wrong: list[tuple[int, int]] = field(default_factory=list)
    """Ranges in which others have other bytes than this member and the majority."""
    mended_position: int | None = None
    """Where the first range begins that was mended here."""
    difference: LogDifference | None = None
    """The first range in which nobody can say who is right."""
    failure: str = ""
    """Why what is damaged here was not mended."""

    def __str__(self) -> str:
        ranges = ", ".join(f"member {each} from {begin} to {end}" for each, (begin, end) in self.compared.items())
        silent = "; ".join(f"member {each}: {reason}" for each, reason in self.silent.items())
        return f"compared with {ranges or 'no member'}" + (f"; not compared with {silent}" if silent else "")

    @property
    def begin_position(self) -> int:
        """From where on this member's log was compared with those of all that answered."""
        return max((begin for begin, _ in self.compared.values()), default=0)

    def find_compared(self, difference: LogDifference) -> set[MemberId]:
        """Find the members that were compared with in the whole of a range."""
        position, stop_position = difference.position, difference.stop_position
        return {each for each, (begin, end) in self.compared.items() if begin <= position and stop_position <= end}


class LogComparer:
    """Compares the log of one member with the others', and does what comes of it."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        files: MemberFiles,
        mender: Mender,
        *,
        network: NetworkStack,
        directory: Path,
    ) -> None:
        self._ctx, self._archive, self._files, self._mender = ctx, archive, files, mender
        self._facts, self._network, self._directory = mender.facts, network, directory
        self._replayed_position = ctx.append_position
        """Where the log ended that this node found on its disk."""
        self._comparing = asyncio.Lock()
        self._trusted_id: MemberId | None = None
        self._is_asked = asyncio.Event()
        self._settled: LogDifference | None = None
        """The range that is no difference any more."""

    def __repr__(self) -> str:
        return f"<LogComparer noted={self._files.notes.difference} trusted={self._trusted_id}>"

    def trust(self, member_id: MemberId) -> None:
        """Take the bytes of a member for the valid ones, as an operator says who has looked."""
        self._trusted_id = member_id
        self._is_asked.set()

    def is_majority(self, member_ids: Iterable[MemberId], position: int, stop_position: int) -> bool:
        """Return whether members are a majority of the voters where those with one source of a range count once."""
        ctx = self._ctx
        voters = (each for each in member_ids if each in ctx.roster.current.voter_ids)
        copies = {**ctx.told_copies, ctx.config.member_id: ctx.log_copies}
        return ctx.is_majority(count_independent(voters, copies, position, max(position, stop_position)))

    async def compare(self, stop_position: int) -> LogComparison:
        """Compare the log up to a committed position, and mend what a majority has otherwise.

        Raises:
            ClusterError: the own disk refused.
        """
        async with self._comparing:
            return await self._compare(stop_position)

    async def hold(self, found: LogComparison) -> None:
        """Note durably that this member is to hold before the range that was found, from its next start on.

        Raises:
            OSError: the disk refused.
        """
        assert found.difference is not None
        noted = self._files.notes.difference
        is_mended = noted is not None and noted.is_mended and noted.position <= found.difference.position
        difference = replace(found.difference, is_mended=is_mended)
        await aiofiles.os.wrap(self._files.notes.note_difference)(difference)
        logger.error(
            "log.differs",
            position=difference.position,
            stop_position=difference.stop_position,
            file=difference.file_name,
            members=[list(group) for group in difference.groups],
            reason="no majority of independent copies has the same bytes: this member delivers nothing from there on",
        )

    async def watch(self, restart: Callable[[], None]) -> None:
        """While this member holds before a range, compare again and again; restart once nothing is left to decide."""
        while (noted := self._files.notes.difference) is not None:
            found = await self.compare(max(self._ctx.commit_position, noted.stop_position))
            if found.difference is None and not found.failure and self._is_enough(noted, found):
                self._settle(replace(noted, is_mended=noted.is_mended or found.mended_position is not None))
                restart()
                return
            if found.difference is not None and found.difference.member_ids > noted.member_ids:
                await self.hold(found)  # others have come back since
                self._ctx.held = self._files.notes.difference
            self._is_asked.clear()
            try:
                async with asyncio.timeout(_PAUSE_S):
                    await self._is_asked.wait()
            except TimeoutError:
                continue

    async def watch_neighbours(self, restart: Callable[[], None]) -> None:
        """While this member does not hold, compare its log whenever another one holds before a difference."""
        while self._files.notes.difference is None:
            await asyncio.sleep(_PAUSE_S)
            roster, bit = self._ctx.roster, Reluctance.LOG_DIFFERS.value
            is_held = any(each.is_reachable and each.reluctance & bit for each in roster.others)
            if not is_held or roster.is_witness:  # which delivers nothing, so it has nothing to hold back
                continue
            found = await self.compare(self._ctx.commit_position)
            difference = found.difference
            if difference is not None and difference.position >= self._replayed_position:
                found.difference = None
            if await self.act(found):
                restart()
                return
            await asyncio.sleep(_NEIGHBOURS_PAUSE_S)

    async def act(self, found: LogComparison) -> bool:
        """Note that this member is to hold, or that its log was mended. Returns whether it has to start again."""
        if found.difference is not None:
            await self.hold(found)
            return True
        if found.mended_position is not None and not found.failure:
            self.settle(found)
            return True
        return False

    def settle(self, found: LogComparison) -> None:
        """Note, at the end of this node, that what was mended is all there was."""
        noted = self._files.notes.difference
        if found.mended_position is not None and noted is not None:
            self._settle(noted)

    def note_settled(self, log_start_position: int) -> None:
        """Once everything is closed: forget the range, after the snapshots that were made of wrong bytes.

        Raises:
            ClusterError: no state is left from before the range to start from.
        """
        settled = self._settled
        if settled is None:
            return
        file = self._files.recording_log
        if settled.is_mended:
            snapshots = file.recording_log.complete_snapshots(self._ctx.config.service_count)
            if log_start_position > 0 and not any(one[0].log_position <= settled.position for one in snapshots):
                raise ClusterError(
                    f"the log was mended from position={settled.position} on, and this member has no state from before "
                    f"it: log_start_position={log_start_position} directory={self._directory}; {REFILL_ADVICE}"
                )
            if file.recording_log.invalidate_snapshots(settled.position, _NO_END):
                file.persist()
        self._files.notes.note_difference(None)

    # --- inside

    def _is_enough(self, noted: LogDifference, found: LogComparison) -> bool:
        """Return whether a comparison that has left nothing to decide was one with those that matter.

        They are whom the operator trusts; or all that were known to differ; or, once this member took what a majority
        has, a majority.
        """
        own_id, compared = self._ctx.config.member_id, found.find_compared(noted)
        if self._trusted_id is not None:
            return self._trusted_id in {own_id, *compared}
        others = noted.member_ids - {own_id}
        is_majority = noted.is_mended and self._ctx.is_majority(1 + len(compared & self._ctx.roster.current.voter_ids))
        return is_majority or (bool(others) and others <= compared)

    def _settle(self, noted: LogDifference) -> None:
        self._settled = noted
        logger.info("log.differs_no_more", position=noted.position, stop_position=noted.stop_position)

    async def _compare(self, stop_position: int) -> LogComparison:
        ctx, found, facts = self._ctx, LogComparison(), self._facts()
        descriptor = self._archive.descriptor(ctx.log_recording_id)
        answers, silent = await ask_peers(facts.peers.values(), cluster_id=facts.cluster_id, network=self._network)
        found.silent = dict.fromkeys(silent, "no answer")
        copies = {answer.log.member_id: answer.log for _, answer in answers}
        starts = await self._find_starts(copies, found)
        position = descriptor.start_position
        while position < stop_position:
            ranges = self._plan(position, stop_position, facts, copies, starts, found)
            piece = await self._find_difference(descriptor, ranges, found)
            if piece is None:
                break
            position = await self._judge(descriptor, piece, ranges, copies, found)
            if found.difference is not None or found.failure:
                break
        logger.info("log.compared", stop_position=stop_position, detail=str(found), wrong=found.wrong)
        return found

    async def _find_starts(self, copies: dict[MemberId, OtherCopy], found: LogComparison) -> dict[MemberId, int]:
        """Ask where each other log begins."""
        facts, starts = self._facts(), {}
        for member_id, copy in copies.items():
            try:
                starts[member_id] = await fetch_start_position(
                    facts.peers[member_id], copy.recording_id, cluster_id=facts.cluster_id, network=self._network
                )
            except (ClusterError, OSError) as error:
                found.silent[member_id] = str(error)
        return starts

    def _plan(
        self,
        position: int,
        stop_position: int,
        facts: RepairFacts,
        copies: dict[MemberId, OtherCopy],
        starts: dict[MemberId, int],
        found: LogComparison,
    ) -> list[RepairRange]:
        """Decide which range of which log is compared: what both have committed in the same terms."""
        ranges = []
        for member_id, start_position in starts.items():
            begin = max(position, start_position)
            if begin < stop_position and member_id not in found.silent:
                plan = plan_repair(begin, commit_position=stop_position, terms=facts.terms, copies=[copies[member_id]])
                ranges += plan.ranges
                if not plan.ranges:
                    found.silent[member_id] = "; ".join(plan.refusals)
        return ranges

    async def _find_difference(
        self, descriptor: RecordingDescriptor, ranges: list[RepairRange], found: LogComparison
    ) -> _Piece | None:
        """Find the first range in which a log differs from this one, at most a piece; None if all are equal."""
        first: _Piece | None = None
        for each in ranges:
            stop_position = each.stop_position if first is None else min(each.stop_position, first.position)
            reached = each.position
            try:
                async with aclosing(self._fetch(descriptor, replace(each, stop_position=stop_position))) as chunks:
                    async for chunk in chunks:
                        differing = await self._differing(descriptor, reached, chunk)
                        if differing is not None:
                            first, reached = _Piece(*differing, each.member_id), differing[1]
                            break
                        reached += len(chunk)
                        await asyncio.sleep(0)
            except (ClusterError, OSError) as error:
                found.silent[each.member_id] = str(error)
            before = found.compared.get(each.member_id, (each.position, 0))
            found.compared[each.member_id] = before[0], max(before[1], reached)
        return first

    async def _differing(self, descriptor: RecordingDescriptor, position: int, chunk: bytes) -> tuple[int, int] | None:
        """Find the first frames of a chunk, one after another, that are not the same here."""
        own = await self._read_own(descriptor, position, bytes(0xFF - byte for byte in chunk))
        if own == chunk:
            return None
        begin: int | None = None
        for at, end in _frames(chunk):
            if own[at:end] == chunk[at:end]:
                if begin is not None:
                    return position + begin, position + at
            elif begin is None:
                begin = at
            elif end - begin > _PIECE_BYTES:
                return position + begin, position + at
        assert begin is not None
        return position + begin, position + len(chunk)

    async def _judge(
        self,
        descriptor: RecordingDescriptor,
        piece: _Piece,
        ranges: list[RepairRange],
        copies: dict[MemberId, OtherCopy],
        found: LogComparison,
    ) -> int:
        """Decide on a piece in which a log differs, and mend it here if it is to be; give where to go on."""
        ctx, own_id = self._ctx, self._ctx.config.member_id
        position, stop_position, differing_id = piece
        if await self._mend_damage(descriptor, position, found):
            return position
        own = await self._read_own(descriptor, position, bytes(stop_position - position))
        bytes_of = {own_id: own}
        frames_of: dict[MemberId, bytes] = {}
        for each in ranges:
            if each.position <= position and stop_position <= each.stop_position:
                frames = await self._fetch_whole(descriptor, replace(each, position=position), stop_position, found)
                if frames is not None:
                    frames_of[each.member_id] = frames
                    bytes_of[each.member_id] = frames[: len(own)]
        digests = {member_id: blake2b(data).digest() for member_id, data in bytes_of.items()}
        decision = decide_range(
            position,
            stop_position,
            own_id=own_id,
            found=digests,
            copies={
                **ctx.told_copies,
                **{member_id: copy.copies for member_id, copy in copies.items()},
                own_id: ctx.log_copies,
            },
            voter_ids=ctx.roster.current.voter_ids,
            trusted_id=self._trusted_id,
        )
        if decision.verdict is LogVerdict.OWN_VALID:
            found.wrong.append((position, stop_position))
            return stop_position
        groups = dict.fromkeys(digests[one] for one in sorted(digests))
        difference = LogDifference(
            position + unpack_header(own).aligned_length,
            position,
            stop_position,
            (
                *(tuple(one for one in sorted(digests) if digests[one] == group) for group in groups),
                *(() if differing_id in digests else ((differing_id,),)),  # it has gone meanwhile
            ),
            descriptor.segment_file_name(descriptor.segment_base_position(position)),
        )
        if decision.verdict is LogVerdict.UNDECIDED:
            found.difference = difference
            return stop_position
        source = next(each for each in ranges if each.member_id == decision.member_ids[0])
        await self._note_mending(difference)
        frames = frames_of[source.member_id]
        await self._mender.replace(replace(source, position=position, replaces=True), frames)
        found.mended_position = position if found.mended_position is None else found.mended_position
        return position + len(frames)

    async def _mend_damage(self, descriptor: RecordingDescriptor, position: int, found: LogComparison) -> bool:
        """Have mended what is not valid here by itself; whether anything was."""
        recording_id = descriptor.recording_id
        end_position = self._archive.recorded_position(recording_id)
        try:
            self._archive.read(recording_id, position, _PIECE_BYTES, stop_position=end_position)
        except ArchiveError as error:
            if not is_damage(error):
                raise
            name = descriptor.segment_file_name(descriptor.segment_base_position(position))
            own_id = self._ctx.config.member_id
            await self._note_mending(LogDifference(position + 32, position, position + 32, ((own_id,),), name))
            outcome, reason = await self._mender.mend(descriptor.recording_id, position)
            if outcome is not RepairOutcome.MENDED:
                found.failure = reason
            found.mended_position = position if found.mended_position is None else found.mended_position
            return True
        return False

    async def _note_mending(self, difference: LogDifference) -> None:
        """Note durably, before a byte is changed, from where on this member's state is of wrong bytes."""
        noted = self._files.notes.difference
        if noted is None or not noted.is_mended or difference.position < noted.position:
            await aiofiles.os.wrap(self._files.notes.note_difference)(replace(difference, is_mended=True))

    def _fetch(self, descriptor: RecordingDescriptor, wanted: RepairRange) -> AsyncGenerator[bytes, None]:
        facts = self._facts()
        return fetch_range(
            facts.peers[wanted.member_id],
            wanted.recording_id,
            descriptor,
            wanted.position,
            wanted.stop_position,
            is_log=True,
            cluster_id=facts.cluster_id,
            network=self._network,
        )

    async def _fetch_whole(
        self, descriptor: RecordingDescriptor, wanted: RepairRange, stop_position: int, found: LogComparison
    ) -> bytes | None:
        """Bring whole frames that reach to a position; None if the member cannot give them."""
        data = b""
        try:
            async with aclosing(self._fetch(descriptor, wanted)) as chunks:
                async for chunk in chunks:
                    data += chunk
                    if wanted.position + len(data) >= stop_position:
                        break
        except (ClusterError, OSError) as error:
            found.silent[wanted.member_id] = str(error)
            return None
        length = next((end for _, end in _frames(data) if wanted.position + end >= stop_position), None)
        return None if length is None else data[:length]

    async def _read_own(self, descriptor: RecordingDescriptor, position: int, unlike: bytes) -> bytes:
        """Read the own log as it is, in pieces of a segment; what cannot be read is what `unlike` says."""
        own = b""
        while len(own) < len(unlike):
            at = position + len(own)
            room = descriptor.segment_base_position(at) + descriptor.segment_file_length - at
            part = unlike[len(own) : len(own) + room]
            own += await self._archive.read_as_it_is(descriptor.recording_id, at, unlike=part)
        return own


def _frames(data: bytes) -> Iterator[tuple[int, int]]:
    """Give where each whole frame of valid ones begins and ends."""
    at = 0
    while at < len(data):
        end = at + unpack_header(data, at).aligned_length
        yield at, end
        at = end
