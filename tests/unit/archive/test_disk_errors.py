"""Errors of the disk: every call that fails says what was tried, with which file and where, and what to do.

Issue 20 §4: nine of fifteen exits on I/O errors said only "[Errno 5] Input/output error".
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.facts import has_facts
from trimaran.archive.disk import file_system
from trimaran.archive.disk.file_system import OsFileSystem, write_fully
from trimaran.archive.disk_errors import ADVICE, disk_facts_of, explain_error, explaining
from trimaran.archive.errors import ArchiveError
from trimaran.archive.files.segment_files import storage_error
from trimaran.service_api import synced_files

DISK = OsFileSystem()
NUMBERS = [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EDQUOT, errno.ESTALE]

CALLS: dict[str, tuple[object, str, Callable[[Path, int], Any], dict[str, object]]] = {
    "open": (os, "open", lambda path, handle: DISK.open_file(path), {"operation": "open"}),
    "create": (
        os,
        "open",
        lambda path, handle: DISK.open_file(path, create=True),
        {"operation": "create"},
    ),
    "read": (
        file_system,
        "_pread",
        lambda path, handle: DISK.pread(handle, 32, 64),
        {"operation": "read", "offset": 64, "length": 32},
    ),
    "read into": (
        os,
        "preadv",
        lambda path, handle: DISK.pread_into(handle, memoryview(bytearray(8)), 64),
        {"operation": "read", "offset": 64, "length": 8},
    ),
    "write": (
        file_system,
        "_pwrite",
        lambda path, handle: write_fully(DISK, handle, b"x" * 16, 128),
        {"operation": "write", "offset": 128, "length": 16},
    ),
    "sync data": (file_system, "sync_data", lambda path, handle: DISK.sync_data(handle), {"operation": "sync"}),
    "sync file": (file_system, "sync_file", lambda path, handle: DISK.sync_file(handle), {"operation": "sync"}),
    "rename": (
        os,
        "replace",
        lambda path, handle: DISK.rename(path, path.with_name("b")),
        {"operation": "rename"},
    ),
    "remove": (os, "unlink", lambda path, handle: DISK.remove(path), {"operation": "remove"}),
    "truncate": (
        os,
        "ftruncate",
        lambda path, handle: DISK.set_length(handle, 4096),
        {"operation": "truncate", "length": 4096},
    ),
    "length": (os, "fstat", lambda path, handle: DISK.file_length(handle), {"operation": "find the length"}),
}
"""What is called and made to fail, how it is reached, and the facts that are told."""

DIRECTORY_CALLS: dict[str, tuple[object, str, Callable[[Path], Any], str]] = {
    "sync": (synced_files, "sync_file", DISK.sync_directory, "sync the directory"),
    "open for a sync": (os, "open", DISK.sync_directory, "sync the directory"),
    "list": (os, "listdir", DISK.list_directory, "list the directory"),
    "space": (os, "statvfs", DISK.disk_space, "find the free space"),
    "make": (Path, "mkdir", lambda path: DISK.make_directory(path / "new"), "make the directory"),
}


@contextmanager
def failing(owner: object, name: str, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fail)
        yield


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    path = tmp_path / "a"
    handle = DISK.open_file(path, create=True)
    yield path, handle
    DISK.close_file(handle)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_on_a_file_says_what_was_tried_where_and_what_to_do(
    name: str, number: int, opened: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, function, call, facts = CALLS[name]
    path, handle = opened

    with failing(owner, function, number, monkeypatch), pytest.raises(OSError) as caught:  # noqa: PT011 - by number
        call(path, handle)

    assert caught.value.errno == number
    assert type(caught.value) is type(OSError(number, ""))
    told = disk_facts_of(caught.value)
    assert told == {"errno": errno.errorcode[number], "file": str(path), **facts} | (
        {"target": path.with_name("b")} if name == "rename" else {}
    )
    text = str(caught.value)
    assert text.startswith(f"[Errno {number}] {os.strerror(number)}: operation={facts['operation']} file={path}")
    assert text.endswith(f"; {ADVICE[number]}")
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
@pytest.mark.parametrize("name", DIRECTORY_CALLS)
def test_every_call_on_a_directory_says_so_as_well(
    name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, function, call, operation = DIRECTORY_CALLS[name]

    with failing(owner, function, number, monkeypatch), pytest.raises(OSError) as caught:  # noqa: PT011 - by number
        call(tmp_path)

    told = disk_facts_of(caught.value)
    assert (told["operation"], told["errno"]) == (operation, errno.errorcode[number])
    assert told["file"] in (str(tmp_path), str(tmp_path / "new"))
    assert str(caught.value).endswith(ADVICE[number])


def test_a_missing_file_is_still_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"operation=open file=.*/none"):
        DISK.open_file(tmp_path / "none")


def test_an_error_is_explained_once_by_who_knows_most(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="operation=read") as caught, explaining("export to", tmp_path):
        raise explain_error(OSError(errno.EIO, "x"), "read", file="a", offset=3)

    assert str(caught.value).count("operation=") == 1


def test_an_error_of_the_archive_carries_the_facts_of_the_disk() -> None:
    disk_error = explain_error(OSError(errno.EIO, "x"), "read", file="0-0.rec", offset=3)
    error = storage_error(disk_error, "read failed", 0, 64)
    error.__cause__ = disk_error

    assert isinstance(error, ArchiveError)
    assert has_facts(str(error), "[Errno 5] Input/output error: operation=read file=0-0.rec offset=3;", "device")
    assert disk_facts_of(error) == {"errno": "EIO", "operation": "read", "file": "0-0.rec", "offset": 3}


def test_every_advice_says_something_and_is_part_of_a_sentence() -> None:
    for number, advice in ADVICE.items():
        assert len(advice) > 10, errno.errorcode[number]
        assert not advice.endswith(".")


# --- permissions


@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277, 0o777])
def test_files_and_directories_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        DISK.make_directory(tmp_path / "a" / "b")
        DISK.close_file(DISK.open_file(tmp_path / "a" / "b" / "file", create=True))
    finally:
        os.umask(before)

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/file")]
    assert modes == [0o700, 0o700, 0o600]


def test_an_old_directory_is_taken_from_others_with_its_files_and_nothing_else(tmp_path: Path) -> None:
    elsewhere, directory = tmp_path / "elsewhere", tmp_path / "member"
    for path in (elsewhere, directory):
        path.mkdir()
    for path, mode in ((elsewhere / "x", 0o644), (directory / "open", 0o664), (directory / "mine", 0o400)):
        path.write_bytes(b"")
        path.chmod(mode)
    (directory / "link").symlink_to(elsewhere / "x")
    directory.chmod(0o755)

    assert DISK.restrict_access(directory, with_files=True) == (2, [])
    assert DISK.restrict_access(directory, with_files=True) == (0, [])
    found = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in (".", "open", "mine", "link")}
    assert found == {".": 0o700, "open": 0o600, "mine": 0o400, "link": 0o644}


def test_what_belongs_to_another_user_is_left_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "chmod", refuse)
        assert DISK.restrict_access(tmp_path, with_files=True) == (0, [str(tmp_path)])


def test_an_error_that_was_raised_from_itself_has_an_end() -> None:
    """Issue 44 §2: where a file could not be made, a member searched the cause of its failure without end."""
    of_itself, first, second = ArchiveError("a"), ArchiveError("b"), ArchiveError("c")
    of_itself.__cause__ = of_itself
    first.__cause__, second.__cause__ = second, first

    assert [disk_facts_of(error) for error in (of_itself, first)] == [{}, {}]
