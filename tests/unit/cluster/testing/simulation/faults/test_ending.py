"""The end of faults: which members of a simulated cluster have to stop then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from tests.unit.cluster.core.rosters import configured, roster
from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.testing.simulation.faults.ending import find_lingering
from trimaran.cluster.testing.simulation.faults.target import FaultTarget
from trimaran.service_api.types import MemberId


def test_a_removed_member_lingers_only_while_one_that_it_knows_can_tell_it() -> None:
    """Seed 41 with 3 members, one a witness: all members that the removed one knew had been replaced."""
    zero = roster(0, 3)
    newer = Configuration(members=(configured(4), configured(5)), high_member_id=5, log_position=256)
    removed = SimpleNamespace(
        member_id=MemberId(0), node=SimpleNamespace(module=SimpleNamespace(ctx=SimpleNamespace(roster=zero)))
    )
    core = {member_id: SimpleNamespace(member_id=MemberId(member_id)) for member_id in (4, 5)}
    membership = SimpleNamespace(current=newer, is_removed=lambda member_id: member_id == 0)
    target = SimpleNamespace(
        referee=SimpleNamespace(membership=membership),
        cluster=SimpleNamespace(members=core, running=lambda: [removed]),
        abandoned=[],
    )

    zero.hear_rumour(newer)
    assert MemberId(4) in zero.members
    assert find_lingering(cast(FaultTarget, target)) == []

    zero.hear(newer)
    assert find_lingering(cast(FaultTarget, target)) == [removed]
