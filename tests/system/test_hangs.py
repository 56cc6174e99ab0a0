"""A member that stands still ends, so that a supervisor can start it again; one that only takes long does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.system.cluster_process import Member, SystemCluster
from tests.waiting import let_pass, slowness, wait_until
from trimaran.client import ClusterClient

pytestmark = pytest.mark.slow

LIMIT_S = 1.0
"""The time after which a standstill is a hang, on a quiet machine."""


@pytest.fixture
def limit_s() -> float:
    """The same on this machine now: a busy one needs longer to close a member that does not hang.

    At most three seconds: clients and their sessions wait through three limits.
    """
    return LIMIT_S * min(3.0, slowness())


@pytest.fixture
def long_s(limit_s: float) -> float:
    """More than the limit."""
    return 3 * limit_s


@pytest.fixture
def place(data_dir: Path) -> Path:
    path = data_dir / "standing-still"
    path.mkdir(parents=True)
    return path


def make_cluster(data_dir: Path, place: Path, limit_s: float, start: tuple[int, ...] = (0,)) -> SystemCluster:
    service = "tests.system.standing_still:StandingStill"
    cluster = SystemCluster(data_dir, member_count=1, service=service, start=start)
    cluster.processes.settings = {**cluster.processes.settings, "hang_timeout_ms": f"{limit_s * 1e3:.0f}"}
    cluster.processes.environments = {0: {"STANDING_STILL": str(place)}}
    return cluster


async def expect_hung(member: Member) -> None:
    assert await member.wait_exit() == 1
    (hung,) = member.events("node.hung")
    assert (hung["member_id"], hung["level"]) == (0, "critical")
    assert "Thread 0x" in member.text()  # where each thread stood


async def test_a_loop_that_stands_still_ends_its_process(data_dir: Path, place: Path, limit_s: float) -> None:
    """A thread without memory died before it said that it ran; its starter kept the ports, and ignored SIGTERM."""
    cluster = make_cluster(data_dir, place, limit_s)
    try:
        hanging = cluster.start(0)
        await hanging.wait_for_event("election.closed")
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"thread") == b"1"
            await expect_hung(hanging)
        assert "standing_still.py" in hanging.text()

        again = cluster.start(0)
        await again.wait_for_event("election.closed")
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"again") == b"2"
        again.terminate()
        assert await again.wait_exit() == 0
    finally:
        cluster.processes.group.stop()


async def test_a_process_that_was_stopped_goes_on(data_dir: Path, place: Path, limit_s: float, long_s: float) -> None:
    """As a suspended machine does: the time passes, and nothing runs."""
    async with make_cluster(data_dir, place, limit_s) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"before") == b"1"
            cluster.members[0].pause()
            await let_pass(long_s)
            cluster.members[0].resume()

            assert await client.request(b"after") == b"2"


async def test_a_disk_that_does_not_answer_is_waited_for(
    data_dir: Path, place: Path, limit_s: float, long_s: float
) -> None:
    async with make_cluster(data_dir, place, limit_s) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"before") == b"1"
            (place / "disk").touch()
            waiting = asyncio.create_task(client.request(b"meanwhile"))
            await wait_until((place / "frozen").exists, timeout_s=20, what="a sync")
            await let_pass(long_s)
            (place / "disk").unlink()

            assert await waiting == b"2"


async def test_a_long_callback_is_waited_for(data_dir: Path, place: Path, limit_s: float, long_s: float) -> None:
    async with make_cluster(data_dir, place, limit_s) as cluster:
        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(f"sleep {long_s}".encode()) == b"1"
            assert await client.request(b"after") == b"2"


async def test_a_service_that_takes_long_to_start_is_waited_for(
    data_dir: Path, place: Path, limit_s: float, long_s: float
) -> None:
    (place / "start").touch()
    async with make_cluster(data_dir, place, limit_s, start=()) as cluster:
        cluster.start(0)
        await wait_until((place / "started").exists, timeout_s=60, what="on_start")
        await let_pass(long_s)
        (place / "start").unlink()

        await cluster.wait_for_leader()
        async with ClusterClient.connect(cluster.endpoints) as client:
            assert await client.request(b"after") == b"1"


async def test_a_member_whose_service_loads_its_state_stops_at_once(
    data_dir: Path, place: Path, limit_s: float
) -> None:
    """It waited for `on_start`, and its supervisor killed it."""
    (place / "load").touch()
    async with make_cluster(data_dir, place, limit_s, start=()) as cluster:
        member = cluster.start(0)
        await wait_until((place / "started").exists, timeout_s=60, what="on_start")

        member.terminate()

        assert await member.wait_exit() == 0
        assert [event["event"] for event in member.events() if event["event"].startswith("node.")] == ["node.stopped"]


async def test_a_member_that_cannot_close_ends_its_process(data_dir: Path, place: Path, limit_s: float) -> None:
    """Its loop turns, and waits for a thread that never ends."""
    (place / "executor").touch()
    cluster = make_cluster(data_dir, place, limit_s)
    try:
        member = cluster.start(0)
        await member.wait_for_event("node.started")
        member.terminate()

        await expect_hung(member)
        assert member.events("node.stopped")
    finally:
        cluster.processes.group.stop()
