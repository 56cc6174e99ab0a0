"""Archives behind URLs: the same rows as from the disk, ranged requests only, and errors that name the URL."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.facts import has_facts
from tests.unit.archive.streams import extract_sample
from trimaran import archive
from trimaran.archive.disk.file_system import OsFileSystem
from trimaran.archive.disk.remote_file_system import READ_AHEAD_LIMIT_BYTES, RemoteFileSystem
from trimaran.archive.errors import ArchiveError
from trimaran.archive.files.reader import FrameReader, StopReason
from trimaran.archive.log.member_directory import locate, locate_archive
from trimaran.archive.reading.frame_batches import find_entries
from trimaran.service_api.errors import ConfigurationError

FILE_LENGTH = 64 << 20


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of one node of a real cluster: `archive` is in it."""
    target = tmp_path_factory.mktemp("remote")
    extract_sample("checksummed", target)
    return target / "checksummed" / "node0"


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.fixture
def member_url(member: Path, memory: Any) -> str:
    memory.put(f"{member}/", "/bucket/member/", recursive=True)
    return "memory://bucket/member"


def cat_ranges(store: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Note what is asked for of a store."""
    asked: list[tuple[int, int]] = []
    cat_file = type(store).cat_file

    def noting(self: Any, path: str, start: int | None = None, end: int | None = None) -> bytes:
        assert start is not None
        assert end is not None
        asked.append((start, end))
        data: bytes = cat_file(self, path, start=start, end=end)
        return data

    monkeypatch.setattr(type(store), "cat_file", noting)
    return asked


@pytest.fixture
def big_file(memory: Any) -> RemoteFileSystem:
    """A file of 64 MiB in which each 8 bytes say where they are."""
    memory.pipe_file("/bucket/big", np.arange(0, FILE_LENGTH, 8, dtype="<i8").tobytes())
    return RemoteFileSystem("memory://bucket")


def test_a_member_behind_a_url_has_the_rows_that_it_has_on_the_disk(member: Path, member_url: str) -> None:
    expected = archive.frames(member).read_all()

    assert expected.num_rows > 700
    assert archive.frames(member_url).read_all() == expected
    assert archive.frames(f"{member_url}/archive/").read_all() == expected
    assert archive.frames(f"file://{member}").read_all() == expected
    assert archive.frames(f"local://{member}").read_all() == expected


def test_the_plain_reader_ends_where_and_why_it_does_on_the_disk(member: Path, member_url: str, memory: Any) -> None:
    directory = locate_archive(member).directory
    cut = directory / "0-65536.rec"
    (entry,) = find_entries(directory, 0)
    descriptor = entry.descriptor
    assert descriptor is not None
    memory.pipe_file("/bucket/member/archive/0-65536.rec", cut.read_bytes()[:1000])
    remote = locate_archive(member_url)

    reader = FrameReader(remote.directory, descriptor, file_system=remote.file_system)
    frames = list(reader)

    assert reader.stop_reason is StopReason.FILE_CUT
    assert frames == [frame for frame in FrameReader(directory, descriptor) if frame.end_position <= reader.position]
    assert 65536 <= reader.position < 65536 + 1000


def test_a_scan_reads_each_byte_once_and_ahead_in_ever_longer_requests(
    big_file: RemoteFileSystem, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cat_ranges(memory, monkeypatch)
    handle = big_file.open_file(Path("big"), writable=False)
    buffer = bytearray(1 << 19)

    for offset in range(0, FILE_LENGTH, len(buffer)):
        assert big_file.pread_into(handle, memoryview(buffer), offset) == len(buffer)
        assert buffer[:8] == offset.to_bytes(8, "little")
    big_file.close_file(handle)

    assert [begin for begin, _ in asked] == [0, *(end for _, end in asked[:-1])]
    assert asked[-1][1] == FILE_LENGTH
    lengths = [end - begin for begin, end in asked]
    assert lengths[:6] == [1 << 19, 1 << 20, 1 << 21, 1 << 22, READ_AHEAD_LIMIT_BYTES, READ_AHEAD_LIMIT_BYTES]
    assert max(lengths) == READ_AHEAD_LIMIT_BYTES


def test_a_probe_asks_for_no_more_than_it_wants_wherever_it_looks(
    big_file: RemoteFileSystem, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = cat_ranges(memory, monkeypatch)
    handle = big_file.open_file(Path("big"), writable=False)

    for offset in (0, 1 << 20, 1 << 24, 64):
        assert big_file.pread(handle, 32, offset)[:8] == offset.to_bytes(8, "little")

    assert asked == [(offset, offset + 32) for offset in (0, 1 << 20, 1 << 24, 64)]


def test_what_was_read_stays_when_more_is_read(big_file: RemoteFileSystem) -> None:
    handle = big_file.open_file(Path("big"), writable=False)

    blocks = [big_file.pread(handle, 4096, offset) for offset in (0, 4064, 8128, 8000)]

    whole = b"".join(i.to_bytes(8, "little") for i in range(0, 16384, 8))
    assert blocks == [whole[offset : offset + 4096] for offset in (0, 4064, 8128, 8000)]


def test_nothing_lies_behind_the_end_of_a_file(big_file: RemoteFileSystem) -> None:
    handle = big_file.open_file(Path("big"), writable=False)

    assert big_file.file_length(handle) == FILE_LENGTH
    assert len(big_file.pread(handle, 100, FILE_LENGTH - 24)) == 24
    assert big_file.pread(handle, 100, FILE_LENGTH) == b""
    assert big_file.pread_into(handle, memoryview(bytearray(64)), FILE_LENGTH + 32) == 0


def test_a_listing_is_that_of_now(big_file: RemoteFileSystem, memory: Any) -> None:
    before = big_file.list_directory(Path())
    memory.pipe_file("/bucket/new", b"")

    assert before == ["big"]
    assert big_file.list_directory(Path()) == ["big", "new"]


def test_a_location_can_be_pickled_and_is_shown_as_its_url(member_url: str) -> None:
    location = locate_archive(member_url)

    found = pickle.loads(pickle.dumps(location))

    assert str(found) == f"{member_url}/archive"
    assert [e.offset for e in find_entries(found.directory, None, found.file_system)]
    assert found.directory.parent == Path("member")
    assert "recording.log" in found.file_system.list_directory(found.directory.parent / "cluster")


@pytest.mark.parametrize(
    ("given", "directory"),
    [
        ("data/node-0", Path("data/node-0")),
        ("/data/node-0", Path("/data/node-0")),
        ("file:///data/node-0", Path("/data/node-0")),
        ("file:/data/node-0", Path("/data/node-0")),
        ("C:/data", Path("C:/data")),
    ],
)
def test_paths_and_file_urls_are_read_from_the_disk_itself(given: str, directory: Path) -> None:
    location = locate(given)

    assert isinstance(location.file_system, OsFileSystem)
    assert location.directory == directory
    assert str(location) == str(directory)


@pytest.mark.parametrize("url", ["memory://bucket", "memory://bucket/a", "memory://bucket/a/b", "memory:///a/b"])
def test_a_url_keeps_all_its_names(url: str, memory: Any) -> None:
    memory.pipe_file("/" + url.removeprefix("memory://").lstrip("/") + "/archive.catalog", b"here")

    location = locate_archive(url + "/")

    handle = location.file_system.open_file(location.directory / "archive.catalog", writable=False)
    assert location.file_system.pread(handle, 10, 0) == b"here"
    assert str(location) == url


def test_a_member_with_groups_is_refused_by_the_urls_of_its_groups(memory: Any) -> None:
    memory.pipe_file("/bucket/node/groups.json", b'{"count": 4, "hash": "crc32/4096"}')

    with pytest.raises(
        ConfigurationError, match=r"^memory://bucket/node holds 4 groups, .* memory://bucket/node/group-0 "
    ):
        locate_archive("memory://bucket/node")


def test_a_directory_without_a_catalog_is_named_by_its_url(memory: Any) -> None:
    memory.pipe_file("/bucket/other/file", b"x")

    with pytest.raises(ArchiveError, match=r"archive\.catalog.*memory://bucket/other"):
        archive.frames("memory://bucket/other")


def test_a_url_that_lost_a_slash_to_a_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"URL.*text"):
        archive.frames(Path("s3://bucket/archive"))


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"URL: gopher://host"):
        archive.frames("gopher://host/archive")


def test_a_store_whose_library_is_not_installed_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # another test may have used it

    with pytest.raises(ConfigurationError, match=r"s3://bucket .*pip install s3fs "):
        archive.frames("s3://bucket/archive")


def test_without_fsspec_the_error_names_the_command_and_paths_work(member: Path) -> None:
    script = f"""
import sys
sys.modules["fsspec"] = None
from trimaran import archive
print(archive.frames({str(member)!r}, recording_id=0).read_all().num_rows)
try:
    archive.frames("s3://bucket/archive")
except Exception as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=True)

    count, error = run.stdout.splitlines()
    assert int(count) > 600
    assert has_facts(error, "ConfigurationError", "s3://bucket", "pip install fsspec")


def test_what_a_store_raises_is_an_os_error_with_the_url(
    big_file: RemoteFileSystem, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = big_file.open_file(Path("big"), writable=False)

    def refuse(*args: Any, **options: Any) -> bytes:
        raise RuntimeError("token expired")

    monkeypatch.setattr(type(memory), "cat_file", refuse)
    with pytest.raises(OSError, match=r"refused: memory://bucket/big: RuntimeError: token expired"):
        big_file.pread(handle, 32, 0)


def test_a_server_that_gives_the_whole_file_instead_of_a_range_is_refused(
    big_file: RemoteFileSystem, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = big_file.open_file(Path("big"), writable=False)

    monkeypatch.setattr(type(memory), "cat_file", lambda *args, **options: bytes(100))
    with pytest.raises(OSError, match=r"length=100 expected=32: 'memory://bucket/big'"):
        big_file.pread(handle, 32, 0)


def test_nothing_can_be_written(big_file: RemoteFileSystem) -> None:
    for options in ({"create": True, "writable": False}, {"writable": True}):
        with pytest.raises(OSError, match=r"Read-only file system: 'memory://bucket/big'"):
            big_file.open_file(Path("big"), **options)


def test_what_is_not_there_is_not_found_under_its_url(big_file: RemoteFileSystem) -> None:
    for act in (lambda path: big_file.open_file(path, writable=False), big_file.list_directory):
        with pytest.raises(FileNotFoundError, match=r"'memory://bucket/absent'"):
            act(Path("absent"))
