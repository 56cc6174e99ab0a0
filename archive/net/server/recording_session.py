"""The archive's end of a publication: frames come in, are checked and recorded, and go out again as the live stream.

The publisher is told with status frames up to where the recording is durable, and may be `WINDOW_BYTES` ahead of that.
The live stream carries what is durable, and nothing that a crash could take back: what is appended waits here until
then, for as long as anybody has joined. A subscriber that does not keep up is left behind, and told; it replays then.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import structlog

from ....service_api.errors import RemoteProtocolError
from ....service_api.types import NULL_VALUE
from ....service_api.wire.frame import HEADER_LENGTH, TYPE_PADDING, unpack_header
from ....service_api.wire.link_frames import StatusFrame
from ....service_api.wire.log.log_rules import Before
from ...errors import ArchiveError, ArchiveErrorCode
from ...format.frame_rules import frame_rules_of
from ...format.messages import RecordingSignal
from ...store.recording import Recording
from ..control import announce, is_control_frame_next
from .control_session import ControlSession, Stream
from .recording_events import RecordingEvents

WINDOW_BYTES: Final = 4 << 20
"""How far a publisher may be ahead of what is durable, not counting the message that it is sending."""

LIVE_BUFFER_BYTES: Final = 4 << 20
"""How much a subscriber of the live stream may leave unread."""

PADDING_PARTS: Final = 4
"""A padding frame takes a quarter of a term at most: no message is longer than an eighth, with its headers."""

_log = structlog.get_logger(__name__)


class RecordingSession(Stream):
    """One publication: what its connection carries. It ends with its connection, or when somebody stops it."""

    def __init__(
        self,
        session: ControlSession,
        recording: Recording,
        *,
        correlation_id: int,
        events: RecordingEvents,
        publications: dict[int, RecordingSession],
    ) -> None:
        self.recording: Final = recording
        self.descriptor: Final = recording.descriptor
        self.subscription_id: Final = correlation_id
        self._events = events
        self._publications = publications
        """What is published at the server, by recording id: this is among them until it is stopped."""
        self._session = session
        self._correlation_id = correlation_id
        self._rules = frame_rules_of(self.descriptor)
        self._before = Before.UNKNOWN
        self._setup = announce(self.descriptor, recording.append_position, self.descriptor.session_id)
        self._subscribers: dict[LiveSubscription, None] = {}
        self._unrecorded: deque[tuple[int, bytes]] = deque()
        """What is appended and not durable, each chunk with the position where it ends; only for subscribers."""
        self._is_stopping = False
        recording.on_recorded = self._on_recorded
        recording.on_failed = self._on_failed

    def __repr__(self) -> str:
        return f"<RecordingSession {self.recording!r} subscribers={len(self._subscribers)}>"

    @property
    def recording_id(self) -> int:
        """The recording that is made."""
        return self.recording.recording_id

    def begin(self, signal: RecordingSignal) -> None:
        """Send the publisher the recording's id, its setup frame and its status."""
        position = self.recording.append_position
        self._tell(signal, position)
        self._session.write(self._setup.encode())
        self._send_status()
        self._events.started(self.descriptor, position)

    # --- the stream of its connection

    def take(self, buffer: bytearray) -> bool:
        """Record the whole frames at the front of the buffer.

        Raises:
            RemoteProtocolError: the next one is not as it has to be.
            ArchiveError: the disk refused; the publisher has been told.
        """
        recording = self.recording
        if len(buffer) < HEADER_LENGTH or is_control_frame_next(buffer):
            return False
        data, offset = bytes(buffer), 0
        if recording.failure is not None:
            buffer.clear()  # it was stopped: what was on its way is lost, and the publisher knows
            return False
        while True:
            end, last, following = self._rules.skip_valid_frames(
                data, offset, recording.append_position, len(data), self._before
            )
            if last is None:
                break
            chunk = data[offset:end]
            if not self._append(chunk):
                buffer.clear()
                return False
            offset, self._before = end, following
        if not offset:
            self._refuse_wrong(data)
            return False
        recording.flush()
        del buffer[:offset]
        return True

    async def wait_for_room(self) -> None:
        """Wait while the publisher is further ahead than it may be."""
        recording = self.recording
        try:
            await recording.wait_recorded(recording.append_position - WINDOW_BYTES)
        except ArchiveError:
            return  # it was stopped, or has failed: the publisher has been told

    def on_status(self, status: StatusFrame) -> None:
        """A publisher has nothing to say about positions.

        Raises:
            RemoteProtocolError: always.
        """
        raise RemoteProtocolError("unexpected status frame: this connection is a publication")

    def on_keep_alive(self) -> None:
        """Send the status again: an earlier one may have been left out."""
        self._send_status()

    async def aclose(self) -> None:
        """The publisher is gone: the recording ends with what it had sent."""
        await self.stop()

    # --- others

    def join(self, session: ControlSession) -> LiveSubscription:
        """Send a session the live stream, from the next appended frame on."""
        subscription = LiveSubscription(self, session, self.recording.append_position)
        self._subscribers[subscription] = None
        session.write(announce(self.descriptor, subscription.position, self.descriptor.session_id).encode())
        return subscription

    def leave(self, subscription: LiveSubscription) -> None:
        """Take a session off the live stream."""
        self._subscribers.pop(subscription, None)
        if not self._subscribers:
            self._unrecorded.clear()

    async def stop(self) -> bool:
        """Make everything durable, stop the recording and tell everybody; False if it was stopped before."""
        if self._is_stopping:
            return False
        self._is_stopping = True
        try:
            position = await self.recording.stop()
        except ArchiveError as error:
            _log.warning("recording_session.stop_failed", session=repr(self), reason=str(error))
            return False
        finally:
            self._publications.pop(self.recording_id, None)
        self._tell(RecordingSignal.STOP, position)
        self._events.stopped(self.descriptor, position)
        for subscription in [*self._subscribers]:
            subscription.end(RecordingSignal.STOP, position)
        return True

    # --- what happens to the recording

    def _append(self, chunk: bytes) -> bool:
        try:
            self.recording.append(chunk)
        except ArchiveError:
            return False  # `on_failed` has told the publisher
        if self._subscribers:
            self._unrecorded.append((self.recording.append_position, chunk))
        return True

    def _on_recorded(self, position: int) -> None:
        self._send_status()
        unrecorded = self._unrecorded
        ready: list[tuple[int, bytes]] = []
        while unrecorded and unrecorded[0][0] <= position:
            ready.append(unrecorded.popleft())
        for subscription in [*self._subscribers] if ready else []:
            subscription.send(ready)
        self._events.progress(self.descriptor, position)

    def _on_failed(self, failure: BaseException) -> None:
        error = ArchiveError(
            f"recording failed: {failure}", code=ArchiveErrorCode.STORAGE_FAILED, recording_id=self.recording_id
        )
        self._session.refuse(error, self._correlation_id)
        for subscription in [*self._subscribers]:
            subscription.drop(error)

    def _send_status(self) -> None:
        """Say how far it is, unless a lot of this lies unread: then it is said with the next keep-alive."""
        if self._session.buffered_bytes < WINDOW_BYTES >> 4:
            status = StatusFrame.at_position(
                self.recording.recorded_position, setup=self._setup, receiver_window_bytes=WINDOW_BYTES
            )
            self._session.write(status.encode())

    def _tell(self, signal: RecordingSignal, position: int) -> None:
        self._session.signal(
            signal,
            recording_id=self.recording_id,
            position=position,
            subscription_id=self.subscription_id,
            correlation_id=self._correlation_id,
        )

    def _refuse_wrong(self, data: bytes) -> None:
        """Raise if the frame at the front is wrong, and not just incomplete."""
        position = self.recording.append_position
        header = unpack_header(data)
        fault = self._rules.find_fault_so_far(header, data, 0, position, before=self._before)
        limit = self._rules.term_length_bytes // PADDING_PARTS
        if fault is None and header.type == TYPE_PADDING and header.frame_length > limit:
            fault = f"padding too long: frame_length={header.frame_length} limit={limit}"
        if fault is not None:
            raise RemoteProtocolError(f"published frame at position={position}: {fault}")


class LiveSubscription(Stream):
    """One session that has joined a live stream, as what its connection carries."""

    def __init__(self, source: RecordingSession, session: ControlSession, position: int) -> None:
        self.position: Final = position
        """Where the stream begins for it."""
        self._source = source
        self._session = session

    def __repr__(self) -> str:
        return f"<LiveSubscription recording={self._source.recording_id} position={self.position}>"

    def send(self, chunks: list[tuple[int, bytes]]) -> None:
        """Pass on what became durable; leave the session behind when it has too much unread."""
        data = b"".join(chunk for end, chunk in chunks if end > self.position)
        if self._session.buffered_bytes + len(data) > LIVE_BUFFER_BYTES:
            self.drop(
                ArchiveError(
                    f"too slow for the live stream: buffered_bytes={self._session.buffered_bytes}",
                    code=ArchiveErrorCode.UNKNOWN_SUBSCRIPTION,
                    recording_id=self._source.recording_id,
                )
            )
        else:
            self._session.write(data)

    def drop(self, error: ArchiveError) -> None:
        """End the stream, and say why."""
        self._detach()
        self._session.refuse(error, NULL_VALUE)

    def end(self, signal: RecordingSignal, position: int) -> None:
        """End the stream where the recording ends."""
        self._detach()
        self._session.signal(signal, recording_id=self._source.recording_id, position=position)

    async def aclose(self) -> None:
        """Leave the stream."""
        self._source.leave(self)

    def _detach(self) -> None:
        self._source.leave(self)
        if self._session.stream is self:
            self._session.stream = None
