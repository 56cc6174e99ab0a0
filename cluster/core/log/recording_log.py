"""The recording log: which part of the log each leadership term wrote, and where the snapshots are.

Each entry is a slot in `recording.log`: a term with the positions where it begins and ends, or one snapshot
of one service. The log of a cluster is one recording; the terms divide it, and a failed term is an empty one,
so that the term ids are without gaps. A member finds its way back from here: newest complete snapshot, then
the log from there.

This module decides and never writes: every change is remembered as an `EntryWrite`, and the file layer
applies them in order. Entries keep the place they were first written to; a revived or closed entry is
rewritten there. `service_api.wire.log.recording_log` has the bytes.
Source: Aeron `RecordingLog`.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import asdict, dataclass, field, replace
from typing import Final, Self

from ....service_api.errors import ClusterError, RemoteProtocolError, invariant
from ....service_api.types import (
    CONSENSUS_MODULE_SNAPSHOT_STREAM_ID,
    NULL_POSITION,
    NULL_VALUE,
    SERVICE_SNAPSHOT_STREAM_ID,
)
from ....service_api.wire.log.recording_log import (
    CONSENSUS_MODULE_SERVICE_ID,
    MAX_ENTRY_LENGTH,
    EntryType,
    RecordingLogEntry,
    read_slots,
    slot_length,
)
from ...messages.backup import SnapshotRecording, StandbySnapshotRecording

_TYPE_ORDER: Final = {EntryType.TERM: 0, EntryType.STANDBY_SNAPSHOT: 1, EntryType.SNAPSHOT: 2}


@dataclass(slots=True, frozen=True)
class EntryWrite:
    """One change to the file: `data` belongs at `file_position`. Applied in order, then made durable."""

    entry_index: int
    file_position: int
    data: bytes


@dataclass(slots=True, frozen=True, kw_only=True)
class RecordedSnapshot:
    """The snapshot of one service, or of the consensus module (-1), and the recording that holds it."""

    recording_id: int
    leadership_term_id: int
    term_base_log_position: int
    log_position: int
    timestamp: int
    service_id: int

    @classmethod
    def of(cls, found: SnapshotRecording | StandbySnapshotRecording | RecordingLogEntry) -> Self:
        """Take over what another member, or a recording log, says of a snapshot."""
        return cls(
            recording_id=found.recording_id,
            leadership_term_id=found.leadership_term_id,
            term_base_log_position=found.term_base_log_position,
            log_position=found.log_position,
            timestamp=found.timestamp,
            service_id=found.service_id,
        )

    @property
    def stream_id(self) -> int:
        """The stream of its recording."""
        is_module = self.service_id == CONSENSUS_MODULE_SERVICE_ID
        return CONSENSUS_MODULE_SNAPSHOT_STREAM_ID if is_module else SERVICE_SNAPSHOT_STREAM_ID


@dataclass(slots=True, frozen=True)
class RecoveryPlan:
    """Where a member that starts finds its state: snapshots to load, then the log to replay."""

    last_term: RecordingLogEntry | None
    """The newest term; its recording is the log. None for a member that was never in a term."""
    snapshots: tuple[RecordingLogEntry, ...]
    """The newest complete set: the consensus module's, then each service's in order of id; may be empty."""

    @property
    def log_recording_id(self) -> int:
        """The recording that holds the log, `NULL_VALUE` if there is none yet."""
        return NULL_VALUE if self.last_term is None else self.last_term.recording_id

    @property
    def last_leadership_term_id(self) -> int:
        """The newest term of the log or of the snapshots, `NULL_VALUE` if there is none."""
        newest = self.last_term or (self.snapshots[0] if self.snapshots else None)
        return NULL_VALUE if newest is None else newest.leadership_term_id

    @property
    def replay_position(self) -> int:
        """Where the replay of the log begins: where the snapshots end."""
        return self.snapshots[0].log_position if self.snapshots else 0


@dataclass(slots=True)
class _Slots:
    """Every slot of the file: what the order in it was, and how long it is."""

    next_entry_index: int = 0
    end_position: int = 0
    writes: list[EntryWrite] = field(default_factory=list)


class RecordingLog:
    """The entries of a member's `recording.log`, and the rules by which they change.

    Bounded by what the cluster does: one entry per leadership term, one per service and snapshot.
    """

    __slots__ = ("_entries", "_slots", "_terms")

    def __init__(self) -> None:
        self._entries: list[RecordingLogEntry] = []  # sorted by _sort_key
        self._terms: dict[int, RecordingLogEntry] = {}  # valid terms by leadership_term_id
        self._slots = _Slots()

    def __repr__(self) -> str:
        last = self.last_term()
        term = None if last is None else last.leadership_term_id
        return f"<RecordingLog entries={len(self._entries)} last_term={term}>"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the content of a file.

        A last entry that is cut short, or zeros to the end of the file, were being written when the member
        crashed and are overwritten by the next entry.

        Raises:
            RemoteProtocolError: an entry that cannot be one, named by its index and position.
        """
        log = cls()
        slots = log._slots
        for slot in read_slots(data):
            if isinstance(slot, RecordingLogEntry):
                log._check_unique(slot)
                log._insert(slot)
                slots.end_position += slot.length
            else:
                slots.end_position += slot
            slots.next_entry_index += 1
        return log

    @property
    def entries(self) -> tuple[RecordingLogEntry, ...]:
        """Every entry that is not removed: by term, base, terms first, then position, module last."""
        return tuple(self._entries)

    @property
    def next_entry_index(self) -> int:
        """The index that the next new entry gets."""
        return self._slots.next_entry_index

    @property
    def end_position(self) -> int:
        """Where the next new entry goes in the file, in bytes."""
        return self._slots.end_position

    def take_writes(self) -> list[EntryWrite]:
        """Hand over the changes since the last call, in order."""
        writes, self._slots.writes = self._slots.writes, []
        return writes

    # Queries

    @property
    def is_seeded(self) -> bool:
        """Whether the log begins with the state of a snapshot, be that valid or not."""
        return any(entry.is_seed for entry in self._entries)

    def seed(self, service_count: int) -> tuple[RecordingLogEntry, ...]:
        """Find the set that the log begins with; empty if there is none, or none that is valid and complete."""
        return next((found for found in self.complete_snapshots(service_count) if found[0].is_seed), ())

    def last_term(self) -> RecordingLogEntry | None:
        """Find the newest valid term."""
        return self._terms[max(self._terms)] if self._terms else None

    @property
    def own_recording_ids(self) -> set[int]:
        """The recordings of this archive that entries name; a standby snapshot names those of another archive."""
        return {each.recording_id for each in self._entries if each.entry_type is not EntryType.STANDBY_SNAPSHOT}

    def term_entry(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Find the valid entry of a term."""
        return self._terms.get(leadership_term_id)

    def term_after(self, leadership_term_id: int) -> RecordingLogEntry | None:
        """Find the term that follows one; the first of all for a term before it.

        A log that Aeron has seeded has no terms before its seed's.
        """
        is_before = bool(self._terms) and leadership_term_id < min(self._terms)
        return self._terms.get(min(self._terms) if is_before else leadership_term_id + 1)

    def latest_snapshot(self, service_id: int) -> RecordingLogEntry | None:
        """Find the newest valid snapshot of one service, or of the consensus module (-1)."""
        for entry in reversed(self._entries):
            if entry.is_valid_snapshot and entry.service_id == service_id:
                return entry
        return None

    def latest_snapshots(self, service_count: int) -> tuple[RecordingLogEntry, ...]:
        """Find the newest valid set: the module's snapshot, then those of services 0 .. service_count - 1.

        A set counts only when it is complete; an incomplete one is passed over for an older one.
        """
        sets = self._snapshot_sets(EntryType.SNAPSHOT, service_count, archive_endpoint="")
        return sets[-1] if sets else ()

    def newest_set(self) -> tuple[RecordingLogEntry, ...]:
        """Find the newest valid set, of however many services: the module's snapshot first; empty if there is none."""
        service_count = self.latest_service_count()
        return () if service_count is None else self.latest_snapshots(service_count)

    def latest_service_count(self) -> int | None:
        """Count the services of the newest valid snapshot of the module, which completes a set; None if there is none.

        A set holds services 0 to n - 1.
        """
        module = self.latest_snapshot(CONSENSUS_MODULE_SERVICE_ID)
        if module is None:
            return None
        key = _set_key(module)
        services = {entry.service_id for entry in self._entries if entry.is_valid_snapshot and _set_key(entry) == key}
        return next(count for count in range(len(services) + 1) if count not in services)

    def complete_snapshots(self, service_count: int) -> list[tuple[RecordingLogEntry, ...]]:
        """Find every valid, complete set, oldest first; each is the module's entry and then the services'."""
        return self._snapshot_sets(EntryType.SNAPSHOT, service_count, archive_endpoint="")

    def latest_standby_snapshots(self, service_count: int) -> dict[str, tuple[RecordingLogEntry, ...]]:
        """Find the newest complete set that each standby archive has, by its endpoint."""
        endpoints = {e.archive_endpoint for e in self._entries if e.entry_type is EntryType.STANDBY_SNAPSHOT}
        found = {}
        for endpoint in sorted(endpoints):
            sets = self._snapshot_sets(EntryType.STANDBY_SNAPSHOT, service_count, archive_endpoint=endpoint)
            if sets:
                found[endpoint] = sets[-1]
        return found

    def recovery_plan(self, service_count: int) -> RecoveryPlan:
        """Decide from which snapshots and from which log a member that starts recovers."""
        return RecoveryPlan(last_term=self.last_term(), snapshots=self.latest_snapshots(service_count))

    # Changes

    def append_term(
        self, *, recording_id: int, leadership_term_id: int, term_base_log_position: int, timestamp: int
    ) -> RecordingLogEntry:
        """Add a term; the one before it ends where it begins, and it ends where a later one begins.

        Raises:
            InvariantViolation: the term is there already, the log is another recording, or the bases do not
            rise.
        """
        last = self.last_term()
        invariant(
            leadership_term_id not in self._terms,
            "a term is appended once",
            leadership_term_id=leadership_term_id,
        )
        invariant(
            last is None or last.recording_id == recording_id,
            "every term is in the same recording",
            recording_id=recording_id,
            expected=None if last is None else last.recording_id,
        )
        before = self._neighbour(leadership_term_id, before=True)
        after = self._neighbour(leadership_term_id, before=False)
        invariant(
            (before is None or before.term_base_log_position <= term_base_log_position)
            and (after is None or term_base_log_position <= after.term_base_log_position),
            "a term begins where an earlier one does or later",
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            before=before,
            after=after,
        )
        if before is not None and before.log_position != term_base_log_position:
            self._rewrite(before, replace(before, log_position=term_base_log_position))
        return self._append(
            recording_id=recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=NULL_POSITION if after is None else after.term_base_log_position,
            timestamp=timestamp,
        )

    def commit_log_position(self, leadership_term_id: int, log_position: int) -> None:
        """Set where a term ends; `NULL_POSITION` opens it again.

        Raises:
            InvariantViolation: there is no such term, or it begins later.
        """
        entry = self._terms.get(leadership_term_id)
        invariant(entry is not None, "the term is in the recording log", leadership_term_id=leadership_term_id)
        assert entry is not None
        invariant(
            log_position == NULL_POSITION or log_position >= entry.term_base_log_position,
            "a term ends where it begins or later",
            leadership_term_id=leadership_term_id,
            log_position=log_position,
            term_base_log_position=entry.term_base_log_position,
        )
        if entry.log_position != log_position:
            self._rewrite(entry, replace(entry, log_position=log_position))

    def ensure_coherent(
        self,
        *,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
        initial_leadership_term_id: int = 0,
        initial_term_base_log_position: int = 0,
    ) -> None:
        """Make the log have a term and all before it, with the failed ones as empty terms.

        `log_position` is where the term ends, `NULL_POSITION` if it is open. The initial term is where an
        empty log begins. A term that is there already keeps its base and is closed if a `log_position` is
        given.

        Raises:
            InvariantViolation: as `append_term`, or the term is there with another base.
        """
        entry, last = self._terms.get(leadership_term_id), self.last_term()
        if entry is None:
            if last is None:
                first, base = initial_leadership_term_id, initial_term_base_log_position
            else:
                first, base = last.leadership_term_id + 1, term_base_log_position
            for failed_term_id in range(first, leadership_term_id):
                self.append_term(
                    recording_id=recording_id,
                    leadership_term_id=failed_term_id,
                    term_base_log_position=base,
                    timestamp=timestamp,
                )
                self.commit_log_position(failed_term_id, base)
            entry = self.append_term(
                recording_id=recording_id,
                leadership_term_id=leadership_term_id,
                term_base_log_position=term_base_log_position,
                timestamp=timestamp,
            )
        invariant(
            entry.term_base_log_position == term_base_log_position,
            "a term keeps its base position",
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            expected=entry.term_base_log_position,
        )
        if log_position != NULL_POSITION:
            self.commit_log_position(leadership_term_id, log_position)

    def truncate_terms(self, log_position: int) -> None:
        """Follow a log that was cut back to `log_position`: terms that began there or later are removed.

        The term that is now the last is open again: where it ends is for the next term to say.
        """
        for term_id in sorted(self._terms, reverse=True):
            entry = self._terms[term_id]
            if entry.term_base_log_position < log_position:
                if entry.log_position != NULL_POSITION:
                    self._rewrite(entry, replace(entry, log_position=NULL_POSITION))
                return
            self.remove_entry(entry)

    def append_snapshot(self, snapshot: RecordedSnapshot) -> RecordingLogEntry:
        """Add the snapshot of one service, or of the consensus module (-1).

        The module's comes last: it completes the set. A snapshot taken again where an invalid one was takes
        its place.
        """
        for entry in self._entries:
            if entry.is_valid or entry.entry_type is not EntryType.SNAPSHOT:
                continue
            known = RecordedSnapshot.of(entry)
            if snapshot == replace(known, recording_id=snapshot.recording_id, timestamp=snapshot.timestamp):
                return self._rewrite(entry, replace(entry, **asdict(snapshot), is_valid=True))
        return self._append(**asdict(snapshot), entry_type=EntryType.SNAPSHOT)

    def append_standby_snapshot(self, snapshot: RecordedSnapshot, *, archive_endpoint: str) -> RecordingLogEntry:
        """Add a snapshot that a standby took and has in its archive.

        It takes the place of an older one from there, so that the log does not grow with each.

        Raises:
            ClusterError: the endpoint is not ASCII, or too long for an entry.
        """
        length = slot_length(EntryType.STANDBY_SNAPSHOT, len(archive_endpoint))
        if length > MAX_ENTRY_LENGTH or not archive_endpoint.isascii():
            raise ClusterError(f"archive_endpoint={archive_endpoint!r} expected ASCII within {MAX_ENTRY_LENGTH} bytes")
        source = (EntryType.STANDBY_SNAPSHOT, snapshot.service_id, archive_endpoint)
        for old in self._entries:
            is_same = (old.entry_type, old.service_id, old.archive_endpoint) == source
            if is_same and old.log_position <= snapshot.log_position:
                return self._rewrite(old, replace(old, **asdict(snapshot), is_valid=True))
        return self._append(
            **asdict(snapshot), entry_type=EntryType.STANDBY_SNAPSHOT, archive_endpoint=archive_endpoint
        )

    def invalidate_latest_snapshot(self) -> bool:
        """Mark the newest set of snapshots invalid, so that the next start uses an older one; False if none.

        Raises:
            ClusterError: the term of the snapshot is not in the log.
        """
        modules = [
            e
            for e in self._entries
            if e.is_valid and e.entry_type is not EntryType.TERM and e.service_id == CONSENSUS_MODULE_SERVICE_ID
        ]
        if not modules:
            return False
        newest = max(modules, key=lambda e: (e.leadership_term_id, e.log_position, _TYPE_ORDER[e.entry_type]))
        if newest.leadership_term_id not in self._terms:
            raise ClusterError(f"no term for snapshot: leadership_term_id={newest.leadership_term_id}")
        for entry in [e for e in self._entries if e.is_valid and _set_key(e) == _set_key(newest)]:
            self._rewrite(entry, replace(entry, is_valid=False))
        return True

    def invalidate_snapshots(self, begin_position: int, end_position: int) -> bool:
        """Mark the snapshots from one log position up to before another one invalid; True if there were any."""
        found = [e for e in self._entries if e.is_valid_snapshot and begin_position <= e.log_position < end_position]
        for entry in found:
            self._rewrite(entry, replace(entry, is_valid=False))
        return bool(found)

    def remove_incomplete_snapshots(self, service_count: int) -> bool:
        """Take out valid snapshots of sets that were never completed; True if there were any."""
        complete = {
            id(entry)
            for found in self._snapshot_sets(EntryType.SNAPSHOT, service_count, archive_endpoint="")
            for entry in found
        }
        incomplete = [entry for entry in self._entries if entry.is_valid_snapshot and id(entry) not in complete]
        for entry in incomplete:
            self.remove_entry(entry)
        return bool(incomplete)

    def remove_entry(self, entry: RecordingLogEntry) -> None:
        """Take an entry out of the log; its slot stays, marked as removed."""
        invariant(
            entry.entry_type is not EntryType.STANDBY_SNAPSHOT,
            "a removed slot has the shortest length",  # the file no longer tells how long it was
            entry_index=entry.entry_index,
        )
        self._discard(entry)
        data = entry.encode(is_removed=True)
        self._slots.writes.append(EntryWrite(entry.entry_index, entry.file_position, data))

    # Helpers

    def _append(
        self,
        *,
        recording_id: int,
        leadership_term_id: int,
        term_base_log_position: int,
        log_position: int,
        timestamp: int,
        service_id: int = CONSENSUS_MODULE_SERVICE_ID,
        entry_type: EntryType = EntryType.TERM,
        archive_endpoint: str = "",
    ) -> RecordingLogEntry:
        """Add an entry at the end of the file."""
        slots = self._slots
        entry = RecordingLogEntry(
            recording_id=recording_id,
            leadership_term_id=leadership_term_id,
            term_base_log_position=term_base_log_position,
            log_position=log_position,
            timestamp=timestamp,
            service_id=service_id,
            entry_type=entry_type,
            archive_endpoint=archive_endpoint,
            entry_index=slots.next_entry_index,
            file_position=slots.end_position,
        )
        slots.next_entry_index += 1
        slots.end_position += entry.length
        self._insert(entry)
        slots.writes.append(EntryWrite(entry.entry_index, entry.file_position, entry.encode()))
        return entry

    def _rewrite(self, old: RecordingLogEntry, new: RecordingLogEntry) -> RecordingLogEntry:
        self._discard(old)
        self._insert(new)
        self._slots.writes.append(EntryWrite(new.entry_index, new.file_position, new.encode()))
        return new

    def _insert(self, entry: RecordingLogEntry) -> None:
        insort(self._entries, entry, key=_sort_key)
        if entry.is_valid_term:
            self._terms[entry.leadership_term_id] = entry

    def _discard(self, entry: RecordingLogEntry) -> None:
        self._entries.remove(entry)
        if entry.is_valid_term:
            del self._terms[entry.leadership_term_id]

    def _check_unique(self, entry: RecordingLogEntry) -> None:
        other = self._terms.get(entry.leadership_term_id) if entry.is_valid_term else None
        if other is not None:
            indexes = f"entry_index={entry.entry_index} and {other.entry_index}"
            raise RemoteProtocolError(f"two valid terms: leadership_term_id={entry.leadership_term_id} {indexes}")

    def _neighbour(self, leadership_term_id: int, *, before: bool) -> RecordingLogEntry | None:
        """Find the nearest valid term before, or after, a term that is not there."""
        if before:
            nearest = max((t for t in self._terms if t < leadership_term_id), default=None)
        else:
            nearest = min((t for t in self._terms if t > leadership_term_id), default=None)
        return None if nearest is None else self._terms[nearest]

    def _snapshot_sets(
        self, entry_type: EntryType, service_count: int, *, archive_endpoint: str
    ) -> list[tuple[RecordingLogEntry, ...]]:
        """Find the complete sets, oldest first; each is the module's entry and then the services'."""
        groups: dict[tuple[object, ...], dict[int, RecordingLogEntry]] = {}
        for entry in self._entries:
            is_candidate = entry.is_valid and entry.entry_type is entry_type
            if is_candidate and entry.archive_endpoint == archive_endpoint:
                groups.setdefault(_set_key(entry), {})[entry.service_id] = entry
        wanted = range(CONSENSUS_MODULE_SERVICE_ID, service_count)
        return [
            tuple(group[service_id] for service_id in wanted)
            for group in groups.values()
            if all(service_id in group for service_id in wanted)
        ]


def _sort_key(entry: RecordingLogEntry) -> tuple[int, ...]:
    """Order entries as they became true: terms as in the file, snapshots by position, module last."""
    if entry.entry_type is EntryType.TERM:
        tie = (entry.entry_index, 0)
    else:
        tie = (entry.log_position, -entry.service_id)
    return (
        entry.leadership_term_id,
        entry.term_base_log_position,
        _TYPE_ORDER[entry.entry_type],
        *tie,
        entry.entry_index,
    )


def _set_key(entry: RecordingLogEntry) -> tuple[object, ...]:
    """What the entries of one set of snapshots have in common."""
    return (
        entry.entry_type,
        entry.leadership_term_id,
        entry.term_base_log_position,
        entry.log_position,
        entry.archive_endpoint,
    )
