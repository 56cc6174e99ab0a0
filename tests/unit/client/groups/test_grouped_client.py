"""A client of groups, and members that move: fake members on real sockets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.fake_member import fake_cluster, session_event
from trimaran.client import ClientConfig, ClusterClient, GroupedClient, RejectedError, RequestFailedError
from trimaran.client.errors import ConnectTimeoutError
from trimaran.service_api.errors import ClusterError, ClusterTimeoutError, LocalProtocolError, SessionClosedError
from trimaran.service_api.groups.group import GroupTable
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


class _ReachableClient:
    """The client of a group: it says of each request in which group it ran, and refuses a payload."""

    def __init__(self, group_index: int) -> None:
        self.group_index = group_index
        self.batches: list[list[bytes]] = []

    async def request_many(
        self, payloads: list[bytes], *, timeout_s: float, return_exceptions: bool
    ) -> list[bytes | ClusterError]:
        assert return_exceptions
        self.batches.append(payloads)
        refused = RequestFailedError("refused")
        return [refused if each == b"refused" else b"%d:%b" % (self.group_index, each) for each in payloads]


class _DividedClient(GroupedClient):
    """A client of groups of which some cannot be reached."""

    def __init__(self, group_count: int, *, unreachable: frozenset[int] = frozenset()) -> None:
        super().__init__(ClientConfig(endpoints=("127.0.0.1:9",)), GroupTable(group_count))
        self.reached: list[Any] = [_ReachableClient(index) for index in range(group_count)]  # Any: what is called of it
        self._unreachable = unreachable

    async def for_group(self, group_index: int) -> ClusterClient:
        if group_index in self._unreachable:
            raise ConnectTimeoutError(1.0, {})
        client: ClusterClient = self.reached[group_index]
        return client


def _keys_of_groups(table: GroupTable) -> list[str]:
    """Return a key of each group."""
    keys = {table.group_of(f"key-{number}"): f"key-{number}" for number in range(100)}
    return [keys[index] for index in range(table.group_count)]


async def test_a_batch_is_one_batch_for_each_group_and_is_answered_by_position() -> None:
    groups = _DividedClient(2)
    first, second = _keys_of_groups(groups.table)

    replies = await groups.request_many([(second, b"a"), (first, b"b"), (second, b"c")])

    assert replies == [b"1:a", b"0:b", b"1:c"]
    assert [each.batches for each in groups.reached] == [[[b"b"]], [[b"a", b"c"]]]
    assert await groups.request_many([]) == []


async def test_a_group_that_is_not_reached_refuses_its_share_of_a_batch_alone() -> None:
    groups = _DividedClient(2, unreachable=frozenset({0}))
    first, second = _keys_of_groups(groups.table)
    requests = [(second, b"a"), (first, b"b"), (second, b"refused"), (first, b"c")]

    outcomes = await groups.request_many(requests, return_exceptions=True)

    assert outcomes[0] == b"1:a"
    assert [type(each) for each in outcomes[1:]] == [RejectedError, RequestFailedError, RejectedError]
    with pytest.raises(RejectedError) as caught:
        await groups.request_many(requests)
    assert ["position=1 of 4" in note and "errors=3" in note for note in caught.value.__notes__] == [True]


async def test_nothing_of_a_batch_is_sent_if_a_payload_is_none() -> None:
    groups = _DividedClient(2)
    first, second = _keys_of_groups(groups.table)
    wrong: Any = "text"

    with pytest.raises(LocalProtocolError, match="payload"):
        await groups.request_many([(first, b"a"), (second, wrong)])

    assert [each.batches for each in groups.reached] == [[], []]
