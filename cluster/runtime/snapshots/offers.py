"""What a recording log says to those who copy from this member: its terms and snapshots, as messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ....service_api.types import RecordingId, TermId
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...messages.backup import SnapshotRecording
from ...messages.shipping import LeadershipTermEntry, LeadershipTerms

_TERMS_PER_DOCUMENT: Final = 256


def describe_snapshot(entries: Iterable[RecordingLogEntry]) -> tuple[SnapshotRecording, ...]:
    """Return the recordings of a snapshot."""
    return tuple(
        SnapshotRecording(
            recording_id=RecordingId(entry.recording_id),
            leadership_term_id=TermId(entry.leadership_term_id),
            term_base_log_position=entry.term_base_log_position,
            log_position=entry.log_position,
            timestamp=entry.timestamp,
            service_id=entry.service_id,
        )
        for entry in entries
    )


def describe_terms(entries: Iterable[RecordingLogEntry]) -> list[LeadershipTermEntry]:
    """Return the terms among these entries, in order."""
    return [
        LeadershipTermEntry(
            leadership_term_id=TermId(entry.leadership_term_id),
            term_base_log_position=entry.term_base_log_position,
            timestamp=entry.timestamp,
        )
        for entry in entries
        if entry.is_valid_term
    ]


def in_documents(terms: list[LeadershipTermEntry]) -> Iterator[bytes]:
    """Yield terms as documents that are short enough."""
    for begin in range(0, len(terms), _TERMS_PER_DOCUMENT):
        yield LeadershipTerms(terms=tuple(terms[begin : begin + _TERMS_PER_DOCUMENT])).encode()
