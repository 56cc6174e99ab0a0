"""Members come and go while a client's requests run: real processes, the operator's own commands, every answer checked.

Source: Raft dissertation, chapter 4.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, SystemCluster
from tests.system.requester import Requester
from tests.waiting import patient

pytestmark = pytest.mark.slow


async def join(cluster: SystemCluster, *, through: tuple[int, ...] = (0, 1, 2)) -> int:
    """Add a member, start its process, and make it a voter. Gives its id."""
    new_id = cluster.make_place()
    cluster.join(new_id, *through)
    endpoint = cluster.endpoints[new_id]
    await cluster.change_members("add", "--id", str(new_id), "--endpoint", endpoint, asked=through)
    cluster.start(new_id)
    await cluster.change_members("promote", "--id", str(new_id), asked=through)
    return new_id


async def leave(cluster: SystemCluster, member_id: int, *, asked: tuple[int, ...]) -> None:
    """Remove a member, whose process ends in order."""
    said = await cluster.change_members("remove", "--id", str(member_id), asked=asked)
    assert await cluster.members[member_id].wait_exit() == 0, said
    del cluster.processes.members[member_id]


async def serve(requester: Requester, count: int = 100) -> None:
    """Wait until so many more requests are answered."""
    await requester.wait_answered(requester.submitted_count + count)


async def test_three_become_five_and_three_again_under_load(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        await serve(requester)

        fourth = await join(cluster)
        fifth = await join(cluster)
        await serve(requester)
        status, said = await cluster.run_command("health", asked=(0, 1, 2, fourth, fifth))
        assert (status, "5 of 5 members" in said) == (0, True), said
        leader = (await cluster.wait_for_leader()).leader_member_id
        others = [member_id for member_id in range(5) if member_id != leader]
        for member_id in others[:2]:
            await leave(cluster, member_id, asked=(leader, *others[2:]))
        await serve(requester)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        assert len(cluster.running) == 3
    cluster.check_answers(requester)


async def test_a_client_stays_when_every_first_member_is_gone(data_dir: Path) -> None:
    """It knew the first three addresses; the leader is removed, too, more than once."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        requester.start_load()
        members: tuple[int, ...] = (0, 1, 2)
        for old_id in members:
            new_id = await join(cluster, through=members)
            members = (*members, new_id)
            await leave(cluster, old_id, asked=members)
            members = tuple(each for each in members if each != old_id)
            await serve(requester)
        await requester.stop_load()
        await cluster.wait_for_equal_states()

        assert {member.member_id for member in cluster.running} == {3, 4, 5}
        async with cluster.requester(*members) as another:
            await another.request(10)
    cluster.check_answers(requester)


async def test_what_was_removed_stays_out_and_disturbs_nobody(data_dir: Path) -> None:
    """Its process is started again, with its directory, and with none: a supervisor or an operator may do so."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leader = await cluster.wait_for_leader()
        new_id = await join(cluster)
        removed_id = next(each for each in range(3) if each != leader.leader_member_id)
        asked = tuple(each for each in range(3) if each != removed_id)
        await leave(cluster, removed_id, asked=(*asked, new_id))

        again = cluster.start(removed_id)
        await again.wait_exit()
        assert again.events("member.removed")
        cluster.directory_of(removed_id).rename(data_dir / "kept")
        cluster.join(removed_id, *asked)
        empty = cluster.start(removed_id)
        assert await empty.wait_exit() == 2
        assert "no member of" in empty.process.log_tail()
        del cluster.members[removed_id]
        now = await cluster.wait_for_leader()
        assert now == leader
        await requester.request(10)


async def test_bad_changes_are_refused_and_say_what_to_do(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster:
        leader = (await cluster.wait_for_leader()).leader_member_id
        one, two = (each for each in range(3) if each != leader)
        free = f"127.0.0.1:{cluster.processes.base_ports[0] + 1000}"

        async def refusal(*arguments: str) -> str:
            status, said = await cluster.run_command("member", *arguments)
            assert status == 12, said
            return said

        assert has_facts(await refusal("remove", "--id", "7"), "member_id=7", "0, 1, 2")
        assert has_facts(await refusal("add", "--id", "1", "--endpoint", free), "member_id=1", "already", "3")
        assert f"by member {one}" in await refusal("add", "--endpoint", cluster.endpoints[one])
        assert "voter already" in await refusal("promote", "--id", str(one))
        cluster.members[two].kill()
        assert has_facts(await refusal("remove", "--id", str(one)), f"members [{two}]", "term")
        await cluster.change_members("remove", "--id", str(two))
        del cluster.members[two]


async def test_a_member_moves_to_another_address(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leader = (await cluster.wait_for_leader()).leader_member_id
        moved = next(each for each in range(3) if each != leader)
        requester.start_load()
        member = cluster.members[moved]
        member.terminate()
        await member.wait_exit()
        place = cluster.make_place()
        endpoint = cluster.endpoints[place]

        await cluster.change_members("move", "--id", str(moved), "--endpoint", endpoint)
        base_ports = cluster.processes.base_ports
        base_ports[moved] = base_ports.pop(place)
        cluster.processes.member_lists = {**cluster.processes.member_lists, moved: f"{moved}={endpoint}"}
        cluster.start(moved)
        await cluster.wait_for_leader()
        await serve(requester)
        await requester.stop_load()
        await cluster.wait_for_equal_states()
    cluster.check_answers(requester)


async def test_settings_only_begin_a_cluster(data_dir: Path) -> None:
    """After members have changed, each starts again with the settings of the first day, and with wrong ones."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        leader = (await cluster.wait_for_leader()).leader_member_id
        new_id = await join(cluster)
        gone = next(each for each in range(3) if each != leader)
        await leave(cluster, gone, asked=(leader, new_id))
        del cluster.members[gone]
        await requester.request(10)
        members = sorted(cluster.members)
        for member_id in members:
            cluster.members[member_id].terminate()
            await cluster.members[member_id].wait_exit()
        cluster.join(new_id, gone)  # nobody is there any more
        for member_id in members:
            cluster.start(member_id)
        await cluster.wait_for_leader()
        await requester.request(10)

        said = (await cluster.run_command("member", "list", "-o", "jsonl", asked=members))[1]
        assert [line.split(",")[0] for line in said.splitlines()] == [f'{{"member_id": {each}' for each in members]


async def test_a_joining_member_waits_until_it_is_added_and_is_killed_half_way(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await cluster.wait_for_leader()
        await requester.request(2_000, length=500)
        new_id = cluster.make_place()
        cluster.join(new_id, 1, 2)

        early = cluster.start(new_id)
        await early.wait_for_event("member.waits_to_join")
        await cluster.change_members("add", "--endpoint", cluster.endpoints[new_id])
        await early.wait_for_event("member.joins")
        early.kill()
        again = cluster.start(new_id)
        await again.wait_for_event("election.closed")
        last = await requester.client.query(b"", timeout_s=patient(60))
        replica = await requester.client.query(b"", max_staleness_s=0, read_from=new_id, timeout_s=patient(60))
        assert (replica.member_id, replica.payload) == (new_id, last.payload)  # as a learner
        await cluster.change_members("promote", "--id", str(new_id))
        await cluster.wait_for_equal_states()
        assert len(await asyncio.gather(requester.request(10))) == 1
    cluster.check_answers(requester)


async def test_one_member_becomes_three_and_one_again(data_dir: Path) -> None:
    async with SystemCluster(data_dir, member_count=1) as cluster, cluster.requester(0) as requester:
        await cluster.wait_for_leader()
        await requester.request(10)

        one = await join(cluster, through=(0,))
        two = await join(cluster, through=(0, one))
        await requester.request(10)
        await leave(cluster, 0, asked=(0, one, two))
        await requester.request(10)
        left = (await cluster.wait_for_leader()).leader_member_id
        await leave(cluster, one if left == two else two, asked=(one, two))
        await requester.request(10)

        assert len(cluster.running) == 1
    cluster.check_answers(requester)
