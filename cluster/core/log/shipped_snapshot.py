"""A snapshot that another member shipped, as entries of the recording log.

The terms up to the snapshot's are the other member's, since they are the cluster's; the recordings are this member's
own. The recording log is made again and takes the place of the old one in one step: a crash leaves the old log with all
that belongs to it, or the new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from ....service_api.errors import RemoteProtocolError
from ....service_api.wire.log.recording_log import CONSENSUS_MODULE_SERVICE_ID, RecordingLogEntry
from ...messages.shipping import LeadershipTermEntry
from .recording_log import RecordedSnapshot, RecordingLog


@dataclass(slots=True, frozen=True)
class ShippedTerm:
    """One leadership term: where it begins, and when it did, in cluster time."""

    leadership_term_id: int
    term_base_log_position: int
    timestamp: int

    @classmethod
    def of(cls, term: LeadershipTermEntry) -> Self:
        """Take over what another member says of a term."""
        return cls(term.leadership_term_id, term.term_base_log_position, term.timestamp)


def check_offer(terms: Sequence[ShippedTerm], snapshots: Sequence[RecordedSnapshot], *, service_count: int) -> int:
    """Check that these are one complete snapshot and every term up to it; give its log position.

    A log that begins with a snapshot has no term before it: its position is 0.

    Raises:
        RemoteProtocolError: they are not.
    """
    expected_ids = list(range(CONSENSUS_MODULE_SERVICE_ID, service_count))
    if sorted(snapshot.service_id for snapshot in snapshots) != expected_ids:
        actual = sorted(snapshot.service_id for snapshot in snapshots)
        raise RemoteProtocolError(f"snapshots of service_ids={actual} expected={expected_ids}")
    places = {(s.log_position, s.leadership_term_id, s.term_base_log_position, s.timestamp) for s in snapshots}
    if len(places) != 1:
        raise RemoteProtocolError(f"snapshots of different places: {sorted(places)}")
    [(log_position, leadership_term_id, term_base_log_position, _)] = places
    if log_position == 0 and not terms:
        return log_position
    term_ids = [term.leadership_term_id for term in terms]
    is_whole = bool(terms) and term_ids[0] >= 0 and term_ids[-1] == leadership_term_id
    if not is_whole or any(after != before + 1 for before, after in pairwise(term_ids)):
        raise RemoteProtocolError(f"terms={term_ids[:3]}..{term_ids[-1:]} expected all up to {leadership_term_id}")
    bases = [term.term_base_log_position for term in terms]
    if bases != sorted(bases) or bases[0] < 0 or not bases[-1] == term_base_log_position < log_position:
        raise RemoteProtocolError(
            f"term bases do not rise to the snapshot: last={bases[-1]} term_base_log_position="
            f"{term_base_log_position} log_position={log_position}"
        )
    return log_position


def make_recording_log(
    terms: Sequence[ShippedTerm],
    snapshots: Sequence[RecordedSnapshot],
    *,
    log_recording_id: int,
    seed: Sequence[RecordingLogEntry] = (),
) -> RecordingLog:
    """Make the recording log that a member goes on from: the terms, then the snapshots, the module's last.

    `seed` is what the member's log begins with, which it keeps as it is, valid or not.
    """
    recording_log = RecordingLog()
    for entry in seed:
        recording_log.append_snapshot(RecordedSnapshot.of(entry))
    if not all(entry.is_valid for entry in seed):
        recording_log.invalidate_snapshots(0, 1)
    for term in terms:
        recording_log.append_term(
            recording_id=log_recording_id,
            leadership_term_id=term.leadership_term_id,
            term_base_log_position=term.term_base_log_position,
            timestamp=term.timestamp,
        )
    append_shipped(recording_log, snapshots)
    return recording_log


def append_shipped(recording_log: RecordingLog, snapshots: Sequence[RecordedSnapshot]) -> None:
    """Add the snapshots of one place, the module's last: it completes the set."""
    for snapshot in sorted(snapshots, key=lambda snapshot: -snapshot.service_id):
        recording_log.append_snapshot(snapshot)
