"""A publication: sends messages into a recording as log frames, and reports how far they are durable.

A message is laid out once, as the frames that the archive writes to its segment files: fragments of at most the MTU,
each with its checksum, a padding frame where a term would end within a message. What is offered in one turn of the loop
is one write. The archive says with status frames up to where everything is durable, and how much may be on its way
beyond that: a message is taken while there is any room, so at most the window and one message are held here.
"""

from __future__ import annotations

import asyncio
from typing import Final

from ...service_api.errors import ClusterError, LocalProtocolError
from ...service_api.types import RecordingId
from ...service_api.wire.checksum import ChecksumKind
from ...service_api.wire.frame import (
    HEADER_LENGTH,
    MAX_MESSAGE_LENGTH,
    TYPE_SETUP,
    ReadableBuffer,
    encode_frame,
    encode_padding,
    fragment,
    framed_length,
    term_of,
    wrap_int32,
)
from ...service_api.wire.link_frames import SetupFrame, StatusFrame
from ...service_api.wire.message import Message
from ...service_api.wire.stream import StreamFrame
from ..errors import ArchiveError, ArchiveErrorCode
from ..format import messages
from .connection import ArchiveConnection
from .control import error_of

TERMS_PER_MESSAGE: Final = 8
"""A message takes an eighth of a term at most, as in Aeron, so that padding is never long."""

_PADDING: Final = bytes(32)


class Publication:
    """A stream that an archive records. `position` is where the next message begins, in bytes of the stream.

    Several tasks may offer; messages are never mixed up. A message is in the recording once `recorded` has returned for
    its position. One that was offered and not acknowledged when the connection broke may or may not be there.
    """

    def __init__(self, connection: ArchiveConnection) -> None:
        self.connection: Final = connection
        self.recording_id = -1
        self.subscription_id = -1
        self.position = 0
        self.recorded_position = 0
        """Up to where the recording is durable, as far as is known here."""
        self._setup: SetupFrame | None = None
        self._limit_position = 0
        self._failure: ClusterError | None = None
        self._changed = asyncio.Event()
        self._unsent: list[bytes] = []
        connection.on_frame = self._on_frame
        connection.on_message = self._on_message
        connection.on_lost = self._fail

    def __repr__(self) -> str:
        return (
            f"<Publication recording={self.recording_id} position={self.position} "
            f"recorded={self.recorded_position}{' closed' if self._failure else ''}>"
        )

    @property
    def setup(self) -> SetupFrame:
        """How the stream is laid out, and where this publication began."""
        assert self._setup is not None
        return self._setup

    @property
    def session_id(self) -> int:
        """What names this publication while it lasts."""
        return self.setup.session_id

    @property
    def max_message_length(self) -> int:
        """The longest message that is taken, in bytes."""
        return min(MAX_MESSAGE_LENGTH, self.setup.term_length_bytes // TERMS_PER_MESSAGE)

    async def offer(self, payload: ReadableBuffer) -> int:
        """Publish a message, waiting while the archive is behind; give the position where it ends.

        Raises:
            LocalProtocolError: it is longer than `max_message_length`.
            ArchiveError: the recording was stopped, its disk failed, or the archive is gone.
        """
        if len(payload) > self.max_message_length:
            raise LocalProtocolError(f"message too long: length={len(payload)} limit={self.max_message_length}")
        while self.position >= self._limit_position or self._failure is not None:
            await self._wait()
        self._append(payload)
        return self.position

    async def recorded(self, position: int | None = None) -> int:
        """Return once everything below `position`, without one everything offered so far, is durable; how far it is.

        Raises:
            ArchiveError: the recording was stopped, its disk failed, or the archive is gone, before it was.
        """
        wanted = self.position if position is None else position
        while self.recorded_position < wanted:
            await self._wait()
        return self.recorded_position

    async def begin(self, timeout_s: float) -> None:
        """Wait until the archive has said how the stream is laid out.

        Raises:
            ArchiveError: it has refused, or is gone.
            TimeoutError: it says nothing.
        """
        async with asyncio.timeout(timeout_s):
            while self._limit_position == 0:
                await self._wait()

    async def stop(self) -> int:
        """Wait until everything is durable, stop the recording, and give the position where it ends."""
        position = await self.recorded()
        if self._failure is None:
            await self.connection.ask(
                messages.StopRecordingByIdentityRequest, recording_id=RecordingId(self.recording_id)
            )
        return position

    async def _wait(self) -> None:
        """Return when the archive has said something new; raise when there is nothing to wait for."""
        if self._failure is not None:
            raise self._failure
        await self._changed.wait()

    def _append(self, payload: ReadableBuffer) -> None:
        setup, position = self.setup, self.position
        needed = framed_length(len(payload), setup.mtu_length_bytes)
        room = setup.term_length_bytes - position % setup.term_length_bytes
        chunks: list[bytes] = []
        if needed > room:
            term_id, term_offset = self._term_of(position)
            chunks.append(encode_padding(room, stream_id=setup.stream_id, term_id=term_id, term_offset=term_offset))
            position += room
        term_id, term_offset = self._term_of(position)
        for flags, part in fragment(payload, setup.mtu_length_bytes):
            frame = encode_frame(
                part,
                stream_id=setup.stream_id,
                session_id=_checksum(part, setup.checksum_kind) if setup.checksummed else setup.session_id,
                term_id=term_id,
                term_offset=term_offset,
                flags=flags,
            )
            chunks.append(frame)
            term_offset += len(frame)
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unsent += chunks
        self.position = position + needed

    def _flush(self) -> None:
        """Send what was offered in this turn of the loop."""
        data, self._unsent = b"".join(self._unsent), []
        if self.connection.failure is None:
            self.connection.write(data)

    def _term_of(self, position: int) -> tuple[int, int]:
        return term_of(
            position, initial_term_id=self.setup.initial_term_id, term_length_bytes=self.setup.term_length_bytes
        )

    def _on_frame(self, frame: StreamFrame) -> None:
        if frame.type == TYPE_SETUP:
            self._setup = SetupFrame.decode(frame.raw)
            self.position = self.recorded_position = self._setup.position
            return
        status, setup = StatusFrame.decode(frame.raw), self.setup
        position = status.position(initial_term_id=setup.initial_term_id, term_length_bytes=setup.term_length_bytes)
        self.recorded_position = max(self.recorded_position, position)
        self._limit_position = self.recorded_position + status.receiver_window_bytes
        self._pulse()

    def _on_message(self, message: Message) -> None:
        signal = messages.RecordingSignal
        if isinstance(message, messages.ControlResponse):
            error = error_of(message)
            if error is not None:
                self._fail(error)
        elif isinstance(message, messages.RecordingSignalEvent):
            if message.signal in (signal.START, signal.EXTEND):
                self.recording_id, self.subscription_id = message.recording_id, message.subscription_id
            elif message.signal is signal.STOP and message.recording_id == self.recording_id:
                self.recorded_position = max(self.recorded_position, message.position)
                self._fail(
                    ArchiveError(
                        "recording was stopped",
                        code=ArchiveErrorCode.CLOSED,
                        recording_id=self.recording_id,
                        position=message.position,
                    )
                )

    def _fail(self, error: ClusterError) -> None:
        if self._failure is None:
            self._failure = error
        self._pulse()

    def _pulse(self) -> None:
        """Wake everybody who waits now."""
        self._changed.set()
        self._changed.clear()


def _checksum(payload: ReadableBuffer, kind: ChecksumKind) -> int:
    """The checksum of a payload with its padding, signed."""
    compute = kind.compute
    return wrap_int32(compute(_PADDING[: -(HEADER_LENGTH + len(payload)) & 31], compute(payload)))
