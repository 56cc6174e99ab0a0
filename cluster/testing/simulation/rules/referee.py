"""Checks the rules that must hold in every run, while it runs.

The referee believes no member. It reads disks, network and services itself; of a node's own state it takes only what
the node claims: that it leads a term, that it calls a position committed.

Source: Raft paper figure 3; DESIGN §5; aeron.md §10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from .....archive.format.segment_names import segment_base_positions
from .....service_api import ClusteredService, Role
from .....service_api.groups.group import ONLY_GROUP
from .....service_api.types import MemberId, TermId
from .....service_api.wire.message import Message, decode_message, registry_of
from ....messages.consensus import AppendPosition, RequestVote, Vote
from ..cluster import Member, SimulatedCluster
from ..kept_log import complete_snapshot_positions, read_kept_log
from ..member_disks import MemberDisks, durable_candidate_term, durable_last_term
from ..services.messenger import Messenger
from ..services.relay import Relay
from ..trace import Trace
from ..world.expect import (
    NO_CHECKS,
    STRICT_RULE,
    FoundInside,
    RuleBroken,
    ServiceChecks,
    expect,
)
from ..world.network import SimulatedTransport
from ..world.object_store import SimulatedStore
from .action_rules import ActionRules
from .agreement_rules import expect_agreement, expect_snapshots_committed
from .clock_rules import ClockRules
from .group_rules import GroupRules, KeyOf, no_key
from .membership_rules import MembershipRules
from .role_rules import expect_nothing_of_clients, overdue_timers
from .service_rules import Counts, ServiceRules
from .store_rules import StoreRules

_WATCHED: Final = registry_of(RequestVote, Vote, AppendPosition)
_WATCHED_TEMPLATE_IDS: Final = {message.TEMPLATE_ID for message in (RequestVote, Vote, AppendPosition)}
_FRAME_HEADER_BYTES: Final = 32
_TEMPLATE_ID_OFFSET: Final = _FRAME_HEADER_BYTES + 2


@dataclass(slots=True)
class _View:
    """What one process of a member has claimed so far."""

    commit_position: int = 0
    reported_position: int = 0
    append_position: int = 0
    candidate_term_id: int = -1
    marked_term_id: int = -1
    """The newest term in which it has reported a position."""
    is_leader: bool = False
    log_start_position: int = 0
    entry_count: int = 0
    """Of its recording log, ever."""


class Referee:
    """Watches one cluster. Every method may raise `RuleBroken`."""

    def __init__(
        self,
        make_service: Callable[[], ClusteredService],
        *,
        make_relay: Callable[[], Relay | Messenger] = Relay,
        make_further: Sequence[Callable[[], ClusteredService]] = (),
        checks: ServiceChecks = NO_CHECKS,
        key_of: KeyOf = no_key,
    ) -> None:
        self._checks, self._key_of = checks, key_of
        self.group_rules = GroupRules(ONLY_GROUP)
        self.committed = bytearray()
        """The log as far as any member has called it committed."""
        self.counts = Counts()
        self.leaders: dict[int, MemberId] = {}  # by term
        self._witness_terms: set[int] = set()
        self.damaged: dict[MemberId, None] = {}
        """Members whose disk was damaged on purpose: what they have counts for nothing, what they do still does."""
        self.emptied: dict[MemberId, None] = {}
        """Those of them whose disk was replaced by an empty one: no bit of it lies, they lead as all others."""
        self.actions, self.stored = ActionRules(expect), StoreRules(self.committed)
        self.disks = MemberDisks()
        self.membership = MembershipRules(self.disks)
        self._cluster: SimulatedCluster | None = None
        self._trace: Trace | None = None
        self._views: dict[MemberId, _View] = {}
        self._held: dict[MemberId, tuple[object, int]] = {}
        """How much of the committed log each member was seen to have, and on which disk."""
        self._votes: dict[tuple[MemberId, int], tuple[MemberId, object]] = {}
        """For whom each member has voted in a term, and on which disk it had noted that."""
        self._committed_in: dict[int, int] = {}
        """How far the log was committed by members of each term that committed any of it first."""
        self._reports: dict[MemberId, tuple[int, int]] = {}
        """The last position that each member has reported, and in which term."""
        self._addresses: dict[str, Member] = {}
        self._clocks = ClockRules()
        self.inside = FoundInside()
        self.services = ServiceRules(self, make_service, make_relay, make_further, checks)

    def __repr__(self) -> str:
        return f"<Referee committed={len(self.committed)} delivered={len(self.services.delivered)}>"

    # --- joining a cluster

    def watch(self, cluster: SimulatedCluster, trace: Trace) -> None:
        """Look at everything that happens in this cluster."""
        self._cluster = cluster
        self._trace = trace
        self.group_rules = GroupRules(cluster.group, self._key_of)
        self.membership.start(cluster.founding)
        for member in cluster.members.values():
            self._on_member(member)
        cluster.on_member = self._on_member
        cluster.on_node = self._on_node
        cluster.network.segment_watchers.append(self._on_segment)
        cluster.store.watchers.append(partial(self._on_object, cluster.store))

    def _on_member(self, member: Member) -> None:
        self._addresses[member.machine.address] = member
        member.machine.on_remove = partial(self._on_remove, member)

    def _on_node(self, member: Member) -> None:
        loop = member.machine.loop
        assert loop is not None
        assert member.node is not None
        append_position = member.node.module.ctx.append_position
        with self.inside.keeping():
            self._expect_kept(member, append_position)
        view = self._views[member.member_id] = _View(
            append_position=append_position, log_start_position=member.node.log_start_position
        )
        if member.member_id not in self.damaged:
            view.candidate_term_id = durable_candidate_term(member) or -1  # 0 is no term to go back from
        if self._checks.equip is not None:
            self._checks.equip(member.node.service_agent, partial(self._on_left_log, member))
        loop.observer = lambda: self.look(member, view)

    def _on_left_log(self, member: Member, place: str) -> None:
        """Runs inside a service's callback."""
        position = 0 if member.node is None else member.node.service_agent.log_position
        self.inside.keep(RuleBroken(STRICT_RULE, member=member.member_id, position=position, place=place))

    def _on_object(self, store: SimulatedStore, url: str) -> None:
        with self.inside.keeping():
            self.stored.on_object(url, store.objects)

    # --- looking

    def look(self, member: Member, view: _View) -> None:
        """Look at a member after each thing that it did; cheap when nothing has changed."""
        self.inside.tell()
        node = member.node
        if node is None:
            return
        self._clocks.look(member)
        module, append_position = node.module, node.module.ctx.append_position
        if append_position < view.append_position:
            self._expect_kept(member, append_position)
        view.append_position = append_position
        if node.log_start_position != view.log_start_position:
            view.log_start_position = node.log_start_position
            # A member that stops still removes what it may, but is told no more of what it records: its disk counts.
            self._expect_kept(member, max(append_position, self._held_position(member)))
        candidate_term_id = module.ctx.candidate_term_id
        if candidate_term_id != view.candidate_term_id:
            expect(
                candidate_term_id > view.candidate_term_id,
                "the term of a member never goes back",
                member=member.member_id,
                was=view.candidate_term_id,
                is_=candidate_term_id,
            )
            view.candidate_term_id = candidate_term_id
        commit_position = module.ctx.commit_position
        if commit_position != view.commit_position:
            self._on_commit(member, view.commit_position, commit_position)
            view.commit_position = commit_position
        is_leader = module.leader is not None
        if is_leader != view.is_leader:
            view.is_leader = is_leader
            if is_leader:
                self._on_leader(member)
        self.actions.look(member)
        self.membership.look(member)
        self.group_rules.look(member)
        expect_agreement(member)
        entry_count = module.ctx.recording_log.next_entry_index
        if entry_count != view.entry_count:
            view.entry_count = entry_count
            expect_snapshots_committed(member)
        assert self._trace is not None
        self._trace.on_member(member)

    def _on_commit(self, member: Member, since: int, position: int) -> None:
        expect(position > since, "a commit position never goes back", member=member.member_id, was=since, is_=position)
        common = min(position, len(self.committed))
        since = max(since, self.disks.kept_log(member).start_position)
        if since < common and member.member_id not in self.damaged:
            expect(
                self.disks.durable_log(member, since, common) == self.committed[since:common],
                "committed bytes are the same everywhere, and durable where they are called committed",
                member=member.member_id,
                since=since,
                position=position,
            )
        if position > common:
            self._on_first_commit(member, common, position)
        self._hold(member, position)
        if member.member_id not in self.damaged:  # which searches its log for members as far as it can read it
            self.membership.expect_known(member, position)

    def _hold(self, member: Member, position: int) -> None:
        self._held[member.member_id] = member.machine.disk, max(position, self._held_position(member))

    def _held_position(self, member: Member) -> int:
        """How far the disk that this member has now held what is committed, when that was looked at."""
        disk, position = self._held.get(member.member_id, (None, 0))
        return position if disk is member.machine.disk else 0

    def _expect_kept(self, member: Member, append_position: int) -> None:
        """A member starts, or has cut its log at either end: what is committed and was on this disk is still there.

        Or a complete snapshot, from which what is still there goes on.
        """
        if member.member_id in self.damaged and self.disks.has_set_aside(member):
            self._held.pop(member.member_id, None)  # it comes back without a vote; see `repair.coming_back`
        held = self._held_position(member)
        expect(
            append_position >= held,
            "what is committed and was held stays on that disk",
            member=member.member_id,
            held=held,
            append_position=append_position,
        )
        start_position = self.disks.kept_log(member).start_position
        if start_position == 0 or member.member_id in self.damaged:
            return
        snapshot_positions = complete_snapshot_positions(member.machine.disk)
        expect(
            any(start_position <= at <= append_position for at in snapshot_positions),
            "where the log does not begin at 0, a complete snapshot stands in for what is missing",
            member=member.member_id,
            start_position=start_position,
            append_position=append_position,
            snapshot_positions=snapshot_positions,
        )
        end = min(max(held, *snapshot_positions), append_position, len(self.committed))
        expect(
            self.disks.durable_log(member, start_position, end) == self.committed[start_position:end],
            "what is committed and was held stays on that disk",
            member=member.member_id,
            start_position=start_position,
            append_position=append_position,
        )

    def _on_remove(self, member: Member, path: object) -> None:
        """A file is about to go: what a log needs may not, as the catalog has it durably."""
        kept = read_kept_log(member.machine.disk)
        if kept is None or not isinstance(path, Path) or member.member_id in self.damaged:
            return
        base_position = next(iter(segment_base_positions([path.name], kept.recording_id)), None)
        if base_position is None:
            return
        if base_position < kept.start_position:
            with self.inside.keeping():
                self.stored.expect_kept(member, base_position, path)
            return
        if base_position < (held := self._held_position(member)):
            self.inside.keep(
                RuleBroken(
                    "a segment goes when the catalog knows, durably, that the log begins after it",
                    member=member.member_id,
                    base_position=base_position,
                    kept=kept,
                    held=held,
                )
            )

    def _on_first_commit(self, member: Member, since: int, position: int) -> None:
        """Nobody has called this committed before: a majority must have it on disk."""
        data = self.disks.durable_log(member, since, position)
        expect(
            len(data) == position - since,
            "what is committed is durable where it is called committed",
            member=member.member_id,
            position=position,
        )
        assert self._cluster is not None
        members = self._cluster.members.values()
        holders = [other for other in members if self.disks.durable_log(other, since, position) == data]
        assert member.node is not None
        report = member.node.module.ctx.leadership_term_id, position
        # Who lost its disk between its report and the commit held it: reports are held against the disk as they leave.
        lost = [other for other in members if other not in holders and self._reports.get(other.member_id, ()) >= report]
        lost = [other for other in lost if other.member_id in self.damaged]
        self.membership.expect_majority(member, since, data, [other.member_id for other in holders + lost])
        for holder in holders:
            # Not one on whose disk sectors of an unfinished batch survived after a hole.
            disk, held_position = self._held.get(holder.member_id, (holder.machine.disk, 0))
            if disk is holder.machine.disk and held_position >= since:
                self._hold(holder, position)
        expect_nothing_of_clients(data, since, self._witness_terms)
        self.membership.on_committed(data, since)
        self.committed += data
        self._committed_in[report[0]] = position
        self.counts.committed_bytes = len(self.committed)

    def _on_leader(self, member: Member) -> None:
        assert member.node is not None
        ctx = member.node.module.ctx
        term_id = ctx.leadership_term_id
        self.counts.elections += 1
        leader_id = self.leaders.setdefault(term_id, member.member_id)
        expect(
            leader_id == member.member_id, "one leader per term", term=term_id, leaders=(leader_id, member.member_id)
        )
        if member.config.is_witness:
            self._witness_terms.add(int(term_id))
        may_lie = member.member_id in self.damaged and member.member_id not in self.emptied
        if not may_lie:
            self.membership.expect_elected(member, self._held_position(member), self._voted_for)
        # A leader may come late: what a higher term has committed meanwhile is not its own.
        required = max((end for term, end in self._committed_in.items() if term < term_id), default=0)
        since = min(required, self.disks.kept_log(member).start_position)
        expect(
            may_lie or self.disks.durable_log(member, since, required) == self.committed[since:required],
            "a leader has everything that was ever committed",
            member=member.member_id,
            term=term_id,
            committed=required,
            append_position=ctx.append_position,
        )

    def _voted_for(self, member_id: MemberId, term_id: TermId) -> MemberId | None:
        voted = self._votes.get((member_id, term_id))
        return None if voted is None else voted[0]

    def _on_segment(self, transport: SimulatedTransport, data: bytes | bytearray) -> None:
        """Look at what members say to each other: votes and positions must be on their disks by now."""
        if len(data) < _TEMPLATE_ID_OFFSET + 2 or transport.peer_address[0] not in self._addresses:
            return
        if int.from_bytes(data[_TEMPLATE_ID_OFFSET : _TEMPLATE_ID_OFFSET + 2], "little") not in _WATCHED_TEMPLATE_IDS:
            return
        sender, receiver = self._addresses.get(transport.address[0]), self._addresses[transport.peer_address[0]]
        if sender is None or transport.peer_address[1] != receiver.consensus_port:
            return
        message = decode_message(bytes(data), _FRAME_HEADER_BYTES, registry=_WATCHED)
        with self.inside.keeping():
            self._on_said(sender, message)

    def _on_said(self, member: Member, message: Message) -> None:
        match message:
            case RequestVote():
                if member.member_id not in self.damaged:
                    self.membership.expect_may_stand(member, self._held_position(member))
                self._on_vote(member, message.candidate_term_id, message.candidate_member_id)
            case Vote() if message.vote:
                self._on_vote(member, message.candidate_term_id, message.candidate_member_id)
            case AppendPosition():
                self._on_reported(member, message.leadership_term_id, message.log_position)

    def _on_reported(self, member: Member, term_id: int, position: int) -> None:
        """A member says that it has recorded its log up to here, and is in this term."""
        view = self._views[member.member_id]
        if term_id > view.marked_term_id:
            self._expect_marked(member, term_id)
            view.marked_term_id = term_id
        self._reports[member.member_id] = term_id, position
        begin, view.reported_position = min(view.reported_position, position), position
        begin = max(begin, self.disks.kept_log(member).start_position)
        expect(
            self.disks.is_durable(member, begin, position),
            "a position is durable before it is reported",
            member=member.member_id,
            since=begin,
            position=position,
        )

    def _expect_marked(self, member: Member, term_id: int) -> None:
        """The first report in a term counts as a mark of it: no older log may win any more."""
        last = durable_last_term(member)
        expect(
            last is not None and last.leadership_term_id >= term_id,
            "a term is marked durably before a position in it is reported",
            member=member.member_id,
            term=term_id,
            marked=last,
        )

    def _on_vote(self, member: Member, term_id: int, candidate_id: MemberId) -> None:
        self.counts.votes += 1
        durable_term_id = durable_candidate_term(member)
        expect(
            durable_term_id is not None and durable_term_id >= term_id,
            "a vote is durable before it is sent",
            member=member.member_id,
            term=term_id,
            durable_term=durable_term_id,
        )
        disk = member.machine.disk
        voted, noted_on = self._votes.setdefault((member.member_id, term_id), (candidate_id, disk))
        if voted == member.member_id and noted_on is not disk:
            # It stood, and then lost its disk: with that candidacy, which nobody counts votes for any more, its own
            # vote is gone. A vote for another still counts over there, so it must not give that away again.
            voted, _ = self._votes[member.member_id, term_id] = candidate_id, disk
        expect(
            voted == candidate_id,
            "one vote per term",
            member=member.member_id,
            term=term_id,
            votes=(voted, candidate_id),
        )

    def is_committing(self, member: Member, position: int) -> bool:
        """Whether this very callback is the first to hear of the commit: then it is checked right here."""
        if member.node is None:
            return False
        commit_position = member.node.module.ctx.commit_position
        view = self._views[member.member_id]
        if position > commit_position:
            return False
        self._on_commit(member, view.commit_position, commit_position)
        view.commit_position = commit_position
        return True

    # --- the end of a run

    def expect_equal(self, members: list[Member]) -> None:
        """Check that these members have the same log and have processed all of it, and what is in it."""
        self.actions.expect_held(self.committed)
        for member in members:
            assert member.node is not None
            ctx = member.node.module.ctx
            expect(
                ctx.commit_position == len(self.committed) == ctx.append_position,
                "members at rest have committed everything",
                member=member.member_id,
                commit_position=ctx.commit_position,
                append_position=ctx.append_position,
                committed=len(self.committed),
            )
            expect(
                self.has_committed(member),
                "members at rest have the same log",
                member=member.member_id,
            )
            service = self.services.first.get(member.member_id)  # a witness has none
            faults = getattr(service, "faults", [])
            expect(not faults, "a service is given nothing impossible", member=member.member_id, faults=faults[:3])
            overdue = overdue_timers(member) if ctx.role is Role.LEADER else []
            expect(not overdue, "a timer that is due fires", member=member.member_id, overdue=overdue[:3])

    def has_committed(self, member: Member) -> bool:
        """Whether a member has, durably, everything that was ever committed, or a snapshot and all that follows."""
        since = self.disks.kept_log(member).start_position
        if since and not any(at >= since for at in complete_snapshot_positions(member.machine.disk)):
            return False
        return self.disks.durable_log(member, since, len(self.committed)) == self.committed[since:]

    def is_sound(self, member: Member) -> bool:
        """Whether a member that lost its disk has everything again, and may vote."""
        return self.may_vote(member) and self.has_committed(member)

    def may_vote(self, member: Member) -> bool:
        """Whether a member is a voter: a candidate term is on its disk."""
        term_id = durable_candidate_term(member)
        return term_id is not None and term_id >= 0

    def has_joined(self, member: Member) -> bool:
        """Whether a member has ever been in a term, as its disk has it: it is not taken for a new cluster's."""
        return durable_last_term(member) is not None
