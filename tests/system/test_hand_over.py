"""A leader hands over: an operator asks for it, or it is told to stop; or it cannot, and says why.

Source: Raft dissertation §3.10.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, Leadership, SystemCluster
from tests.system.test_operations import REFUSED, UNREACHABLE, order, ordered
from tests.waiting import patient
from trimaran.client.errors import AdminRefusedError

pytestmark = pytest.mark.slow

TRANSFER = "leadership.transfer_changed"


def follower_id_of(cluster: SystemCluster, leadership: Leadership) -> int:
    return next(i for i in cluster.members if i != leadership.leader_member_id)


def steps_of(report: Any) -> list[str]:  # Any: JSON
    return [step["step"] for step in report["steps"]]


async def test_leadership_goes_where_an_operator_wants_it_and_the_session_goes_on(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        session_id = requester.session_id
        requester.start_load()
        await requester.wait_answered(300)
        target_id = follower_id_of(cluster, first)

        report = await ordered(cluster, "leader", "transfer", "--to", str(target_id))

        assert steps_of(report) == ["holding", "asked", "done"]
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        assert second == Leadership(first.leadership_term_id + 1, target_id)
        await requester.wait_answered(requester.submitted_count + 300)
        again = await ordered(cluster, "leader", "transfer")
        third = await cluster.wait_for_leader(min_term_id=second.leadership_term_id + 1)
        assert third.leader_member_id != target_id
        assert again["detail"] == f"member {third.leader_member_id} leads leadership_term_id={third.leadership_term_id}"
        await requester.wait_answered(requester.submitted_count + 300)
        await requester.stop_load()

        assert requester.session_id == session_id
        assert len(requester.answers) == requester.submitted_count
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_client_has_the_leader_hand_over_and_goes_on(data_dir: Path) -> None:
    """Over its session, where the authorisation service lets it."""
    settings = {**STEADY, "authorisation": "trimaran.service_api.authorisation:AllowAll"}
    async with SystemCluster(data_dir, settings=settings) as cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        await requester.request(50)
        target_id = follower_id_of(cluster, first)

        leader_id = await requester.client.transfer_leadership(target_id, timeout_s=patient(TIMEOUT_S))
        with pytest.raises(AdminRefusedError, match=rf"member {target_id}.*leader"):
            await requester.client.transfer_leadership(target_id, timeout_s=patient(TIMEOUT_S))

        assert leader_id == target_id == requester.client.leader_member_id
        await requester.request(50)
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_hand_over_that_cannot_be_is_refused_with_the_reason(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(20)
        leader_id, target_id = leadership.leader_member_id, follower_id_of(cluster, leadership)

        itself = await order(cluster, "leader", "transfer", "--to", str(leader_id))
        unknown = await order(cluster, "leader", "transfer", "--to", "7")
        cluster.members[target_id].kill()
        gone = await order(cluster, "leader", "transfer", "--to", str(target_id))
        await ordered(cluster, "suspend")
        suspended = await order(cluster, "leader", "transfer")
        await ordered(cluster, "resume")

        assert (itself.exit_status, unknown.exit_status) == (0, 2)
        assert has_facts(json.loads(itself.output)["detail"], f"member {leader_id} leads already")
        assert has_facts(unknown.errors, "member_id=7", "[0, 1, 2]")
        assert gone.exit_status == REFUSED
        assert has_facts(gone.errors, f"refused: member {target_id}", "reached")
        assert (suspended.exit_status, "resume" in suspended.errors) == (REFUSED, True)
        await requester.request(20)
        assert await cluster.wait_for_leader() == leadership
        cluster.start(target_id)
        await cluster.wait_for_leader()
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_hand_over_to_a_process_that_stands_still_is_given_up_and_clients_go_on(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(50)
        await cluster.wait_for_equal_states()
        target_id = follower_id_of(cluster, leadership)
        cluster.members[target_id].pause()

        printed = await order(cluster, "leader", "transfer", "--to", str(target_id))

        assert printed.exit_status == 1
        assert "given up" in printed.errors
        limit_s = int(cluster.processes.settings["election_timeout_ms"]) / 1_000
        assert has_facts(printed.errors, f"member {target_id}", "elected", f"{limit_s:g} s")
        assert steps_of(json.loads(printed.output)) == ["holding", "asked", "failed"]
        await requester.request(50)
        cluster.members[target_id].resume()
        await cluster.wait_for_equal_states()
        assert await cluster.wait_for_leader() == leadership
    cluster.check_answers(requester)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
async def test_leader_that_is_told_to_stop_hands_over_first(data_dir: Path, number: signal.Signals) -> None:
    """Nobody begins an election because a link closes: the next leader leads before the process ends."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        leader = cluster.members[first.leader_member_id]
        requester.start_load()
        await requester.wait_answered(300)

        leader.process.signal(number)

        assert await leader.wait_exit() == 0
        assert [line["step"] for line in leader.events(TRANSFER)] == ["holding", "asked", "done"]
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        assert second.leadership_term_id == first.leadership_term_id + 1
        reasons = [line["reason"] for member in cluster.running for line in member.events("election.started")]
        assert reasons.count("leadership_transferred") == 1
        assert "leader_link_closed" not in reasons
        await requester.wait_answered(requester.submitted_count + 300)
        cluster.start(first.leader_member_id)
        await cluster.wait_for_leader()
        await requester.stop_load()
        assert len(requester.answers) == requester.submitted_count
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def test_one_member_is_shut_down_alone_and_hands_over_if_it_leads(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        first = await cluster.wait_for_leader()
        await requester.request(100)
        leader_id = first.leader_member_id

        report = await ordered(cluster, "shutdown", "--member", str(leader_id))

        assert "done: member " in report["detail"]
        assert [(part["member_id"], part["part"]) for part in report["members"]] == [(leader_id, "done")]
        assert await cluster.members[leader_id].wait_exit() == 0
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        await requester.request(100)
        gone = await order(cluster, "shutdown", "--member", str(leader_id))
        assert gone.exit_status == UNREACHABLE
        cluster.start(leader_id)
        await cluster.wait_for_leader()
        follower_id = leader_id
        follower_report = await ordered(cluster, "shutdown", "--member", str(follower_id))
        assert follower_report["detail"] == "this member stops"
        assert await cluster.members[follower_id].wait_exit() == 0
        assert await cluster.wait_for_leader() == second
        await requester.request(10)
    cluster.check_answers(requester)


async def test_second_signal_ends_a_leader_that_hands_over_at_once(data_dir: Path) -> None:
    """Its target stands still, and it would wait for the whole election timeout."""
    settings = {**STEADY, "election_timeout_ms": "8000", "handover_timeout_ms": "60000"}
    async with SystemCluster(data_dir, settings=settings) as cluster, cluster.requester() as requester:
        leadership = await cluster.wait_for_leader()
        await requester.request(20)
        await cluster.wait_for_equal_states()
        leader = cluster.members[leadership.leader_member_id]
        for member in cluster.members.values():
            if member is not leader:
                member.pause()

        leader.terminate()
        await leader.wait_for_event(TRANSFER, step="asked")
        leader.terminate()

        assert await leader.wait_exit() == 0
        assert [line["step"] for line in leader.events(TRANSFER)] == ["holding", "asked"]
        for member in cluster.members.values():
            if member is not leader:
                member.resume()


async def test_members_that_are_stopped_together_do_not_wait_for_each_other(data_dir: Path) -> None:
    """No target stays: far less than the time that a hand-over may take is lost."""
    settings = {**STEADY, "election_timeout_ms": "8000", "handover_timeout_ms": "600000"}
    async with SystemCluster(data_dir, settings=settings) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(20)

        for member in cluster.members.values():
            member.terminate()

        for member in cluster.members.values():
            assert await member.wait_exit() == 0
        details = [line["detail"] for member in cluster.members.values() for line in member.events(TRANSFER)]
        assert not [detail for detail in details if "not elected" in detail]


async def test_preferred_member_leads_again_after_it_was_away(data_dir: Path) -> None:
    """It gets its leadership back by a transfer, and nobody is disturbed."""
    cluster = SystemCluster(data_dir, settings={"leader_heartbeat_timeout_ms": "600"})
    cluster.processes.environments = {1: {"TRIMARAN_LEADER_PRIORITY": "5"}}
    async with cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        first = await leads(cluster, 1)
        cluster.members[1].kill()
        second = await cluster.wait_for_leader(min_term_id=first.leadership_term_id + 1)
        cluster.start(1)

        third = await leads(cluster, 1)

        assert third.leadership_term_id == second.leadership_term_id + 1
        told = cluster.members[second.leader_member_id].events(TRANSFER, target_member_id=1)
        assert [line["step"] for line in told][-1] == "done"
        assert told[-1]["reason"] == "leader_priority=5 against 0"
        await requester.stop_load()
        await cluster.wait_for_equal_logs()
    cluster.check_answers(requester)


async def leads(cluster: SystemCluster, member_id: int) -> Leadership:
    """Wait until a member leads."""
    while (leadership := await cluster.wait_for_leader()).leader_member_id != member_id:
        await cluster.wait_for_leader(min_term_id=leadership.leadership_term_id + 1)
    return leadership
