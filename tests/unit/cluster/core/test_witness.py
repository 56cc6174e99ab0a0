"""A witness votes, counts and has the log; it leads only where nobody else can yet, and hands over at once."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS, Node
from tests.unit.cluster.core.rosters import roster
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep, ControlToggle
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.service_api import ConfigurationError
from trimaran.service_api.types import MemberId

WITNESS = MemberId(2)


def busy_cluster(seed: int = 1) -> tuple[Cluster, Node, Node]:
    """Two members and a witness, with clients that send: the leader, and the other member."""
    cluster = Cluster(seed, witness_ids={WITNESS})
    cluster.start()
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.add_clients(3)
    cluster.run(1_200 * MS)
    leader = cluster.leader()
    assert leader is not None
    other = cluster.nodes[MemberId(1 - leader.member_id)]
    return cluster, leader, other


def leaders_from_now_on(cluster: Cluster) -> list[int]:
    """Which members come to lead, in order; the list grows as the cluster runs."""
    leaders: list[int] = []

    def on_effect(node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.ElectionClosed) and effect.leader_member_id == node.member_id:
            leaders.append(node.member_id)

    cluster.on_effect = on_effect
    return leaders


def leave_the_end_to_the_witness(cluster: Cluster, leader: Node, other: Node) -> int:
    """Have the leader commit with the witness alone, and die. Returns up to where clients have answers."""
    # What is on its way to the other already would come after all.
    assert cluster.run_until(lambda: other.ctx.append_position == leader.ctx.append_position, limit_ns=150 * MS)
    cluster.isolate(other.member_id, is_news=False)
    assert cluster.run_until(lambda: leader.ctx.commit_position > other.ctx.append_position + 256, limit_ns=150 * MS)
    committed = leader.ctx.commit_position
    cluster.crash(leader.member_id)
    cluster.heal()
    assert other.ctx.append_position < committed <= cluster.nodes[WITNESS].ctx.append_position
    return committed


def test_what_only_the_witness_has_comes_to_the_member_that_is_left_which_then_leads() -> None:
    for seed in range(5):
        cluster, leader, other = busy_cluster(seed)
        committed = leave_the_end_to_the_witness(cluster, leader, other)
        leaders = leaders_from_now_on(cluster)

        assert cluster.run_until(lambda: cluster.leader() is other, limit_ns=10_000 * MS)  # noqa: B023 in this pass

        assert leaders == [WITNESS, other.member_id]
        assert other.ctx.append_position > committed
        assert cluster.nodes[WITNESS].disk.log[:committed] == other.disk.log[:committed]
        cluster.settle()


def test_a_witness_that_leads_takes_no_input_of_clients_or_operators() -> None:
    cluster, leader, other = busy_cluster()
    leave_the_end_to_the_witness(cluster, leader, other)
    cluster.isolate(other.member_id, is_news=False)
    cluster.start(leader.member_id)
    witness = cluster.nodes[WITNESS]
    cluster.mend(other.member_id, WITNESS)
    assert cluster.run_until(lambda: witness.module.leader is not None, limit_ns=5_000 * MS)
    refused: list[str] = []

    def on_effect(node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.ActionProgressed) and effect.step is ActionStep.REFUSED:
            refused.append(effect.detail)

    cluster.on_effect = on_effect
    witness.post(ev.ActionRequested(1, ControlToggle.SNAPSHOT))
    witness.post(ev.TransferRequested(2, None))

    assert witness.module.actions.is_holding
    assert refused == ["a witness leads, only until another member has its whole log: ask again"] * 2


def test_a_witness_leaves_the_election_to_a_member_with_as_much_log() -> None:
    for seed in range(8):
        cluster, leader, other = busy_cluster(seed)
        cluster.clients.clear()
        cluster.run(200 * MS)
        leaders = leaders_from_now_on(cluster)

        cluster.crash(leader.member_id)
        assert cluster.run_until(lambda: cluster.leader() is other, limit_ns=5_000 * MS)  # noqa: B023 in this pass

        assert leaders == [other.member_id]


def test_a_witness_hands_over_to_a_reluctant_member_too() -> None:
    cluster, leader, other = busy_cluster()
    other.post(ev.ReluctanceChanged(Reluctance.DISK_NEARLY_FULL, "1 MiB free"))
    cluster.run(1_200 * MS)
    leave_the_end_to_the_witness(cluster, leader, other)

    assert cluster.run_until(lambda: cluster.leader() is other, limit_ns=10_000 * MS)


def test_leadership_is_not_handed_to_a_witness() -> None:
    cluster, leader, other = busy_cluster()
    cluster.crash(other.member_id)
    told: list[str] = []

    def on_effect(node: Node, effect: fx.Effect) -> None:
        if isinstance(effect, fx.ActionProgressed):
            told.append(effect.detail)

    cluster.on_effect = on_effect
    leader.post(ev.TransferRequested(1, int(WITNESS)))

    assert told == ["member 2 is a witness: it runs no service, and is not asked to lead"]


def test_a_witness_keeps_the_log_from_the_oldest_snapshot_that_a_member_has_as_its_newest() -> None:
    cluster, _, _ = busy_cluster()
    witness = cluster.nodes[WITNESS].ctx

    assert witness.log_purge_limit == 0
    witness.members[MemberId(0)].snapshot_position = 4096
    assert witness.log_purge_limit == 0
    witness.members[MemberId(1)].snapshot_position = 2048
    assert witness.log_purge_limit == 2048
    assert cluster.nodes[MemberId(0)].ctx.log_purge_limit is None


@pytest.mark.parametrize(("member_id", "runs_services"), [(2, True), (1, False)])
def test_a_process_is_the_kind_of_member_that_its_log_says(member_id: int, runs_services: bool) -> None:
    members = roster(member_id, 3, witness_ids={2})

    with pytest.raises(ConfigurationError, match=f"member_id={member_id} is a .* by the log"):
        members.check_kind(runs_services=runs_services)
    members.check_kind(runs_services=not runs_services)
