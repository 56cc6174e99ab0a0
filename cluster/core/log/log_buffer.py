"""The recent end of the log in memory: contiguous, immutable chunks of whole frames.

A chunk is a `bytes` that was stamped (leader) or received (follower) in one go. The same object is handed to the
recording, to every follower link and to the delivery loop, so nothing is copied after it was made. The window has two
ends: the append position, and the base position, below which only the archive has the log. Readers below the base
read the archive; the window never waits for them, which is what bounds memory when a follower or a service is slow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from ....service_api import invariant
from ....service_api.wire.log.log_rules import Before

_COMPACT_COUNT: Final = 1024
"""How many dropped chunks the lists may begin with before they are cut, and then only if these are the half of all."""


class LogBuffer:
    """A bounded window of the log's bytes, addressed by position.

    Invariant: `base_position <= append_position`, and the chunks between them are adjacent. The lists hold them from
    index `_head` on; what was dropped before it is cut off now and then, so that any chunk is found by bisection (a
    deque is as good at its ends and 100 times slower in the middle of 100,000 chunks).
    """

    __slots__ = (
        "_before",
        "_chunks",
        "_head",
        "_pending",
        "_retained_bytes",
        "_starts",
        "append_position",
        "base_position",
        "flushed_position",
    )

    def __init__(self, *, position: int, retained_bytes: int) -> None:
        self.append_position = position
        self.flushed_position = position
        """How far the log has been taken, to be recorded and sent."""
        self.base_position = position
        self._retained_bytes = retained_bytes
        self._chunks: list[bytes] = []
        self._starts: list[int] = []
        self._head = 0
        self._pending: list[bytes] = []
        self._before = (position, Before.UNKNOWN)

    def __repr__(self) -> str:
        count = len(self._chunks) - self._head
        return f"<LogBuffer base={self.base_position} append={self.append_position} chunks={count}>"

    def append(self, chunk: bytes) -> None:
        """Add whole frames at the append position; their length is a multiple of 32."""
        self._chunks.append(chunk)
        self._pending.append(chunk)
        self._starts.append(self.append_position)
        self.append_position += len(chunk)

    @property
    def before(self) -> Before:
        """Return what lies before the next frame, as far as who appended the last chunk has noted it."""
        position, before = self._before
        return before if position == self.append_position else Before.UNKNOWN

    def note_before(self, before: Before) -> None:
        """Note what lies before the next frame."""
        self._before = self.append_position, before

    def take_pending(self) -> list[bytes]:
        """Take the chunks appended since the last call, in order: what is still to be recorded and sent."""
        pending = self._pending
        if pending:
            self._pending = []
            self.flushed_position = self.append_position
        return pending

    def reset(self, position: int) -> None:
        """Forget everything and go on at `position`.

        After a truncation, or a copy that went straight to the archive.
        """
        self._chunks.clear()
        self._starts.clear()
        self._pending.clear()
        self._head = 0
        self.append_position = self.flushed_position = position
        self.base_position = position
        self._before = (position, Before.UNKNOWN)

    def discard_before(self, position: int) -> None:
        """Drop chunks that end at or before `position`, keeping the configured number of bytes for late joiners."""
        limit = min(position, self.append_position - self._retained_bytes)
        if limit <= self.base_position:
            return
        chunks, head = self._chunks, self._head
        while head < len(chunks) and self.base_position + len(chunks[head]) <= limit:
            self.base_position += len(chunks[head])
            chunks[head] = b""
            head += 1
        if head > _COMPACT_COUNT and 2 * head > len(chunks):
            del chunks[:head], self._starts[:head]
            head = 0
        self._head = head

    def chunk_at(self, position: int) -> tuple[bytes, int] | None:
        """Find the chunk that holds the frame at `position`: the chunk and the offset in it.

        None at the append position. Readers are at the newest chunk or, when a commit was late, thousands behind it.
        """
        if not self.base_position <= position <= self.append_position:
            invariant(False, "read outside the window", position=position, window=self)
        if position == self.append_position:
            return None
        starts = self._starts
        index = -1 if starts[-1] <= position else bisect_right(starts, position, self._head) - 1
        return self._chunks[index], position - starts[index]

    def chunks_from(self, position: int) -> Iterator[bytes]:
        """Yield the bytes from `position` to the append position, in order; only the first may be cut."""
        found = self.chunk_at(position)
        if found is None:
            return
        chunk, offset = found
        yield chunk[offset:]
        yield from self._chunks[bisect_right(self._starts, position, self._head) :]
