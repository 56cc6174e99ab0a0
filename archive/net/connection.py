"""The dialer's end of an archive connection: a control session, requests in flight, and at most one stream of frames.

No task runs here: bytes are handled as they arrive, and a timer keeps the session alive. Requests may be in flight side
by side, each with its own correlation id and its own timeout. Once a stream of frames has begun its bytes stay in
`buffer` until its reader takes them. Bounds: one control frame of 64 KiB; of a stream `STREAM_BUFFER_BYTES` and
what one arrival brings, beyond which the socket is not read. The archive is given up, and every wait ends with the
reason, when the connection breaks or `UNANSWERED_LIMIT` keep-alives in a row go without any byte from it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self, cast

from ...service_api.access.credentials import (
    CREDENTIALS_ADVICE,
    CredentialsSupplier,
    advise,
    describe_unanswered,
    expect_credentials,
)
from ...service_api.cluster_id import NULL_CLUSTER_ID, ClusterId
from ...service_api.endpoint import Endpoint
from ...service_api.errors import ClusterError, ClusterTimeoutError, RemoteProtocolError
from ...service_api.net.transport import NetworkStack, Purpose
from ...service_api.types import NULL_VALUE, CorrelationId
from ...service_api.wire.frame import TYPE_DATA
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.message import Message, decode_message, registry_of
from ...service_api.wire.stream import StreamFrame
from ..errors import ArchiveError, ArchiveErrorCode
from ..format import messages
from .control import (
    CONTROL_STREAM_ID,
    EVENTS_STREAM_ID,
    PROTOCOL_VERSION,
    RESPONSE_STREAM_ID,
    control_frames,
    encode_request,
    error_of,
)

STREAM_BUFFER_BYTES: Final = 512 << 10
"""More of a stream does not wait: what has arrived should still be in the core's cache when it is looked at."""

RECEIVE_BYTES: Final = 256 << 10
KEEP_ALIVE_INTERVAL_S: Final = 2.0
UNANSWERED_LIMIT: Final = 5

OnChallenge = Callable[[bytes], bytes]
"""Gives the credentials that answer a challenge."""

_MESSAGES: Final = registry_of(
    *messages.CONTROL_RESPONSES.values(),
    messages.RecordingStarted,
    messages.RecordingProgress,
    messages.RecordingStopped,
)


@dataclass(slots=True)
class _Pending:
    """A request that has not been answered in full."""

    answered: asyncio.Future[messages.ControlResponse | None]
    row_limit: int = 0
    """How many rows answer it; 0 where the answer is one response."""
    is_range: bool = False
    """Whether fewer rows are no error."""
    rows: list[Message] = field(default_factory=list)


@dataclass(slots=True, frozen=True, kw_only=True)
class Credentials:
    """How a session proves who it is: what it shows at first, and how it answers when it is asked for more."""

    encoded: bytes = b""
    on_challenge: OnChallenge | None = None
    client_info: str = ""
    """Who this is, for the archive's log; proves nothing."""

    @classmethod
    def of(
        cls, credentials: bytes | CredentialsSupplier, on_challenge: OnChallenge | None = None, client_info: str = ""
    ) -> Self:
        """Make them of what a client is given.

        Raises:
            ConfigurationError: the credentials are of another type, or answer challenges themselves, too.
        """
        expect_credentials(credentials, on_challenge)
        if isinstance(credentials, bytes):
            return cls(encoded=credentials, on_challenge=on_challenge, client_info=client_info)
        return cls(
            encoded=credentials.encoded_credentials(), on_challenge=credentials.on_challenge, client_info=client_info
        )


class ArchiveConnection(asyncio.BufferedProtocol):
    """A control session with an archive; made by `dial`, ended by `close` or `abort`."""

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        self.endpoint: Final = endpoint
        self.buffer: Final = bytearray()
        self._control_frames: Final = control_frames(self.buffer)
        self.is_stream = False
        """Whether what arrives is left in `buffer`: a stream has begun, and its reader takes control frames, too."""
        self.on_message: Callable[[Message], None] = lambda message: None
        """Called with signals, events and refusals that answer no request in flight."""
        self.on_frame: Callable[[StreamFrame], None] = lambda frame: None
        """Called with setup and status frames."""
        self.on_lost: Callable[[ClusterError], None] = lambda error: None
        """Called once, when nothing can come any more."""
        self.failure: ClusterError | None = None
        """Why nothing can come any more."""
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._timeout_s = timeout_s
        self._control_session_id = NULL_VALUE
        self._correlation_ids = itertools.count(1)
        self._pending: dict[int, _Pending] = {}
        self._transport: asyncio.Transport | None = None
        self._arrival: asyncio.Future[None] | None = None
        self._is_paused = False
        self._unanswered_count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<ArchiveConnection {self.endpoint} control_session_id={self._control_session_id}>"

    @classmethod
    async def dial(
        cls,
        network: NetworkStack,
        endpoint: Endpoint,
        *,
        credentials: Credentials,
        timeout_s: float,
        connect_timeout_s: float | None = None,
        wants_events: bool = False,
        cluster_id: ClusterId = NULL_CLUSTER_ID,
    ) -> Self:
        """Connect and open a control session; with `wants_events` it is told of every recording.

        `timeout_s` bounds every answer, and the dial unless `connect_timeout_s` is given.

        An archive of another cluster than `cluster_id`, or than the one that the own certificate names, refuses.

        Raises:
            ArchiveError: REPLICATION_CONNECTION_FAILURE, AUTHENTICATION_REJECTED, or what the archive answered.
            ClusterTimeoutError: the archive does not answer.
        """
        try:
            async with asyncio.timeout(timeout_s if connect_timeout_s is None else connect_timeout_s):
                _, protocol = await network.dial(Purpose.ARCHIVE, endpoint, lambda: cls(endpoint, timeout_s=timeout_s))
        except (OSError, TimeoutError) as error:
            raise ArchiveError(
                f"archive not reached: endpoint={endpoint} {error!r}",
                code=ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE,
            ) from error
        try:
            protocol._begin(cluster_id or network.cluster_id)
            await protocol._open_session(credentials, EVENTS_STREAM_ID if wants_events else RESPONSE_STREAM_ID)
        except BaseException:
            protocol.abort()
            raise
        return protocol

    # --- asking

    async def ask(
        self,
        request: type[Message],
        *,
        timeout_s: float | None = None,
        **fields: Any,  # those of the request
    ) -> messages.ControlResponse:
        """Send a request and wait for its answer, at most `timeout_s` seconds, else the connection's own timeout.

        Raises:
            ArchiveError: the archive refused, with its code, recording id, position and reason; or it is gone.
            ClusterTimeoutError: no answer came.
        """
        response = await self._exchange(request, fields, row_limit=0, is_range=False, timeout_s=timeout_s)
        assert isinstance(response, messages.ControlResponse)
        return response

    async def ask_rows(
        self,
        request: type[Message],
        row_limit: int,
        *,
        is_range: bool,
        **fields: Any,  # those of the request
    ) -> list[Message]:
        """Send a request that is answered with up to `row_limit` messages; with fewer only where it `is_range`."""
        rows = await self._exchange(request, fields, row_limit=row_limit, is_range=is_range, timeout_s=None)
        assert isinstance(rows, list)
        return rows

    async def _exchange(
        self,
        request: type[Message],
        fields: dict[str, Any],
        *,
        row_limit: int,
        is_range: bool,
        timeout_s: float | None,
    ) -> messages.ControlResponse | list[Message]:
        if self.failure is not None:
            raise self.failure
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        correlation_id = next(self._correlation_ids)
        pending = _Pending(asyncio.get_running_loop().create_future(), row_limit, is_range)
        self._pending[correlation_id] = pending
        try:
            async with asyncio.timeout(limit_s):
                self._send(request, correlation_id, fields)
                response = await pending.answered
        except TimeoutError as error:
            raise ClusterTimeoutError(
                f"archive did not answer: endpoint={self.endpoint} request={request.__name__} timeout_s={limit_s}"
            ) from error
        finally:
            self._pending.pop(correlation_id, None)
        return pending.rows if response is None else response

    def _send(self, request: type[Message], correlation_id: int, fields: dict[str, Any]) -> None:
        model: Any = request  # which fields it has is its own affair
        if "control_session_id" in request.model_fields:
            fields = {"control_session_id": self._control_session_id, **fields}
        self.write(encode_request(model(correlation_id=CorrelationId(correlation_id), **fields)))

    def _begin(self, cluster_id: ClusterId) -> None:
        """Say what the connection is for, and which cluster is meant."""
        self.write(SetupFrame(session_id=0, stream_id=CONTROL_STREAM_ID, cluster_id=cluster_id).encode())

    async def _open_session(self, credentials: Credentials, response_stream_id: int) -> None:
        self.on_message = lambda message: self._on_challenge(message, credentials)
        try:
            response = await self.ask(
                messages.AuthConnectRequest,
                response_stream_id=response_stream_id,
                version=PROTOCOL_VERSION,
                encoded_credentials=credentials.encoded,
                client_info=credentials.client_info,
            )
        except ArchiveError as error:
            if error.code is not ArchiveErrorCode.AUTHENTICATION_REJECTED or not advise(credentials.encoded):
                raise
            raise ArchiveError(f"{error.message}: {advise(credentials.encoded)}", code=error.code) from error
        self.on_message = lambda message: None
        self._control_session_id = response.control_session_id
        self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_INTERVAL_S, self._keep_alive)

    def _on_challenge(self, message: Message, credentials: Credentials) -> None:
        if not isinstance(message, messages.ArchiveChallenge):
            return
        if credentials.on_challenge is None:
            self._fail(
                ArchiveError(
                    f"archive: {describe_unanswered(credentials.encoded)}: {CREDENTIALS_ADVICE}",
                    code=ArchiveErrorCode.AUTHENTICATION_REJECTED,
                )
            )
            return
        answer = messages.ArchiveChallengeResponse(
            control_session_id=message.control_session_id,
            correlation_id=message.correlation_id,
            encoded_credentials=credentials.on_challenge(message.encoded_challenge),
        )
        self.write(encode_request(answer))

    def _keep_alive(self) -> None:
        """Say that this end is there; give up one that has been silent for long, unless it was not listened to."""
        if self._unanswered_count >= UNANSWERED_LIMIT and not self._is_paused and not self._pending:
            self._fail(_connection_lost(self.endpoint, f"silent for {UNANSWERED_LIMIT * KEEP_ALIVE_INTERVAL_S} s"))
            return
        self._unanswered_count += 1
        self._send(messages.KeepAliveRequest, next(self._correlation_ids), {})
        self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_INTERVAL_S, self._keep_alive)

    # --- the stream

    def write(self, data: bytes | bytearray) -> None:
        """Send bytes, unless the connection has failed; a caller that sends many bounds them."""
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(data)

    async def wait_for_data(self, timeout_s: float | None) -> None:
        """Return when more has arrived than is in `buffer` now; for the one reader of the stream.

        Raises:
            ArchiveError: nothing can come any more.
            ClusterTimeoutError: nothing came for `timeout_s`.
        """
        if self.failure is not None:
            raise self.failure
        if self._is_paused:
            self._is_paused = False
            assert self._transport is not None
            self._transport.resume_reading()
        self._arrival = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrival
        except TimeoutError as error:
            raise ClusterTimeoutError(
                f"archive did not answer: endpoint={self.endpoint} timeout_s={timeout_s}"
            ) from error
        finally:
            self._arrival = None

    def take_control_frame(self) -> bool:
        """Handle the control frame at the front of `buffer`; False while it is incomplete.

        Raises:
            RemoteProtocolError: it is none.
        """
        frame = self._control_frames.take()
        if frame is None:
            return False
        if frame.type != TYPE_DATA:
            self.on_frame(frame)
        elif frame.stream_id in (RESPONSE_STREAM_ID, EVENTS_STREAM_ID):
            self._on_message(decode_message(frame.payload, registry=_MESSAGES))
        else:
            raise RemoteProtocolError(f"unexpected frame: stream_id={frame.stream_id} expected={RESPONSE_STREAM_ID}")
        return True

    def _on_message(self, message: Message) -> None:
        pending = self._pending.get(getattr(message, "correlation_id", NULL_VALUE))
        if pending is None or pending.answered.done():
            refusal = error_of(message) if isinstance(message, messages.ControlResponse) else None
            if refusal is not None and getattr(message, "correlation_id", NULL_VALUE) == NULL_VALUE:
                self._fail(refusal)
            elif refusal is not None or not isinstance(message, messages.ControlResponse | messages.Ping):
                self.on_message(message)
        elif isinstance(message, messages.RecordingDescriptorRow | messages.RecordingSubscriptionDescriptor):
            if not pending.row_limit:
                raise RemoteProtocolError(f"unexpected answer: {message.WIRE_NAME} expected ControlResponse")
            pending.rows.append(message)
            if len(pending.rows) >= pending.row_limit:
                pending.answered.set_result(None)
        elif isinstance(message, messages.ControlResponse):
            self._answer(pending, message)
        else:
            self.on_message(message)

    def _answer(self, pending: _Pending, response: messages.ControlResponse) -> None:
        code = messages.ControlResponseCode
        if pending.is_range and response.code in (code.RECORDING_UNKNOWN, code.SUBSCRIPTION_UNKNOWN):
            pending.answered.set_result(None)
            return
        refusal = error_of(response)
        if refusal is not None:
            pending.answered.set_exception(refusal)
        elif pending.row_limit:
            raise RemoteProtocolError("unexpected answer: ControlResponse code=OK expected rows")
        else:
            pending.answered.set_result(response)

    # --- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but not the base class

    def get_buffer(self, sizehint: int) -> memoryview:
        """Give the loop room to receive into: else it would make a new object of all that comes."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Handle control frames; leave a stream to its reader."""
        self._unanswered_count = 0
        self.buffer.extend(self._room[:nbytes])
        try:
            while not self.is_stream and self.failure is None and self.take_control_frame():
                pass
        except ClusterError as error:
            self._fail(error)
            return
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
        if len(self.buffer) > STREAM_BUFFER_BYTES and not self._is_paused and self.failure is None:
            # Also when the reader is about to run: a loop may receive many times before it lets it.
            assert self._transport is not None
            self._is_paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """End every wait."""
        self._fail(_connection_lost(self.endpoint, "closed by the archive" if exc is None else repr(exc)))

    def close(self) -> None:
        """End the session and the connection; what was written is sent."""
        if self.failure is None:
            closing = messages.CloseSessionRequest(control_session_id=self._control_session_id)
            self.write(encode_request(closing))
            assert self._transport is not None
            self._transport.close()
        self._fail(_closed(self.endpoint))

    def abort(self) -> None:
        """End the connection now."""
        self._fail(_closed(self.endpoint))
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: ClusterError) -> None:
        """Let nothing come any more; only the first reason counts."""
        if self.failure is not None:
            return
        self.failure = error
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()
        for pending in self._pending.values():
            if not pending.answered.done():
                pending.answered.set_exception(error)
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_exception(error)
        self.on_lost(error)


def _connection_lost(endpoint: Endpoint, reason: str) -> ArchiveError:
    return ArchiveError(
        f"archive connection lost: endpoint={endpoint} {reason}", code=ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
    )


def _closed(endpoint: Endpoint) -> ArchiveError:
    return ArchiveError(f"archive connection was closed here: endpoint={endpoint}", code=ArchiveErrorCode.CLOSED)
