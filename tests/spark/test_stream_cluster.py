"""A stream over a real cluster: exactly once, whoever dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.system.cluster_process import SystemCluster
from tests.system.conftest import data_dir as data_dir
from tests.system.directory_checker import check_directory, log_end_position
from tests.system.requester import Requester
from tests.waiting import wait_for, wait_until
from trimaran.archive.log.commit_proof import MemberMarks
from trimaran.archive.log.member_directory import MemberDirectory
from trimaran.benchmarks.rig.member_log import RigMemberLog
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup
from trimaran.benchmarks.scenarios.stream_query import StreamQueryParameters

pytestmark = pytest.mark.campaign

COLUMNS = ["position", "frame_length", "leadership_term_id", "payload"]
TIMEOUT_S = 150.0
"""For a run of Spark to get somewhere: ten seconds on a quiet machine, more than a minute on a busy one."""

BURST_MESSAGES = 20
BURST_INTERVAL_S = 0.05
"""So much is written all the time: enough for several segments, and for every batch to have something."""


class Queries:
    """Runs of one streaming query, one after another, over one checkpoint and one directory of Parquet files."""

    def __init__(self, cluster: SystemCluster, group: ProcessGroup, directory: Path) -> None:
        self.sink = directory / "sink"
        self.sink.mkdir(parents=True)
        self._cluster = cluster
        self._group = group
        self._directory = directory
        self._process: ManagedProcess | None = None
        self._run_count = 0

    def start(self, member_ids: Sequence[int], *, is_drain: bool = False) -> None:
        """Start a run over these members' directories, in this order; all three are asked what is committed."""
        ports = self._cluster.processes.base_ports
        parameters = StreamQueryParameters(
            path=",".join(str(self._cluster.directory_of(i)) for i in member_ids),
            sink=str(self.sink),
            checkpoint=str(self._directory / "checkpoint"),
            columns=COLUMNS,
            options={
                "commitFrom": ",".join(f"127.0.0.1:{port + 1}" for port in ports),
                "maxBytesPerTrigger": "1m",
                "messages": "true",
            },
            config={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
            is_drain=is_drain,
        )
        self._run_count += 1
        self._process = self._group.spawn(
            "query",
            (sys.executable, "-m", "trimaran.benchmarks.scenarios.stream_query", parameters.to_json()),
            log_path=self._directory / f"query-{self._run_count}.log",
            environment=dict(os.environ),
        )

    @property
    def run(self) -> RigMemberLog:
        """What the run that goes on has said."""
        assert self._process is not None
        return RigMemberLog(self._process.log_path)

    async def wait_for_rows_after(self, position: int) -> None:
        """Wait until this run has written a batch with rows after a position."""

        def last_position() -> int:
            assert self._process is not None
            self._process.check_running()
            return max((int(Path(batch["file"]).stem.split("-")[1]) for batch in self.run.events("batch")), default=-1)

        await wait_until(
            lambda: last_position() > position, timeout_s=TIMEOUT_S, what=lambda: f"rows: {self._process!r}"
        )

    async def wait_for_end(self) -> None:
        """Wait until a run that drains has ended in order."""
        process = self._process
        assert process is not None
        status = await wait_for(process.popen.poll, timeout_s=TIMEOUT_S, what="the end of the query")
        assert status == 0, process.log_tail()

    def kill(self) -> None:
        """End Python and its JVM without warning."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.popen.wait()

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows in the sink, by position."""
        tables = [parquet.read_table(path) for path in self.sink.glob("[0-9]*.parquet")]
        found = [
            row for table in tables for row in zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)
        ]
        return sorted(found)


async def test_each_committed_message_is_in_the_sink_once_whoever_is_killed(data_dir: Path, tmp_path: Path) -> None:
    """Two kills of the query, one of the leader, another order of directories; then all is compared with the log."""
    async with SystemCluster(data_dir) as cluster:
        with ProcessGroup() as group:
            leader = await cluster.wait_for_leader()
            queries = Queries(cluster, group, tmp_path / "query")
            async with cluster.requester() as requester:
                writer = asyncio.create_task(write(requester))
                queries.start([0, 1, 2])
                await queries.wait_for_rows_after(0)
                queries.kill()

                queries.start([0, 1, 2])
                await queries.wait_for_rows_after(log_end_position(cluster.directory_of(0)))
                await cluster.kill_and_serve(requester, leader.leader_member_id)
                survivors = [i for i in range(3) if i != leader.leader_member_id]
                new_term = read_marks(cluster.directory_of(survivors[0])).terms[-1]
                await queries.wait_for_rows_after(new_term.term_base_log_position)
                queries.kill()
                writer.cancel()
                await asyncio.wait([writer])
                await requester.quiesce()
                end_position = await cluster.wait_for_equal_logs()

                queries.start([leader.leader_member_id, survivors[1], survivors[0]], is_drain=True)
                await queries.wait_for_end()

    log = check_directory(cluster.directory_of(survivors[0]), stopped=True).log
    expected = {message.position: message.encoded for message in log.messages() if message.end_position <= end_position}
    rows = queries.rows()
    assert [row[0] for row in rows] == sorted(expected)
    assert {row[0]: row[3] for row in rows} == expected
    assert {row[2] for row in rows} >= {leader.leadership_term_id, new_term.leadership_term_id}


async def write(requester: Requester) -> None:
    """Send messages until cancelled."""
    while True:
        requester.submit_many(BURST_MESSAGES)
        await asyncio.sleep(BURST_INTERVAL_S)


def read_marks(directory: Path) -> MemberMarks:
    marks = MemberDirectory.find(directory).read_marks()
    assert marks is not None
    return marks
