"""A follower whose log ends before the leader's oldest segment: it gets the leader's snapshot, and disturbs nobody.

Source: Raft paper §7.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, messages, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.reason import ReasonKind
from trimaran.cluster.messages.consensus import Vote
from trimaran.service_api.types import MemberId, RecordingId


def reasons(effects: list[fx.Effect]) -> list[str]:
    wanted = ReasonKind.BELOW_OLDEST_SEGMENT
    return [str(changed.reason) for changed in of(effects, fx.StateChanged) if changed.reason.kind is wanted]


def behind() -> tuple[Solo, list[fx.Effect]]:
    """A member whose log ends at 800, which has asked leader 1 of term 6 for what it does not have any more."""
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))
    return solo, solo.feed(ev.BelowOldestSegment(800, 960), ev.LogStopped(800))


@pytest.mark.parametrize("way", ["replication", "catchup"])
def test_member_behind_the_oldest_segment_says_so_and_asks_for_a_snapshot(way: str) -> None:
    solo = Solo(terms=[(3, 0, 800)])
    after, base = ((5, 992, 1504), 1504) if way == "replication" else (None, 800)
    solo.feed(solo.new_term(1, 6, base, after=after, log_position=4096), ev.ReplayDone(0, 0))

    effects = solo.feed(ev.BelowOldestSegment(800, 960))

    assert reasons(effects) == [
        "log ends at 800, before the oldest position 960 of leader 1: this member copies its snapshot"
    ]
    assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(MemberId(1))]
    assert solo.module.last_election is not None
    assert solo.module.last_election.reason.kind is ReasonKind.BELOW_OLDEST_SEGMENT


def test_member_that_gets_a_snapshot_votes_meanwhile_and_leaves_its_leader_alone() -> None:
    solo, _ = behind()
    assert solo.is_in(S.CANVASS)

    assert path(solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)))) == []
    effects = solo.feed(solo.request_vote(2, 7, 6, 2048))

    assert [vote.vote for vote in messages(effects, Vote, to=2)] == [True]


def test_snapshot_that_goes_beyond_the_own_log_is_installed() -> None:
    solo, _ = behind()

    effects = solo.feed(ev.SnapshotFetched(1_120))

    assert effects == [fx.InstallSnapshot(1_120)]


def test_snapshot_that_the_own_log_has_reached_is_dropped() -> None:
    solo, _ = behind()
    solo.ctx.append_position = 1_120

    assert solo.feed(ev.SnapshotFetched(1_120)) == [fx.StopSnapshotFetch()]


def test_snapshot_that_could_not_be_had_is_asked_for_again_after_a_pause_that_grows() -> None:
    solo, _ = behind()
    announcement = solo.new_term(1, 6, 1504, after=(5, 992, 1504))

    for pause_ms in (500, 1_000, 2_000):
        solo.feed(ev.SnapshotFetchFailed("gone"))
        solo.now_ns += (pause_ms - 1) * MS
        assert path(solo.feed(announcement)) == []
        solo.now_ns += 2 * MS
        assert path(solo.feed(announcement)) == ["FOLLOWER_LOG_REPLICATION"]
        effects = solo.feed(ev.BelowOldestSegment(800, 960), ev.LogStopped(800))
        assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(MemberId(1))]


def test_another_leader_ends_the_fetch_from_the_old_one() -> None:
    solo, _ = behind()

    effects = solo.feed(solo.new_term(2, 7, 1504, after=(5, 992, 1504)))

    assert of(effects, fx.StopSnapshotFetch) == [fx.StopSnapshotFetch()]
    assert solo.feed(ev.SnapshotFetched(1_120)) == [fx.StopSnapshotFetch()]
    effects = solo.feed(ev.BelowOldestSegment(800, 960))
    assert of(effects, fx.FetchSnapshot) == [fx.FetchSnapshot(MemberId(2))]


def test_another_leader_may_have_what_this_one_has_not() -> None:
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)), ev.BelowOldestSegment(800, 960), ev.LogStopped(800))

    effects = solo.feed(solo.new_term(2, 7, 1504, after=(5, 992, 1504)))

    assert of(effects, fx.StartLogReplication) == [
        fx.StartLogReplication(MemberId(2), RecordingId(0), 992, MemberId(2))
    ]


@pytest.mark.parametrize("is_empty", [True, False])
def test_others_go_on_undisturbed(is_empty: bool) -> None:
    cluster = Cluster(5)
    cluster.start()
    cluster.add_clients(2)
    cluster.run(300 * MS)
    leader = cluster.leader()
    assert leader is not None
    behind = cluster.nodes[MemberId((leader.member_id + 1) % 3)]
    cluster.crash(behind.member_id)
    cluster.run(1_000 * MS)
    cluster.clients.clear()
    for node in cluster.nodes.values():
        node.oldest_position = len(leader.disk.log) // 2 & -32
    assert len(behind.disk.log) < leader.oldest_position
    if is_empty:
        cluster.wipe(behind.member_id)
    term_id = leader.ctx.leadership_term_id

    effects: list[tuple[int, fx.Effect]] = []
    cluster.on_effect = lambda node, effect: effects.append((node.member_id, effect))
    cluster.start(behind.member_id)
    cluster.run(70_000 * MS)

    own = [effect for member_id, effect in effects if member_id == behind.member_id]
    assert 3 <= len(reasons(own)) <= 12
    assert cluster.leader() is leader
    assert leader.ctx.leadership_term_id == term_id
    assert of([effect for member_id, effect in effects if member_id != behind.member_id], fx.StateChanged) == []
