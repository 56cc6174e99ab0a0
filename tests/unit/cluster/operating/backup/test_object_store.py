"""A backup in an object store: what is written, in which order, and what comes back."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from tests.s3_server import BUCKET
from tests.sampling import sampled
from tests.unit.cluster.operating.backup.backed_up import backed_up
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.testing.simulation.test_snapshots import Keeper, restart
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.format.stored_names import StoredName
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.manifest import DRAFT_NAME, MANIFEST_NAME, object_digest
from trimaran.cluster.operating.backup.shipping import Shipped, _segments, read_backup_manifest, ship_backup
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ClusterError, ConfigurationError

NOW_MS = 1_800_000_000_000


FIRST_SEGMENT = StoredName("archive/0-0.rec")
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
    return ship_backup(stage, store.url, now_ms=NOW_MS)


def test_what_was_shipped_comes_back_and_is_valid(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    shipped = ship(stages[2], store)

    manifest = fetch_backup(store.url, tmp_path / "back")

    assert manifest == shipped.manifest
    assert [check.problem for check in verify_backup(str(tmp_path / "back"), service=Keeper) if check.problem] == []
    assert payloads(tmp_path / "back") == payloads(stages[2])


def test_a_log_that_ends_with_a_segment_is_shipped_with_the_next_one(stages: list[Path]) -> None:
    """A member keeps it as soon as one is full: without it, a restore takes the end for a lost segment.

    Found by `trimaran sim --seeds 389`.
    """
    log = MemberLog.open(str(stages[2])).log
    length = log.segment_file_length

    shipped = [*_segments(stages[2] / "archive", [replace(log, start_position=0, stop_position=2 * length)])]

    assert [(segment.length, segment.is_final) for segment in shipped] == [(length, True), (length, True), (0, False)]
    assert shipped[-1].name == f"archive/{log.segment_file_name(2 * length)}"


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
    first, second, third = [ship(stage, store) for stage in stages]
    again = ship(stages[2], store)

    assert first.removed_count == second.removed_count == 0
    gone = second.manifest.by_name.keys() - third.manifest.by_name.keys()
    assert third.removed_count == len(gone) >= 2  # the older snapshot: the module's recording, and the service's
    assert not any(name.startswith("archive/0-") for name in gone)
    assert third.manifest.by_name[FIRST_SEGMENT] == first.manifest.by_name[FIRST_SEGMENT]
    assert third.written_bytes < sum(found.length for found in third.manifest.objects)
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


def test_manifest_is_written_after_all_that_it_names(
    stages: list[Path], store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = ObjectStore.put

    def noting(self: ObjectStore, name: StoredName, data: bytes) -> None:
        written.append(name)
        put(self, name, data)

    monkeypatch.setattr(ObjectStore, "put", noting)

    manifest = ship(stages[2], store).manifest

    assert written[-1] == MANIFEST_NAME
    assert written[-4:-1] == ["archive/archive.catalog", "cluster/recording.log", "cluster/cluster-id"]
    assert set(written) == {*manifest.by_name, *manifest.files, DRAFT_NAME, MANIFEST_NAME}


@pytest.mark.parametrize("name", [FIRST_SEGMENT, StoredName("archive/1-0.rec")])
def test_object_that_was_changed_is_named_and_nothing_is_written(
    stages: list[Path], store: ObjectStore, tmp_path: Path, name: StoredName
) -> None:
    ship(stages[1], store)
    data = bytearray(store.read(name))
    data[40] ^= 1
    store.put(name, bytes(data))

    with pytest.raises(ClusterError, match=rf"damaged.*{name}"):
        fetch_backup(store.url, tmp_path / "back")

    assert not (tmp_path / "back").exists()


RESERVED_VALUE, PAYLOAD = 24, 40
"""Offsets in a frame: one that its CRC does not cover, and one that it does."""


@pytest.mark.parametrize("store", sampled(PLACES, ["s3"]), indirect=True)
@pytest.mark.parametrize("offset", [RESERVED_VALUE, PAYLOAD])
@pytest.mark.parametrize("name", [FIRST_SEGMENT, StoredName("archive/1-0.rec")])
def test_verify_names_an_object_with_a_flipped_bit(
    stages: list[Path], store: ObjectStore, name: StoredName, offset: int
) -> None:
    expected = ship(stages[1], store).manifest.by_name[name]
    data = bytearray(store.read(name))
    data[offset] ^= 1
    store.put(name, bytes(data))

    problems = {check.what: check.problem for check in verify_backup(store.url) if check.problem}

    told = problems[f"object {name}"]
    assert told is not None
    assert f"{store.url}/{name} expected={expected.length} bytes with sha256={expected.sha256} found=" in told
    assert object_digest(bytes(data[: expected.length])) in told
    assert "to another URL with `trimaran backup ship`" in told


def test_verify_names_an_object_that_lacks_its_end_and_one_that_is_gone(stages: list[Path], store: ObjectStore) -> None:
    length = ship(stages[2], store).manifest.by_name[FIRST_SEGMENT].length
    store.put(FIRST_SEGMENT, store.read(FIRST_SEGMENT)[: length - 32])
    gone = next(one for one in store.list_names("archive") if one.endswith(".rec") and one != "0-0.rec")
    store.remove(StoredName(f"archive/{gone}"))

    problems = [check.problem or "" for check in verify_backup(store.url)]

    assert len(problems) == 2
    assert f"found={length - 32} bytes" in problems[0]
    assert f"missing: {store.url}/archive/{gone}" in problems[1]


def test_verify_of_a_sound_store_says_that_it_has_compared_the_digests(stages: list[Path], store: ObjectStore) -> None:
    """A later copy that is cut off has made the newest object longer: what the manifest names is its beginning."""
    objects = ship(stages[1], store).manifest.objects
    store.put(FIRST_SEGMENT, store.read(FIRST_SEGMENT) + bytes(64))

    found = {check.what: check for check in verify_backup(store.url)}

    length = sum(expected.length for expected in objects)
    assert f"{len(objects)} objects, {length} bytes" in found["objects"].detail
    assert [check.problem for check in found.values() if check.problem] == []


def test_object_that_is_gone_is_named(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    ship(stages[0], store)
    store.remove(FIRST_SEGMENT)

    with pytest.raises(ClusterError, match=r"missing.*archive/0-0\.rec"):
        fetch_backup(store.url, tmp_path / "back")


def test_store_that_is_ahead_stays_until_the_directory_has_come_up_to_it(
    stages: list[Path], store: ObjectStore
) -> None:
    """As after a power loss that took what was copied already."""
    ship(stages[1], store)

    with pytest.raises(ClusterError, match="its end") as refusal:
        ship(stages[0], store)

    assert not isinstance(refusal.value, ConfigurationError)
    assert read_backup_manifest(store) == ship(stages[1], store).manifest
    assert ship(stages[2], store).written_count > 0


def test_directory_that_was_begun_again_is_refused(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    """Its snapshots have the names of others, and may have their lengths."""
    ship(stages[1], store)
    manifest = read_backup_manifest(store)
    assert manifest is not None
    begun_before = manifest.model_copy(update={"log_started_ms": manifest.log_started_ms - 1})
    store.put(MANIFEST_NAME, begun_before.seal())

    with pytest.raises(ClusterError, match="another backup"):
        ship(stages[2], store)


def test_directory_without_a_cluster_id_is_refused(stages: list[Path], store: ObjectStore, tmp_path: Path) -> None:
    """What came of it could not be restored: a member's directory that has no id may be one of Aeron's."""
    directory = Path(shutil.copytree(stages[0], tmp_path / "directory"))
    (directory / "cluster" / "cluster-id").unlink()

    with pytest.raises(ConfigurationError, match=r"no backup.*directory: .*cluster/cluster-id"):
        ship(directory, store)
    assert read_backup_manifest(store) is None


def test_empty_store_has_no_backup(store: ObjectStore, tmp_path: Path) -> None:
    assert read_backup_manifest(store) is None
    with pytest.raises(ConfigurationError, match="no backup at"):
        fetch_backup(store.url, tmp_path / "back")
