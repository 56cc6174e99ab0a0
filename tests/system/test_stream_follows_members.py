"""What a stream plans and reads while members die, come back and lose their disks. Spark's part is played here."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import cycle, permutations
from pathlib import Path

import pytest

from tests.system.cluster_process import SystemCluster
from tests.system.directory_checker import check_directory
from tests.waiting import wait_until
from trimaran.archive.reading.frame_batches import make_schema
from trimaran.archive.spark.source.partitions import ReadSettings
from trimaran.archive.spark.streaming.stream import read_from_any, read_range
from trimaran.archive.spark.streaming.stream_members import StreamMember, StreamMemberLog
from trimaran.archive.spark.streaming.stream_offset import LogOffset
from trimaran.archive.spark.streaming.stream_planner import LogPlanner, StreamSettings
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import TimeUnit

pytestmark = pytest.mark.slow

COLUMNS = ("position", "payload")
READ = partial(
    read_range, ReadSettings(columns=COLUMNS, time_unit=TimeUnit.MILLIS), make_schema(COLUMNS, TimeUnit.MILLIS)
)
BATCH_BYTES = 64 << 10
BATCHES_OF_A_RUN = 7
TIMEOUT_S = 60.0


class Follower:
    """A query: batch after batch, and every few batches a new planner with the directories in another order."""

    def __init__(self, cluster: SystemCluster) -> None:
        self.place = LogOffset(position=0)
        self.rows: list[tuple[int, bytes]] = []
        self.batch_count = 0
        self._orders: Iterator[tuple[Path, ...]] = cycle(permutations(cluster.directory_of(i) for i in range(3)))
        self._endpoints = tuple(Endpoint("127.0.0.1", port + 1) for port in cluster.processes.base_ports)
        self._planner = self._make_planner()

    def step(self) -> bool:
        """Read one batch, if there is one; tells whether there was."""
        end = self._planner.latest_offset(self.place, BATCH_BYTES)
        if end == self.place:
            return False
        if self.batch_count % BATCHES_OF_A_RUN == 0:  # it is killed here, and has noted the end of the batch
            self._planner = self._make_planner()
        for each in self._planner.plan_ranges(self.place, end):
            for batch in read_from_any(each, READ):
                self.rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        self.place, self.batch_count = end, self.batch_count + 1
        return True

    async def follow(self) -> None:
        """Read until cancelled."""
        while True:
            if not await asyncio.to_thread(self.step):
                await asyncio.sleep(0.01)

    def _make_planner(self) -> LogPlanner:
        return LogPlanner(StreamSettings(directories=next(self._orders), commit_from=self._endpoints))


async def test_stream_has_each_committed_frame_once_while_members_die_come_back_and_are_wiped(data_dir: Path) -> None:
    """A member that comes back extends its recording; one that lost its disk makes another with the same positions."""
    async with SystemCluster(data_dir) as cluster:
        first = await cluster.wait_for_leader()
        follower = Follower(cluster)
        following = asyncio.create_task(follower.follow())
        async with cluster.requester() as requester:
            requester.start_load()
            await requester.wait_answered(500)
            old_id = recording_id_of(cluster, first.leader_member_id)
            second = await cluster.kill_and_serve(requester, first.leader_member_id)
            cluster.start(first.leader_member_id)
            await cluster.wait_for_leader(min_term_id=second.leadership_term_id)
            assert recording_id_of(cluster, first.leader_member_id) == old_id

            wiped = next(i for i in range(3) if i not in (first.leader_member_id, second.leader_member_id))
            cluster.members[wiped].kill()
            shutil.rmtree(cluster.directory_of(wiped))
            await requester.wait_answered(requester.submitted_count + 300)
            cluster.start(wiped)
            await cluster.wait_for_leader(min_term_id=second.leadership_term_id)

            await cluster.kill_and_serve(requester, second.leader_member_id)
            await requester.stop_load()
            await requester.quiesce()
            end_position = await cluster.wait_for_equal_logs()
            await wait_until(
                lambda: following.done() or follower.place.position == end_position,
                timeout_s=TIMEOUT_S,
                what=lambda: f"position={end_position}: {follower.place}",
            )
            assert not following.done(), following.exception()
            following.cancel()

    log = check_directory(cluster.directory_of(first.leader_member_id), stopped=True).log
    expected = [(frame.position, frame.payload) for frame in log.frames if frame.position < end_position]
    assert follower.batch_count > 2 * BATCHES_OF_A_RUN
    assert [row[0] for row in follower.rows] == [row[0] for row in expected]
    assert follower.rows == expected


def recording_id_of(cluster: SystemCluster, member_id: int) -> int:
    """The id that a member's archive has given to the log."""
    found = StreamMember(cluster.directory_of(member_id), recording_id=None, is_marked=True).look()
    assert isinstance(found, StreamMemberLog), found
    return found.descriptor.recording_id
