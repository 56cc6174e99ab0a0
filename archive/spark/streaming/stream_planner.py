"""Decides which range a stream shows next, and which member's directory is read for it.

Three questions are kept apart:

- *How far is the log committed?* `CommitClaim`s: what each directory proves by itself, what members answer, what the
  user says, and what an offset in the checkpoint says, which was decided earlier in the same way. All are true for
  ever, so the furthest counts.
- *Up to where does a directory hold that log?* `StreamMemberLog.trusted_position`: a member that was left behind by an
  election may hold a suffix that never was committed below a claim that is true elsewhere.
- *What is there to be read?* `LogWalk` reads the frames of the range and checks them, also that the frame before it is
  the one that was read then.

The first directory with all of it is taken, else the one with most. Who lags is waited for; who has purged, lost or
damaged what comes next is passed over; when nobody is left, that is an error with each directory's reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.endpoint import Endpoint
from ....service_api.errors import ConfigurationError
from ....service_api.groups.group import Group
from ....service_api.net.transport import SOCKETS
from ....service_api.tls import TlsSettings, TlsStack
from ....service_api.types import NULL_POSITION, NULL_VALUE
from ...errors import ArchiveError, ArchiveErrorCode
from ...format.descriptor import RecordingDescriptor
from ...log.commit_proof import CommitClaim
from ...log.log_file import LogFile
from ...reading.following import PATIENCE_LOOKS
from .stream_cut import NO_LIMIT, BatchCutRules, Cut, DivergenceError, LogWalk
from .stream_members import PassedOver, StreamMember, StreamMemberLog, look_at
from .stream_offset import LogOffset

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
UNBOUNDED: Final = 1 << 62
"""Where everything that is recorded may be shown."""

DEFAULT_SPLIT_BYTES: Final = 32 << 20
RETRY_COUNT: Final = 4
RETRY_INTERVAL_S: Final = 0.05
"""What nobody can read is looked at so often before it is an error: a frame half written looks like a damaged one."""

IDLE_INTERVAL_S: Final = 0.02
"""Where there was nothing to show, nobody is asked again for so long: Spark comes back every 10 ms."""

LOOK_INTERVAL_S: Final = 0.25
"""While nothing new is known to be committed, the directories are looked at no more often than this."""


@dataclass(slots=True, frozen=True, kw_only=True)
class StreamSettings:
    """What a stream reads, and how it is cut."""

    directories: tuple[Path, ...]
    recording_id: int | None = None
    """None: the cluster's log, which may have another id at each member."""
    committed_position: int | None = None
    """What the user says is committed, or `UNBOUNDED`; None: only what is known to be committed is shown."""
    commit_from: tuple[Endpoint, ...] = ()
    tls: TlsSettings | None = None
    """How members are asked for it; None: in plain text."""
    cluster_id: ClusterId = NULL_CLUSTER_ID
    """The cluster that they have to show they are of, where TLS is used."""
    group: Group | None = None
    """Which group's log it is, so that no member of another one is heard; None where that is not known."""
    starting_position: int | str = EARLIEST
    is_by_message: bool = False
    checksums: bool | None = None
    split_bytes: int = DEFAULT_SPLIT_BYTES


class StreamLogSource(NamedTuple):
    """Where a range can be read: an archive directory and its recording."""

    archive: Path
    descriptor: RecordingDescriptor


class LogRange(NamedTuple):
    """A part of a batch: from one place between frames to another, and who has it, in the order to try them."""

    start_position: int
    stop_position: int
    sources: tuple[StreamLogSource, ...]


@dataclass(slots=True)
class _Known:
    """One look at everything: the directories, and all claims there are."""

    logs: list[StreamMemberLog]
    passed_over: list[PassedOver]
    claims: list[CommitClaim]

    @property
    def position(self) -> int:
        """How far the log is known to be committed."""
        return max((claim.position for claim in self.claims), default=0)

    def term_of(self, position: int) -> int:
        """The lowest leadership term as of which a position is known to be committed."""
        return min(claim.leadership_term_id for claim in self.claims if claim.position >= position)


@dataclass(slots=True)
class _Found:
    """What the walks over the directories came to."""

    cut: Cut | None = None
    is_all: bool = False
    """The cut is as far as any other directory could go."""
    lags: bool = False
    """Somebody has nothing behind the start, and may get it."""
    has_purged: bool = False
    reasons: list[str] = field(default_factory=list)


class LogPlanner:
    """Plans the batches of one stream. Blocks: it reads files and asks members."""

    def __init__(
        self,
        settings: StreamSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.newest_position = 0
        """How far the log was known to be committed at the last look."""
        self._settings = settings
        self._clock = clock
        self._pause = pause
        self._next_look_s = 0.0
        self._idle_looks = 0
        self._idle: tuple[int, float] = (NULL_POSITION, 0.0)
        """Behind which position there was nothing to show, and until when that is believed."""
        self._directories = [
            StreamMember(directory, recording_id=settings.recording_id, is_marked=settings.committed_position is None)
            for directory in settings.directories
        ]
        from .stream_status import CommitAsker  # the driver asks; executors import this module, too, without pydantic

        tls, cluster_id = settings.tls, settings.cluster_id
        network = SOCKETS if tls is None else TlsStack(tls, cluster_id=cluster_id)
        self._waiter = CommitAsker(settings.commit_from, network=network, cluster_id=cluster_id, group=settings.group)
        self._target_position: int | None = None
        self._planned: Cut | None = None

    def __repr__(self) -> str:
        return f"<LogPlanner directories={len(self._directories)} newest_position={self.newest_position}>"

    # --- offsets

    def initial_offset(self) -> LogOffset:
        """Return the offset that a new query begins at.

        Raises:
            ArchiveError: none of the directories can be used, or all logs begin later.
            ConfigurationError: the latest position is asked for, and none is known to be committed.
        """
        known, wanted = self._look(self._waiter.ask()), self._settings.starting_position
        if not known.logs:
            raise self._nobody(0, [str(each) for each in known.passed_over])
        oldest_position = min(log.descriptor.start_position for log in known.logs)
        if wanted == EARLIEST:
            return LogOffset(position=oldest_position)
        if wanted == LATEST:
            return LogOffset(position=self._latest_position(known))
        assert isinstance(wanted, int)
        if wanted < oldest_position:
            raise ArchiveError(
                f"the log begins later: startingPosition={wanted} oldest_position={oldest_position}; earlier "
                "entries were purged",
                code=ArchiveErrorCode.INVALID_POSITION,
                position=wanted,
            )
        return LogOffset(position=wanted)

    def latest_offset(self, start: LogOffset, limit_bytes: int = NO_LIMIT) -> LogOffset:
        """Return the end of the next batch; `start` itself while there is nothing more to show.

        At most `limit_bytes`, but one frame (or message) at least.

        Raises:
            ArchiveError: nobody has what comes behind `start`, and nobody will.
        """
        idle_position, idle_until_s = self._idle
        if start.position == idle_position and self._clock() < idle_until_s:
            return start
        end = self._find_end(start, limit_bytes)
        self._idle_looks = self._idle_looks + 1 if end is start else 0
        if end is start:
            self._idle = start.position, self._clock() + IDLE_INTERVAL_S
        return end

    def freeze(self) -> None:
        """Show nothing that is committed later than now."""
        self._target_position = self._look(self._waiter.ask()).position

    # --- batches

    def plan_ranges(self, start: LogOffset, end: LogOffset) -> list[LogRange]:
        """Split what lies between two offsets, and say who has it: each of them has all of it.

        Raises:
            ArchiveError: nobody has it.
        """
        if end.position <= start.position:
            return []
        known = self._look([CommitClaim(end.leadership_term_id, end.position)])
        reasons = [str(each) for each in known.passed_over]
        planned = self._planned
        splits = planned.split_positions if planned is not None and planned.position == end.position else None
        sources = []
        for log in known.logs:
            reason = self._find_lack(log, known, start, end)
            if reason is None and splits is None:
                walk = self._walk(log, start, end.position, NO_LIMIT)
                if walk.end_position < end.position:
                    reason = walk.ending or f"ends at {walk.end_position} expected={end.position}"
                else:
                    splits = () if walk.cut is None else walk.cut.split_positions
            if reason is None:
                sources.append(StreamLogSource(log.archive, log.descriptor))
            else:
                reasons.append(f"{log.archive}: {reason}")
        if not sources:
            raise self._nobody(start.position, reasons, stop_position=end.position)
        edges = [start.position, *(p for p in splits or () if start.position < p < end.position), end.position]
        return [LogRange(*edge, tuple(sources)) for edge in pairwise(edges)]

    # --- looking

    def _find_end(self, start: LogOffset, limit_bytes: int) -> LogOffset:
        answered = self._waiter.ask()
        newest_position = max([self.newest_position, *(claim.position for claim in answered)])
        if newest_position <= start.position and self._clock() < self._next_look_s:
            return start
        for attempt in range(RETRY_COUNT):
            if attempt:
                self._pause(RETRY_INTERVAL_S)
            known = self._look(answered)
            bound = known.position if self._target_position is None else min(known.position, self._target_position)
            if known.logs and bound <= start.position:
                return start
            found = self._find(known, start, bound_position=bound, limit_bytes=limit_bytes)
            if found.cut is not None:
                self._planned = found.cut
                return found.cut.offset(known.term_of(found.cut.position))
            if found.lags and not found.has_purged:
                return start
        raise self._nobody(start.position, found.reasons)

    def _look(self, claims: Iterable[CommitClaim]) -> _Known:
        """Look at all directories; what they prove is put to the claims."""
        logs, passed_over = look_at(self._directories)
        known = _Known(logs, passed_over, [*claims, *(log.claim for log in logs if log.claim is not None)])
        if self._settings.committed_position is not None:
            known.claims.append(CommitClaim(NULL_VALUE, self._settings.committed_position))
        self._next_look_s = self._clock() + LOOK_INTERVAL_S
        self.newest_position = max(self.newest_position, known.position)
        return known

    def _find(self, known: _Known, start: LogOffset, *, bound_position: int, limit_bytes: int) -> _Found:
        """Walk over the directories until one has everything that may be shown."""
        found = _Found(reasons=[str(each) for each in known.passed_over])
        for log in known.logs:
            reason = self._try(log, known, start, bound_position, limit_bytes, found)
            if reason is not None:
                found.reasons.append(f"{log.archive}: {reason}")
            elif found.is_all:
                break
        return found

    def _try(
        self,
        log: StreamMemberLog,
        known: _Known,
        start: LogOffset,
        bound_position: int,
        limit_bytes: int,
        found: _Found,
    ) -> str | None:
        """Walk over one directory and note how far it goes; gives the reason why it is passed over."""
        if log.descriptor.start_position > start.position:
            found.has_purged = True
            return f"its log begins later: start_position={log.descriptor.start_position}"
        bound = min(bound_position, log.trusted_position(known.claims))
        if bound <= start.position:
            found.lags = True
            return f"behind: its log is not known yet to hold the committed entries beyond position={bound}"
        try:
            is_patience_over = self._idle_looks % PATIENCE_LOOKS == PATIENCE_LOOKS - 1
            walk = self._walk(log, start, bound, limit_bytes, judges_blank=is_patience_over)
        except (DivergenceError, OSError, ArchiveError) as error:
            return str(error)
        if walk.is_bound_inside_frame and bound in {claim.position for claim in known.claims}:
            return f"no frame ends at commit_position={bound}: it must be of another cluster's log"
        if walk.cut is not None:
            if found.cut is None or walk.cut.position > found.cut.position:
                found.cut = walk.cut
            found.is_all = walk.is_limited or walk.end_position >= bound_position
            return None
        if walk.ending:
            return walk.ending
        found.lags = True
        return f"behind: recorded up to position={walk.end_position}"

    def _walk(
        self,
        log: StreamMemberLog,
        start: LogOffset,
        bound_position: int,
        limit_bytes: int,
        *,
        judges_blank: bool = False,
    ) -> LogWalk:
        rules = BatchCutRules(
            is_by_message=self._settings.is_by_message,
            limit_bytes=limit_bytes,
            split_bytes=self._settings.split_bytes,
            checksums=self._settings.checksums,
        )
        walk = LogWalk(
            log.archive, log.descriptor, start, bound_position=bound_position, rules=rules, judges_blank=judges_blank
        )
        walk.run()
        return walk

    def _find_lack(self, log: StreamMemberLog, known: _Known, start: LogOffset, end: LogOffset) -> str | None:
        """Return why a log cannot be read up to `end`, which was found before, perhaps in another member's; or None.

        It is asked for the last frame before `end` only: a member that has that one has what was read before it, and
        that it can be read shows in the reading.
        """
        if log.descriptor.start_position > start.position:
            return f"its log begins later: start_position={log.descriptor.start_position}"
        trusted_position = log.trusted_position(known.claims)
        if trusted_position < end.position:
            return f"its log is not known to hold the committed entries beyond position={trusted_position}"
        try:
            walk = self._walk(log, end, end.position, NO_LIMIT)
        except (DivergenceError, OSError, ArchiveError) as error:
            return str(error)
        if walk.end_position < end.position:
            return walk.ending or f"recorded up to position={walk.end_position} expected={end.position}"
        return None

    def _latest_position(self, known: _Known) -> int:
        """Find where the log ends, as far as it may be shown; a frame ends there."""
        if self._settings.committed_position is not None:
            return max(self._last_frame_end(log, self._settings.committed_position) for log in known.logs)
        if not known.claims:
            raise ConfigurationError(
                "startingPosition=latest: nothing is known to be committed; expected `commitFrom`, or a log with a term"
            )
        return known.position

    def _last_frame_end(self, log: StreamMemberLog, bound_position: int) -> int:
        """Find where the last frame ends that does not go beyond the bound."""
        file, start = LogFile.of(log.archive, log.descriptor), log.descriptor.start_position
        reach = file.find_reach()
        if reach <= bound_position:
            return reach
        place = max([start, *(base for base in file.segment_base_positions() if base <= bound_position)])
        return max(self._walk(log, LogOffset(position=place), bound_position, NO_LIMIT).end_position, start)

    def _nobody(self, position: int, reasons: Sequence[str], *, stop_position: int | None = None) -> ArchiveError:
        up_to = "" if stop_position is None else f" up to {stop_position}"
        return ArchiveError(
            f"no member has the log from position={position}{up_to}: {'; '.join(reasons)}",
            code=ArchiveErrorCode.INVALID_POSITION,
            position=position,
        )
