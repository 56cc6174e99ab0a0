"""A standby that follows a standby: it has the whole log, goes to the leader when its source fails, and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import Counter, SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper
from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.membership.membership_control import has_log
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.service_api.types import MemberId

FIRST = MemberId(3)
SECOND_STANDBY = MemberId(4)


def context(member: Member) -> ConsensusContext:
    assert member.node is not None
    return member.node.module.ctx


def source_of(member: Member) -> MemberId | None:
    return None if member.node is None else member.node.module.ctx.log_source_id


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    """Three members, a standby, and a standby that follows it."""
    with small_cluster(seed=4, make_service=Counter) as made:
        made.start()
        made.send(20)
        made.add_member(FIRST, MemberChangeKind.ADD_STANDBY)
        made.add_member(SECOND_STANDBY, MemberChangeKind.ADD_STANDBY, log_source=str(FIRST))
        yield made


def test_the_second_standby_takes_its_log_from_the_first(small: SmallCluster) -> None:
    """Nothing of the log goes from the leader to it: the leader's links there carry no log."""
    second = small.member(SECOND_STANDBY)
    small.send(50)

    assert source_of(second) == FIRST
    assert source_of(small.member(FIRST)) == small.leader.member_id
    known = context(small.leader).members[SECOND_STANDBY]
    assert known.is_relayed
    assert known.live_join_position is None
    assert context(second).append_position == context(small.leader).append_position


def test_a_source_that_sends_nothing_takes_the_log_of_the_second_nowhere(small: SmallCluster) -> None:
    """What the second has came from the first alone: it stands still with it, until it gives it up."""
    second = small.member(SECOND_STANDBY)
    before = context(second).append_position
    small.cluster.pause(FIRST)

    small.cluster.add_client("late", lambda: small._client("late", 20, 8))
    small.wait(lambda: context(small.leader).commit_position > before)
    small.cluster.run_for(SECOND // 20)
    assert context(second).append_position == before

    small.wait(lambda: source_of(second) == small.leader.member_id)
    small.wait(lambda: context(second).append_position == context(small.leader).append_position)


def test_the_second_goes_to_the_leader_when_the_first_dies_and_comes_back_to_it(small: SmallCluster) -> None:
    second = small.member(SECOND_STANDBY)
    small.cluster.kill(FIRST)
    small.send(20)

    assert source_of(second) == small.leader.member_id
    small.cluster.start(FIRST)
    small.wait(lambda: source_of(second) == FIRST, limit_ns=60 * SECOND)
    small.send(20)
    assert source_of(second) == FIRST


def test_the_chain_goes_on_in_the_next_term(small: SmallCluster) -> None:
    second = small.member(SECOND_STANDBY)
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    small.send(20)

    small.wait(lambda: source_of(second) == FIRST)
    small.send(20)
    assert source_of(second) == FIRST


def test_what_a_source_cannot_give_of_an_earlier_term_comes_from_the_leader(small: SmallCluster) -> None:
    """The second was away for a term; its source is away when it comes back."""
    second = small.member(SECOND_STANDBY)
    small.cluster.kill(SECOND_STANDBY)
    small.send(20)
    small.cluster.kill(FIRST)
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    small.send(20)
    small.cluster.start(SECOND_STANDBY)

    small.wait(lambda: second.node is not None and small.is_at_rest([second]))
    assert source_of(second) == small.leader.member_id


def test_a_promoted_standby_takes_the_log_from_the_leader(small: SmallCluster) -> None:
    """A voter that waited for a standby would make commits slower."""
    leading = context(small.leader)
    small.wait(lambda: has_log(leading, leading.members[SECOND_STANDBY]))
    change = MemberChange(MemberChangeKind.PROMOTE, SECOND_STANDBY)
    small.order(ActionRequested(0, ControlToggle.CHANGE_MEMBERS, change=change))

    small.wait(lambda: source_of(small.member(SECOND_STANDBY)) == small.leader.member_id)
    small.send(20)


def test_members_copy_what_the_second_standby_took() -> None:
    """The first is away: the snapshot of the end of the chain reaches every member."""
    with small_cluster(make_service=Keeper) as small:
        small.start()
        small.send(20)
        small.add_member(FIRST, MemberChangeKind.ADD_STANDBY)
        second = small.add_member(SECOND_STANDBY, MemberChangeKind.ADD_STANDBY, log_source=str(FIRST))
        assert source_of(second) == FIRST
        small.order(ActionRequested(0, ControlToggle.STANDBY_SNAPSHOT))
        small.wait(lambda: all(context(each).newest_snapshot_position > 0 for each in small.cluster.running()))
        small.cluster.kill(FIRST)
        small.send(20)

        before = context(small.leader).newest_snapshot_position
        small.order(ActionRequested(0, ControlToggle.STANDBY_SNAPSHOT))
        small.wait(lambda: all(context(each).newest_snapshot_position > before for each in small.cluster.running()))
