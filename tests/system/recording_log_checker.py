"""The rules of recording.log, which ClusterTool prints and a recovery plan is made from. Nothing of ours imported."""

from __future__ import annotations

import itertools
import struct
from typing import Final

from tests.system.directory_views import LOG_STREAM_ID, RecordingView, SnapshotEntry, TermEntry

TERM: Final = 0
SNAPSHOT: Final = 1
STANDBY_SNAPSHOT: Final = 2
REMOVED: Final = -1
INVALID_FLAG: Final = 1 << 31

_ENTRY: Final = struct.Struct("<qqqqqii")


def check_recording_log(
    data: bytes, recordings: list[RecordingView], faults: list[str]
) -> tuple[list[TermEntry], list[SnapshotEntry], set[int]]:
    """Read the entries: terms ascend and adjoin, only the last is open; sets of snapshots are whole and in order.

    A ClusterBackup of Aeron knows no time of a term and writes -1. Gives the valid entries, and the recordings that
    invalid ones name.
    """
    terms: list[TermEntry] = []
    snapshots: list[SnapshotEntry] = []
    invalid: list[SnapshotEntry] = []
    offset = entry_index = 0
    while offset < len(data):
        if offset + 64 > len(data):
            faults.append(f"recording.log: length={len(data)} ends within an entry")
            break
        recording_id, term_id, base, log_position, timestamp, service_id, kind = _ENTRY.unpack_from(data, offset)
        is_valid, plain_kind = kind >= 0 or kind == REMOVED, kind if kind == REMOVED else kind & (INVALID_FLAG - 1)
        what, length = f"recording.log entry_index={entry_index}", 64
        if plain_kind == STANDBY_SNAPSHOT:
            length = -(-(52 + int.from_bytes(data[offset + 48 : offset + 52], "little")) // 64) * 64
        if plain_kind not in (TERM, SNAPSHOT, STANDBY_SNAPSHOT, REMOVED):
            faults.append(f"{what}: type={kind}")
        elif plain_kind != REMOVED and (
            timestamp < (-1 if plain_kind == TERM else 0) or base < 0 or base % 32 or recording_id < 0
        ):
            faults.append(f"{what}: timestamp={timestamp} term_base_log_position={base} recording_id={recording_id}")
        elif plain_kind == TERM and is_valid:
            if service_id != -1:
                faults.append(f"{what}: a term with service_id={service_id}")
            terms.append(TermEntry(recording_id, term_id, base, None if log_position == -1 else log_position))
        elif plain_kind == SNAPSHOT:
            entry = SnapshotEntry(recording_id, term_id, base, log_position, timestamp, service_id, entry_index)
            (snapshots if is_valid else invalid).append(entry)
        offset += length
        entry_index += 1
    _check_terms(terms, recordings, faults)
    _check_sets(snapshots, terms, recordings, faults)
    return terms, snapshots, {entry.recording_id for entry in invalid}


def _check_terms(terms: list[TermEntry], recordings: list[RecordingView], faults: list[str]) -> None:
    for term, following in itertools.pairwise(terms):
        if following.leadership_term_id <= term.leadership_term_id:
            faults.append(f"recording.log: term {following.leadership_term_id} after {term.leadership_term_id}")
        if term.log_position != following.term_base_log_position:
            faults.append(f"recording.log: {term} does not end where {following} begins")
    logs = {recording.recording_id: recording for recording in recordings if recording.stream_id == LOG_STREAM_ID}
    if any(term.recording_id not in logs for term in terms):
        faults.append("recording.log: a term of a recording that is no log")
    elif terms and terms[-1].term_base_log_position > logs[terms[-1].recording_id].end_position:
        faults.append(f"recording.log: {terms[-1]} begins after the end of the log")


def _check_sets(
    snapshots: list[SnapshotEntry], terms: list[TermEntry], recordings: list[RecordingView], faults: list[str]
) -> None:
    """A set lies together: the services from the highest id down to 0, then the module, which makes it one."""
    known = {recording.recording_id: recording for recording in recordings}
    bases = {term.leadership_term_id: term.term_base_log_position for term in terms}
    sets: dict[tuple[int, int], list[SnapshotEntry]] = {}
    for entry in snapshots:
        sets.setdefault((entry.leadership_term_id, entry.log_position), []).append(entry)
    for entries in sets.values():
        what = f"recording.log: snapshot at {entries[0].log_position}"
        ids = [entry.service_id for entry in entries]
        if ids != list(range(len(ids) - 2, -2, -1)):  # a witness's is the consensus module's alone
            faults.append(f"{what}: services in the order {ids}, expected from the highest down to -1")
        if len({(entry.term_base_log_position, entry.timestamp) for entry in entries}) != 1:
            faults.append(f"{what}: entries differ in term base or timestamp")
        is_seed = entries[0].log_position == 0
        if bases.get(entries[0].leadership_term_id) != entries[0].term_base_log_position and not is_seed:
            faults.append(f"{what}: term {entries[0].leadership_term_id} has not that base")
        if entries[0].log_position <= entries[0].term_base_log_position and not is_seed:
            faults.append(f"{what}: lies before its term")
        for entry in entries:
            expected = 107 if entry.service_id == -1 else 106
            recording = known.get(entry.recording_id)
            if recording is None or recording.stream_id != expected or recording.stop_position is None:
                faults.append(f"{what}: recording_id={entry.recording_id} is no stopped recording of stream {expected}")
    positions = [entry.log_position for entry in snapshots]
    if positions != sorted(positions):
        faults.append(f"recording.log: snapshots in the order of positions {positions}")
