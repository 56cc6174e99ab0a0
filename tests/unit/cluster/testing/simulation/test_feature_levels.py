"""A service in two versions: the newer one comes a member at a time, and its behaviour at one entry, amid faults.

The referee holds what each member was given, and the state after it, against every other member, also in replays.
"""

from __future__ import annotations

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, SmallCluster, small_cluster
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.service.service_cluster import ServiceCluster
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.world.expect import RuleBroken
from trimaran.service_api import ClientSession, Cluster, ClusteredService, ConfigurationError


class Adding(ClusteredService):
    """Counts its messages."""

    def __init__(self) -> None:
        self.total = 0
        self.cluster: Cluster | None = None

    def on_start(self, cluster: Cluster, snapshot: object) -> None:
        """Keep the cluster."""
        self.cluster = cluster

    def step(self) -> int:
        """What one message counts."""
        return 1

    def state_hash(self) -> int:
        """All of the state."""
        return self.total

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        """Count it, and answer."""
        self.total += self.step()
        session.offer(payload)


class AddingMore(Adding):
    """Knows both ways."""

    feature_level = 1

    def step(self) -> int:
        """What one message counts."""
        assert self.cluster is not None
        return 1_000 if self.cluster.feature_level >= 1 else 1


class Upgrade:
    """A cluster whose members get the code that is newest when they start."""

    def __init__(self, small: SmallCluster) -> None:
        self.small = small
        self.exits: dict[int, BaseException | None] = {}
        small.cluster.on_member_exit = lambda member, error: self.exits.__setitem__(member.member_id, error)

    def restart(self, member_id: int) -> None:
        """Kill a member, and start it with the code of now."""
        self.small.cluster.kill(member_id)
        self.small.cluster.start(member_id)
        self.small.wait(lambda: self.small.cluster.leader() is not None and self.small.is_at_rest())

    def order(self, member: Member, level: int | None = 1) -> None:
        """Have a member raise the level."""
        assert member.node is not None
        assert member.machine.loop is not None
        wanted = ActionRequested(0, ControlToggle.RAISE_FEATURE_LEVEL, feature_level=level)
        member.machine.loop.call_soon(member.node.agent.post, wanted)

    def totals(self) -> set[int]:
        """What the members' services have come to."""
        services = self.small.referee.services.first.values()
        return {service.total for service in services if isinstance(service, Adding)}

    def levels(self) -> list[int]:
        """What is in force on each running member."""
        return [
            member.node.module.ctx.feature_levels.feature_level
            for member in self.small.cluster.running()
            if member.node is not None
        ]


class Version:
    """Which code is installed."""

    def __init__(self) -> None:
        self.make: type[Adding] = Adding

    def __call__(self) -> Adding:
        """Make a service of it."""
        return self.make()


def has_heard_all(leader: Member) -> bool:
    """Whether the leader knows what each member can."""
    return leader.node is not None and None not in leader.node.module.ctx.find_known_levels().values()


def upgraded(small: SmallCluster, version: Version) -> Upgrade:
    """A cluster of which every member has the newer code, and that behaves as before."""
    upgrade = Upgrade(small)
    small.start()
    small.send(10)
    version.make = AddingMore
    for member_id in range(2):
        upgrade.restart(member_id)
    upgrade.order(small.leader)
    small.send(10)
    assert upgrade.levels() == [0, 0, 0]  # refused: one member has the older code
    upgrade.restart(2)
    small.wait(lambda: has_heard_all(small.leader))
    return upgrade


def test_behaviour_changes_at_one_entry_and_a_replay_of_everything_comes_to_the_same() -> None:
    version = Version()
    with small_cluster(1, QUICK, version) as small:
        upgrade = upgraded(small, version)

        upgrade.order(small.leader)
        small.wait(lambda: upgrade.levels() == [1, 1, 1])
        small.send(10)
        for member_id in range(3):
            upgrade.restart(member_id)

        assert upgrade.levels() == [1, 1, 1]
        assert upgrade.totals() == {10 + 10 + 10 * 1_000}


def test_a_member_that_goes_back_to_older_code_stops_before_the_entry() -> None:
    version = Version()
    with small_cluster(1, QUICK, version) as small:
        upgrade = upgraded(small, version)
        upgrade.order(small.leader)
        small.wait(lambda: upgrade.levels() == [1, 1, 1])
        member_id = small.follower.member_id
        version.make = Adding

        small.cluster.kill(member_id)
        small.cluster.start(member_id)
        small.wait(lambda: member_id in upgrade.exits)

        error = upgrade.exits[member_id]
        assert isinstance(error, ConfigurationError)
        assert "feature_level=1 is in force" in str(error)
        version.make = AddingMore
        upgrade.restart(member_id)
        assert upgrade.levels() == [1, 1, 1]


@pytest.mark.parametrize("seed", range(1, 9))
def test_all_members_have_it_or_none_when_the_leader_dies_with_the_order(seed: int) -> None:
    version = Version()
    with small_cluster(seed, QUICK, version) as small:
        upgrade = upgraded(small, version)
        leader = small.leader

        upgrade.order(leader)
        small.cluster.run_for(seed * 100_000)
        upgrade.restart(leader.member_id)
        small.send(10)

        assert len(set(upgrade.levels())) == 1
        assert len(upgrade.totals()) == 1


def test_a_service_that_goes_by_its_own_level_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the level is for: without it the members with newer code have another state at once."""
    monkeypatch.setattr(ServiceCluster, "feature_level", property(lambda self: 1))
    version = Version()
    with small_cluster(1, QUICK, version) as small, pytest.raises(RuleBroken):
        upgraded(small, version)
