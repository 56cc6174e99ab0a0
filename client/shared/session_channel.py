"""A session's part of a connection that it shares: what its conductor takes for a connection of its own."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Protocol

from ...service_api.wire.frame import FLAG_END, align, unpack_header

if TYPE_CHECKING:
    from ..conductor import ClientConductor


class ChannelLink(Protocol):
    """What a channel needs of its link."""

    @property
    def sent_bytes(self) -> int:
        """How much of what was written on the link the system has taken; below 0 once the link fails."""

    def schedule(self, channel: SessionChannel) -> None:
        """Give a channel, which has something to send, its turn."""

    def leave(self, channel: SessionChannel) -> None:
        """Forget a channel."""


class SessionChannel:
    """One session on one link. What it writes waits here for its turn, `quantum` bytes and one message at most each."""

    def __init__(self, link: ChannelLink, conductor: ClientConductor, connection_id: int) -> None:
        self.connection_id = connection_id
        self.lost: asyncio.Future[None] = conductor.loop.create_future()
        self.conductor = conductor
        self._link = link
        self._pending = memoryview(b"")
        self._end_position = 0
        """How much had been written on the link with the last of this session."""

    def __repr__(self) -> str:
        return f"<SessionChannel {self.connection_id} pending={len(self._pending)}>"

    @property
    def is_writable(self) -> bool:
        """Whether what was written before has had its turn."""
        return not self._pending

    @property
    def unsent_bytes(self) -> int:
        """What the system has not taken, or more: what others have written after it counts while it is not sent."""
        sent_bytes = self._link.sent_bytes
        if self.lost.done() or sent_bytes < 0:
            return sys.maxsize
        return len(self._pending) + max(0, self._end_position - sent_bytes)

    def write(self, data: bytearray) -> None:
        """Send bytes when it is this session's turn."""
        if self.lost.done():
            return
        self._pending = memoryview(data)
        self._link.schedule(self)

    def take(self, quantum: int, written_bytes: int) -> memoryview:
        """Return the whole messages that have their turn now; `written_bytes` were written on the link before."""
        pending = self._pending
        if len(pending) <= quantum:
            self._pending = memoryview(b"")
            taken = pending
        else:
            end = _end_of_turn(pending, quantum)
            taken, self._pending = pending[:end], pending[end:]
        self._end_position = written_bytes + len(taken)
        return taken

    def set_reading(self, is_reading: bool) -> None:
        """Nothing: the socket is everybody's."""

    def abort(self) -> None:
        """Leave the link, which stays for the others."""
        if not self.lost.done():
            self.lost.set_result(None)
            self._pending = memoryview(b"")
            self._link.leave(self)


def _end_of_turn(pending: memoryview, quantum: int) -> int:
    """Find the end of the first messages that are `quantum` bytes together, or more by less than one."""
    offset, is_whole = 0, True
    while offset < len(pending) and not (offset >= quantum and is_whole):
        frame_length, _, flags, *_ = unpack_header(pending, offset)
        offset += align(frame_length)
        is_whole = bool(flags & FLAG_END)
    return offset
