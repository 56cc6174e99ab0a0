"""A disk in memory for the targets, on which no reader asks for much more than there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.fuzz.target import expect
from trimaran.archive.disk.memory_file_system import MemoryFileSystem

DIRECTORY: Final = Path("/archive")
READ_LIMIT_BYTES: Final = 2 << 20
"""The longest read of a reader that goes block by block, whatever lengths the file names."""


def disk_with(files: Mapping[str, bytes], directory: Path = DIRECTORY) -> MemoryFileSystem:
    """Make a disk with some files in one directory."""
    disk = MemoryFileSystem()
    disk.make_directory(directory)
    for name, content in files.items():
        handle = disk.open_file(directory / name, create=True)
        disk.pwrite(handle, content, 0)
        disk.close_file(handle)
    disk.on_operation = _check_operation
    return disk


def _check_operation(name: str, path: Path, length: int) -> None:
    """A real disk sets a read's whole length aside before it reads: nobody may ask for what a file merely claims."""
    if name == "pread":
        expect(0 <= length <= READ_LIMIT_BYTES, "a read is no longer than a block", path=path, length=length)
