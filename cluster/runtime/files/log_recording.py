"""Finds the recording of a member's log in its archive when the member starts, or begins one."""

from __future__ import annotations

from typing import Final

import structlog

from ....archive import Archive, Recording, RecordingDescriptor
from ....archive.log.log_file import choose_log, is_log
from ....service_api.types import LOG_STREAM_ID, NULL_VALUE
from ...core.log.recording_log import RecordingLog

_CHANNEL: Final = "trimaran:tcp?alias=log"

logger = structlog.get_logger()


async def open_log(archive: Archive, recording_log: RecordingLog) -> Recording:
    """Open the log recording for appending.

    Or start it; drop terms from the recording log that the log does not reach. A log that begins above 0 and is in no
    recording log was to follow a snapshot that was never complete here: it is a leftover. A recording log that was
    seeded has a snapshot and no term: then a log that holds anything is the one before.
    """
    last = recording_log.last_term()
    known = [descriptor for descriptor in archive.descriptors() if is_log(descriptor)]
    if last is not None:
        recording = await archive.extend_recording(last.recording_id, session_id=NULL_VALUE)
    elif (
        begun := choose_log(found for found in known if _is_begun(found, is_seeded=recording_log.is_seeded))
    ) is not None:
        recording = await archive.extend_recording(begun.recording_id, session_id=NULL_VALUE)
    else:
        return await archive.start_recording(
            stream_id=LOG_STREAM_ID, session_id=NULL_VALUE, channel=_CHANNEL, source_identity="trimaran:tcp"
        )
    if last is not None and last.term_base_log_position > recording.append_position:
        logger.warning(
            "recording_log.truncated",
            append_position=recording.append_position,
            term_base_log_position=last.term_base_log_position,
        )
        recording_log.truncate_terms(recording.append_position + 1)
    return recording


def _is_begun(log: RecordingDescriptor, *, is_seeded: bool) -> bool:
    """Whether a log that no term names is this member's, begun before a crash."""
    return log.start_position == 0 and not (is_seeded and log.stop_position)
