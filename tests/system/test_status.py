"""`trimaran status` before, during and after: the leader killed, a member that stands still, members that come back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system.cluster_process import TIMEOUT_S, SystemCluster
from tests.system.commands import run_trimaran
from tests.waiting import patient, wait_until
from trimaran.cluster.cli.shared.cluster_report import ClusterReport, MemberReport, ask_members
from trimaran.cluster.documents.query import Outcome
from trimaran.cluster.settings.member_endpoints import MemberEndpoints
from trimaran.service_api.documents.member_status import MemberStatus

pytestmark = pytest.mark.slow

PATIENT_S = "20"
"""For members that run: a busy machine may take its time."""
SHORT_S = "3"
"""For members that do not answer, which is waited for to the end."""


@dataclass(slots=True, frozen=True)
class Shown:
    """What one run of the command printed."""

    exit_status: int
    report: ClusterReport
    errors: str

    def member(self, member_id: int) -> MemberReport:
        return next(member for member in self.report.members if member.member_id == member_id)

    def status_of(self, member_id: int) -> MemberStatus:
        status = self.member(member_id).status
        assert status is not None, self.member(member_id)
        return status


async def show_status(cluster: SystemCluster, *, timeout_s: str = PATIENT_S) -> Shown:
    """Run the command as a user would."""
    members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(cluster.endpoints))
    printed = await run_trimaran("status", "--members", members, "-o", "json", "--timeout", timeout_s)
    return Shown(printed.exit_status, ClusterReport.model_validate_json(printed.output), printed.errors)


async def test_the_leader_is_killed_and_comes_back(data_dir: Path) -> None:
    """Issue 3: before, during and after, under load."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        old = await cluster.wait_for_leader()
        requester.start_load()
        await requester.wait_answered(300)

        before = await show_status(cluster)

        assert (before.exit_status, before.errors) == (0, "")
        assert (before.report.leader_member_id, before.report.in_term_count) == (old.leader_member_id, 3)
        assert before.report.leadership_term_id == old.leadership_term_id
        for member_id, member in cluster.members.items():
            status = before.status_of(member_id)
            assert status.pid == member.process.pid
            assert status.state == ("LEADER" if member_id == old.leader_member_id else "FOLLOWER")
            assert status.append_position >= status.commit_position >= status.delivered_position > 0
            assert (status.session_count, status.connection_count) == (1, 1)
            assert status.last_election is not None
            assert status.last_election.leadership_term_id == old.leadership_term_id

        cluster.members[old.leader_member_id].kill()
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        during = await show_status(cluster)

        assert during.exit_status == 0
        assert during.member(old.leader_member_id).outcome is Outcome.REFUSED
        assert (during.report.leader_member_id, during.report.in_term_count) == (new.leader_member_id, 2)
        for member in cluster.running:
            election = during.status_of(member.member_id).last_election
            assert election is not None
            assert election.reason_kind in ("leader_link_closed", "log_link_closed")
            assert election.leadership_term_id == new.leadership_term_id
            assert election.duration_s is not None
            assert election.age_s < TIMEOUT_S

        again = cluster.start(old.leader_member_id)
        await again.wait_for_event("election.closed")
        await requester.stop_load()
        await cluster.wait_for_equal_states()
        after = await show_status(cluster)

        assert after.report.in_term_count == 3
        returned = after.status_of(old.leader_member_id)
        assert (returned.state, returned.pid) == ("FOLLOWER", again.process.pid)
        assert returned.last_election is not None
        assert returned.last_election.reason_kind == "node_started"
        assert returned.append_position > before.status_of(old.leader_member_id).append_position
        assert [member.append_lag_bytes for member in after.report.members] == [0, 0, 0]
    cluster.check_answers(requester)


async def test_a_leader_that_stands_still_is_a_row_and_costs_no_more_than_its_time(data_dir: Path) -> None:
    """SIGSTOP: the kernel still takes connections, but nobody answers; the others elect, and it is taken back."""
    async with SystemCluster(data_dir) as cluster:
        old = await cluster.wait_for_leader()
        stopped = cluster.members[old.leader_member_id]

        stopped.pause()
        new = await cluster.wait_for_leader(min_term_id=old.leadership_term_id + 1)
        during = await show_status(cluster, timeout_s=SHORT_S)
        elapsed_s = await time_to_ask(cluster, 0.5)

        row = during.member(old.leader_member_id)
        assert (row.outcome, row.detail) == (Outcome.TIMED_OUT, "connected, but no answer within 3 s")
        assert during.report.leader_member_id == new.leader_member_id
        election = during.status_of(new.leader_member_id).last_election
        assert election is not None
        assert election.reason_kind in ("leader_heartbeat_timeout", "higher_term_candidate")
        assert 0.5 <= elapsed_s < patient(10)

        stopped.resume()
        await wait_until(
            lambda: stopped.leadership() == new, timeout_s=TIMEOUT_S, what=lambda: f"{stopped!r} in the term of {new}"
        )
        after = await show_status(cluster)

        assert (after.exit_status, after.report.in_term_count) == (0, 3)
        assert after.status_of(old.leader_member_id).state == "FOLLOWER"


async def test_without_a_leader_the_exit_status_is_11_and_one_line_says_why(data_dir: Path) -> None:
    """One of three cannot lead; it still says how it is."""
    async with SystemCluster(data_dir) as cluster:
        leadership = await cluster.wait_for_leader()
        lonely_id = next(i for i in cluster.members if i != leadership.leader_member_id)
        for member_id, member in cluster.members.items():
            if member_id != lonely_id:
                member.kill()
        await cluster.members[lonely_id].wait_for_event("election.started", count=2)

        shown = await show_status(cluster)

        assert shown.exit_status == 11
        assert shown.errors == f"trimaran: {shown.report.verdict}\n"
        assert shown.report.verdict.startswith("no leader: 1 of 3 members answer")
        assert (shown.report.leader_member_id, shown.report.has_quorum) == (None, False)
        lonely = shown.status_of(lonely_id)
        assert lonely.state in ("INIT", "CANVASS", "NOMINATE", "CANDIDATE_BALLOT")
        assert lonely.last_election is not None
        assert lonely.last_election.duration_s is None


async def time_to_ask(cluster: SystemCluster, timeout_s: float) -> float:
    """How long asking takes, without starting a process for it."""
    members = [MemberEndpoints.from_base(i, endpoint) for i, endpoint in enumerate(cluster.endpoints)]
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await ask_members({member.member_id: member.consensus for member in members}, timeout_s)
    return loop.time() - start_s
