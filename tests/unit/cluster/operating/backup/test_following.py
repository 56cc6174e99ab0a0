"""Copies that follow a log while it grows: each byte goes up once, and a reader has a whole backup at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from tests.facts import has_facts
from tests.unit.cluster.operating.backup.test_agent import payloads
from tests.unit.cluster.operating.backup.test_pruning import NOW_MS, ColdMember
from trimaran.archive.disk.object_store import ObjectStore
from trimaran.archive.files.reader import MessageReader
from trimaran.archive.format.stored_names import StoredName
from trimaran.archive.log.log_file import LogFile
from trimaran.archive.log.member_directory import ArchiveLocation, MemberDirectory
from trimaran.archive.stored.backup_files import FoundBackup, StoredBackup, find_backup
from trimaran.archive.stored.index import StoredPart
from trimaran.cluster.operating.backup import fetching, shipping
from trimaran.cluster.operating.backup.fetching import fetch_backup
from trimaran.cluster.operating.backup.shipping import Shipped
from trimaran.cluster.operating.backup.verification import verify_backup
from trimaran.cluster.time_travel.member_log import MemberLog
from trimaran.service_api import ClusterError

SEGMENT_BYTES = 64 << 10
NEVER_SMALL = 0


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield f"memory://following/{tmp_path.name}"
    memory = fsspec.filesystem("memory")
    if memory.exists("/following"):
        memory.rm("/following", recursive=True)


@pytest.fixture(scope="module")
def ends(long_past: Path) -> list[int]:
    """Where the copies end, of which there are many in each segment; the last has the whole log."""
    log = MemberLog.open(long_past)
    reader = MessageReader(LogFile.find(MemberDirectory.find(str(long_past))).reader())
    found = [message.end_position for message in reader if message.end_position % 8 == 0]
    return [*found[::4], log.recorded_position]


def ship_to(directory: Path, url: str, position: int) -> Shipped:
    """Copy a directory as it was when its log ended at a position."""

    def open_log(place: ArchiveLocation) -> MemberLog:
        log = MemberLog.open(place)
        log.__dict__["recorded_position"] = position
        return log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "MemberLog", SimpleNamespace(open=open_log))
        return shipping.ship_backup(directory, url, clock_ms=lambda: NOW_MS)


def found(url: str) -> FoundBackup:
    backup = find_backup(url)
    assert backup is not None
    return backup


def log_parts(url: str) -> list[StoredPart]:
    contents = found(url).index.backup
    assert contents is not None
    return [part for part in contents.parts if part.kind == "log"]


def log_bytes(directory: Path, url: str, end: int) -> bytes:
    """The log of the store's backup, as its reader has it."""
    backup = found(url)
    place = ArchiveLocation(StoredBackup(backup.store.url, backup.index), Path())
    log = LogFile.find(MemberDirectory.find(place))
    return b"".join(frame.payload for frame in log.reader()) if end else b""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long the objects of the log are that are written."""
    lengths: list[int] = []
    put = ObjectStore.put

    def noting(self: ObjectStore, name: StoredName, data: bytes) -> None:
        if name.startswith("backup-") and name.rpartition("/")[2].startswith("0-"):
            lengths.append(len(data))
        put(self, name, data)

    monkeypatch.setattr(ObjectStore, "put", noting)
    return lengths


def test_each_byte_goes_up_once(
    long_past: Path, url: str, ends: list[int], monkeypatch: pytest.MonkeyPatch, sent: list[int]
) -> None:
    monkeypatch.setattr(shipping, "_SMALL_BYTES", NEVER_SMALL)

    for end in ends:
        shipped = ship_to(long_past, url, end)
        assert sum(sent) == sum(part.length for part in log_parts(url)) == end
        assert shipped.written_count >= 1
        assert shipped.written_bytes > sent[-1]

    assert len(log_parts(url)) > 5
    assert [check.problem for check in verify_backup(url) if check.problem] == []


def test_what_was_followed_comes_back(long_past: Path, url: str, ends: list[int], tmp_path: Path) -> None:
    for end in ends:
        ship_to(long_past, url, end)

    fetch_backup(url, tmp_path / "back")

    assert payloads(tmp_path / "back") == payloads(long_past)
    for path in sorted((long_past / "archive").glob("0-*.rec")):
        assert (tmp_path / "back" / "archive" / path.name).read_bytes()[: ends[-1]] == path.read_bytes()


def test_small_objects_are_joined_and_a_segment_has_few(
    long_past: Path, url: str, ends: list[int], sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "_SMALL_LIMIT", 4)
    most = 0

    for end in ends[: len(ends) // 2]:
        shipped = ship_to(long_past, url, end)
        most = max(most, *(len(part.objects) for part in log_parts(url)))
        folder = found(url).index.writer
        named = {each.name for part in shipped.contents.parts for each in part.objects}
        assert {*ObjectStore(found(url).store.url).list_names(folder)} == named

    assert most == shipping._SMALL_LIMIT
    assert sum(sent) < 3 * end


def test_a_segment_of_which_little_was_sent_is_written_whole(
    long_past: Path, url: str, ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others share it then: with much log between two copies nearly all is sent so."""
    monkeypatch.setattr(shipping, "_WHOLE_BELOW", 2)
    ship_to(long_past, url, next(end for end in ends if 0 < end - SEGMENT_BYTES < SEGMENT_BYTES // 2))

    ship_to(long_past, url, ends[-1])

    whole = range(0, ends[-1] - SEGMENT_BYTES + 1, SEGMENT_BYTES)
    assert [segment.base_position for segment in found(url).index.segments] == [*whole]
    assert len(log_parts(url)) == 1


def inside_first_segment(ends: list[int]) -> list[int]:
    return [end for end in ends if end < SEGMENT_BYTES]


def test_a_full_segment_is_read_back_and_written_whole_if_it_is_not_what_was_sent(
    long_past: Path, url: str, ends: list[int], tmp_path: Path
) -> None:
    for end in inside_first_segment(ends):
        ship_to(long_past, url, end)
    objects, name = ObjectStore(found(url).store.url), found(url).index.files[0].objects[1].name
    data = bytearray(objects.read(name))
    data[-1] ^= 1
    objects.put(name, bytes(data))

    ship_to(long_past, url, ends[-1])

    assert found(url).index.segments[0].base_position == 0
    assert [check.problem for check in verify_backup(url) if check.problem] == []


def test_a_segment_that_a_member_has_put_there_takes_the_place_of_the_objects(
    long_past: Path, url: str, ends: list[int], tmp_path: Path
) -> None:
    """Cold storage comes later than a backup; then the log is there once again."""
    for end in ends[: len(ends) // 2]:
        ship_to(long_past, url, end)
    followed = len(log_parts(url))
    ColdMember(long_past, url).ship()

    for end in ends[len(ends) // 2 :]:
        shipped = ship_to(long_past, url, end)

    assert followed > 2
    assert len(log_parts(url)) == 1
    assert len(ObjectStore(found(url).store.url).list_names("segments")) == ends[-1] // SEGMENT_BYTES
    assert shipped.removed_count >= 0
    fetch_backup(url, tmp_path / "back")
    assert payloads(tmp_path / "back") == payloads(long_past)


class CutOff(Exception):
    """The process has died."""


def copy_store(source: str, target: str) -> None:
    memory = fsspec.filesystem("memory")
    begin, end = (url.removeprefix("memory:/") for url in (source, target))
    for path, file in [*memory.store.items()]:
        if path.startswith(begin):
            memory.pipe_file(f"{end}{path.removeprefix(begin)}", file.getvalue())


def dying_at(step: int, patch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Let the process die before a step of those that change the store; gives whether it has."""
    left = step

    def wrap(method: Callable[..., None]) -> Callable[..., None]:
        def call(self: ObjectStore, name: StoredName, *rest: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise CutOff
            method(self, name, *rest)

        return call

    for name in ("put", "put_file", "remove"):
        patch.setattr(ObjectStore, name, wrap(getattr(ObjectStore, name)))
    return lambda: left < 0


@pytest.mark.parametrize("kind", ["more", "joined", "full"])
def test_a_copy_that_dies_at_any_step_leaves_a_backup_and_the_next_one_goes_on(
    long_past: Path, url: str, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(shipping, "_SMALL_LIMIT", {"more": 100, "joined": 3, "full": 100}[kind])
    inside = inside_first_segment(ends)
    before, after = inside[2], ends[len(inside)] if kind == "full" else inside[3]
    expected = {}
    for end in (before, after):
        ship_to(long_past, f"{url}/expected", end)
        expected[end] = log_bytes(long_past, f"{url}/expected", end)

    for end in inside[:3]:
        ship_to(long_past, f"{url}/begun", end)
    for step in range(100):
        place = f"{url}/{step}"
        copy_store(f"{url}/begun", place)
        with monkeypatch.context() as patch:
            has_died = dying_at(step, patch)
            with suppress(CutOff):
                ship_to(long_past, place, after)
        read = log_bytes(long_past, place, after)
        assert read in expected.values()
        if not has_died():
            break
        ship_to(long_past, place, after)
        assert log_bytes(long_past, place, after) == expected[after]
    assert 4 <= step < 99


def test_a_reader_that_knows_objects_of_before_reads_what_they_became(
    long_past: Path, url: str, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore and a scan take long, and copies go on meanwhile."""
    inside = inside_first_segment(ends)
    for end in inside[:4]:
        ship_to(long_past, url, end)
    before, expected = found(url), log_bytes(long_past, url, inside[3])
    read = ArchiveLocation(StoredBackup(before.store.url, before.index), Path())
    monkeypatch.setattr(shipping, "_SMALL_LIMIT", 3)
    ship_to(long_past, url, inside[4])
    now = {each.name for file in found(url).index.files for each in file.objects}
    assert not {each.name for file in before.index.files for each in file.objects} <= now
    monkeypatch.setattr(fetching, "find_backup", lambda url, open_objects: before)

    contents = fetch_backup(url, tmp_path / "back")

    assert contents.log_stop_position == inside[3]
    log = LogFile.find(MemberDirectory.find(read))
    assert b"".join(frame.payload for frame in log.reader()) == expected


def test_verify_names_the_objects_of_which_one_is_damaged(long_past: Path, url: str, ends: list[int]) -> None:
    for end in inside_first_segment(ends):
        ship_to(long_past, url, end)
    objects, names = ObjectStore(found(url).store.url), [each.name for each in found(url).index.files[0].objects]
    data = bytearray(objects.read(names[1]))
    data[0] ^= 1
    objects.put(names[1], bytes(data))

    (problem,) = [check.problem for check in verify_backup(url) if check.problem and "object" in check.what]

    assert has_facts(problem, names[0], names[-1], f"{len(names)} objects")
    objects.remove(names[1])
    (problem,) = [check.problem for check in verify_backup(url) if check.problem]
    assert has_facts(problem, "missing", names[1])
    with pytest.raises(ClusterError, match=names[1]):
        fetch_backup(url, Path("never"))
