"""Checks the frames of a log many at once, where numpy is installed: the plain reader takes half the time of a replay.

The scanner says of a block of frames only that they are valid. Where it says nothing, at damage or at the end, the
plain reader is asked, which gives the frames or says what is wrong; so the rules are written once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...archive.log.log_file import LogFile
from ...service_api.wire.frame import align

if TYPE_CHECKING:
    from ...archive.files.vector.scan import FrameBlock

_LEAST_BYTES = 1 << 16
"""Of less than this a block is not worth looking at."""


class FrameCheck:
    """Reads valid frames of one recording, block after block."""

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self._blocks: Iterator[FrameBlock] | None = None
        self._arguments = (-1, 0)
        self._position = -1

    def __repr__(self) -> str:
        return f"<FrameCheck log={self._log} position={self._position}>"

    def read(self, position: int, limit_bytes: int, stop_position: int) -> bytes:
        """Read the valid frames from `position` on, a block of about `limit_bytes`; nothing if they are not found."""
        from ...archive.files.vector.scan import LENGTH, FrameScanner

        if limit_bytes < _LEAST_BYTES or stop_position - position < _LEAST_BYTES:
            return b""
        if self._blocks is None or position != self._position or self._arguments != (limit_bytes, stop_position):
            scanner = FrameScanner(
                self._log.location.directory,
                self._log.descriptor,
                start_position=position,
                stop_position=stop_position,
                block_length_bytes=limit_bytes,
                file_system=self._log.location.file_system,
            )
            self._blocks, self._arguments = iter(scanner), (limit_bytes, stop_position)
        block = next(self._blocks, None)
        if block is None or block.position != position:
            self.forget()
            return b""
        self._position = block.last_position + align(int(block.headers[-1, LENGTH]))
        return self._bytes_of(block, self._position - position)

    def forget(self) -> None:
        """Close the file that is open."""
        self._blocks = None

    def _bytes_of(self, block: FrameBlock, length: int) -> bytes:
        """Return what was found valid, with the headers that looking at it has used up put back."""
        if block.without_padding() is not block:  # what is in padding was not read
            return self._log.read(block.position, length)  # nothing if purged just now: the plain reader says so
        if block.words.flags.writeable:  # a frame that the plain reader has found is as it was
            block.words.view("V32").put(block.slots, block.headers.view("V32").ravel())
        return block.words[: length >> 3].tobytes()


def make_frame_check(log: LogFile) -> FrameCheck | None:
    """Make a check where numpy is installed; None where it is not."""
    try:
        from ...archive.files.vector import scan  # noqa: F401  # whether it can be imported is the question
    except ImportError:
        return None
    return FrameCheck(log)
