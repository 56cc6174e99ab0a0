"""One consensus module on its own: the test is its agent, its peers and its clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tests.unit.cluster.core.node import MS, config
from tests.unit.cluster.core.rosters import roster
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.messages.backup import StandbySnapshot
from trimaran.cluster.messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CommitPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    TerminationPosition,
    Vote,
)
from trimaran.service_api.types import NULL_POSITION, NULL_VALUE, MemberId, RecordingId, TermId
from trimaran.service_api.wire.message import Message

E = TypeVar("E")
S = ElectionState


def said_by(member_id: MemberId, message: Message) -> Message | ev.LeaderSaid | ev.StandbySaid:
    """What a link hands over: of a message that names no sender, with whose link it is."""
    if isinstance(message, StopCatchup | TerminationPosition):
        return ev.LeaderSaid(member_id, message)
    return ev.StandbySaid(member_id, message) if isinstance(message, StandbySnapshot) else message


class Solo:
    """Member 0 of a cluster, with a log that ended as `terms` say: (leadership_term_id, base, end) in order.

    Left out, the candidate term is the last one's. `chance` is what every random number will be. Effects pile up in
    `effects` until they are taken.
    """

    def __init__(
        self,
        *,
        member_count: int = 3,
        terms: Sequence[tuple[int, int, int]] = (),
        candidate_term_id: int | None = None,
        chance: float = 0.5,
        is_started: bool = True,
        **settings: object,
    ) -> None:
        recording_log = RecordingLog()
        for term_id, base, _ in terms:
            recording_log.append_term(
                recording_id=0, leadership_term_id=term_id, term_base_log_position=base, timestamp=0
            )
        recording_log.take_writes()
        position = terms[-1][2] if terms else 0
        last_term_id = terms[-1][0] if terms else NULL_VALUE
        self.ctx = ConsensusContext(
            config=config(0, member_count, **settings),
            random=lambda: chance,
            recording_log=recording_log,
            log_recording_id=RecordingId(0),
            log_buffer=LogBuffer(position=position, retained_bytes=1 << 16),
            roster=roster(0, member_count),
            append_position=position,
            log_leadership_term_id=TermId(last_term_id),
            leadership_term_id=TermId(last_term_id),
            candidate_term_id=TermId(last_term_id if candidate_term_id is None else candidate_term_id),
        )
        self.now_ns = 1_000 * MS
        self.skew_ms = 0
        self.effects: list[fx.Effect] = []
        self.activity_ns: dict[int, int] = {}
        self.module = ConsensusModule(self.ctx, last_activity_ns=self.activity_ns.get)
        if is_started:
            self.start()

    def start(self) -> None:
        """Start, with links to every other member."""
        self.module.start(now_ns=self.now_ns, timestamp=self.timestamp)
        self.take()
        for member in self.ctx.others:
            self.feed(ev.LinkChanged(member.member_id, is_up=True))

    @property
    def timestamp(self) -> int:
        """The clock in ms."""
        return self.now_ns // MS + self.skew_ms

    @property
    def state(self) -> ElectionState:
        """The state of the election; CLOSED between elections."""
        return S.CLOSED if self.module.election is None else self.module.election.state

    def is_in(self, *states: ElectionState) -> bool:
        """Whether the election is in one of these states."""
        return self.state in states

    def feed(self, *events: object) -> list[fx.Effect]:
        """Feed events; give the effects of these alone."""
        taken: list[fx.Effect] = []
        for event in events:
            self.module.step(event, now_ns=self.now_ns, timestamp=self.timestamp)
            taken += self.take()
        return taken

    def take(self) -> list[fx.Effect]:
        """Take the effects there are, and remember them."""
        taken = self.module.take_effects()
        self.effects += taken
        return taken

    def wait(self, duration_ns: int) -> list[fx.Effect]:
        """Let time pass, polling at every deadline on the way."""
        end_ns, taken = self.now_ns + duration_ns, []
        while (deadline_ns := self.module.next_deadline_ns()) <= end_ns:
            self.now_ns = max(deadline_ns, self.now_ns + 1)
            self.module.poll(now_ns=self.now_ns, timestamp=self.timestamp)
            taken += self.take()
        self.now_ns = end_ns
        return taken

    # --- what others say

    def canvass(
        self, member_id: int, log_term_id: int, position: int, *, term_id: int | None = None
    ) -> CanvassPosition:
        """Another member's canvass."""
        return CanvassPosition(
            log_leadership_term_id=TermId(log_term_id),
            log_position=position,
            leadership_term_id=TermId(log_term_id if term_id is None else term_id),
            follower_member_id=MemberId(member_id),
            protocol_version=65536,
        )

    def request_vote(self, member_id: int, term_id: int, log_term_id: int, position: int) -> RequestVote:
        """Another member asks for a vote."""
        return RequestVote(
            log_leadership_term_id=TermId(log_term_id),
            log_position=position,
            candidate_term_id=TermId(term_id),
            candidate_member_id=MemberId(member_id),
            protocol_version=65536,
        )

    def vote(self, member_id: int, *, vote: bool, term_id: int | None = None) -> Vote:
        """Another member's vote for this one."""
        return Vote(
            candidate_term_id=TermId(self.ctx.candidate_term_id if term_id is None else term_id),
            log_leadership_term_id=TermId(self.ctx.log_leadership_term_id),
            log_position=self.ctx.append_position,
            candidate_member_id=MemberId(0),
            follower_member_id=MemberId(member_id),
            vote=vote,
        )

    def new_term(
        self,
        member_id: int,
        term_id: int,
        base: int,
        *,
        log_position: int | None = None,
        after: tuple[int, int, int] | None = None,
        commit: int = 0,
        echo: int | None = None,
        session: int = 77,
    ) -> NewLeadershipTerm:
        """Another member announces that it leads; `after` is (term, base, end) of the term after this member's last.

        Left out, it is the announced term itself, or nothing if this member has that one.
        """
        log_term_id = self.ctx.log_leadership_term_id if echo is None else echo
        if after is None:
            is_new = log_term_id < term_id
            after = (term_id, base, NULL_POSITION) if is_new else (NULL_VALUE, NULL_POSITION, NULL_POSITION)
        return NewLeadershipTerm(
            log_leadership_term_id=TermId(log_term_id),
            next_leadership_term_id=TermId(after[0]),
            next_term_base_log_position=after[1],
            next_log_position=after[2],
            leadership_term_id=TermId(term_id),
            term_base_log_position=base,
            log_position=base if log_position is None else log_position,
            leader_recording_id=RecordingId(0),
            timestamp=0,
            leader_member_id=MemberId(member_id),
            log_session_id=session,
            app_version=1,
            is_startup=False,
            commit_position=commit,
        )

    def append_position(
        self, member_id: int, position: int, *, term_id: int | None = None, flags: int = 0
    ) -> AppendPosition:
        """Another member reports what it has recorded."""
        return AppendPosition(
            leadership_term_id=TermId(self.ctx.leadership_term_id if term_id is None else term_id),
            log_position=position,
            follower_member_id=MemberId(member_id),
            flags=flags,
        )

    def commit(self, member_id: int, position: int, *, term_id: int | None = None) -> CommitPosition:
        """Another member, as leader, says how far the log is committed."""
        return CommitPosition(
            leadership_term_id=TermId(self.ctx.leadership_term_id if term_id is None else term_id),
            log_position=position,
            leader_member_id=MemberId(member_id),
        )

    # --- the usual ways

    def reach_nominate(self) -> Solo:
        """Both others report no newer a log."""
        log_term_id, position = self.ctx.log_leadership_term_id, self.ctx.append_position
        self.feed(self.canvass(1, log_term_id, position), self.canvass(2, log_term_id, position))
        assert self.is_in(S.NOMINATE)
        return self

    def reach_candidate_ballot(self) -> Solo:
        """The nomination deadline passes."""
        self.reach_nominate()
        self.wait(self.ctx.config.election_timeout_ns)
        assert self.is_in(S.CANDIDATE_BALLOT)
        return self

    def reach_leader_log_replication(self) -> Solo:
        """Both others vote yes."""
        self.reach_candidate_ballot()
        self.feed(self.vote(1, vote=True), self.vote(2, vote=True))
        assert self.is_in(S.LEADER_LOG_REPLICATION)
        return self

    def lead(self) -> Solo:
        """Win, find a quorum in the term, replay, and lead; nothing is recorded of the term yet."""
        self.reach_leader_log_replication()
        self.feed(self.append_position(1, self.ctx.append_position))
        self.feed(ev.ReplayDone(self.ctx.append_position, 0))
        assert self.module.leader is not None
        return self

    def follow(self, leader_id: int = 1, term_id: int | None = None) -> Solo:
        """Follow another member that leads from where this log ends."""
        term_id = self.ctx.log_leadership_term_id + 1 if term_id is None else term_id
        self.feed(self.new_term(leader_id, term_id, self.ctx.append_position))
        self.feed(ev.ReplayDone(self.ctx.commit_position, 0), ev.LogJoined(77))
        assert self.module.follower is not None
        return self

    def record(self) -> list[fx.Effect]:
        """Let everything that is in the window become durable."""
        self.ctx.log_buffer.take_pending()
        return self.feed(ev.Recorded(self.ctx.log_buffer.append_position))


def messages(effects: Sequence[fx.Effect], kind: type[E], *, to: int | None = None) -> list[E]:
    """Find the messages of one kind that were sent, to one member or to any."""
    found: list[Message] = [
        effect.message
        for effect in effects
        if isinstance(effect, fx.SendToMember) and (to is None or effect.member_id == to)
    ]
    return [message for message in found if isinstance(message, kind)]


def of(effects: Sequence[fx.Effect], kind: type[E]) -> list[E]:
    """Find the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]


def path(effects: Sequence[fx.Effect]) -> list[str]:
    """The states that were entered, in order."""
    return [effect.new.name for effect in effects if isinstance(effect, fx.StateChanged)]


def before(effects: Sequence[fx.Effect], first: type[fx.Effect], second: type) -> bool:
    """Whether an effect of one kind comes before the first effect, or message, of another."""
    kinds = [type(effect.message) if isinstance(effect, fx.SendToMember) else type(effect) for effect in effects]
    return first in kinds and second in kinds and kinds.index(first) < kinds.index(second)
