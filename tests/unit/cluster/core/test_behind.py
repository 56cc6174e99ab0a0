"""A follower whose log ends before the leader's oldest segment: it says so and what to do, and disturbs nobody.

Source: aeron.md §9, themes 5 and 7.
"""

from __future__ import annotations

import pytest

from cluster.core import effects as fx
from cluster.core import events as ev
from cluster.core.reason import ReasonKind
from cluster.messages.consensus import Vote
from service_api.types import MemberId, RecordingId
from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, messages, of, path


def reasons(effects: list[fx.Effect]) -> list[str]:
    wanted = ReasonKind.BEHIND_OLDEST_SEGMENT
    return [str(changed.reason) for changed in of(effects, fx.StateChanged) if changed.reason.kind is wanted]


@pytest.mark.parametrize("way", ["replication", "catchup"])
def test_member_behind_the_oldest_segment_says_so_and_what_to_do(way: str) -> None:
    solo = Solo(terms=[(3, 0, 800)])
    after, base = ((5, 992, 1504), 1504) if way == "replication" else (None, 800)
    solo.feed(solo.new_term(1, 6, base, after=after, log_position=4096), ev.ReplayDone(0, 0))

    effects = solo.feed(ev.BehindOldestSegment(800, 960))

    assert reasons(effects) == [
        "log ends at 800, before the leader's oldest position 960: stop this member, copy the directory of another "
        "stopped member or restore a newer snapshot into it"
    ]


def test_member_behind_the_oldest_segment_asks_again_now_and_then_and_votes_meanwhile() -> None:
    solo = Solo(terms=[(3, 0, 800)])
    announcement = solo.new_term(1, 6, 1504, after=(5, 992, 1504))
    solo.feed(announcement, ev.BehindOldestSegment(800, 960), ev.LogStopped(800))
    assert solo.is_in(S.CANVASS)

    effects = solo.feed(announcement)
    assert path(effects) == []
    effects = solo.feed(solo.request_vote(2, 7, 6, 2048))
    assert [vote.vote for vote in messages(effects, Vote, to=2)] == [True]
    solo.wait(100 * MS)
    solo.now_ns += 30_000 * MS

    effects = solo.feed(solo.new_term(1, 7, 2048, after=(5, 992, 1504)))
    assert path(effects) == ["FOLLOWER_LOG_REPLICATION"]


def test_another_leader_may_have_what_this_one_has_not() -> None:
    solo = Solo(terms=[(3, 0, 800)])
    solo.feed(solo.new_term(1, 6, 1504, after=(5, 992, 1504)), ev.BehindOldestSegment(800, 960), ev.LogStopped(800))

    effects = solo.feed(solo.new_term(2, 7, 1504, after=(5, 992, 1504)))

    assert of(effects, fx.StartLogReplication) == [fx.StartLogReplication(MemberId(2), RecordingId(0), 992)]


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
    assert len(reasons(own)) == 3
    assert cluster.leader() is leader
    assert leader.ctx.leadership_term_id == term_id
    assert of([effect for member_id, effect in effects if member_id != behind.member_id], fx.StateChanged) == []
