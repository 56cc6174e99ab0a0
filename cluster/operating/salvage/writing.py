"""Writes the directories of the new cluster's members, whole or not at all.

Each member gets the chosen log and its snapshots, and behind them a leadership term of its own that no member has ever
led: its first entry, and the configuration of the new cluster, which says who made it, when, and from what. The term is
marked in `recording.log`, and it is the candidate term of every new member, so none of them votes in a term in which
the old ones may have voted; and the cluster has a new id, so no process of the old one is let in.

`--to` is written beside its place and gets its name at the end, by one rename.

`--in-place` has no single rename where there are several directories. So each new one is first written and completed
beside the old one (`.NAME.recovered`); once all are, each old one gets another name and the new one takes its place.
A command that was interrupted among these renames is repeated: some directory is of the new cluster, or not there, so
the rest of the renames is done. Before that, nothing has happened yet, and everything is made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ....archive.disk.file_system import OsFileSystem
from ....service_api import ConfigurationError
from ....service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ....service_api.groups.group import ONLY_GROUP
from ....service_api.types import NULL_POSITION, NULL_VALUE, MemberId, TermId, TimeUnit
from ....service_api.wire.log.code_digest import with_code_digest
from ....service_api.wire.log.messages import NewLeadershipTermEvent
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...core.log.log_buffer import LogBuffer
from ...core.log.log_publisher import LogPublisher
from ...core.vocabulary.configuration import (
    Configuration,
    ConfigurationCause,
    find_configuration_fault,
    text_room,
)
from ...core.vocabulary.terms import is_usable
from ...directories.copying import expect_room, remove_unfinished, write_member, written_whole
from ...directories.survey import Survey
from ...runtime.files.cluster_id_file import ClusterIdFile, kept_cluster_id
from ...runtime.files.mark_file import MARK_FILE_NAME
from ...settings.member_endpoints import MemberEndpoints
from ..export_aeron.foreign_entries import read_blocks
from .choice import SalvageChoice

_MILLIS_PER: Final = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}

Progress = Callable[[int], None]


@dataclass(slots=True, frozen=True)
class RecoveryRecord:
    """What the log of the new cluster says of its making."""

    cluster_id: ClusterId
    leadership_term_id: int
    term_base_log_position: int
    end_position: int
    candidate_term_id: int
    frames: bytes
    survey: Survey
    """Of the directory that is to be written: the chosen one's, with the term."""


def append_recovery_record(
    choice: SalvageChoice, members: Sequence[MemberEndpoints], *, cluster_id: ClusterId, note: str, now_ms: int
) -> RecoveryRecord:
    """Make the term that ends the old cluster's log and begins the new cluster.

    Raises:
        ConfigurationError: the members are none that a cluster can have, or too many for a frame.
    """
    assert choice.chosen is not None
    survey = choice.chosen.usable_survey
    log, base, before = survey.log, survey.stop_position, choice.configuration
    term_id = max(choice.highest_term_id, survey.last_leadership_term_id) + 1
    module = survey.snapshots[-1].state.module if survey.snapshots else None
    newest = survey.snapshots[-1].state.timestamp if survey.snapshots else 0
    timestamp = max(survey.facts.last_timestamp, newest, now_ms * _MILLIS_PER[survey.time_unit])
    leader_member_id = min(member.member_id for member in members)
    configuration = _new_configuration(members, before, note, log.mtu_length)
    publisher = LogPublisher(
        LogBuffer(position=base, retained_bytes=log.term_buffer_length),
        log_session_id=log.session_id,
        initial_term_id=log.initial_term_id,
        term_length_bytes=log.term_buffer_length,
        mtu_length_bytes=log.mtu_length,
        checksums=log.checksummed,
        checksum_kind=log.checksum_kind,
    )
    event = NewLeadershipTermEvent(
        leadership_term_id=TermId(term_id),
        log_position=0,
        timestamp=timestamp,
        term_base_log_position=base,
        leader_member_id=MemberId(leader_member_id),
        log_session_id=log.session_id,
        time_unit=survey.time_unit,
        app_version=survey.app_version,
    )
    code_digest = survey.facts.code_digest or (module.term_code_digest if module is not None else 0)
    publisher.append_positioned(with_code_digest(event, code_digest))
    publisher.append_positioned(
        configuration.to_event(
            leadership_term_id=term_id, timestamp=timestamp, leader_member_id=leader_member_id, before=before
        )
    )
    end = publisher.log_buffer.append_position
    candidate_term_id = max([term_id, *_candidate_term_ids(choice, term_id)])
    return RecoveryRecord(
        cluster_id,
        term_id,
        base,
        end,
        candidate_term_id,
        b"".join(publisher.log_buffer.take_pending()),
        replace(
            survey,
            source=replace(survey.source, candidate_term_id=candidate_term_id),
            log=replace(log, stop_position=end),
            terms=[*survey.terms, *_new_terms(survey, term_id, base, timestamp)],
        ),
    )


def _new_configuration(
    members: Sequence[MemberEndpoints], before: Configuration | None, note: str, mtu_length: int
) -> Configuration:
    ids = [member.member_id for member in members]
    made = Configuration(
        members=tuple(member.configured() for member in sorted(members, key=lambda member: member.member_id)),
        high_member_id=max(*ids, 0 if before is None else before.high_member_id),
        cause=ConfigurationCause.RECOVER,
        group=ONLY_GROUP if before is None else before.group,
        previous_log_position=0 if before is None else before.log_position,
        note=note,
    )
    fault = find_configuration_fault(made)
    if fault is not None:
        raise ConfigurationError(f"--members: {fault}")
    room = text_room(mtu_length)
    while len(made.encode_text()) > room and made.note:
        made = replace(made, note=made.note[: len(made.note) // 2])
    if len(made.encode_text()) > room:
        raise ConfigurationError(f"--members: {len(made.encode_text())} bytes do not fit in a frame: limit={room}")
    return made


def _candidate_term_ids(choice: SalvageChoice, term_id: int) -> Iterable[int]:
    """The terms that the old members have voted in, without those that no member would believe."""
    for holding in choice.holdings:
        if holding.source is not None and is_usable(term_id, holding.source.candidate_term_id):
            yield holding.source.candidate_term_id


def _new_terms(survey: Survey, term_id: int, base: int, timestamp: int) -> Iterator[RecordingLogEntry]:
    """Yield the new term, and before it an empty one for each number that the chosen log has not: terms follow on."""
    first = survey.last_leadership_term_id + 1
    for each in range(first, term_id + 1):
        yield RecordingLogEntry(
            recording_id=survey.log.recording_id,
            leadership_term_id=each,
            term_base_log_position=base,
            log_position=NULL_POSITION,
            timestamp=timestamp,
            service_id=NULL_VALUE,
            entry_index=0,
            file_position=0,
        )


def write_directory(record: RecoveryRecord, target: Path, *, now_ms: int, on_progress: Progress) -> None:
    """Write the directory of one member under a name that no member starts on.

    Raises:
        ClusterError: what was written is not what it should be.
        ConfigurationError: something is at the target.
        OSError: the disk refused.
    """
    write_member(record.survey, target, as_is=True, now_ms=now_ms, log_blocks=_blocks(record), on_progress=on_progress)
    ClusterIdFile.open(target / "cluster", OsFileSystem()).store(record.cluster_id)


def _blocks(record: RecoveryRecord) -> Iterator[bytes]:
    survey = record.survey
    for _, block in read_blocks(survey.log_file, survey.log.start_position, record.term_base_log_position):
        yield block
    yield record.frames


def write_beside(
    record: RecoveryRecord, target: Path, members: Sequence[MemberEndpoints], *, now_ms: int, on_progress: Progress
) -> list[Path]:
    """Write `target` with a directory for each member in it, `node-ID`. Returns these.

    Raises:
        ClusterError: what was written is not what it should be.
        ConfigurationError: something is at the target, or too little space is free.
        OSError: the disk refused.
    """
    names = [f"node-{member.member_id}" for member in members]
    with written_whole(target, "recovering") as working:
        expect_room(record.survey, [working / name for name in names])
        for name in names:
            write_directory(record, working / name, now_ms=now_ms, on_progress=on_progress)
    return [target / name for name in names]


def recovered_name(directory: Path) -> Path:
    """Where a directory that is to take another one's place lies until then, complete."""
    return directory.with_name(f".{directory.name}.recovered")


def backup_name(directory: Path) -> Path:
    """Where the directory stays whose place was taken."""
    return directory.with_name(f"{directory.name}.before-recovery")


def find_begun(directories: Sequence[Path]) -> ClusterId:
    """Return the new cluster's id where a recovery in place has begun its renames, or done them all; else the null id.

    A recovery that was done, and whose members were started since, is not begun but over.

    Raises:
        ClusterError: a file is damaged.
        OSError: the disk refused.
    """
    ready = {kept_cluster_id(recovered_name(each) / "cluster") for each in directories if recovered_name(each).exists()}
    replaced = [
        each
        for each in directories
        if backup_name(each).exists() and (ready or not (each / "cluster" / MARK_FILE_NAME).exists())
    ]
    # A directory may be between its two renames, and so not be there.
    begun = ready | {kept_cluster_id(each / "cluster") for each in replaced if each.exists()}
    return next(iter(begun)) if replaced and len(begun) == 1 else NULL_CLUSTER_ID


def write_in_place(
    record: RecoveryRecord, directories: Sequence[Path], *, now_ms: int, on_progress: Progress
) -> list[Path]:
    """Put new directories in the place of old ones, which get another name. Returns where the old ones are.

    Raises:
        ClusterError: what was written is not what it should be.
        ConfigurationError: a directory cannot be replaced; nothing was changed.
        OSError: the disk refused.
    """
    for directory in directories:
        _expect_replaceable(directory)
        remove_unfinished(recovered_name(directory))
    expect_room(record.survey, [recovered_name(directory) for directory in directories])
    try:
        for directory in directories:
            write_directory(record, recovered_name(directory), now_ms=now_ms, on_progress=on_progress)
    except BaseException:
        for directory in directories:
            with contextlib.suppress(OSError):
                remove_unfinished(recovered_name(directory))
        raise
    return finish_in_place(directories)


def finish_in_place(directories: Sequence[Path]) -> list[Path]:
    """Do the renames of a recovery in place that are not done yet. Returns where the old directories are.

    A directory that the recovery only read has none.

    Raises:
        OSError: the disk refused; the same command goes on where it was.
    """
    disk = OsFileSystem()
    for directory in directories:
        ready = recovered_name(directory)
        if not ready.exists():
            continue
        if directory.exists():
            disk.rename(directory, backup_name(directory))
        disk.rename(ready, directory)
        disk.sync_directory(directory.parent)
    return [backup_name(directory) for directory in directories if backup_name(directory).exists()]


def _expect_replaceable(directory: Path) -> None:
    if directory.is_mount():
        raise ConfigurationError(f"directory={directory} is a mount point and cannot be renamed: use --to")
    children = {child.name for child in directory.iterdir() if not child.is_socket()}
    others = sorted(children - {"archive", "cluster"})
    if not {"archive", "cluster"} <= children:
        raise ConfigurationError(f"directory={directory} has no directories archive and cluster in it: use --to")
    if others:
        raise ConfigurationError(f"directory={directory} holds other files: {others[:5]}; move them away, or use --to")
    if backup_name(directory).exists():
        raise ConfigurationError(
            f"the copy of an earlier recovery is there: {backup_name(directory)}; move it away if it is not needed"
        )
