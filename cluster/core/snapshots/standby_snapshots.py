"""Snapshots that standbys take, so that the other members need not stand still for one.

A standby is a learner: it has the log, runs the services and is counted nowhere. Five steps make its snapshot every
member's:

1. The leader appends a SNAPSHOT action whose flags say that it is for standbys. Every member notes where it delivers
   that entry: its *place*. Members go on at once; a standby stands still there, and takes a snapshot.
2. The standby offers what it has to every other member, once it is durable, and again now and then: an offer may get
   lost, and a member may be down.
3. A member takes an offer up when it has delivered the entry at that place itself. Until then the offer waits. So a
   snapshot that a member notes is never ahead of what is committed and delivered there.
4. The member notes the offer in its recording log, as Aeron does, with the standby's archive. A member that ends here
   goes on from that note.
5. It copies the recordings, reads them through, and adds them to its recording log as a snapshot of its own.

Whether members keep up is theirs to say: the leader waits for its own copy only, and not for ever.

Bounds: the newest offer of each standby, `_PLACE_LIMIT` places, one copy at a time. A copy that fails is tried again
after a pause that grows, from another standby first if there is one.

Source: aeron.md §6.2; Aeron `StandbySnapshotReplicator`, `ConsensusModuleAgent.onStandbySnapshot`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....service_api.types import CorrelationId, MemberId, RecordingId, TermId
from ....service_api.wire.log.messages import ClusterActionRequest
from ....service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID
from ...messages.backup import StandbySnapshot, StandbySnapshotRecording
from .. import effects as fx
from ..context import ConsensusContext
from ..events import LinkChanged, StandbySaid, StandbySnapshotFetched, StandbySnapshotFetchFailed
from ..log.recording_log import RecordedSnapshot
from ..vocabulary.back_off import back_off_ns
from ..vocabulary.configuration import MemberKind
from ..vocabulary.control_toggle import ActionStep
from ..vocabulary.phase import NEVER_NS
from .snapshot import SnapshotControl, SnapshotPlace

_PLACE_LIMIT: Final = 64
_OFFER_INTERVAL_NS: Final = 5_000_000_000
"""How often a standby says again which snapshot it has."""
_FIRST_PAUSE_NS: Final = 1_000_000_000
_PAUSE_LIMIT_NS: Final = 60_000_000_000
_AWAIT_LIMIT_NS: Final = 600_000_000_000
"""How long a leader waits for a standby's snapshot: a large state takes minutes."""


@dataclass(slots=True)
class _Offer:
    """The newest snapshot that one standby has."""

    snapshots: tuple[RecordedSnapshot, ...]
    """Of the standby's archive: from the highest service down, the module's last, which completes a set."""
    is_noted: bool = False
    """Whether the recording log has it."""
    failure_count: int = 0
    retry_ns: int = 0

    @property
    def place(self) -> SnapshotPlace:
        """Where it was taken."""
        return _place_of(self.snapshots[0])


@dataclass(slots=True)
class _Awaited:
    """Leader: the snapshot that somebody asked the standbys for."""

    log_position: int
    until_ns: int
    tell: Callable[[ActionStep, str], None]


class StandbySnapshots:
    """One member's part in snapshots that standbys take. It outlives terms."""

    def __init__(self, ctx: ConsensusContext, snapshots: SnapshotControl) -> None:
        self._ctx = ctx
        ctx.link_listeners.append(self.on_link)
        self._snapshots = snapshots
        self._places: dict[int, SnapshotPlace] = {}
        """Where this member has delivered actions for standbys, oldest first."""
        self._offers: dict[MemberId, _Offer] = {}
        """The newest of each standby, whether this member has a copy of it or not."""
        self._fetching: tuple[MemberId, SnapshotPlace] | None = None
        self._awaited: _Awaited | None = None
        self._next_offer_ns = NEVER_NS

    def __repr__(self) -> str:
        return f"<StandbySnapshots offers={self._offers} fetching={self._fetching} awaited={self._awaited}>"

    # --- every member, in log order

    def on_replay_action(self, event: ClusterActionRequest, end_position: int) -> bool:
        """An action for standbys is delivered. True if this is one, and delivery has to stand still."""
        if self._ctx.config.service_count == 0:
            return self._snapshots.on_replay_action(
                event, end_position
            )  # a witness, which has next to nothing to write
        self._places[end_position] = SnapshotPlace(end_position, event.leadership_term_id, event.timestamp)
        if len(self._places) > _PLACE_LIMIT:
            del self._places[next(iter(self._places))]
        if self.is_standby:
            return self._snapshots.on_replay_action(event, end_position)
        self._look()
        return False

    # --- the standby

    @property
    def is_standby(self) -> bool:
        """Whether this member is a standby, by its own log."""
        return self._ctx.roster.is_standby(self._ctx.config.member_id)

    def start(self) -> None:
        """Go on where the process before ended: offer the newest snapshot, copy what was noted and is not here."""
        self._next_offer_ns = self._ctx.now_ns
        for endpoint, entries in self._ctx.recording_log.latest_standby_snapshots(
            self._ctx.config.service_count
        ).items():
            member_id = self._find_standby_at(endpoint)
            if member_id is not None and self._is_news(entries[0].log_position):
                snapshots = tuple(map(RecordedSnapshot.of, reversed(entries)))
                self._offers[member_id] = offer = _Offer(snapshots, is_noted=True)
                self._places[offer.place.log_position] = offer.place  # it was delivered before it was noted

    def on_own_finished(self, position: int, failure: str | None) -> None:
        """A snapshot of this member is recorded, or cannot be: a standby says so."""
        if not self.is_standby:
            return
        if failure is None:
            self._say_all()
        elif position in self._places:
            for member in self._ctx.others:
                self._say(member.member_id, position, ())

    def on_link(self, event: LinkChanged) -> None:
        """A member can be reached: a standby tells it what it has."""
        if event.is_up and self.is_standby:
            self._say(event.member_id, *self._newest())

    def _say_all(self) -> None:
        self._next_offer_ns = self._ctx.now_ns + _OFFER_INTERVAL_NS
        position, recordings = self._newest()
        for member in self._ctx.others:
            self._say(member.member_id, position, recordings)

    def _newest(self) -> tuple[int, tuple[StandbySnapshotRecording, ...]]:
        ctx = self._ctx
        entries = self._snapshots.newest
        if not entries or entries[0].log_position == 0:
            return 0, ()
        archive = ctx.roster.address_of(ctx.config.member_id).archive
        return entries[0].log_position, tuple(
            StandbySnapshotRecording(
                recording_id=RecordingId(entry.recording_id),
                leadership_term_id=TermId(entry.leadership_term_id),
                term_base_log_position=entry.term_base_log_position,
                log_position=entry.log_position,
                timestamp=entry.timestamp,
                service_id=entry.service_id,
                archive_endpoint=archive,
            )
            for entry in entries
        )

    def _say(self, member_id: MemberId, position: int, recordings: tuple[StandbySnapshotRecording, ...]) -> None:
        """Offer a snapshot; one without recordings says that none was taken at a position that was asked for."""
        if position and self._ctx.members[member_id].is_reachable:
            offer = StandbySnapshot(
                correlation_id=CorrelationId(position), version=0, response_stream_id=0, snapshots=recordings
            )
            self._ctx.emit(fx.SendToMember(member_id, offer))

    # --- the other members

    def on_said(self, said: StandbySaid) -> None:
        """A standby has a snapshot, or could not take one."""
        position = said.message.correlation_id
        if not said.message.snapshots:
            if self._awaited is not None and position == self._awaited.log_position:
                self._end_wait(ActionStep.FAILED, f"standby {said.member_id} took no snapshot: see its log")
            return
        if self.is_standby or self._ctx.config.service_count == 0:
            return
        offer = _read_offer(said.message, service_count=self._ctx.config.service_count)
        known = self._offers.get(said.member_id)
        if offer is None:
            return
        if known is None or offer.place.log_position > known.place.log_position:
            self._offers[said.member_id] = offer
        self._look()

    def find_offered(self) -> dict[MemberId, SnapshotPlace]:
        """Find the newest snapshot that each standby has offered this member, while it is one."""
        return {one: self._offers[one].place for one in self.find_all() if one in self._offers}

    @property
    def copied_from(self) -> MemberId | None:
        """The standby whose snapshot is being copied."""
        return None if self._fetching is None else self._fetching[0]

    def _is_news(self, position: int) -> bool:
        newest_position = self._snapshots.newest_position
        return newest_position is None or newest_position < position

    def _look(self) -> None:
        """Take up the newest offer whose place was delivered here, if nothing is being copied."""
        if self._fetching is not None:
            return
        ctx = self._ctx
        ready = [
            (-offer.place.log_position, offer.failure_count, member_id)
            for member_id, offer in self._offers.items()
            if ctx.now_ns >= offer.retry_ns
            and self._is_news(offer.place.log_position)
            and self._may_note(offer)
            and member_id in ctx.roster.addresses
        ]
        if not ready:
            return
        member_id = min(ready)[-1]
        offer = self._offers[member_id]
        self._note(member_id, offer)
        self._fetching = member_id, offer.place
        ctx.emit(fx.FetchStandbySnapshot(member_id, offer.snapshots))

    def _may_note(self, offer: _Offer) -> bool:
        """Whether this member has delivered the entry at which the snapshot was taken, and had no reason to skip it."""
        ctx, place = self._ctx, offer.place
        is_delivered = place.log_position <= ctx.commit_position and self._places.get(place.log_position) == place
        term = ctx.recording_log.term_entry(place.leadership_term_id)
        is_of_term = term is not None and all(
            one.term_base_log_position == term.term_base_log_position for one in offer.snapshots
        )
        return is_delivered and is_of_term and not ctx.is_before_skip(place.log_position)

    def _note(self, member_id: MemberId, offer: _Offer) -> None:
        """Note in the recording log which standby has a snapshot."""
        ctx = self._ctx
        if offer.is_noted:
            return
        offer.is_noted = True
        archive_endpoint = ctx.roster.address_of(member_id).archive
        for snapshot in offer.snapshots:
            ctx.recording_log.append_standby_snapshot(snapshot, archive_endpoint=archive_endpoint)
        ctx.emit(fx.PersistRecordingLog())

    def on_fetched(self, event: StandbySnapshotFetched) -> None:
        """The copy is here, durably, and was read through: it counts as this member's own."""
        _, place = self._fetching or (None, None)
        self._fetching = None
        is_usable = not self._ctx.is_before_skip(event.log_position) and self._is_news(event.log_position)
        if place is None or not is_usable or not self._snapshots.record(place, event):
            self._ctx.emit(fx.PurgeArchive((event.module_recording_id, *event.service_recording_ids), 0))
        awaited = self._awaited
        if awaited is not None and not self._is_news(awaited.log_position):
            self._end_wait(ActionStep.DONE, f"taken by a standby, and copied, at {self._snapshots.newest_position}")
        self._look()

    def on_fetch_failed(self, event: StandbySnapshotFetchFailed) -> None:
        """Try again after a pause that grows, or take what another standby has."""
        member_id, place = self._fetching or (None, None)
        self._fetching = None
        offer = None if member_id is None else self._offers.get(member_id)
        if offer is not None and offer.place == place:
            pause_ns = back_off_ns(offer.failure_count, first_ns=_FIRST_PAUSE_NS, limit_ns=_PAUSE_LIMIT_NS)
            offer.failure_count += 1
            offer.retry_ns = self._ctx.now_ns + pause_ns
        self._look()

    def _find_standby_at(self, archive_endpoint: str) -> MemberId | None:
        addresses = self._ctx.roster.addresses.items()
        return next((member_id for member_id, one in addresses if one.archive == archive_endpoint), None)

    # --- the leader

    def find_all(self) -> list[MemberId]:
        """Find the standbys of the cluster, by this member's log."""
        members = self._ctx.roster.current.members
        return [one.member_id for one in members if one.kind is MemberKind.STANDBY]

    def find_present(self) -> list[MemberId]:
        """Find the standbys that take part in this leader's term."""
        return [member_id for member_id in self.find_all() if self._is_present(member_id)]

    def find_refusal(self) -> str | None:
        """Say why standbys are not asked for a snapshot, as things are; None if they may be."""
        standby_ids = self.find_all()
        if not standby_ids:
            return (
                "this cluster has no standby: add one with `trimaran member add --standby`, or have every member take "
                "a snapshot with `trimaran snapshot take`"
            )
        if not self.find_present():
            return (
                f"no standby takes part in the term: members {standby_ids} are down or behind: start them, or have "
                "every member take a snapshot with `trimaran snapshot take`"
            )
        if self._awaited is not None:
            return f"a standby takes a snapshot already, at log_position={self._awaited.log_position}: ask again"
        return None

    @property
    def is_awaiting(self) -> bool:
        """Whether this leader waits for a snapshot of a standby."""
        return self._awaited is not None

    def wait_for(self, log_position: int, tell: Callable[[ActionStep, str], None]) -> None:
        """Leader: say how it ends once this member has a copy of the snapshot that is asked for at a position."""
        self._awaited = _Awaited(log_position, self._ctx.now_ns + _AWAIT_LIMIT_NS, tell)

    def roll_back(self) -> None:
        """This member leads no more; the standbys go on."""
        if self._awaited is not None:
            self._end_wait(ActionStep.UNKNOWN, "leadership changed: the standby may or may not take it")

    def poll(self) -> None:
        """Do what time alone has made due."""
        ctx = self._ctx
        if ctx.now_ns >= self._next_offer_ns:
            self._next_offer_ns = NEVER_NS
            if self.is_standby:
                self._say_all()
        if self._awaited is not None and (ctx.now_ns >= self._awaited.until_ns or not self.find_present()):
            why = "in time" if ctx.now_ns >= self._awaited.until_ns else "before it left the term"
            self._end_wait(ActionStep.FAILED, f"no standby has shown a snapshot {why}")
        self._look()

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""
        deadline_ns = self._next_offer_ns
        if self._awaited is not None:
            deadline_ns = min(deadline_ns, self._ctx.now_ns + self._ctx.config.leader_heartbeat_timeout_ns)
        if self._fetching is None:
            retries = [offer.retry_ns for offer in self._offers.values() if offer.retry_ns > self._ctx.now_ns]
            deadline_ns = min(deadline_ns, *retries, NEVER_NS)
        return deadline_ns

    def _end_wait(self, step: ActionStep, detail: str) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.tell(step, detail)

    def _is_present(self, member_id: MemberId) -> bool:
        member = self._ctx.members.get(member_id)
        return member is not None and not member.is_catching_up and self._ctx.takes_part(member)


def _read_offer(message: StandbySnapshot, *, service_count: int) -> _Offer | None:
    """Read an offer; None if it is no complete snapshot of these services, all of it at one place."""
    found = [RecordedSnapshot.of(one) for one in message.snapshots]
    expected_ids = list(range(CONSENSUS_MODULE_SERVICE_ID, service_count))
    if sorted(one.service_id for one in found) != expected_ids or len({_place_of(one) for one in found}) != 1:
        return None
    offer = _Offer(tuple(sorted(found, key=lambda one: -one.service_id)))
    return offer if offer.place.log_position > 0 else None


def _place_of(snapshot: RecordedSnapshot) -> SnapshotPlace:
    return SnapshotPlace(snapshot.log_position, snapshot.leadership_term_id, snapshot.timestamp)
