"""Asks a member for a document: its status, an inspection or an operation.

A question is a connection to a member's *consensus* endpoint, or to its control socket, whose setup frame names a
stream, for the status `STATUS_STREAM_ID`. The answer is one data frame for each document, of which a status has one,
`MemberStatus`; then the member closes. A status touches no log, session or vote, so a member answers in whatever state
it is, and one that cannot answer shows in how it fails: nobody listens, it is silent, it stops in the middle, it sends
something else. Where the caller may not have the document, the member says who may, and what the caller can do; where
the request fails in the member, it says why. A member that closes without an answer is asked whether it speaks TLS.
`query_documents` tells these apart and always ends in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import StrEnum
from typing import Final

from ...service_api import ClusterError, ConfigurationError, RemoteProtocolError
from ...service_api.cluster_id import (
    NULL_CLUSTER_ID,
    ClusterId,
    describe_other_cluster,
    group_cluster_id,
    parse_cluster_id,
)
from ...service_api.documents.document import DocumentT, Refusal, printable_line, read_document
from ...service_api.documents.member_status import STATUS_LENGTH_LIMIT_BYTES, MemberStatus
from ...service_api.endpoint import Endpoint
from ...service_api.groups.group import ONLY_GROUP, Group
from ...service_api.net.handshake_errors import describe_handshake_error, is_handshake_error
from ...service_api.net.local_socket import why_not_local
from ...service_api.net.transport import SOCKETS, NetworkStack, Purpose, is_local
from ...service_api.types import NULL_VALUE, REFUSAL_STREAM_ID, STATUS_STREAM_ID
from ...service_api.wire.frame import TYPE_DATA, encode_frame
from ...service_api.wire.link_frames import SetupFrame
from ...service_api.wire.stream import FrameParser

_CLOSED: Final = "the connection was closed without an answer"
_CLOSED_IN_PLAIN_TEXT: Final = f"{_CLOSED}: the member uses TLS, and was asked in plain text; name the files of TLS"
_DOCUMENT_LIMIT: Final = 64
"""Documents of one answer that may wait to be looked at."""


class Outcome(StrEnum):
    """What came of asking a member."""

    ANSWERED = "answered"
    REFUSED = "refused"
    """Nobody listens there: the process is down."""
    UNREACHABLE = "unreachable"
    """No way to the endpoint, or a host name that nobody knows."""
    TIMED_OUT = "timed out"
    """Not one byte in time: the process stands still, the machine is gone, or the network is cut."""
    CLOSED = "closed"
    """The connection was closed without an answer: it is stopping, asked by too many, or of an older version."""
    PARTIAL = "partial"
    """The answer began and did not end."""
    OTHER_CLUSTER = "other cluster"
    """A member of another cluster answered than the one that was asked for."""
    NOT_ALLOWED = "not allowed"
    """The member does not give this to the caller; the detail says who may have it, and how the member was asked."""
    FAILED = "failed"
    """The request failed in the member; the detail says why."""
    INVALID = "invalid"
    """Something answered, but not with the status of this member."""


class StatusQueryError(ClusterError):
    """A member was asked and gave no status; `outcome` and `detail` say what happened instead."""

    def __init__(self, outcome: Outcome, detail: str, *, is_for_good: bool = False) -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome
        self.detail = detail
        self.is_for_good = is_for_good
        """True where the caller showed the certificate of a member that was removed."""


async def query_status(
    endpoint: str, timeout_s: float, *, cluster_id: ClusterId = NULL_CLUSTER_ID, network: NetworkStack = SOCKETS
) -> MemberStatus:
    """Ask the member at a consensus endpoint (`host:port`) how it is; takes at most `timeout_s`.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: there was no status to be had, or it is one of another cluster; the error says why.
    """
    payload = await query_document(endpoint, STATUS_STREAM_ID, timeout_s, cluster_id=cluster_id, network=network)
    status = read_answer(MemberStatus, payload)
    expect_cluster(status.cluster_id, status.group, endpoint=endpoint, expected=cluster_id)
    return status


def expect_cluster(found: str | None, group: str, *, endpoint: str, expected: ClusterId) -> None:
    """Hold the cluster id of an answer against the one that was asked for, which may be that of all its groups.

    Raises:
        StatusQueryError: a member of another cluster answered.
    """
    answered = parse_cluster_id(found or "")
    if answered not in (expected, group_cluster_id(expected, _read_group(group))) and expected != NULL_CLUSTER_ID:
        detail = f"{endpoint}: {describe_other_cluster(answered, expected=expected)}"
        raise StatusQueryError(Outcome.OTHER_CLUSTER, printable_line(detail))


def _read_group(text: str) -> Group:
    try:
        return Group.parse(text)
    except ConfigurationError:
        return ONLY_GROUP  # of another version, perhaps: then it is not the group of a cluster that is known here


async def query_document(
    endpoint: str,
    stream_id: int,
    timeout_s: float,
    *,
    request: bytes | None = None,
    length_limit_bytes: int = STATUS_LENGTH_LIMIT_BYTES,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> bytes:
    """Ask the member at a consensus endpoint for the one document that it answers with on a stream.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: there was no document to be had; the error says why.
    """
    asking = query_documents(
        endpoint,
        stream_id,
        timeout_s,
        request=request,
        length_limit_bytes=length_limit_bytes,
        cluster_id=cluster_id,
        network=network,
    )
    async with aclosing(asking) as documents:
        return await anext(documents)


async def query_documents(
    endpoint: str,
    stream_id: int,
    timeout_s: float,
    *,
    request: bytes | None = None,
    length_limit_bytes: int = STATUS_LENGTH_LIMIT_BYTES,
    cluster_id: ClusterId = NULL_CLUSTER_ID,
    network: NetworkStack = SOCKETS,
) -> AsyncGenerator[bytes, None]:
    """Ask the member at a consensus endpoint, and give the documents of its answer as they come: one at least.

    `timeout_s` bounds all of it, what the caller does between two documents included. A member of another cluster than
    `cluster_id`, or than the one that the own certificate names, refuses.

    Raises:
        ConfigurationError: the endpoint is none.
        StatusQueryError: there was no document to be had, or the answer stopped in the middle of one.
    """
    address = Endpoint.parse(endpoint)
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    setup = SetupFrame(session_id=NULL_VALUE, stream_id=stream_id, cluster_id=cluster_id or network.cluster_id)
    reader = _AnswerReader(address, setup, request, length_limit_bytes, network)
    try:
        async with asyncio.timeout_at(deadline_s):
            await network.dial(Purpose.DOCUMENTS, address, lambda: reader)
        while True:
            async with asyncio.timeout_at(deadline_s):
                document = await reader.documents.get()
            if isinstance(document, StatusQueryError):
                if document.outcome is Outcome.CLOSED and not (reader.is_local or network.encrypts):
                    raise await _explain_closed(network, address, deadline_s)
                raise document
            if document is None:
                return
            yield document
    except TimeoutError:
        raise reader.late_error(timeout_s) from None
    except ConnectionRefusedError:
        raise StatusQueryError(Outcome.REFUSED, f"no process listens on {endpoint}") from None
    except OSError as error:
        is_of_tls = is_handshake_error(error)
        reason = describe_handshake_error(error) if is_of_tls else getattr(error, "strerror", None) or error
        raise StatusQueryError(Outcome.UNREACHABLE, printable_line(f"{endpoint}: {reason}")) from None
    finally:
        reader.abort()


def read_answer(document: type[DocumentT], payload: bytes) -> DocumentT:
    """Read the document of an answer.

    Raises:
        StatusQueryError: it is not one, or of another schema version.
    """
    try:
        return read_document(document, payload)
    except RemoteProtocolError as error:
        raise StatusQueryError(Outcome.INVALID, printable_line(str(error))) from None


async def _explain_closed(network: NetworkStack, address: Endpoint, deadline_s: float) -> StatusQueryError:
    """Say whether TLS is why a member closed a connection in plain text without an answer."""
    from ...service_api.tls.hello import client_hello, speaks_tls  # few questions end like this

    first = _FirstByte(client_hello())
    with contextlib.suppress(OSError):  # a time that is up among them
        async with asyncio.timeout_at(deadline_s):
            await network.dial(Purpose.DOCUMENTS, address, lambda: first)
            await first.is_known.wait()
    first.abort()
    return StatusQueryError(Outcome.CLOSED, _CLOSED_IN_PLAIN_TEXT if speaks_tls(first.value) else _CLOSED)


class _FirstByte(asyncio.Protocol):
    """Sends something, and keeps the first byte of the answer; None where the connection ends before."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent
        self._transport: asyncio.WriteTransport | None = None
        self.value: int | None = None
        self.is_known = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, also where it lacks the base class
        assert self._transport is not None
        self._transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        if self.value is None:
            self.value = data[0]
            self.is_known.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_known.set()

    def abort(self) -> None:
        """Leave no connection behind."""
        if self._transport is not None:
            self._transport.abort()


class _AnswerReader(asyncio.Protocol):
    """Asks as soon as it is connected; puts into `documents` what it is answered, then the end: None, or the failure.

    So many documents may wait to be taken and no more: what answers without end is no member.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        setup: SetupFrame,
        request: bytes | None,
        length_limit_bytes: int,
        network: NetworkStack,
    ) -> None:
        self._endpoint = endpoint
        self._network = network
        self._setup = setup
        self.documents: asyncio.Queue[bytes | StatusQueryError | None] = asyncio.Queue()
        self._stream_id = setup.stream_id
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._parser = FrameParser(length_limit_bytes)
        self._received_bytes = 0
        self._document_count = 0
        self._is_done = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream transport, also where it lacks the base class
        assert self._transport is not None
        self._transport.write(self._setup.encode())
        if self._request is not None:
            self._transport.write(encode_frame(self._request, stream_id=self._stream_id))

    def data_received(self, data: bytes) -> None:
        if self._is_done:
            return
        self._received_bytes += len(data)
        try:
            frames = self._parser.feed(data)
        except RemoteProtocolError as error:
            self._fail(Outcome.INVALID, f"not an answer: {error}")
            return
        for frame in frames:
            if frame.type == TYPE_DATA and frame.stream_id == REFUSAL_STREAM_ID:
                self._on_refusal(frame.payload)
                return
            if frame.type != TYPE_DATA or frame.stream_id != self._stream_id:
                self._fail(
                    Outcome.INVALID,
                    f"not an answer: frame type={frame.type} stream_id={frame.stream_id} "
                    f"expected type={TYPE_DATA} stream_id={self._stream_id}",
                )
                return
            self._document_count += 1
            self.documents.put_nowait(frame.payload)
        if self.documents.qsize() > _DOCUMENT_LIMIT:
            self._fail(Outcome.INVALID, f"not an answer: documents={self.documents.qsize()} limit={_DOCUMENT_LIMIT}")

    def _on_refusal(self, payload: bytes) -> None:
        try:
            refusal = read_document(Refusal, payload)
        except RemoteProtocolError as error:
            self._fail(Outcome.INVALID, f"not an answer: {error}")
            return
        if refusal.is_failure:
            self._fail(Outcome.FAILED, printable_line(f"{refusal.refused}; {refusal.advice}"))
            return
        if refusal.is_other_cluster:
            self._fail(Outcome.OTHER_CLUSTER, printable_line(f"{self._endpoint}: {refusal.refused}"))
            return
        assert self._transport is not None
        way = "control socket" if is_local(self._transport) else f"TCP: {why_not_local(self._endpoint)}"
        detail = f"{refusal.refused}; {refusal.advice}; asked by {way}"
        self._fail(Outcome.NOT_ALLOWED, detail, is_for_good=refusal.is_for_good)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._parser.buffered_bytes:
            self._fail(Outcome.PARTIAL, f"closed after {self._received_bytes} bytes of an answer")
        elif not self._document_count:
            self._fail(Outcome.CLOSED, printable_line(_describe_close(self._network, exc)))
        elif not self._is_done:
            self._is_done = True
            self.documents.put_nowait(None)

    @property
    def is_local(self) -> bool:
        """Return True if the question goes through a control socket, where there is no TLS."""
        return self._transport is not None and is_local(self._transport)

    def late_error(self, timeout_s: float) -> StatusQueryError:
        """Return how far it had come when the time was up."""
        if self._received_bytes:
            detail = f"{self._received_bytes} bytes of an answer, and no more within {timeout_s:g} s"
            return StatusQueryError(Outcome.PARTIAL, detail)
        doing = "no connection" if self._transport is None else "connected, but no answer"
        return StatusQueryError(Outcome.TIMED_OUT, f"{doing} within {timeout_s:g} s")

    def abort(self) -> None:
        """Leave no connection behind."""
        self._is_done = True
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, outcome: Outcome, detail: str, *, is_for_good: bool = False) -> None:
        if not self._is_done:
            self._is_done = True
            self.documents.put_nowait(StatusQueryError(outcome, detail, is_for_good=is_for_good))


def _describe_close(network: NetworkStack, error: Exception | None) -> str:
    """Say why a connection may have been closed before an answer began."""
    if not network.encrypts:
        return _CLOSED
    reason = f"{_CLOSED}, as by a member that refuses the certificate"
    if isinstance(error, OSError) and is_handshake_error(error):
        reason = describe_handshake_error(error)
    shown = network.shown
    if shown is None:
        return f"{reason}; none was shown: see the settings tls certificate and key"
    return (
        f"{reason}; shown was subject={shown.subject} issuer={shown.issuer} "
        f"not_after={shown.not_after:%Y-%m-%d %H:%M} UTC file={shown.file}"
    )
