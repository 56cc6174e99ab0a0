"""The preloaded shim: compiled here by the system's compiler, and told what to do through a file for each member."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final, Self

from ...service_api.errors import ClusterError

SOURCE: Final = Path(__file__).with_name("shim.c")
_COMPILERS: Final = ("cc", "gcc", "clang")
_CONTROL_LENGTH: Final = 4096
_CLOCK_OFFSET: Final = (0, "<q")
_SYNC_DELAY: Final = (8, "<q")
_SYNC_ERRNO: Final = (16, "<i")
_WRITE_ERRNO: Final = (20, "<i")
_FAILED_SYNC_COUNT: Final = (24, "<q")
_REFUSED_WRITE_COUNT: Final = (32, "<q")
_SYNC_COUNT: Final = (40, "<q")


class ShimError(ClusterError):
    """The shim cannot be made here; says why. The faults that need it are left out then."""


class FaultShim:
    """The compiled shim."""

    def __init__(self, library: Path) -> None:
        self.library = library

    @classmethod
    def compile(cls, directory: Path) -> Self:
        """Compile it into a directory.

        Raises:
            ShimError: there is no compiler, or it failed.
        """
        compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
        if compiler is None:
            raise ShimError(f"no compiler found: tried={','.join(_COMPILERS)}")
        library = directory / "chaos-shim.so"
        command = [compiler, "-O2", "-fPIC", "-shared", "-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise ShimError(f"the shim was not compiled: command={' '.join(command)!r} {done.stderr.strip()[:500]}")
        return cls(library)

    def for_member(self, directory: Path, guarded: Path) -> MemberShim:
        """Make the shim of one member, whose files lie below `guarded`; `directory` is on the same file system."""
        return MemberShim(self.library, directory, guarded)


class MemberShim:
    """What is told to the shim in one member's process, and what it tells."""

    def __init__(self, library: Path, directory: Path, guarded: Path) -> None:
        self.undo_directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        control = directory / "control"
        control.write_bytes(bytes(_CONTROL_LENGTH))
        (directory / "guarded").write_text(str(guarded))
        with control.open("r+b") as file:
            self._control = mmap.mmap(file.fileno(), _CONTROL_LENGTH)
        self.environment = {
            "LD_PRELOAD": str(library),
            "CHAOS_SHIM_CONTROL": str(control),
            "CHAOS_SHIM_DIRECTORY": str(guarded),
            "CHAOS_SHIM_UNDO": str(directory),
        }

    def set_clock_offset(self, offset_s: float) -> None:
        """Have the wall clock say so much more."""
        self._set(_CLOCK_OFFSET, round(offset_s * 1e9))

    def set_sync_delay(self, delay_s: float) -> None:
        """Have each sync take so much longer."""
        self._set(_SYNC_DELAY, round(delay_s * 1e9))

    def set_sync_error(self, number: int) -> None:
        """Have every sync fail with an errno; 0 ends it."""
        self._set(_SYNC_ERRNO, number)

    def set_write_error(self, number: int) -> None:
        """Have everything that would write fail with an errno; 0 ends it."""
        self._set(_WRITE_ERRNO, number)

    def clear(self) -> None:
        """End all of it, and count from 0 again."""
        self._control[:] = bytes(_CONTROL_LENGTH)

    @property
    def failed_sync_count(self) -> int:
        """Syncs that failed since `clear`."""
        return self._get(_FAILED_SYNC_COUNT)

    @property
    def refused_write_count(self) -> int:
        """Writes that were refused since `clear`."""
        return self._get(_REFUSED_WRITE_COUNT)

    @property
    def sync_count(self) -> int:
        """Syncs of files that were done since `clear`."""
        return self._get(_SYNC_COUNT)

    def forget(self) -> None:
        """Drop what a power loss would undo: the member's files are gone. The member must not run."""
        for path in self.undo_directory.iterdir():
            if path.name not in ("control", "guarded"):
                path.unlink()

    def close(self) -> None:
        """Close the shared file."""
        self._control.close()

    def _set(self, place: tuple[int, str], value: int) -> None:
        offset, layout = place
        struct.pack_into(layout, self._control, offset, value)

    def _get(self, place: tuple[int, str]) -> int:
        offset, layout = place
        value: int = struct.unpack_from(layout, self._control, offset)[0]
        return value
