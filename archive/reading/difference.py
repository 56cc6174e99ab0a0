"""Finds where two recordings of one stream differ: the first position at which the frames are not the same.

Members of a cluster record the same bytes, so up to where both have recorded, everything is equal. What may differ
without meaning anything is known: where the recordings begin (one was purged), where they end (one is behind), how they
are cut into files, and the session id of a data frame, which is a checksum where a recording has checksums; if only one
of the two has them, that field says nothing.

The idea: compare blocks of bytes, which is as fast as reading them, and walk frames only in a term in which a block
differs. Where the session ids differ without meaning anything, that is every term.
Memory: two blocks, or two frames. Nothing is changed, and either may be growing: what counts is where each ended when
it was first looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from ...service_api.wire.frame import HEADER_LENGTH, align
from ..files.log_end import LogEnd
from ..files.reader import Frame, FrameReader, StopReason
from ..format.descriptor import RecordingDescriptor
from ..format.frame_rules import frame_rules_of
from ..log.log_file import LogFile

BLOCK_BYTES: Final = 1 << 20


class Verdict(StrEnum):
    """What came of a comparison."""

    EQUAL = "equal"
    A_LONGER = "a is longer"
    """Equal as far as both go, and the first one goes on."""
    B_LONGER = "b is longer"
    DIFFERENT = "different"
    DAMAGED = "damaged"
    """One of them has a wrong frame, or lacks one, before its end."""
    NOTHING_IN_COMMON = "nothing in common"
    """One ends before the other begins: nothing could be compared."""


@dataclass(slots=True, frozen=True)
class Side:
    """One of the two recordings, and how it ends."""

    file: LogFile
    end: LogEnd

    @classmethod
    def open(cls, file: LogFile, start_position: int) -> Self:
        """Check a recording from where both begin, and find how it ends now."""
        end = file.ending(max(start_position, file.descriptor.start_position))
        return cls(file, end if end.position > start_position else file.ending())

    @property
    def descriptor(self) -> RecordingDescriptor:
        """What the catalog says of it."""
        return self.file.descriptor

    @property
    def reach(self) -> int | None:
        """How far it can be compared: what lies after damage has no known end unless the recording was stopped."""
        return self.descriptor.stop_position if self.end.kind == "damaged" else self.end.position


@dataclass(slots=True, frozen=True, kw_only=True)
class Mismatch:
    """One place at which two recordings are not the same.

    `what` names the fields that differ; `frame_a` and `frame_b` are what lies there, None where nothing right does, and
    `fault_a` and `fault_b` say what is wrong with it, None where nothing is.
    """

    position: int
    what: tuple[str, ...] = ()
    payload_offset: int | None = None
    """The first byte of the frames' payloads that differs; None where they do not."""
    frame_a: Frame | None = None
    frame_b: Frame | None = None
    fault_a: str | None = None
    fault_b: str | None = None


@dataclass(slots=True, frozen=True, kw_only=True)
class Difference:
    """What came of comparing [start_position, stop_position), the range that both have."""

    verdict: Verdict
    start_position: int
    stop_position: int
    mismatch: Mismatch | None = None


def compare(a: Side, b: Side, *, on_progress: Callable[[int], None] | None = None) -> Difference:
    """Compare two recordings from the first position that both have to the last one.

    `on_progress` is told how many bytes are done.

    Raises:
        OSError: the disk refused.
    """
    start = max(a.descriptor.start_position, b.descriptor.start_position)
    reaches = [side.reach for side in (a, b) if side.reach is not None]
    stop = min(reaches, default=max(a.end.position, b.end.position))
    mismatch: Mismatch | None = None
    verdict = _verdict_of_lengths(a, b, start, min(a.end.position, b.end.position))
    what = _layout_differences(a.descriptor, b.descriptor)
    if what:
        verdict, mismatch = Verdict.DIFFERENT, Mismatch(position=start, what=what)
    elif start < stop and (mismatch := find_mismatch(a.file, b.file, start, stop, on_progress=on_progress)) is not None:
        is_whole = mismatch.frame_a is not None and mismatch.frame_b is not None
        verdict = Verdict.DIFFERENT if is_whole else Verdict.DAMAGED
    elif damaged := [side.end.position for side in (a, b) if side.end.damage is not None]:
        fault_a, fault_b = (side.end.fault if side.end.damage is not None else None for side in (a, b))
        verdict, mismatch = Verdict.DAMAGED, Mismatch(position=min(damaged), fault_a=fault_a, fault_b=fault_b)
    return Difference(verdict=verdict, start_position=start, stop_position=max(start, stop), mismatch=mismatch)


def find_mismatch(
    a: LogFile,
    b: LogFile,
    start: int,
    stop: int,
    *,
    ignores_session_ids: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Mismatch | None:
    """Find the first place in [start, stop) at which two recordings of the same layout are not the same; or None.

    With `ignores_session_ids` the session ids of frames may differ, as they may where only one has checksums. A frame
    begins at `start` in both, and one ends at `stop`.

    Raises:
        OSError: the disk refused.
    """
    return _Comparison(a, b, ignores_session_ids=ignores_session_ids).run(start, stop, on_progress)


class _Comparison:
    """Walks two recordings of the same layout once."""

    def __init__(self, a: LogFile, b: LogFile, *, ignores_session_ids: bool) -> None:
        self._a = a
        self._b = b
        self._ignores_session_id = ignores_session_ids or a.descriptor.checksum_label != b.descriptor.checksum_label

    def run(self, start: int, stop: int, on_progress: Callable[[int], None] | None) -> Mismatch | None:
        """Compare term by term: the bytes where that can be, and the frames where the bytes differ."""
        term_length, position = self._a.descriptor.term_buffer_length, start
        while position < stop:
            term_end = min(stop, position - position % term_length + term_length)
            if not _are_equal(self._a, self._b, position, term_end):
                mismatch = self._walk(position, term_end)
                if mismatch is not None:
                    return mismatch
            position = term_end
            if on_progress is not None:
                on_progress(position - start)
        return None

    def _walk(self, position: int, end: int) -> Mismatch | None:
        """Compare the frames of [position, end), which lies in one term and begins with a frame."""
        reader_a, reader_b = self._reader(self._a, position, end), self._reader(self._b, position, end)
        frames_a, frames_b = iter(reader_a), iter(reader_b)
        while True:
            frame_a, frame_b = next(frames_a, None), next(frames_b, None)
            if frame_a is None or frame_b is None:
                fault_a, fault_b = (None if f else _fault(r) for f, r in ((frame_a, reader_a), (frame_b, reader_b)))
                if fault_a is None and fault_b is None and frame_a is frame_b:
                    return None
                place = reader_a.position if frame_a is None else reader_b.position
                return Mismatch(position=place, frame_a=frame_a, frame_b=frame_b, fault_a=fault_a, fault_b=fault_b)
            what = self._frame_differences(frame_a, frame_b)
            if what:
                return Mismatch(
                    position=frame_a.position,
                    what=what,
                    payload_offset=_first_difference(frame_a.payload, frame_b.payload),
                    frame_a=frame_a,
                    frame_b=frame_b,
                    fault_a=self._checksum_fault(self._a, frame_a),
                    fault_b=self._checksum_fault(self._b, frame_b),
                )

    def _reader(self, file: LogFile, start: int, stop: int) -> FrameReader:
        return file.reader(start, stop_position=stop, checksummed=False)

    def _frame_differences(self, frame_a: Frame, frame_b: Frame) -> tuple[str, ...]:
        """Name the fields in which two frames at one position differ."""
        if frame_a == frame_b:
            return ()
        ignored = "session_id" if self._ignores_session_id else ""
        return tuple(
            name for name in Frame._fields if name != ignored and getattr(frame_a, name) != getattr(frame_b, name)
        )

    def _checksum_fault(self, file: LogFile, frame: Frame) -> str | None:
        """Say that a frame is not what was checksummed; None where it is, or has no checksum."""
        block = file.read(frame.position, align(frame.frame_length))
        if len(block) < HEADER_LENGTH:
            return "cannot be read any more"
        return frame_rules_of(file.descriptor).find_fault(block, 0, frame.position)


def _are_equal(a: LogFile, b: LogFile, position: int, end: int) -> bool:
    """Whether [position, end) of one term is there in both, and the same."""
    while position < end:
        wanted = min(BLOCK_BYTES, end - position)
        block = a.read(position, wanted)
        if len(block) != wanted or block != b.read(position, wanted):
            return False
        position += wanted
    return True


def _verdict_of_lengths(a: Side, b: Side, start: int, stop: int) -> Verdict:
    """Judge two recordings by where they begin and end, as if what they have in common were the same."""
    begin_together = a.descriptor.start_position == b.descriptor.start_position
    if start > stop or (start == stop and not begin_together):
        return Verdict.NOTHING_IN_COMMON
    if a.end.position == b.end.position:
        return Verdict.EQUAL
    return Verdict.A_LONGER if a.end.position > b.end.position else Verdict.B_LONGER


def _layout_differences(a: RecordingDescriptor, b: RecordingDescriptor) -> tuple[str, ...]:
    """Name what two recordings of one stream must have in common, and have not."""
    names = ("stream_id", "initial_term_id", "term_buffer_length")
    pairs = ((name, getattr(a, name), getattr(b, name)) for name in names)
    return tuple(f"{name}: {of_a} and {of_b}" for name, of_a, of_b in pairs if of_a != of_b)


def _fault(reader: FrameReader) -> str | None:
    """Return why a reader has no frame; None where it came to the end that was set."""
    if reader.stop_reason is StopReason.STOP_POSITION:
        return None
    assert reader.stop_reason is not None
    return f"{reader.stop_reason.value}: {reader.detail}"


def _first_difference(a: bytes, b: bytes) -> int | None:
    if a == b:
        return None
    pairs = enumerate(zip(a, b, strict=False))
    return next((offset for offset, (byte_a, byte_b) in pairs if byte_a != byte_b), min(len(a), len(b)))
