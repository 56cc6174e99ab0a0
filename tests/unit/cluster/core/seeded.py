"""Recording logs that begin with the state of a snapshot."""

from __future__ import annotations

from trimaran.cluster.core.log.recording_log import RecordedSnapshot, RecordingLog


def add_seed(log: RecordingLog, *, recording_id: int = 8, is_valid: bool = True) -> RecordingLog:
    """Have a log begin with a set of one service, in this recording and the next one. Gives the log."""
    for service_id in (0, -1):
        log.append_snapshot(
            RecordedSnapshot(
                recording_id=recording_id - service_id,
                leadership_term_id=0,
                term_base_log_position=0,
                log_position=0,
                timestamp=9,
                service_id=service_id,
            )
        )
    if not is_valid:
        log.invalidate_snapshots(0, 1)
    return log
