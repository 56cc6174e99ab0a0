"""Three members on this machine, and what an operator does to them: kill, start again, take a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Final

from trimaran.cluster.cli.shared.cluster_report import ask_members, make_report
from trimaran.cluster.cli.shared.local_nodes import LocalNodes, free_base_ports
from trimaran.cluster.core.vocabulary.control_toggle import ActionStep
from trimaran.cluster.documents.operations import Operation, OperationProgress, run_operation
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.service_api import ClusterError

from .checkout import CHECKOUT

MEMBER_COUNT: Final = 3
SETTINGS: Final = {
    "service": "examples.quota_watch:QuotaWatch",
    "authenticator": "examples.quota_watch:ByName",
    "service_dir": str(CHECKOUT),
    "term_length_bytes": "256KiB",
    "segment_length_bytes": "1MiB",
    "mtu_length_bytes": "8192",
    "startup_canvass_timeout_ms": "2000",
    "election_status_interval_ms": "50",
    "leader_heartbeat_timeout_ms": "1000",
    "leader_heartbeat_interval_ms": "100",
    "session_timeout_ms": "5000",
}
"""Short segments, so that the log has some; short timeouts, so that a notebook does not wait.

Sessions outlast a pause of some seconds, as a busy machine makes them: a front end that loses its session gives up.
"""

LOOK_INTERVAL_S: Final = 0.05
TIMEOUT_S: Final = 30.0
STATUS_TIMEOUT_S: Final = 1.0


class DemoCluster:
    """The members of one cluster, as processes. They end with `close`, and with the process that made this."""

    def __init__(self, directory: Path, settings: Mapping[str, str] = SETTINGS) -> None:
        ports = free_base_ports(MEMBER_COUNT)
        self._nodes = LocalNodes(directory, [f"127.0.0.1:{port}" for port in ports], settings)
        self._consensus = {
            i: MemberEndpoints.from_base(i, endpoint).consensus for i, endpoint in enumerate(self.endpoints)
        }

    @property
    def endpoints(self) -> list[str]:
        """Where clients connect, by member id."""
        return self._nodes.endpoints

    @property
    def members(self) -> str:
        """The members as commands take them: `0=host:port,...`."""
        return self._nodes.members

    @property
    def consensus_endpoints(self) -> list[str]:
        """Where members answer questions about themselves, by member id."""
        return [*self._consensus.values()]

    async def start(self) -> int:
        """Start every member and give the leader."""
        await self._nodes.start()
        return await self.leader()

    async def leader(self, *, member_count: int = MEMBER_COUNT) -> int:
        """Wait until so many members are in one leader's term, and give its member id.

        Raises:
            TimeoutError: that took too long.
        """
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                answers = await ask_members(self._consensus, STATUS_TIMEOUT_S)
                report = make_report(answers, asked_at_ms=0)
                if report.leader_member_id is not None and report.in_term_count >= member_count:
                    return report.leader_member_id
                await asyncio.sleep(LOOK_INTERVAL_S)

    async def commit_position(self) -> int:
        """Ask the leader how far the log is committed.

        Raises:
            TimeoutError: there was no leader in time.
        """
        leader = await self.leader(member_count=1)
        answers = await ask_members(self._consensus, STATUS_TIMEOUT_S)
        report = make_report(answers, asked_at_ms=0)
        return max(one.status.commit_position for one in report.members if one.status and one.member_id == leader)

    async def wait_for_closed_sessions(self) -> None:
        """Wait until the cluster has closed every session; no client is to be there any more.

        A client that leaves tells the leader, and the close dies with a leader that has not committed it, as in a power
        cut. The next leader closes the session when it has been silent for the session timeout.

        Raises:
            TimeoutError: that took too long.
        """
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                report = make_report(await ask_members(self._consensus, STATUS_TIMEOUT_S), asked_at_ms=0)
                leader = [member.status for member in report.members if member.member_id == report.leader_member_id]
                if leader and leader[0] is not None and leader[0].session_count == 0:
                    return
                await asyncio.sleep(LOOK_INTERVAL_S)

    async def kill(self, member_ids: Iterable[int]) -> None:
        """End members with SIGKILL, and wait until they are gone."""
        killed = list(member_ids)
        for member_id in killed:
            self._nodes.kill(member_id)
        for member_id in killed:
            await self._nodes.nodes[member_id].process.wait()

    async def restart(self, member_ids: Iterable[int]) -> None:
        """Start members again that were killed, on what they have on disk."""
        for member_id in member_ids:
            await self._nodes.restart(member_id)

    async def take_snapshot(self) -> int:
        """Have every member take a snapshot; gives its log position.

        Raises:
            ClusterError: it was not taken; says why.
        """
        last = await self._carry_out(Operation.SNAPSHOT)
        if last.step is not ActionStep.DONE or last.log_position is None:
            raise ClusterError(f"snapshot was not taken: step={last.step} detail={last.detail}")
        return last.log_position

    async def stop(self) -> None:
        """Stop what runs at one log position, so that recordings are closed and those that were there are equal.

        Signals alone would not do: a timer may fire on the leader when a follower has stopped.

        Raises:
            ClusterError: the members were not told where to stop; says why.
        """
        last = await self._carry_out(Operation.ABORT)
        if last.log_position is None:  # a member that was killed is a failed step, and the others stop nevertheless
            raise ClusterError(f"members were not stopped: step={last.step} detail={last.detail}")
        await self._nodes.stop()

    async def _carry_out(self, operation: Operation) -> OperationProgress:
        leader = await self.leader(member_count=MEMBER_COUNT - 1)
        async with aclosing(run_operation(self._consensus[leader], operation, TIMEOUT_S)) as steps:
            return [step async for step in steps][-1]

    async def close(self) -> None:
        """Kill what still runs."""
        await self._nodes.close()
