"""Reading the stream of frames that an archive sends on a connection: a replay, or a live stream.

Every frame is checked on its way, against the place where it has to be and with its checksum where the recording has
them, so what comes out is what was recorded, without a gap. A stream ends where the archive says that it does.
"""

from __future__ import annotations

from typing import Final

from ...service_api.errors import RemoteProtocolError
from ...service_api.types import NULL_POSITION, RecordingId
from ...service_api.wire.frame import HEADER_LENGTH, TYPE_SETUP, unpack_header
from ...service_api.wire.frame_rules import FrameRules
from ...service_api.wire.link_frames import SetupFrame, StatusFrame
from ...service_api.wire.log.log_rules import Before
from ...service_api.wire.message import Message
from ...service_api.wire.stream import StreamFrame
from ..errors import ArchiveError
from ..format import messages
from .connection import ArchiveConnection
from .control import ALL_LENGTH, FOLLOW_LENGTH, error_of, is_control_frame_next, rules_of

TERM_LENGTH_LIMIT_BYTES: Final = 1 << 30
"""The longest term there is. Source: Aeron `LogBufferDescriptor.TERM_MAX_LENGTH`."""


class FrameStream:
    """Chunks of whole, checked frames from one connection; made by `open_replay` or `open_live`."""

    def __init__(self, connection: ArchiveConnection, rules: FrameRules | None = None) -> None:
        self.connection: Final = connection
        self.position = NULL_POSITION
        """Where the next chunk begins."""
        self.setup: SetupFrame | None = None
        self.end_signal: messages.RecordingSignal | None = None
        """Why the stream ended: SYNC where it was to end, STOP where the recording did."""
        self._rules = rules
        self._before = Before.UNKNOWN
        self._error: ArchiveError | None = None
        connection.on_frame = self._on_frame
        connection.on_message = self._on_message

    def __repr__(self) -> str:
        return f"<FrameStream {self.connection.endpoint} position={self.position} end={self.end_signal}>"

    @property
    def rules(self) -> FrameRules:
        """What the frames are like; known once the stream has begun."""
        assert self._rules is not None
        return self._rules

    async def begin(self, timeout_s: float | None) -> None:
        """Wait until the archive has said what follows.

        Raises:
            ArchiveError: it has refused, or is gone.
            ClusterTimeoutError: it says nothing for `timeout_s`.
        """
        while self.setup is None:
            self._raise_refusal()
            await self.connection.wait_for_data(timeout_s)

    async def read(self, timeout_s: float | None = None) -> bytes:
        """Return the next chunk, which lies in one term and begins at `position` as it was before; b"" at the end.

        Raises:
            ArchiveError: what the archive said, or it is gone.
            RemoteProtocolError: a frame is not valid; everything before it was given.
            ClusterTimeoutError: nothing came for `timeout_s`; None waits as long as the archive is there.
        """
        while True:
            length = self._checked_length()
            if length:
                buffer = self.connection.buffer
                chunk = bytes(memoryview(buffer)[:length])
                del buffer[:length]
                self.position += length
                return chunk
            if self.end_signal is not None:
                return b""
            self._raise_refusal()
            if not self._take_control_frame():
                await self.connection.wait_for_data(timeout_s)

    def limit(self, position: int) -> None:
        """Raise the limit of a bounded replay to `position`."""
        assert self.setup is not None
        if self.connection.failure is None:
            self.connection.write(StatusFrame.at_position(position, setup=self.setup).encode())

    def _take_control_frame(self) -> bool:
        buffer = self.connection.buffer
        if len(buffer) < HEADER_LENGTH or not is_control_frame_next(buffer):
            return False
        return self.connection.take_control_frame()

    def _checked_length(self) -> int:
        """Check the whole frames at the front of the buffer, up to the end of a term; give their length."""
        rules, buffer, position = self.rules, self.connection.buffer, self.position
        length, last, self._before = rules.skip_valid_frames(buffer, 0, position, len(buffer), self._before)
        if last is not None or len(buffer) < HEADER_LENGTH or is_control_frame_next(buffer):
            return length
        header = unpack_header(buffer)
        fault = rules.find_fault_so_far(header, buffer, 0, position, before=self._before)
        if fault is not None:
            raise RemoteProtocolError(f"replayed frame at position={position}: {fault}")
        return 0

    def _raise_refusal(self) -> None:
        if self._error is not None:
            raise self._error

    def _on_frame(self, frame: StreamFrame) -> None:
        if frame.type != TYPE_SETUP or self.setup is not None:
            raise RemoteProtocolError(f"unexpected frame in a stream: type={frame.type}")
        setup = SetupFrame.decode(frame.raw)
        if setup.term_length_bytes > TERM_LENGTH_LIMIT_BYTES:
            raise RemoteProtocolError(f"setup: term_length={setup.term_length_bytes} limit={TERM_LENGTH_LIMIT_BYTES}")
        self.setup, self.position = setup, setup.position
        if self._rules is None:
            self._rules = rules_of(setup)
        self.connection.is_stream = True

    def _on_message(self, message: Message) -> None:
        if isinstance(message, messages.ControlResponse):
            self._error = error_of(message)
        elif isinstance(message, messages.RecordingSignalEvent) and self.setup is not None:
            if message.position != self.position:
                raise RemoteProtocolError(f"stream ends early: position={self.position} expected={message.position}")
            self.end_signal = message.signal


async def open_replay(
    connection: ArchiveConnection,
    recording_id: int,
    *,
    position: int | None,
    stop_position: int | None,
    follow: bool,
    limit_counter_id: int | None = None,
    rules: FrameRules | None = None,
    timeout_s: float | None = None,
) -> FrameStream:
    """Ask for the replay of a recording: from its start without a `position`, to its end without a `stop_position`,
    going on as it grows with `follow`.

    With `limit_counter_id` the replay is bounded: by the recorded position of the recording of that id, or, for
    `NULL_VALUE`, by what `FrameStream.limit` says, from `position` on. `rules` are what the frames have to be like, by
    default what the archive says that they are.

    Raises:
        ArchiveError: what the archive answered, or it is gone.
    """
    stream = FrameStream(connection, rules)
    first = NULL_POSITION if position is None else position
    if stop_position is None:
        length = FOLLOW_LENGTH if follow else ALL_LENGTH
    else:
        length = stop_position - max(first, 0)
    bounded = limit_counter_id is not None
    await connection.ask(
        messages.BoundedReplayRequest if bounded else messages.ReplayRequest,
        recording_id=RecordingId(recording_id),
        position=first,
        length=length,
        replay_stream_id=0,
        **({"limit_counter_id": limit_counter_id} if bounded else {}),
    )
    await stream.begin(timeout_s)
    return stream


async def open_live(
    connection: ArchiveConnection, descriptor: messages.RecordingDescriptorRow, *, timeout_s: float | None = None
) -> FrameStream:
    """Join the live stream of an active recording: its frames from now on, as they become durable.

    Raises:
        ArchiveError: UNKNOWN_SUBSCRIPTION, it is not published there just now; or the archive is gone.
    """
    stream = FrameStream(connection)
    status = StatusFrame(session_id=descriptor.session_id, stream_id=descriptor.stream_id)
    connection.write(status.encode())
    await stream.begin(timeout_s)
    return stream
