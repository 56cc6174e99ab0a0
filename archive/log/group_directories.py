"""A member's directory with groups: what it says of them, and where each one's files lie.

`groups.json` says how many groups there are, and with which hash keys go to them. It is written when the member starts
for the first time, before any group does; so a start with another number is refused before it touches a file.

    DIR/groups.json           {"count": 4, "hash": "crc32/4096"}
    DIR/group-0/cluster       of each group a directory as that of a member without groups
    DIR/group-0/archive
    DIR/group-1/...
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import check_group_count
from ...service_api.groups.key_hash import HASH_NAME
from ..disk.file_system import OsFileSystem, ReadableFileSystem, opened, read_fully, replace_file

GROUPS_FILE_NAME: Final = "groups.json"
GROUP_DIRECTORY_PREFIX: Final = "group-"
_LENGTH_LIMIT_BYTES: Final = 4096


def group_directory(directory: Path, group_index: int) -> Path:
    """Return where a group's files lie, in a member's directory."""
    return directory / f"{GROUP_DIRECTORY_PREFIX}{group_index}"


def find_group_count(directory: Path, file_system: ReadableFileSystem | None = None) -> int | None:
    """Read how many groups a member's directory has; None: it is none with groups.

    Raises:
        ConfigurationError: the file that says so cannot be read, or names a hash that is not known here.
    """
    file = directory / GROUPS_FILE_NAME
    disk = OsFileSystem() if file_system is None else file_system
    try:
        with opened(disk, file) as handle:
            text = read_fully(disk, handle, min(disk.file_length(handle), _LENGTH_LIMIT_BYTES), 0)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigurationError(f"groups cannot be read: file={file} reason={error.strerror or error}") from error
    try:
        told = json.loads(text)
        count, hash_name = told["count"], told["hash"]
        if type(count) is not int:
            raise TypeError(f"count={count!r} expected a whole number")
        check_group_count(count)
    except (ValueError, KeyError, TypeError, RecursionError, ConfigurationError) as error:
        raise ConfigurationError(
            f'groups cannot be read: file={file} reason={error!r} expected {{"count": 4, "hash": "{HASH_NAME}"}}'
        ) from None
    if hash_name != HASH_NAME:
        raise ConfigurationError(f"groups of another hash: file={file} hash={hash_name!r} expected {HASH_NAME!r}")
    return int(count)


def refuse_groups(
    directory: Path, file_system: ReadableFileSystem | None = None, *, show: Callable[[Path], str] = str
) -> None:
    """Refuse a directory with groups, where the files of one log are looked for. `show` writes a path for the error.

    Raises:
        ConfigurationError: says how many groups there are, and how to name one; or see `find_group_count`.
    """
    count = find_group_count(directory, file_system)
    if count is not None:
        raise ConfigurationError(
            f"{show(directory)} holds {count} groups, each with a log of its own: name one of "
            f"{show(group_directory(directory, 0))} to {GROUP_DIRECTORY_PREFIX}{count - 1}"
        )


def settle_group_count(directory: Path, group_count: int) -> None:
    """Hold the number of groups against what a member's directory says, and write it down if it says nothing.

    Raises:
        ConfigurationError: it has another number, or files of a member without groups; or it cannot be used.
    """
    found = find_group_count(directory)
    if found is None and (directory / "cluster").exists():
        found = 1
    if found is not None:
        check_found_count(directory, found, group_count)
    if found is not None or group_count == 1:
        return
    text = json.dumps({"count": group_count, "hash": HASH_NAME})
    disk = OsFileSystem()
    try:
        disk.make_directory(directory)
        replace_file(disk, directory / GROUPS_FILE_NAME, f"{text}\n".encode())
    except OSError as error:
        raise ConfigurationError(f"directory cannot be used: directory={directory} reason={error}") from error


def check_found_count(directory: Path, found: int, expected: int) -> None:
    """Refuse a directory of another number of groups.

    Raises:
        ConfigurationError: names both numbers.
    """
    if found != expected:
        raise ConfigurationError(
            f"another number of groups: directory={directory} has groups={found}, the settings say groups={expected}; "
            "the number is fixed when a cluster forms: correct the setting, or use another directory"
        )
