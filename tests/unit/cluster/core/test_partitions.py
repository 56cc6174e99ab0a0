"""Liveness where the network is half there: one leader where a majority is connected, and terms that do not run away.

Source: aeron.md §2.7, §10 hazards 6-8; peers.md C4 class 21 (the Cloudflare outage of 2020); Raft thesis §4.2.3, §9.6.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.sampling import sampled
from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS, Node
from tests.unit.cluster.core.solo import of
from trimaran.cluster.core import effects as fx

pytestmark = pytest.mark.slow

MINUTE = 6_000 * MS
"""The harness runs ten times as fast as a node does by default."""

TERMS_A_MINUTE = 20


def settled(member_count: int = 3, *, seed: int = 3) -> tuple[Cluster, Node, list[Node]]:
    """A cluster at work: its leader, and the others in order."""
    cluster = Cluster(seed, member_count=member_count)
    cluster.start()
    cluster.add_clients(2)
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=3_000 * MS)
    cluster.run(300 * MS)
    leader = cluster.leader()
    assert leader is not None
    return cluster, leader, [node for node in cluster.nodes.values() if node is not leader]


def deafen(cluster: Cluster, node: Node, to: Iterable[Node] | None = None) -> None:
    for other in cluster.nodes.values() if to is None else to:
        cluster.mute(other.member_id, node.member_id)


def silence(cluster: Cluster, node: Node, to: Iterable[Node] | None = None) -> None:
    for other in cluster.nodes.values() if to is None else to:
        cluster.mute(node.member_id, other.member_id)


def expect_progress(cluster: Cluster, *, within_ns: int) -> None:
    """The cluster commits what clients send."""
    committed = len(cluster.referee.committed)
    assert cluster.run_until(lambda: len(cluster.referee.committed) > committed + 1000, limit_ns=within_ns), cluster


@pytest.mark.parametrize("member_count", [3, 5])
@pytest.mark.parametrize("shape", ["hears nobody", "heard by nobody", "does not hear the leader", "unheard by it"])
def test_follower_on_half_a_link_disturbs_nobody(shape: str, member_count: int) -> None:
    cluster, leader, followers = settled(member_count)
    follower = followers[0]
    match shape:
        case "hears nobody":
            deafen(cluster, follower)
        case "heard by nobody":
            silence(cluster, follower)
        case "does not hear the leader":
            deafen(cluster, follower, [leader])
        case _:
            silence(cluster, follower, [leader])
    term_id = cluster.term_id()

    cluster.run(MINUTE)

    assert cluster.leader() is leader
    assert cluster.term_id() == term_id
    expect_progress(cluster, within_ns=500 * MS)
    cluster.settle()
    assert cluster.term_id() <= term_id + 1


@pytest.mark.parametrize("is_news", [True, False])
@pytest.mark.parametrize("seed", sampled(range(4), {1, 3}))
def test_follower_that_reaches_all_but_the_leader_disturbs_nobody(seed: int, is_news: bool) -> None:
    """The Cloudflare-2020 shape: C cannot reach the leader A, but reaches B; also through another election."""
    cluster, leader, followers = settled(seed=seed)
    cluster.partition(leader.member_id, followers[1].member_id, is_news=is_news)
    term_id = cluster.term_id()
    cluster.run(MINUTE)
    assert cluster.leader() is leader
    assert cluster.term_id() == term_id

    cluster.crash(leader.member_id)
    cluster.start(leader.member_id)
    cluster.run(MINUTE)

    assert cluster.leader() is not None
    assert cluster.term_id() <= term_id + 5
    expect_progress(cluster, within_ns=1_000 * MS)
    cluster.settle()


@pytest.mark.parametrize("member_count", [3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_silent_leader_is_replaced_within_an_election_timeout_after_the_heartbeat_timeout(
    seed: int, member_count: int
) -> None:
    """It was stopped, or its network is gone: nobody's connections to it close. Issue 3's bound, ten times as fast."""
    cluster, leader, followers = settled(member_count, seed=seed)
    term_id = cluster.term_id()

    cluster.isolate(leader.member_id, is_news=False)

    limits = leader.ctx.config
    limit_ns = limits.leader_heartbeat_timeout_ns + limits.election_timeout_ns
    assert cluster.run_until(lambda: cluster.leader() in followers, limit_ns=limit_ns)
    assert cluster.term_id() <= term_id + 3
    cluster.settle()


@pytest.mark.parametrize("member_count", [3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_candidates_get_out_of_each_others_way_where_messages_take_as_long_as_nominations_differ(
    seed: int, member_count: int
) -> None:
    """Ballots that cannot be won are left at once: the delay before the next one has to grow, or they meet again."""
    cluster, leader, _ = settled(member_count, seed=seed)
    term_id = cluster.term_id()
    cluster.delay = lambda: 12 * MS

    cluster.crash(leader.member_id)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=1_000 * MS)
    assert cluster.term_id() <= term_id + 8
    cluster.settle()


@pytest.mark.parametrize("member_count", [3, 5])
def test_leader_that_is_heard_and_hears_nobody_steps_down(member_count: int) -> None:
    cluster, leader, followers = settled(member_count)
    term_id = cluster.term_id()
    deafen(cluster, leader)

    cluster.run(600 * MS)
    assert leader.module.leader is None
    assert cluster.run_until(lambda: cluster.leader() in followers, limit_ns=2_000 * MS)
    expect_progress(cluster, within_ns=2_000 * MS)
    cluster.run(MINUTE)

    assert cluster.term_id() <= term_id + 5
    cluster.settle()


def test_leader_that_some_cannot_answer_goes_on_with_the_others() -> None:
    cluster, leader, followers = settled(5)
    deafen(cluster, leader, followers[:2])
    term_id = cluster.term_id()

    cluster.run(MINUTE)

    assert (cluster.leader(), cluster.term_id()) == (leader, term_id)
    cluster.settle()


@pytest.mark.parametrize("seed", range(3))
def test_ring_in_which_each_hears_one_neighbour_has_no_leader_and_few_terms(seed: int) -> None:
    """Nobody can know that a majority hears it; when the ring is mended, the cluster is."""
    cluster, _, _ = settled(5, seed=seed)
    term_id = cluster.term_id()
    for source in range(5):
        for target in range(5):
            if target != (source + 1) % 5:
                cluster.mute(source, target)

    cluster.run(2 * MINUTE)

    assert cluster.leader() is None
    assert cluster.term_id() <= term_id + 5
    cluster.settle()


@pytest.mark.parametrize("member_count", [3, 5])
def test_ring_in_which_each_reaches_both_neighbours_has_a_leader(member_count: int) -> None:
    """In a ring of five each member is connected to three, itself counted."""
    cluster, _, _ = settled(member_count)
    term_id = cluster.term_id()
    for a in range(member_count):
        for b in range(a):
            if (a - b) % member_count not in (1, member_count - 1):
                cluster.partition(a, b)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=3_000 * MS)
    expect_progress(cluster, within_ns=3_000 * MS)
    cluster.run(MINUTE)

    assert cluster.leader() is not None
    assert cluster.term_id() <= term_id + TERMS_A_MINUTE
    cluster.settle()


def test_candidate_that_nobody_hears_wastes_few_terms() -> None:
    """It hears the canvass of another, and of its ballots nobody hears: no leader is possible."""
    cluster, leader, followers = settled()
    term_id = cluster.term_id()
    cluster.crash(leader.member_id)
    silence(cluster, followers[0])

    cluster.run(5 * MINUTE)

    assert cluster.term_id() <= term_id + 5 * TERMS_A_MINUTE
    cluster.settle()


@pytest.mark.parametrize("is_mute", [True, False])
def test_follower_that_comes_and_goes_raises_few_terms(is_mute: bool) -> None:
    cluster, leader, followers = settled()
    term_id = cluster.term_id()
    for _ in range(20):
        silence(cluster, followers[0]) if is_mute else cluster.isolate(followers[0].member_id)
        cluster.run(300 * MS)
        cluster.heal()
        cluster.run(300 * MS)

    assert cluster.leader() is leader
    assert cluster.term_id() == term_id
    cluster.settle()


@pytest.mark.parametrize("minutes", sampled([1, 3], [3]))
def test_member_in_a_higher_term_that_comes_and_goes_ends_few_terms(minutes: int) -> None:
    """It raised its term in vain, and does so each time; the leader gives way to it now and then, not each time."""
    cluster, _, followers = settled()
    restless, term_id = followers[0], cluster.term_id()
    elections: list[fx.Effect] = []
    cluster.on_effect = lambda _, effect: elections.append(effect)
    for _ in range(minutes * 60):
        cluster.crash(restless.member_id)
        restless.disk.candidate_term_id = cluster.term_id() + 1
        cluster.start(restless.member_id)
        cluster.run(MINUTE // 60)

    assert cluster.term_id() <= term_id + minutes * 60 * 2
    lost = [started for started in of(elections, fx.ElectionStarted) if "higher term" in str(started.reason)]
    assert len(lost) <= minutes * 60
    cluster.settle()


def test_no_of_a_member_that_only_one_other_hears_does_not_keep_all_from_a_leader() -> None:
    """1. The leader appends what nobody else has, and is then connected to one follower only.

    2. That follower is the only one that three of the five are connected to: it has to be the next leader.
    3. The old leader has the newest log, and says no to it at every ballot.
    """
    cluster, leader, (hub, spare, left, right) = settled(5)
    cluster.crash(spare.member_id)
    for node in (leader, hub, left, right):
        cluster.isolate(node.member_id, is_news=False)
    cluster.run(100 * MS)
    cluster.clients.clear()
    assert len(leader.disk.log) > max(len(node.disk.log) for node in (hub, left, right))
    cluster.crash(leader.member_id)
    cluster.start(leader.member_id)  # it comes back leading nobody, so that none can catch up with it
    for node in (leader, left, right):
        cluster.mend(node.member_id, hub.member_id)

    assert cluster.run_until(lambda: cluster.leader() is hub, limit_ns=MINUTE)
    cluster.settle()


def test_one_of_two_followers_is_spare_until_the_other_is_gone_or_an_election_begins() -> None:
    cluster, leader, (needed, other) = settled()
    assert [node.ctx.is_spare for node in (leader, needed, other)] == [False, False, True]

    cluster.partition(needed.member_id, other.member_id)
    cluster.run_until(lambda: not other.ctx.is_spare, limit_ns=MINUTE)
    assert [node.ctx.is_spare for node in (leader, needed, other)] == [False, False, False]

    cluster.heal()
    assert cluster.run_until(lambda: other.ctx.is_spare, limit_ns=MINUTE)
    cluster.crash(leader.member_id)
    assert cluster.run_until(lambda: other.module.election is not None, limit_ns=MINUTE)
    assert not other.ctx.is_spare
