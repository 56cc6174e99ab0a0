"""A power loss: takes from the files of a killed member what it had not synced.

`shim.c` has kept what has to be put back, and says how. What may be lost is drawn, for a disk may have written any of
it on its own:

    names   creations, renames and removals that no sync of their directory followed: they are undone from the newest
            on, down to a place that is drawn. A journal keeps their order.
    data    for each file, each page of 4 KiB that differs from what was synced last is the old or the new one: all old,
            all new, or drawn page by page. So a write of several pages may be torn, and a later one may be there while
            an earlier one is not.

Sound: whatever was synced is untouched. A record is dropped only by a sync that began after the change which it undoes,
and a page that is not covered by a record is the same before and after. Rejected: copying directories at each sync,
which costs a copy of every file for each; a device mapper that drops writes, which needs more rights and a whole disk.
What is not modelled: sectors torn below a page, metadata of a file other than its length, and file systems that make a
name durable with its file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

_PAGE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<QQ")
_DATA: Final = struct.Struct("<QQQ")
_NAME: Final = struct.Struct("<IIIIQQ")
_CREATED, _RENAMED, _REMOVED, _DIRECTORY_MADE, _DIRECTORY_REMOVED, _LINKED = range(1, 7)
_ALL_LOST_RATE: Final = 0.5
_NOTHING_LOST_RATE: Final = 0.1


@dataclass(slots=True)
class PowerLoss:
    """What a power loss took."""

    name_count: int = 0
    page_count: int = 0
    """Pages that are as they were at the last sync; each differed."""
    file_count: int = 0
    """Files that lost pages or length."""

    def __str__(self) -> str:
        return f"{self.page_count} pages of {self.file_count} files, {self.name_count} names"


class _NameChange(NamedTuple):
    kind: int
    saved: int
    path: Path
    other: Path


class _DataChange(NamedTuple):
    offset: int
    before: bytes
    size_before: int


def lose_power(undo_directory: Path, random: Random, *, loses_all: bool = False) -> PowerLoss:
    """Put a killed member's files into a state that a power loss may leave; `loses_all`: into the oldest one."""
    loss = PowerLoss()
    guarded = _guarded_directory(undo_directory)
    pending = list(_name_changes(undo_directory / "names"))
    keep_count = 0 if loses_all or random.random() < _ALL_LOST_RATE else random.randint(0, len(pending))
    for change in reversed(pending[keep_count:]):
        loss.name_count += _undo_name(undo_directory, change)
    if guarded is not None:
        paths = {path.stat().st_ino: path for path in sorted(guarded.rglob("*")) if path.is_file()}
        for data_path in sorted(undo_directory.glob("data-*")):
            path = paths.get(int(data_path.name.partition("-")[2]))
            changes = list(_data_changes(data_path))
            if path is not None and changes:
                pages = _undo_data(path, changes, random, loses_all=loses_all)
                loss.page_count += pages
                loss.file_count += pages > 0
    for path in undo_directory.iterdir():
        if path.name not in ("control", "guarded"):
            path.unlink()
    return loss


def _guarded_directory(undo_directory: Path) -> Path | None:
    path = undo_directory / "guarded"
    return Path(path.read_text()) if path.exists() else None


def _read(path: Path) -> bytes:
    """Return the part of an undo file that is still to be undone."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return b""
    return data[_HEADER.unpack_from(data)[0] :] if len(data) >= _HEADER.size else b""


def _name_changes(path: Path) -> Iterator[_NameChange]:
    data, at = _read(path), 0
    while at + _NAME.size <= len(data):
        kind, saved, path_length, other_length, _, _ = _NAME.unpack_from(data, at)
        at += _NAME.size
        if at + path_length + other_length > len(data):
            return
        first = Path(os.fsdecode(data[at : at + path_length]))
        at += path_length
        second = Path(os.fsdecode(data[at : at + other_length]))
        at += other_length
        yield _NameChange(kind, saved, first, second)


def _data_changes(path: Path) -> Iterator[_DataChange]:
    data, at = _read(path), 0
    while at + _DATA.size <= len(data):
        offset, length, size_before = _DATA.unpack_from(data, at)
        at += _DATA.size
        if at + length > len(data):
            return
        yield _DataChange(offset, data[at : at + length], size_before)
        at += length


def _undo_name(undo_directory: Path, change: _NameChange) -> bool:
    """Undo one change of a directory; False where it was never made."""
    saved = undo_directory / f"saved-{change.saved}" if change.saved else None
    if change.kind in (_CREATED, _LINKED):
        if not change.path.is_file():
            return False
        change.path.unlink()
    elif change.kind == _RENAMED:
        if change.path.exists() or not change.other.exists():
            return False  # it failed, or was never made
        change.other.rename(change.path)
        if saved is not None and saved.exists():
            saved.rename(change.other)
    elif change.kind == _REMOVED:
        if change.path.exists() or saved is None or not saved.exists():
            return False
        saved.rename(change.path)
    elif change.kind == _DIRECTORY_MADE:
        if not change.path.is_dir() or any(change.path.iterdir()):
            return False
        change.path.rmdir()
    elif change.kind == _DIRECTORY_REMOVED:
        change.path.mkdir(exist_ok=True)
    return True


def _undo_data(path: Path, changes: list[_DataChange], random: Random, *, loses_all: bool) -> int:
    """Put pages of a file back to what was synced last; return how many."""
    new = path.read_bytes()
    old = bytearray(new)
    for change in reversed(changes):
        if len(old) < change.size_before:
            old.extend(bytes(change.size_before - len(old)))
        old[change.offset : change.offset + len(change.before)] = change.before
        del old[change.size_before :]
    drawn = random.random()
    if not loses_all and drawn < _NOTHING_LOST_RATE:
        return 0
    is_torn = not loses_all and drawn > _NOTHING_LOST_RATE + _ALL_LOST_RATE
    length = random.choice((len(old), len(new))) if is_torn else len(old)
    result, lost_count = bytearray(length), 0
    for begin in range(0, length, _PAGE_BYTES):
        end = min(begin + _PAGE_BYTES, length)
        old_page, new_page = bytes(old[begin:end]).ljust(end - begin, b"\0"), new[begin:end].ljust(end - begin, b"\0")
        is_lost = old_page != new_page and (not is_torn or random.random() < 0.5)
        result[begin:end] = old_page if is_lost else new_page
        lost_count += is_lost
    lost_count += length != len(new)
    if lost_count:
        with path.open("r+b") as file:
            file.write(result)
            file.truncate(length)
    return lost_count
