"""Real members whose service was changed between two starts: old entries are not replayed by other code unasked.

Each restarted member replayed the log behind its snapshot with the new code: members said 52, 7, 7 and then all 52,
where the client had been told 7.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, TIMEOUT_S, Member, SystemCluster
from tests.system.test_operations import order, ordered
from tests.waiting import patient, within
from trimaran.benchmarks.rig.member_status import wait_for_status
from trimaran.client import ClusterClient

pytestmark = pytest.mark.slow

OLD = '''
import json, struct, sys
from trimaran import ClusteredService

class Sum(ClusteredService):
    """Adds up what clients send."""

    def __init__(self):
        self.total = 0

    async def on_start(self, cluster, snapshot):
        if snapshot is not None:
            async for message in snapshot:
                (self.total,) = struct.unpack("<q", message)

    async def on_take_snapshot(self, snapshot):
        await snapshot.offer(struct.pack("<q", self.total))

    def on_request(self, session, timestamp, payload):
        self.total += int(bytes(payload))
        return b"%d" % self.total

    def on_query(self, payload):
        return b"%d" % self.total

    def on_terminate(self, cluster):
        state = {"event": "test_sum.terminated", "log_position": cluster.log_position, "total": self.total}
        print(json.dumps(state), file=sys.stderr, flush=True)
'''
NEW = OLD.replace("self.total += int(bytes(payload))", "self.total += int(bytes(payload)) * 10 - 18")
SAME = OLD.replace("Adds up what", "Return the sum of what").replace("self.total = 0", "self.total = 0  # so far")
NUMBERS = (3, 4)


class SumCluster(SystemCluster):
    """Its service lies in a file of the test's."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.code_directory = data_dir.parent / "code"
        super().__init__(
            data_dir,
            service="sum_service:Sum",
            settings={**STEADY, "service_dir": str(self.code_directory), **settings},
        )
        self.write(OLD)

    def write(self, source: str) -> None:
        self.code_directory.mkdir(exist_ok=True)
        shutil.rmtree(self.code_directory / "__pycache__", ignore_errors=True)
        (self.code_directory / "sum_service.py").write_text(source)

    async def add(self, *numbers: int) -> list[int]:
        async with ClusterClient.connect(self.endpoints) as client:
            return [int(await client.request(b"%d" % number)) for number in numbers]

    async def totals(self) -> list[int]:
        """What each member says by itself, once it has the whole log."""
        await self.wait_for_equal_states()
        async with ClusterClient.connect(self.endpoints) as client:
            answers = [await client.query(b"", max_staleness_s=0, read_from=member_id) for member_id in range(3)]
        return [int(answer.payload) for answer in answers]


async def test_a_rolling_upgrade_does_not_rewrite_history(data_dir: Path) -> None:
    async with SumCluster(data_dir) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        follower_id = (leader_id + 1) % 3
        assert await cluster.add(*NUMBERS) == [3, 7]
        cluster.write(NEW)
        cluster.members[follower_id].terminate()
        assert await cluster.members[follower_id].wait_exit() == 0

        refused = cluster.start(follower_id)

        assert await refused.wait_exit() == 2
        said = refused.process.log_tail()
        assert has_facts(said, "other code", "leadership_term_id=")
        assert "--accept-code" in said
        cluster.write(OLD)
        cluster.start(follower_id)
        await cluster.wait_for_leader()
        assert await cluster.add(1) == [8]


async def test_a_member_that_lost_its_disk_does_not_run_old_entries_with_new_code(data_dir: Path) -> None:
    """It has nothing to replay when it starts: the others give it the entries."""
    async with SumCluster(data_dir) as cluster:
        leader_id = (await cluster.wait_for_leader()).leader_member_id
        follower_id = (leader_id + 1) % 3
        assert await cluster.add(*NUMBERS) == [3, 7]
        cluster.members[follower_id].kill()
        shutil.rmtree(cluster.directory_of(follower_id))
        cluster.write(NEW)

        refused = cluster.start(follower_id)

        assert await refused.wait_exit() != 0
        said = refused.process.log_tail()
        assert has_facts(said, "other code", "leadership_term_id=")
        cluster.write(OLD)
        cluster.start(follower_id)
        await cluster.wait_for_leader()
        assert await cluster.totals() == [7, 7, 7]


async def test_new_code_goes_on_after_a_snapshot_at_the_end_of_the_old(data_dir: Path) -> None:
    async with SumCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        assert await cluster.add(*NUMBERS) == [3, 7]
        await ordered(cluster, "shutdown")
        for member in cluster.members.values():
            assert await member.wait_exit() == 0
        cluster.write(NEW)

        for member_id in range(3):
            cluster.start(member_id)

        await cluster.wait_for_leader()
        assert await cluster.add(2) == [9]
        assert await cluster.totals() == [9, 9, 9]


async def test_comments_are_no_other_code_and_an_explicit_word_lets_it_replay(data_dir: Path) -> None:
    async with SumCluster(data_dir) as cluster:
        await cluster.wait_for_leader()
        assert await cluster.add(*NUMBERS) == [3, 7]
        for source, words in ((SAME, {}), (NEW, {"accept_code": "any"})):
            cluster.write(source)
            for member in cluster.members.values():
                member.terminate()
                assert await member.wait_exit() == 0
            cluster.processes.settings = {**cluster.processes.settings, **words}
            for member_id in range(3):
                cluster.start(member_id)
            await cluster.wait_for_leader()

        assert await cluster.add(2) == [3 * 10 - 18 + 4 * 10 - 18 + 2]


HASHED = OLD + "\n    def state_hash(self):\n        return self.total\n"
HASHED_OTHER = HASHED.replace("self.total += int(bytes(payload))", "self.total += 2 * int(bytes(payload))")


async def test_states_that_differ_while_code_differs_are_told_and_nobody_is_stopped(data_dir: Path) -> None:
    """Members said 5, 5 and 10, clients were told 5 and then 12, and health named nothing but the code."""
    settings = {"accept_code": "any", "metrics_endpoint": "127.0.0.1:0"}
    async with SumCluster(data_dir, **settings) as cluster:
        await start_again(cluster, HASHED, 0, 1, 2)
        await start_again(cluster, HASHED_OTHER, 2)
        if (await cluster.wait_for_leader()).leader_member_id == 2:
            await ordered(cluster, "leader", "transfer", "--to", "0")
        assert await cluster.add(1, 1, 1, 1, 1) == [1, 2, 3, 4, 5]
        before = await order(cluster, "health", "--wait", "60")
        assert (before.exit_status, json.loads(before.output)["upgrade"] is None) == (0, False)

        await ordered(cluster, "leader", "transfer", "--to", "2")

        for member_id, others in ((0, [2]), (1, [2]), (2, [0, 1])):
            status = await wait_for_status(
                cluster.processes,
                member_id,
                lambda status: bool(status.state_differences),
                time_limit_s=patient(TIMEOUT_S),
            )
            (found,) = status.state_differences
            assert (found.field, found.member_ids) == ("state_hash", others)
            assert has_facts(found.detail, "code differs", "field=state_hash", "2=10")
            assert "trimaran_state_differences 1" in await scrape(cluster.members[member_id])
            event = await cluster.members[member_id].wait_for_event("service.states_differed", field="state_hash")
            assert event["values"]["2"] == "10"
        report = json.loads((await order(cluster, "health")).output)
        assert {(each["kind"], each["member_id"]) for each in report["problems"]} == {
            ("states_differ", member_id) for member_id in range(3)
        }
        assert await cluster.add(1, 1, 1) == [12, 14, 16]
        assert all(member.process.is_running for member in cluster.members.values())
        assert not any(member.events("service.digests_differed") for member in cluster.members.values())


async def start_again(cluster: SumCluster, source: str, *member_ids: int) -> None:
    cluster.write(source)
    for member_id in member_ids:
        cluster.members[member_id].terminate()
        assert await cluster.members[member_id].wait_exit() == 0
        cluster.start(member_id)
        await cluster.wait_for_leader()


async def scrape(member: Member) -> str:
    listening = await member.wait_for_event("metrics.listening")
    host, _, port = listening["endpoint"].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    async with within(TIMEOUT_S):
        page = await reader.read()
    writer.close()
    return page.decode()
