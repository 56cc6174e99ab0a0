"""The follower's column: from a leader's announcement to the live log. Case names are Aeron's `ElectionTest`."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, before, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.messages.consensus import AppendPosition, CanvassPosition, CatchupPosition, StopCatchup
from trimaran.service_api import InvariantViolation, Role
from trimaran.service_api.types import MemberId, TermId

HEARTBEAT_TIMEOUT = 200 * MS


def reports(effects: list[fx.Effect]) -> list[tuple[int, int, int | None]]:
    """The positions reported to member 1: (term, position, flags)."""
    return [(m.leadership_term_id, m.log_position, m.flags) for m in messages(effects, AppendPosition, to=1)]


def terms(solo: Solo) -> list[tuple[int, int, int]]:
    return [
        (entry.leadership_term_id, entry.term_base_log_position, entry.log_position)
        for entry in solo.ctx.recording_log.entries
    ]


# --- adopting a leader


def test_equal_log_goes_straight_to_the_live_log() -> None:
    """Seed 001, "Follower: FOLLOWER_REPLAY" to "FOLLOWER_READY"."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))

    effects = solo.feed(solo.new_term(1, 1, 64))
    assert path(effects) == ["FOLLOWER_REPLAY"]
    effects = solo.feed(ev.ReplayDone(0, 0))
    assert path(effects) == ["FOLLOWER_LOG_INIT", "FOLLOWER_LOG_AWAIT"]
    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]
    effects = solo.feed(ev.LogJoined(77))

    assert path(effects) == ["FOLLOWER_READY", "CLOSED"]
    assert reports(effects) == [(1, 64, 0)]
    assert solo.module.follower is not None


def test_term_is_marked_before_a_position_in_it_is_acknowledged() -> None:
    """Raft paper figure 8: a majority of marks is what lets the leader go ahead, so a mark must not be lost."""
    solo = Solo(terms=[(0, 0, 64)])

    effects = solo.feed(solo.new_term(1, 3, 64, after=(1, 64, 64)))

    assert before(effects, fx.PersistCandidateTerm, AppendPosition)
    assert before(effects, fx.PersistRecordingLog, AppendPosition)
    assert reports(effects) == [(3, 64, 0)]
    assert terms(solo) == [(0, 0, 64), (1, 64, 64), (2, 64, 64), (3, 64, -1)]
    assert solo.ctx.log_leadership_term_id == 3


def test_leader_of_the_same_term_is_followed_again_without_a_new_mark() -> None:
    """The link broke within the term."""
    solo = Solo(terms=[(0, 0, 64)]).follow()
    solo.feed(ev.LogImageClosed(77, "network"), ev.LogStopped(64))

    effects = solo.feed(solo.new_term(1, 1, 64))

    assert path(effects) == ["FOLLOWER_REPLAY"]
    assert of(effects, fx.PersistRecordingLog) == []


def test_first_term_of_an_empty_log_is_marked_from_the_beginning() -> None:
    """followerShouldUseInitialLeadershipTermIdAndInitialTermBaseLogPositionWhenRecordingLogIsEmpty."""
    solo = Solo()

    solo.feed(solo.new_term(1, 2, 0, after=(0, 0, 0)))

    assert terms(solo) == [(0, 0, 0), (1, 0, 0), (2, 0, -1)]


@pytest.mark.parametrize("state", ["CANVASS", "FOLLOWER_BALLOT"])
def test_announcement_about_another_log_is_answered_with_where_this_one_ends(state: str) -> None:
    """Aeron.md §2.4 onNewLeadershipTerm 1: the leader's answer to our canvass will fit."""
    solo = Solo(terms=[(0, 0, 64)])
    if state == "FOLLOWER_BALLOT":
        solo.feed(solo.request_vote(1, 1, 0, 64))

    effects = solo.feed(solo.new_term(1, 1, 64, echo=-1))

    assert [m.log_leadership_term_id for m in messages(effects, CanvassPosition, to=1)] == [0]
    assert solo.is_in(S.CANVASS)


@pytest.mark.parametrize("state", ["NOMINATE", "CANDIDATE_BALLOT"])
def test_member_that_stands_itself_follows_a_leader_of_its_term_or_a_higher_one(state: str) -> None:
    """shouldVoteForAppointedLeader and others: another one won."""
    solo = Solo(terms=[(0, 0, 64)], chance=0.99).reach_nominate()
    if state == "CANDIDATE_BALLOT":
        solo.wait(50 * MS)
    assert solo.state.name == state

    solo.feed(solo.new_term(1, 1, 64))

    assert solo.is_in(S.FOLLOWER_REPLAY)
    assert (solo.ctx.role, solo.ctx.leader_member_id) == (Role.FOLLOWER, 1)


# --- truncation


def test_what_never_committed_is_truncated_and_the_election_begins_again() -> None:
    """Aeron.md §2.5, first row: extra data in a term that lost."""
    solo = Solo(terms=[(3, 0, 1216)])

    effects = solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    assert path(effects) == ["INIT"]
    assert solo.feed(ev.LogStopped(1216)) == [fx.TruncateLog(992)]
    effects = solo.feed(ev.LogTruncated(992))

    assert path(effects) == ["CANVASS"]
    assert before(effects, fx.PersistRecordingLog, CanvassPosition)
    assert messages(effects, CanvassPosition)[0].log_position == 992
    assert terms(solo) == [(3, 0, -1)]


def test_truncation_drops_the_terms_that_began_beyond_it() -> None:
    solo = Solo(terms=[(3, 0, 992), (4, 992, 1216), (5, 1216, 1216)])

    solo.feed(solo.new_term(1, 6, 960, after=(6, 960, -1)), ev.LogStopped(1216), ev.LogTruncated(960))

    assert (terms(solo), solo.ctx.log_leadership_term_id) == ([(3, 0, -1)], 3)


def test_own_commit_position_is_never_truncated() -> None:
    """DESIGN §5, hazard 9 of aeron.md §10: stop the node instead, somebody's disk lied."""
    solo = Solo(terms=[(3, 0, 1216)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    solo.ctx.commit_position = 1024

    with pytest.raises(InvariantViolation, match=r"never truncated.*truncate_position=992.*commit_position=1024"):
        solo.feed(ev.LogStopped(1216))


def test_truncation_to_the_own_commit_position_is_fine() -> None:
    solo = Solo(terms=[(3, 0, 1216)])
    solo.ctx.commit_position = 992

    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))

    assert solo.feed(ev.LogStopped(1216)) == [fx.TruncateLog(992)]


def test_truncation_to_where_a_term_begins_keeps_the_mark_of_that_term() -> None:
    """The mark says that no older log can win here any more; the leader of that term may have committed on it.

    Source: election.py, "The term is marked before it is acknowledged".
    """
    solo = Solo(terms=[(0, 0, 640), (1, 640, 1280)])

    solo.feed(solo.new_term(1, 2, 640), ev.LogStopped(1280))
    effects = solo.feed(ev.LogTruncated(640))

    (canvass,) = messages(effects, CanvassPosition, to=2)
    assert (canvass.log_leadership_term_id, canvass.log_position) == (1, 640)


def test_log_that_turns_out_short_enough_needs_no_truncation() -> None:
    """What was being written never reached the disk."""
    solo = Solo(terms=[(3, 0, 1216)])

    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    effects = solo.feed(ev.LogStopped(992))

    assert (path(effects), of(effects, fx.TruncateLog)) == (["CANVASS"], [])


# --- FOLLOWER_LOG_REPLICATION


def test_a_canvass_after_a_copied_term_takes_the_log_from_nobody() -> None:
    """Nor does this member when it leads then: the one that it copied from is the leader of before."""
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    before = solo.ctx.log_source_id

    solo.feed(ev.ReplicationDone(992))

    assert (before, solo.ctx.log_source_id, solo.ctx.is_relayed) == (1, None, False)


def test_next_term_is_copied_as_a_whole_under_its_own_mark() -> None:
    """Aeron.md §2.5, third row; followerShouldProgressThroughInterimElectionsTerms."""
    solo = Solo(terms=[(3, 0, 992)])

    effects = solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))

    assert before(effects, fx.PersistRecordingLog, fx.StartLogReplication)
    assert of(effects, fx.StartLogReplication)[0].stop_position == 1504
    assert terms(solo) == [(3, 0, 992), (4, 992, 992), (5, 992, -1)]


def test_empty_terms_are_passed_in_the_same_turn() -> None:
    """followerShouldProgressThroughFailedElectionsTermsImmediatelyPriorToCurrent."""
    solo = Solo(terms=[(3, 0, 992)])

    effects = solo.feed(solo.new_term(1, 6, 1504, after=(4, 992, 992)))

    assert path(effects) == ["FOLLOWER_LOG_REPLICATION", "CANVASS"]
    assert of(effects, fx.StartLogReplication) == []
    assert solo.ctx.log_leadership_term_id == 4


def test_late_member_goes_round_by_round_to_the_leaders_term() -> None:
    """followerShouldReplicateReplayAndCatchupWhenLateJoiningClusterInLaterTerm: replicate, replay, catch up."""
    solo = Solo(terms=[(0, 0, 1312)])

    solo.feed(solo.new_term(1, 2, 4064, after=(1, 2848, 4064), log_position=6496), ev.ReplicationDone(2848))
    solo.feed(solo.new_term(1, 2, 4064, after=(1, 2848, 4064), log_position=6592), ev.ReplicationDone(4064))
    solo.feed(solo.new_term(1, 2, 4064, after=(2, 4064, -1), log_position=6656))
    solo.feed(ev.ReplayDone(0, 0))

    assert path(solo.effects) == [
        "CANVASS",
        "FOLLOWER_LOG_REPLICATION",
        "CANVASS",
        "FOLLOWER_LOG_REPLICATION",
        "CANVASS",
        "FOLLOWER_REPLAY",
        "FOLLOWER_CATCHUP_INIT",
        "FOLLOWER_CATCHUP_AWAIT",
    ]
    assert terms(solo) == [(0, 0, 2848), (1, 2848, 4064), (2, 4064, -1)]


def test_positions_reported_while_copying_are_of_the_older_term() -> None:
    """followerShouldReplicateAndSendAppendPositionWhenLogReplicationDone; they keep the member active, no more."""
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)), ev.Recorded(896))

    effects = solo.wait(45 * MS)

    assert reports(effects) == [(3, 896, 0), (3, 896, 0)]


def test_copying_that_stands_still_is_given_up() -> None:
    """followerShouldTimeoutLeaderIfReplicateLogPositionIsNotCommittedByLeader; progress buys time."""
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    solo.wait(HEARTBEAT_TIMEOUT - MS)
    solo.feed(ev.Recorded(896))
    solo.wait(HEARTBEAT_TIMEOUT - MS)
    assert solo.is_in(S.FOLLOWER_LOG_REPLICATION)

    effects = solo.wait(2 * MS)

    assert path(effects) == ["INIT"]


def test_leader_that_cannot_say_what_follows_is_not_followed() -> None:
    """Aeron.md §2.4, 4: the next term unknown is an error."""
    solo = Solo(terms=[(3, 0, 800)])

    effects = solo.feed(solo.new_term(1, 6, 1504, after=(-1, -1, -1)))

    assert path(effects) == ["INIT"]


def test_leader_that_would_have_committed_entries_cut_off_is_not_heard() -> None:
    """It may be anybody who calls itself a leader; with a true one, following it would lose what was acknowledged."""
    solo = Solo(terms=[(3, 0, 1216)])
    solo.ctx.commit_position = 1024

    (refused,) = solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))

    assert isinstance(refused, fx.MessageRefused)
    assert "expected at least commit_position=1024" in refused.fault
    assert solo.is_in(S.CANVASS)


def test_missed_term_without_an_end_is_a_broken_leader() -> None:
    """Every term before the leader's own is closed: else what would be copied?"""
    solo = Solo(terms=[(3, 0, 992)])

    (refused,) = solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, -1)))

    assert isinstance(refused, fx.MessageRefused)
    assert "next_log_position=-1 expected within term_base_log_position=1504" in refused.fault


# --- FOLLOWER_REPLAY and the commit position


def test_replay_never_passes_the_known_commit() -> None:
    """Hazard 2 of aeron.md §10: what lies beyond may yet be truncated."""
    solo = Solo(terms=[(0, 0, 640)])

    effects = solo.feed(solo.new_term(1, 1, 640, commit=320))

    assert [effect for effect in effects if isinstance(effect, fx.CommitAdvanced | fx.StartReplay)] == [
        fx.CommitAdvanced(320),
        fx.StartReplay(320),
    ]


def test_notified_commit_position_never_goes_back() -> None:
    """notifiedCommitPositionCannotGoBackwardsUponReceiving{CommitPosition,NewLeadershipTerm}; hazard 3."""
    solo = Solo(terms=[(0, 0, 640)])
    solo.feed(solo.new_term(1, 1, 640), solo.commit(1, 320, term_id=1))

    solo.feed(solo.commit(1, 96), solo.new_term(1, 1, 640, commit=96))

    assert (solo.ctx.notified_commit_position, solo.ctx.commit_position) == (320, 320)


@pytest.mark.parametrize("leader_id", [2, 1])
def test_commit_position_of_anyone_but_the_leader_of_this_term_is_not_heard(leader_id: int) -> None:
    solo = Solo(terms=[(0, 0, 640)])
    solo.feed(solo.new_term(1, 1, 640))

    solo.feed(solo.commit(leader_id, 320, term_id=1 if leader_id == 2 else 0))

    assert solo.ctx.commit_position == 0


def test_commit_position_is_nobodys_word_before_a_leader_is_adopted() -> None:
    """It speaks of the leader's log, which this one may differ from."""
    solo = Solo(terms=[(0, 0, 640)])

    solo.feed(solo.commit(1, 320, term_id=1))

    assert (solo.ctx.commit_position, solo.ctx.notified_commit_position) == (0, 0)


# --- catch-up


def reach_catchup_await() -> Solo:
    solo = Solo(terms=[(0, 0, 640)])
    solo.feed(solo.new_term(1, 1, 640, log_position=4096, commit=2048), ev.ReplayDone(640, 0))
    assert solo.is_in(S.FOLLOWER_CATCHUP_AWAIT)
    return solo


def test_member_behind_in_the_term_asks_for_a_catchup() -> None:
    """followerShouldReplayAndCatchupWhenLateJoiningClusterInSameTerm; seed 001, "CatchupPosition"."""
    solo = reach_catchup_await()

    assert messages(solo.effects, CatchupPosition, to=1) == [
        CatchupPosition(
            leadership_term_id=TermId(1),
            log_position=640,
            follower_member_id=MemberId(0),
            catchup_endpoint="host0:9003",
        )
    ]
    assert before(solo.effects, fx.AcceptCatchup, CatchupPosition)


def test_catchup_reports_its_progress_with_the_flag_and_commits_as_it_goes() -> None:
    """Seed 001, "AppendPosition": flags=1 in catch-up."""
    solo = reach_catchup_await()
    solo.feed(ev.CatchupImageAvailable(77))

    effects = solo.feed(ev.Recorded(1600))

    assert reports(effects) == [(1, 1600, 1)]
    assert of(effects, fx.CommitAdvanced) == [fx.CommitAdvanced(1600)]


def test_catchup_joins_the_live_log_when_it_is_near_its_end() -> None:
    """Aeron.md §2.3 FOLLOWER_CATCHUP: near is what the leader's window retains, here 512 bytes."""
    solo = reach_catchup_await()
    effects = solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(4096 - 544))
    assert of(effects, fx.JoinLiveLog) == []

    effects = solo.feed(ev.Recorded(4096 - 512))

    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]


def test_catchup_ends_when_the_leader_says_so() -> None:
    """Seed 001, "StopCatchup": the live log has taken over."""
    solo = reach_catchup_await()
    solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(4096), ev.LogJoined(77))
    stop = StopCatchup(leadership_term_id=TermId(1), follower_member_id=MemberId(0))

    ignored = solo.feed(stop.model_copy(update={"leadership_term_id": 0}))
    ignored += solo.feed(stop.model_copy(update={"follower_member_id": 2}))
    effects = solo.feed(stop)

    assert ignored == []
    assert path(effects) == ["FOLLOWER_LOG_INIT", "FOLLOWER_READY", "CLOSED"]
    assert of(effects, fx.CloseCatchup) == [fx.CloseCatchup()]
    assert reports(effects) == [(1, 4096, 0)]


@pytest.mark.parametrize("is_connected", [False, True])
def test_catchup_that_stands_still_is_given_up(is_connected: bool) -> None:
    """Aeron.md §2.3: no rise of the recorded position for a heartbeat timeout."""
    solo = reach_catchup_await()
    if is_connected:
        solo.feed(ev.CatchupImageAvailable(77))

    effects = solo.wait(HEARTBEAT_TIMEOUT)

    assert path(effects)[:1] == ["INIT"]


def test_catchup_that_has_joined_the_live_log_says_so_at_once() -> None:
    """Not at the next heartbeat: the leader replays to it until it knows."""
    solo = reach_catchup_await()
    solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(4096))

    effects = solo.feed(ev.LogJoined(77))

    assert reports(effects) == [(1, 4096, 1)]


def test_catchup_goes_on_when_the_live_log_was_joined_too_early() -> None:
    """The leader's window had moved on: catch up further, and join nearer. Hazard 24 of aeron.md §10."""
    solo = reach_catchup_await()
    solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(4096 - 512), ev.LogJoined(77))

    effects = solo.feed(ev.LogImageClosed(77, "catch up first"))
    assert solo.is_in(S.FOLLOWER_CATCHUP)
    effects += solo.feed(ev.Recorded(4096 - 288))
    assert of(effects, fx.JoinLiveLog) == []
    effects += solo.feed(ev.Recorded(4096 - 256))

    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]


def test_replay_of_another_session_is_not_the_one_that_is_awaited() -> None:
    solo = reach_catchup_await()

    assert solo.feed(ev.CatchupImageAvailable(78)) == []


def test_live_log_that_does_not_come_is_given_up() -> None:
    """Aeron.md §2.3 FOLLOWER_LOG_AWAIT."""
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.new_term(1, 1, 64), ev.ReplayDone(0, 0))
    assert solo.is_in(S.FOLLOWER_LOG_AWAIT)

    assert solo.feed(ev.LogJoined(78)) == []
    effects = solo.wait(HEARTBEAT_TIMEOUT)

    assert path(effects)[:1] == ["INIT"]


# --- the leader is lost, or replaced


FOLLOWER_STATES = [
    "FOLLOWER_LOG_REPLICATION",
    "FOLLOWER_REPLAY",
    "FOLLOWER_CATCHUP_AWAIT",
    "FOLLOWER_CATCHUP",
    "FOLLOWER_LOG_AWAIT",
]


def reach_follower_state(name: str) -> Solo:
    match name:
        case "FOLLOWER_LOG_REPLICATION":
            solo = Solo(terms=[(0, 0, 640)])
            solo.feed(solo.new_term(1, 2, 1504, after=(1, 992, 1504)))
        case "FOLLOWER_REPLAY" | "FOLLOWER_LOG_AWAIT":
            solo = Solo(terms=[(0, 0, 640)])
            solo.feed(solo.new_term(1, 2, 640))
            if name == "FOLLOWER_LOG_AWAIT":
                solo.feed(ev.ReplayDone(0, 0))
        case _:
            solo = reach_catchup_await()
            if name == "FOLLOWER_CATCHUP":
                solo.feed(ev.CatchupImageAvailable(77))
    assert solo.state.name == name
    return solo


@pytest.mark.parametrize("state", FOLLOWER_STATES)
@pytest.mark.parametrize("event", ["link", "log", "failure", "higher term", "higher commit"])
def test_follower_begins_again_when_its_leader_is_gone(state: str, event: str) -> None:
    """DESIGN §4: a closed link is news. Whatever runs is stopped first."""
    solo = reach_follower_state(state)
    if (state, event) == ("FOLLOWER_CATCHUP", "log"):
        return  # see test_catchup_goes_on_when_the_live_log_was_joined_too_early
    happening = {
        "link": ev.LinkChanged(MemberId(1), is_up=False),
        "log": ev.LogImageClosed(77, "connection closed"),
        "failure": ev.ActivityFailed("no archive"),
        "higher term": solo.new_term(2, 9, 640),
        "higher commit": solo.commit(2, 640, term_id=9),
    }[event]

    effects = solo.feed(happening)

    assert path(effects) == ["INIT"]
    assert of(effects, fx.StopLog) == [fx.StopLog()]
    assert solo.ctx.leader_member_id is None


@pytest.mark.parametrize("state", FOLLOWER_STATES)
def test_follower_does_not_mind_what_becomes_of_others(state: str) -> None:
    solo = reach_follower_state(state)
    solo.feed(ev.LogImageClosed(99, "another session"), ev.LinkChanged(MemberId(2), is_up=False))
    solo.feed(solo.canvass(2, 0, 64), solo.new_term(2, 0, 0), solo.append_position(2, 64), solo.vote(2, vote=True))

    assert solo.state.name == state


@pytest.mark.parametrize("state", ["FOLLOWER_REPLAY", "FOLLOWER_LOG_AWAIT"])
def test_completions_of_another_state_are_ignored(state: str) -> None:
    """They belong to an activity that was given up."""
    solo = reach_follower_state(state)

    solo.feed(ev.ReplicationDone(999), ev.CatchupImageAvailable(77), ev.LogStopped(1))

    assert solo.state.name == state
    assert solo.ctx.append_position == 640
