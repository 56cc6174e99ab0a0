"""Members of a simulated cluster come, go and move; and who breaks a rule about that is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from tests.unit.cluster.core.vocabulary.test_configuration import entry, frames_of
from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, running_cluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import MS
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfigurationCause, MemberKind
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.messages.settings import MemberSettings, MembersNotice
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.faults.nemesis import KIND_NAMES, Nemesis
from trimaran.cluster.testing.simulation.world.expect import RuleBroken
from trimaran.service_api.types import MemberId
from trimaran.service_api.wire.message import decode_message, registry_of
from trimaran.service_api.wire.stream import FrameParser

UNIT_NS = QUICK.leader_heartbeat_timeout_ms * MS


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with running_cluster() as made:
        yield made


def nemesis_of(small: SmallCluster) -> Nemesis:
    """A nemesis that strikes only when it is told to."""
    return Nemesis(
        small.cluster, small.referee, small.trace, without=frozenset(KIND_NAMES), kill_client=lambda random: True
    )


def current(small: SmallCluster) -> Configuration:
    return small.referee.membership.current


def committed(configuration: Configuration) -> bytes:
    """Its entry in the log, as a frame."""
    return frames_of(entry(configuration))


# --- what the operator does


def test_a_machine_is_added_promoted_and_serves(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)

    assert nemesis.target.orders.add(Random(1))
    small.wait(lambda: current(small).voter_ids == {0, 1, 2, 3})
    small.send(5)

    assert small.referee.has_committed(small.member(3))


def test_a_member_that_is_removed_stops_and_is_missed_by_nobody(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)

    assert nemesis.target.orders.remove(Random(2))
    small.wait(lambda: len(current(small).members) == 2)
    (removed,) = set(small.cluster.members) - current(small).voter_ids
    small.wait(lambda: not small.cluster.members[removed].is_running)
    small.cluster.run_for(2 * UNIT_NS)
    nemesis.end()

    small.wait(lambda: small.is_at_rest(nemesis.core()))
    assert removed not in [member.member_id for member in nemesis.core()]
    small.referee.expect_equal(nemesis.core())


def test_a_member_is_replaced(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)

    assert nemesis.target.orders.replace(Random(3))
    small.wait(lambda: len(current(small).voter_ids) == 3 and 3 in current(small).voter_ids)

    assert len(current(small).members) == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_member_that_moves_is_restarted_where_it_is_dialled(small: SmallCluster, seed: int) -> None:
    nemesis = nemesis_of(small)

    assert nemesis.target.orders.move(Random(seed))
    small.wait(lambda: current(small).cause is ConfigurationCause.MOVE)
    small.cluster.run_for(2 * UNIT_NS)

    for one in current(small).members:
        assert small.cluster.members[one.member_id].config.me.endpoints == one.endpoints
    small.send(5)


def test_no_order_is_given_that_leaves_sound_members_no_majority(small: SmallCluster) -> None:
    nemesis = nemesis_of(small)
    small.referee.damaged[MemberId(0)] = None

    for seed in range(10):
        nemesis.target.orders.remove(Random(seed))
    small.cluster.run_for(4 * UNIT_NS)

    voters = [each.voter_ids for each in small.referee.membership._committed]
    assert voters[-1] != {0, 1, 2}
    assert all(2 * len(ids - {0}) > len(ids) for ids in voters)


def test_a_member_that_waits_for_members_of_before_is_told_of_those_there_are(small: SmallCluster) -> None:
    """It lost its disk; those whom its settings name then were all replaced before it was started again."""
    follower = small.follower
    nemesis_of(small)
    small.cluster.kill(follower.member_id)
    small.cluster.wipe(follower.member_id)
    small.referee.damaged[follower.member_id] = None
    small.cluster.rejoin(
        follower,
        [replace(current(small).members[0], member_id=MemberId(9), endpoints=small.cluster.endpoints_at(9, 0))],
    )

    small.cluster.start(follower.member_id)
    small.wait(lambda: small.referee.is_sound(follower))

    assert "9=" not in follower.config.join


def test_a_member_says_from_its_start_who_the_members_are_by_what_was_committed(small: SmallCluster) -> None:
    """Without a leader nothing is known to be committed by the log; one that lags may look for members that moved."""
    known, follower = current(small), small.follower
    for member in small.cluster.members.values():
        small.cluster.kill(member.member_id)

    small.cluster.start(follower.member_id)
    small.wait(lambda: follower.node is not None and follower.node.module.election is not None)

    assert follower.node is not None
    said = FrameParser(4_096).feed(follower.node.parts.links.members._own.encode())
    told = [decode_message(frame.payload, registry=registry_of(MemberSettings, MembersNotice)) for frame in said]
    assert [each.log_position for each in told if isinstance(each, MembersNotice)] == [known.log_position]


def has_voters(small: SmallCluster, voter_ids: set[int]) -> bool:
    """Whether these are the voters."""
    return current(small).voter_ids == voter_ids


def copies_what_was_alone(member: Member) -> bool:
    """Whether a member follows, and has of its log only what says that it is alone."""
    module = None if member.node is None else member.node.module
    election = None if module is None else module.election
    is_copying = election is not None and election.state is ElectionState.FOLLOWER_LOG_REPLICATION
    return module is not None and is_copying and module.ctx.roster.is_alone


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_member_that_once_was_alone_does_not_lead_while_it_copies_the_log_again(is_restarted: bool) -> None:
    """1. Member 0 forms a cluster alone, in a few terms; two others come in.

    2. It loses its disk and joins. What it copies first are the terms in which it was alone.
    3. Then all others stop: it must wait for them, also as a new process.
    """
    with small_cluster(settings=replace(QUICK, member_count=1)) as small:
        small.start()
        for _ in range(6):
            small.cluster.kill(0)
            small.cluster.start(0)
            small.send(5)
        nemesis = nemesis_of(small)
        for voter_ids in ({0, 1}, {0, 1, 2}):
            assert nemesis.target.orders.add(Random(1))
            small.wait(partial(has_voters, small, voter_ids))
        others, held = current(small).voter_ids - {0}, len(small.referee.committed)
        small.cluster.kill(0)
        small.cluster.wipe(0)
        small.referee.damaged[MemberId(0)] = small.referee.emptied[MemberId(0)] = None
        small.cluster.rejoin(small.member(0), current(small).members)
        small.wait(lambda: small.cluster.leader() is not None)

        small.cluster.start(0)
        small.wait(lambda: copies_what_was_alone(small.member(0)))
        for member_id in others:
            small.cluster.kill(member_id)
        if is_restarted:
            small.cluster.kill(0)
            small.cluster.start(0)
        small.cluster.run_for(20 * UNIT_NS)
        copied = small.member(0).node
        assert copied is not None
        assert copied.module.ctx.roster.is_alone
        assert small.cluster.leader() is None

        for member_id in others:
            small.cluster.start(member_id)
        small.send(5)
        assert len(small.referee.committed) > held


# --- rules


def grown(small: SmallCluster, **changes: object) -> Configuration:
    """What comes after the members of three: a learner more."""
    before = current(small)
    learner = replace(
        before.members[0], member_id=MemberId(3), kind=MemberKind.LEARNER, endpoints=small.cluster.endpoints_at(3, 0)
    )
    made = replace(
        before,
        members=(*before.members, learner),
        high_member_id=3,
        cause=ConfigurationCause.ADD,
        previous_log_position=before.log_position,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields of it


def test_a_learner_more_breaks_no_rule(small: SmallCluster) -> None:
    rules, end = small.referee.membership, len(small.referee.committed)

    rules.on_committed(committed(grown(small)), end)

    assert current(small).find(3) is not None
    assert rules.is_removed(0) is False


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"previous_log_position": 0}, "in one voter"),
        ({"high_member_id": 9}, "the highest id"),
    ],
)
def test_a_configuration_that_does_not_follow_is_told(
    small: SmallCluster, changes: dict[str, object], rule: str
) -> None:
    rules, end = small.referee.membership, len(small.referee.committed)

    with pytest.raises(RuleBroken, match=rule):
        rules.on_committed(committed(grown(small, **changes)), end)


def test_two_voters_less_at_once_are_told(small: SmallCluster) -> None:
    rules, end = small.referee.membership, len(small.referee.committed)
    made = replace(grown(small), members=current(small).members[:1], high_member_id=2)

    with pytest.raises(RuleBroken, match="in one voter"):
        rules.on_committed(committed(made), end)


def test_a_leader_without_votes_is_told(small: SmallCluster) -> None:
    rules, leader = small.referee.membership, small.leader

    rules.expect_elected(leader, 0, lambda member_id, term_id: leader.member_id)
    with pytest.raises(RuleBroken, match="of a majority"):
        rules.expect_elected(leader, 0, lambda member_id, term_id: None)


def test_a_member_that_was_removed_and_knows_it_does_not_stand(small: SmallCluster) -> None:
    rules, follower, end = small.referee.membership, small.follower, len(small.referee.committed)
    rules.expect_may_stand(follower, end)
    left = tuple(one for one in current(small).members if one.member_id != follower.member_id)
    rules._committed.append(replace(grown(small), members=left, log_position=end))

    with pytest.raises(RuleBroken, match="it was removed"):
        rules.expect_may_stand(follower, end)
