"""The commit position of a log, as far as a member's directory alone proves it.

The problem: an archive says what was *recorded*. A member that led, or followed a leader that is gone, may have
recorded a suffix that no majority ever had; the next election puts other entries in its place. Who reads an archive
from outside must not show that suffix, and the archive knows no commit position.

The idea: two things are written only after a majority had a part of the log, so a reader that finds them knows that it
is committed, whatever has become of the cluster since. A commit position never becomes untrue.

- *A snapshot in `recording.log`*: it was taken of what was delivered, so the log before its position is committed.
- *The `NewLeadershipTermEvent` of a term*: its leader appends it behind the base position of the term, and only once a
  majority has recorded the log up to there and marked the term. So the log before it is committed, even where that
  entry itself is not.

- *The end of the last term, of a member that stopped in order*: the cluster agreed on it. A member that died in the
  middle of the next election left such an end, too, but no stop position of its recording.

The term entries of `recording.log` prove nothing else: a winner writes its term there before anybody else has its log.
They tell where such an event would lie, so that only one frame for each term has to be looked at.

A claim names the leadership term as of which it holds. A log that was fitted to that term or a later one (the last
term in its `recording.log`) holds the committed entries up to the claim, for a member truncates its log before it marks
a term, and only leaders with all committed entries are elected. An older one may hold a suffix that was never
committed *below* the claim: recordings of members are identical up to what each of them knew to be committed, not up to
what is committed by now.

Source: Aeron `RecordingLog`; Raft paper §5.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...service_api.types import NULL_POSITION, NULL_VALUE
from ...service_api.wire.frame import TYPE_PADDING
from ...service_api.wire.log.fields import read_log_fields
from ...service_api.wire.log.layout import NEW_LEADERSHIP_TERM_EVENT
from ...service_api.wire.log.recording_log import (
    EntryType,
    RecordingLogEntry,
    read_slots,
)
from ..disk.file_system import ReadableFileSystem
from ..errors import ArchiveError
from ..files.reader import FrameReader
from ..format.descriptor import RecordingDescriptor


class CommitClaim(NamedTuple):
    """The log is committed up to `position`, and was so in this leadership term at the latest."""

    leadership_term_id: int
    position: int


class TermMark(NamedTuple):
    """A leadership term that a member has marked, and where in the log it begins."""

    leadership_term_id: int
    term_base_log_position: int
    end_position: int | None = None
    """Where it ended, if the member wrote that down."""


@dataclass(slots=True, frozen=True)
class MemberMarks:
    """What a member's `recording.log` says: its terms and the snapshots that count, each in ascending order."""

    log_recording_id: int
    """The recording of its archive that is the log; `NULL_VALUE` for a member that was never in a term."""
    terms: tuple[TermMark, ...] = ()
    snapshots: tuple[CommitClaim, ...] = ()

    @property
    def last_term_id(self) -> int:
        """The newest term that the member's log was fitted to; `NULL_VALUE` for none."""
        return self.terms[-1].leadership_term_id if self.terms else NULL_VALUE


def parse_marks(data: bytes) -> MemberMarks:
    """Take the marks out of the content of a `recording.log`; a slot that is cut off at the end is left out.

    Raises:
        RemoteProtocolError: it holds what cannot be a recording log; the entry is named.
    """
    return marks_of(slot for slot in read_slots(data) if isinstance(slot, RecordingLogEntry))


def marks_of(log_entries: Iterable[RecordingLogEntry]) -> MemberMarks:
    """Take the marks out of the valid entries of a recording log."""
    entries = [entry for entry in log_entries if entry.is_valid]
    terms = sorted(
        (entry for entry in entries if entry.entry_type is EntryType.TERM), key=lambda entry: entry.leadership_term_id
    )
    return MemberMarks(
        log_recording_id=terms[-1].recording_id if terms else NULL_VALUE,
        terms=tuple(
            TermMark(
                term.leadership_term_id,
                term.term_base_log_position,
                None if term.log_position == NULL_POSITION else term.log_position,
            )
            for term in terms
        ),
        snapshots=tuple(
            sorted(
                CommitClaim(entry.leadership_term_id, entry.log_position)
                for entry in entries
                if entry.entry_type is not EntryType.TERM
            )
        ),
    )


def prove_commit(
    archive: Path,
    descriptor: RecordingDescriptor,
    marks: MemberMarks,
    file_system: ReadableFileSystem | None = None,
) -> CommitClaim | None:
    """Find the furthest claim that a member's directory proves by itself; None where it proves nothing.

    `descriptor` is of the log in `archive`. Looks at one frame for each term, from the newest back to the first one
    that is proven.

    Raises:
        OSError: the disk refused.
    """
    claims = [*marks.snapshots[-1:], *_orderly_end(descriptor, marks)]
    for mark in reversed(marks.terms):
        if any(mark.term_base_log_position <= claim.position for claim in claims):
            break
        if _has_begun(archive, descriptor, mark, file_system):
            claims.append(CommitClaim(mark.leadership_term_id, mark.term_base_log_position))
            break
    return max(claims, key=lambda claim: claim.position, default=None)


def _orderly_end(descriptor: RecordingDescriptor, marks: MemberMarks) -> list[CommitClaim]:
    """The end of the last term, if there is one and the log's recording was stopped behind it."""
    stop_position = descriptor.stop_position
    if not marks.terms or stop_position is None:
        return []
    end_position = marks.terms[-1].end_position
    if end_position is None or end_position > stop_position:
        return []
    return [CommitClaim(marks.terms[-1].leadership_term_id, end_position)]


def _has_begun(
    archive: Path, descriptor: RecordingDescriptor, mark: TermMark, file_system: ReadableFileSystem | None
) -> bool:
    """Whether the recording holds the term's `NewLeadershipTermEvent` at its base, behind padding at most."""
    try:
        reader = FrameReader(archive, descriptor, start_position=mark.term_base_log_position, file_system=file_system)
    except ArchiveError:  # the log begins later by now
        return False
    frame = next((frame for frame in reader if frame.type != TYPE_PADDING), None)
    if frame is None:
        return False
    fields = read_log_fields(frame.payload)
    found = (fields.template_id, fields.leadership_term_id)
    return found == (NEW_LEADERSHIP_TERM_EVENT, mark.leadership_term_id)
