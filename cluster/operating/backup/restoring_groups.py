"""Makes a new cluster with groups of the backups of all groups, as they were at one time.

No order holds between messages of different groups, and their positions say nothing of each other. So the groups are
brought to one time: of each group the new cluster has the messages up to it. The backup of each group has to reach that
time: its newest entry is as late, or its agent has told that it had everything then (`BackupStatus.as_of_ms`), as of a
group in which nothing happens. The latest time that all reach is the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from ....archive.log.group_directories import group_directory, settle_group_count
from ....service_api import ClusterError, ConfigurationError
from ....service_api.cluster_id import ClusterId, group_cluster_id
from ....service_api.groups.group import Group
from ....service_api.quantities import format_date, time_in_unit
from ....service_api.types import TICKS_PER_MS
from ...directories.copying import expect_room, written_whole
from ...settings.groups import group_members
from ...settings.member_endpoints import MemberEndpoints
from ..salvage.writing import RecoveryRecord, write_directory
from .restoring import OpenBackup, read_backup
from .status import read_status

_NS_PER_MS: Final = 1_000_000
_NS_PER_US: Final = 1_000


@dataclass(slots=True, frozen=True)
class RestoredGroups:
    """The directories and records that a restore has written."""

    directories: tuple[Path, ...]
    """One for each member, in their order, with a directory for each group in it."""
    time_ns: int
    """The time that all groups were brought to."""
    records: tuple[RecoveryRecord, ...]
    """The record of each group, in order."""


def restore_groups(
    sources: Sequence[tuple[Group, Path]],
    members: Sequence[MemberEndpoints],
    target: Path,
    *,
    cluster_id: ClusterId,
    now_ms: int,
    time: int | datetime | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> RestoredGroups:
    """Write `target` with a directory `node-ID` for each member of a new cluster, and in it one for each group.

    `members` are those of group 0, and `cluster_id` is that of the whole cluster.

    Raises:
        ConfigurationError: a group is missing, its backup ends before the time, or something is at the target.
        ClusterError: a backup cannot be used; the error says why.
        OSError: the disk refused.
    """
    backups = [
        _read_group(group, path, cluster_id=cluster_id, now_ms=now_ms, on_progress=on_progress)
        for group, path in sources
    ]
    reached = [_reached_ns(backup, path) for backup, (_, path) in zip(backups, sources, strict=True)]
    time_ns = min(reached) if time is None else _time_ns(time, backups[0])
    early = [
        f"that of {group} ends at {_show(ns)}" for (group, _), ns in zip(sources, reached, strict=True) if ns < time_ns
    ]
    if early:
        raise ConfigurationError(
            f"time={_show(time_ns)} is after the end of backups: {', '.join(early)}; all groups reach "
            f"{_show(min(reached))}: restore to that time or an earlier one, or without a time"
        )
    records = [
        _record(group, backup, members, cluster_id=cluster_id, now_ms=now_ms, time_ns=time_ns, on_progress=on_progress)
        for (group, _), backup in zip(sources, backups, strict=True)
    ]
    names = [f"node-{member.member_id}" for member in members]
    with written_whole(target, "recovering") as working:
        for name in names:
            settle_group_count(working / name, len(sources))
        for (group, _), record in zip(sources, records, strict=True):
            places = [group_directory(working / name, group.index) for name in names]
            expect_room(record.survey, places)
            for place in places:
                write_directory(record, place, now_ms=now_ms, on_progress=on_progress)
    return RestoredGroups(tuple(target / name for name in names), time_ns, tuple(records))


def _read_group(
    group: Group, path: Path, *, cluster_id: ClusterId, now_ms: int, on_progress: Callable[[int], None]
) -> OpenBackup:
    if not (path / "cluster").is_dir():
        raise ConfigurationError(
            f"{group}: its backup is missing: directory={path} expected one that `trimaran backup run` wrote; all "
            "groups are restored to one time, so bring it back first"
        )
    try:
        backup = read_backup(
            str(path), cluster_id=group_cluster_id(cluster_id, group), now_ms=now_ms, on_progress=on_progress
        )
    except ClusterError as error:
        raise _about(group, error) from error
    known = backup.holding.configuration
    if known is not None and known.group != group:
        raise ConfigurationError(f"directory={path} has a backup of {known.group}: expected {group}")
    return backup


def _record(
    group: Group,
    backup: OpenBackup,
    members: Sequence[MemberEndpoints],
    *,
    cluster_id: ClusterId,
    now_ms: int,
    time_ns: int,
    on_progress: Callable[[int], None],
) -> RecoveryRecord:
    try:
        return backup.record_at(
            group_members(tuple(members), group.index),
            cluster_id=group_cluster_id(cluster_id, group),
            now_ms=now_ms,
            time=time_ns // _ns_per_tick(backup),
            on_progress=on_progress,
        )
    except ClusterError as error:
        raise _about(group, error) from error


def _about(group: Group, error: ClusterError) -> ClusterError:
    kind = ConfigurationError if isinstance(error, ConfigurationError) else ClusterError
    return kind(f"{group}: {error}")


def _ns_per_tick(backup: OpenBackup) -> int:
    return _NS_PER_MS // TICKS_PER_MS[backup.holding.usable_survey.time_unit]


def _time_ns(time: int | datetime, backup: OpenBackup) -> int:
    return time_in_unit(time, backup.holding.usable_survey.time_unit) * _ns_per_tick(backup)


def _reached_ns(backup: OpenBackup, path: Path) -> int:
    """Find the latest time up to which a backup has everything."""
    survey = backup.holding.usable_survey
    snapshot = survey.snapshots[-1].state.timestamp if survey.snapshots else 0
    newest_ns = max(survey.facts.last_timestamp, snapshot) * _ns_per_tick(backup)
    try:
        as_of_ms = read_status(path / "cluster").as_of_ms
    except ClusterError:
        as_of_ms = None
    return newest_ns if as_of_ms is None else max(newest_ns, as_of_ms * _NS_PER_MS)


def _show(time_ns: int) -> str:
    """Write a time for an error, as `--time` takes it."""
    return format_date(time_ns // _NS_PER_US)
