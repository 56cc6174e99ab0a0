"""`trimaran recovery-plan DIR`: the snapshots that a member would load and the log it would replay, if it started.

The same decision as at a start, made without starting: nothing is changed or locked. It says whose directory it is,
since only a member starts on it. Exit status: 0 it could start; 2 wrong usage, or no member's directory; 10 something
is in the way of a start, or a file is damaged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.disk.file_system import OsFileSystem
from ...archive.errors import ArchiveError, CorruptionError
from ...archive.files.marks import ARCHIVE_MARKS, MARK_FILE_SUFFIX, MarkOwner, find_marks, find_owner, is_old_mark
from ...archive.files.segment_files import SegmentFiles
from ...archive.format.catalog import CatalogEntry
from ...archive.format.layout import COLD_RECORD_NAME
from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import MemberDirectory
from ...archive.reading.verify import UNKNOWN_CHECKSUM
from ...archive.store.repair import find_tail
from ...archive.tool.output import (
    ABSENT,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    fail,
    format_time,
    new_table,
    print_object,
)
from ...service_api.errors import ClusterError, ConfigurationError, RemoteProtocolError
from ...service_api.types import NULL_VALUE, TICKS_PER_MS, TimeUnit
from ...service_api.wire.log.recording_log import EntryType, RecordingLogEntry
from ..core.log.recording_log import RecordingLog, RecoveryPlan
from ..core.vocabulary.terms import is_usable
from ..directories.kind import DirectoryKind, find_kind
from ..operating.export_aeron.foreign_entries import find_foreign_entry, find_foreign_timer
from ..runtime.files.mark_file import CLUSTER_MARKS
from ..runtime.files.node_state_file import NODE_STATE_FILE_NAME, parse_node_state
from ..runtime.files.recording_log_file import read_recording_log
from ..runtime.ground.system_clock import SystemClock
from .shared.arguments import MemberDirectoryArgument, expect_recording_log

HEADER_SINCE: Final = "1.47"
"""From this version on Aeron's mark files have a message header; older ones take a file with one for damaged."""

MISREAD: Final = "it would misread the log"
SHARED: Final = "it starts from the same files: first mend what is in the way of a start"

_SAID_ELSEWHERE: Final = frozenset(
    {"schema_version", "snapshots", "aeron_obstacle", "aeron_since", "is_used", "problems", "notes"}
)
"""The fields of a report that are no rows of the table of facts."""

SERVICES_HELP = "How many services the member runs. [default: as many as have snapshots]"


class SnapshotPlan(BaseModel):
    """One snapshot that would be loaded."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    service_id: int
    """-1 is the consensus module."""
    log_position: int
    leadership_term_id: int
    recording_id: int
    length_bytes: int | None
    """None where the archive does not have it."""
    time: str | None


class RecoveryReport(BaseModel):
    """What a start would do. Positions are bytes in the log."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = 1
    directory_kind: DirectoryKind
    """Whose directory it is."""
    last_leadership_term_id: int | None
    """The newest term in the recording log; None for a member that was never in one."""
    last_term_base_log_position: int | None
    last_term_end_position: int | None
    """Where that term ends; None while it is open."""
    log_recording_id: int | None
    log_start_position: int | None
    """Where the log that is kept begins."""
    append_position: int | None
    """Where it ends."""
    snapshots: list[SnapshotPlan]
    """The newest complete set, the module's first; empty without one."""
    replay_position: int
    """Where the replay begins: where the snapshots end."""
    replay_length: int | None
    aeron_obstacle: str | None
    """Why an Aeron member would not come to the same state, and what to do; None: it can go on with this directory."""
    aeron_since: str | None
    """The first version of Aeron that opens the mark files that are here; None: each does."""
    is_used: bool
    """True if a process uses the directory, or may: an Aeron member does not start on it then."""
    problems: list[str]
    """What is in the way of a start."""
    notes: list[str] = []
    """What else is to be known."""


def recovery_plan(
    directory: MemberDirectoryArgument,
    services: Annotated[int | None, typer.Option("--services", min=1, help=SERVICES_HELP, show_default=False)] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what a member would start from: the newest complete snapshots, then the log after them."""
    path = expect_recording_log(directory)
    try:
        report = make_plan(directory, read_recording_log(path), services)
    except ConfigurationError:
        raise
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    print_object(report.model_dump(mode="json"), output, lambda: _draw(report))
    if report.problems:
        fail("; ".join(report.problems), EXIT_UNHEALTHY)


def make_plan(directory: Path, recording_log: RecordingLog, service_count: int | None) -> RecoveryReport:
    """Decide as a start would.

    Raises:
        ConfigurationError: there is no archive.
        ClusterError: its catalog, or the log, cannot be read.
    """
    kind = find_kind(expect_recording_log(directory).parent)
    if service_count is None:
        service_count = 0 if kind is DirectoryKind.WITNESS else count_services(recording_log)
    plan = recording_log.recovery_plan(service_count)
    member = MemberDirectory.find(directory).on_disk()
    entries = _read_catalog(member)
    lengths = _recording_lengths(entries)
    log = _find_log(member, plan.log_recording_id)
    time_unit = TimeUnit.MILLIS if log is None else log.time_unit()
    snapshots = [_snapshot(entry, lengths, time_unit) for entry in plan.snapshots]
    start = None if log is None else log.descriptor.start_position
    end = None if log is None else log.find_reach()
    term = plan.last_term
    owners = _find_owners(directory, member)
    faults = [
        *_catalog_problems(entries),
        *_problems(plan.log_recording_id, snapshots, plan.replay_position, (start, end)),
        *([] if log is None or end is None else _find_log_damage(log, plan.replay_position, end)),
    ]
    obstacle = SHARED if faults else _find_aeron_obstacle(kind, member, entries, plan, log, end)
    return RecoveryReport(
        directory_kind=kind,
        last_leadership_term_id=None if plan.last_leadership_term_id == NULL_VALUE else plan.last_leadership_term_id,
        last_term_base_log_position=None if term is None else term.term_base_log_position,
        last_term_end_position=None if term is None or term.log_position < 0 else term.log_position,
        log_recording_id=None if term is None else term.recording_id,
        log_start_position=start,
        append_position=end,
        snapshots=snapshots,
        replay_position=plan.replay_position,
        replay_length=None if end is None else max(0, end - plan.replay_position),
        aeron_obstacle=obstacle,
        aeron_since=_aeron_since(directory, member),
        is_used=bool(owners),
        problems=[
            *(owner.describe(what, place) for what, place, owner in owners if not owner.is_locked),  # ours is no news
            *_vote_state_problems(directory, kind, plan.last_leadership_term_id),
            *faults,
        ],
        notes=[*_checksum_notes(entries), *_cold_notes(member, start)],
    )


def count_services(recording_log: RecordingLog) -> int:
    """Count the services by the snapshots that there are of them; a member has one at least."""
    ids = [entry.service_id for entry in recording_log.entries if entry.entry_type is not EntryType.TERM]
    return max(0, *ids) + 1 if ids else 1


def _snapshot(entry: RecordingLogEntry, lengths: dict[int, int | None], time_unit: TimeUnit) -> SnapshotPlan:
    return SnapshotPlan(
        service_id=entry.service_id,
        log_position=entry.log_position,
        leadership_term_id=entry.leadership_term_id,
        recording_id=entry.recording_id,
        length_bytes=lengths.get(entry.recording_id),
        time=format_time(entry.timestamp, ticks_per_second=TICKS_PER_MS[time_unit] * 1_000),
    )


def _find_log(member: MemberDirectory, recording_id: int) -> LogFile | None:
    try:
        log = LogFile.find(member)
    except ConfigurationError:  # nothing was recorded yet, or no log
        return None
    return log if log.descriptor.recording_id == recording_id else None


def _read_catalog(member: MemberDirectory) -> tuple[CatalogEntry, ...]:
    try:
        return member.read_catalog().entries
    except ArchiveError as error:
        raise ClusterError(f"archive cannot be read: directory={member.archive}: {error}") from error


def _recording_lengths(entries: tuple[CatalogEntry, ...]) -> dict[int, int | None]:
    """Return the length of each recording that the catalog has; None for one that was not stopped."""
    found = [entry.descriptor for entry in entries if entry.descriptor is not None and entry.problem is None]
    return {d.recording_id: None if d.stop_position is None else d.stop_position - d.start_position for d in found}


def _catalog_problems(entries: tuple[CatalogEntry, ...]) -> list[str]:
    return [
        f"catalog entry at offset={entry.offset}: {entry.problem}" for entry in entries if entry.problem is not None
    ]


def _checksum_notes(entries: tuple[CatalogEntry, ...]) -> list[str]:
    found = [entry.descriptor for entry in entries if entry.descriptor is not None]
    unknown = [each.recording_id for each in found if each.checksummed and not each.is_checkable]
    return [f"{UNKNOWN_CHECKSUM}: recording_ids={unknown}; a start cannot go on with them"] if unknown else []


def _cold_notes(member: MemberDirectory, start: int | None) -> list[str]:
    if not (member.archive.directory / COLD_RECORD_NAME).exists():
        return []
    return [f"the log before position={start} is in cold storage: a start does not need it"]


def _find_owners(directory: Path, member: MemberDirectory) -> list[tuple[str, Path, MarkOwner]]:
    """Return the processes that use the directories of a cluster and an archive, or may, each with its directory."""
    cluster, archive = expect_recording_log(directory).parent, member.archive.directory
    now_ms = SystemClock().epoch_time()
    found = [
        ("cluster", cluster, find_owner(cluster, CLUSTER_MARKS, now_ms=now_ms)),
        ("archive", archive, find_owner(archive, ARCHIVE_MARKS, now_ms=now_ms)),
    ]
    return [(what, place, owner) for what, place, owner in found if owner is not None]


def _aeron_since(directory: Path, member: MemberDirectory) -> str | None:
    """Return the first version of Aeron that opens the mark files in their places: an older one knows no header."""
    marks = [
        *find_marks(expect_recording_log(directory).parent, CLUSTER_MARKS),
        *find_marks(member.archive.directory, ARCHIVE_MARKS),
    ]
    is_new = any(path.suffix == MARK_FILE_SUFFIX and not is_old_mark(path) for path in marks)
    return HEADER_SINCE if is_new else None


def _vote_state_problems(directory: Path, kind: DirectoryKind, last_leadership_term_id: int) -> list[str]:
    """Return what is wrong with the term on disk: a start goes well with it, and no leader can come of it."""
    path = expect_recording_log(directory).parent / NODE_STATE_FILE_NAME
    if not path.is_file():
        return _missing_votes(directory, kind, path) if last_leadership_term_id != NULL_VALUE else []
    try:
        candidate, _ = parse_node_state(path.read_bytes())
    except RemoteProtocolError as error:
        return [f"damaged node state: path={path}: {error}"]
    if is_usable(last_leadership_term_id, candidate.candidate_term_id):
        return []
    return [
        f"the vote state is not usable: candidate_term_id={candidate.candidate_term_id} is far above "
        f"last_leadership_term_id={last_leadership_term_id}, no leader can come of it; if other members say so too, "
        f"stop every member and run `trimaran reset-candidate-term {directory}` on each"
    ]


def _missing_votes(directory: Path, kind: DirectoryKind, path: Path) -> list[str]:
    """Return what to do with a directory that has a log and no votes."""
    if kind is DirectoryKind.AERON_BACKUP:
        return [
            "an Aeron ClusterBackup wrote the directory: it has no votes, and no member starts on it; make members of "
            f"it with `trimaran archive import {directory} --to DIR`"
        ]
    if kind is DirectoryKind.BACKUP:
        return [
            "a backup: it has no votes, and no member starts on it; make members of it with "
            f"`trimaran backup restore {directory}`"
        ]
    if kind is DirectoryKind.AERON_MEMBER:
        advice = (
            "restore the file; where the version of Aeron had no such file, make a member of the directory with "
            f"`trimaran archive import {directory} --to DIR`"
        )
    else:
        advice = "restore the file, or start the others first"
    return [
        f"no vote state: path={path} is missing, so the member has forgotten how it voted: it neither votes nor "
        f"stands until a leader has committed an entry with the others; {advice}"
    ]


def _problems(
    log_recording_id: int, snapshots: list[SnapshotPlan], replay_position: int, log: tuple[int | None, int | None]
) -> list[str]:
    """Return what is in the way of a start; `log` is where the log begins and ends, None where it is not there."""
    problems = [
        f"snapshot is not in the archive: service_id={s.service_id} recording_id={s.recording_id} "
        f"log_position={s.log_position}; run `trimaran snapshot invalidate`"
        for s in snapshots
        if s.length_bytes is None
    ]
    start, end = log
    if log_recording_id != NULL_VALUE and start is None:
        problems.append(f"the log is not in the archive: recording_id={log_recording_id}")
    if start is not None and end is not None and not start <= replay_position <= end:
        problems.append(
            f"the log does not have the position where the replay begins: replay_position={replay_position} "
            f"start_position={start} append_position={end}"
        )
    return problems


def _find_log_damage(log: LogFile, replay_position: int, end_position: int) -> list[str]:
    """Return the faults that a start finds in the log: damage in what it replays, an end that it may not cut.

    After a power loss a start may judge the end more mildly, for then frames after a torn one may have been written.
    """
    descriptor = log.descriptor
    if descriptor.start_position <= replay_position <= end_position:
        end = log.ending(replay_position)
        if end.damage is not None:
            return [str(log.corruption(end))]
    if descriptor.stop_position is not None:
        return []
    files = SegmentFiles(OsFileSystem(), log.location.directory, descriptor, sync_level=0)
    seen: int | None = None
    for _ in range(2):  # what a running member writes meanwhile seems wrong once, at that place
        try:
            find_tail(files, descriptor, torn_limit_bytes=0)
            return []
        except CorruptionError as error:
            if seen is not None and error.position == seen:
                return [str(error)]
            seen = error.position
    return []


def _find_aeron_obstacle(
    kind: DirectoryKind,
    member: MemberDirectory,
    entries: tuple[CatalogEntry, ...],
    plan: RecoveryPlan,
    log: LogFile | None,
    end: int | None,
) -> str | None:
    """Return what is in the way of an Aeron member in what it starts from, and what to do about it."""
    if kind is DirectoryKind.WITNESS and plan.snapshots:
        return (
            "a witness wrote the directory: its snapshots have no state of a service, so Aeron's service ends at its "
            "start; use the directory of a member that runs the services"
        )
    service_count = max(1, len(plan.snapshots) - 1)
    known = {int(each.recording_id): each for entry in entries if (each := entry.descriptor) is not None}
    found = None
    module = known.get(plan.snapshots[0].recording_id) if plan.snapshots else None
    if module is not None:
        snapshot = LogFile(member.archive, module)
        found = find_foreign_timer(snapshot, plan.replay_position, service_count=service_count)
    if found is None and log is not None and end is not None:
        start = max(plan.replay_position, log.descriptor.start_position)
        found = find_foreign_entry(log, start, end, service_count=service_count)
    if found is None:
        return None
    return f"{MISREAD}: log position={found.log_position}: {found.what}; use `trimaran archive export-aeron`"


def _draw(report: RecoveryReport) -> RenderableType:
    verdict = Text("cannot start as it is", style="bold red") if report.problems else Text("can start", style="bold")
    facts = new_table("fact", "value")
    for name, value in report:
        if name not in _SAID_ELSEWHERE:
            facts.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else value or ABSENT)
    parts: list[RenderableType] = [
        verdict,
        _ability_of_aeron(report),
        "",
        facts,
        "",
        *(f"note: {note}" for note in report.notes),
    ]
    if not report.snapshots:
        return Group(*parts, "no snapshots: the whole log is replayed")
    headings = ("service", "position", "term", "recording", "bytes", "time")
    table = new_table(*headings, numbers=headings[:5])
    for s in report.snapshots:
        length = ABSENT if s.length_bytes is None else f"{s.length_bytes:,}"
        numbers = (str(s.service_id), f"{s.log_position:,}", str(s.leadership_term_id), str(s.recording_id), length)
        table.add_row(*numbers, s.time or ABSENT)
    return Group(*parts, table)


def _ability_of_aeron(report: RecoveryReport) -> str:
    if report.aeron_obstacle is not None:
        return f"an Aeron member cannot go on with it: {report.aeron_obstacle}"
    can = "an Aeron member can go on with it"
    if report.is_used:
        can = f"once no process uses it, {can}"
    if report.aeron_since is None:
        return can
    return (
        f"{can}, from Aeron {report.aeron_since} on; for an older one, write it again with "
        "`trimaran archive export-aeron`, without mark files"
    )
