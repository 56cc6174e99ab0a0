"""Where the processes of a run keep their files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

from ...service_api.errors import ConfigurationError
from .disk import settle_disk


@contextmanager
def data_directory(directory: Path | None, scenario: str, *, keep: bool) -> Iterator[Path]:
    """Make the directory, or a fresh one in ./.bench that is removed at the end unless `keep`.

    Raises:
        ConfigurationError: the user's: the directory has files in it.
    """
    path = _fresh_directory(directory, scenario)
    try:
        yield path
    finally:
        if directory is None and not keep:
            rmtree(path, ignore_errors=True)


@contextmanager
def measurement_directory(path: Path, *, keep: bool) -> Iterator[Path]:
    """Make a directory for one measurement of several, on a disk that has nothing else to do; removed behind it.

    Else each would leave GBs in the page cache, and the next one would write into memory that was never used before. A
    virtual machine gets that from its host page by page as it is touched: 1 GiB of log took 3 s to write instead of
    1.2 s there, and a member copied at 150 MB/s what it copied at 230 MB/s in memory that was there.
    """
    settle_disk()
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        if not keep:
            rmtree(path, ignore_errors=True)


def _fresh_directory(directory: Path | None, scenario: str) -> Path:
    """By default below ./.bench, on a real disk: a temporary directory may be in memory."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigurationError(f"directory={directory} expected an empty one")
        return directory.resolve()
    parent = Path(".bench")
    parent.mkdir(exist_ok=True)
    (parent / ".gitignore").write_text("*\n")
    return Path(tempfile.mkdtemp(prefix=f"{scenario}-", dir=parent)).resolve()
