"""What one directory holds of a cluster that is gone: as much as can be read of it, and what is wrong with it.

A recovery takes what nothing else would: a log that is damaged counts up to the damage, and a log whose beginning is
lost or damaged counts from its newest snapshot on that lies behind the damage. So `Holding.survey` is always of the
longest part of the log that a member can start from, or there is none, and `problems` say why.

Only the log and the snapshots matter. A node state that is damaged is in nobody's way: the new cluster has another id,
so no vote of the old one counts in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ....archive import ArchiveError, RecordingDescriptor
from ....archive.files.marks import locate_mark
from ....archive.log.commit_proof import CommitClaim, marks_of, prove_commit
from ....archive.log.log_file import LogFile
from ....archive.log.member_directory import MemberDirectory
from ....service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.types import NULL_VALUE, MemberId
from ...core.vocabulary.configuration import Configuration, find_configurations
from ...directories.kind import find_kind
from ...directories.source import Source, find_running, read_candidate_term_id, read_source
from ...directories.survey import Survey, survey_source
from ...runtime.files.cluster_id_file import kept_cluster_id
from ...runtime.files.mark_file import CLUSTER_MARKS, MARK_FILE_NAME, read_cluster_mark_file
from ...runtime.files.members_file import MEMBERS_FILE_NAME, read_members
from ...runtime.files.node_state_file import NODE_STATE_FILE_NAME
from ..export_aeron.foreign_entries import read_blocks

Progress = Callable[[int], None]


@dataclass(slots=True)
class Holding:
    """One directory as it was found. Positions are bytes of the log."""

    name: str
    """As the user named it."""
    archive: Path | None = None
    cluster: Path | None = None
    member_id: MemberId | None = None
    cluster_id: ClusterId = NULL_CLUSTER_ID
    is_ours: bool = True
    """Whether a member of ours wrote it; otherwise Aeron did."""
    running: str | None = None
    """Says so if a process still uses it."""
    source: Source | None = None
    survey: Survey | None = None
    """Of the part of the log that a member can start from; None where there is none."""
    claim: CommitClaim | None = None
    """The log is known to be committed up to here."""
    configuration: Configuration | None = None
    """The newest that the directory knows of."""
    damage: list[str] = field(default_factory=list)
    """What is wrong with log and snapshots: the member held more than can be read."""
    notes: list[str] = field(default_factory=list)
    """What else is wrong; the log is whole nevertheless."""
    problems: list[str] = field(default_factory=list)
    """Why nothing of it can be used."""

    @property
    def is_usable(self) -> bool:
        """Whether a member could start from it."""
        return self.survey is not None and not self.problems

    @property
    def usable_survey(self) -> Survey:
        """The survey of a directory that can be used."""
        assert self.survey is not None
        return self.survey

    @property
    def last_term_id(self) -> int:
        """The newest term that the usable part of the log was fitted to; `NULL_VALUE` without one."""
        return self.usable_survey.last_leadership_term_id if self.is_usable else NULL_VALUE

    @property
    def end_position(self) -> int:
        """Where the usable part of the log ends."""
        return self.usable_survey.stop_position if self.is_usable else 0


def read_holding(name: str, *, now_ms: int, on_progress: Progress = lambda count: None) -> Holding:
    """Read what a directory holds; whatever stands in the way becomes one of its problems."""
    holding = Holding(name)
    try:
        member = MemberDirectory.find(name)
        if not member.archive.is_local:
            raise ConfigurationError(f"expected a directory on this machine: path={name!r}; copy it first")
        holding.archive = member.archive.directory.resolve()
        if member.recording_log is None:
            raise ConfigurationError(f"no recording.log in {name}: it does not say which recording is the log")
        holding.cluster = member.recording_log.parent.resolve()
        _read_small_files(holding, holding.cluster)
        holding.running = find_running(holding.cluster, holding.archive, now_ms)
        candidate_term_id = _candidate_term_id(holding, member, holding.cluster)
        holding.source = read_source(name, now_ms=None, candidate_term_id=candidate_term_id)
        _survey(holding, holding.source, on_progress)
    except (ClusterError, OSError) as error:
        holding.problems.append(str(error))
    return holding


def _read_small_files(holding: Holding, cluster: Path) -> None:
    """Take in the member's id, its cluster's id, and who wrote the directory."""
    try:
        mark = locate_mark(cluster, CLUSTER_MARKS)
        holding.member_id = MemberId(read_cluster_mark_file(mark).member_id)
    except FileNotFoundError:
        holding.notes.append(f"which member this was is not known: no {MARK_FILE_NAME}, no process has run on it")
    except (ClusterError, OSError) as error:
        holding.notes.append(f"which member this was is not known: {error}")
    try:
        holding.cluster_id = kept_cluster_id(cluster)
    except ClusterError as error:
        holding.notes.append(str(error).partition("; remove the file")[0])
    holding.is_ours = find_kind(cluster).is_ours


def _candidate_term_id(holding: Holding, member: MemberDirectory, cluster: Path) -> int:
    try:
        return read_candidate_term_id(member, cluster / NODE_STATE_FILE_NAME)
    except ClusterError as error:
        holding.notes.append(str(error))
        return NULL_VALUE


def _survey(holding: Holding, source: Source, on_progress: Progress) -> None:
    """Find the longest part of the log that a member can start from, and what it proves."""
    whole = _log_descriptor(source)
    end_position = _valid_end(holding, source, whole) if whole is not None else 0
    for start_position in _starts_behind(source, end_position):
        if _survey_from(holding, source, whole or _any_log(source), start_position, on_progress):
            break
    if holding.survey is None:
        if whole is None:
            raise ArchiveError(f"the log is not in the catalog of {source.name}, and no snapshot there can be read")
        log = replace(whole, stop_position=end_position)
        holding.survey = survey_source(source, log=log, on_progress=on_progress)
        holding.problems += holding.survey.problems
        if end_position == 0:
            holding.problems.append(
                "nothing of the log can be read, and no snapshot: a cluster made of it is a new one"
            )
    if whole is not None:
        holding.claim = prove_commit(source.archive, whole, marks_of(source.recording_log.entries))
    elif holding.survey.snapshots:
        entry = holding.survey.snapshots[-1].entries[0]
        holding.claim = CommitClaim(entry.leadership_term_id, entry.log_position)
    remembered = _remembered_members(holding, source.cluster)
    if remembered is not None and remembered.log_position > (holding.claim.position if holding.claim else 0):
        holding.claim = CommitClaim(holding.survey.last_leadership_term_id, remembered.log_position)
    holding.configuration = _find_configuration(holding.survey, remembered)
    known = max(
        [holding.claim.position if holding.claim else 0, *(term.term_base_log_position for term in source.terms)]
    )
    if known > holding.survey.stop_position and not holding.damage:
        holding.damage.append(
            f"the log came to position={known} at least, and ends at position={holding.survey.stop_position}"
        )


def _survey_from(
    holding: Holding, source: Source, log: RecordingDescriptor | None, start_position: int, on_progress: Progress
) -> bool:
    """Take the log from a snapshot's position on, where all before it is lost. Returns whether that can be used."""
    if log is None:
        raise ArchiveError(f"no log in the catalog of {source.name}: its layout is not known")
    part = replace(log, start_position=start_position, stop_position=None)
    file = LogFile.of(source.archive, part)
    end = file.ending(start_position)
    survey = survey_source(source, log=replace(part, stop_position=end.position), on_progress=on_progress)
    if survey.problems:
        return False
    holding.survey = survey
    holding.notes.append(f"the log before position={start_position} is not needed: there is a snapshot of there")
    holding.damage.clear()
    if end.damage is not None:
        holding.damage.append(f"the log is damaged at position={end.position}: {end.damage}")
    elif not file.segment_path(end.position).exists():
        holding.damage.append(f"the log after position={end.position} is lost, if there was one")
    return True


def _remembered_members(holding: Holding, cluster: Path) -> Configuration | None:
    try:
        return read_members(cluster / MEMBERS_FILE_NAME)
    except RemoteProtocolError as error:
        holding.notes.append(f"the file {MEMBERS_FILE_NAME} cannot be read: {error}")
        return None


def _log_descriptor(source: Source) -> RecordingDescriptor | None:
    """Find what the catalog says of the log; None where it says nothing."""
    try:
        return source.descriptor(source.log_recording_id)
    except ClusterError:
        return None


def _any_log(source: Source) -> RecordingDescriptor | None:
    """Find the layout of a log that itself is marked as not valid; None where the entry is damaged."""
    entry = source.entries.get(source.terms[-1].recording_id) if source.terms else None
    return None if entry is None or entry.problem is not None else entry.descriptor


def _valid_end(holding: Holding, source: Source, log: RecordingDescriptor) -> int:
    """Find where the first frame of the log is that is not valid, or the log ends."""
    file = LogFile.of(source.archive, log)
    end = file.ending()
    if end.damage is not None:
        holding.damage.append(f"the log is damaged at position={end.position}: {end.damage}")
    elif end.torn_write is not None:
        holding.notes.append(
            f"the log {end.torn_write} at position={end.position}: never acknowledged, where file_sync_level is 1 or 2"
        )
    elif (gap := _missing_segment(file, end.position)) is not None:
        holding.damage.append(f"the log ends at position={end.position}: a segment is missing at position={gap}")
    return end.position


def _missing_segment(file: LogFile, end_position: int) -> int | None:
    """Find where a segment was lost from the end of the log on. A member keeps the next one as soon as one is full."""
    if file.descriptor.segment_base_position(end_position) not in file.segment_base_positions():
        return end_position
    return file.find_gap(end_position)


def _starts_behind(source: Source, end_position: int) -> Iterator[int]:
    """Yield the positions of complete snapshots that the log does not reach, the newest first."""
    service_count = source.recording_log.latest_service_count()
    if service_count is None:
        return
    positions = {entries[0].log_position for entries in source.recording_log.complete_snapshots(service_count)}
    yield from sorted((position for position in positions if position > end_position), reverse=True)


def _find_configuration(survey: Survey, remembered: Configuration | None) -> Configuration | None:
    """Find the newest configuration in snapshots and log, or the one that is remembered; None where nothing says it."""
    found = survey.snapshots[-1].state.module.members if survey.snapshots else None
    log = survey.log_file
    for position, block in read_blocks(log, survey.log.start_position, survey.stop_position):
        try:
            for configuration in find_configurations(block, position):
                if found is None or configuration.log_position > found.log_position:
                    found = configuration
        except RemoteProtocolError:
            continue  # of a later version: the members of the new cluster are named by the operator anyway
    if remembered is not None and (found is None or remembered.log_position > found.log_position):
        return remembered
    return found
