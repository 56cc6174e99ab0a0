"""Between two elections: the leader counts, the follower reports, and both know what ends the term."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, messages, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.context import SLOW_DELIVERY_NS, SLOW_SERVICE_NS
from trimaran.cluster.core.vocabulary.reason import Reason
from trimaran.cluster.core.vocabulary.reason import ReasonKind as K
from trimaran.cluster.messages.consensus import (
    APPEND_POSITION_FLAG_CATCHUP,
    AppendPosition,
    CanvassPosition,
    CatchupPosition,
    CommitPosition,
    NewLeadershipTerm,
    StopCatchup,
    Vote,
)
from trimaran.service_api import Role
from trimaran.service_api.types import MemberId, TermId, TimeUnit
from trimaran.service_api.wire.frame import HEADER_LENGTH
from trimaran.service_api.wire.log.messages import LOG_MESSAGES, NewLeadershipTermEvent, TimerEvent
from trimaran.service_api.wire.message import Message, decode_message

HEARTBEAT_INTERVAL = 20 * MS
HEARTBEAT_TIMEOUT = 200 * MS
START = [(0, 0, 640)]


def leader(member_count: int = 3) -> Solo:
    """A leader of term 1 whose first entry ends at 736 and is recorded here."""
    solo = Solo(member_count=member_count, terms=START).lead()
    solo.record()
    assert solo.ctx.append_position == 736
    return solo


def follower() -> Solo:
    return Solo(terms=START).follow(leader_id=1)


def appended(solo: Solo) -> list[Message]:
    """Take what was appended to the log since the last look."""
    chunks = solo.ctx.log_buffer.take_pending()
    return [decode_message(chunk[HEADER_LENGTH:], registry=LOG_MESSAGES) for chunk in chunks]


# --- the leader


def test_first_entry_of_a_term_says_where_it_ends() -> None:
    """Source: aeron.md §1.3 NewLeadershipTermEvent, §3.14."""
    solo = Solo(terms=START).lead()

    (event,) = appended(solo)

    assert event == NewLeadershipTermEvent(
        leadership_term_id=TermId(1),
        log_position=736,
        timestamp=solo.timestamp,
        term_base_log_position=640,
        leader_member_id=MemberId(0),
        log_session_id=solo.ctx.log_session_id,
        time_unit=TimeUnit.MILLIS,
        app_version=1,
    )
    assert solo.ctx.log_buffer.append_position == 736


def test_what_a_member_recorded_and_has_lost_counts_no_more() -> None:
    """It reports, loses its directory, and canvasses with an empty log: seed 9001858 at ebc096e."""
    solo = Solo(terms=START).lead()
    solo.feed(solo.append_position(1, 736))
    solo.feed(
        CanvassPosition(
            log_leadership_term_id=TermId(-1),
            log_position=0,
            leadership_term_id=TermId(-1),
            follower_member_id=MemberId(1),
        )
    )

    solo.record()
    assert solo.ctx.commit_position < 736
    solo.feed(solo.append_position(2, 736))

    assert solo.ctx.commit_position == 736


def test_commit_is_what_a_majority_has_recorded_in_the_term() -> None:
    """Aeron.md §3.4: published at once when it rises, and allowed to be delivered."""
    solo = leader()

    effects = solo.feed(solo.append_position(1, 704))
    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(704)]
    effects = solo.feed(solo.append_position(2, 736))

    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(736)]
    assert messages(effects, CommitPosition, to=1) == [
        CommitPosition(leadership_term_id=TermId(1), log_position=736, leader_member_id=MemberId(0))
    ]


def live_leader() -> Solo:
    """A leader whose followers get the log, and what is said with it."""
    solo = leader()
    for member_id in (1, 2):
        solo.feed(ev.LinkChanged(MemberId(member_id), True), ev.LiveJoined(MemberId(member_id), 640))
    return solo


def test_followers_of_the_live_log_are_told_of_the_commit_with_the_log_that_follows() -> None:
    """Once: a message of its own would wake each of them once more for every message of a client."""
    solo = live_leader()

    effects = solo.feed(solo.append_position(1, 736))

    assert effects == [fx.CommitAdvanced(736)]
    assert (solo.ctx.take_pending_commit_position(), solo.ctx.take_pending_commit_position()) == (736, None)
    assert messages(solo.wait(10 * MS), CommitPosition) == []


def test_commit_waits_a_few_milliseconds_for_log_to_go_with() -> None:
    solo = live_leader()
    solo.wait(HEARTBEAT_INTERVAL - 10 * MS)
    solo.feed(solo.append_position(1, 736))

    assert messages(solo.wait(4 * MS - 1), CommitPosition) == []
    assert [message.log_position for message in messages(solo.wait(1), CommitPosition)] == [736, 736]
    assert solo.ctx.take_pending_commit_position() is None


def test_followers_are_told_before_a_slow_service_is_given_what_is_committed() -> None:
    """Else theirs begins when the leader's is done, and clients wait for both."""
    solo = live_leader()
    for end_ns in (solo.now_ns - SLOW_SERVICE_NS + 1, solo.now_ns):
        solo.ctx.note_delivery(end_ns - SLOW_DELIVERY_NS, end_ns)

    effects = solo.feed(solo.append_position(1, 704))

    assert [type(effect) for effect in effects] == [fx.SendToMember, fx.SendToMember, fx.CommitAdvanced]
    assert [message.log_position for message in messages(effects, CommitPosition)] == [704, 704]
    assert solo.ctx.take_pending_commit_position() is None


@pytest.mark.parametrize("case", ["quick", "long ago", "once", "far apart"])
def test_service_that_is_quick_or_was_slow_long_ago_does_not_count_as_slow(case: str) -> None:
    """A machine takes the processor from the leader for so long now and then."""
    solo = live_leader()
    last_ns = solo.now_ns - (SLOW_SERVICE_NS if case == "long ago" else 0)
    first_ns = last_ns - (SLOW_SERVICE_NS if case == "far apart" else 1)
    for end_ns in (first_ns, last_ns)[case == "once" :]:
        solo.ctx.note_delivery(end_ns - SLOW_DELIVERY_NS + (case == "quick"), end_ns)

    assert solo.feed(solo.append_position(1, 704)) == [fx.CommitAdvanced(704)]


@pytest.mark.parametrize("case", ["never joined", "in catch-up", "gone"])
def test_follower_that_does_not_get_the_live_log_is_told_in_a_message(case: str) -> None:
    """It may wait for the commit to end its election. Of one that is gone there is nobody to tell."""
    solo = leader()
    solo.feed(ev.LinkChanged(MemberId(1), True), ev.LiveJoined(MemberId(1), 640))
    solo.feed(ev.LinkChanged(MemberId(2), case != "gone"))
    if case == "in catch-up":
        solo.feed(solo.append_position(2, 640, flags=APPEND_POSITION_FLAG_CATCHUP))

    effects = solo.feed(solo.append_position(1, 736))

    assert bool(messages(effects, CommitPosition, to=2)) == (case != "gone")


def test_next_term_says_nothing_of_what_the_last_one_left_unsaid() -> None:
    solo = live_leader()
    solo.feed(solo.append_position(1, 736))
    assert solo.ctx.commit_publish_pending_since_ns is not None

    solo.module._begin_election(Reason(K.INACTIVE_FOLLOWER_QUORUM, active_count=1, member_count=3))
    solo.feed(ev.LogStopped(736))
    solo.lead()

    assert solo.ctx.take_pending_commit_position() is None


def test_commit_never_passes_what_the_leader_has_recorded_itself() -> None:
    """Aeron.md §2.6: the leader syncs while it sends, so followers may be ahead of it."""
    solo = Solo(terms=START).lead()

    assert of(solo.feed(solo.append_position(1, 736), solo.append_position(2, 736)), fx.CommitAdvanced) == []
    effects = solo.record()

    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(736)]


@pytest.mark.parametrize("term_id", [0, 2])
def test_positions_of_another_term_do_not_count(term_id: int) -> None:
    """Hazard 1 of aeron.md §10; they do keep the member active."""
    solo = leader()
    solo.now_ns += HEARTBEAT_TIMEOUT

    effects = solo.feed(solo.append_position(1, 736, term_id=term_id))

    assert of(effects, fx.CommitAdvanced) == []
    assert solo.ctx.members[MemberId(1)].time_of_last_append_ns == solo.now_ns


def test_commit_stays_when_a_follower_falls_back() -> None:
    """Aeron.md §2.6: the quorum's position may fall, the commit position never does."""
    solo = leader()
    solo.feed(solo.append_position(1, 736))

    effects = solo.feed(solo.append_position(1, 640))

    assert effects == []
    assert solo.ctx.commit_position == 736


def test_commit_position_is_the_heartbeat() -> None:
    """Aeron.md §2.12: every heartbeat interval even when nothing rises."""
    solo = leader()

    effects = solo.wait(5 * HEARTBEAT_INTERVAL)

    assert len(messages(effects, CommitPosition, to=1)) == len(messages(effects, CommitPosition, to=2)) == 5


def test_canvass_is_answered_with_what_the_member_needs() -> None:
    """Aeron.md §2.4, a settled leader; hazard 5: an old catch-up to it ends, it begins again."""
    solo = leader()

    effects = solo.feed(solo.canvass(2, 0, 640))

    (answer,) = messages(effects, NewLeadershipTerm, to=2)
    assert (answer.log_leadership_term_id, answer.next_leadership_term_id, answer.next_log_position) == (0, 1, -1)
    assert (answer.leadership_term_id, answer.term_base_log_position, answer.log_position) == (1, 640, 736)
    assert (answer.is_startup, answer.commit_position) == (False, solo.ctx.commit_position)
    assert of(effects, fx.StopCatchupReplay) == [fx.StopCatchupReplay(MemberId(2))]


@pytest.mark.parametrize(("log_term_id", "term_id"), [(2, 2), (0, 2), (2, 0)])
def test_canvass_of_a_higher_term_makes_the_leader_step_down(log_term_id: int, term_id: int) -> None:
    """Not ignored as in Aeron: a member that voted in a higher term would be left out for ever.

    But not in the first heartbeat timeout of a term: a member that comes and goes would end one term after another.
    """
    solo = leader()
    assert solo.feed(solo.canvass(2, log_term_id, 640, term_id=term_id)) == []
    solo.wait(HEARTBEAT_TIMEOUT - MS)
    solo.feed(solo.append_position(1, 640))
    solo.wait(MS)

    effects = solo.feed(solo.canvass(2, log_term_id, 640, term_id=term_id))

    assert len(of(effects, fx.ElectionStarted)) == 1
    assert solo.is_in(S.INIT)


def test_candidate_of_no_higher_term_is_told_who_leads() -> None:
    """Hazard 5 of aeron.md §10: the leader asserts itself."""
    solo = leader()

    effects = solo.feed(solo.request_vote(2, 1, 0, 640))

    assert [answer.leadership_term_id for answer in messages(effects, NewLeadershipTerm, to=2)] == [1]
    assert solo.module.leader is not None


# --- catch-up, as the leader sees it


def catchup(position: int = 640, *, term_id: int = 1) -> CatchupPosition:
    return CatchupPosition(
        leadership_term_id=TermId(term_id),
        log_position=position,
        follower_member_id=MemberId(2),
        catchup_endpoint="host2:9003",
    )


def test_catchup_is_replayed_from_where_the_follower_ends() -> None:
    """Seed 001, "CatchupPosition"."""
    solo = leader()

    assert solo.feed(catchup(672)) == [fx.StartCatchupReplay(MemberId(2), 672, solo.ctx.log_session_id)]
    assert solo.feed(catchup(672, term_id=0)) == []


def test_catchup_is_stopped_once_the_live_log_has_taken_over() -> None:
    """Seed 001, "StopCatchup": when the follower's position has reached where its live log began to flow."""
    solo = leader()
    solo.feed(catchup(640))
    flag = APPEND_POSITION_FLAG_CATCHUP

    assert of(solo.feed(solo.append_position(2, 704, flags=flag)), fx.StopCatchupReplay) == []
    solo.feed(ev.LiveJoined(MemberId(2), 736))
    assert of(solo.feed(solo.append_position(2, 704, flags=flag)), fx.StopCatchupReplay) == []
    effects = solo.feed(solo.append_position(2, 736, flags=flag))

    stop = StopCatchup(leadership_term_id=TermId(1), follower_member_id=MemberId(2))
    told_first = [fx.SendToMember(MemberId(2), stop), fx.StopCatchupReplay(MemberId(2))]
    assert [effect for effect in effects if effect in told_first] == told_first


def test_catchup_is_stopped_also_when_the_leader_hears_of_the_report_before_the_join() -> None:
    """They come on two connections."""
    solo = leader()
    solo.feed(catchup(640), solo.append_position(2, 736, flags=APPEND_POSITION_FLAG_CATCHUP))

    effects = solo.feed(ev.LiveJoined(MemberId(2), 736))

    assert of(effects, fx.StopCatchupReplay) == [fx.StopCatchupReplay(MemberId(2))]


def test_live_follower_is_not_told_to_stop_a_catchup() -> None:
    solo = leader()
    solo.feed(ev.LiveJoined(MemberId(2), 640))

    assert messages(solo.feed(solo.append_position(2, 736)), StopCatchup) == []


def test_catchup_of_a_follower_that_was_dropped_goes_on_until_it_joins_again() -> None:
    """The live link's old join position says nothing about a follower that has to catch up again.

    1. A follower joins the live log at 640 and is dropped when it is too slow.
    2. It asks for catch-up; its first report there is above 640.
    3. The leader took it for joined, and ended the replay: so a follower far behind never came back under load.

    Source: aeron.md §2.3 FOLLOWER_CATCHUP, §10 hazard 24.
    """
    solo = leader()
    solo.feed(ev.LiveJoined(MemberId(2), 640), catchup(672))

    early = solo.feed(solo.append_position(2, 704, flags=APPEND_POSITION_FLAG_CATCHUP))
    solo.feed(ev.LiveJoined(MemberId(2), 704))
    late = solo.feed(solo.append_position(2, 704, flags=APPEND_POSITION_FLAG_CATCHUP))

    assert (of(early, fx.StopCatchupReplay), messages(early, StopCatchup)) == ([], [])
    assert of(late, fx.StopCatchupReplay) == [fx.StopCatchupReplay(MemberId(2))]


# --- the follower


def test_follower_reports_at_once_what_it_has_recorded() -> None:
    """Aeron.md §2.12: on rise, and every heartbeat interval."""
    solo = follower()

    effects = solo.feed(ev.Recorded(736))
    assert [(m.leadership_term_id, m.log_position) for m in messages(effects, AppendPosition, to=1)] == [(1, 736)]
    effects = solo.wait(2 * HEARTBEAT_INTERVAL)

    assert [m.log_position for m in messages(effects, AppendPosition, to=1)] == [736, 736]
    assert messages(effects, AppendPosition, to=2) == []


def test_follower_delivers_what_is_committed_and_recorded() -> None:
    solo = follower()

    assert of(solo.feed(solo.commit(1, 736)), fx.CommitAdvanced) == [fx.CommitAdvanced(640)]
    assert of(solo.feed(ev.Recorded(704)), fx.CommitAdvanced) == [fx.CommitAdvanced(704)]
    assert of(solo.feed(ev.Recorded(800)), fx.CommitAdvanced) == [fx.CommitAdvanced(736)]


def test_follower_reports_before_it_delivers_what_came_with_the_frames_that_it_recorded() -> None:
    solo = follower()

    effects = solo.feed(ev.Recorded(736, ev.LogCommitted(1, 704)))

    assert [type(effect) for effect in effects] == [fx.SendToMember, fx.CommitAdvanced]
    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(704)]


def test_what_came_with_the_frames_of_another_term_is_not_taken() -> None:
    solo = follower()

    effects = solo.feed(ev.Recorded(736, ev.LogCommitted(2, 704)))

    assert of(effects, fx.CommitAdvanced) == []


def test_leader_notes_its_own_recording_without_a_step_while_nobody_else_has_more_than_is_committed() -> None:
    solo = Solo().lead()
    position = solo.ctx.log_buffer.append_position

    assert solo.module.take_recorded(position, solo.now_ns)
    effects = solo.feed(solo.append_position(1, position))

    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(position)]


def test_leader_takes_a_step_for_its_own_recording_where_it_may_be_the_one_that_a_majority_lacks() -> None:
    solo = Solo().lead()
    position = solo.ctx.log_buffer.append_position
    solo.feed(solo.append_position(1, position))

    assert not solo.module.take_recorded(position, solo.now_ns)
    assert of(solo.feed(ev.Recorded(position)), fx.CommitAdvanced) == [fx.CommitAdvanced(position)]


def test_follower_takes_a_step_for_each_recording() -> None:
    assert not follower().module.take_recorded(736, 0)


def test_follower_takes_what_is_said_with_the_log_as_it_takes_the_message() -> None:
    solo = follower()
    solo.feed(ev.Recorded(800))

    solo.now_ns += HEARTBEAT_TIMEOUT - MS
    effects = solo.feed(ev.LogCommitted(1, 736))

    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(736)]
    assert solo.ctx.time_of_last_leader_ns == solo.now_ns


@pytest.mark.parametrize("term_id", [0, 2])
def test_what_is_said_with_the_log_of_another_term_changes_nothing(term_id: int) -> None:
    """It may have waited in the inbox while an election began: of this log it says nothing then."""
    solo = follower()
    solo.feed(ev.Recorded(800))

    assert solo.feed(ev.LogCommitted(term_id, 736)) == []
    assert solo.ctx.notified_commit_position <= 640


def test_notified_commit_position_of_a_follower_never_goes_back() -> None:
    """ConsensusModuleAgentTest.notifiedCommitPositionShouldNotGoBackwardsUpon… all three."""
    solo = follower()
    solo.feed(ev.Recorded(800), solo.commit(1, 736))

    effects = solo.feed(solo.commit(1, 640), solo.new_term(1, 1, 640, commit=640))

    assert effects == []
    assert (solo.ctx.notified_commit_position, solo.ctx.commit_position) == (736, 736)


@pytest.mark.parametrize("kind", ["commit", "new_term"])
def test_leaders_messages_keep_the_follower_from_an_election(kind: str) -> None:
    """ConsensusModuleAgentTest.on{CommitPosition,NewLeadershipTerm}ShouldUpdateTimeOfLastLeaderMessageReceived."""
    solo = follower()
    for _ in range(10):
        solo.wait(HEARTBEAT_TIMEOUT - MS)
        solo.feed(solo.commit(1, 640) if kind == "commit" else solo.new_term(1, 1, 640))

    assert solo.module.follower is not None


def test_follower_begins_an_election_when_the_leader_is_silent() -> None:
    """Aeron.md §2.2: leader heartbeat timeout; messages of others do not count."""
    solo = follower()
    solo.wait(HEARTBEAT_TIMEOUT - MS)
    solo.feed(solo.commit(2, 640), solo.new_term(2, 1, 640), solo.canvass(2, 0, 0), solo.commit(1, 640, term_id=0))

    effects = solo.wait(2 * MS)

    assert [str(e.reason) for e in of(effects, fx.ElectionStarted)] == ["leader heartbeat timeout: leader_member_id=1"]


@pytest.mark.parametrize(
    "event",
    [ev.LinkChanged(MemberId(1), is_up=False), ev.LogImageClosed(77, "connection reset")],
    ids=["consensus link", "log link"],
)
def test_follower_begins_an_election_when_a_link_to_the_leader_closes(event: object) -> None:
    """DESIGN §4: nobody needs to wait for the heartbeat timeout."""
    solo = follower()

    solo.feed(ev.LinkChanged(MemberId(2), is_up=False), ev.LogImageClosed(78, "old"))
    assert solo.module.follower is not None
    solo.feed(event)

    assert solo.is_in(S.INIT)


# --- higher terms end any term


@pytest.mark.parametrize("role", [leader, follower])
@pytest.mark.parametrize("kind", ["request_vote", "worse request_vote", "new_term", "commit"])
def test_higher_term_begins_an_election(role: object, kind: str) -> None:
    """Aeron.md §2.2. The member does not vote yet: it stops its log first, and the candidate asks again."""
    solo = leader() if role is leader else follower()
    message = {
        "request_vote": solo.request_vote(2, 5, 1, 2048),
        "worse request_vote": solo.request_vote(2, 5, 0, 0),
        "new_term": solo.new_term(2, 5, 640),
        "commit": solo.commit(2, 640, term_id=5),
    }[kind]

    effects = solo.feed(message)

    assert len(of(effects, fx.ElectionStarted)) == 1
    assert (solo.state, solo.ctx.role) == (S.INIT, Role.FOLLOWER)
    assert messages(effects, Vote) == []


@pytest.mark.parametrize("role", [leader, follower])
def test_older_terms_change_nothing(role: object) -> None:
    solo = leader() if role is leader else follower()
    term = solo.module.leader or solo.module.follower

    solo.feed(solo.new_term(2, 0, 0), solo.commit(2, 64, term_id=0), solo.vote(2, vote=True), solo.new_term(2, 1, 640))
    if role is follower:
        assert solo.feed(solo.request_vote(2, 1, 1, 9999)) == []

    assert (solo.module.leader or solo.module.follower) is term


def test_next_election_does_not_believe_the_first_ones_reports() -> None:
    """Hazard 1 of aeron.md §10: what was recorded in a term is forgotten with it."""
    solo = leader()
    solo.feed(solo.append_position(1, 736), solo.request_vote(2, 5, 0, 0), ev.LogStopped(736))
    solo.reach_leader_log_replication()

    assert [member.append_position for member in solo.ctx.others] == [-1, -1]
    assert solo.is_in(S.LEADER_LOG_REPLICATION)


# --- timers and time


def test_leader_fires_timers_into_the_log_a_few_at_a_time() -> None:
    """Aeron.md §3.9: only the leader looks at the clock; at most twenty a poll."""
    solo = leader()
    solo.feed(solo.append_position(1, 736))
    for correlation_id in range(50):
        solo.module.timers.schedule(correlation_id, solo.timestamp + 5)

    solo.wait(4 * MS)
    assert appended(solo) == []
    solo.wait(10 * MS)

    events = appended(solo)
    assert sorted(event.correlation_id for event in events if isinstance(event, TimerEvent)) == [*range(50)]
    assert len(events) == 50


def test_follower_fires_no_timers() -> None:
    solo = follower()
    solo.module.timers.schedule(1, solo.timestamp)
    solo.wait(100 * MS)

    assert appended(solo) == []
    assert len(solo.module.timers) == 1


def test_uncommitted_timers_fire_again_under_the_next_leader() -> None:
    """Aeron.md §3.12: re-armed, here by forgetting that they were appended."""
    solo = leader()
    solo.module.timers.schedule(1, solo.timestamp)
    solo.wait(2 * MS)
    assert len(appended(solo)) == 1
    end = solo.ctx.log_buffer.append_position

    solo.feed(solo.request_vote(2, 5, 0, 0), ev.LogStopped(end))
    solo.reach_leader_log_replication()
    solo.feed(solo.append_position(1, end), ev.ReplayDone(end, 0))
    solo.wait(20 * MS)

    assert [type(event) for event in appended(solo)].count(TimerEvent) == 1


def test_log_time_is_the_clocks_when_that_is_ahead() -> None:
    solo = Solo(terms=START).reach_leader_log_replication()
    solo.feed(solo.append_position(1, 640), ev.ReplayDone(640, 5))

    (event,) = appended(solo)

    assert isinstance(event, NewLeadershipTermEvent)
    assert event.timestamp == solo.timestamp


@pytest.mark.parametrize("jump_ms", [-500, -3_600_000, 3_600_000])
def test_clock_that_jumps_within_a_term_does_not_take_the_log_along(jump_ms: int) -> None:
    solo = leader()
    before = solo.timestamp
    solo.skew_ms = jump_ms
    for _ in range(10):
        solo.wait(100 * MS)
        solo.feed(solo.append_position(1, 640))
    solo.module.timers.schedule(1, 0)
    solo.wait(25 * MS)

    (event,) = appended(solo)

    assert isinstance(event, TimerEvent)
    assert before + 950 <= event.timestamp <= before + 1_080
