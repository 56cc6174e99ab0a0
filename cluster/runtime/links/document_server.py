"""Answers document requests: one table, from the requested stream to its handler.

A question is a setup frame that names the stream, then one data frame with the request, usually a JSON document. The
answer is one data frame, or several if it reports progress; then this end closes. A connection that does not ask in
time, or does not take its answer, is dropped, and so many may ask on one stream at once and no more, so what asks holds
nothing for long. A client may go before the answer comes: the answering ends then, what it set in motion does not. The
setup frame of the status stream is a whole question.

Whether the caller may have what it asks for is decided here, by `service_api.access.permissions`: a caller that may not
gets a `Refusal` instead, which says who may. A request that is not valid, or fails, is answered with a `Refusal`, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

import structlog

from ....service_api import ClusterError, RemoteProtocolError
from ....service_api.access.audit import AuditTrail
from ....service_api.access.permissions import ADVICE, Permission, describe_refusal
from ....service_api.documents.document import Refusal, printable_line
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import REFUSAL_STREAM_ID, STATUS_STREAM_ID
from ....service_api.wire.frame import TYPE_DATA, encode_frame
from ....service_api.wire.stream import StreamFrame
from ..ground.activities import ActivityScope
from .inbound_connection import Answered, InboundConnection, InboundProtocol

Answerer = Callable[[bytes, AcceptedConnection], AsyncGenerator[bytes, None]]
"""Gives the answer to a request, a document at a time, as an asynchronous generator; the connection is its asker."""

CONCURRENT_LIMIT: Final = 8
"""Requests that may wait on one stream at once; more are refused, and the client may ask again."""

STATUS_LIMIT: Final = 8
"""Status answers that may be on their way at once on an endpoint; more are refused, and the client may ask again."""

REQUEST_LIMIT_BYTES: Final = 16384
"""The longest request frame."""


class DocumentRow(NamedTuple):
    """How the requests on one stream are answered."""

    answer: Answerer
    permission: Callable[[bytes], Permission]
    """What the caller has to be allowed for a request; raises RemoteProtocolError where it is none."""


def answering_once(answer: Callable[[bytes], Awaitable[bytes]]) -> Answerer:
    """Make an answerer of a function that gives one document."""

    async def answer_once(request: bytes, asker: AcceptedConnection) -> AsyncGenerator[bytes, None]:
        yield await answer(request)

    return answer_once


def encode_refusal(permission: Permission, asker: AcceptedConnection) -> bytes:
    """Make the frame that a caller gets instead of what it asked for."""
    caller = asker.caller
    refused = describe_refusal(permission, caller)
    advice = printable_line(caller.advice or ADVICE)
    refusal = Refusal(refused=printable_line(refused), advice=advice, is_for_good=caller.is_gone)
    return encode_frame(refusal.model_dump_json().encode(), stream_id=REFUSAL_STREAM_ID)


def encode_other_cluster(refused: str) -> bytes:
    """Make the frame that a caller gets who means another cluster."""
    advice = "look at the endpoint, and at the cluster id that you demand or your certificate names"
    refusal = Refusal(refused=printable_line(refused), advice=advice, is_other_cluster=True)
    return encode_frame(refusal.model_dump_json().encode(), stream_id=REFUSAL_STREAM_ID)


def encode_failure(reason: str) -> bytes:
    """Make the frame that a caller gets whose request fails."""
    refusal = Refusal(refused=printable_line(reason), advice=_FAILURE_ADVICE, is_failure=True)
    return encode_frame(refusal.model_dump_json().encode(), stream_id=REFUSAL_STREAM_ID)


logger = structlog.get_logger()

_FAILURE_ADVICE: Final = "the log of the member says more"
_UNEXPECTED: Final = "the member could not make the answer (answer.failed)"


class DocumentServer:
    """The handler of each stream at one endpoint, and how many ask there."""

    def __init__(self, rows: Mapping[int, DocumentRow], make_status: Callable[[], bytes], audit: AuditTrail) -> None:
        self._rows = rows
        self._make_status = make_status
        self._counts: Counter[int] = Counter()
        self._status_readers: dict[InboundConnection, None] = {}
        self.audit = audit
        self.tasks: ActivityScope | None = None
        """Where the answering runs; questions are refused before there is one."""

    def __repr__(self) -> str:
        return f"<DocumentServer {self._counts} status={self.status_count}>"

    def __contains__(self, stream_id: int) -> bool:
        return stream_id == STATUS_STREAM_ID or stream_id in self._rows

    @property
    def request_count(self) -> int:
        """The number of requests now."""
        return sum(self._counts.values())

    @property
    def status_count(self) -> int:
        """Return the number of status answers that are on their way."""
        return len(self._status_readers)

    def open(self, stream_id: int, connection: InboundConnection) -> None:
        """Begin a question on a stream of the table, or answer with the status, which takes no request.

        Raises:
            RemoteProtocolError: so many ask already.
        """
        if stream_id == STATUS_STREAM_ID:
            self._answer_status(connection)
            return
        if self._counts[stream_id] >= CONCURRENT_LIMIT:
            raise RemoteProtocolError(f"too many requests at once: stream_id={stream_id} limit={CONCURRENT_LIMIT}")
        self._counts[stream_id] += 1
        connection.hand_to(DocumentRequest(self, stream_id, connection))

    def _answer_status(self, connection: InboundConnection) -> None:
        asker = connection.accepted
        if self.status_count >= STATUS_LIMIT:
            raise RemoteProtocolError(f"too many status requests at once: limit={STATUS_LIMIT}")
        self._status_readers[connection] = None
        connection.hand_to(Answered(connection, "status", lambda: self._status_readers.pop(connection, None)))
        if asker.may(Permission.STATUS):
            answer = self._encode_status()
        else:
            self.audit.refused(Permission.STATUS, asker, describe_refusal(Permission.STATUS, asker.caller))
            answer = encode_refusal(Permission.STATUS, asker)
        connection.answer_and_close(answer)

    def _encode_status(self) -> bytes:
        try:
            return encode_frame(self._make_status(), stream_id=STATUS_STREAM_ID)
        except Exception:  # a request cannot stop a member with it
            logger.exception("answer.failed", stream_id=STATUS_STREAM_ID)
            return encode_failure(_UNEXPECTED)


class DocumentRequest(InboundProtocol):
    """One connection that asks: waits for the request, then for the answer, then for that to be read."""

    def __init__(self, server: DocumentServer, stream_id: int, connection: InboundConnection) -> None:
        super().__init__(connection)
        connection.describe_late = self._describe_late
        self._document_server = server
        self._stream_id = stream_id
        self._task: asyncio.Task[None] | None = None
        self._is_answered = False

    def __repr__(self) -> str:
        return (
            f"<DocumentRequest stream_id={self._stream_id} is_asked={self._is_asked} is_answered={self._is_answered}>"
        )

    @property
    def _is_asked(self) -> bool:
        """Whether the request has come whole."""
        return self._task is not None or self._is_answered

    def data_received(self, data: bytes) -> None:
        """Take the request; what comes after it is dropped."""
        if not self._is_asked:
            super().data_received(data)

    def take(self, frames: Sequence[StreamFrame]) -> None:
        """Take the request, and answer it; one that is not valid, with the reason."""
        if not frames:
            return
        self._connection.forget_deadline()
        try:
            self._on_request(frames[0])
        except RemoteProtocolError as error:
            self._fail(str(error))
            return
        self._connection.accepted.admit()  # so many may ask at once, and no more

    def connection_lost(self, exc: Exception | None) -> None:
        """Answer no more."""
        super().connection_lost(exc)
        self._document_server._counts[self._stream_id] -= 1
        if self._task is not None:
            self._task.cancel()

    def _on_request(self, frame: StreamFrame) -> None:
        if frame.type != TYPE_DATA or frame.stream_id != self._stream_id:
            raise RemoteProtocolError(
                f"request begins with frame type={frame.type} stream_id={frame.stream_id} "
                f"expected type={TYPE_DATA} stream_id={self._stream_id}"
            )
        if frame.frame_length > REQUEST_LIMIT_BYTES:
            raise RemoteProtocolError(f"request of length={frame.frame_length} limit={REQUEST_LIMIT_BYTES}")
        server, asker = self._document_server, self._connection.accepted
        if server.tasks is None:
            raise RemoteProtocolError("this member cannot answer yet: ask again")
        permission = server._rows[self._stream_id].permission(frame.payload)
        if asker.may(permission):
            self._task = server.tasks.create_task(self._answer(frame.payload), name=f"answer-{self._stream_id}")
            return
        asked = printable_line(frame.payload.decode(errors="replace"))
        server.audit.refused(permission, asker, describe_refusal(permission, asker.caller), request=asked)
        self._connection.transport.write(encode_refusal(permission, asker))
        self._on_answered()

    async def _answer(self, request: bytes) -> None:
        answer, transport = self._document_server._rows[self._stream_id].answer, self._connection.transport
        try:
            async with aclosing(answer(request, self._connection.accepted)) as documents:
                async for document in documents:
                    if transport.is_closing():
                        return
                    transport.write(encode_frame(document, stream_id=self._stream_id))
        except ClusterError as error:
            self._fail(str(error))
        except Exception:  # a request cannot stop a member with it
            logger.exception("answer.failed", stream_id=self._stream_id)
            self._fail(_UNEXPECTED)
        else:
            self._on_answered()

    def _fail(self, reason: str) -> None:
        """Say why there is no answer, and close."""
        if self._connection.transport.is_closing():
            return
        self._connection.log_refused(reason)
        self._connection.transport.write(encode_failure(reason))
        self._on_answered()

    def _on_answered(self) -> None:
        """Close: all of the answer is written, and has to be read in time."""
        self._is_answered = True
        self._connection.expect_in_time()
        self._connection.transport.close()

    def _describe_late(self, within: str) -> str:
        missing = "answer was not read" if self._is_answered else "no request"
        return f"{missing} {within}: {self!r}"
