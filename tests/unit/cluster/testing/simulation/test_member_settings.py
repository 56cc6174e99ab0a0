"""A member whose settings differ from the others', in a whole cluster."""

from __future__ import annotations

import logging

import structlog
from structlog.testing import capture_logs

from tests.facts import has_facts
from tests.unit.cluster.testing.simulation.small_cluster import SmallCluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.service_api.cluster_id import parse_cluster_id


def give(small: SmallCluster, member_id: int, **settings: object) -> None:
    member = small.member(member_id)
    member.config = member.config.model_copy(update=settings)


def test_member_that_differs_takes_no_part_and_every_member_says_why() -> None:
    with small_cluster() as small, capture_logs() as logs:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        give(small, 2, service_queue_limit_bytes=1 << 20)

        for member_id in small.cluster.members:
            small.cluster.start(member_id)
        small.wait(lambda: small.cluster.leader() is not None)
        small.cluster.run_for(10 * SECOND)

        assert small.leader.member_id in (0, 1)
        other = small.member(2).node
        assert other is not None
        assert (other.delivered_position, other.module.ctx.append_position) == (0, 0)
        said = {
            (entry["peer_member_id"], entry["reason"]) for entry in logs if entry["event"] == "member.settings_differed"
        }
        here = (
            "service_queue_limit_bytes={} here, {} at member {}; this member ignores it until their settings are equal"
        )
        assert {(peer, reason.partition(": correct")[0]) for peer, reason in said} == {
            (2, here.format(64 << 20, 1 << 20, 2)),
            (1, here.format(1 << 20, 64 << 20, 1)),
            (0, here.format(1 << 20, 64 << 20, 0)),
        }


def test_member_of_another_cluster_is_told_how_to_come_back() -> None:
    """A founder that lost its directory may have begun a cluster of its own; no setting is wrong then."""
    with small_cluster() as small, capture_logs() as logs:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
        for member_id in small.cluster.members:
            give(small, member_id, cluster_id=parse_cluster_id(("1" if member_id < 2 else "2") * 16))

        for member_id in small.cluster.members:
            small.cluster.start(member_id)
        small.wait(lambda: small.cluster.leader() is not None)

        said = {
            entry["peer_member_id"]: entry["reason"]
            for entry in logs
            if entry["event"] == "member.settings_differed" and entry["peer_member_id"] == 2
        }
        assert said.keys() == {2}
        assert has_facts(said[2], "cluster_id=1111111111111111 here, 2222222222222222 at member 2")
        assert has_facts(said[2], "--member-id 2 --members 2=member-2:20110 --join 0=member-0:20110,1=member-1:20110")
