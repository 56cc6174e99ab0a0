"""The egress of one client's connection: to its transport, or to the tracker while the socket is full.

What goes out to many sessions on a connection in one turn of the loop is one write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Final, Protocol

from ....service_api.types import EGRESS_STREAM_ID
from ....service_api.wire.frame import encode_message
from ....service_api.wire.message import Message
from .connection_state import ConnectionState
from .egress_tracker import EgressTracker, WaitingEgress

MAX_FRAME_LENGTH: Final = 65504
"""The longest frame on a client's connection, in and out."""
_WRITE_LIMIT_BYTES: Final = 1 << 20
"""The longest write that goes to a transport as it is."""


class PipeOwner(Protocol):
    """The life of a connection, as its egress sees it."""

    state: ConnectionState

    def choke(self, is_choked: bool) -> None:
        """Do not read a client that does not read its egress; or read it again."""

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        """End the connection of a client that does not read."""


class EgressPipe:
    """The egress of one client's connection."""

    __slots__ = ("_batch", "_life", "_session_ids", "_tracker", "transport", "waiting")

    def __init__(self, life: PipeOwner, tracker: EgressTracker, session_ids: Sized) -> None:
        self._life = life
        self._tracker = tracker
        self._session_ids = session_ids
        """The sessions that are bound to the connection."""
        self.transport: asyncio.Transport | None = None
        """The transport of the connection; None until it is made, and once it is left to end by itself."""
        self._batch: bytearray | None = None
        """The bytes that go out at the end of this turn, where more than one session is bound."""
        self.waiting: WaitingEgress | None = None
        """The egress that waits with the tracker; None while the socket takes what it is given."""

    def __repr__(self) -> str:
        return f"<EgressPipe waiting={self.waiting} unsent={self.unsent_bytes}>"

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes the transport holds that the socket has not taken."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def send(self, message: Message) -> None:
        """Send a session message."""
        self.write(encode_message(message.encode(), stream_id=EGRESS_STREAM_ID, mtu_length=MAX_FRAME_LENGTH))

    def write(self, data: bytes | bytearray) -> None:
        """Send egress frames; the caller gives the buffer away. What the socket does not take waits, within bounds.

        One session writes once a turn by itself. Where there are more, all that they write in a turn goes out at its
        end: a call of the system for each of a thousand sessions costs more than their messages.
        """
        batch = self._batch
        if batch is not None:
            batch += data
            if len(batch) >= _WRITE_LIMIT_BYTES:
                self.flush()
        elif len(self._session_ids) > 1:
            self._batch = bytearray(data)
            asyncio.get_running_loop().call_soon(self.flush)
        else:
            self._write(data)

    def flush(self) -> None:
        """Send what was written in this turn."""
        batch, self._batch = self._batch, None
        if batch:
            self._write(batch)

    def _write(self, data: bytes | bytearray) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        waiting = self.waiting
        if waiting is not None:
            if self._life.state is not ConnectionState.ENDING:
                self._tracker.add(self, waiting, data)
        elif len(data) <= _WRITE_LIMIT_BYTES:
            transport.write(data)
        else:
            self._write_long(data)

    def _write_long(self, data: bytes | bytearray) -> None:
        """Send what a transport should not hold at once: there it could not be dropped again."""
        waiting = self.waiting = self._tracker.begin(self)
        self._tracker.add_long(self, waiting, data)

    def pause(self) -> None:
        """Let what follows wait: the transport is full."""
        if self.waiting is None:
            self.waiting = self._tracker.begin(self)
        else:
            self.waiting.is_socket_full = True

    def resume(self) -> None:
        """Send what waits: the transport has room again."""
        if self.waiting is not None:
            self._tracker.pump(self, self.waiting)

    def abort(self) -> None:
        """Drop the connection now."""
        self.waiting = None
        self._tracker.end(self)
        if self.transport is not None:
            self.transport.abort()

    def abort_if_waiting(self) -> None:
        """Drop the connection if its client has not taken what it was sent."""
        if self.waiting is not None:
            self.abort()

    # --- the egress tracker

    def send_now(self, data: bytes | bytearray) -> None:
        """Give the transport what waited."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def choke(self, is_choked: bool) -> None:
        """Do not read a client that does not read its egress; or read it again."""
        self._life.choke(is_choked)

    def on_all_sent(self) -> None:
        """Write straight to the transport again."""
        self.waiting = None
        if self._life.state is ConnectionState.ENDING and self.transport is not None:
            self.transport.close()

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        """End the connection of a client that does not read."""
        self._life.cut_off(reason, waiting_bytes)
