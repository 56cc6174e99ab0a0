"""Finding a member's files, given its directory, a directory in it, or the file itself.

Nothing is changed or locked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.archive.files.catalog import CATALOG_FILE_NAME
from trimaran.service_api.errors import ConfigurationError
from trimaran.service_api.wire.log.recording_log import RECORDING_LOG_FILE_NAME

MemberDirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="A member's directory, as in --directory; it may run or not.")
]


def find_archive_directory(directory: Path) -> Path:
    """Find the archive in a member's directory, or given itself.

    Raises:
        ConfigurationError: there is none.
    """
    for candidate in (directory / "archive", directory):
        if (candidate / CATALOG_FILE_NAME).is_file():
            return candidate
    raise ConfigurationError(f"no archive here: directory={directory} expected archive/{CATALOG_FILE_NAME} in it")


def find_recording_log(directory: Path) -> Path | None:
    """Find the recording log in a member's directory, in its `cluster` directory, or given itself; None without one."""
    for candidate in (directory / "cluster" / RECORDING_LOG_FILE_NAME, directory / RECORDING_LOG_FILE_NAME, directory):
        if candidate.is_file():
            return candidate
    return None


def expect_recording_log(directory: Path) -> Path:
    """Find the recording log.

    Raises:
        ConfigurationError: there is none.
    """
    path = find_recording_log(directory)
    if path is None:
        raise ConfigurationError(
            f"no member has run here: directory={directory} expected cluster/{RECORDING_LOG_FILE_NAME} in it"
        )
    return path
