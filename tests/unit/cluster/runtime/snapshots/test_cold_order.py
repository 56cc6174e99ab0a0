"""Whatever moment the machine stops at: all that was recorded is on the disk, or whole in the store and named there.

The checker looks at disk and store before and after each step that changes either. Planted bugs show that it sees what
it is meant to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.unit.archive.streams import TERM_LENGTH
from tests.unit.cluster.runtime.snapshots.cold_rig import CLUSTER_ID, END, NEEDED, member, whole_log
from trimaran.archive.cold.record import read_record
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.stored.cluster_store import ClusterStore
from trimaran.archive.stored.index import StoredSegment, WriterIndex
from trimaran.cluster.runtime.snapshots import cold_shipper
from trimaran.cluster.runtime.snapshots.cold_shipper import ColdShipper

BASES = range(0, END, TERM_LENGTH)


class Checker:
    """Looks at the files of one member and the objects of its cluster."""

    def __init__(self, archive: Path, url: str) -> None:
        self.faults: list[str] = []
        self.look_count = 0
        self._archive = archive
        self._url = f"{url}/{CLUSTER_ID}"
        self._is_looking = False
        self._seen: set[int] = set()
        """Where segments begin that were ever on the disk."""

    def look(self, moment: str) -> None:
        if self._is_looking:
            return
        self._is_looking = True
        try:
            self.look_count += 1
            self.faults += [f"{moment}: {fault}" for fault in self._find_faults()]
        finally:
            self._is_looking = False

    def _find_faults(self) -> Iterator[str]:
        # Files first, and the store last: the shipper goes on in its thread meanwhile, in the other order.
        present = {base for base in BASES if (self._archive / f"0-{base}.rec").exists()}
        record = read_record(self._archive)
        index = ClusterStore(self._url).read_index("member-0")
        named = [] if index is None else index.segments
        whole = {segment.base_position for segment in named if self._is_whole(segment)}
        yield from (f"named and not whole: {s.base_position}" for s in named if s.base_position not in whole)
        known = set() if record is None else {segment.base_position for segment in record.segments}
        yield from (f"in the record and not in the index: {base}" for base in known - whole)
        yield from (f"deleted and nobody knows where it is: {base}" for base in self._seen - present - known)
        self._seen |= present

    def _is_whole(self, segment: StoredSegment) -> bool:
        objects = ObjectStore(self._url)
        if objects.find_length(segment.name) != segment.length:
            return False
        return sha256(objects.read(segment.name)).hexdigest() == segment.sha256


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_shipper, "RETRY_S", 0.02)


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    """Watch every step; a file arrives in the store in two halves, as it does in a store that keeps what it has."""
    made = Checker(tmp_path / "0", f"file://{tmp_path}/store")
    put, put_file, remove, rename = ObjectStore.put, ObjectStore.put_file, OsFileSystem.remove, OsFileSystem.rename

    def watch_put(self: ObjectStore, name: StoredName, data: bytes) -> None:
        put(self, name, data)
        made.look(f"put {name}")

    def watch_put_file(self: ObjectStore, name: StoredName, source: Path) -> None:
        put(self, name, source.read_bytes()[: TERM_LENGTH // 2])
        made.look(f"half of {name}")
        put_file(self, name, source)
        made.look(f"all of {name}")

    def watch_remove(self: OsFileSystem, path: Path) -> None:
        remove(self, path)
        made.look(f"removed {path.name}")

    def watch_rename(self: OsFileSystem, source: Path, target: Path) -> None:
        rename(self, source, target)
        made.look(f"renamed {target.name}")

    monkeypatch.setattr(ObjectStore, "put", watch_put)
    monkeypatch.setattr(ObjectStore, "put_file", watch_put_file)
    monkeypatch.setattr(OsFileSystem, "remove", watch_remove)
    monkeypatch.setattr(OsFileSystem, "rename", watch_rename)
    return made


async def ship(tmp_path: Path) -> None:
    async with member(tmp_path / "0", f"file://{tmp_path}/store") as rig:
        await rig.purge()


async def test_at_every_moment_the_log_is_whole(tmp_path: Path, checker: Checker) -> None:
    await ship(tmp_path)

    assert checker.faults == []
    assert checker.look_count > 4 * (NEEDED // TERM_LENGTH)


def delete_before_the_object_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    anything = property(lambda self: END, lambda self, value: None)
    monkeypatch.setattr(ColdShipper, "shipped_position", anything, raising=False)


def write_the_index_before_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    put_segment = ClusterStore.put_segment

    def plant(self: ClusterStore, path: Path, segment: StoredSegment, *, is_named: bool) -> bool:
        before = self.read_index("member-0")
        segments = [] if before is None else before.segments
        self.write_index(WriterIndex(cluster_id=CLUSTER_ID, writer="member-0", segments=[*segments, segment]))
        return put_segment(self, path, segment, is_named=is_named)

    monkeypatch.setattr(ClusterStore, "put_segment", plant)


def believe_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is not read back, and the store keeps a half of it."""

    def keep_half(self: ClusterStore, path: Path, segment: StoredSegment, *, is_named: bool) -> bool:
        self.put(segment.name, path.read_bytes()[: TERM_LENGTH // 2])
        return True

    monkeypatch.setattr(ClusterStore, "put_segment", keep_half)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (delete_before_the_object_is_whole, "deleted and nobody knows where it is"),
        (write_the_index_before_the_object, "named and not whole"),
        (believe_the_store, "named and not whole"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_planted_bug_is_found(
    tmp_path: Path,
    checker: Checker,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    found: str,
) -> None:
    plant(monkeypatch)

    await ship(tmp_path)

    assert any(found in fault for fault in checker.faults)


@pytest.mark.parametrize("step", range(0, 30, 5))
async def test_a_member_that_stops_at_any_step_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The store is out of reach from one of its calls on, the member is stopped, and another start finds it well."""
    left = step
    names = ("put", "put_file", "read", "read_range", "find_length", "list_names", "remove")
    originals = {name: getattr(ObjectStore, name) for name in names}

    def limited(name: str) -> Callable[..., object]:
        def call(self: ObjectStore, *args: object) -> object:
            nonlocal left
            if left <= 0:
                raise OSError(5, "the store is out of reach")
            left -= 1
            return originals[name](self, *args)

        return call

    with monkeypatch.context() as broken:
        for name in originals:
            broken.setattr(ObjectStore, name, limited(name))
        async with member(tmp_path / "0", f"file://{tmp_path}/store") as rig:
            rig.want()
            await rig.fail()

    async with member(tmp_path / "0", f"file://{tmp_path}/store") as rig:
        await rig.purge()
        assert await rig.replay() == whole_log()
