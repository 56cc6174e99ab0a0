"""What a service is told of its member's role, in a whole cluster that loses its leader. Source: aeron.md §7.1."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from tests.unit.cluster.testing.simulation.small_cluster import Counter, small_cluster
from trimaran.service_api import ClientSession, Cluster, Role, SnapshotImage


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


@dataclass(frozen=True)
class Seen:
    """What a service saw of its member as it was given an entry."""

    member_id: int
    role: Role
    is_replaying: bool


def test_old_entries_are_replayed_by_followers_on_the_next_leader_too() -> None:
    """So a service that acts outside the cluster "only as leader" does not act again. Source: seed 003."""
    seen: dict[bytes, list[Seen]] = {}
    told: list[tuple[int, Role]] = []

    class Watching(Counter):
        """Keeps by message what each member was when the message came, and what it was told."""

        def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> Awaitable[None] | None:
            self._cluster = cluster
            return super().on_start(cluster, snapshot)

        def on_role_change(self, role: Role) -> None:
            told.append((self._cluster.member_id, role))

        def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
            cluster = self._cluster
            now = Seen(cluster.member_id, cluster.role, cluster.is_replaying)
            seen.setdefault(bytes(payload), []).append(now)
            super().on_session_message(session, timestamp, payload)

    with small_cluster(make_service=Watching) as small:
        small.start()
        small.send(3)
        first, live = small.leader.member_id, dict(seen)
        for member_id in small.cluster.members:
            small.cluster.kill(member_id)
        seen.clear()
        told.clear()
        small.start()
        small.wait(small.is_at_rest)
        second, replayed = small.leader.member_id, dict(seen)

    assert len(live) == len(replayed) == 3
    for members in live.values():
        assert {(now.member_id, now.role) for now in members} == {
            (member_id, Role.LEADER if member_id == first else Role.FOLLOWER) for member_id in (0, 1, 2)
        }
        assert not any(now.is_replaying for now in members)
    for members in replayed.values():
        assert {(now.role, now.is_replaying) for now in members} == {(Role.FOLLOWER, True)}
    assert told == [(second, Role.LEADER)]


def test_a_leader_that_is_cut_off_is_told_once_that_it_follows_and_nobody_is_told_of_a_candidate() -> None:
    told: list[Role] = []

    class Listening(Counter):
        """Keeps what any member was told."""

        def on_role_change(self, role: Role) -> None:
            told.append(role)

    with small_cluster(make_service=Listening) as small:
        small.start()
        first = small.leader.member_id
        small.cluster.pause(first)
        small.wait(lambda: small.cluster.leader() is not None and small.leader.member_id != first)
        small.cluster.resume(first)
        small.send(1)

    assert told == [Role.LEADER, Role.LEADER, Role.FOLLOWER]
