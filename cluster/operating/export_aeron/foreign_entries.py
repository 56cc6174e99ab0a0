"""What an Aeron member would take for something else in a log of ours: requests, skipped entries, own ids of timers.

    request        a session message whose block is 16 bytes longer: Aeron's service is given them as payload
    entry skip     a cluster action that Aeron passes over: its service is given the entry that ours was not
    own timer id   has the service's id in its highest byte: Aeron's services share the ids of timers

All else of ours in a log or a snapshot is a longer block of a message of Aeron's, or a template id that its loaders do
not know: those it passes over. Source: Aeron `BoundedLogAdapter`, `LogAdapter`, `ServiceSnapshotLoader`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ....archive.errors import CorruptionError
from ....archive.files.reader import MessageReader
from ....archive.log.log_file import LogFile
from ....archive.store.range_reader import RangeReader
from ....service_api.wire.frame import FLAG_BEGIN, HEADER_LENGTH, TYPE_DATA, iter_headers
from ....service_api.wire.log.messages import EntrySkip, TimerEvent
from ....service_api.wire.message import message_header
from ....service_api.wire.request import REQUEST_MESSAGE
from ....service_api.wire.sbe import MESSAGE_HEADER
from ...messages.snapshot import Timer
from ...service.skipped_entries import ENTRY_SKIP_BEGIN, find_entry_skips

_READ_BYTES: Final = 1 << 20
_SERVICE_ID_SHIFT: Final = 56
_BEGIN_LENGTH: Final = 6
"""Block length, template id and schema id tell a message; its schema version does not."""

REQUEST_BEGIN: Final = MESSAGE_HEADER.pack(*REQUEST_MESSAGE)[:_BEGIN_LENGTH]
_SNAPSHOT_TIMER_BEGIN: Final = MESSAGE_HEADER.pack(*message_header(Timer))[:_BEGIN_LENGTH]
TIMER_BEGIN: Final = MESSAGE_HEADER.pack(*message_header(TimerEvent))[:_BEGIN_LENGTH]


@dataclass(slots=True, frozen=True)
class ForeignEntry:
    """An entry of a log that an Aeron member would misread."""

    log_position: int
    """Where it begins."""
    what: str


def read_blocks(log: LogFile, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield the log from `start` up to `end` in blocks of whole frames, each with its position.

    Raises:
        CorruptionError: a frame is not valid.
        OSError: the disk refused.
    """
    reader = RangeReader(log.location.directory, log.location.file_system, refuse_if_purged=lambda *_: None)
    while start < end:
        block = reader.read(log.descriptor, None, start, _READ_BYTES, stop_position=end)
        yield start, block
        start += len(block)


def find_skips(log: LogFile, start: int, end: int) -> dict[int, int]:
    """Find the entries that others have skipped: where each ends, and where the entry ends that says so.

    Raises:
        CorruptionError: a frame is not valid.
        OSError: the disk refused.
    """
    found: dict[int, int] = {}

    def keep(skip: EntrySkip) -> None:
        found[skip.skipped_log_position] = skip.log_position

    for position, block in read_blocks(log, start, end):
        find_entry_skips(block, position, keep)
    return found


def is_own_timer_id(correlation_id: int, service_count: int) -> bool:
    """Whether a timer's id in the log names one of several services; the first service's ids cannot be told."""
    return service_count > 1 and 0 < correlation_id >> _SERVICE_ID_SHIFT < service_count


def find_foreign_timer(snapshot: LogFile, log_position: int, *, service_count: int) -> ForeignEntry | None:
    """Find a timer in a snapshot of the consensus module that an Aeron member would give to every service.

    Raises:
        OSError: the disk refused.
    """
    if service_count > 1:
        for message in MessageReader(snapshot.reader()):
            if message.payload.startswith(_SNAPSHOT_TIMER_BEGIN):
                correlation_id = Timer.decode(message.payload).correlation_id
                if is_own_timer_id(correlation_id, service_count):
                    return ForeignEntry(log_position, own_timer_text(correlation_id))
    return None


def own_timer_text(correlation_id: int) -> str:
    """Say what is wrong with a timer of one service."""
    return f"a timer of one service alone, correlation_id={correlation_id}: the members ran with shared_timer_ids=false"


def find_foreign_entry(log: LogFile, start: int, end: int, *, service_count: int) -> ForeignEntry | None:
    """Find the first entry from `start` on that an Aeron member would misread; None without one.

    Where a frame is not valid the search ends: what is wrong there is told by who checks the log.

    Raises:
        OSError: the disk refused.
    """
    try:
        for position, block in read_blocks(log, start, end):
            begins = [REQUEST_BEGIN, ENTRY_SKIP_BEGIN, *([TIMER_BEGIN] if service_count > 1 else [])]
            if any(begin in block for begin in begins):
                for offset, header in iter_headers(block):
                    if header.type == TYPE_DATA and header.flags & FLAG_BEGIN:
                        encoded = block[offset + HEADER_LENGTH : offset + header.frame_length]
                        what = _find_misread(encoded, start, service_count)
                        if what is not None:
                            return ForeignEntry(position + offset, what)
    except CorruptionError:
        return None
    return None


def _find_misread(encoded: bytes, start: int, service_count: int) -> str | None:
    if encoded.startswith(REQUEST_BEGIN):
        return "a request"
    if encoded.startswith(ENTRY_SKIP_BEGIN):
        skipped = EntrySkip.decode(encoded).skipped_log_position
        return f"the entry that ends at position={skipped} is skipped" if skipped > start else None
    if encoded.startswith(TIMER_BEGIN):
        correlation_id = TimerEvent.decode(encoded).correlation_id
        if is_own_timer_id(correlation_id, service_count):
            return own_timer_text(correlation_id)
    return None
