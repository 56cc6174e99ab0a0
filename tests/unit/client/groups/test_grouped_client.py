"""A client of groups, and members that move: fake members on real sockets."""

from __future__ import annotations

import pytest

from tests.unit.client.fake_member import fake_cluster, session_event
from trimaran.client import ClientConfig, GroupedClient, RejectedError
from trimaran.service_api.errors import ClusterTimeoutError, SessionClosedError
from trimaran.service_api.wire.session import EventCode


async def test_a_session_opens_again_where_the_members_have_moved_to() -> None:
    """Every endpoint of the configuration may be gone by then: the session before told where the others listen."""
    async with fake_cluster(2, leader=1) as cluster:
        first, second = cluster.members
        config = ClientConfig(endpoints=(first.endpoint,), connect_timeout_s=2.0)
        async with GroupedClient.connect(group_count=1, config=config) as groups:
            before = await groups.for_group(0)
            await first.stop()
            for connection in second.connections:
                connection.send(session_event(EventCode.CLOSED, session_id=before.cluster_session_id, leader=1))
            with pytest.raises(SessionClosedError):
                await anext(before.egress())

            after = await groups.for_group(0)

            assert before.is_closed
            assert after.leader_member_id == 1


async def test_the_limit_of_a_call_holds_for_the_session_that_it_opens() -> None:
    async with fake_cluster(1) as cluster:
        cluster.leader_member.is_answering = False
        config = ClientConfig(endpoints=(cluster.leader_member.endpoint,), connect_timeout_s=600.0)
        async with GroupedClient.connect(group_count=1, config=config) as groups:
            with pytest.raises(RejectedError, match=r"timeout_s=0\.05"):
                await groups.request("a", b"x", timeout_s=0.05)
            with pytest.raises(ClusterTimeoutError, match=r"timeout_s=0\.05"):
                await groups.query("a", b"x", timeout_s=0.05)
