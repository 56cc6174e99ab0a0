"""A simulated cluster runs the real node, and does to it what is asked, to the process or to the machine."""

from __future__ import annotations

import asyncio

from tests.unit.cluster.testing.simulation.small_cluster import QUICK, Counter, running_cluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import MS, SECOND
from trimaran.client import ClusterClient
from trimaran.cluster.testing.simulation.cluster import SimulatedCluster
from trimaran.service_api import Cluster, ConfigurationError, SnapshotImage
from trimaran.service_api.types import MemberId


def test_starting_what_runs_and_pausing_what_does_not_mean_nothing() -> None:
    with running_cluster(message_count=1) as small:
        leader = small.leader
        node = leader.node
        small.cluster.start(leader.member_id)
        small.cluster.resume(leader.member_id)
        assert leader.node is node

        small.cluster.kill(leader.member_id)
        small.cluster.pause(leader.member_id)
        small.cluster.resume(leader.member_id)
        assert not leader.is_running


def test_a_member_that_stops_in_order_says_so_and_one_that_cannot_start_says_why() -> None:
    exits: list[tuple[int, str]] = []

    def fail(name: str, path: object, length: int) -> None:
        raise OSError(5, "no disk")

    with running_cluster(message_count=1) as small:
        small.cluster.on_member_exit = lambda member, error: exits.append((member.member_id, repr(error)))
        first, second = small.followers
        for member in (first, second):
            loop = member.machine.loop
            assert member.node is not None
            assert loop is not None
            loop.call_soon(member.node.stop)
        small.wait(lambda: len(exits) == 2)
        assert sorted(exits) == sorted([(first.member_id, "None"), (second.member_id, "None")])
        assert first.refusal is None

        first.machine.on_disk_operation = fail
        small.cluster.start(first.member_id)
        small.wait(lambda: len(exits) == 3)
        assert isinstance(first.refusal, ConfigurationError)
        assert "no disk" in str(first.refusal)
        assert first.node is None


def test_what_a_client_leaves_unhandled_is_kept_with_its_address() -> None:
    async def fail() -> None:
        async with ClusterClient.connect(config=small.client_config()):
            asyncio.get_running_loop().call_soon(divmod, 1, 0)
            await asyncio.sleep(0.1)

    with running_cluster(message_count=1) as small:
        small.cluster.add_client("careless", fail)
        small.cluster.run_for(SECOND)

        ((address, error),) = small.cluster.unhandled
        assert address == "careless"
        assert isinstance(error, ZeroDivisionError)


def test_clocks_differ_as_they_are_told_and_the_cluster_works() -> None:
    skews = iter([(20_000, 60_000 * MS), (-20_000, -60_000 * MS), (0, 0)])
    cluster = SimulatedCluster(1, QUICK, lambda member: Counter(), clock_skew=lambda random: next(skews))
    try:
        cluster.run_for(10 * SECOND)
        times = [member.machine.clock.epoch_time() for member in cluster.members.values()]
        assert [(time - times[2] + 500) // 1_000 for time in times] == [60, -60, 0]
        ticks = [member.machine.clock.monotonic_ns() for member in cluster.members.values()]
        assert [tick - ticks[2] for tick in ticks] == [200 * MS, -200 * MS, 0]
    finally:
        cluster.close()


class SlowStarter(Counter):
    """Takes a second to load its state."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        """Wait."""
        await asyncio.sleep(1.0)


def test_a_member_may_be_told_to_stop_while_its_service_loads_its_state() -> None:
    with small_cluster(make_service=SlowStarter) as small:
        member = small.cluster.members[MemberId(0)]
        small.cluster.start(0)
        small.wait(lambda: member.node is not None)
        small.cluster.run_for(100 * MS)
        assert member.node is not None
        member.node.stop()

        small.wait(lambda: not member.is_running)

        assert member.refusal is None
        assert not any("CANVASS" in line for line in small.lines)
