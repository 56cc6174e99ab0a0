"""A standby that takes the log from another member: whom it asks, what it takes for the live log, when it gives up.

And the member that is asked: to whom it gives what.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.snapshots.test_standby_snapshots import OTHER_STANDBY, STANDBY, with_standbys
from tests.unit.cluster.core.solo import Solo, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.configuration import MemberKind
from trimaran.cluster.messages.consensus import (
    APPEND_POSITION_FLAG_RELAYED,
    AppendPosition,
    CatchupPosition,
    NewLeadershipTerm,
)
from trimaran.service_api.types import MemberId, TermId

END = 640
LEADER = MemberId(1)
HEARTBEAT_TIMEOUT = 200 * MS
PAUSE = 30_000 * MS


def asking(follower_id: int, *, position: int = 320, term_id: int = 1) -> CatchupPosition:
    return CatchupPosition(
        leadership_term_id=TermId(term_id),
        log_position=position,
        follower_member_id=MemberId(follower_id),
        catchup_endpoint="",
    )


def announcement(solo: Solo) -> NewLeadershipTerm:
    return solo.new_term(LEADER, 1, END, log_position=END)


def standby(*, source: MemberId = STANDBY, kind: MemberKind = MemberKind.STANDBY) -> Solo:
    """Member 0, a standby whose settings name a source."""
    return with_standbys(Solo(terms=[(0, 0, END)], log_source_id=source), me=kind)


def following(solo: Solo) -> Solo:
    """Let it follow its source in term 1."""
    solo.feed(announcement(solo), ev.ReplayDone(0, 0), ev.CatchupImageAvailable(77))
    assert solo.module.follower is not None
    return solo


# --- the member that is asked


def test_a_follower_replays_its_log_to_a_standby_that_asks_for_it() -> None:
    solo = with_standbys(Solo(terms=[(0, 0, END)]).follow())

    effects = solo.feed(asking(STANDBY))

    assert of(effects, fx.StartCatchupReplay) == [fx.StartCatchupReplay(STANDBY, 320, 77)]


@pytest.mark.parametrize(
    "message",
    [asking(2), asking(STANDBY, term_id=0), asking(STANDBY, position=END + 32)],
    ids=["a voter", "another term", "one that is ahead"],
)
def test_nobody_else_gets_it(message: CatchupPosition) -> None:
    """A voter asks the leader alone; who is ahead of this member, or not in its term, asks again."""
    solo = with_standbys(Solo(terms=[(0, 0, END)]).follow())

    assert of(solo.feed(message), fx.StartCatchupReplay) == []


# --- the standby


def test_a_standby_asks_its_source_and_not_the_leader() -> None:
    """Also where it has all that the leader has: what comes later comes from there, too."""
    solo = standby()

    effects = solo.feed(announcement(solo), ev.ReplayDone(0, 0))

    assert of(effects, fx.AcceptCatchup) == [fx.AcceptCatchup(77, STANDBY)]
    assert [m.log_position for m in messages(effects, CatchupPosition, to=STANDBY)] == [END]
    assert messages(effects, CatchupPosition, to=LEADER) == []


def test_it_asks_again_while_the_source_has_not_come_to_the_term() -> None:
    solo = standby()
    solo.feed(announcement(solo), ev.ReplayDone(0, 0))

    effects = solo.wait(5 * solo.ctx.config.leader_heartbeat_interval_ns)

    assert len(messages(effects, CatchupPosition, to=STANDBY)) == 1


def test_it_stays_on_the_replay_of_its_source_and_says_so_to_the_leader() -> None:
    solo = standby()
    solo.feed(announcement(solo), ev.ReplayDone(0, 0))

    effects = solo.feed(ev.CatchupImageAvailable(77))

    assert path(effects) == ["FOLLOWER_CATCHUP", "FOLLOWER_LOG_INIT", "FOLLOWER_READY", "CLOSED"]
    assert of(effects, fx.FollowCatchup) == [fx.FollowCatchup()]
    assert of(effects, fx.JoinLiveLog) == []
    (report,) = messages(effects, AppendPosition, to=LEADER)
    assert report.flags == APPEND_POSITION_FLAG_RELAYED


def test_it_follows_only_once_it_has_what_the_leader_had() -> None:
    solo = standby()
    solo.feed(solo.new_term(LEADER, 1, END, log_position=END + 640, commit=END + 640), ev.ReplayDone(0, 0))

    assert "CLOSED" not in path(solo.feed(ev.CatchupImageAvailable(77)))
    assert "CLOSED" in path(solo.feed(ev.Recorded(END + 640)))


@pytest.mark.parametrize(
    "event",
    [ev.LinkChanged(STANDBY, is_up=False), ev.LogImageClosed(77, "connection closed")],
    ids=["its process is gone", "its replay ended"],
)
def test_it_goes_to_the_leader_when_the_source_fails(event: object) -> None:
    solo = following(standby())

    solo.feed(event, ev.LogStopped(END))
    effects = solo.feed(announcement(solo), ev.ReplayDone(0, 0))

    assert solo.ctx.log_source_id == LEADER
    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]


def test_a_source_that_sends_nothing_of_what_is_committed_is_given_up() -> None:
    solo = following(standby())

    for _ in range(6):
        solo.feed(solo.commit(LEADER, END + 320))
        effects = solo.wait(HEARTBEAT_TIMEOUT // 4)
        if of(effects, fx.ElectionStarted):
            break

    (started,) = of(effects, fx.ElectionStarted)
    assert started.reason.name == "log_source_stalled"
    assert solo.ctx.choose_log_source(LEADER) == LEADER


def test_a_source_is_tried_again_after_a_pause_or_in_the_next_term_or_when_its_process_is_new() -> None:
    """A leader that dies ends its standbys' links, and these the replays of theirs: the source has not failed."""
    solo = following(standby())
    solo.feed(ev.LogImageClosed(77, "connection closed"))

    solo.ctx.now_ns += PAUSE - 1
    assert solo.ctx.choose_log_source(LEADER) == LEADER
    solo.ctx.now_ns += 1
    assert solo.ctx.choose_log_source(LEADER) == STANDBY

    solo.ctx.log_source.give_up(solo.ctx.leadership_term_id, solo.ctx.now_ns)
    assert solo.ctx.choose_log_source(LEADER) == LEADER
    solo.ctx.leadership_term_id = TermId(solo.ctx.leadership_term_id + 1)
    assert solo.ctx.choose_log_source(LEADER) == STANDBY

    solo.ctx.log_source.give_up(solo.ctx.leadership_term_id, solo.ctx.now_ns)
    solo.feed(ev.LinkChanged(STANDBY, is_up=False), ev.LinkChanged(STANDBY, is_up=True))
    assert solo.ctx.choose_log_source(LEADER) == STANDBY


@pytest.mark.parametrize("kind", [MemberKind.VOTER, MemberKind.LEARNER])
def test_only_a_standby_has_a_source(kind: MemberKind) -> None:
    assert standby(kind=kind).ctx.choose_log_source(LEADER) == LEADER


def test_a_source_that_leads_is_followed_as_every_leader() -> None:
    solo = standby(source=LEADER)

    effects = solo.feed(announcement(solo), ev.ReplayDone(0, 0))

    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]


# --- the leader


def test_a_leader_does_not_tell_a_relayed_standby_each_commit_position() -> None:
    """Its heartbeat does; a member that is neither relayed nor joined is told at once."""
    solo = with_standbys(Solo(terms=[(0, 0, END)]).lead())
    for member_id in (1, 2, OTHER_STANDBY):
        solo.feed(ev.LiveJoined(MemberId(member_id), END))
    solo.record()
    solo.feed(solo.append_position(STANDBY, END, flags=APPEND_POSITION_FLAG_RELAYED))

    effects = solo.feed(solo.append_position(1, solo.ctx.append_position))

    assert of(effects, fx.CommitAdvanced) != []
    assert [effect for effect in effects if isinstance(effect, fx.SendToMember)] == []
