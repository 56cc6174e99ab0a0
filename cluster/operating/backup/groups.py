"""Backups of a cluster with groups: a directory for each group in one directory, which is laid out as a member's.

DIR/groups.json         how many groups the cluster has
DIR/group-0/archive     of each group a backup as that of a cluster without groups
DIR/group-0/cluster
DIR/group-1/...
"""

from __future__ import annotations

from pathlib import Path

from ....archive.log.group_directories import find_group_count, group_directory, settle_group_count
from ....service_api.groups.group import ONLY_GROUP, Group


def settle_backup_directory(directory: Path, group: Group, *, is_only: bool) -> Path:
    """Return where the backup of a group is written, and note the number of groups before the first one begins.

    A directory that an older Trimaran began for one group alone goes on to be the backup of that group.

    Raises:
        ConfigurationError: the directory is of another number of groups, or cannot be used.
    """
    if group.count > 1 and is_only and (directory / "cluster").exists():
        return directory
    settle_group_count(directory, group.count)
    return directory if group.count == 1 else group_directory(directory, group.index)


def backup_directories(directory: Path) -> list[tuple[Group, Path]]:
    """Return the groups that a backup is of, and the directory of each; without groups the directory itself.

    Raises:
        ConfigurationError: `groups.json` cannot be read.
    """
    count = find_group_count(directory)
    if count is None:
        return [(ONLY_GROUP, directory)]
    return [(Group(index, count), group_directory(directory, index)) for index in range(count)]
