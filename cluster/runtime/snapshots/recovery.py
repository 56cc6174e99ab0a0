"""Recovers a starting member from its snapshots: reads the newest complete set, and removes incomplete ones.

The module's snapshot is small and read as a whole; of the service's only what the container wrote, the rest is for the
service to load. Whatever is not valid is refused before the node takes part in anything, with what to do about
it: the operator marks that set invalid, and the next start uses the one before it, with a longer replay.

A seed is a set at position 0: the log begins with its state, which is of a log before. Its markers name the place
there, and as in Aeron the entry says where it counts here. A log that begins with a seed is never replayed without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import aiofiles.os
import structlog

from ....archive import Archive, ArchiveError, Recording, RecordingDescriptor, RecordingState
from ....archive.errors import REFILL_ADVICE
from ....archive.files.reader import FrameReader
from ....service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ....service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    LOG_STREAM_ID,
    SERVICE_SNAPSHOT_STREAM_ID,
    ClusterSessionId,
    TimeUnit,
)
from ....service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header
from ....service_api.wire.log.code_digest import (
    UNKNOWN_CODE,
    CodedTermEvent,
    read_code_digest,
    with_code_digest,
)
from ....service_api.wire.log.messages import LOG_MESSAGES, NewLeadershipTermEvent
from ....service_api.wire.log.recording_log import EntryType, RecordingLogEntry
from ....service_api.wire.log.snapshot_marker import SnapshotMark, SnapshotMarker
from ....service_api.wire.message import Message, decode_message
from ....service_api.wire.session import SessionMessageHeader
from ...core.log.recording_log import RecordingLog
from ...core.snapshots.snapshot import ModuleSnapshot, decode_module_snapshot, expect_marker
from ...core.vocabulary.configuration import Configuration, find_configurations
from ...core.vocabulary.roster import Roster
from ...messages.replies import KeptReply, SessionRequests
from ...messages.snapshot import (
    CONSENSUS_MODULE_SNAPSHOT_MESSAGES,
    SERVICE_SNAPSHOT_MESSAGES,
    SERVICE_SNAPSHOT_TYPE_ID,
    ClientSessionSnapshot,
    ModuleMessage,
    PendingMessage,
)
from ...service.replies import SessionReplies, decode_replies
from ...service.service_code import CodeGuard
from ..files.recording_log_file import RecordingLogFile
from .snapshot_recording import SnapshotReader

_SNAPSHOT_STREAMS = (SERVICE_SNAPSHOT_STREAM_ID, CONSENSUS_MODULE_SNAPSHOT_STREAM_ID)

_FIRST_ENTRY_BYTES = 256
"""Room for the frame of a NewLeadershipTermEvent."""

logger = structlog.get_logger()


@dataclass(slots=True, frozen=True)
class Recovered:
    """The state that a member starts from."""

    log_position: int
    timestamp: int
    module: ModuleSnapshot
    clients: tuple[ClientSessionSnapshot, ...]
    """The open sessions, as the services' container knew them."""
    replies: Mapping[ClusterSessionId, SessionReplies]
    """To requests of theirs, which they have not acknowledged."""
    images: tuple[SnapshotReader, ...]
    """What each service wrote."""


class SnapshotSource(Protocol):
    """An archive, or just its directory, that snapshots are read from."""

    @property
    def directory(self) -> Path:
        """The directory of the archive."""

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What the catalog knows about a recording; an `ArchiveError` if it does not."""

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording that was stopped; an `ArchiveError` if it cannot be read."""


async def load_snapshots(
    archive: Archive, recording_log_file: RecordingLogFile, log: Recording, *, service_count: int
) -> Recovered | None:
    """Read the newest complete set of snapshots; None if there is none.

    Raises:
        ConfigurationError: it is a set of another number of services.
        ClusterError: it cannot be used; the error says why and what to do.
    """
    _check_service_count(archive, recording_log_file.recording_log, service_count)
    snapshots = recording_log_file.recording_log.recovery_plan(service_count).snapshots
    start_position = log.descriptor.start_position
    if not snapshots:
        if start_position > 0:
            raise ClusterError(
                f"the log begins at start_position={start_position} and there is no valid snapshot to start from: "
                f"directory={archive.directory}; {REFILL_ADVICE}"
            )
        if recording_log_file.recording_log.is_seeded:
            raise ClusterError(
                "the log begins with the state of a snapshot, and no valid snapshot has it: log_position=0 "
                f"directory={archive.directory}; restore this member's directory from a copy: the log alone gives "
                "another state"
            )
        return None
    position = snapshots[0].log_position
    if position < start_position:
        raise ClusterError(
            f"the log begins behind the position of the newest snapshot: log_position={position} "
            f"start_position={start_position} directory={archive.directory}; "
            f"restore this member's directory from a copy, or {REFILL_ADVICE}"
        )
    return await read_snapshots(archive, snapshots)


async def read_snapshots(archive: SnapshotSource, entries: Sequence[RecordingLogEntry]) -> Recovered:
    """Read a complete set, the module's entry first, up to where the service's own state begins.

    A witness's set is the module's entry alone.

    Raises:
        ClusterError: it cannot be used; the error says why and what to do.
    """
    module_entry, *service_entries = entries
    module = await _load_module(archive, module_entry)
    if not service_entries:
        module = replace(module, timers=(), trackers=())  # of a witness, whose snapshot may be another member's
        return Recovered(module_entry.log_position, module_entry.timestamp, module, (), {}, ())
    if strange := [state.service_id for state in module.trackers if state.service_id >= len(service_entries)]:
        raise unusable_snapshot(
            archive, module_entry, f"it holds messages of services that it does not name: {strange}"
        )
    images = tuple(_open_reader(archive, entry) for entry in service_entries)
    parts = [
        await _load_container(image, _place(entry, module.marker), module.time_unit)
        for image, entry in zip(images, service_entries, strict=True)
    ]
    clients, replies = parts[0]
    for entry, (others, _) in zip(service_entries, parts, strict=True):
        if others != clients:
            raise unusable_snapshot(archive, entry, "its client sessions are not those of service 0")
    if module_entry.is_seed:
        module = _begin_log_with(module)
    return Recovered(module_entry.log_position, module_entry.timestamp, module, clients, replies, images)


def _begin_log_with(module: ModuleSnapshot) -> ModuleSnapshot:
    """The module's part of a seed: its sessions were opened before the log, whose positions begin at 0."""
    return replace(
        module,
        log_position=0,
        sessions=tuple(session.model_copy(update={"opened_log_position": 0}) for session in module.sessions),
    )


def _place(entry: RecordingLogEntry, marker: SnapshotMarker) -> tuple[int, int]:
    """Where the markers of an entry's set say that it was taken: at one place, which is the entry's but for a seed."""
    return (marker.log_position if entry.is_seed else entry.log_position), entry.leadership_term_id


def _check_service_count(archive: SnapshotSource, recording_log: RecordingLog, service_count: int) -> None:
    """Refuse to start with services that are not those of the newest snapshot: their ids would mean others."""
    found = recording_log.latest_service_count()
    if not found or found == service_count:
        return
    raise ConfigurationError(
        f"the newest snapshot has another number of services: services={found} expected={service_count}; start "
        f"with `service` naming {found}, in the same order; or run `trimaran snapshot invalidate "
        f"{archive.directory.parent}` on every member while none runs, until no snapshot of {found} is left: then the "
        f"log is replayed to the {service_count} services from its begin"
    )


def find_newest_term_time_unit(
    archive: Archive,
    recording_log: RecordingLog,
    log: RecordingDescriptor,
    recovered: Recovered | None,
    *,
    append_position: int,
) -> TimeUnit | None:
    """Find the unit that the first entry of the newest term names. None if the log has no such entry here.

    None as well if the snapshot was taken in that term: it says the unit, and what lies before it is not read.

    Blocks, for a read of a few frames at most a term.

    Raises:
        ArchiveError: the log cannot be read.
    """
    terms = [entry for entry in recording_log.entries if entry.is_valid_term]
    for term in reversed(terms):
        if term.term_base_log_position < max(log.start_position, _position_of(recovered)):
            return None
        event = _read_first_entry(archive, term, log.recording_id, append_position=append_position)
        if event is not None:
            return TimeUnit.MILLIS if event.time_unit is None else event.time_unit
    return None


def check_replayed_code(
    archive: Archive,
    recording_log: RecordingLog,
    log: RecordingDescriptor,
    recovered: Recovered | None,
    code: CodeGuard,
    *,
    append_position: int,
) -> None:
    """Refuse a start that would replay entries of terms whose leaders ran other code. Blocks as above.

    Raises:
        ConfigurationError: there are such entries; it names the first.
        ArchiveError: the log cannot be read.
    """
    start_position = _position_of(recovered)
    terms = [entry for entry in recording_log.entries if entry.is_valid_term]
    base_positions = [*(term.term_base_log_position for term in terms), append_position]
    for term, (base_position, end_position) in zip(terms, pairwise(base_positions), strict=True):
        if end_position <= max(base_position, start_position):
            continue  # all of it is in the snapshot, or it has no entries here
        if base_position >= max(log.start_position, start_position):
            event = _read_first_entry(archive, term, log.recording_id, append_position=append_position)
            if event is not None:
                code.check(event, event.code_digest if isinstance(event, CodedTermEvent) else UNKNOWN_CODE)
        elif recovered is not None:
            code.check(recovered.module.marker, recovered.module.term_code_digest)


def _position_of(recovered: Recovered | None) -> int:
    """The position from which a start reads the log: before it the log may be damaged."""
    return 0 if recovered is None else recovered.log_position


def _read_first_entry(
    archive: Archive, term: RecordingLogEntry, recording_id: int, *, append_position: int
) -> NewLeadershipTermEvent | None:
    """Read what a term begins with, after padding; None if the log ends before it, or it is another message."""
    position = term.term_base_log_position
    while position < append_position:
        data = archive.read(recording_id, position, _FIRST_ENTRY_BYTES, stop_position=append_position)
        header = unpack_header(data)
        if header.type != TYPE_PADDING:
            encoded = data[HEADER_LENGTH : header.frame_length]
            event = decode_message(encoded, registry=LOG_MESSAGES)
            if isinstance(event, NewLeadershipTermEvent):
                return with_code_digest(event, read_code_digest(encoded))
            return None
        position += header.aligned_length
    return None


async def remove_leftovers(
    archive: Archive, recording_log_file: RecordingLogFile, log: Recording, *, service_count: int
) -> None:
    """Remove what a crash or a failure left: snapshots that were never complete or that are not kept, other logs."""
    recording_log = recording_log_file.recording_log
    if recording_log.remove_incomplete_snapshots(service_count):
        await aiofiles.os.wrap(recording_log_file.persist)()
    kept = {entry.recording_id for entry in recording_log.entries if entry.entry_type is EntryType.SNAPSHOT}
    kept.add(log.recording_id)
    # Of a log that was seeded the log before is nobody's leftover: what it holds is in no other place.
    streams = _SNAPSHOT_STREAMS if recording_log.is_seeded else (*_SNAPSHOT_STREAMS, LOG_STREAM_ID)
    for descriptor in archive.descriptors():
        is_there = descriptor.state is RecordingState.VALID
        is_ours = descriptor.stream_id in streams
        if is_there and is_ours and descriptor.recording_id not in kept:
            await archive.purge_recording(descriptor.recording_id)


async def _load_module(archive: SnapshotSource, entry: RecordingLogEntry) -> ModuleSnapshot:
    reader = _open_reader(archive, entry)
    messages: list[ModuleMessage] = []
    while (message := await reader.decode(_decode_module_message)) is not None:
        messages.append(message)
        if isinstance(message, SnapshotMarker) and message.mark is SnapshotMark.END:
            break  # what follows is the state of an extension, which there is none of here
    try:
        snapshot = decode_module_snapshot(messages)
        for message in messages:
            if isinstance(message, SnapshotMarker):
                _check_marker(message, _place(entry, snapshot.marker), snapshot.time_unit)
    except RemoteProtocolError as error:
        raise unusable_snapshot(archive, entry, str(error)) from error
    return snapshot


async def _load_container(
    reader: SnapshotReader, place: tuple[int, int], time_unit: TimeUnit
) -> tuple[tuple[ClientSessionSnapshot, ...], dict[ClusterSessionId, SessionReplies]]:
    """Read what the container wrote, up to and with its last marker."""
    clients: list[ClientSessionSnapshot] = []
    replies: list[Message] = []
    try:
        marker = expect_marker(
            await reader.decode(_decode_service_message), SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.BEGIN
        )
        _check_marker(marker, place, time_unit)
        while isinstance(message := await reader.decode(_decode_service_message), ClientSessionSnapshot):
            clients.append(message)
        while isinstance(message, SessionRequests | KeptReply):
            replies.append(message)
            message = await reader.decode(_decode_service_message)
        _check_marker(expect_marker(message, SERVICE_SNAPSHOT_TYPE_ID, SnapshotMark.END), place, time_unit)
        return tuple(clients), decode_replies(replies)
    except RemoteProtocolError as error:
        raise reader.unusable(str(error)) from error


def _check_marker(marker: SnapshotMarker, expected: tuple[int, int], time_unit: TimeUnit) -> None:
    actual = (marker.log_position, marker.leadership_term_id)
    if actual != expected:
        raise RemoteProtocolError(f"(log_position, leadership_term_id)={actual} expected={expected}")
    actual_unit = TimeUnit.MILLIS if marker.time_unit is None else marker.time_unit
    if actual_unit is not time_unit:
        raise RemoteProtocolError(f"time_unit={actual_unit.name} expected={time_unit.name}")


def _open_reader(archive: SnapshotSource, entry: RecordingLogEntry) -> SnapshotReader:
    stream_id = CONSENSUS_MODULE_SNAPSHOT_STREAM_ID if entry.service_id < 0 else SERVICE_SNAPSHOT_STREAM_ID
    try:
        descriptor = archive.descriptor(entry.recording_id)
        if descriptor.stream_id != stream_id:
            raise RemoteProtocolError(f"stream_id={descriptor.stream_id} expected={stream_id}")
        frames = archive.frames(entry.recording_id)
    except ClusterError as error:
        raise unusable_snapshot(archive, entry, str(error)) from error
    return SnapshotReader(frames, lambda reason: unusable_snapshot(archive, entry, reason))


def unusable_snapshot(archive: SnapshotSource, entry: RecordingLogEntry, reason: str) -> ClusterError:
    """Make the error of a snapshot that is not loaded: which, why, and what to do."""
    directory = archive.directory.parent
    return ClusterError(
        f"snapshot cannot be used: log_position={entry.log_position} service_id={entry.service_id} "
        f"recording_id={entry.recording_id}: {reason}; run `trimaran snapshot invalidate {directory}`, then start "
        "again: the snapshot before it is used, or the whole log"
    )


def _decode_module_message(data: bytes) -> ModuleMessage:
    message = decode_message(data, registry=CONSENSUS_MODULE_SNAPSHOT_MESSAGES)
    if isinstance(message, SnapshotMarker):
        return with_code_digest(message, read_code_digest(data))
    return PendingMessage.decode(data) if isinstance(message, SessionMessageHeader) else message


def _decode_service_message(data: bytes) -> Message:
    return decode_message(data, registry=SERVICE_SNAPSHOT_MESSAGES)


@dataclass(slots=True)
class LogSearch:
    """What was found in the log that a start replays: who the members are, and where it could not be read."""

    position: int = 0
    """How far the log was read."""
    end_position: int = 0
    found: list[Configuration] = field(default_factory=list)
    """In the order of the log."""
    failure: ArchiveError | None = None
    """Why it was not read to its end: what is damaged at `position` was not mended."""

    def note(self, frames: bytes) -> None:
        """Note the frames that follow.

        Raises:
            RemoteProtocolError: a change that this version cannot read; with another version of it this member can go
                on.
        """
        self.found.extend(find_configurations(frames, self.position))
        self.position += len(frames)


def adopt_members(search: LogSearch, roster: Roster) -> None:
    """Go by the changes of the members that the log has.

    Where a part of it could not be read this member can deliver nothing beyond, and does not stand.

    Raises:
        ArchiveError: a part could not be read, and this is the only voter, so that nobody else could lead.
    """
    for configuration in search.found:
        roster.history.append(configuration)
    if search.failure is not None:
        if roster.is_alone:
            raise search.failure
        logger.error("members.search_ended", log_position=search.position, reason=str(search.failure))
        roster.history.note_unread(search.position, search.end_position)
        return
    roster.refresh()
    logger.debug("members.found", members=roster.current.describe())
