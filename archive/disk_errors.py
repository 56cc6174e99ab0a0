"""What an error of the operating system says to an operator: what was tried, on which file and where, and what to do.

Python's own text is "[Errno 5] Input/output error", with a file name at best where one was opened. An error keeps its
type and number, by which callers tell a missing file from a full disk; only its text and its facts are made here. It is
done where the system is called (`file_system`), once, so that no caller has to.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ..service_api.errors import causes_of
from ..service_api.operating_system import optional_module

fcntl: Final = optional_module("fcntl")

_RESTORE: Final = "or replace it and let the member copy everything from the others"

ADVICE: Final[dict[int, str]] = {
    errno.ENOSPC: "free space on this file system, or move the directory to a larger one, then start again",
    errno.EDQUOT: "raise the quota of the user that runs this, or free space, then start again",
    errno.EIO: f"the device failed: see the kernel's log (dmesg); move the data to another disk, {_RESTORE}",
    errno.EROFS: "the file system is mounted read-only, often after an error of its device: see the kernel's log "
    "(dmesg), then mount it for writing and start again",
    errno.EACCES: "let the user that runs this read and write it, with its directories, then start again",
    errno.EPERM: "run this as the owner of the file, on a file system that permits it",
    errno.EMFILE: "this process has too many files open: raise its limit (ulimit -n, or LimitNOFILE of its unit)",
    errno.ENFILE: "this machine has too many files open: raise fs.file-max, or end what holds them",
    errno.ENOENT: "check the path; if the file was there, restore it from a copy",
    errno.ENOTDIR: "check the path: a part of it is a file where a directory is expected",
    errno.EISDIR: "check the path: a directory is there where a file is expected",
    errno.EEXIST: "another process made it at this moment: check that no other node uses the directory",
    errno.ENOTEMPTY: "check what else is in the directory",
    errno.EFBIG: "raise the largest file size of this process (ulimit -f), or use another file system",
    errno.ENOMEM: "this machine is out of memory: give it more, or run less on it",
    errno.ESTALE: "the file system of the network lost the file: mount it again, then start again",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ELOOP: "check the path: its symbolic links form a loop",
    errno.ENXIO: f"the device is gone: attach it again, {_RESTORE}",
    errno.ENODEV: f"the device is gone: attach it again, {_RESTORE}",
    errno.EINVAL: "this file system does not support that: use a local one, such as ext4 or xfs",
    errno.EOPNOTSUPP: "this file system does not support that: use a local one, such as ext4 or xfs",
}
"""What to do, by error number."""


class StoreFailure(OSError):
    """A store of objects refused, or did not answer. It says so in the words of the store's library.

    No disk of this machine has failed, so none of the advice above fits; `advice` does.
    """

    def __init__(self, number: int, words: str, url: str, advice: str = "", *, is_unreachable: bool = False) -> None:
        super().__init__(number, words, url)
        self.advice: Final = advice
        self.is_unreachable: Final = is_unreachable
        """True if no store answered: the request may be valid."""

    def __str__(self) -> str:
        return f"the store {'does not answer' if self.is_unreachable else 'refused'}: {self.told}"

    @property
    def told(self) -> str:
        """Which object it was, the store's words, and what to do."""
        return f"{self.filename}: {self.strerror}; {self.advice}"


def store_failure_of(error: BaseException) -> StoreFailure | None:
    """Return the failure of a store that an error was made of; None if no store is behind it."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, StoreFailure):
        at = at.__cause__
    return at


_UNKNOWN_ADVICE: Final = "see the kernel's log (dmesg) for the reason"
_FACTS: Final = "disk_facts"
_PATH_OF_HANDLE: Final[int | None] = getattr(fcntl, "F_GETPATH", None)  # macOS
_PATH_LIMIT_BYTES: Final = 1024


def advice_for(error: OSError) -> str:
    """Return what to do about an error, as a part of a sentence."""
    return ADVICE.get(error.errno or 0, _UNKNOWN_ADVICE)


def explain_error(error: OSError, doing: str, *, file: Path | str | None = None, **facts: object) -> OSError:
    """Make an error say what was being done, with which file, and what to do; give the same error.

    `facts` are shown as they are, such as `offset=4096`. An error that says so already stays as it is.
    """
    if not hasattr(error, _FACTS) and not isinstance(error, StoreFailure):
        named = file if file is not None else error.filename
        told = {"operation": doing} | ({} if named is None else {"file": str(named)}) | facts
        shown = " ".join(f"{key}={value}" for key, value in told.items())
        reason = os.strerror(error.errno) if error.errno else str(error)
        text = f"{reason}: {shown}; {advice_for(error)}"
        setattr(error, _FACTS, told)
        del error.filename, error.filename2  # else they would be shown again; None would be shown, too
        if error.errno:
            error.strerror = text
        else:
            error.args = (text,)
    return error


def explain_error_on_handle(error: OSError, doing: str, handle: int, **facts: object) -> OSError:
    """Do as `explain_error`; the file is found by its open handle."""
    return explain_error(error, doing, file=_path_of(handle), **facts)


def disk_facts_of(error: BaseException) -> dict[str, Any]:
    """Return what is known of the error of the operating system that an error was made of; {} where there is none."""
    for at in causes_of(error):
        if isinstance(at, OSError) and at.errno:
            return {"errno": errno.errorcode.get(at.errno, str(at.errno)), **getattr(at, _FACTS, {})}
    return {}


@contextmanager
def explaining(doing: str, file: Path | str) -> Iterator[None]:
    """Explain what goes wrong with a file that is not opened through a `FileSystem`."""
    try:
        yield
    except OSError as error:
        raise explain_error(error, doing, file=file)  # noqa: B904 - it is the same error


def _path_of(handle: int) -> str:
    """Return the path of an open file, or its number where the system does not tell."""
    try:
        if _PATH_OF_HANDLE is not None:
            path: bytes = fcntl.fcntl(handle, _PATH_OF_HANDLE, bytes(_PATH_LIMIT_BYTES))
            return path.rstrip(b"\0").decode()
        return os.readlink(f"/proc/self/fd/{handle}")
    except OSError:
        return f"handle {handle}"
