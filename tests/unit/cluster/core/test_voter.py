"""Voters: a member that has lost its directory must not elect a leader without what it once acknowledged.

Source: peers.md C4 class 17, "node id reuse with empty disk".
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.rosters import configured
from tests.unit.cluster.core.solo import S, Solo, before, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.messages.consensus import (
    APPEND_POSITION_FLAG_NO_VOTER,
    AppendPosition,
    CanvassPosition,
    RequestVote,
    StopCatchup,
    Vote,
)
from trimaran.cluster.messages.reads import LeadershipProbe, LeadershipProbeAck
from trimaran.service_api.types import MemberId, TermId


def newcomer(**facts: object) -> Solo:
    """Member 0 with an empty directory."""
    return Solo(**facts)  # type: ignore[arg-type]  # passed on


def configuration_of(*member_ids: int, log_position: int) -> Configuration:
    """Voters, by an entry of the log that ends there."""
    members = tuple(configured(each) for each in member_ids)
    return Configuration(members=members, high_member_id=member_ids[-1], log_position=log_position)


# --- whole clusters


def cluster_with_a_stale_member() -> Cluster:
    """Members 0 and 1 have committed what member 2 does not hold."""
    cluster = Cluster(3)
    cluster.start()
    cluster.add_clients(2)
    cluster.run(300 * MS)
    leader = cluster.leader()
    assert leader is not None
    cluster.isolate((leader.member_id + 2) % 3)
    cluster.run(200 * MS)
    cluster.clients.clear()
    cluster.run(50 * MS)
    return cluster


def test_member_that_lost_its_directory_elects_nobody_without_what_it_once_acknowledged() -> None:
    """1. The leader and a follower commit; the third member is cut off.

    2. The leader's process dies, the follower's directory is removed, the third member comes back with its old log.
    3. The two are a majority and could elect the third: what was acknowledged would be gone.
    """
    cluster = cluster_with_a_stale_member()
    leader = cluster.leader()
    assert leader is not None
    committed = leader.ctx.commit_position
    stale = cluster.nodes[MemberId((leader.member_id + 2) % 3)]
    assert len(stale.disk.log) < committed
    cluster.crash(leader.member_id)
    cluster.wipe((leader.member_id + 1) % 3)
    cluster.heal()
    cluster.start((leader.member_id + 1) % 3)

    effects: list[fx.Effect] = []
    cluster.on_effect = lambda _, effect: effects.append(effect)
    cluster.run(10_000 * MS)

    assert cluster.leader() is None
    assert ReasonKind.NO_QUORUM_OF_VOTERS in {refused.reason.kind for refused in of(effects, fx.NominationRefused)}
    cluster.settle()
    first = next(iter(cluster.nodes.values()))
    assert first.adapter.position >= committed


def test_terms_do_not_rise_while_no_member_is_a_voter() -> None:
    cluster = cluster_with_a_stale_member()
    leader = cluster.leader()
    assert leader is not None
    cluster.crash(leader.member_id)
    cluster.wipe((leader.member_id + 1) % 3)
    cluster.heal()
    cluster.start((leader.member_id + 1) % 3)

    cluster.run(60_000 * MS)

    terms = [node.disk.candidate_term_id for node in cluster.nodes.values()]
    assert max(terms) <= leader.disk.candidate_term_id + 1


def test_member_that_lost_its_directory_votes_again_when_it_has_caught_up() -> None:
    cluster = cluster_with_a_stale_member()
    leader = cluster.leader()
    assert leader is not None
    wiped = cluster.nodes[MemberId((leader.member_id + 1) % 3)]
    cluster.heal()
    cluster.run(1_000 * MS)

    cluster.wipe(wiped.member_id)
    cluster.start(wiped.member_id)
    assert cluster.run_until(lambda: wiped.module.follower is not None, limit_ns=5_000 * MS)
    assert wiped.disk.candidate_term_id < 0
    assert cluster.run_until(lambda: wiped.ctx.is_voter, limit_ns=1_000 * MS)
    assert wiped.disk.candidate_term_id == leader.ctx.leadership_term_id
    cluster.crash(leader.member_id)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.settle()


@pytest.mark.parametrize("started", [(0, 1, 2), (0, 1), (1, 2)], ids=str)
def test_cluster_forms_itself_of_members_with_empty_directories(started: tuple[int, ...]) -> None:
    cluster = Cluster(11)
    cluster.start(*started)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.settle()

    assert all(node.disk.candidate_term_id >= 0 for node in cluster.nodes.values())


def test_member_that_lost_its_directory_helps_a_deposed_leader_to_commit_nothing() -> None:
    """1. The two followers lose the leader, which does not know; one of them leads, and they commit.

    2. The other one's directory is removed, the new leader dies, and the old one is found again in time.
    3. The two are a majority, and what they append comes in the place of what was acknowledged.
    """
    cluster = Cluster(5)
    cluster.start()
    cluster.add_clients(4)
    cluster.run(300 * MS)
    deposed = cluster.leader()
    assert deposed is not None
    cluster.isolate(deposed.member_id, is_news=False)
    others = {MemberId(0), MemberId(1), MemberId(2)} - {deposed.member_id}
    for member_id in others:
        cluster._tell_link(member_id, deposed.member_id, is_up=False)
    assert cluster.run_until(lambda: cluster.leader() is not deposed, limit_ns=1_500 * MS)
    newer = cluster.leader()
    assert newer is not None
    begin = newer.ctx.log_buffer.append_position
    assert cluster.run_until(lambda: newer.ctx.commit_position > begin + 1_000, limit_ns=500 * MS)
    (wiped,) = others - {newer.member_id}

    cluster.wipe(wiped)
    cluster.crash(newer.member_id)
    cluster.start(wiped)
    cluster.mend(deposed.member_id, wiped)
    copying = cluster.nodes[wiped]
    assert cluster.run_until(lambda: copying.module.follower is not None, limit_ns=1_500 * MS)
    assert copying.ctx.leader_member_id == deposed.member_id
    cluster.run(3_000 * MS)

    cluster.heal()
    cluster.start(newer.member_id)
    cluster.settle()


# --- voting and standing


def test_newcomer_neither_votes_for_nor_against_a_candidate_with_a_log() -> None:
    """A no would be a veto against those who can decide; its canvass, which names no term, says why."""
    solo = newcomer()

    effects = solo.feed(solo.request_vote(1, 1, 0, 64))

    assert messages(effects, Vote) == []
    assert of(effects, fx.PersistCandidateTerm) == []
    assert of(effects, fx.VoteRefused) == [fx.VoteRefused(MemberId(1), 1, Reason(ReasonKind.NOT_A_VOTER))]
    assert [canvass.leadership_term_id for canvass in messages(effects, CanvassPosition, to=1)] == [-1]


def test_newcomer_that_heard_of_a_log_votes_for_no_empty_one() -> None:
    """The cluster was formed before; whose log is empty now may have lost it, too."""
    solo = newcomer()
    solo.feed(solo.canvass(2, 0, 64))

    effects = solo.feed(
        solo.request_vote(
            1,
            1,
            -1,
            0,
        ),
        solo.canvass(1, -1, 0),
    )

    assert messages(effects, Vote) == []
    assert path(effects) == []


def test_newcomer_that_waits_to_stand_gives_up_when_it_hears_of_a_log() -> None:
    solo = newcomer(chance=0.99).reach_nominate()

    effects = solo.feed(solo.canvass(1, 0, 64))
    effects += solo.wait(50 * MS)

    assert path(effects)[:1] == ["INIT"]
    assert of(effects, fx.PersistCandidateTerm) == []


def test_newcomer_says_why_it_does_not_stand() -> None:
    solo = newcomer()
    solo.feed(solo.canvass(1, 0, 64))

    solo.wait(2_000 * MS)

    assert of(solo.effects, fx.NominationRefused) == [fx.NominationRefused(Reason(ReasonKind.NOT_A_VOTER))]


def test_log_without_a_candidate_term_does_not_make_a_voter() -> None:
    """The file of the candidate term was removed: whom it voted for is forgotten, though the log is there."""
    solo = newcomer(terms=[(3, 0, 64)], candidate_term_id=-1)

    effects = solo.feed(solo.canvass(1, 3, 64, term_id=3), solo.canvass(2, 3, 64, term_id=3))
    effects += solo.feed(solo.request_vote(1, 4, 3, 64))
    effects += solo.wait(1_000 * MS)

    assert solo.is_in(S.CANVASS)
    assert messages(effects, Vote) == []


def test_newcomer_that_its_log_calls_the_only_voter_does_not_stand() -> None:
    """1. Member 0 forms a cluster alone; others come in, and a majority of them commits.

    2. The directory of member 0 is removed. What it copies again begins with the time when it was alone.
    3. The leader dies before the rest arrives: standing alone, member 0 would replace what was acknowledged.
    """
    solo = newcomer(member_count=1, is_started=False)
    solo.ctx.roster.hear(configuration_of(0, 1, 2, log_position=4096))
    solo.start()
    solo.feed(solo.new_term(1, 2, 4096, after=(0, 0, 64)), ev.ReplicationDone(64))
    solo.feed(solo.new_term(1, 2, 4096, after=(1, 64, 4096)))
    assert solo.is_in(S.FOLLOWER_LOG_REPLICATION)

    effects = solo.feed(ev.LinkChanged(MemberId(1), is_up=False), ev.LogStopped(64))
    effects += solo.wait(10_000 * MS)

    assert path(effects) == ["INIT", "CANVASS"]
    assert of(effects, fx.PersistCandidateTerm) == []
    assert of(effects, fx.NominationRefused) == [fx.NominationRefused(Reason(ReasonKind.NOT_A_VOTER))]
    assert path(solo.feed(solo.new_term(2, 3, 4096, after=(2, 4096, 4096)))) == ["FOLLOWER_LOG_REPLICATION"]


def test_newcomer_that_joins_a_cluster_does_not_form_one_of_empty_logs() -> None:
    """Who has heard of members that a log names knows that there is one; its own, and all that it reaches, may be lost.

    Without that, a wiped member and one that never joined would be a majority of a cluster of three.
    """
    solo = newcomer(is_started=False)
    solo.ctx.roster.hear(configuration_of(0, 1, 2, log_position=4096))
    solo.start()

    effects = solo.feed(solo.canvass(1, -1, 0), solo.canvass(2, -1, 0)) + solo.wait(10_000 * MS)
    effects += solo.feed(solo.request_vote(1, 0, -1, 0))

    assert messages(effects, Vote) == []
    assert of(effects, fx.PersistCandidateTerm) == []


# --- among those who can vote


def test_nomination_does_not_wait_for_a_newcomer_nor_count_it() -> None:
    solo = Solo(member_count=5, terms=[(0, 0, 64)])
    newcomers = [solo.canvass(member_id, -1, 0) for member_id in (1, 2, 3)]

    solo.feed(*newcomers, solo.canvass(4, 0, 64))
    solo.wait(590 * MS)
    solo.feed(*newcomers, solo.canvass(4, 0, 64))
    solo.wait(100 * MS)
    assert solo.is_in(S.CANVASS)
    (refused,) = of(solo.effects, fx.NominationRefused)
    assert refused.reason == Reason(ReasonKind.NO_QUORUM_OF_VOTERS, member_ids="1, 2, 3", voter_count=2, member_count=5)
    solo.feed(solo.canvass(3, 0, 0, term_id=0))

    assert solo.is_in(S.NOMINATE)


def test_ballot_does_not_wait_for_a_newcomer() -> None:
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.canvass(1, 0, 64), solo.canvass(2, -1, 0))
    solo.wait(50 * MS)
    assert solo.is_in(S.CANDIDATE_BALLOT)
    assert messages(solo.effects, RequestVote, to=2) == []

    solo.feed(solo.vote(1, vote=True))

    assert solo.is_in(S.LEADER_LOG_REPLICATION)


def test_ballot_goes_on_without_a_member_that_turns_out_to_be_a_newcomer() -> None:
    solo = Solo(terms=[(0, 0, 64)]).reach_candidate_ballot()
    solo.feed(solo.vote(1, vote=True))
    assert solo.is_in(S.CANDIDATE_BALLOT)

    solo.feed(solo.canvass(2, -1, 0))

    assert solo.is_in(S.LEADER_LOG_REPLICATION)


# --- gaining it


def test_newcomer_keeps_the_leaders_term_in_memory_until_an_entry_commits_that_came_after_it() -> None:
    """Then the term is durable before the leader hears that this member is counted again."""
    solo = newcomer()
    effects = solo.feed(solo.new_term(1, 2, 0, log_position=64, after=(0, 0, 0)), ev.ReplayDone(0, 0))
    effects += solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(64), ev.LogJoined(77))
    effects += solo.feed(StopCatchup(leadership_term_id=TermId(2), follower_member_id=MemberId(0)))
    assert solo.module.follower is not None
    effects += solo.feed(solo.commit(1, 64), ev.Recorded(96), ev.Recorded(128))
    assert of(effects, fx.PersistCandidateTerm) == []
    assert solo.ctx.candidate_term_id == 2
    reports = messages(effects, AppendPosition)
    assert reports
    assert all((report.flags or 0) & APPEND_POSITION_FLAG_NO_VOTER for report in reports)

    effects = solo.feed(solo.commit(1, 96), ev.Recorded(160))

    assert [effect.candidate_term_id for effect in of(effects, fx.PersistCandidateTerm)] == [2]
    assert before(effects, fx.PersistCandidateTerm, AppendPosition)
    assert [report.flags for report in messages(effects, AppendPosition)] == [0]
    assert solo.ctx.is_voter


def test_newcomer_begins_to_wait_again_with_each_leader() -> None:
    """The newer leader's log may hold what an older one appended before this member came."""
    solo = newcomer()
    solo.feed(solo.new_term(1, 2, 0, after=(0, 0, 0)), ev.ReplayDone(0, 0), ev.LogJoined(77), ev.Recorded(64))
    solo.feed(ev.LinkChanged(MemberId(1), is_up=False), ev.LogStopped(64))
    solo.feed(solo.new_term(2, 3, 64), ev.ReplayDone(0, 0), ev.LogJoined(77))
    assert solo.module.follower is not None

    solo.feed(solo.commit(2, 64))
    assert not solo.ctx.is_voter

    solo.feed(ev.Recorded(96), solo.commit(2, 96))
    assert solo.ctx.is_voter


def test_newcomer_votes_for_nobody_while_it_follows_as_no_voter() -> None:
    """It voted in term 3 for member 2, lost its directory and follows the leader of term 2: that vote may yet count."""
    solo = newcomer()
    solo.feed(solo.new_term(1, 2, 64, after=(0, 0, 64)), ev.ReplicationDone(64))
    solo.feed(solo.new_term(1, 2, 64), ev.ReplayDone(0, 0), ev.LogJoined(77), solo.commit(1, 64))
    assert solo.module.follower is not None

    effects = solo.feed(ev.LinkChanged(MemberId(1), is_up=False), ev.LogStopped(64))
    effects += solo.feed(solo.canvass(1, 2, 64), solo.request_vote(1, 3, 2, 64))

    assert messages(effects, Vote) == []
    assert of(effects, fx.PersistCandidateTerm) == []


def test_newcomer_does_not_confirm_that_a_leader_leads() -> None:
    """It may have helped to elect a newer one: a read that counts on its answer could be of an old state."""
    solo = newcomer()
    solo.feed(solo.new_term(1, 2, 0, after=(0, 0, 0)), ev.ReplayDone(0, 0), ev.LogJoined(77))
    probe = LeadershipProbe(leadership_term_id=TermId(2), probe_id=1, leader_member_id=MemberId(1))
    assert messages(solo.feed(probe), LeadershipProbeAck) == []

    solo.feed(ev.Recorded(32), solo.commit(1, 32))

    assert [ack.probe_id for ack in messages(solo.feed(probe), LeadershipProbeAck)] == [1]


def test_newcomer_follows_no_leader_older_than_the_one_it_followed() -> None:
    solo = newcomer()
    solo.feed(solo.new_term(1, 2, 0, after=(0, 0, 0)), ev.LinkChanged(MemberId(1), is_up=False), ev.LogStopped(0))

    effects = solo.feed(solo.new_term(2, 1, 0, after=(0, 0, 0)))

    assert path(effects) == []


def test_newcomer_that_has_caught_up_is_no_voter_yet() -> None:
    """What it copied it may have acknowledged once, and more; and it may have voted in a later term.

    It takes from the leader's archive what there was when it came, and is counted only for what comes after that.
    """
    solo = newcomer()
    solo.feed(solo.new_term(1, 0, 0, log_position=4096, commit=4096), ev.ReplayDone(0, 0))
    stop = StopCatchup(leadership_term_id=TermId(0), follower_member_id=MemberId(0))
    effects = solo.feed(ev.CatchupImageAvailable(77), ev.Recorded(3600), stop)
    assert of(effects, fx.JoinLiveLog) == []
    effects = solo.feed(ev.Recorded(4096))
    assert of(effects, fx.JoinLiveLog) == [fx.JoinLiveLog(77)]
    solo.feed(ev.LogJoined(77), stop)
    assert solo.module.follower is not None
    assert not solo.ctx.is_voter

    solo.feed(solo.commit(1, 4160), ev.Recorded(4128))
    assert solo.ctx.is_voter


# --- at the leader


def no_voter(solo: Solo, member_id: int, position: int) -> AppendPosition:
    """The report of a member that has forgotten its votes."""
    return solo.append_position(member_id, position, flags=APPEND_POSITION_FLAG_NO_VOTER)


def leading(**facts: object) -> Solo:
    """Member 0 leads, and has recorded and committed all it has."""
    solo = Solo(terms=[(0, 0, 64)], **facts).lead()  # type: ignore[arg-type]  # passed on
    solo.record()
    solo.feed(solo.append_position(1, solo.ctx.append_position))
    assert solo.ctx.commit_position == solo.ctx.append_position == solo.ctx.log_buffer.append_position
    return solo


def append(solo: Solo) -> int:
    """Have the leader append and record an entry. Returns where it ends."""
    assert solo.module.leader is not None
    solo.module.leader.publisher.append_padding()
    solo.record()
    return solo.ctx.append_position


def test_nothing_commits_by_a_member_that_has_forgotten_its_votes() -> None:
    solo = leading()
    committed, end = solo.ctx.commit_position, append(solo)

    solo.feed(no_voter(solo, 2, end))
    assert solo.ctx.commit_position == committed

    solo.feed(solo.append_position(1, end))
    assert solo.ctx.commit_position == end


def test_leader_steps_down_that_hears_only_members_that_have_forgotten_their_votes() -> None:
    """It can commit nothing, and its clients may find another."""
    solo = leading()
    for _ in range(20):
        solo.feed(no_voter(solo, 2, solo.ctx.append_position))
        solo.wait(200 * MS)

    assert solo.module.leader is None


def test_leader_of_a_still_log_appends_padding_for_a_member_that_has_forgotten_its_votes() -> None:
    """Once, and only where no entry is under way that serves as well."""
    solo = leading()
    end = solo.ctx.append_position

    solo.feed(solo.append_position(1, end), no_voter(solo, 2, end))
    assert solo.ctx.log_buffer.append_position == end
    solo.feed(solo.append_position(1, end), no_voter(solo, 2, end))
    assert solo.ctx.log_buffer.append_position == end + 32
    solo.record()
    solo.feed(no_voter(solo, 2, end), no_voter(solo, 2, end + 32), no_voter(solo, 2, end + 32))

    assert solo.ctx.log_buffer.append_position == end + 32
