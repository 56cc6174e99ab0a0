"""A store that is kept up with a backup while the backup grows, the store fails, and who is asked how far it is."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.facts import has_facts
from tests.s3_server import BUCKET, Fault, FaultKind, S3Server
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.waiting import within
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.format.stored_names import StoredName
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.status import BackupStatus, write_status
from trimaran.cluster.operating.backup.store_follower import StoreFollower
from trimaran.cluster.operating.backup.store_status import (
    StoreStatus,
    read_store_statuses,
    without_secret,
    write_store_status,
)
from trimaran.cluster.runtime.ground.host import Host
from trimaran.cluster.runtime.ground.system_clock import SystemClock
from trimaran.cluster.time_travel import MemberLog
from trimaran.service_api import ConfigurationError

DEADLINE_S = 60


class Growing:
    """A directory that has the content of one stage, and then of another."""

    def __init__(self, stages: list[Path], place: Path) -> None:
        self._stages = [Path(shutil.copytree(stage, place / str(number))) for number, stage in enumerate(stages)]
        self.path = place / "backup"
        self.become(0)

    def become(self, number: int) -> None:
        """Switch in one step."""
        link = self.path.with_suffix(".new")
        link.symlink_to(self._stages[number])
        link.replace(self.path)


@pytest.fixture
def growing(stages: list[Path], tmp_path: Path) -> Growing:
    return Growing(stages, tmp_path)


@pytest.fixture
def url(s3: S3Server, request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


class Watched:
    """A follower, and what it says."""

    def __init__(self, follower: StoreFollower) -> None:
        self.follower = follower
        self._copied = asyncio.Event()
        follower.on_copied = lambda status: self._copied.set()

    async def until(self, holds: Callable[[StoreStatus], bool]) -> StoreStatus:
        """Wait for a copy after which something holds."""
        async with within(DEADLINE_S):
            while not holds(self.follower.status):
                self._copied.clear()
                await self._copied.wait()
        return self.follower.status


def reached(status: StoreStatus) -> int:
    """Where the log of the store ends; -1 while there is none."""
    return -1 if status.log_stop_position is None else status.log_stop_position


@asynccontextmanager
async def following(directory: Path, url: str) -> AsyncIterator[Watched]:
    follower = StoreFollower(directory, url, interval_s=0.02, host=Host.of_operating_system())
    watched = Watched(follower)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(follower.run())
        yield watched
        task.cancel()


async def test_store_follows_a_backup_that_grows_through_failures_of_the_store(
    growing: Growing, stages: list[Path], s3: S3Server, url: str, tmp_path: Path
) -> None:
    async with following(growing.path, url) as watched:
        first = await watched.until(lambda status: status.copy_count == 1)
        fault = Fault(FaultKind.UNAVAILABLE)
        s3.faults.append(fault)
        growing.become(1)
        failed = await watched.until(lambda status: status.failure_count >= 1)
        s3.faults.clear()
        await watched.until(lambda status: reached(status) > reached(first))
        growing.become(2)
        last = await watched.until(lambda status: reached(status) == MemberLog.open(stages[2]).recorded_position)

    assert failed.log_stop_position == first.log_stop_position
    assert has_facts(failed.last_failure, f"{url}/", "indexes/")
    assert last.failure_count == failed.failure_count
    await asyncio.to_thread(fetch_backup, url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(stages[2])


async def test_store_that_has_everything_is_left_alone(growing: Growing, s3: S3Server, url: str) -> None:
    async with following(growing.path, url) as watched:
        await watched.until(lambda status: status.copy_count == 1)
        s3.requests.clear()
        status = await watched.until(lambda status: status.copy_count >= 3)

    assert s3.written() == []
    assert status.as_of_ms is not None
    assert status.age_ms(reached(status), now_ms=status.as_of_ms + 5_000) == 0
    assert status.age_ms(reached(status) + 32, now_ms=status.as_of_ms + 5_000) == 5_000


async def test_directory_that_lost_its_end_is_waited_for(growing: Growing, stages: list[Path], url: str) -> None:
    growing.become(1)
    async with following(growing.path, url) as watched:
        first = await watched.until(lambda status: status.copy_count == 1)
        growing.become(0)
        failed = await watched.until(lambda status: status.failure_count >= 1)
        growing.become(2)
        last = await watched.until(lambda status: reached(status) == MemberLog.open(stages[2]).recorded_position)

    assert "its end" in failed.last_failure
    assert reached(failed) == reached(first) < reached(last)


async def test_store_of_an_older_trimaran_ends_it(growing: Growing, url: str) -> None:
    ObjectStore(url).put(StoredName("manifest.json"), b"{}")
    follower = StoreFollower(growing.path, url, interval_s=0.02, host=Host.of_operating_system())

    with pytest.raises(ConfigurationError, match="older Trimaran"):
        async with within(DEADLINE_S):
            await follower.run()


def agent_status(recorded_position: int) -> BackupStatus:
    now_ms = SystemClock().epoch_time()
    return BackupStatus(
        state="BACKING_UP",
        reason="follows member 1",
        cluster_id=None,
        source_member_id=1,
        log_start_position=0,
        recorded_position=recorded_position,
        commit_position=recorded_position,
        behind_s=0.0,
        snapshot_position=None,
        snapshot_count=0,
        next_query_ms=now_ms,
        failure_count=0,
        last_failure="",
        pid=1,
        written_ms=now_ms,
    )


def store_status(as_of_ms: int | None, log_stop_position: int | None, *, last_failure: str = "") -> StoreStatus:
    return StoreStatus(
        url="s3://bucket/shop",
        log_stop_position=log_stop_position,
        as_of_ms=as_of_ms,
        interval_s=10.0,
        copy_count=1,
        written_bytes=100,
        failure_count=int(bool(last_failure)),
        last_failure=last_failure,
        pid=1,
        written_ms=0,
    )


def show(directory: Path, *options: str) -> Result:
    arguments = ["backup", "status", str(directory), *options]
    return CliRunner().invoke(build_app(arguments), arguments)


@contextmanager
def statuses(directory: Path, store: StoreStatus, recorded_position: int) -> Iterator[Path]:
    (directory / "cluster").mkdir(parents=True)
    write_status(OsFileSystem(), directory / "cluster", agent_status(recorded_position))
    write_store_status(OsFileSystem(), directory, store)
    yield directory


def test_status_tells_how_far_each_store_is(tmp_path: Path) -> None:
    as_of_ms = SystemClock().epoch_time() - 30_000
    with statuses(tmp_path / "backup", store_status(as_of_ms, 640), recorded_position=1_280) as directory:
        shown = show(directory, "-o", "json")

        assert shown.exit_code == 0, shown.output
        (store,) = json.loads(shown.stdout)["stores"]
        assert (store["url"], store["log_stop_position"], store["lag_bytes"]) == ("s3://bucket/shop", 640, 640)
        assert 30 <= store["age_s"] < 60
        assert [found.url for found in read_store_statuses(directory)] == ["s3://bucket/shop"]


@pytest.mark.parametrize(
    ("as_of_ms", "position", "said"),
    [(1_000, 640, "its copies take long"), (None, None, "OSError: refused"), (1_000, 640, "OSError: refused")],
)
def test_status_fails_where_a_store_is_far_behind(
    tmp_path: Path, as_of_ms: int | None, position: int | None, said: str
) -> None:
    failure = said if said.startswith("OSError") else ""
    store = store_status(as_of_ms, position, last_failure=failure)
    with statuses(tmp_path / "backup", store, recorded_position=1_280) as directory:
        shown = show(directory)

    assert shown.exit_code == 10
    assert has_facts(shown.output, "s3://bucket/shop", f"{said}")


def test_url_is_shown_without_a_password() -> None:
    assert without_secret("ftp://user:secret@host/path@2") == "ftp://host/path@2"
    assert without_secret("s3://bucket/shop") == "s3://bucket/shop"
