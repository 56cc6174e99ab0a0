"""`trimaran recover` on directories of real clusters that were killed under load, and damaged.

Each cluster is brought back and goes on: what the directories that were left held is there, and clients are served.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from tests.system.cluster_process import STEADY, SystemCluster
from tests.system.commands import run_trimaran, started
from tests.system.directory_checker import log_end_position
from tests.system.requester import Requester
from tests.system.test_operations import NO_LEADER, order
from tests.system.test_snapshots import take
from tests.unit.archive.streams import extract_sample
from tests.waiting import ask_until, wait_until

pytestmark = pytest.mark.slow


async def recover(*arguments: str, status: int = 0) -> dict[str, Any]:  # Any: JSON
    """Run the command; gives its document."""
    printed = await run_trimaran("recover", *arguments, "-o", "json")
    assert printed.exit_status == status, printed
    found = json.loads(printed.output)[0] if printed.output.strip() else {}
    return found | {"stderr": printed.errors}


def members_of(cluster: SystemCluster, *member_ids: int) -> str:
    """The setting `members` of these members."""
    return ",".join(f"{i}={cluster.endpoints[i]}" for i in member_ids)


def directories_of(cluster: SystemCluster, *member_ids: int) -> list[str]:
    return [str(cluster.directory_of(i)) for i in member_ids]


def kill_all(cluster: SystemCluster) -> None:
    for member in cluster.running:
        member.kill()


def install(cluster: SystemCluster, out: Path, *member_ids: int) -> None:
    """Put recovered directories where the members have theirs, and leave nothing of the old ones."""
    for member_id in cluster.members:
        shutil.rmtree(cluster.directory_of(member_id), ignore_errors=True)
    for member_id in member_ids:
        (out / f"node-{member_id}").rename(cluster.directory_of(member_id))


async def go_on(cluster: SystemCluster, requester: Requester, *member_ids: int) -> None:
    """Start members on recovered directories, have clients served, and check what the log holds."""
    for member_id in member_ids:
        member = cluster.start(member_id)
        await member.wait_for_event("node.started")
    await cluster.wait_for_leader()
    await requester.request(50)
    await cluster.wait_for_equal_logs()


def tear_tail(directory: Path) -> None:
    """Leave half a frame at the end of a log, as a power loss in the middle of a write does."""
    end = log_end_position(directory)
    segment = max((directory / "archive").glob("0-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
    base = int(segment.stem.partition("-")[2])
    with segment.open("r+b") as file:
        file.seek(end - base)
        file.write(b"\x80\0\0\0\0\xc0\1\0torn")


def flip(directory: Path, position: int) -> None:
    """Flip bits in the first segment of a log."""
    with (directory / "archive" / "0-0.rec").open("r+b") as file:
        file.seek(position)
        found = file.read(64)
        file.seek(position)
        file.write(bytes(byte ^ 0xFF for byte in found))


async def kill_when_there(path: Path, *arguments: str) -> None:
    """Run the command and kill it as soon as a file is there; it may have ended before."""
    with started("recover", *arguments) as (process, _):
        await wait_until(lambda: path.exists() or process.poll() is not None, timeout_s=60.0, what=f"{path}")


async def test_one_survivor_becomes_three_members(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(300)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for wiped in (1, 2):
            shutil.rmtree(cluster.directory_of(wiped))

        plan = await recover("plan", *directories_of(cluster, 0))
        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        await go_on(cluster, requester, 0, 1, 2)

        assert "are a majority" in " ".join(plan["losses"])
        assert done["cluster_id"] not in (None, done["old_cluster_id"])
    cluster.check_answers(requester)


async def told_that_votes_are_lost(cluster: SystemCluster) -> None:
    """Start all members, two of them on empty directories, until `health` names these two; then kill all."""
    for member_id in [*cluster.members]:
        cluster.start(member_id)

    async def find() -> dict[str, Any] | None:  # Any: JSON
        report: dict[str, Any] = json.loads((await order(cluster, "health")).output)
        return report if report["problems"] and report["problems"][0]["kind"] == "votes_lost" else None

    report = await ask_until(find, timeout_s=60.0, what="health that tells of lost votes")
    assert [problem["member_id"] for problem in report["problems"]] == [None, 0, 1]
    assert report["exit_status"] == NO_LEADER
    kill_all(cluster)


async def test_a_survivor_in_place_is_a_cluster_of_one(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(200)
        await take(cluster)
        await requester.request(100)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for wiped in (0, 1):
            shutil.rmtree(cluster.directory_of(wiped))
        await told_that_votes_are_lost(cluster)

        done = await recover("apply", *directories_of(cluster, 2), "--members", members_of(cluster, 2), "--in-place")
        for gone in (0, 1):
            del cluster.members[gone]
        await go_on(cluster, requester, 2)

        assert done["kept"] == [f"{cluster.directory_of(2)}.before-recovery"]
    cluster.check_answers(requester)


async def test_all_with_torn_tails(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        requester.start_load()
        await requester.wait_answered(300)
        kill_all(cluster)
        for member_id in range(3):
            tear_tail(cluster.directory_of(member_id))

        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0, 1, 2), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        for member_id in range(3):
            await cluster.start(member_id).wait_for_event("node.started")
        await cluster.wait_for_leader()
        await requester.wait_answered(requester.submitted_count + 100)
        await requester.quiesce()

        assert len(done["directories"]) == 3
    cluster.check_answers(requester)


async def test_snapshots_alone(data_dir: Path) -> None:
    """The log's segments are lost on every disk, the catalog and the snapshots are not."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(300)
        position = await take(cluster)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for member_id in range(3):
            for segment in (cluster.directory_of(member_id) / "archive").glob("0-*.rec"):
                segment.unlink()

        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 0, 1, 2), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        await go_on(cluster, requester, 0, 1, 2)

        assert done["term_base_log_position"] == position


async def test_refused_while_a_majority_lives(data_dir: Path) -> None:
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(100)
        await cluster.wait_for_equal_states()
        cluster.members[0].kill()
        out = data_dir / "out"
        arguments = ("--members", members_of(cluster, 0), "--to", str(out))

        living = await recover("apply", *directories_of(cluster, 0), *arguments, status=12)
        running = await recover("apply", *directories_of(cluster, 0, 1), *arguments, status=12)

        assert "2 of 3 voters" in living["stderr"]
        assert "owner_pid=" in running["stderr"]
        assert not out.exists()
        cluster.start(0)
        await cluster.wait_for_leader()


async def test_refused_while_a_member_that_runs_has_more_and_nothing_is_lost_by_starting_the_other(
    data_dir: Path,
) -> None:
    """Member 2 fell behind, 1 is gone for good, and 0 runs: with the directory of 2 it is a majority."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(100)
        await cluster.wait_for_equal_states()
        cluster.members[2].kill()
        await requester.request(100)
        cluster.members[0].kill()
        cluster.members[1].kill()
        await cluster.start(0).wait_for_event("election.state_changed")
        out = data_dir / "out"
        arguments = (*directories_of(cluster, 2), "--members", members_of(cluster, 0, 2), "--to", str(out))

        together = await recover("apply", *arguments, "--gone", "1", status=12)
        given_up = await recover("apply", *arguments, "--gone", "1", "--abandon", "0")
        shutil.rmtree(out)
        cluster.start(2)
        await cluster.wait_for_leader()
        await requester.request(10)

        assert has_facts(together["stderr"], "Start member 2", "--abandon")
        assert given_up["written"]
        await cluster.start(1).wait_for_event("election.closed")
        await cluster.wait_for_equal_states()
    cluster.check_answers(requester)


async def test_two_disks_are_dead_and_the_third_is_damaged_before_its_snapshot(data_dir: Path) -> None:
    """The log is of use from the snapshot behind the damage on."""
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await requester.request(300)
        position = await take(cluster)
        await requester.request(100)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        for dead in (0, 1):
            shutil.rmtree(cluster.directory_of(dead))
        flip(cluster.directory_of(2), 4_096)

        out = data_dir / "out"
        done = await recover(
            "apply", *directories_of(cluster, 2), "--members", members_of(cluster, 0, 1, 2), "--to", str(out)
        )
        install(cluster, out, 0, 1, 2)
        await go_on(cluster, requester, 0, 1, 2)

        [found] = done["directories"]
        assert (found["start_position"], found["damage"]) == (position, [])
        assert len(requester.answers) == 450


async def test_a_shorter_log_without_damage_wins(data_dir: Path) -> None:
    async with SystemCluster(data_dir, settings=STEADY) as cluster, cluster.requester() as requester:
        await requester.request(100)
        await cluster.wait_for_equal_states()
        leadership = await cluster.wait_for_leader()
        short, other = (i for i in range(3) if i != leadership.leader_member_id)
        cluster.members[short].kill()
        await requester.request(100)
        kill_all(cluster)
        long = [other, leadership.leader_member_id]
        for member_id in long:
            flip(cluster.directory_of(member_id), 4_096)

        plan = await recover("plan", *directories_of(cluster, *long, short))
        chosen = await recover(
            "plan", *directories_of(cluster, *long, short), "--choose", directories_of(cluster, other)[0]
        )
        for member_id in long:
            flip(cluster.directory_of(member_id), 4_096)  # as it was: the cluster is checked

    assert plan["chosen"] == str(cluster.directory_of(short))
    assert "are lost" in plan["losses"][-1]
    assert [found["end_position"] < 4_096 + 256 for found in plan["directories"]] == [True, True, False]
    assert chosen["chosen"] == str(cluster.directory_of(other))


async def test_directories_of_two_clusters_are_refused(data_dir: Path) -> None:
    async with SystemCluster(data_dir / "one", member_count=1) as one, one.requester() as requester:
        await requester.request(10)
        await wait_until((one.directory_of(0) / "cluster" / "cluster-id").exists, timeout_s=60.0, what="a cluster id")
    async with SystemCluster(data_dir / "two", member_count=1) as two, two.requester() as requester:
        await requester.request(10)
        await wait_until((two.directory_of(0) / "cluster" / "cluster-id").exists, timeout_s=60.0, what="a cluster id")
    out = data_dir / "out"
    arguments = ("apply", *directories_of(one, 0), *directories_of(two, 0), "--members", members_of(one, 0))

    refused = await recover(*arguments, "--to", str(out), status=10)

    assert "different clusters" in refused["stderr"]
    assert not out.exists()


async def test_a_directory_of_aerons_is_explained(data_dir: Path) -> None:
    sample = extract_sample("three-node-failover", data_dir)
    directories = [str(sample / f"node{i}") for i in range(3)]

    plan = await recover("plan", *directories, status=10)

    assert [found["written_by"] for found in plan["directories"]] == ["Aeron"] * 3
    assert [found["end_position"] for found in plan["directories"]] == [436416] * 3
    assert "trimaran archive import" in plan["problems"][0]


async def test_a_command_that_is_killed_in_place_is_repeated(data_dir: Path) -> None:
    """SIGKILL as soon as each of its files appears; the originals are there at any time."""
    async with SystemCluster(data_dir) as cluster, cluster.requester() as requester:
        await requester.request(100)
        await cluster.wait_for_equal_states()
        kill_all(cluster)
        arguments = (
            "apply",
            *directories_of(cluster, 0, 1, 2),
            "--members",
            members_of(cluster, 0, 1, 2),
            "--in-place",
        )
        catalogs = [(cluster.directory_of(i) / "archive" / "archive.catalog").read_bytes() for i in range(3)]

        for name in (".member-0.recovered", ".member-2.recovered", "member-0.before-recovery"):
            await kill_when_there(data_dir / name, *arguments)
            for member_id, catalog in enumerate(catalogs):
                places = (data_dir / f"member-{member_id}", data_dir / f"member-{member_id}.before-recovery")
                paths = [place / "archive" / "archive.catalog" for place in places]
                assert catalog in [path.read_bytes() for path in paths if path.exists()]
        await recover(*arguments)
        await recover(*arguments)
        await go_on(cluster, requester, 0, 1, 2)

        ids = {(cluster.directory_of(i) / "cluster" / "cluster-id").read_bytes() for i in range(3)}
        assert len(ids) == 1
    cluster.check_answers(requester)
