"""Follows a recording that another process writes: its last messages, then each new one.

The problem: the reader has nothing but files. Between two looks the recording may have rolled to its next segment,
been stopped and extended, lost its oldest segments to retention, been cut back, or been deleted; and what is at its end
may be a frame that is just being written.
The idea: each look reads from where the last one ended to where the frames end now. Only when that gives nothing, or
when what was given last is not there any more, the catalog is read again: it says what has become of the recording.
How the recording ends is judged as everywhere (`files.log_end`), only less often: each `PATIENCE_LOOKS` looks that
found nothing new, because a whole segment may have to be read for the answer; at once if the recording was stopped.

Nothing here waits or reads a clock: who follows decides when to look again. Bounds: one message, and the last messages
that were asked for.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from ..errors import below_oldest
from ..files.catalog import read_catalog
from ..files.log_end import LogEnd
from ..files.reader import FrameReader, MessageReader, RecordedMessage, StopReason
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.log_file import LogFile

RECENT_MESSAGES: Final = 1024
"""So many messages back the place is found at which a recording was cut back while nobody looked."""

PATIENCE_LOOKS: Final = 8
"""After so many looks in a row that found nothing new, what lies at the end is judged."""


class _Seen(NamedTuple):
    """A message that was given: where it lay, and what tells it from another one there."""

    position: int
    checksum: int

    @classmethod
    def of(cls, message: RecordedMessage) -> Self:
        return cls(message.position, zlib.crc32(message.payload))


class RecordingFollower:
    """Gives the messages of one recording from `position` on, look by look; `position` is where the next one goes on.

    `notices` is what has become of the recording that its reader should hear of, until its reader takes them.
    `is_ended` says that nothing more can come: the recording was deleted or marked invalid.
    """

    def __init__(self, log: LogFile) -> None:
        self.descriptor = log.descriptor
        self.position = log.descriptor.start_position
        self.notices: list[str] = []
        self.is_ended = False
        self._location = log.location
        self._idle_looks = 0
        self._recent: deque[_Seen] = deque(maxlen=RECENT_MESSAGES)
        """What was given last: a recording that was cut back and went on has something else in its place."""

    def __repr__(self) -> str:
        return f"<RecordingFollower recording={self.descriptor.recording_id} position={self.position}>"

    def last_messages(self, count: int) -> list[RecordedMessage]:
        """Return the last messages that are there now; only as many terms are read as are needed for them."""
        found: deque[RecordedMessage] = deque(maxlen=count)
        for start_position in self._term_starts():
            self.position = start_position
            self._recent.clear()
            self._idle_looks = 0
            found = deque(self._messages(self._reader(start_position)), maxlen=count)
            if len(found) == count:
                break
        return list(found)

    def messages_from(self, position: int) -> Iterator[RecordedMessage]:
        """Yield the messages that are there now, from a position on.

        Raises:
            ArchiveError: the recording begins after it, or no frame begins there.
            CorruptionError: there is damage where a message should be.
            OSError: the disk refused.
        """
        start_position = self.descriptor.start_position
        if position < start_position:
            raise below_oldest(self.descriptor.recording_id, position=position, oldest_position=start_position)
        self.position = position
        return self.look()

    def _term_starts(self) -> Iterator[int]:
        """Yield where the terms begin, the last one first: a frame begins there, and no message before it ends behind.

        The first is where the recording begins.
        """
        start, stop = self.descriptor.start_position, self.descriptor.stop_position
        segment_length, term_length = self.descriptor.segment_file_length, self.descriptor.term_buffer_length
        for base in reversed(self._log.segment_base_positions()):
            for position in reversed(range(base, base + segment_length, term_length)):
                if position > start and (stop is None or position < stop):
                    yield position
        yield start

    def look(self) -> Iterator[RecordedMessage]:
        """Yield the messages that have come since the last look.

        Raises:
            CorruptionError: there is damage where the next message should be.
            OSError: the disk refused.
        """
        if not self._is_last_there():
            self._catch_up_with_catalog()
            return
        before, reader = self.position, self._reader(self.position)
        yield from self._messages(reader)
        self._judge_end(reader)
        if self.position == before:
            self._catch_up_with_catalog()

    def _messages(self, reader: FrameReader) -> Iterator[RecordedMessage]:
        messages = MessageReader(reader)
        before = self.position
        for message in messages:
            self.position = message.end_position
            self._recent.append(_Seen.of(message))
            yield message
        if not messages.incomplete_message_count:
            self.position = reader.position  # padding may follow the last message
        self._idle_looks = 1 if self.position > before else self._idle_looks + 1

    def ending(self) -> LogEnd:
        """Return how the recording ends where the reading has come to, or that a segment is missing before.

        Raises:
            OSError: the disk refused.
        """
        gap = self._log.find_gap()
        return self._log.ending(self.position if gap is None else gap)

    def _judge_end(self, reader: FrameReader) -> None:
        """Raise when a reader ended in front of damage, and not at the end of what was written so far."""
        if reader.stop_reason in (StopReason.STOP_POSITION, StopReason.UNDECIDABLE):
            return  # once another frame follows, the last one is whole
        if self.descriptor.stop_position is None and self._idle_looks % PATIENCE_LOOKS:
            return
        end = reader.ending()
        # The catalog is asked first what has become of the recording.
        if end.damage is not None and self._read_descriptor() == self.descriptor:
            raise self._log.corruption(end)

    def _catch_up_with_catalog(self) -> None:
        """Take over what the catalog says by now about the recording."""
        recording_id, position = self.descriptor.recording_id, self.position
        descriptor = self._read_descriptor()
        if descriptor is None or descriptor.state is not RecordingState.VALID:
            state = "no longer in the catalog" if descriptor is None else descriptor.state.name
            self.notices.append(f"recording_id={recording_id} is {state}: position={position} was its end")
            self.is_ended = True
            return
        self.descriptor = descriptor
        if descriptor.start_position > position:
            self.position = descriptor.start_position
            self.notices.append(
                f"recording_id={recording_id} was purged: {self.position - position} bytes before "
                f"position={self.position} were not seen"
            )
        while self._recent and self._recent[0].position < descriptor.start_position:
            self._recent.popleft()
        stop_position = descriptor.stop_position
        if stop_position is not None and stop_position < position:
            self._cut_back_to(stop_position)
        elif not self._is_last_there():
            self._cut_back_to(self._last_common_position())

    def _cut_back_to(self, position: int) -> None:
        self.notices.append(
            f"recording_id={self.descriptor.recording_id} was truncated to position={position}; "
            f"frames read from there to position={self.position} are no longer in it"
        )
        self.position = position
        self._recent.clear()

    def _is_last_there(self) -> bool:
        """Whether the message that was given last lies there still, and not another one in its place."""
        if not self._recent:
            return True
        last = self._recent[-1]
        found = next(iter(MessageReader(self._reader(last.position))), None)
        return found is not None and _Seen.of(found) == last

    def _last_common_position(self) -> int:
        """Find up to where the messages that were given still lie there; not before the oldest that is known."""
        common_position = self._recent[0].position
        for seen, message in zip(self._recent, MessageReader(self._reader(common_position)), strict=False):
            if _Seen.of(message) != seen:
                break
            common_position = message.end_position
        return common_position

    def _reader(self, position: int) -> FrameReader:
        return self._log.reader(position)

    @property
    def _log(self) -> LogFile:
        return LogFile(self._location, self.descriptor)

    def _read_descriptor(self) -> RecordingDescriptor | None:
        """Read what the catalog says; of an entry that is just being written, what it said before."""
        for entry in read_catalog(*self._location).entries:
            if entry.descriptor is None:
                return self.descriptor
            if entry.descriptor.recording_id == self.descriptor.recording_id:
                return entry.descriptor if entry.problem is None else self.descriptor
        return None
