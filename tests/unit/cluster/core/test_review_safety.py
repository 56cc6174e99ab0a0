"""What a reviewer found in the core, each as the smallest run that went wrong. Events in, effects compared."""

from __future__ import annotations

from typing import TypeVar

from tests.unit.cluster.core.rosters import roster
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.context import PROTOCOL_VERSION, ConsensusConfig, ConsensusContext
from trimaran.cluster.core.election_state import ElectionState
from trimaran.cluster.core.log.log_buffer import LogBuffer
from trimaran.cluster.core.log.recording_log import RecordingLog
from trimaran.cluster.messages.consensus import (
    APPEND_POSITION_FLAG_CATCHUP,
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    NewLeadershipTerm,
    RequestVote,
    StopCatchup,
    Vote,
)
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId, RecordingId, TermId
from trimaran.service_api.wire.log.messages import SessionOpenEvent
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.session import SessionConnectRequest

MS = 1_000_000
_E = TypeVar("_E")


class Member:
    """One consensus module fed by hand. Durable effects are taken as done; what lasts is answered by the test."""

    def __init__(self, member_count: int = 3, *, append_position: int = 0, terms: tuple[tuple[int, int], ...] = ()):
        recording_log = RecordingLog()
        for term_id, base in terms:
            recording_log.append_term(
                recording_id=0, leadership_term_id=term_id, term_base_log_position=base, timestamp=0
            )
        term_id = TermId(terms[-1][0] if terms else -1)
        self.ctx = ConsensusContext(
            config=ConsensusConfig(
                member_id=MemberId(0),
                catchup_endpoint="a:3",
                startup_canvass_timeout_ns=6000 * MS,
                election_timeout_ns=500 * MS,
                election_status_interval_ns=100 * MS,
                leader_heartbeat_timeout_ns=2000 * MS,
                leader_heartbeat_interval_ns=200 * MS,
                session_timeout_ns=10_000 * MS,
                session_limit=10,
                term_length_bytes=64 << 10,
                mtu_length_bytes=1408,
                checksums=True,
                ingress_window_bytes=8192,
                catchup_near_bytes=4096,
            ),
            random=lambda: 0.5,
            recording_log=recording_log,
            log_recording_id=RecordingId(0),
            log_buffer=LogBuffer(position=append_position, retained_bytes=1 << 20),
            roster=roster(0, member_count),
            append_position=append_position,
            log_leadership_term_id=term_id,
            leadership_term_id=term_id,
            candidate_term_id=term_id,
        )
        self.module = ConsensusModule(self.ctx, last_activity_ns=lambda connection_id: None)
        self.now_ns = 1000 * MS
        self.effects: list[fx.Effect] = []

    def start(self) -> None:
        self.module.start(now_ns=self.now_ns, timestamp=self.now_ns // MS)
        self._take()
        for member in self.ctx.others:
            self.step(ev.LinkChanged(member.member_id, is_up=True))

    def step(self, event: object) -> None:
        self.module.step(event, now_ns=self.now_ns, timestamp=self.now_ns // MS)
        self._take()

    def after_ms(self, milliseconds: int) -> None:
        self.now_ns += milliseconds * MS
        self.module.poll(now_ns=self.now_ns, timestamp=self.now_ns // MS)
        self._take()

    def _take(self) -> None:
        self.effects = self.module.take_effects()

    def effects_of(self, kind: type[_E]) -> list[_E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def sent(self, kind: type[_E]) -> list[_E]:
        return [
            effect.message
            for effect in self.effects
            if isinstance(effect, fx.SendToMember) and isinstance(effect.message, kind)
        ]

    def state(self) -> ElectionState | None:
        election = self.module.election
        return None if election is None else election.state

    # --- the ways there

    def canvass(self, member_id: int, term_id: int = -1, position: int = 0) -> Message:
        return CanvassPosition(
            log_leadership_term_id=TermId(term_id),
            log_position=position,
            leadership_term_id=TermId(term_id),
            follower_member_id=MemberId(member_id),
            protocol_version=PROTOCOL_VERSION,
        )

    def win_ballot(self) -> None:
        """Canvass, nominate and be voted for by every member."""
        term_id, position = self.ctx.log_leadership_term_id, self.ctx.append_position
        for member in self.ctx.others:
            self.step(self.canvass(member.member_id, term_id, position))
        self.after_ms(300)
        assert self.state() is ElectionState.CANDIDATE_BALLOT
        for member in self.ctx.others:
            self.step(
                Vote(
                    candidate_term_id=self.ctx.candidate_term_id,
                    log_leadership_term_id=term_id,
                    log_position=position,
                    candidate_member_id=MemberId(0),
                    follower_member_id=member.member_id,
                    vote=True,
                )
            )

    def report(self, member_id: int, position: int, *, is_catchup: bool = False) -> None:
        self.step(
            AppendPosition(
                leadership_term_id=self.ctx.leadership_term_id,
                log_position=position,
                follower_member_id=MemberId(member_id),
                flags=APPEND_POSITION_FLAG_CATCHUP if is_catchup else 0,
            )
        )

    def lead(self) -> None:
        """Lead a term, with its first entry recorded here."""
        self.win_ballot()
        for member in self.ctx.others:
            self.report(member.member_id, self.ctx.append_position)
        self.step(ev.ReplayDone(self.ctx.append_position, 0))
        assert self.module.leader is not None
        self.record()

    def record(self) -> None:
        """Let everything that was appended be durable here."""
        self.ctx.log_buffer.take_pending()
        self.step(ev.Recorded(self.ctx.log_buffer.append_position))

    def announce(self, **overrides: object) -> Message:
        """Say, as member 1, that it leads a term."""
        values: dict[str, object] = {
            "log_leadership_term_id": self.ctx.log_leadership_term_id,
            "next_leadership_term_id": TermId(-1),
            "next_term_base_log_position": -1,
            "next_log_position": -1,
            "leadership_term_id": TermId(1),
            "term_base_log_position": 0,
            "log_position": 0,
            "leader_recording_id": RecordingId(0),
            "timestamp": 0,
            "leader_member_id": MemberId(1),
            "log_session_id": 77,
            "app_version": 1,
            "is_startup": False,
            "commit_position": 0,
        }
        return NewLeadershipTerm(**{**values, **overrides})  # type: ignore[arg-type]  # named by the tests


def test_leader_with_an_empty_log_waits_for_a_quorum_in_its_term_before_it_appends() -> None:
    """A position of 0 is what a member that never spoke has; it must not pass for one that is in the term.

    Otherwise, in a new cluster:
    1. A leads term 0 with nobody following, appends its first entry [0, 96) and is cut off.
    2. B leads term 1 in the same way, appends its own first entry [0, 96) and crashes. C has nothing.
    3. A, back, leads term 2 with C's vote. It back-fills term 1 as empty at 96; A and C commit [0, 96) and more.
    4. B comes back with term 1 up to 96. A says that term 2 begins at 96: B follows, with other bytes below commit.

    Source: Raft paper §5.4.2; peers.md C4 class 10.
    """
    member = Member()
    member.start()

    member.win_ballot()

    assert member.state() is ElectionState.LEADER_LOG_REPLICATION
    assert member.ctx.log_buffer.append_position == 0
    member.report(1, 0)
    assert member.state() is ElectionState.LEADER_REPLAY


def test_member_that_truncates_to_where_its_term_begins_keeps_the_mark_of_that_term() -> None:
    """The mark says that no older log can win here any more; the leader of that term may have committed on it.

    Source: election.py, "The term is marked before it is acknowledged".
    """
    member = Member(append_position=1280, terms=((0, 0), (1, 640)))
    member.start()

    member.step(
        member.announce(
            leadership_term_id=TermId(2),
            term_base_log_position=640,
            log_position=640,
            next_leadership_term_id=TermId(2),
            next_term_base_log_position=640,
        )
    )
    assert member.effects_of(fx.StopLog) == [fx.StopLog()]
    member.step(ev.LogStopped(1280))
    assert member.effects_of(fx.TruncateLog) == [fx.TruncateLog(640)]
    member.step(ev.LogTruncated(640))

    (canvass, _) = member.sent(CanvassPosition)
    assert (canvass.log_leadership_term_id, canvass.log_position) == (1, 640)


def test_voter_sleeps_until_the_ballot_times_out() -> None:
    """A deadline that has passed and is not acted on makes the agent poll without end."""
    member = Member()
    member.start()
    member.step(
        RequestVote(
            log_leadership_term_id=TermId(-1),
            log_position=0,
            candidate_term_id=TermId(0),
            candidate_member_id=MemberId(1),
            protocol_version=PROTOCOL_VERSION,
        )
    )
    assert member.state() is ElectionState.FOLLOWER_BALLOT

    member.after_ms(150)

    assert member.state() is ElectionState.FOLLOWER_BALLOT
    assert member.module.next_deadline_ns() > member.now_ns


def test_catchup_of_a_follower_that_was_dropped_goes_on_until_it_joins_again() -> None:
    """The live link's old join position says nothing about a follower that has to catch up again.

    1. A follower joins the live log at 0 and is dropped when it is too slow.
    2. It asks for catch-up; its first report there is above 0.
    3. The leader took it for joined, and ended the replay: so a follower far behind never came back under load.

    Source: aeron.md §2.3 FOLLOWER_CATCHUP, §10 hazard 24.
    """
    member = Member()
    member.start()
    member.lead()
    member.step(ev.LiveJoined(MemberId(1), 0))

    member.step(
        CatchupPosition(
            leadership_term_id=member.ctx.leadership_term_id,
            log_position=64,
            follower_member_id=MemberId(1),
            catchup_endpoint="b:3",
        )
    )
    member.report(1, 96, is_catchup=True)

    assert member.effects_of(fx.StopCatchupReplay) == []
    assert member.sent(StopCatchup) == []
    member.step(ev.LiveJoined(MemberId(1), 96))
    member.report(1, 96, is_catchup=True)
    assert member.effects_of(fx.StopCatchupReplay) == [fx.StopCatchupReplay(MemberId(1))]


def test_session_that_its_service_closed_stays_so_when_the_clients_own_close_is_taken_back() -> None:
    """Every member saw the service close it at a committed position; the client's close never committed.

    1. The leader appends the client's close.
    2. The service, at an earlier entry, closes the session: on every member, so whoever leads must append a close.
    3. The leader is deposed, and its close is cut off. If it leads again, it must still know what the service did.

    Source: aeron.md §3.12.
    """
    member = Member()
    member.start()
    member.lead()
    sessions = member.module.sessions
    connect = SessionConnectRequest(
        correlation_id=CorrelationId(5), response_stream_id=102, version=256, response_channel=""
    )
    member.step(ev.ClientConnect(1, connect))
    open_position = member.ctx.log_buffer.append_position
    member.record()
    member.report(1, open_position)
    member.module.on_replay_session_open(
        SessionOpenEvent(
            leadership_term_id=member.ctx.leadership_term_id,
            correlation_id=CorrelationId(5),
            cluster_session_id=ClusterSessionId(1),
            timestamp=0,
            response_stream_id=102,
        ),
        open_position,
    )
    member.step(ev.ClientClose(1, member.ctx.leadership_term_id, ClusterSessionId(1)))

    member.module.sessions.on_service_close(ClusterSessionId(1))
    sessions.roll_back()

    assert sessions.sessions[ClusterSessionId(1)].is_closed_by_service
