"""The distinct errors of a member: each kind once, with its count and times, readable after the process died.

They lie in the error area of the mark file, in Aeron's layout (`error_records`), so its tools can print them,
too.

The text is ours: `LEVEL EVENT KIND at PLACE`, the message in one line, and below it the trace. Two observations are the
same error when that first line is the same; the message and the trace are those of the first one.

A record is written first and its length last, so a process that is killed leaves a whole record or none. Nothing is
synced: what a power loss leaves may be torn, and is read as far as it makes sense. The log goes on in the next run, so
`first` may be long ago. When the area is full, no new kind of error is taken until the next start, which drops the
oldest ones; that is counted. An observation costs two small writes into the page cache.

Source: Agrona `DistinctErrorLog`; aeron.md §5.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from ....archive.disk.file_system import FileSystem, OsFileSystem
from ....archive.files.marks import MARK_FILE_ERROR_LOG_LENGTH, read_mark_file
from ....archive.format.error_records import RECORD_ALIGNMENT, RECORD_HEADER, ErrorRecord, error_records
from ....service_api import ClusterError
from ....service_api.printable import without_addresses
from .mark_file import mark_kind_of

TEXT_LIMIT_BYTES: Final = 8192
"""The longest text of a record; a longer one is cut off."""

_PART_LIMIT: Final = 200
"""The longest part of a headline, in characters."""

_LENGTH: Final = struct.Struct("<i")
_COUNT_AND_LAST: Final = struct.Struct("<iq")
_COUNT_LIMIT: Final = (1 << 31) - 1
_KEPT_BYTES: Final = MARK_FILE_ERROR_LOG_LENGTH // 2
"""What a start keeps of a fuller log: the errors that were observed last."""

_HEADLINE: Final = re.compile(r"(?P<level>warning|error|critical) (?P<event>\S+)(?: (?P<kind>\S+))? at (?P<place>.+)")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(slots=True, frozen=True)
class ErrorObservation:
    """One observation: something that went wrong, and where."""

    level: str
    """`warning`, `error` or `critical`."""
    event: str
    """What is logged about it, such as `service.failed`."""
    kind: str
    """The type of the exception, or who is to blame; empty when the event says it all."""
    place: str
    """`file:line function` where it came from."""
    message: str
    trace: str = ""

    @property
    def headline(self) -> str:
        """What makes two of them the same error."""
        parts = (self.level, self.event, *([self.kind] if self.kind else []), "at", self.place)
        return without_addresses(" ".join(_one_line(part)[:_PART_LIMIT] for part in parts))

    def text(self) -> bytes:
        """Write it as the text of a record."""
        lines = [self.headline, _one_line(self.message)]
        if self.trace:
            lines.append(self.trace.rstrip())
        data = without_addresses("\n".join(lines)).encode("utf-8", "backslashreplace")
        return data[:TEXT_LIMIT_BYTES]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a record; one of another origin is an error of which only the message is known."""
        headline, _, rest = text.partition("\n")
        match = _HEADLINE.fullmatch(headline)
        if match is None:
            return cls("error", "", "", "", headline, rest)
        message, _, trace = rest.partition("\n")
        return cls(match["level"], match["event"], match["kind"] or "", match["place"], message, trace)


@dataclass(slots=True, frozen=True)
class DistinctError:
    """One record. Times in milliseconds since the Unix epoch."""

    observation_count: int
    first_ms: int
    last_ms: int
    trouble: ErrorObservation


class ErrorArea(Protocol):
    """Where the log is kept: the mark file's error area."""

    def read_error_area(self) -> bytes:
        """Read all of it."""

    def write_error_area(self, data: bytes, offset: int) -> None:
        """Write at an offset in it."""


@dataclass(slots=True)
class _Record:
    """Where a record lies, and what of it changes."""

    offset: int
    observation_count: int


class ErrorLog:
    """The error log of a running member; the file is not looked at before it is needed.

    A disk that refuses ends it: trouble with it must not make more.
    """

    def __init__(self, area: ErrorArea, epoch_ms: Callable[[], int]) -> None:
        self.observation_count = 0
        """Of this run."""
        self.dropped_count = 0
        """Observations that did not get into the file: it is full, or the disk refuses."""
        self._area = area
        self._epoch_ms = epoch_ms
        self._records: dict[str, _Record] = {}
        self._end = 0
        self._failure: Exception | None = None
        self._is_loaded = False

    def __repr__(self) -> str:
        return f"<ErrorLog distinct={len(self._records)} dropped={self.dropped_count} bytes={self._end}>"

    @property
    def distinct_count(self) -> int:
        """How many different errors the file holds, those of earlier runs included."""
        self._load_once()
        return len(self._records)

    def observe(self, trouble: ErrorObservation) -> None:
        """Count an error, and write it down if it is a new one."""
        self.observation_count += 1
        self._load_once()
        if self._failure is not None:
            self.dropped_count += 1
            return
        self._attempt(lambda: self._write(trouble))

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (OSError, ClusterError) as error:
            self._failure = error
            self.dropped_count += 1

    def _write(self, trouble: ErrorObservation) -> None:
        now_ms = self._epoch_ms()
        record = self._records.get(trouble.headline)
        if record is not None:
            record.observation_count = min(record.observation_count + 1, _COUNT_LIMIT)
            self._area.write_error_area(_COUNT_AND_LAST.pack(record.observation_count, now_ms), record.offset + 4)
            return
        if not self._append(trouble.headline, 1, now_ms, now_ms, trouble.text()):
            self.dropped_count += 1

    def _append(self, headline: str, count: int, last_ms: int, first_ms: int, text: bytes) -> bool:
        """Write a new record: its body, then its length. False when there is no room."""
        length = RECORD_HEADER.size + len(text)
        end = self._end + length + -length % RECORD_ALIGNMENT
        if end + _LENGTH.size > MARK_FILE_ERROR_LOG_LENGTH:
            return False
        body = RECORD_HEADER.pack(0, count, last_ms, first_ms) + text
        # After it a length of zero, in case an older log went on there.
        self._area.write_error_area(body.ljust(end - self._end, b"\0") + bytes(_LENGTH.size), self._end)
        self._area.write_error_area(_LENGTH.pack(length), self._end)
        self._records[headline] = _Record(self._end, count)
        self._end = end
        return True

    def _load_once(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            self._attempt(self._load)

    def _load(self) -> None:
        """Go on with what an earlier run left; when that is much, with its newest half."""
        found = list(error_records(self._area.read_error_area()))
        if found and found[-1].end > _KEPT_BYTES:
            self._rewrite(found)
            return
        for raw in found:
            self._records[raw.headline] = _Record(raw.offset, raw.count)
            self._end = raw.end

    def _rewrite(self, found: list[ErrorRecord]) -> None:
        kept_bytes = 0
        kept = []
        for raw in sorted(found, key=lambda raw: raw.last_ms, reverse=True):
            kept_bytes += raw.end - raw.offset
            if kept_bytes > _KEPT_BYTES:
                break
            kept.append(raw)
        self._area.write_error_area(bytes(_LENGTH.size), 0)
        for raw in reversed(kept):
            self._append(raw.headline, raw.count, raw.last_ms, raw.first_ms, raw.text)


def read_errors(path: Path, *, file_system: FileSystem | None = None) -> list[DistinctError]:
    """Read the errors in a mark file, of a member or an archive that runs or does not, newest observation last.

    Raises:
        ClusterError: it is no mark file.
        OSError: it cannot be read.
    """
    disk = OsFileSystem() if file_system is None else file_system
    return decode_errors(error_records(read_mark_file(path, mark_kind_of(path), disk)[1]))


def decode_errors(records: Iterable[ErrorRecord]) -> list[DistinctError]:
    """Make errors of records, in the order of their last observation."""
    errors = [
        DistinctError(
            raw.count, raw.first_ms, raw.last_ms, ErrorObservation.parse(_printable(raw.text.decode(errors="replace")))
        )
        for raw in records
    ]
    return sorted(errors, key=lambda error: error.last_ms)


def _one_line(text: str) -> str:
    return _printable(" ".join(text.split()))


def _printable(text: str) -> str:
    """Leave nothing in a text that would move a cursor: it may end up on a terminal."""
    return _UNPRINTABLE.sub("?", text)
