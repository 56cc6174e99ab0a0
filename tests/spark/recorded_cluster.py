"""A cluster of real nodes that lost its leader, and what it left: directories, logs of nodes, and who did what.

Three sessions (one ends by its client, one by the service, one falls silent), timers that fire, are cancelled and are
still waiting at the end, messages of one frame and of several; the leader is killed in between and comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.system.cluster_process import TIMEOUT_S, Leadership, SystemCluster
from tests.waiting import patient, wait_until, within
from trimaran.benchmarks.rig.member_status import wait_for_status
from trimaran.client import ClientConfig, ClusterClient
from trimaran.service_api.connecting import Connecting

SERVICE: Final = "tests.system.aeron_sample:AeronSampleService"
MEMBER_COUNT: Final = 3
SESSION_TIMEOUT_MS: Final = 3000
MESSAGE_LENGTHS: Final = (1, 100, 1000, 8000)
"""The payloads of a round of messages, in bytes; the last one needs several frames."""
ROUNDS_PER_TERM: Final = 15
FIRED_TIMER: Final = 1
WAITING_TIMER: Final = 2
CANCELLED_TIMER: Final = 4


@dataclass(frozen=True, slots=True)
class RecordedCluster:
    """What is left of it; nothing runs any more."""

    data_dir: Path
    first: Leadership
    """Before the leader was killed."""
    second: Leadership
    """Since then, to the end."""
    session_id: int
    """The session of the messages; its client closed it at the end."""
    closed_session_id: int
    """The session that the service closed, in the second term."""
    silent_session_id: int
    """The session that timed out."""

    def directory_of(self, member_id: int) -> Path:
        """Where a member kept its files."""
        return self.data_dir / f"member-{member_id}"

    @property
    def node_logs(self) -> list[Path]:
        """What the members printed, by member id."""
        return [self.data_dir / f"member-{member_id}.log" for member_id in range(MEMBER_COUNT)]


async def record_cluster(data_dir: Path) -> RecordedCluster:
    """Run the cluster; takes a few seconds."""
    settings = {"session_timeout_ms": str(SESSION_TIMEOUT_MS), "mtu_length_bytes": "1408"}
    async with SystemCluster(data_dir, service=SERVICE, settings=settings) as cluster:
        first = await cluster.wait_for_leader()
        async with _client(cluster) as client, _client(cluster, keep_alive_interval_s=3600.0) as silent:
            for command in (
                f"!timer {FIRED_TIMER} 50",
                f"!timer {WAITING_TIMER} 1000000",
                f"!timer {CANCELLED_TIMER} 1000000",
                f"!cancel {CANCELLED_TIMER}",
            ):
                await client.offer(command.encode())
            await _send_rounds(client)
            await _wait_delivered(cluster, client)

            cluster.members[first.leader_member_id].kill()
            second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
            await cluster.start(first.leader_member_id).wait_for_event("election.closed")
            await _send_rounds(client)
            async with _client(cluster) as leaver:
                await leaver.offer(b"!close")
                await _wait_closed(leaver)
            await _wait_closed(silent)
            found = RecordedCluster(
                data_dir,
                first,
                second,
                int(client.cluster_session_id),
                int(leaver.cluster_session_id),
                int(silent.cluster_session_id),
            )
        await _wait_without_sessions(cluster)
        await cluster.wait_for_equal_logs()
    return found


def _client(cluster: SystemCluster, *, keep_alive_interval_s: float = 0.2) -> Connecting[ClusterClient]:
    config = ClientConfig(
        endpoints=tuple(cluster.endpoints),
        connect_timeout_s=patient(TIMEOUT_S),
        new_leader_timeout_s=patient(TIMEOUT_S),
        keep_alive_interval_s=keep_alive_interval_s,
    )
    return ClusterClient.connect([], config=config)


async def _send_rounds(client: ClusterClient) -> None:
    for _ in range(ROUNDS_PER_TERM):
        for length in MESSAGE_LENGTHS:
            await client.offer(bytes(length))


async def _wait_delivered(cluster: SystemCluster, client: ClusterClient) -> None:
    """Wait until the messages are in the log: a request is answered after all of them."""
    async with within(TIMEOUT_S):
        await client.request(b"are you there")


async def _wait_without_sessions(cluster: SystemCluster) -> None:
    """Wait until every member has delivered the last close, which the leader confirms before it is in any file."""
    limit_s = patient(TIMEOUT_S)
    for member in cluster.running:
        await wait_for_status(
            cluster.processes, member.member_id, lambda status: not status.session_count, time_limit_s=limit_s
        )


async def _wait_closed(client: ClusterClient) -> None:
    await wait_until(lambda: client.is_closed, timeout_s=TIMEOUT_S, what="the session to end")
