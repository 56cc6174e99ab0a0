"""A store that backups and members share: the log is there once, and a prune removes what nobody needs, and no more."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from hashlib import sha256
from itertools import count
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from tests.facts import has_facts
from tests.simulation.backup_plants import PLANTS
from tests.simulation.plant import planted
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.operating.backup.test_object_store import begin_again
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.format.descriptor import RecordingDescriptor
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.store.cold_shipping import ColdShipping
from trimaran.archive.stored import pruning
from trimaran.archive.stored.backup_files import cluster_stores, find_backups
from trimaran.archive.stored.cluster_store import ClusterStore, StoreBusyError, StoreError
from trimaran.archive.stored.index import INDEXES, NOTE_LIMIT_MS, Note, WriterIndex
from trimaran.archive.stored.pruning import Pruned, prune
from trimaran.cluster.cli.app import build_app
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.shipping import Shipped, ship_backup
from trimaran.cluster.runtime.files.cluster_id_file import kept_cluster_id
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ClusterError, ConfigurationError
from trimaran.service_api.cluster_id import format_cluster_id
from trimaran.service_api.types import MemberId

NOW_MS = 1_800_000_000_000
Ship = Callable[[], object]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield f"memory://shared/{tmp_path.name}"
    memory = fsspec.filesystem("memory")
    if memory.exists("/shared"):
        memory.rm("/shared", recursive=True)


def ship(directory: Path, url: str, now_ms: int = NOW_MS) -> Shipped:
    return ship_backup(directory, url, clock_ms=lambda: now_ms)


class ColdMember:
    """Cold storage of a member that has the log of a backup's directory: it has the same bytes."""

    def __init__(self, directory: Path, url: str, member_id: int = 0) -> None:
        log = MemberLog.open(directory)
        cluster_id = format_cluster_id(kept_cluster_id(directory / "cluster"))
        assert cluster_id is not None
        self.descriptor: RecordingDescriptor = log.log
        self.end_position = log.recorded_position
        self.store = ClusterStore.below(url, cluster_id)
        self._shipping = ColdShipping(
            self.store,
            directory / "archive",
            cluster_id=cluster_id,
            member_id=MemberId(member_id),
            disk=OsFileSystem(),
            clock_ms=lambda: NOW_MS,
        )

    def ship(self) -> None:
        """Begin, and put every whole segment into the store."""
        self._shipping.load()
        length = self.descriptor.segment_file_length
        for base in range(0, self.end_position - length + 1, length):
            self._shipping.ship(self.descriptor, base)

    def read(self) -> list[int]:
        """Begin on an empty disk; return where the segments begin that can be read from the store."""
        found = self._shipping.load()
        for segment in found:
            data = ObjectStore(self.store.url).read(segment.name)
            assert sha256(data).hexdigest() == segment.sha256
        return [segment.base_position for segment in found]


def prune_all(
    url: str,
    keep_count: int | None = 1,
    now_ms: int = NOW_MS,
    *,
    shorten: Callable[[WriterIndex], WriterIndex] = lambda index: index,
    is_dry_run: bool = False,
) -> list[Pruned]:
    return [
        prune(store, keep_count=keep_count, clock_ms=lambda: now_ms, shorten=shorten, is_dry_run=is_dry_run)
        for store in cluster_stores(url)
    ]


def begun_again(stage: Path, place: Path) -> Path:
    directory = Path(shutil.copytree(stage, place / "again"))
    begin_again(directory)
    return directory


@pytest.mark.parametrize("is_member_first", [True, False])
def test_backup_and_cold_storage_store_the_log_once(
    stages: list[Path], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_member_first: bool
) -> None:
    written: list[str] = []
    put_file = ObjectStore.put_file

    def noting(self: ObjectStore, name: StoredName, source: Path) -> None:
        written.append(name)
        put_file(self, name, source)

    monkeypatch.setattr(ObjectStore, "put_file", noting)
    member = ColdMember(stages[2], url)

    if is_member_first:
        member.ship()
    ship(stages[2], url)
    if not is_member_first:
        member.ship()

    of_backup, of_member = member.store.read_indexes()
    assert of_backup.segments == of_member.segments
    assert len(written) == len(set(written)) == len(of_backup.segments) == 4
    assert member.store.list_names("segments") == sorted(name.rpartition("/")[2] for name in written)
    fetch_backup(url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(stages[2])


def test_prune_keeps_the_newest_backup_and_removes_what_it_alone_needed(
    stages: list[Path], url: str, tmp_path: Path
) -> None:
    old = ship(stages[2], url)
    new = ship(begun_again(stages[1], tmp_path), url, NOW_MS + 1)

    (pruned,) = prune_all(url)

    assert [found.url for found in find_backups(url)] == [new.url] != [old.url]
    assert pruned.kept_segment_count == 2  # the others were needed by the old one alone
    assert len(pruned.removed_backups) == len(pruned.kept_backups) == 1
    fetch_backup(url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(stages[1])
    (folder,) = [name for name in ClusterStore(pruned.url).list_names("") if name.startswith("backup-")]
    assert folder == pruned.kept_backups[0]


def test_prune_keeps_what_a_member_needs_for_one_with_a_new_disk(stages: list[Path], url: str, tmp_path: Path) -> None:
    """The only copy of the member may be there: the backup that put it there goes."""
    ship(stages[2], url)
    ship(begun_again(stages[0], tmp_path), url, NOW_MS + 1)
    member = ColdMember(stages[2], url)
    member.ship()

    prune_all(url)

    length = member.descriptor.segment_file_length
    assert ColdMember(stages[2], url, 1).read() == [0, length, 2 * length, 3 * length]
    assert ColdMember(stages[2], url).read() == [0, length, 2 * length, 3 * length]


def test_planted_prune_that_knows_no_members_is_found(stages: list[Path], url: str, tmp_path: Path) -> None:
    plant = next(plant for plant in PLANTS if plant.name == "prune-forgets-members")

    with planted(plant) as planting, pytest.raises(FileNotFoundError):
        test_prune_keeps_what_a_member_needs_for_one_with_a_new_disk(stages, url, tmp_path)

    assert planting.count > 0


def test_first_copy_that_has_not_ended_stays(stages: list[Path], url: str, tmp_path: Path) -> None:
    """Where a backup was begun again, the one before is what there is until that has ended."""
    old = ship(stages[1], url)
    again = begun_again(stages[2], tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterStore, "put", failing_put)
        with pytest.raises(ClusterError, match="cut off"):
            ship(again, url)

    (pruned,) = prune_all(url)

    assert [found.url for found in find_backups(url)] == [old.url]
    assert len(pruned.kept_backups) == 2
    assert pruned.kept_segment_count == 4


real_put = ClusterStore.put


def failing_put(self: ClusterStore, name: StoredName, data: bytes) -> None:
    if name.startswith("backup-"):
        raise ClusterError("cut off")
    real_put(self, name, data)


def test_objects_that_no_index_names_go(stages: list[Path], url: str) -> None:
    store = ClusterStore(ship(stages[0], url).url.partition("/indexes/")[0])
    strange = [f"segments/{0:019d}-{'0' * 64}.rec", "backup-7/0-0.rec"]
    for name in [*strange, "segments/mine.txt"]:
        store.put(StoredName(name), b"x")

    (pruned,) = prune_all(url)

    assert pruned.removed_count == len(strange)
    assert "mine.txt" in store.list_names("segments")
    assert store.list_names("backup-7") == []


# --- those who write, and those who remove


class Interleaved:
    """Runs one thing in the middle of another: before the nth time that the other asks the store for something."""

    def __init__(self, at: int, other: Ship) -> None:
        self.is_over = False
        self._left = at
        self._other = other

    def __call__(self, patch: pytest.MonkeyPatch) -> None:
        for name in ("put", "put_file", "read", "read_range", "find_length", "list_names", "remove"):
            patch.setattr(ObjectStore, name, self._wrap(getattr(ObjectStore, name)))

    def _wrap(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            self._left -= 1
            if self._left == -1:
                self.is_over = True
                self._other()
            return method(*arguments)

        return call


def at_every_moment(url: str, first: Callable[[str], object], second: Callable[[str], object]) -> Iterator[str]:
    """Run one thing before each step of another, each time at an empty place; yield the place after both."""
    for step in count():
        place = f"{url}/{step}"
        prepare_orphans(place)
        run = Interleaved(step, lambda place=place: attempt(second, place))  # type: ignore[misc]  # bound now
        with pytest.MonkeyPatch.context() as patch:
            run(patch)
            attempt(first, place)
        if not run.is_over:
            return
        yield place


ORPHANS: list[tuple[str, bytes]] = []


def prepare_orphans(place: str) -> None:
    """Have the segments there that are about to be named, as a backup left them that has gone."""
    for name, data in ORPHANS:
        ObjectStore(place).put(StoredName(name), data)


def attempt(work: Callable[[str], object], place: str) -> None:
    try:
        work(place)
    except StoreError:
        return  # who comes second gives way, and tries again later


@pytest.mark.parametrize("is_prune_inside", [True, False])
@pytest.mark.parametrize("writer", ["backup", "member"])
def test_prune_and_writer_at_the_same_time_leave_no_index_without_its_objects(
    stages: list[Path], url: str, writer: str, is_prune_inside: bool
) -> None:
    expect_whole_at_every_moment(stages, url, writer, is_prune_inside=is_prune_inside)


def expect_whole_at_every_moment(stages: list[Path], url: str, writer: str, *, is_prune_inside: bool) -> None:
    member = ColdMember(stages[1], f"{url}/origin")
    member.ship()
    cluster_id = member.store.url.rpartition("/")[2]
    objects = ObjectStore(member.store.url)
    names = [segment.name for index in member.store.read_indexes() for segment in index.segments]
    ORPHANS[:] = [(f"{cluster_id}/{name}", objects.read(name)) for name in names]

    def write(place: str) -> None:
        if writer == "backup":
            ship(stages[1], place)
        else:
            ColdMember(stages[1], place).ship()

    first, second = (write, prune_all) if is_prune_inside else (prune_all, write)
    places = [*at_every_moment(url, first, second)]

    assert len(places) > 8
    for place in places:
        for store in cluster_stores(place):
            there = {f"segments/{name}" for name in store.list_names("segments")}
            for index in store.read_indexes():
                assert index.names <= there
            assert not [name for name in store.list_names(INDEXES) if name.startswith(("writing-", "pruning-"))]


def a_prune_that_waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pruning, "_await_writers", lambda *arguments: None)


def a_writer_that_waits_for_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClusterStore, "writing", lambda store, *arguments: nullcontext(store.write_index))


@pytest.mark.parametrize(
    ("plant", "is_prune_inside"), [(a_prune_that_waits_for_nobody, True), (a_writer_that_waits_for_nobody, False)]
)
def test_planted_haste_is_found(
    stages: list[Path],
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    is_prune_inside: bool,
) -> None:
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        expect_whole_at_every_moment(stages, url, "member", is_prune_inside=is_prune_inside)


def test_prune_waits_for_who_writes_and_then_says_who(stages: list[Path], url: str) -> None:
    store = ClusterStore(ship(stages[0], url).url.partition("/indexes/")[0])
    note = StoredName("indexes/writing-member-2.json")
    store.put(note, Note(written_ms=NOW_MS).seal())
    waits = iter([True, True, False])

    with pytest.raises(StoreBusyError) as refused:
        prune(store, keep_count=1, clock_ms=lambda: NOW_MS, wait=lambda: next(waits))

    assert has_facts(str(refused.value), store.url, note)
    assert next(waits, None) is None
    assert not [name for name in store.list_names(INDEXES) if name.startswith("pruning-")]


def test_note_of_a_process_that_ended_long_ago_is_in_nobodys_way(stages: list[Path], url: str) -> None:
    store = ClusterStore(ship(stages[0], url).url.partition("/indexes/")[0])
    for name in ("writing-member-2", "pruning-0123456789abcdef"):
        store.put(StoredName(f"indexes/{name}.json"), Note(written_ms=NOW_MS).seal())

    with pytest.raises(StoreBusyError):
        prune_all(url, now_ms=NOW_MS + NOTE_LIMIT_MS - 1)
    with pytest.raises(StoreBusyError, match="prune runs"):
        ship(stages[1], url)
    prune_all(url, now_ms=NOW_MS + NOTE_LIMIT_MS)
    ship(stages[1], url, NOW_MS + NOTE_LIMIT_MS)


def test_prune_that_takes_half_a_day_removes_nothing_any_more(stages: list[Path], url: str, tmp_path: Path) -> None:
    ship(stages[2], url)
    ship(begun_again(stages[1], tmp_path), url, NOW_MS + 1)
    times = iter([NOW_MS, NOW_MS, NOW_MS])

    with pytest.raises(StoreBusyError, match="too long"):
        prune(cluster_stores(url)[0], keep_count=1, clock_ms=lambda: next(times, NOW_MS + NOTE_LIMIT_MS // 2))

    assert len(find_backups(url)) == 2


def test_writer_that_takes_half_a_day_names_nothing_any_more(stages: list[Path], url: str) -> None:
    """A machine that was suspended: its note no longer counts, and what it has found there may have gone."""
    times = iter([NOW_MS, NOW_MS])

    with pytest.raises(StoreBusyError, match="too long"):
        ship_backup(stages[1], url, clock_ms=lambda: next(times, NOW_MS + NOTE_LIMIT_MS // 2))

    assert find_backups(url) == []


def test_index_that_cannot_be_read_stops_a_prune(stages: list[Path], url: str) -> None:
    store = ClusterStore(ship(stages[0], url).url.partition("/indexes/")[0])
    before = store.list_names("segments")
    store.put(StoredName("indexes/member-1.json"), b"{}")

    with pytest.raises(ClusterError, match=r"member-1\.json"):
        prune_all(url)

    assert store.list_names("segments") == before


def test_store_of_cold_storage_that_an_older_trimaran_wrote_is_refused(stages: list[Path], url: str) -> None:
    member = ColdMember(stages[0], url)
    member.store.put(StoredName("manifests/member-0.json"), b"{}")

    for use in (member.ship, lambda: ship(stages[0], url), lambda: prune_all(url)):
        with pytest.raises(ConfigurationError) as refused:
            use()
        assert has_facts(str(refused.value), member.store.url, "manifests/", "another URL")


def test_command_prunes_and_says_what_went(stages: list[Path], tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    ship(stages[2], url)
    new = ship(begun_again(stages[1], tmp_path), url, NOW_MS + 1)
    arguments = ["backup", "prune", url, "--keep", "1", "-o", "jsonl"]

    shown = CliRunner().invoke(build_app(arguments), arguments)
    nothing = CliRunner().invoke(build_app(arguments), [*arguments[:2], f"{url}/none", *arguments[3:]])

    assert shown.exit_code == 0, shown.output
    assert has_facts(shown.output, new.url.rpartition("/")[2].removesuffix(".json"), '"kept_segments"')
    assert nothing.exit_code != 0


@pytest.mark.parametrize("refused_count", [1, 3, 1_000])
def test_a_note_that_the_store_does_not_remove_is_tried_again_and_then_named(
    stages: list[Path], url: str, monkeypatch: pytest.MonkeyPatch, refused_count: int
) -> None:
    """All writers wait for a note, members with cold storage too (seed 1337 of the simulator: for a day)."""
    ship(stages[0], url)
    (store,) = cluster_stores(url)
    remove, left = ClusterStore.remove, refused_count

    def refusing(self: ClusterStore, name: StoredName) -> None:
        nonlocal left
        if "pruning-" in name and left:
            left -= 1
            raise StoreError(f"cannot remove {name}: refused")
        remove(self, name)

    monkeypatch.setattr(ClusterStore, "remove", refusing)
    if refused_count < 5:
        prune_all(url)
        ship(stages[1], url)
        return

    with pytest.raises(StoreError) as told:
        prune_all(url)

    (note,) = (name for name in store.list_names(INDEXES) if "pruning-" in name)
    assert has_facts(str(told.value), f"{store.url}/", note, "refused")
