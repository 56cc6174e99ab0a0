"""A shared connection, and members that move: fake members on real sockets."""

from __future__ import annotations

from tests.unit.client.fake_member import fake_cluster
from trimaran.client import ClientConfig, SharedConnection


async def test_a_session_opens_where_the_members_moved_to_while_there_was_none() -> None:
    """Every endpoint of the configuration may be gone by then: the last session was told where the others listen."""
    async with fake_cluster(2, leader=1) as cluster:
        first, second = cluster.members
        config = ClientConfig(endpoints=(first.endpoint,), connect_timeout_s=2.0)
        async with SharedConnection.connect(config=config) as shared:
            async with shared.open_session():
                await first.stop()
            await cluster.until(lambda: not second.connections)

            async with shared.open_session() as after:
                assert after.leader_member_id == 1
