"""The log links: the leader sends the log to every follower, and a follower receives it.

The leader dials each follower's log endpoint and announces the log session with a setup frame. The follower answers
with a status frame once its election has come that far; from then on the leader's chunks flow, the same `bytes`
objects that go to the recording. A follower that cannot keep up is dropped and has to come back through catch-up from
the archive: memory stays bounded, and one slow member never holds up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from ....service_api import RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.endpoint import Endpoint
from ....service_api.net.connection_gate import AcceptedConnection, ConnectionGate
from ....service_api.net.transport import Listener, NetworkStack, Purpose, as_member_transport, as_stream_transport
from ....service_api.types import LOG_STREAM_ID, MemberId
from ....service_api.wire.client_end import WRONG_PORT_ID, encode_client_end, find_wrong_port
from ....service_api.wire.frame import TYPE_STATUS
from ....service_api.wire.link_frames import SetupFrame, StatusFrame, encode_commit_frame
from ....service_api.wire.stream import FrameParser
from ...core.log.log_buffer import LogBuffer
from ...core.log.log_receiver import LogReceiver
from ...core.vocabulary.roster import Roster
from ..ground.activities import ActivityScope
from .dialling import DialledMembers
from .speaker import audited, expect_own_cluster, expect_speaker

_SEND_LIMIT_BYTES: Final = 32 << 20
"""What may wait for a follower that does not read; beyond it the follower is dropped to catch-up."""

_RECEIVE_BUFFER_BYTES: Final = 512 << 10
_SETUP_BYTES: Final = 64
_WAITING_IMAGE_LIMIT: Final = 4
"""Images kept while they wait to be opened: of former leaders' links nobody will hear."""

logger = structlog.get_logger()


class LogPublication:
    """Leader: the log links to every follower, for one leadership term."""

    def __init__(
        self,
        setup: Callable[[int], SetupFrame],
        log_buffer: LogBuffer,
        *,
        leadership_term_id: int,
        on_live_joined: Callable[[MemberId, int], None],
    ) -> None:
        self._setup = setup
        self._leadership_term_id = leadership_term_id
        self._log_buffer = log_buffer
        self._on_live_joined = on_live_joined
        self._links: dict[MemberId, _LogLink] = {}
        """In order of the ids: those that the leader waits for come before those that are spare."""
        self._dialled = DialledMembers(Purpose.LOG, partial(_LogLink, self), drop=self._abort)

    def __repr__(self) -> str:
        return f"<LogPublication joined={sorted(self._links)}>"

    def dial(self, network: NetworkStack, followers: Mapping[MemberId, Endpoint], tasks: ActivityScope) -> None:
        """Dial these followers from now on, and no others."""
        self._dialled.dial(network, followers, tasks)

    def send(self, chunks: list[bytes], commit_position: int | None) -> None:
        """Send newly appended chunks to every follower that has joined, and how far the log is committed if it is news.

        The two in one write, and one wake-up of the follower: in a message of its own the position would cost both
        sides as much again as the log.
        """
        if commit_position is not None:
            chunks = [encode_commit_frame(self._leadership_term_id, commit_position), *chunks]
        for link in [*self._links.values()]:
            link.send(chunks)

    def close(self) -> None:
        """Stop dialling and drop every link."""
        self._dialled.close()
        for link in [*self._links.values()]:
            link.abort()
        self._links.clear()

    def _abort(self, member_id: MemberId) -> None:
        if member_id in self._links:
            self._links[member_id].abort()


class _LogLink(asyncio.Protocol):
    """Leader: the log link to one follower."""

    def __init__(self, publication: LogPublication, member_id: MemberId, closed: asyncio.Future[None]) -> None:
        self._publication = publication
        self._member_id = member_id
        self._closed = closed
        self._parser = FrameParser()
        self._transport: asyncio.Transport | None = None
        self._is_encrypted = False
        self._setup: SetupFrame | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is there."""
        self._transport = as_member_transport(transport)
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        self._setup = self._publication._setup(self._publication._log_buffer.append_position)
        self._transport.write(self._setup.encode())

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        links = self._publication._links
        if links.get(self._member_id) is self:
            del links[self._member_id]
        if not self._closed.done():
            self._closed.set_result(None)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._parser.feed(data):
                if frame.type == TYPE_STATUS:
                    self._join(StatusFrame.decode(frame.raw))
        except RemoteProtocolError as error:
            logger.warning("log_link.refused", peer_member_id=self._member_id, reason=str(error))
            self.abort()

    def send(self, chunks: list[bytes]) -> None:
        """Send chunks, or give the follower up when it does not read."""
        transport = self._transport
        assert transport is not None
        if transport.is_closing():
            return  # it failed or was dropped, and `connection_lost` is still to come; uvloop would raise
        if transport.get_write_buffer_size() > _SEND_LIMIT_BYTES:
            logger.warning(
                "log_link.dropped",
                peer_member_id=self._member_id,
                waiting_bytes=transport.get_write_buffer_size(),
            )
            self.abort()
            return
        if len(chunks) == 1:
            transport.write(chunks[0])
        elif self._is_encrypted:
            transport.write(b"".join(chunks))  # each write is a record of its own: 1 us, a copy of 64 KiB less
        else:
            transport.writelines(chunks)

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _join(self, status: StatusFrame) -> None:
        """Begin to send from the position that the follower names; what is older than the window it must catch up."""
        publication, setup = self._publication, self._setup
        log_buffer = publication._log_buffer
        assert setup is not None
        position = status.position(initial_term_id=setup.initial_term_id, term_length_bytes=setup.term_length_bytes)
        if not log_buffer.base_position <= position <= log_buffer.append_position:
            raise RemoteProtocolError(
                f"log link joined at position={position} "
                f"expected={log_buffer.base_position}..{log_buffer.append_position}: catch up first"
            )
        chunks = list(log_buffer.chunks_from(position))
        pending = log_buffer.append_position - log_buffer.flushed_position
        publication._links = dict(sorted({**publication._links, self._member_id: self}.items()))
        # Chunks that are still pending will be sent with the next flush, to every link at once.
        joined = b"".join(chunks)
        if pending:
            joined = joined[: len(joined) - pending]
        if joined:
            self.send([joined])
        publication._on_live_joined(self._member_id, position)


class LogImage(asyncio.BufferedProtocol):
    """Follower: one incoming stream of log frames, from the live log or from a catch-up replay.

    The setup frame comes first and is offered to `on_setup`. What comes before `open` waits in the receive buffer, and
    reading stops when that is full. Until then a waiting image is read, although nothing may come on it: a link that is
    not read is not seen to close.
    """

    def __init__(
        self,
        accepted: AcceptedConnection,
        check_setup: Callable[[AcceptedConnection, SetupFrame], str | None],
        on_setup: Callable[[LogImage], None],
        on_closed: Callable[[LogImage, str], None],
        on_frames: Callable[[tuple[int, int] | None], None],
    ) -> None:
        self._accepted = accepted
        accepted.end = self.abort
        self._check_setup = check_setup
        """Raises for a connection that is refused, and returns the text for a client that is at the wrong port."""
        self._on_setup = on_setup
        self._on_closed = on_closed
        self._on_frames = on_frames
        self._buffer = bytearray(_SETUP_BYTES)
        self._filled = 0
        self._receiver: LogReceiver | None = None
        self._transport: asyncio.Transport | None = None
        self._reason = "connection closed"
        self._is_aborted = False
        self.setup: SetupFrame | None = None

    def __repr__(self) -> str:
        return f"<LogImage setup={self.setup} open={self._receiver is not None}>"

    @property
    def key(self) -> tuple[int, int]:
        """The log session, and the member that sends it, once the setup frame has come."""
        assert self.setup is not None
        return self.setup.session_id, self.setup.member_id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is there."""
        self._transport = as_stream_transport(transport)
        self._accepted.attach(self._transport)
        if self._is_aborted:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._accepted.leave()
        self._on_closed(self, self._reason if exc is None else f"{type(exc).__name__}: {exc}")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the loop receives into."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what the loop has received."""
        if self._is_aborted:
            return
        self._filled += nbytes
        try:
            if self._receiver is not None:
                self._receive(self._receiver)
            elif self.setup is None and self._filled == _SETUP_BYTES:
                self._read_setup()
            elif self._filled == len(self._buffer):
                self._pause()
        except RemoteProtocolError as error:
            self._accepted.log_ended("log_image.refused", str(error))
            self.abort(str(error))

    def open(self, receiver: LogReceiver, *, join_position: int | None) -> None:
        """Take frames from now on; with `join_position`, ask the leader to begin there."""
        assert self._transport is not None
        assert self.setup is not None
        self._receiver = receiver
        if join_position is not None and not self._transport.is_closing():
            self._transport.write(StatusFrame.at_position(join_position, setup=self.setup).encode())
        if self._filled:
            asyncio.get_running_loop().call_soon(self._receive_waiting)

    def abort(self, reason: str) -> None:
        """Drop the connection, for a reason of this side's own."""
        self._reason = reason
        self._is_aborted = True
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def _read_setup(self) -> None:
        setup = SetupFrame.decode(self._buffer)
        wrong_port = self._check_setup(self._accepted, setup)
        if wrong_port is not None:
            self._end_client(wrong_port)
            return
        self.setup = setup
        self._accepted.admit()  # of those that wait to be opened only a few are kept
        self._filled = 0
        self._buffer = bytearray(_RECEIVE_BUFFER_BYTES)
        self._on_setup(self)

    def _end_client(self, reason: str) -> None:
        """Tell a client where the ingress is, and drop what it sends until it has read that."""
        assert self._transport is not None
        # The gate's deadline for a setup frame ends it at the latest. What still comes is dropped: to close with bytes
        # unread would reset the connection, and the reset would overtake the answer.
        self._reason, self._is_aborted, self._filled = reason, True, 0
        self._accepted.log_ended("log_image.refused", reason)
        self._transport.write(encode_client_end(reason, correlation_id=WRONG_PORT_ID))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def _pause(self) -> None:
        assert self._transport is not None
        self._transport.pause_reading()

    def _receive_waiting(self) -> None:
        """Take what came before `open`, as if it came now, and read on; nothing if all is over."""
        if self._receiver is not None:
            self.buffer_updated(0)
        if self._receiver is not None and self._transport is not None:
            self._transport.resume_reading()

    def _receive(self, receiver: LogReceiver) -> None:
        buffer, filled = self._buffer, self._filled
        consumed = receiver.accept(buffer, 0, filled)
        rest = filled - consumed
        if rest:
            needed = receiver.needed_bytes(buffer, consumed, filled)
            if consumed:
                buffer[:rest] = buffer[consumed:filled]
            if needed > len(buffer) == rest:
                # As more comes, and not by what a header says will come: a stranger's may say 1 GiB.
                self._buffer = buffer + bytearray(min(needed, 2 * len(buffer)) - len(buffer))
        self._filled = rest
        if consumed:
            self._on_frames(receiver.take_committed())


class LogSubscription:
    """Follower: the log endpoint or the catch-up endpoint, and the images that came in on it.

    An image is known by its log session and by the member that sends it: a member that is not the leader, and heard of
    the leader's session, cannot take its place.
    """

    def __init__(
        self,
        roster: Roster,
        *,
        cluster_id: Callable[[], int],
        audit: AuditTrail,
        on_frames: Callable[[tuple[int, int] | None], None],
        on_image: Callable[[int], None],
        on_closed: Callable[[int, str], None],
    ) -> None:
        self._roster = roster
        self._cluster_id = cluster_id
        self._audit = audit
        self._on_frames = on_frames
        self._on_image = on_image
        self._on_closed = on_closed
        self._images: dict[tuple[int, int], LogImage] = {}
        """By log session and member."""
        self._connected: dict[LogImage, None] = {}
        """Every connection, also those that have not said of which log they are, or were superseded."""
        self._is_closed = False
        self._open: LogImage | None = None
        self._listener: Listener | None = None

    def __repr__(self) -> str:
        return f"<LogSubscription sessions={sorted(self._images)} open={self._open}>"

    async def start(self, network: NetworkStack, purpose: Purpose, endpoint: Endpoint, *, gate: ConnectionGate) -> None:
        """Listen.

        Raises:
            OSError: the endpoint cannot be listened on.
        """
        self._listener = await network.listen(purpose, endpoint, self._make_image, gate=gate)

    @property
    def is_open(self) -> bool:
        """Whether frames of an image are being taken."""
        return self._open is not None

    def image(self, log_session_id: int, *, sender_id: int | None) -> LogImage | None:
        """The image of a leader's log session that a member sends, if it has connected."""
        return None if sender_id is None else self._images.get((log_session_id, sender_id))

    def open(self, image: LogImage, receiver: LogReceiver, *, join_position: int | None) -> None:
        """Take frames of this image from now on, and of no other; its end will be told."""
        if image is not self._open:
            self.disconnect()
        self._open = image
        image.open(receiver, join_position=join_position)

    def disconnect(self) -> None:
        """Stop taking frames and drop the image that is open; other images stay, waiting."""
        image, self._open = self._open, None
        if image is not None:
            image.abort("disconnected")

    def drop_waiting(self) -> None:
        """Drop every image that is not open."""
        for key, image in [*self._images.items()]:
            if image is not self._open:
                del self._images[key]
                image.abort("not requested")

    def close(self) -> None:
        """Stop listening and drop every connection, also one that is just being made.

        A node that begins again in its process would leave them open, and the leader would not dial it again.
        """
        self._is_closed = True
        if self._listener is not None:
            self._listener.close()
        self._open = None
        for image in [*self._connected]:
            image.abort("closed")

    def _make_image(self, accepted: AcceptedConnection) -> LogImage:
        image = LogImage(accepted, self._check_setup, self._on_setup, self._on_image_closed, self._on_frames)
        self._connected[image] = None
        if self._is_closed:
            image.abort("closed")
        return image

    def _check_setup(self, accepted: AcceptedConnection, setup: SetupFrame) -> str | None:
        wrong_port = find_wrong_port(
            setup, f"the {accepted.purpose.value} port of member {self._roster.member_id}", self._roster.own_ingress
        )
        if wrong_port is not None:
            return wrong_port
        if setup.stream_id != LOG_STREAM_ID:
            raise RemoteProtocolError(f"setup frame: stream_id={setup.stream_id} expected={LOG_STREAM_ID}")
        with audited(self._audit, accepted, setup):
            expect_own_cluster(setup, self._cluster_id())
            expect_speaker(accepted, setup)
        return None

    def _on_setup(self, image: LogImage) -> None:
        key = image.key
        superseded = [self._images.pop(key)] if key in self._images else []
        self._images[key] = image
        waiting = [other for other, kept in self._images.items() if kept is not self._open]
        superseded += [self._images.pop(other) for other in waiting[:-_WAITING_IMAGE_LIMIT]]
        for other in superseded:
            # The open one stays: its end would be an election.
            if other is not self._open:
                other.abort("superseded")
        self._on_image(key[0])

    def _on_image_closed(self, image: LogImage, reason: str) -> None:
        self._connected.pop(image, None)
        if image.setup is None:
            return
        key = image.key
        if self._images.get(key) is image:
            del self._images[key]
        if self._open is image:
            self._open = None
            self._on_closed(key[0], reason)
