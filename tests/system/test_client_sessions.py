"""Sessions of clients: how they end, and clients that do not read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.append_list import ANSWER, CLOSE, FLOOD, FLOOD_COUNT, FLOODED, REQUEST
from tests.system.cluster_process import STEADY, TIMEOUT_S, SystemCluster
from tests.waiting import patient, wait_until, within
from trimaran.client import ClientConfig, ClusterClient
from trimaran.service_api import SessionClosedError
from trimaran.service_api.wire.session import EventCode

pytestmark = pytest.mark.slow

FLOODABLE = {"term_length_bytes": "1048576", "segment_length_bytes": "1048576", "mtu_length_bytes": "65504"}
"""Terms in which the answers of a flood, 64 KiB each, are allowed."""


async def _wait_closed_everywhere(cluster: SystemCluster, session_id: int, close_reason: str) -> None:
    for member in cluster.members.values():
        await member.wait_for_event("test_session.closed", cluster_session_id=session_id, close_reason=close_reason)


async def test_a_session_that_falls_silent_is_closed_on_every_member(data_dir: Path) -> None:
    """Seed 004: no message and no keep-alive within the session timeout; the client is told why."""
    async with SystemCluster(data_dir, settings={"session_timeout_ms": "1500"}) as cluster:
        await cluster.wait_for_leader()
        async with (
            cluster.requester(keep_alive_interval_s=0.2) as lively,
            cluster.requester(keep_alive_interval_s=3600.0) as silent,
        ):
            await silent.request()
            await _wait_closed_everywhere(cluster, silent.session_id, "TIMEOUT")
            await wait_until(lambda: silent.client.is_closed, timeout_s=TIMEOUT_S, what="the client to know")
            await lively.request(10)

            with pytest.raises(SessionClosedError, match=r"(?i)timeout"):
                silent.client.try_offer(REQUEST.pack(2))
            assert [code for code, _ in silent.events] == [EventCode.OK, EventCode.CLOSED]
            assert not lively.client.is_closed


async def test_a_session_that_its_client_closes_is_closed_on_every_member(data_dir: Path) -> None:
    """Seed 004: SessionCloseRequest, then a SessionCloseEvent with CLIENT_ACTION in the log."""
    async with SystemCluster(data_dir) as cluster:
        async with cluster.requester() as requester:
            await requester.request()

        await _wait_closed_everywhere(cluster, requester.session_id, "CLIENT_ACTION")


async def test_a_session_that_the_service_closes_is_closed_on_every_member(data_dir: Path) -> None:
    """Seed 004: ClientSession.close(); the answer sent before it still arrives, then CLOSED."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        requester.submit(CLOSE)
        await requester.wait_answered()
        await wait_until(lambda: requester.client.is_closed, timeout_s=TIMEOUT_S, what="the client to know")

        await _wait_closed_everywhere(cluster, requester.session_id, "SERVICE_ACTION")
        assert requester.events[-1][0] is EventCode.CLOSED


async def test_a_client_that_reads_nothing_does_not_stall_the_others_and_gets_all_later(data_dir: Path) -> None:
    """DESIGN §4: one slow client never stalls the others; 16 MiB of egress wait for it meanwhile."""
    async with SystemCluster(data_dir, settings=FLOODABLE) as cluster:
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(TIMEOUT_S), egress_queue_limit=1
        )
        async with ClusterClient.connect([], config=config) as slow, cluster.requester() as requester:
            await slow.offer(REQUEST.pack(1) + FLOOD)
            await wait_until(
                lambda: not slow._conductor.protocol.is_reading, timeout_s=TIMEOUT_S, what="the client to choke"
            )
            await requester.request(2_000)
            was_reading = slow._conductor.protocol.is_reading

            places = []
            async with within(TIMEOUT_S):
                async for message in slow.egress():
                    places.append(ANSWER.unpack_from(message.payload)[1])
                    if places[-1] != FLOODED:
                        break

            assert not was_reading
            assert places[:-1] == [FLOODED] * FLOOD_COUNT
        await cluster.wait_for_leader()  # a member that has never caught up has never voted
    cluster.check_answers(requester)


async def test_a_client_that_reads_nothing_is_dropped_at_the_egress_limit(data_dir: Path) -> None:
    """A queue of egress is bounded: at 64 MiB the connection is dropped with one clear line, and the others go on."""
    async with SystemCluster(data_dir, settings=STEADY | FLOODABLE) as cluster:
        config = ClientConfig(
            endpoints=tuple(cluster.endpoints), connect_timeout_s=patient(TIMEOUT_S), egress_queue_limit=1
        )
        async with ClusterClient.connect([], config=config) as slow, cluster.requester() as requester:
            leader = cluster.members[slow.leader_member_id]
            for sequence in range(1, 9):
                slow.try_offer(REQUEST.pack(sequence) + FLOOD)
            dropped = await leader.wait_for_event("egress.dropped")
            await requester.request(500)

            assert dropped["session_id"] == slow.cluster_session_id
            assert len(leader.events("egress.dropped")) == 1
            assert not requester.leaders
        await cluster.wait_for_leader()  # a member that has never caught up has never voted
    cluster.check_answers(requester)
