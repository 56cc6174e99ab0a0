"""A client of groups, and members that move: fake members on real sockets."""

from __future__ import annotations

import pytest

from tests.unit.client.fake_member import fake_cluster, session_event
from trimaran.client import ClientConfig, GroupedClient
from trimaran.service_api.errors import SessionClosedError
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
