"""Reads and checks everything that an import takes over, before anything is written: frames, entries, snapshots.

What stands in the way of a start on a copy is a `problem`, and nothing is imported. What is left out, or will be
different from what it was, is a `note`. The rules are those that a node would meet later: a log entry that no member
may deliver is found here, with its position, and not at the end of a long replay.

A log may be seeded: Aeron's tool makes a new recording log, in which a snapshot is at position 0, and the next log
begins there with its state. Such a seed is never left out unless asked for: the log alone gives another state.

Source: samples set A README §1, §2, §8, §10; aeron.md §5.3.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from ...archive import ArchiveError, RecordingDescriptor
from ...archive.disk.file_system import OsFileSystem
from ...archive.files.reader import Frame, FrameReader, MessageReader, RecordedMessage
from ...archive.files.segment_files import SegmentFiles
from ...archive.log.log_file import LogFile
from ...archive.store.repair import find_tail
from ...service_api import ClusterError, RemoteProtocolError
from ...service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
    RecordingId,
    TimeUnit,
)
from ...service_api.wire.log.code_digest import UNKNOWN_CODE, read_code_digest
from ...service_api.wire.log.fields import read_log_fields
from ...service_api.wire.log.messages import (
    LOG_MESSAGES,
    ClusterAction,
    ClusterActionRequest,
    NewLeadershipTermEvent,
    SessionCloseEvent,
    SessionOpenEvent,
    TimerEvent,
)
from ...service_api.wire.log.recording_log import EntryType, RecordingLogEntry
from ...service_api.wire.message import decode_message
from ...service_api.wire.session import SessionMessageHeader
from ..runtime.snapshots.recovery import Recovered, read_snapshots
from .source import Source

PROBLEM_LIMIT: Final = 20
"""How many problems of a log are told: what follows the first ones is mostly their consequence."""

_SESSION_MESSAGE: Final = struct.pack(
    "<HHH",
    SessionMessageHeader.LAYOUT.block_length,
    SessionMessageHeader.TEMPLATE_ID,
    SessionMessageHeader.SCHEMA_ID,
)
_SESSION_ID_END: Final = 23
"""The highest byte of the session id: of a message that a service offered it is negative, and the id of the service."""
_NEGATIVE: Final = 0x80
_PROGRESS_FRAMES: Final = 4096

Progress = Callable[[int], None]
"""Told how many bytes more were read or written."""


@dataclass(slots=True)
class LogFacts:
    """What the log says, entry by entry."""

    frame_count: int = 0
    message_count: int = 0
    service_message_count: int = 0
    service_count: int = 0
    """As many services at least have offered messages."""
    timer_event_count: int = 0
    session_count: int = 0
    """Sessions that were opened."""
    open_sessions: set[int] = field(default_factory=set)
    """Those that were not closed."""
    terms_begun: list[int] = field(default_factory=list)
    leader_member_ids: list[int] = field(default_factory=list)
    """Of each term that has an entry, in order."""
    time_units: list[TimeUnit] = field(default_factory=list)
    """Those that the terms name, each once."""
    app_version: int = 0
    """Of the newest term."""
    code_digest: int = UNKNOWN_CODE
    """Of the newest term."""
    last_timestamp: int = 0
    """Of the last entry."""
    is_suspended: bool = False
    incomplete_message_count: int = 0


@dataclass(slots=True, frozen=True)
class SourceSnapshotSet:
    """One snapshot of the module and its services that was read to its end."""

    entries: tuple[RecordingLogEntry, ...]
    descriptors: tuple[RecordingDescriptor, ...]
    state: Recovered

    @property
    def log_position(self) -> int:
        """Where it was taken."""
        return self.entries[0].log_position


@dataclass(slots=True)
class Survey:
    """What was found of one member. Without problems, a node can start on a copy."""

    source: Source
    log: RecordingDescriptor
    """With the stop position that the frames say, where the catalog has none."""
    facts: LogFacts = field(default_factory=LogFacts)
    terms: list[RecordingLogEntry] = field(default_factory=list)
    """The terms that the log reaches."""
    snapshots: list[SourceSnapshotSet] = field(default_factory=list)
    """Oldest first."""
    service_count: int = 1
    """What the newest snapshot says; without one, what the log shows: there may have been more that never offered."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def log_file(self) -> LogFile:
        """The files of the log."""
        return LogFile.of(self.source.archive, self.log)

    @property
    def stop_position(self) -> int:
        """Where the log ends."""
        assert self.log.stop_position is not None
        return self.log.stop_position

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of the log's times."""
        if self.facts.time_units:
            return self.facts.time_units[-1]
        return self.snapshots[-1].state.module.time_unit if self.snapshots else TimeUnit.MILLIS

    @property
    def app_version(self) -> int:
        """Of the newest term of the log; of a log that holds none yet, what the snapshot before it says."""
        if self.facts.terms_begun or not self.snapshots:
            return self.facts.app_version
        return self.snapshots[-1].state.module.marker.app_version

    @property
    def last_leadership_term_id(self) -> int:
        """The newest term that the log reaches; of a log that holds none yet, that of the snapshot before it."""
        if self.terms:
            return self.terms[-1].leadership_term_id
        return max(entry.leadership_term_id for entry in self.source.recording_log.entries)

    @property
    def recordings(self) -> list[RecordingDescriptor]:
        """What is to be copied: the log, then the snapshots."""
        return [self.log, *(descriptor for found in self.snapshots for descriptor in found.descriptors)]


def survey_source(
    source: Source,
    *,
    with_snapshots: bool = True,
    with_seed: bool = True,
    log: RecordingDescriptor | None = None,
    on_progress: Progress = lambda count: None,
) -> Survey:
    """Read a member's log and snapshots to their ends. Without snapshots, the one that the log begins with is kept.

    `log` is the part of the log that is to be taken, with a stop position; without it all of the log is.

    Raises:
        ClusterError: there is no log that can be read at all.
        OSError: the disk refused.
    """
    notes: list[str] = []
    if log is None:
        log = _with_stop_position(source, source.log_recording_id, notes) if source.terms else _empty_log(source)
    survey = Survey(source, log, notes=notes)
    if log.stream_id != LOG_STREAM_ID:
        survey.problems.append(
            f"log recording_id={log.recording_id} stream_id={log.stream_id} expected={LOG_STREAM_ID}"
        )
    _keep_terms(survey)
    if source.terms:
        reader = survey.log_file.reader()
        _read_log(survey, MessageReader(_counted(reader, survey.facts, on_progress)))
        _expect_end(survey.log_file, reader, survey.problems)
    survey.service_count = source.recording_log.latest_service_count() or max(1, survey.facts.service_count)
    entry_sets = source.recording_log.complete_snapshots(survey.service_count)
    if not with_seed:
        entry_sets = [entries for entries in entry_sets if not entries[0].is_seed]
    if not with_snapshots:
        entry_sets = [entries for entries in entry_sets if entries[0].is_seed]
        survey.notes.append("snapshots are left out, as requested: the services replay the whole log")
    _read_snapshots(survey, entry_sets, on_progress)
    _check_start(survey)
    _check_seed(survey, with_seed=with_seed)
    _check_facts(survey)
    _tell_left_out(survey)
    return survey


def _with_stop_position(source: Source, recording_id: int, notes: list[str]) -> RecordingDescriptor:
    """Return a recording's descriptor; one that was not stopped in order ends where its frames do.

    Of that end a start judges, too: it refuses a last frame that may be torn where no checksum tells.

    Raises:
        ArchiveError: it cannot be used.
    """
    descriptor = source.descriptor(recording_id)
    if descriptor.stop_position is not None:
        return descriptor
    log = LogFile.of(source.archive, descriptor)
    end = log.ending()
    if end.damage is not None:
        raise log.corruption(end)
    files = SegmentFiles(OsFileSystem(), source.archive, descriptor, sync_level=0)
    tail = find_tail(files, descriptor, torn_limit_bytes=0)
    notes.append(
        f"recording_id={recording_id} was not stopped in order: its frames end at position={tail.stop_position} "
        f"({tail.reason})"
    )
    return replace(descriptor, stop_position=tail.stop_position)


def _empty_log(source: Source) -> RecordingDescriptor:
    """Describe the log that begins with a seed: empty, a recording of its own, of the layout of the log before.

    Raises:
        ArchiveError: there is no log before.
    """
    logs = [
        entry.descriptor
        for entry in source.entries.values()
        if entry.descriptor is not None and entry.problem is None and entry.descriptor.stream_id == LOG_STREAM_ID
    ]
    if not logs:
        raise ArchiveError(
            f"no log in the catalog: that of {source.name} was seeded from a snapshot and not begun, and without the "
            "log before its layout is not known; start the Aeron cluster once more, so that it begins a term"
        )
    return replace(
        max(logs, key=lambda log: log.recording_id),
        recording_id=RecordingId(source.next_recording_id),
        start_position=0,
        stop_position=0,
    )


def _keep_terms(survey: Survey) -> None:
    """Keep the terms that the log reaches; the others are of a log that was cut back."""
    for term in survey.source.terms:
        if term.term_base_log_position <= survey.stop_position:
            survey.terms.append(term)
        else:
            survey.notes.append(
                f"leadership_term_id={term.leadership_term_id} is left out: it begins at position="
                f"{term.term_base_log_position}, after the end of the log"
            )
    for before, after in zip(survey.terms, survey.terms[1:], strict=False):
        if after.term_base_log_position < before.term_base_log_position:
            survey.problems.append(
                f"recording.log: leadership_term_id={after.leadership_term_id} begins at position="
                f"{after.term_base_log_position}, before leadership_term_id={before.leadership_term_id} does"
            )


def _counted(reader: FrameReader, facts: LogFacts, on_progress: Progress) -> Iterator[Frame]:
    told = reader.position
    for frame in reader:
        facts.frame_count += 1
        if facts.frame_count % _PROGRESS_FRAMES == 0:
            on_progress(reader.position - told)
            told = reader.position
        yield frame
    on_progress(reader.position - told)


def _expect_end(log: LogFile, reader: FrameReader, problems: list[str]) -> None:
    """Say so when a recording's frames end before its stop position; `reader` may have stopped before."""
    end = log.ending(reader.position) if reader.stop_reason is None else reader.ending()
    if end.kind != "stopped":
        fault = end.damage or "it is written while it is read"
        problems.append(f"recording_id={log.descriptor.recording_id} position={end.position}: {fault}")


def _read_log(survey: Survey, messages: MessageReader) -> None:
    """Read the log's entries."""
    facts, problems, payload = survey.facts, survey.problems, b""
    for message in messages:
        facts.message_count += 1
        payload = message.payload
        if payload[:6] == _SESSION_MESSAGE:
            if payload[_SESSION_ID_END] & _NEGATIVE:
                facts.service_message_count += 1
                facts.service_count = max(facts.service_count, (payload[_SESSION_ID_END] & ~_NEGATIVE) + 1)
            continue
        try:
            _read_entry(survey, message)
        except RemoteProtocolError as error:
            problems.append(f"log position={message.position}: {error}")
        if len(problems) >= PROBLEM_LIMIT:
            problems.append("there may be more")
            return
    facts.incomplete_message_count = messages.incomplete_message_count
    facts.last_timestamp = max(facts.last_timestamp, read_log_fields(payload).timestamp or 0)


def _read_entry(survey: Survey, message: RecordedMessage) -> None:
    """Take in an entry that is no session message.

    Raises:
        RemoteProtocolError: it is one that a log may not hold, or that contradicts itself.
    """
    facts = survey.facts
    event = decode_message(message.payload, registry=LOG_MESSAGES)
    timestamp = getattr(event, "timestamp", None)
    if timestamp is not None:
        facts.last_timestamp = timestamp
    match event:
        case NewLeadershipTermEvent():
            _expect_position(event.log_position, message)
            _read_new_term(survey, event)
            facts.code_digest = read_code_digest(message.payload)
        case ClusterActionRequest():
            _expect_position(event.log_position, message)
            if event.action in (ClusterAction.SUSPEND, ClusterAction.RESUME):
                facts.is_suspended = event.action is ClusterAction.SUSPEND
        case SessionOpenEvent():
            facts.session_count += 1
            facts.open_sessions.add(event.cluster_session_id)
        case SessionCloseEvent():
            facts.open_sessions.discard(event.cluster_session_id)
        case TimerEvent():
            facts.timer_event_count += 1
        case _:
            pass


def _read_new_term(survey: Survey, event: NewLeadershipTermEvent) -> None:
    facts, term = survey.facts, survey.source.recording_log.term_entry(event.leadership_term_id)
    time_unit = TimeUnit.MILLIS if event.time_unit is None else event.time_unit
    if time_unit not in facts.time_units:
        facts.time_units.append(time_unit)
    facts.app_version = event.app_version
    facts.terms_begun.append(event.leadership_term_id)
    facts.leader_member_ids.append(event.leader_member_id)
    base = None if term is None else term.term_base_log_position
    if base != event.term_base_log_position:
        raise RemoteProtocolError(
            f"leadership_term_id={event.leadership_term_id} term_base_log_position={event.term_base_log_position}, "
            f"recording.log has {base}"
        )


def _expect_position(log_position: int, message: RecordedMessage) -> None:
    if log_position != message.end_position:
        raise RemoteProtocolError(f"log_position={log_position} expected={message.end_position}: where the entry ends")


def _read_snapshots(survey: Survey, entry_sets: list[tuple[RecordingLogEntry, ...]], on_progress: Progress) -> None:
    """Read valid sets; one that cannot be used is left out, as a node leaves it out once it is invalidated."""
    for entries in entry_sets:
        where = f"snapshot at log_position={entries[0].log_position}"
        if not survey.log.start_position <= entries[0].log_position <= survey.stop_position:
            survey.notes.append(f"{where} is left out: the log does not hold this position")
            continue
        known_terms = {term.leadership_term_id for term in survey.terms}
        if entries[0].leadership_term_id not in known_terms and not entries[0].is_seed:
            survey.notes.append(f"{where} is left out: recording.log has no term {entries[0].leadership_term_id}")
            continue
        try:
            survey.snapshots.append(_read_set(survey, entries, on_progress))
        except ClusterError as error:
            # The rest of a member's message is what to do about a node's own directory.
            survey.notes.append(f"{where} is left out: {str(error).partition('; run `')[0]}")


def _read_set(survey: Survey, entries: tuple[RecordingLogEntry, ...], on_progress: Progress) -> SourceSnapshotSet:
    source, notes = survey.source, survey.notes
    descriptors = tuple(_with_stop_position(source, entry.recording_id, notes) for entry in entries)
    expected = [CONSENSUS_MODULE_SNAPSHOT_STREAM_ID, *[SERVICE_SNAPSHOT_STREAM_ID] * (len(entries) - 1)]
    for descriptor, stream_id in zip(descriptors, expected, strict=True):
        if descriptor.stream_id != stream_id:
            raise ArchiveError(
                f"stream_id={descriptor.stream_id} expected={stream_id}", recording_id=descriptor.recording_id
            )
        recording = LogFile.of(source.archive, descriptor)
        reader, problems = recording.reader(), list[str]()
        for _ in _counted(reader, LogFacts(), on_progress):
            pass
        _expect_end(recording, reader, problems)
        if problems:
            raise ArchiveError(problems[0], recording_id=descriptor.recording_id)
    files = _SnapshotFiles(source.archive, {descriptor.recording_id: descriptor for descriptor in descriptors})
    return SourceSnapshotSet(entries, descriptors, asyncio.run(read_snapshots(files, entries)))


class _SnapshotFiles:
    """Recordings of a directory, for `read_snapshots`."""

    def __init__(self, directory: Path, descriptors: dict[int, RecordingDescriptor]) -> None:
        self.directory = directory
        self._descriptors = descriptors

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What is known about a recording."""
        return self._descriptors[recording_id]

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording."""
        return LogFile.of(self.directory, self._descriptors[recording_id]).reader()


def _check_start(survey: Survey) -> None:
    """Whether there is something to start from."""
    start = survey.log.start_position
    if start and not survey.snapshots:
        survey.problems.append(
            f"the log begins at position={start}, earlier entries were purged, and there is no snapshot to start from"
        )


def _check_seed(survey: Survey, *, with_seed: bool) -> None:
    """Whether the state is there that the log begins with, if it was seeded with one."""
    source = survey.source
    if not source.is_seeded or survey.log.start_position > 0:
        return
    if not with_seed:
        survey.notes.append(
            "the state that the log was seeded with is left out, as requested: services begin without it"
        )
        return
    is_taken = any(found.entries[0].is_seed for found in survey.snapshots)
    is_valid = any(entry.is_seed and entry.is_valid for entry in source.recording_log.entries)
    if is_taken or (survey.snapshots and not is_valid):
        return
    reason = "cannot be used" if is_valid else "is marked invalid"
    survey.problems.append(
        "the log was seeded: it begins with the state of a snapshot (log_position=0 in recording.log), and that "
        f"snapshot {reason}; the log alone gives another state. Restore the snapshot from a copy, or take over another "
        "member's directory; `--without-seed` leaves that state out"
    )


def _check_facts(survey: Survey) -> None:
    facts = survey.facts
    if len(facts.time_units) > 1:
        names = [unit.name for unit in facts.time_units]
        survey.problems.append(f"the log counts time in several units: {names}; a cluster has one")
    if facts.incomplete_message_count:
        survey.notes.append(
            f"messages without all their fragments: {facts.incomplete_message_count}; no service receives them"
        )
    if facts.is_suspended:
        survey.notes.append("the log ends suspended: `trimaran resume` lets it go on")
    if survey.snapshots:
        newest = survey.snapshots[-1].state
        known: set[int] = {session.cluster_session_id for session in newest.module.sessions}
        survey.facts.open_sessions |= known - _closed_after(survey, known)
    if facts.open_sessions:
        survey.notes.append(
            f"client sessions still open: {len(facts.open_sessions)}; their clients speak Aeron and cannot come back, "
            "so they are closed by the session timeout"
        )


def _closed_after(survey: Survey, session_ids: Set[int]) -> Set[int]:
    """Which of these sessions of the newest snapshot the log closes behind it; those of a purged log were never opened.

    A session that the log both opened and closed is in no set that counts.
    """
    if survey.log.start_position == 0 and not survey.source.is_seeded:
        return session_ids - survey.facts.open_sessions
    position = survey.snapshots[-1].log_position
    reader = MessageReader(survey.log_file.reader(position))
    closed = set[int]()
    for message in reader:
        if message.payload[:6] != _SESSION_MESSAGE:
            event = decode_message(message.payload, registry=LOG_MESSAGES)
            if isinstance(event, SessionCloseEvent):
                closed.add(event.cluster_session_id)
    return closed


def _tell_left_out(survey: Survey) -> None:
    """Say which recordings, and which entries of the recording log, are not taken over."""
    kept = {descriptor.recording_id for descriptor in survey.recordings}
    others = sorted(survey.source.entries.keys() - kept)
    if others:
        shown = ", ".join(str(recording_id) for recording_id in islice(others, PROBLEM_LIMIT))
        more = len(others) - PROBLEM_LIMIT
        survey.notes.append(
            f"recordings that are no part of the log nor of its snapshots are left out: {shown}"
            + (f" and {more} more" if more > 0 else "")
        )
    entries = survey.source.recording_log.entries
    standby = sorted({entry.archive_endpoint for entry in entries if entry.entry_type is EntryType.STANDBY_SNAPSHOT})
    if standby:
        survey.notes.append(f"standby snapshots are left out: they lie in the archives of {', '.join(standby)}")
    invalid = sum(not entry.is_valid for entry in entries)
    if invalid:
        survey.notes.append(f"invalid entries of recording.log are left out: {invalid}")
