"""Makes a new cluster of a backup, as it was at its end, at a position or at a time; or of a standby's directory.

The directories are written as `trimaran recover` writes them: the log up to that point and the snapshots in it, a term
that no member has ever led, the new members, and a new cluster id. So no member of the old cluster is let in, and both
may run at the same time: a drill costs nothing but disk.

Of a standby everything is taken that its log holds. The end of it may not have been committed: then nobody was told
that it was, and nobody that it was not.

A point in time is exact to the message: what ends at the position, or has a time up to the one that is named, is in the
new cluster; what comes after is not. A message of several frames is whole or not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from ....archive.files.reader import MessageReader
from ....archive.log.log_file import LogFile
from ....service_api import ClusterError, ConfigurationError
from ....service_api.cluster_id import ClusterId, format_cluster_id
from ...core.vocabulary.configuration import MemberKind
from ...directories.survey import Survey, survey_source
from ...settings.member_endpoints import MemberEndpoints
from ...time_travel.member_log import MemberLog
from ...time_travel.replay import find_target
from ..salvage.choice import SalvageChoice, choose
from ..salvage.holding import Holding, read_holding
from ..salvage.writing import RecoveryRecord, append_recovery_record, write_beside


@dataclass(slots=True, frozen=True)
class Restored:
    """What was written."""

    directories: tuple[Path, ...]
    """One for each member, in their order."""
    log_position: int
    """What the old cluster had up to here is in the new one."""
    record: RecoveryRecord


def restore_backup(
    source: str,
    members: Sequence[MemberEndpoints],
    target: Path,
    *,
    cluster_id: ClusterId,
    now_ms: int,
    position: int | None = None,
    time: int | datetime | None = None,
    on_progress: Callable[[int], None] = lambda count: None,
) -> Restored:
    """Write `target` with a directory `node-ID` for each member of a new cluster.

    Raises:
        ConfigurationError: the position or time is not in the backup, or something is at the target.
        ClusterError: the backup cannot be used; the error says why.
        OSError: the disk refused.
    """
    backup = read_backup(source, cluster_id=cluster_id, now_ms=now_ms, on_progress=on_progress)
    record = backup.record_at(
        members, cluster_id=cluster_id, now_ms=now_ms, position=position, time=time, on_progress=on_progress
    )
    written = write_beside(record, target, members, now_ms=now_ms, on_progress=on_progress)
    return Restored(tuple(written), record.term_base_log_position, record)


@dataclass(slots=True, frozen=True)
class OpenBackup:
    """A backup that was read, and that a cluster can be made of."""

    holding: Holding
    choice: SalvageChoice

    def record_at(
        self,
        members: Sequence[MemberEndpoints],
        *,
        cluster_id: ClusterId,
        now_ms: int,
        position: int | None = None,
        time: int | datetime | None = None,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> RecoveryRecord:
        """Make the log of the new cluster: up to a position or a time, and the term that begins the cluster.

        Raises:
            ConfigurationError: the position or time is not in the backup.
            ClusterError: the backup is damaged, and a point in time is wanted.
            OSError: the disk refused.
        """
        if position is not None or time is not None:
            _cut(self.holding, position=position, time=time, on_progress=on_progress)
        end_position = self.holding.usable_survey.stop_position
        note = (
            f"restored from a backup of cluster {format_cluster_id(self.choice.cluster_id)} in "
            f"{Path(self.holding.name).name} at log_position={end_position}: "
            f"new_cluster_id={format_cluster_id(cluster_id)}"
        )
        return append_recovery_record(self.choice, members, cluster_id=cluster_id, note=note, now_ms=now_ms)


def read_backup(
    source: str, *, cluster_id: ClusterId, now_ms: int, on_progress: Callable[[int], None] = lambda count: None
) -> OpenBackup:
    """Read all of a backup that a cluster with this id is to be made of.

    Raises:
        ConfigurationError: the new cluster would have the old one's id.
        ClusterError: the backup cannot be used; the error says why.
    """
    holding = read_holding(source, now_ms=now_ms, on_progress=on_progress)
    holding.running = None  # an agent only adds to what is read here
    return OpenBackup(holding, _choose_only(holding, cluster_id))


def _cut(
    holding: Holding,
    *,
    position: int | None,
    time: int | datetime | None,
    on_progress: Callable[[int], None],
) -> None:
    """Leave away what is after a position or a time."""
    assert holding.source is not None
    survey = holding.usable_survey
    if holding.damage:
        raise ClusterError(f"the backup is damaged: {'; '.join(holding.damage)}; restore it without a point in time")
    log = MemberLog.open(holding.name)
    wanted = find_target(log, position=position, time=time, end_position=survey.stop_position)
    log.close_files()
    end_position = _last_end(survey, wanted)
    holding.survey = survey = survey_source(
        holding.source, log=replace(survey.log, stop_position=end_position), on_progress=on_progress
    )
    if survey.problems:
        raise ConfigurationError(f"nothing can be started at {wanted}: {'; '.join(survey.problems)}")


def transition_standby(
    holding: Holding,
    members: Sequence[MemberEndpoints],
    target: Path,
    *,
    cluster_id: ClusterId,
    now_ms: int,
    on_progress: Callable[[int], None] = lambda count: None,
) -> Restored:
    """Write `target` with a directory `node-ID` for each member of a new cluster, with all that a standby holds.

    Raises:
        ConfigurationError: the directory is no standby's, or something is at the target.
        ClusterError: the directory cannot be used; the error says why.
        OSError: the disk refused.
    """
    choice = _choose_only(holding, cluster_id)
    if holding.member_id is None:
        raise ConfigurationError(
            f"directory={holding.name}: which member this was is not known: expected a directory as a standby left it, "
            "with cluster/cluster-mark.dat; make a cluster of a copy with `trimaran recover`"
        )
    mine = None if holding.configuration is None else holding.configuration.find(holding.member_id)
    if mine is None or mine.kind is not MemberKind.STANDBY:
        kind = "no member that its log knows" if mine is None else f"member {mine.member_id}, a {mine.kind}"
        raise ConfigurationError(
            f"directory={holding.name} is of {kind}: expected a standby's; make a cluster of what other members left "
            "with `trimaran recover`, which asks first whether the others are gone"
        )
    position = holding.usable_survey.stop_position
    note = (
        f"made of standby {mine.member_id} of cluster {format_cluster_id(choice.cluster_id)} at "
        f"log_position={position}: new_cluster_id={format_cluster_id(cluster_id)}"
    )
    record = append_recovery_record(choice, members, cluster_id=cluster_id, note=note, now_ms=now_ms)
    written = write_beside(record, target, members, now_ms=now_ms, on_progress=on_progress)
    return Restored(tuple(written), position, record)


def _choose_only(holding: Holding, cluster_id: ClusterId) -> SalvageChoice:
    """Choose the one directory that there is.

    Raises:
        ClusterError: it cannot be used.
        ConfigurationError: the new cluster would have the old one's id.
    """
    choice = choose([holding])
    if choice.problems or holding.source is None:
        problems = "; ".join([*choice.problems, *holding.problems])
        raise ClusterError(f"no cluster can be made of directory={holding.name}: {problems}")
    if cluster_id == choice.cluster_id:
        raise ConfigurationError(
            f"cluster_id={format_cluster_id(cluster_id)} expected another than that of the old cluster"
        )
    return choice


def _last_end(survey: Survey, wanted: int) -> int:
    """Find where the last whole message ends that ends at a position or before."""
    found = survey.log.start_position
    for message in MessageReader(LogFile.of(survey.source.archive, survey.log).reader()):
        if message.end_position > wanted:
            break
        found = message.end_position
    return found
