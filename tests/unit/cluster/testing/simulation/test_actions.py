"""Actions in a whole cluster of real nodes: a client that asks for a snapshot, waits out a suspension, a shutdown."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, invalidate
from trimaran.client import ClusterClient, IndeterminateError
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.module_state import ModuleState
from trimaran.cluster.documents.operations import ActionRefusedError
from trimaran.service_api import ClusterError
from trimaran.service_api.authorisation import AllowAll
from trimaran.service_api.types import MemberId


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with small_cluster(make_service=Keeper) as made:
        made.start()
        made.send(5)
        yield made


def order(small: SmallCluster, action: ControlToggle) -> None:
    leader = small.leader
    assert leader.node is not None
    assert leader.machine.loop is not None
    leader.machine.loop.call_soon(leader.node.agent.post, ev.ActionRequested(0, action))


def states(small: SmallCluster) -> set[ModuleState]:
    return {member.node.module.actions.state for member in small.cluster.members.values() if member.node is not None}


def run_client(small: SmallCluster, main: Coroutine[Any, Any, None]) -> str:  # Any: what coroutines are made of
    """Run a client of its own; gives its name."""
    name = f"client-{len(small.cluster.clients)}"
    small.cluster.add_client(name, lambda: main)
    return name


def run_to_the_end(small: SmallCluster, main: Coroutine[Any, Any, None]) -> None:  # Any: what coroutines are made of
    name = run_client(small, main)
    small.wait(lambda: not small.cluster.clients[name].is_running)


def allow_all(small: SmallCluster) -> None:
    for member in small.cluster.members.values():
        assert member.node is not None
        member.node.module.ctx.authorisation = AllowAll()


def test_client_that_asks_for_a_snapshot_is_told_where_it_was_taken(small: SmallCluster) -> None:
    """The answer comes when it is done, not when it is accepted as in Aeron."""
    outcomes: list[int] = []
    allow_all(small)

    async def main() -> None:
        async with ClusterClient.connect(config=small.client_config()) as client:
            outcomes.append(await client.take_snapshot(timeout_s=5))

    run_to_the_end(small, main())

    assert small.leader.node is not None
    assert outcomes == [small.leader.node.module.snapshots.newest_position]


def test_client_whose_leader_dies_is_told_that_nobody_knows(small: SmallCluster) -> None:
    outcomes: list[object] = []
    allow_all(small)
    leader = small.leader
    assert leader.node is not None
    actions = leader.node.module.actions

    async def main() -> None:
        async with ClusterClient.connect(config=small.client_config()) as client:
            for member in small.cluster.members.values():
                if member is not leader:
                    small.cluster.network.block(member.machine.address, leader.machine.address)
            try:
                outcomes.append(await client.take_snapshot(timeout_s=5))
            except IndeterminateError as error:
                outcomes.append(type(error))

    name = run_client(small, main())
    small.wait(lambda: actions.toggle is ControlToggle.SNAPSHOT)
    small.cluster.kill(leader.member_id)
    small.cluster.network.unblock_all()
    small.wait(lambda: not small.cluster.clients[name].is_running)

    assert outcomes == [IndeterminateError]


def test_client_waits_out_a_suspension_longer_than_its_session_would_live(small: SmallCluster) -> None:
    """Clients are not dropped, and nothing of them is taken."""
    answers: list[bytes] = []

    async def main() -> None:
        async with ClusterClient.connect(config=small.client_config()) as client:
            replies = client.egress()
            for number in range(200):
                await client.offer(b"%d" % number)
                answers.append(bytes((await anext(replies)).payload))

    name = run_client(small, main())
    small.wait(lambda: len(answers) > 5)
    order(small, ControlToggle.SUSPEND)
    small.wait(lambda: states(small) == {ModuleState.SUSPENDED})
    small.cluster.run_for(SECOND // 5)
    before = len(answers)
    small.cluster.run_for(5 * SECOND)
    assert len(answers) == before

    order(small, ControlToggle.RESUME)
    small.wait(lambda: not small.cluster.clients[name].is_running)

    assert answers == [b"%d" % number for number in range(200)]
    small.referee.actions.expect_held(small.referee.committed)


@pytest.mark.parametrize("action", [ControlToggle.SHUTDOWN, ControlToggle.ABORT])
def test_all_members_stop_at_one_position_and_start_again(small: SmallCluster, action: ControlToggle) -> None:
    """Source: aeron.md §3.11. The referee checks where each stops."""
    exits: dict[MemberId, BaseException | None] = {}
    small.cluster.on_member_exit = lambda member, error: exits.update({member.member_id: error})
    elections, loaded = small.referee.counts.elections, small.referee.counts.loaded_snapshots

    order(small, action)
    small.wait(lambda: len(exits) == 3)

    assert exits == dict.fromkeys(small.cluster.members)
    assert small.referee.counts.elections == elections
    small.start()
    small.send(5)
    expected = 3 if action is ControlToggle.SHUTDOWN else 0
    assert small.referee.counts.loaded_snapshots - loaded == expected
    small.referee.actions.expect_held(small.referee.committed)


@pytest.mark.parametrize("count", [1, 3])
def test_cluster_that_was_shut_down_starts_without_its_snapshots_when_they_are_invalidated(
    small: SmallCluster, count: int
) -> None:
    """ClusterTest.shouldRecoverWhenLastSnapshotForShutdownIsMarkedInvalid."""
    exits: list[MemberId] = []
    small.cluster.on_member_exit = lambda member, error: exits.append(member.member_id)
    loaded = small.referee.counts.loaded_snapshots
    order(small, ControlToggle.SHUTDOWN)
    small.wait(lambda: len(exits) == 3)
    for member in [*small.cluster.members.values()][:count]:
        invalidate(member)

    small.start()
    small.send(5)

    assert small.referee.counts.loaded_snapshots - loaded == 3 - count
    small.referee.expect_equal([*small.cluster.members.values()])


def test_node_gives_the_position_of_each_action_and_refuses_a_second_one(small: SmallCluster) -> None:
    node = small.leader.node
    assert node is not None
    outcomes: list[object] = []

    async def main() -> None:
        outcomes.append(await node.suspend())
        try:
            await node.take_snapshot()
        except ActionRefusedError as error:
            outcomes.append(str(error))
        outcomes.append(await node.resume())
        try:
            outcomes.append(await node.abort())
        except ClusterError as error:
            outcomes.append(error)

    loop = small.leader.machine.loop
    assert loop is not None
    loop.call_soon(loop.create_task, main())
    small.wait(lambda: len(outcomes) == 4)

    suspended, refused, resumed, aborted = outcomes
    assert refused == "snapshot refused: the cluster is suspended: resume it first"
    assert isinstance(suspended, int)
    assert isinstance(resumed, int)
    assert suspended < resumed
    assert aborted == resumed
