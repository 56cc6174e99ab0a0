"""Compares what came of the services on each member, and finds the one that differs.

The problem: a service that is not deterministic, or that forgets a field in its snapshot, goes other ways on other
members. All of them have the same log, so nothing looks wrong until another member leads.

The idea: at positions that are a function of the log alone, each member makes digests of its services
(`service.digests`) and of its snapshots, and tells the others. Each member keeps the newest of all members in a table
and compares. It decides alone, from what it has heard:

    a majority of the voters has one digest, and this member another      this member stops
    a majority has one digest, another member has another                 this member names that one
    they differ and no majority agrees                                    this member names all of them, and goes on

So a stop needs the same digest from more than half of all voters; learners are compared, and are no vote. With three
members that all differ, or two of which one is down, nobody can say who has it right: then all go on, and say so in
health, metrics and errors. Before a member stops, and where no majority agrees, the shell compares the recordings of
the log: if they differ, the log is at fault and not the service (`runtime.repair.comparing`).

Members that have copied their log from one source may have copied a fault with it (`log_copies`). A majority in which
there are such members is doubtful: its members compare their logs, too, and for the range that differs those of one
source count once. What was copied before all voters had the same state does not matter: what differs has come later. A
copy that led to the state of a majority of independent members was valid, and is no copy from then on.

Digests are of delivered entries, which are committed, so no fail-over takes one back. A member that is behind tells
its digests when it gets there, in a replay, too. One that hears of a digest unlike its own answers with its own: so a
member that starts again hears what others found at a position long ago. Messages may get lost: then the next position
is compared.

Where an operator has an entry skipped, a member that had delivered it goes on from it until it meets the skip. In
between members differ as they should: those that know of the skip tell and compare nothing there.

A difference stays until each member that differed has a new process and has told a digest which is that of the others.
One position at which they happen to agree is no proof.

Bounds: `_POSITION_LIMIT` places, those at the highest positions; text of `_VALUE_LIMIT` characters. Of places that one
other member alone has told of, there is room for its share only: no member can push out what the others compare.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ....service_api import RemoteProtocolError
from ....service_api.types import MemberId
from ...messages.digests import DigestKind, ServiceDigest
from .. import effects as fx
from ..context import ConsensusContext
from ..events import LinkChanged, SnapshotDigested
from ..log.log_copies import LogCopies, count_independent
from ..vocabulary.divergence import Divergence

_POSITION_LIMIT: Final = 4096
"""Digests kept of each member: some GiB of log; 1 MB of memory at most."""

_REPEATED_COUNT: Final = 64
"""The newest digests of its own that a member tells one whose link comes up."""

_NO_END: Final = 1 << 63
_NEVER_NS: Final = 1 << 62
_DIGEST_LIMIT: Final = 64
_VALUE_LIMIT: Final = 120


class _Place(NamedTuple):
    """What is compared; ordered by position."""

    log_position: int
    kind: int
    service_id: int
    code_digest: int


@dataclass(slots=True)
class _Found:
    """What one member found at a place."""

    digest: bytes
    value: str


class DigestComparison:
    """One member's part in the comparison."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self._found: dict[_Place, dict[MemberId, _Found]] = {}
        self._places: list[_Place] = []
        """A heap of the keys of `_found`."""
        self._own: OrderedDict[_Place, None] = OrderedDict()
        """The newest places of this member's own digests, in the order of their making."""
        self._lone_counts: Counter[MemberId] = Counter()
        """By member: how many places it alone has told a digest of."""
        self.divergences: dict[tuple[int, int], Divergence] = {}
        """By kind and service, what differs and is not mended."""
        self.divergence_count = 0
        """How often digests differed, since this process began."""
        self.compared_count = 0
        """Digests of other members that were equal to this member's."""
        self.begin_position = 0
        """Where delivery began in this process: at the begin of the log, or behind a snapshot."""
        self._equal_positions: Counter[int] = Counter()
        """By service: the highest position at which all voters were seen to have the same state."""
        self._valid_positions: Counter[int] = Counter()
        """By service: the highest position at which a majority of independent voters had this member's state."""
        self._undecided_since_ns: int | None = None
        """Since when a difference waits for those who have not told theirs."""
        self._undecided: _Place | None = None
        """The newest place at which one waits."""
        ctx.link_listeners.append(self.on_link)

    def __repr__(self) -> str:
        return f"<DigestComparison places={len(self._found)} divergences={[*self.divergences.values()]}>"

    # --- inputs

    def on_replay_digest(self, kind: int, service_id: int, log_position: int, digest: bytes, value: str) -> None:
        """This member has delivered the log up to here, and made a digest."""
        ctx = self._ctx
        if ctx.is_before_skip(log_position):
            return
        place = _Place(log_position, kind, service_id, ctx.config.code_digest)
        own = _Found(digest, value[:_VALUE_LIMIT])
        self._own[place] = None
        if len(self._own) > _REPEATED_COUNT:
            self._own.popitem(last=False)
        ctx.broadcast(self._message(place, own))
        self._note(ctx.config.member_id, place, own)

    def on_snapshot_digested(self, event: SnapshotDigested) -> None:
        """This member has written a part of its snapshot."""
        self.on_replay_digest(DigestKind.SNAPSHOT, event.service_id, event.log_position, event.digest, "")

    def on_digest(self, message: ServiceDigest) -> None:
        """Another member tells a digest of its own."""
        if self._ctx.is_before_skip(message.log_position):
            return
        member_id = MemberId(message.member_id)
        try:
            self._ctx.told_copies[member_id] = LogCopies.decode_text(message.copies)
        except RemoteProtocolError:
            return  # of a member that does not say what its log is a copy of, nothing can be concluded
        place = _Place(message.log_position, message.kind, message.service_id, message.code_digest)
        theirs = _Found(message.digest[:_DIGEST_LIMIT], message.value[:_VALUE_LIMIT])
        known = self._found.get(place, {})
        is_news = known.get(member_id) != theirs
        self._note(member_id, place, theirs)
        own = known.get(self._ctx.config.member_id)
        if is_news and own is not None and own.digest != theirs.digest:
            self._ctx.send(member_id, self._message(place, own))

    def on_link(self, event: LinkChanged) -> None:
        """A member's process is there: tell it the newest digests. Or it is gone: what it had is gone with it."""
        if not event.is_up:
            for divergence in self.divergences.values():
                divergence.restarted |= {event.member_id} & divergence.differing
            return
        own_id = self._ctx.config.member_id
        for place in self._own:
            found = self._found.get(place)
            if found is not None and own_id in found:
                self._ctx.send(event.member_id, self._message(place, found[own_id]))

    def poll(self) -> None:
        """Decide on a difference that has waited long enough for those who have not told theirs."""
        place = self._undecided
        if place is not None and self._ctx.now_ns >= self.next_deadline_ns():
            self._undecided = None
            if (found := self._found.get(place)) is not None:
                self._on_difference(place, found)

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would do anything."""
        if self._undecided is None or self._undecided_since_ns is None:
            return _NEVER_NS
        return self._undecided_since_ns + self._ctx.config.leader_heartbeat_timeout_ns

    # --- inside

    def _message(self, place: _Place, found: _Found) -> ServiceDigest:
        return ServiceDigest(
            member_id=self._ctx.config.member_id,
            kind=place.kind,
            service_id=place.service_id,
            code_digest=place.code_digest,
            log_position=place.log_position,
            digest=found.digest,
            value=found.value,
            copies=self._ctx.log_copies.encode_text(),
        )

    def _note(self, member_id: MemberId, place: _Place, theirs: _Found) -> None:
        own_id = self._ctx.config.member_id
        if place not in self._found:
            if member_id != own_id and self._lone_counts[member_id] >= _POSITION_LIMIT // len(self._ctx.members):
                return
            self._found[place] = {}
            heappush(self._places, place)
            self._lone_counts[member_id] += 1
            if len(self._places) > _POSITION_LIMIT:
                self._forget(heappop(self._places), member_id)
                if place not in self._found:
                    return
        found = self._found[place]
        if len(found) == 1 and member_id not in found:
            self._lone_counts[next(iter(found))] -= 1
        found[member_id] = theirs
        own = found.get(own_id)
        if own is None:
            return
        if len({each.digest for each in found.values()}) > 1:
            self._on_difference(place, found)
        elif len(found) > 1:
            self.compared_count += 1
            self._on_equality(place, found)

    def _forget(self, place: _Place, newest_member_id: MemberId) -> None:
        """Drop a place. If nothing is noted there yet, it counts as made for `newest_member_id`."""
        found = self._found.pop(place)
        if len(found) <= 1:
            self._lone_counts[next(iter(found), newest_member_id)] -= 1

    def _on_equality(self, place: _Place, found: dict[MemberId, _Found]) -> None:
        """Members agree: those which differed before, and have been started again since, are mended."""
        if place.kind != DigestKind.OUTPUTS and place.service_id >= 0:
            self._note_equal_state(place, found.keys())
        divergence = self.divergences.get((place.kind, place.service_id))
        if divergence is None or place.log_position <= divergence.log_position:
            return
        divergence.differing -= divergence.restarted & found.keys()
        if len(divergence.differing) <= (0 if divergence.has_majority else 1):
            del self.divergences[place.kind, place.service_id]
            self._ctx.emit(fx.DivergenceMended(divergence))

    def _note_equal_state(self, place: _Place, member_ids: Collection[MemberId]) -> None:
        ctx, service_ids = self._ctx, range(self._ctx.config.service_count)
        position = place.log_position
        if {each for each in ctx.roster.current.voter_ids if ctx.roster.can_lead(each)} <= set(member_ids):
            self._equal_positions[place.service_id] = max(position, self._equal_positions[place.service_id])
        if ctx.is_majority(self._count_sources(member_ids, 0, position)):
            self._valid_positions[place.service_id] = max(position, self._valid_positions[place.service_id])
            ctx.log_copies.drop(self.begin_position, min(self._valid_positions[each] for each in service_ids))

    def _count_sources(self, member_ids: Collection[MemberId], position: int, stop_position: int) -> int:
        """Count the independent sources of a range of the log among the voters of some members."""
        ctx, voter_ids = self._ctx, self._ctx.roster.current.voter_ids
        copies = {**ctx.told_copies, ctx.config.member_id: ctx.log_copies}
        return count_independent((each for each in member_ids if each in voter_ids), copies, position, stop_position)

    def _on_difference(self, place: _Place, found: dict[MemberId, _Found]) -> None:
        ctx = self._ctx
        voters = ctx.roster.current.voter_ids
        votes = Counter(each.digest for member_id, each in found.items() if member_id in voters)
        (common, count), *_ = votes.most_common(1) or [(b"", 0)]
        has_majority = ctx.is_majority(count)
        if not has_majority and self._is_undecided(count, found):
            self._undecided = place
            return
        self._undecided_since_ns = self._undecided = None
        differing = {member_id for member_id, each in found.items() if not has_majority or each.digest != common}
        key = place.kind, place.service_id
        known = self.divergences.get(key)
        is_known = known is not None and (known.has_majority or not has_majority) and differing <= known.differing
        if known is None or not is_known:
            values = {member_id: each.value or each.digest.hex() for member_id, each in found.items()}
            known = Divergence(place.kind, place.service_id, place.log_position, values, differing, has_majority)
            known.equal_position = min(self._equal_positions[each] for each in range(ctx.config.service_count))
            sources = self._count_sources(known.agreeing, known.equal_position, place.log_position)
            known.is_doubtful = has_majority and not ctx.is_majority(sources)
            self.divergences[key] = known
            self.divergence_count += 1
        known.restarted -= differing
        is_stopping = has_majority and ctx.config.member_id in differing and ctx.config.stops_when_diverged
        if is_stopping and ctx.recording_log.invalidate_snapshots(place.log_position, _NO_END):
            ctx.emit(fx.PersistRecordingLog())
        if is_stopping or not is_known:
            ctx.emit(fx.DigestsDiffered(known, is_stopping))

    def _is_undecided(self, count: int, found: dict[MemberId, _Found]) -> bool:
        """Whether voters that can be reached may yet make a majority of `count` equal digests.

        They get the heartbeat timeout, from the first time on that they are waited for.
        """
        ctx = self._ctx
        missing_count = sum(member.is_reachable and member.member_id not in found for member in ctx.voting_members)
        if not ctx.is_majority(count + missing_count):
            return False
        if self._undecided_since_ns is None:
            self._undecided_since_ns = ctx.now_ns
        return ctx.now_ns - self._undecided_since_ns < ctx.config.leader_heartbeat_timeout_ns
