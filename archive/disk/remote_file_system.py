"""Archive directories in object stores and on other machines, read through fsspec: `s3://`, `hdfs://`, `https://`.

The problem: the readers ask for a block after the other with positioned reads, which cost microseconds on a disk and
tens of milliseconds over a network. The idea: an open file fetches what is asked for first, and twice as much with
each read that goes on where the last one ended, up to 8 MiB, as a kernel reads ahead. So a probe of a header stays a
small request, and a scan becomes few large ones. A file is never fetched whole unless all of it is read.
Rejected: fsspec's own buffered files, whose blocks are of one size for probes and scans; downloading segments.

fsspec is imported only when a URL is opened. What a store's library raises becomes an OSError that names the URL.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ...service_api.errors import ConfigurationError
from ..disk_errors import StoreFailure
from .local_store import LocalStore, path_of_file_url

_Fetch = Callable[[int, int], bytes]

_S3_ATTEMPTS: Final = 2
_UNREACHABLE: Final = {
    "ClientConnectionError",
    "EndpointConnectionError",
    "FSTimeoutError",
    "HTTPClientError",
    "ServiceRequestError",
    "ServiceResponseError",
}
"""Time-out errors of aiohttp, botocore, fsspec and Azure."""
_DENIED: Final = {"ClientAuthenticationError", "NoCredentialsError", "PartialCredentialsError", "RefreshError"}
_UNREACHABLE_ADVICE: Final = (
    "check that the store runs, its address (AWS_ENDPOINT_URL_S3 where it is not Amazon's) and the network"
)
_DENIED_ADVICE: Final = "check the credentials, and what the store lets them do"
_REFUSED_ADVICE: Final = "check the URL, and the store's own log"

READ_AHEAD_LIMIT_BYTES: Final = 1 << 23
"""The longest request that is not asked for in one piece, and so the memory that an open file takes."""


class RemoteFileSystem:
    """Implements `ReadableFileSystem` below a URL: a path is a name, or names, below it. Nothing can be written.

    It can be pickled: the other side opens the URL itself, with its own credentials.

    Raises:
        ConfigurationError: the scheme of the URL is unknown, or its library is not installed.
    """

    def __init__(self, url: str) -> None:
        self.url: Final = url
        self._store, self._root = open_store(url)
        self._lock = threading.Lock()
        self._next_handle = itertools.count()
        self._files: dict[int, _RemoteFile] = {}

    def __repr__(self) -> str:
        return f"<RemoteFileSystem url={self.url} handles={len(self._files)}>"

    def __reduce__(self) -> tuple[type[RemoteFileSystem], tuple[Any, ...]]:
        return RemoteFileSystem, (self.url,)

    def open_file(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for reading, which asks for its length.

        Raises:
            OSError: it is not there or not to be had, or it was to be written.
        """
        if create or writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self._url_of(path))
        return self._add_file(*self._find_object(path))

    def _find_object(self, path: Path) -> tuple[_Fetch, int]:
        """Ask for a file; give what fetches a range of it, and its length."""
        url, place = self._url_of(path), self._place_of(path)
        with os_errors(url):
            info = self._store.info(place)
        if info["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, "not a file", url)
        if info["size"] is None:
            raise OSError(errno.EIO, "the server does not report the length of the file", url)

        return lambda begin, end: self._fetch_object(path, begin, end), int(info["size"])

    def _fetch_object(self, path: Path, begin: int, end: int) -> bytes:
        """Fetch a range of a file."""
        url = self._url_of(path)
        with os_errors(url):
            data: bytes = self._store.cat_file(self._place_of(path), start=begin, end=end)
        if len(data) != end - begin:
            reason = f"the server sent the wrong number of bytes: length={len(data)} expected={end - begin}"
            raise OSError(errno.EIO, reason, url)
        return data

    def _add_file(self, fetch: _Fetch, length: int) -> int:
        with self._lock:
            handle = next(self._next_handle)
            self._files[handle] = _RemoteFile(fetch, length)
        return handle

    def close_file(self, handle: int) -> None:
        """Close the handle, and drop the bytes that were read ahead."""
        with self._lock:
            del self._files[handle]

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at `offset`; fewer only at the end of the file."""
        return bytes(self._files[handle].read(length, offset))

    def pread_into(self, handle: int, buffer: memoryview, offset: int) -> int:
        """Fill `buffer` from `offset` on and return how many bytes were read; fewer only at the end of the file."""
        data = self._files[handle].read(len(buffer), offset)
        buffer[: len(data)] = data
        return len(data)

    def file_length(self, handle: int) -> int:
        """Return the length of the file in bytes, as it was when it was opened."""
        return self._files[handle].length

    def list_directory(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted, as they are now."""
        place = self._place_of(path)
        with os_errors(self._url_of(path)):
            self._store.invalidate_cache(place)
            names: list[str] = self._store.ls(place, detail=False)
        return sorted(name.rstrip("/").rpartition("/")[2] for name in names)

    def _url_of(self, path: Path) -> str:
        return _join(self.url, path)

    def _place_of(self, path: Path) -> str:
        """Name a path as the store does, without the scheme."""
        return _join(self._root, path)


class _RemoteFile:
    """One open file: what was read ahead of it, and how far to read ahead next."""

    def __init__(self, fetch: _Fetch, length: int) -> None:
        self.length: Final = length
        self._fetch = fetch
        self._lock = threading.Lock()
        self._data = memoryview(b"")
        self._offset = 0
        self._read_ahead_bytes = 0

    def read(self, length: int, offset: int) -> memoryview:
        """Return what is there of [offset, offset + length); it stays valid, whatever is read next."""
        end = min(offset + length, self.length)
        if offset >= end:
            return memoryview(b"")
        with self._lock:
            kept = memoryview(b"")
            if self._offset <= offset <= self._offset + len(self._data):
                kept = self._data[offset - self._offset :]
            if offset + len(kept) < end:
                self._read_on(kept, end, offset)
            begin = offset - self._offset
            return self._data[begin : begin + end - offset]

    def _read_on(self, kept: memoryview, end: int, offset: int) -> None:
        """Fetch what is asked for, and more if it goes on where the last request ended."""
        begin = offset + len(kept)
        is_following = begin == self._offset + len(self._data) and len(self._data) > 0
        ahead = min(2 * self._read_ahead_bytes, READ_AHEAD_LIMIT_BYTES) if is_following else 0
        fetched = self._fetch(begin, min(max(end, begin + ahead), self.length))
        self._read_ahead_bytes = len(fetched)
        self._data = memoryview(b"".join((kept, fetched)))
        self._offset = offset


def _join(root: str, path: Path) -> str:
    names = PurePosixPath(path).as_posix()
    return root if names == "." else f"{root.rstrip('/')}/{names}"


def open_store(url: str) -> tuple[Any, str]:
    """Find the fsspec file system of a URL, and how it names the place. fsspec has no types; `file:` URLs do without.

    Raises:
        ConfigurationError: the scheme of the URL is unknown, or its library is not installed.
    """
    path = path_of_file_url(url)
    if path is not None:
        return LocalStore(), path
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ConfigurationError(f"to read {url} fsspec is needed: pip install fsspec ({error})") from error
    try:
        # A listing that is kept would hide what is written meanwhile.
        store, root = url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        package = getattr(error.__cause__, "name", None) or "the package named here"
        raise ConfigurationError(f"to read {url} its library is needed: pip install {package} ({error})") from error
    except ValueError as error:
        raise ConfigurationError(f"no file system for this URL: {url} ({error})") from error
    except Exception as error:  # whatever the library of a store raises when it is set up
        raise ConfigurationError(f"cannot open {url}: {type(error).__name__}: {error}") from error
    _bound_attempts(store)
    return store, root


def _bound_attempts(store: Any) -> None:
    """Let an S3 store that hangs be a failure after two of its time-outs; by itself its library goes on for minutes."""
    if hasattr(store, "config_kwargs") and hasattr(store, "retries"):
        store.retries = _S3_ATTEMPTS
        if "AWS_MAX_ATTEMPTS" not in os.environ:
            store.config_kwargs.setdefault("retries", {"total_max_attempts": 1})


@contextmanager
def os_errors(url: str) -> Iterator[None]:
    """Make an OSError that names the URL of whatever the library of a store raises.

    What a disk says where the URL is a directory stays as it is.
    """
    try:
        yield
    except StoreFailure:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from error
    except Exception as error:
        if isinstance(error, OSError) and path_of_file_url(url) is not None:
            raise
        raise _failure_of(error, url) from error


def _failure_of(error: Exception, url: str) -> StoreFailure:
    """Say what a store's library has raised; the classes of the libraries are known by name, since none is imported."""
    words = f"{type(error).__name__}: {error}"
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, ConnectionError | TimeoutError) or names & _UNREACHABLE:
        return StoreFailure(errno.EIO, words, url, _UNREACHABLE_ADVICE, is_unreachable=True)
    if isinstance(error, PermissionError) or names & _DENIED:
        return StoreFailure(errno.EACCES, words, url, _DENIED_ADVICE)
    return StoreFailure(errno.EIO, words, url, _REFUSED_ADVICE)
