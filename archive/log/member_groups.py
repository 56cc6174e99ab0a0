"""Groups of members' directories that are named by path or URL, one or several of one cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...service_api.errors import ConfigurationError
from .group_directories import GROUP_DIRECTORY_PREFIX, find_group_count
from .member_directory import locate


def group_path(path: str, group_index: int) -> str:
    """Return where a group's files lie, given a member's directory by path or URL."""
    return f"{path.rstrip('/')}/{GROUP_DIRECTORY_PREFIX}{group_index}"


def read_group_count(path: Path | str) -> int | None:
    """Read how many groups a member's directory or URL has; None: it is of one log.

    Raises:
        ConfigurationError: there is no library for the URL; or see `find_group_count`.
    """
    place = locate(path)
    return find_group_count(place.directory, place.file_system)


def common_group_count(paths: Sequence[str]) -> int | None:
    """Read how many groups members' directories have; None: they have none.

    One directory may be gone, as that of a member whose disk was replaced; none may say something else.

    Raises:
        ConfigurationError: they say different things; or see `find_group_count`.
    """
    counts: dict[str, int] = {}
    others: list[str] = []
    for path in paths:
        place = locate(path)
        count = find_group_count(place.directory, place.file_system)
        if count is not None:
            counts[path] = count
        elif place.is_local and any((place.directory / name).exists() for name in ("cluster", "archive")):
            others.append(path)
    if counts and (others or len(set(counts.values())) > 1):
        found = [f"{path} has {count} groups" for path, count in counts.items()]
        found += [f"{path} has none" for path in others]
        raise ConfigurationError(f"directories of different clusters: {', '.join(found)}; name members of one cluster")
    return next(iter(counts.values()), None)
