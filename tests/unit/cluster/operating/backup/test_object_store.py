"""A backup in an object store: what is written, in which order, and what comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import fsspec
import pytest

from tests.facts import has_facts
from tests.s3_server import BUCKET
from tests.sampling import sampled
from tests.unit.cluster.operating.backup.backed_up import backed_up
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, restart
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.catalog import read_catalog
from trimaran.archive.format.catalog import encode_catalog
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.log.member_directory import ArchiveLocation
from trimaran.archive.stored.backup_files import FoundBackup, StoredBackup, find_backup
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import StoredFile
from trimaran.cluster.operating.backup import fetching, shipping
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.shipping import Shipped, _segments, ship_backup
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ClusterError, ConfigurationError

NOW_MS = 1_800_000_000_000


FIRST_SEGMENT, LAST_SEGMENT, SNAPSHOT = "archive/0-0.rec", "archive/0-131072.rec", "archive/1-0.rec"
PLACES = ("memory", "file", "s3")


@pytest.fixture(params=PLACES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    """An empty place, in memory, on a disk and behind HTTP."""
    if request.param == "s3":
        request.getfixturevalue("running_server")
    urls = {
        "memory": f"memory://backups/{request.node.name}",
        "file": f"file://{tmp_path}/store",
        "s3": f"s3://{BUCKET}/{request.node.name}",
    }
    yield ObjectStore(urls[request.param])
    memory = fsspec.filesystem("memory")
    if memory.exists("/backups"):
        memory.rm("/backups", recursive=True)


def ship(stage: Path, store: ObjectStore) -> Shipped:
    return ship_backup(stage, store.url, clock_ms=lambda: NOW_MS)


def found(store: ObjectStore) -> FoundBackup:
    """What the store has."""
    backup = find_backup(store.url)
    assert backup is not None
    return backup


def files(store: ObjectStore) -> dict[str, StoredFile]:
    """The files of the backup that it has, by their paths."""
    return {file.path: file for file in found(store).index.files}


def object_names(found: Iterable[StoredFile]) -> set[StoredName]:
    """The names of the objects of files."""
    return {each.name for file in found for each in file.objects}


def objects_of(store: ObjectStore) -> ObjectStore:
    """The place of the cluster in it."""
    return ObjectStore(found(store).store.url)


def test_what_was_shipped_comes_back_and_is_valid(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    shipped = ship(stages[2], store)

    contents = fetch_backup(store.url, tmp_path / "back")

    assert contents == shipped.contents
    assert [check.problem for check in verify_backup(str(tmp_path / "back"), service=Keeper) if check.problem] == []
    assert payloads(tmp_path / "back") == payloads(stages[2])


def test_a_log_that_ends_with_a_segment_is_shipped_with_the_next_one(stages: list[Path]) -> None:
    """A member keeps it as soon as one is full: without it, a restore takes the end for a lost segment.

    Found by `trimaran sim --seeds 389`.
    """
    log = MemberLog.open(str(stages[2])).log
    length = log.segment_file_length

    shipped = [*_segments(stages[2] / "archive", [replace(log, start_position=0, stop_position=2 * length)])]

    expected = [(length, "segment"), (length, "segment"), (0, "tail")]
    assert [(segment.length, segment.kind) for segment in shipped] == expected
    assert shipped[-1].path.name == log.segment_file_name(2 * length)


def test_backup_of_several_terms_comes_back(store: ObjectStore, tmp_path: Path) -> None:
    """A term's entry is written again when the next term begins."""
    with backed_up() as (small, backup):
        backup.start()
        for _ in range(3):
            small.send(5)
            restart(small, small.leader)
        small.send(5)
        backup.catch_up()
        terms = [entry for entry in backup.recording_log.entries if entry.is_valid_term]
        backup.write_to(tmp_path / "backup")

    ship(tmp_path / "backup", store)

    fetch_backup(store.url, tmp_path / "back")
    for place in (store.url, str(tmp_path / "back")):
        assert [check.problem for check in verify_backup(place, service=Keeper) if check.problem] == []
        assert [entry for entry in MemberLog.open(place).recording_log.entries if entry.is_valid_term] == terms
    assert len(terms) >= 3
    assert payloads(tmp_path / "back") == payloads(tmp_path / "backup")


def test_each_copy_writes_what_is_new_and_removes_what_the_backup_has_removed(
    stages: list[Path], store: ObjectStore, tmp_path: Path
) -> None:
    copies, seen = [], []
    for stage in (*stages, stages[2]):
        copies.append(ship(stage, store))
        seen.append(files(store))
    first, second, third, again = copies

    assert first.url == second.url == third.url == found(store).url
    gone = object_names(seen[1].values()) - object_names(seen[2].values())
    assert third.removed_count == len(gone) >= 2  # the recordings of the older snapshot
    assert all(name.startswith("backup-") for name in gone)
    assert seen[2][FIRST_SEGMENT] == seen[0][FIRST_SEGMENT]
    assert third.written_bytes < sum(file.length for file in seen[2].values())
    assert (again.written_count, again.removed_count) == (0, 0)
    fetch_backup(store.url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(stages[2])


def test_store_is_read_by_its_url_as_a_members_directory(stages: list[Path], store: ObjectStore) -> None:
    ship(stages[2], store)

    checks = [*verify_backup(store.url)]

    assert [check.problem for check in checks if check.problem] == []
    assert any(check.what.startswith("snapshot at") for check in checks)


@pytest.mark.parametrize("store", sampled(PLACES, ["s3"]), indirect=True)
def test_reader_sees_a_whole_backup_after_every_single_write(
    stages: list[Path], store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may die before any write or removal: the store then holds the backup before, or the new one."""
    ship(stages[1], store)
    before = payloads(stages[1])
    seen: list[list[str]] = []

    def look() -> None:
        target = tmp_path / f"look-{len(seen)}"
        fetch_backup(store.url, target)
        seen.append(payloads(target))

    for name in ("put", "remove"):
        monkeypatch.setattr(ObjectStore, name, looking(getattr(ObjectStore, name), look))
    ship(stages[2], store)
    look()

    assert len(seen) > 6
    assert all(each in (before, payloads(stages[2])) for each in seen)
    assert seen[-1] == payloads(stages[2])


def looking(method: Callable[..., None], look: Callable[[], None]) -> Callable[..., None]:
    """Look at the store before each call."""

    def call(self: ObjectStore, *arguments: object) -> None:
        look()
        method(self, *arguments)

    return call


def test_index_is_written_after_all_that_it_names(
    stages: list[Path], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put, put_file = ObjectStore.put, ObjectStore.put_file

    def noting(self: ObjectStore, name: StoredName, data: bytes) -> None:
        written.append(name)
        put(self, name, data)

    def noting_file(self: ObjectStore, name: StoredName, source: Path) -> None:
        written.append(name)
        put_file(self, name, source)

    monkeypatch.setattr(ObjectStore, "put", noting)
    monkeypatch.setattr(ObjectStore, "put_file", noting_file)

    ship(stages[2], store)

    index = found(store).index
    assert written[-1] == f"indexes/{index.writer}.json"
    assert {name for name in written if not name.startswith("indexes/")} == object_names(index.files)


def test_a_segment_that_another_backup_has_put_there_is_not_sent_again(
    stages: list[Path], store: ObjectStore, tmp_path: Path
) -> None:
    """As where two agents back one cluster up, or one was begun again."""
    other = tmp_path / "other"
    shutil.copytree(stages[2], other)
    begin_again(other)
    ship(stages[1], store)

    shipped = ship(other, store)

    with pytest.raises(ConfigurationError, match="2 backups"):
        fetch_backup(store.url, tmp_path / "back")
    fetch_backup(shipped.url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(stages[2])
    first, second = ClusterStore(shipped.url.partition("/indexes/")[0]).read_indexes()
    assert first.names < second.names
    length = first.segments[0].length
    shared = len(first.names) * length
    assert shipped.written_bytes < sum(file.length for file in second.files) - shared + length // 2  # and the index


def begin_again(directory: Path) -> None:
    """Let the log of a directory have been begun a millisecond later."""
    disk, archive = OsFileSystem(), directory / "archive"
    content = read_catalog(disk, archive)
    described = [replace(entry, start_timestamp_ms=entry.start_timestamp_ms + 1) for entry in content.readable]
    (archive / "archive.catalog").write_bytes(encode_catalog(described, next_recording_id=len(described)))


@pytest.mark.parametrize("name", [FIRST_SEGMENT, SNAPSHOT])
def test_object_that_was_changed_is_named_and_nothing_is_written(
    stages: list[Path], store: ObjectStore, tmp_path: Path, name: str
) -> None:
    ship(stages[1], store)
    file, objects = files(store)[name], objects_of(store)
    data = bytearray(objects.read(file.objects[0].name))
    data[40] ^= 1
    objects.put(file.objects[0].name, bytes(data))

    with pytest.raises(ClusterError, match=rf"damaged.*{file.objects[0].name}"):
        fetch_backup(store.url, tmp_path / "back")

    assert not (tmp_path / "back").exists()


RESERVED_VALUE, PAYLOAD = 24, 40
"""Offsets in a frame: one that its CRC does not cover, and one that it does."""


@pytest.mark.parametrize("store", sampled(PLACES, ["s3"]), indirect=True)
@pytest.mark.parametrize("offset", [RESERVED_VALUE, PAYLOAD])
@pytest.mark.parametrize("name", [FIRST_SEGMENT, SNAPSHOT])
def test_verify_names_an_object_with_a_flipped_bit(
    stages: list[Path], store: ObjectStore, name: str, offset: int
) -> None:
    ship(stages[1], store)
    file, objects = files(store)[name], objects_of(store)
    data = bytearray(objects.read(file.objects[0].name))
    data[offset] ^= 1
    objects.put(file.objects[0].name, bytes(data))

    problems = {check.what: check.problem for check in verify_backup(store.url) if check.problem}

    told = problems[f"objects of {file.path}"]
    assert told is not None
    assert has_facts(told, f"{objects.url}/{file.objects[0].name}", f"sha256={file.sha256}", f"{file.length} bytes")
    assert sha256(data[: file.length]).hexdigest() in told


def test_verify_names_an_object_that_lacks_its_end_and_one_that_is_gone(stages: list[Path], store: ObjectStore) -> None:
    ship(stages[2], store)
    objects, (first, second) = objects_of(store), [files(store)[name] for name in (FIRST_SEGMENT, LAST_SEGMENT)]
    objects.put(first.objects[0].name, objects.read(first.objects[0].name)[: first.length - 32])
    objects.remove(second.objects[0].name)

    problems = [check.problem or "" for check in verify_backup(store.url)]

    assert len(problems) == 2
    assert has_facts(problems[0], f"found={first.length - 32} bytes", first.objects[0].name)
    assert has_facts(problems[1], "missing", second.objects[0].name)


def test_verify_of_a_sound_store_says_that_it_has_compared_the_digests(stages: list[Path], store: ObjectStore) -> None:
    """A later copy that is cut off has made the tail longer: what the index names is its beginning."""
    ship(stages[1], store)
    objects, index = objects_of(store), found(store).index
    (tail,) = [file for file in index.files if file.path == LAST_SEGMENT]
    last = tail.objects[-1].name
    objects.put(last, objects.read(last) + bytes(64))

    checks = {check.what: check for check in verify_backup(store.url)}

    length = sum(file.length for file in index.files)
    assert has_facts(checks["objects"].detail, f"{len(index.files)} objects", f"{length} bytes")
    assert [check.problem for check in checks.values() if check.problem] == []


def test_object_that_is_gone_is_named(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    ship(stages[0], store)
    name = files(store)[FIRST_SEGMENT].objects[0].name
    objects_of(store).remove(name)

    with pytest.raises(ClusterError, match=rf"missing.*{name}"):
        fetch_backup(store.url, tmp_path / "back")


def test_reader_that_knows_a_tail_of_before_reads_the_segment_that_it_became(
    stages: list[Path], store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore and a scan take long, and copies go on meanwhile."""
    monkeypatch.setattr(shipping, "_WHOLE_BELOW", 1)
    ship(stages[0], store)
    before, tail = found(store), [part.name for part in found(store).index.backup.parts]  # type: ignore[union-attr]
    ship(stages[2], store)
    assert not set(tail) & {*objects_of(store).list_names(before.index.writer)}
    monkeypatch.setattr(fetching, "find_backup", lambda url, open_objects: before)

    fetch_backup(store.url, tmp_path / "back")
    read = MemberLog.open(ArchiveLocation(StoredBackup(before.store.url, before.index), Path()))

    assert payloads(tmp_path / "back") == payloads(stages[0])
    assert before.index.backup is not None
    assert read.recorded_position == before.index.backup.log_stop_position


def test_store_that_is_ahead_stays_until_the_directory_has_come_up_to_it(
    stages: list[Path], store: ObjectStore
) -> None:
    """As after a power loss that took what was copied already."""
    second = ship(stages[1], store)

    with pytest.raises(ClusterError, match="its end") as refusal:
        ship(stages[0], store)

    assert not isinstance(refusal.value, ConfigurationError)
    assert found(store).index.backup == second.contents == ship(stages[1], store).contents
    assert ship(stages[2], store).written_count > 0


def test_directory_without_a_cluster_id_is_refused(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    """What came of it could not be restored: a member's directory that has no id may be one of Aeron's."""
    directory = Path(shutil.copytree(stages[0], tmp_path / "directory"))
    (directory / "cluster" / "cluster-id").unlink()

    with pytest.raises(ConfigurationError, match=r"no backup.*directory: .*cluster/cluster-id"):
        ship(directory, store)
    assert find_backup(store.url) is None


def test_empty_store_has_no_backup(store: ObjectStore, tmp_path: Path) -> None:
    assert find_backup(store.url) is None
    with pytest.raises(ConfigurationError, match="no backup at"):
        fetch_backup(store.url, tmp_path / "back")


def test_store_that_an_older_trimaran_wrote_is_refused(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    store.put(StoredName("manifest.json"), b"{}")

    for use in (
        lambda: ship(stages[0], store),
        lambda: fetch_backup(store.url, tmp_path / "back"),
        lambda: [*verify_backup(store.url)],
    ):
        with pytest.raises(ConfigurationError) as refused:
            use()
        assert has_facts(str(refused.value), store.url, "manifest.json", "another URL")
