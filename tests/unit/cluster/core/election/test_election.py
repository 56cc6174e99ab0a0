"""Elections of one member, state by state; case names in the docstrings are Aeron's `ElectionTest`.

The left two columns of the diagram: canvass, ballot, and the leader's way to its term.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, before, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.messages.consensus import (
    AppendPosition,
    CanvassPosition,
    CommitPosition,
    NewLeadershipTerm,
    Vote,
)
from trimaran.service_api import Role
from trimaran.service_api.types import MemberId, TermId

CANVASS_TIMEOUT = 600 * MS
ELECTION_TIMEOUT = 50 * MS
STATUS_INTERVAL = 10 * MS


# --- INIT


def test_single_member_leads_at_once() -> None:
    """shouldElectSingleNodeClusterLeader; hazard 22: no canvass, no ballot, and a stall makes it doubt nothing."""
    solo = Solo(member_count=1, terms=[(4, 0, 640)])

    assert path(solo.effects) == ["LEADER_LOG_REPLICATION", "LEADER_REPLAY"]
    assert before(solo.effects, fx.PersistCandidateTerm, fx.StartReplay)

    solo.feed(ev.ReplayDone(640, 9))
    solo.now_ns += 60_000 * MS
    solo.wait(1000 * MS)

    assert solo.module.leader is not None
    assert (solo.ctx.role, solo.ctx.leadership_term_id) == (Role.LEADER, 5)


def test_a_later_election_stops_the_log_and_waits_for_where_it_ends() -> None:
    """Aeron.md §2.3 INIT: nothing may write to the log any more, ingress is closed."""
    solo = Solo(terms=[(0, 0, 64)]).follow()

    effects = solo.feed(ev.LogImageClosed(77, "connection closed"))

    assert solo.is_in(S.INIT)
    assert fx.UnbindIngress(None) in effects
    assert before(effects, fx.UnbindIngress, fx.StopLog)
    assert messages(effects, CanvassPosition) == []

    solo.feed(ev.LogStopped(256))

    assert solo.is_in(S.CANVASS)
    assert solo.ctx.append_position == 256


@pytest.mark.parametrize("kind", ["canvass", "request_vote", "new_term", "append", "commit"])
def test_a_member_in_init_hears_nothing(kind: str) -> None:
    """Aeron.md §2.3 INIT: ignores all election messages."""
    solo = Solo(terms=[(0, 0, 64)]).follow()
    solo.feed(ev.LogImageClosed(77, "connection closed"))
    message = {
        "canvass": solo.canvass(1, 9, 999),
        "request_vote": solo.request_vote(1, 9, 9, 999),
        "new_term": solo.new_term(1, 9, 64),
        "append": solo.append_position(1, 999, term_id=9),
        "commit": solo.commit(1, 999, term_id=9),
    }[kind]

    assert solo.feed(message) == []
    assert solo.is_in(S.INIT)


def test_failures_back_off_and_news_does_not() -> None:
    """Hazard 30: a growing pause after each failure of one election, up to 5 s; plain restarts are at once."""
    solo = Solo(terms=[(0, 0, 64)])
    pauses = []
    for _ in range(9):
        solo.feed(solo.new_term(1, 1, 64), ev.ActivityFailed("disk is slow"), ev.LogStopped(64))
        began_ns = solo.now_ns
        while solo.is_in(S.INIT):
            solo.wait(MS)
        pauses.append((solo.now_ns - began_ns) // MS)

    assert pauses == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]

    solo.feed(solo.new_term(1, 1, 64), ev.LinkChanged(MemberId(1), is_up=False), ev.LogStopped(64))
    assert solo.is_in(S.CANVASS)


# --- CANVASS


def test_first_canvass_of_a_member_is_answered_at_once() -> None:
    """It may have come up after our last one; further ones wait for the interval."""
    solo = Solo()

    first = solo.feed(solo.canvass(1, 0, 0))
    second = solo.feed(solo.canvass(1, 0, 0))

    assert (len(messages(first, CanvassPosition, to=1)), len(messages(first, CanvassPosition, to=2))) == (1, 0)
    assert second == []


def test_member_with_the_newest_log_of_all_nominates_itself() -> None:
    """shouldCanvassMembersInSuccessfulLeadershipBid."""
    solo = Solo(terms=[(0, 0, 64)])

    solo.feed(solo.canvass(1, 0, 64))
    assert solo.is_in(S.CANVASS)
    solo.feed(solo.canvass(2, -1, 0))

    assert solo.is_in(S.NOMINATE)


@pytest.mark.parametrize(("log_term_id", "position"), [(0, 96), (1, 0)])
def test_member_with_an_older_log_only_canvasses(log_term_id: int, position: int) -> None:
    """Seed 001, "Member 2: CANVASS": the highest term, then the highest position."""
    solo = Solo(terms=[(0, 0, 64)])

    solo.feed(solo.canvass(1, 0, 64), solo.canvass(2, log_term_id, position))
    solo.wait(2 * STATUS_INTERVAL)

    assert solo.is_in(S.CANVASS)


def test_canvass_of_a_starting_node_waits_for_all_then_for_a_majority() -> None:
    """shouldTimeoutCanvassWithMajority: the startup canvass timeout, from when the state was entered."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.canvass(1, 0, 64), ev.LinkChanged(MemberId(2), is_up=False))

    solo.wait(CANVASS_TIMEOUT - MS)
    solo.feed(solo.canvass(1, 0, 64))
    assert solo.is_in(S.CANVASS)
    solo.wait(2 * MS)

    assert solo.is_in(S.NOMINATE, S.CANDIDATE_BALLOT)


def test_member_that_canvassed_long_ago_counts_no_more() -> None:
    """It may follow by now a leader that this member cannot hear: to stand would only disturb them."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.canvass(1, 0, 64), ev.LinkChanged(MemberId(2), is_up=False))

    solo.wait(2 * CANVASS_TIMEOUT)

    assert solo.is_in(S.CANVASS)


def test_nomination_is_given_up_when_others_turn_out_to_hold_more() -> None:
    """A term is not spent on a ballot that cannot be won."""
    solo = Solo(terms=[(0, 0, 64)], chance=0.99).reach_nominate()

    effects = solo.feed(solo.canvass(1, 0, 96), solo.canvass(2, 0, 96))
    effects += solo.wait(ELECTION_TIMEOUT)

    assert path(effects)[:1] == ["INIT"]
    assert of(effects, fx.PersistCandidateTerm) == []


def test_canvass_goes_on_without_a_majority() -> None:
    """One of three is no quorum, however long it takes."""
    solo = Solo()

    solo.wait(20 * CANVASS_TIMEOUT)

    assert solo.is_in(S.CANVASS)


def test_closed_link_of_a_dead_leader_makes_the_next_canvass_short() -> None:
    """DESIGN §4, "a closed link is news": the dead need not be waited for after the first canvass."""
    solo = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)

    solo.feed(ev.LinkChanged(MemberId(2), is_up=False), ev.LogStopped(64))
    assert solo.is_in(S.CANVASS)
    solo.feed(solo.canvass(1, 1, 64))

    assert solo.is_in(S.NOMINATE)


def test_silent_leader_is_waited_for_one_heartbeat_timeout() -> None:
    """Aeron.md §2.3 CANVASS: the deadline counts from the leader's last message, so it has passed already."""
    solo = Solo(terms=[(0, 0, 64)]).follow(leader_id=2)
    heard_ns = solo.now_ns

    solo.feed(ev.LogImageClosed(77, "network"), ev.LogStopped(64))
    solo.feed(solo.canvass(1, 1, 64))
    while solo.is_in(S.CANVASS):
        solo.wait(MS)

    assert solo.now_ns - heard_ns == solo.ctx.config.leader_heartbeat_timeout_ns


# --- NOMINATE


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.999])
def test_nomination_waits_for_a_random_part_of_half_the_election_timeout(chance: float) -> None:
    """Aeron.md §2.0: uniform in [0, half of the election timeout), so that two equals rarely collide."""
    solo = Solo(chance=chance).reach_nominate()
    began_ns = solo.now_ns

    while solo.is_in(S.NOMINATE):
        solo.wait(MS // 10)

    assert abs(solo.now_ns - began_ns - chance * ELECTION_TIMEOUT / 2) <= MS // 10
    assert solo.is_in(S.CANDIDATE_BALLOT)


def test_nomination_keeps_canvassing() -> None:
    """Hazard 6 of aeron.md §10: otherwise two nodes can starve one another."""
    solo = Solo(chance=0.99).reach_nominate()

    effects = solo.wait(2 * STATUS_INTERVAL)

    assert len(messages(effects, CanvassPosition, to=2)) == 2


def test_member_votes_for_a_candidate_while_it_waits_to_be_one() -> None:
    """shouldVoteForCandidateDuringNomination; seed 001, "Follower: NOMINATE"."""
    solo = Solo(chance=0.99, terms=[(0, 0, 64)]).reach_nominate()

    effects = solo.feed(solo.request_vote(1, 1, 0, 64))

    assert path(effects) == ["FOLLOWER_BALLOT"]
    assert messages(effects, Vote, to=1) == [
        Vote(
            candidate_term_id=TermId(1),
            log_leadership_term_id=TermId(0),
            log_position=64,
            candidate_member_id=MemberId(1),
            follower_member_id=MemberId(0),
            vote=True,
        )
    ]


# --- the leader's column


def test_winner_marks_its_term_before_it_speaks_of_it() -> None:
    """The mark is what Raft's first entry of a term is (paper §5.4.2): durable, then announced."""
    solo = Solo(terms=[(2, 0, 64)]).reach_candidate_ballot()
    effects = solo.feed(solo.vote(1, vote=True), solo.vote(2, vote=True))

    assert before(effects, fx.PersistRecordingLog, NewLeadershipTerm)
    assert before(effects, fx.PersistRecordingLog, fx.OpenLogPublication)
    entry = solo.ctx.recording_log.last_term()
    assert entry is not None
    assert (entry.leadership_term_id, entry.term_base_log_position, entry.log_position) == (3, 64, -1)
    assert solo.ctx.log_leadership_term_id == 3


def test_failed_terms_are_backfilled_as_empty_ones() -> None:
    """Hazard 19 of aeron.md §10: the terms of the recording log are contiguous."""
    solo = Solo(terms=[(1, 0, 64)], candidate_term_id=4).reach_leader_log_replication()

    terms = [
        (entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in solo.ctx.recording_log.entries
    ]
    assert terms == [(1, 0, 64), (2, 64, 64), (3, 64, 64), (4, 64, 64), (5, 64, -1)]


def test_winner_tells_each_member_which_term_follows_the_members_own() -> None:
    """Seed 001, "1st NewLeadershipTerm": the echo of the canvass, the next term, then the leader's own."""
    solo = Solo(terms=[(0, 0, 2848), (1, 2848, 4064)])
    solo.feed(solo.canvass(1, 0, 1312), solo.canvass(2, 1, 4064))
    solo.wait(ELECTION_TIMEOUT)
    effects = solo.feed(solo.vote(1, vote=True), solo.vote(2, vote=True))
    effects = solo.feed(solo.canvass(1, 0, 1312)) + effects

    one, two = messages(effects, NewLeadershipTerm, to=1)[0], messages(effects, NewLeadershipTerm, to=2)[0]
    assert (one.log_leadership_term_id, one.next_leadership_term_id) == (0, 1)
    assert (one.next_term_base_log_position, one.next_log_position) == (2848, 4064)
    assert (one.leadership_term_id, one.term_base_log_position, one.log_position) == (2, 4064, 4064)
    assert (two.log_leadership_term_id, two.next_leadership_term_id) == (1, 2)
    assert (two.next_term_base_log_position, two.next_log_position) == (4064, -1)
    assert (two.leader_member_id, two.log_session_id, two.is_startup) == (0, solo.ctx.log_session_id, True)


def test_canvass_with_a_log_of_the_leaders_own_term_has_no_next_term() -> None:
    """Source: aeron.md §2.4: -1 where there is none."""
    solo = Solo().reach_leader_log_replication()

    (message,) = messages(solo.feed(solo.canvass(1, 0, 0)), NewLeadershipTerm, to=1)

    assert (message.next_leadership_term_id, message.next_term_base_log_position, message.next_log_position) == (
        -1,
        -1,
        -1,
    )


def test_announcements_and_commit_positions_name_the_same_term() -> None:
    """shouldSendCommitPositionAndNewLeadershipTermEventsWithTheSameLeadershipTerm; hazard 4."""
    solo = Solo(terms=[(0, 0, 64)]).reach_leader_log_replication()

    effects = solo.wait(100 * MS)

    terms = {message.leadership_term_id for message in messages(effects, NewLeadershipTerm)}
    assert terms == {message.leadership_term_id for message in messages(effects, CommitPosition)} == {1}
    assert len(messages(effects, NewLeadershipTerm, to=1)) == len(messages(effects, CommitPosition, to=1)) == 5


def test_winner_waits_until_a_quorum_holds_its_log_in_its_term() -> None:
    """leaderShouldMoveToLogReplicationThenWaitForCommitPosition; Raft paper figure 8, hazard 1."""
    solo = Solo(terms=[(0, 0, 640)]).reach_leader_log_replication()

    solo.feed(solo.append_position(1, 320), solo.append_position(2, 640, term_id=0))
    assert solo.is_in(S.LEADER_LOG_REPLICATION)
    assert solo.ctx.commit_position == 0
    effects = solo.feed(solo.append_position(1, 640))

    assert path(effects) == ["LEADER_REPLAY"]
    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(640)]
    assert of(effects, fx.StartReplay) == [fx.StartReplay(640)]
    assert before(effects, fx.CommitAdvanced, fx.StartReplay)


def test_winner_with_an_empty_log_waits_for_a_quorum_in_its_term_before_it_appends() -> None:
    """A position of 0 is what a member that never spoke has; it must not pass for one that is in the term.

    Otherwise, in a new cluster:

    1. A leads term 0 with nobody following, appends its first entry [0, 96) and is cut off.
    2. B leads term 1 in the same way, appends its own first entry [0, 96) and crashes. C has nothing.
    3. A, back, leads term 2 with C's vote. It back-fills term 1 as empty at 96; A and C commit [0, 96) and more.
    4. B comes back with term 1 up to 96. A says that term 2 begins at 96: B follows, with other bytes below commit.

    Source: Raft paper §5.4.2; peers.md C4 class 10.
    """
    solo = Solo().reach_leader_log_replication()
    waiting = solo.wait(50 * MS)

    effects = solo.feed(solo.append_position(1, 0))

    assert (path(waiting), solo.ctx.log_buffer.append_position) == ([], 0)
    assert path(effects) == ["LEADER_REPLAY"]


def test_leader_replays_before_it_appends() -> None:
    """Seed 001, "Leader: LEADER_REPLAY": LEADER_INIT and LEADER_READY pass in the turn in which the replay ends."""
    solo = Solo(terms=[(0, 0, 640)]).reach_leader_log_replication()
    solo.feed(solo.append_position(1, 640))

    effects = solo.feed(ev.ReplayDone(640, 123))

    assert path(effects) == ["LEADER_INIT", "LEADER_READY", "CLOSED"]
    assert of(effects, fx.ElectionClosed) == [fx.ElectionClosed(TermId(1), MemberId(0), 640)]
    assert solo.ctx.cluster_clock.newest_time >= 123
    assert solo.ctx.log_buffer.append_position > 640


def test_leaders_announcements_go_on_while_it_replays() -> None:
    """Aeron.md §2.12: every heartbeat interval, or the followers give up."""
    solo = Solo(terms=[(0, 0, 640)]).reach_leader_log_replication()
    solo.feed(solo.append_position(1, 640))

    effects = solo.wait(60 * MS)

    assert len(messages(effects, NewLeadershipTerm, to=2)) == 3


@pytest.mark.parametrize("state", ["LEADER_LOG_REPLICATION", "LEADER_REPLAY"])
@pytest.mark.parametrize("kind", ["canvass", "canvass in a higher term", "new_term", "commit"])
def test_winner_gives_way_to_a_higher_term(state: str, kind: str) -> None:
    """Hazard 26 of aeron.md §10: it was stalled, and the others have elected someone else meanwhile."""
    solo = Solo(terms=[(0, 0, 64)]).reach_leader_log_replication()
    if state == "LEADER_REPLAY":
        solo.feed(solo.append_position(1, 64))
    message = {
        "canvass": solo.canvass(1, 2, 64),
        "canvass in a higher term": solo.canvass(1, 0, 64, term_id=2),
        "new_term": solo.new_term(1, 2, 64),
        "commit": solo.commit(1, 64, term_id=2),
    }[kind]
    assert solo.state.name == state

    effects = solo.feed(message)

    assert path(effects) == ["INIT"]
    assert of(effects, fx.StopLog) == [fx.StopLog()]


@pytest.mark.parametrize("state", ["LEADER_LOG_REPLICATION", "LEADER_REPLAY"])
def test_winner_that_hears_nobody_gives_up_though_links_are_up(state: str) -> None:
    """It is heard, and those who hear it follow it: nobody else would lead."""
    solo = Solo(terms=[(0, 0, 64)]).reach_leader_log_replication()
    if state == "LEADER_REPLAY":
        solo.feed(solo.append_position(1, 64))
    assert solo.state.name == state

    effects = solo.wait(500 * MS)

    assert path(effects)[:1] == ["INIT"]


def test_leader_of_a_first_election_says_that_it_starts_up() -> None:
    """shouldBaseStartupValueOnLeader: true in the first election of a process, false in later ones."""
    solo = Solo().lead()
    solo.feed(solo.request_vote(1, 1, 0, 1 << 20), ev.LogStopped(solo.ctx.log_buffer.append_position))
    solo.ctx.log_buffer.take_pending()
    first = {message.is_startup for message in messages(solo.effects, NewLeadershipTerm)}

    solo.effects.clear()
    solo.reach_leader_log_replication()

    assert first == {True}
    assert {message.is_startup for message in messages(solo.effects, NewLeadershipTerm)} == {False}


def test_reports_of_a_newer_term_are_not_the_winners_business() -> None:
    """They cannot be about its log."""
    solo = Solo(terms=[(0, 0, 64)]).reach_leader_log_replication()

    solo.feed(solo.append_position(1, 640, term_id=9))

    assert solo.is_in(S.LEADER_LOG_REPLICATION)
    assert messages(solo.take(), AppendPosition) == []
