"""Cold storage: what is shipped before it is deleted, and how it comes back, whatever the store does."""

from __future__ import annotations

import asyncio
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.s3_server import BUCKET, Fault, FaultKind, s3_server
from tests.unit.archive.streams import TERM_LENGTH
from tests.unit.cluster.runtime.snapshots.cold_rig import CLUSTER_ID, NEEDED, member, whole_log
from tests.waiting import patient, wait_until
from trimaran.archive import ArchiveError, ArchiveErrorCode, frames
from trimaran.archive.cold.cache import SegmentCache
from trimaran.archive.cold.file_system import readable_disk
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.format.layout import COLD_RECORD_NAME
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.reading.verify import verify_recording
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import StoredSegment, WriterIndex
from trimaran.cluster.runtime.snapshots import cold_shipper


def index(url: str, member_id: int = 0) -> WriterIndex:
    found = ClusterStore(f"{url}/{CLUSTER_ID}").read_index(f"member-{member_id}")
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_shipper, "RETRY_S", 0.02)


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/store" if request.param == "file" else f"memory://{tmp_path.name}"


async def test_a_replay_from_the_beginning_reads_what_left_the_disk(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge()

        assert await rig.replay() == whole_log()
        assert await rig.replay(2 * TERM_LENGTH) == whole_log()[2 * TERM_LENGTH :]
        assert rig.archive.readable_descriptor(0).start_position == 0
        assert [segment.base_position for segment in index(url).segments] == [n * TERM_LENGTH for n in range(5)]


async def test_the_cache_keeps_what_was_read_last_within_its_limit(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge()
        await rig.replay()

        assert rig.cache == [str(3 * TERM_LENGTH), str(4 * TERM_LENGTH)]
        assert rig.archive.cold is not None
        assert rig.archive.cold.counts.fetched_count == 5
        await rig.replay(3 * TERM_LENGTH)
        assert rig.archive.cold.counts.fetched_count == 5


async def test_readers_of_the_directory_see_the_whole_log(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge()
        directory = rig.archive.directory
        disk = readable_disk(directory)
        entry = read_catalog(disk, directory).entries[0]

        assert entry.descriptor is not None
        log = LogFile.of(directory, entry.descriptor)
        assert log.segment_base_positions()[:6] == [n * TERM_LENGTH for n in range(6)]
        assert sum(1 for _ in log.reader()) == frames(directory).read_all().num_rows > 100
        assert log.find_gap() is None
        assert verify_recording(disk, directory, entry).problems == []


async def test_a_restarted_member_reads_from_its_cold_storage_and_ships_on(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge(2 * TERM_LENGTH)

    async with member(tmp_path / "0", url) as rig:
        await rig.purge()

        assert await rig.replay() == whole_log()
        assert len(index(url).segments) == 5


async def test_members_share_objects_and_each_has_an_index(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as zero, member(tmp_path / "1", url, member_id=1) as one:
        await zero.purge()
        await one.purge()

        assert index(url).segments == index(url, 1).segments
        assert len(ObjectStore(f"{url}/{CLUSTER_ID}").list_names("segments")) == 5


async def test_a_member_that_lacks_the_beginning_reads_what_others_shipped(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as zero:
        await zero.purge(3 * TERM_LENGTH)
    async with member(tmp_path / "1", url, member_id=1) as one:
        await one.archive.purge_segments(0, 3 * TERM_LENGTH)  # as after a snapshot was installed
        await one.purge()

        assert await one.replay() == whole_log()
        assert len(index(url, 1).segments) == 2


async def test_while_the_store_fails_segments_stay_and_then_they_go(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(tmp_path / "0", url) as rig:
        with monkeypatch.context() as broken:
            broken.setattr(ObjectStore, "put_file", refuse)
            rig.want()
            await rig.fail()

            assert rig.start_position == 0
            assert rig.shipper.standing.pending_bytes == NEEDED
            assert "store is down" in rig.shipper.standing.failure
            assert f"{url}/{CLUSTER_ID}/segments/" in rig.shipper.standing.failure
        await rig.purge()

        assert rig.shipper.standing.failing_since_ns is None
        assert rig.shipper.standing.pending_bytes == 0
        assert await rig.replay() == whole_log()


async def test_a_segment_is_not_deleted_until_the_index_names_it(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, refused = ObjectStore.put, threading.Event()

    def refuse_once(self: ObjectStore, name: StoredName, data: bytes) -> None:
        if "indexes/member" in name and not refused.is_set():
            refused.set()
            raise OSError(5, "the store is down")
        original(self, name, data)

    monkeypatch.setattr(ObjectStore, "put", refuse_once)
    async with member(tmp_path / "0", url) as rig:
        await rig.purge(TERM_LENGTH)

        assert rig.shipper.standing.failed_count == 1
        assert [segment.base_position for segment in index(url).segments] == [0]


async def test_a_store_that_hangs_stops_nobody(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    original = ObjectStore.put_file

    def hang(self: ObjectStore, name: StoredName, source: Path) -> None:
        released.wait(patient(60))
        original(self, name, source)

    monkeypatch.setattr(ObjectStore, "put_file", hang)
    async with member(tmp_path / "0", url) as rig:
        rig.want()

        assert await rig.replay() == whole_log()
        assert rig.start_position == 0
        released.set()
        await rig.purge()


async def test_an_object_that_is_not_whole_is_written_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ObjectStore.put_file
    seen: list[str] = []

    def write_half(self: ObjectStore, name: StoredName, source: Path) -> None:
        original(self, name, source)
        if not seen:
            self.put(name, source.read_bytes()[: TERM_LENGTH // 2])
        seen.append(name)

    monkeypatch.setattr(ObjectStore, "put_file", write_half)
    async with member(tmp_path / "0", url) as rig:
        await rig.purge(TERM_LENGTH)

        assert len(seen) == 2
        assert await rig.replay() == whole_log()


async def test_what_is_fetched_is_checked(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge()
        store = ObjectStore(f"{url}/{CLUSTER_ID}")
        name = index(url).segments[1].name
        data = bytearray(store.read(name))
        data[1000] ^= 1
        store.put(name, bytes(data))

        with pytest.raises(ArchiveError, match=r"object is damaged.*restore") as refused:
            await rig.replay()
        assert refused.value.code is ArchiveErrorCode.STORAGE_FAILED
        assert name in str(refused.value)
        assert rig.archive.damage.places == []
        data[1000] ^= 1
        store.put(name, bytes(data))
        assert await rig.replay() == whole_log()


async def test_an_object_that_is_gone_is_named(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as rig:
        await rig.purge()
        name = index(url).segments[0].name
        ObjectStore(f"{url}/{CLUSTER_ID}").remove(name)

        with pytest.raises(ArchiveError, match=rf"missing.*{name}"):
            await rig.replay()
        assert await rig.replay(TERM_LENGTH) == whole_log()[TERM_LENGTH:]


async def test_a_damaged_segment_stays_until_another_member_has_shipped_it(tmp_path: Path, url: str) -> None:
    async with member(tmp_path / "0", url) as zero, member(tmp_path / "1", url, member_id=1) as one:
        path = zero.archive.directory / f"0-{TERM_LENGTH}.rec"
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
        zero.want()
        await zero.fail()
        assert "recorded frame" in zero.shipper.standing.failure
        await wait_until(lambda: zero.start_position == TERM_LENGTH, timeout_s=20, what="the segment before")

        await one.purge()
        await zero.purge()

        assert await zero.replay() == whole_log()


def refuse(*args: Any) -> None:  # whatever it is called with
    raise OSError(5, "the store is down")


def test_the_record_says_where_the_store_is(tmp_path: Path, url: str) -> None:
    async def ship() -> str:
        async with member(tmp_path / "0", url) as rig:
            await rig.purge()
            return (rig.archive.directory / COLD_RECORD_NAME).read_text()

    assert f"{url}/{CLUSTER_ID}" in asyncio.run(ship())


async def test_a_store_over_http_that_refuses_and_cuts_gets_all_and_gives_it_back(tmp_path: Path) -> None:
    with s3_server() as server:
        server.faults += [
            Fault(FaultKind.UNAVAILABLE, "PUT", count=2),
            Fault(FaultKind.CUT, "PUT", count=1),
            Fault(FaultKind.LOST_ANSWER, "PUT", ".json", count=1),
            Fault(FaultKind.SLOW, "GET", ".rec", count=2),
        ]
        url = f"s3://{BUCKET}/{tmp_path.name}"
        async with member(tmp_path / "0", url) as rig:
            await rig.purge()

            assert await rig.replay() == whole_log()
        assert [segment.base_position for segment in index(url).segments] == [n * TERM_LENGTH for n in range(5)]


def test_a_cached_segment_survives_a_power_loss(tmp_path: Path) -> None:
    """A cache trusts names: an empty file was read as damage of the log. Source: make power-backup SEED=25, round 2."""
    content, disk, url = b"s" * 5_000, MemoryFileSystem(), f"memory://{tmp_path.name}"
    segment = StoredSegment(base_position=0, start_position=0, length=len(content), sha256=sha256(content).hexdigest())
    ObjectStore(url).put(segment.name, content)
    cache = SegmentCache(Path("/cache"), limit_bytes=10_000, disk=disk)

    assert cache.fetch(ClusterStore(url, disk=disk), segment)
    disk.sync_directory(cache.directory)
    disk.crash()

    assert cache.has(segment)
    assert disk.durable_read(cache.path_of(segment), len(content), 0) == content
