"""Entries that an operator has skipped, and the entries of the log that say so.

A committed entry that a majority of members cannot deliver ends the cluster: each start meets it again. So an operator
may have it skipped, by a later entry of the log, an `EntrySkip`. No service is given the skipped entry; what else
belongs to it, such as the reply to a request, is done on every member.

    P  the entry that is skipped ends here
    S  the EntrySkip ends here: P < S

A member learns of it in one of two ways, and restarts from a snapshot before P, knowing it:

- It *holds* before P, because its service failed there twice: it looks through what is committed after P, finds S.
- It delivered P: it meets S later. Its state, and its snapshots between P and S, are not those of the others.

Between P and S no snapshot is taken by a member that knows of the skip, so a valid one there is of the second kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...service_api import RemoteProtocolError
from ...service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, iter_headers, iter_whole_messages
from ...service_api.wire.log.fields import read_log_fields
from ...service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_ENTRY_SKIP,
    ENTRY_SKIP,
    EntrySkip,
)
from ...service_api.wire.sbe import MESSAGE_HEADER

ENTRY_SKIP_BEGIN: Final = MESSAGE_HEADER.pack(*ENTRY_SKIP)
"""The bytes that an `EntrySkip` begins with."""


def find_entry_skips(frames: bytes, position: int, on_skip: Callable[[EntrySkip], None]) -> None:
    """Find the entries that have others skipped among whole frames, which begin at `position` of the log.

    A payload may hold what looks like one: it counts only where a frame begins. Most chunks hold nothing like it.
    """
    if ENTRY_SKIP_BEGIN not in frames:
        return
    for end, encoded in iter_whole_messages(frames):
        skip = decode_entry_skip(encoded)
        if skip is not None and skip.log_position == position + end:
            on_skip(skip)


def decode_entry_skip(encoded: bytes) -> EntrySkip | None:
    """Decode a message of the log that has an entry skipped; None where it is any other message."""
    if not encoded.startswith(ENTRY_SKIP_BEGIN):
        return None
    try:
        skip = EntrySkip.decode(encoded)
    except RemoteProtocolError:
        return None
    return skip if skip.flags == CLUSTER_ACTION_FLAGS_ENTRY_SKIP else None


def newest_timestamp(frames: bytes) -> int:
    """Return the highest time of messages that begin in whole frames; 0 without one."""
    newest = 0
    for offset, header in iter_headers(frames):
        if header.type == TYPE_DATA and header.flags & FLAG_BEGIN:
            timestamp = read_log_fields(frames[offset + HEADER_LENGTH : offset + header.frame_length]).timestamp
            if timestamp is not None and timestamp > newest:
                newest = timestamp
    return newest
