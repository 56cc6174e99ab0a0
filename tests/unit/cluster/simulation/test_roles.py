"""What a service is told of its member's role, in a whole cluster that loses its leader. Source: aeron.md §7.1."""

from __future__ import annotations

from collections.abc import Awaitable

from tests.unit.cluster.simulation.small_cluster import Counter, small_cluster
from trimaran.service_api import Cluster, Role, SnapshotImage


def test_service_is_told_when_its_member_begins_to_lead_and_when_it_does_no_more() -> None:
    told: dict[int, list[Role]] = {}

    class Listening(Counter):
        """Keeps what it was told, by member."""

        def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> Awaitable[None] | None:
            self._told = told.setdefault(cluster.member_id, [])
            return super().on_start(cluster, snapshot)

        def on_role_change(self, role: Role) -> None:
            self._told.append(role)

    with small_cluster(make_service=Listening) as small:
        small.start()
        first = small.leader.member_id
        at_start = {member_id: list(roles) for member_id, roles in told.items()}
        small.cluster.kill(first)
        small.wait(lambda: small.cluster.leader() is not None)
        second = small.leader.member_id
        small.send(1)

    assert second != first
    assert {member_id: roles[-1:] for member_id, roles in at_start.items() if roles[-1:] == [Role.LEADER]} == {
        first: [Role.LEADER]
    }
    assert told[second][-1] is Role.LEADER
    assert [roles.count(Role.LEADER) for _, roles in sorted(told.items())].count(1) == 2
