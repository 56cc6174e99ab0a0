"""Answers document requests: one table, from the requested stream to its handler.

A question is a setup frame that names the stream, then one data frame with the request, usually a JSON document. The
answer is one data frame, or several where it tells of progress; then this end closes. A connection that does not ask in
time, or does not take its answer, is dropped, and so many may ask on one stream at once and no more, so what asks holds
nothing for long. A client may go before the answer comes: the answering ends then, what it set in motion does not.

Whether the caller may have what it asks for is decided here, by `service_api.access.permissions`: a caller that may not
gets a `Refusal` instead, which says who may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, NamedTuple

import structlog

from trimaran.cluster.runtime.ground.activities import ActivityScope
from trimaran.service_api import ClusterError, RemoteProtocolError
from trimaran.service_api.access.audit import AuditTrail
from trimaran.service_api.access.permissions import ADVICE, Permission, describe_refusal
from trimaran.service_api.documents.document import Refusal, printable_line
from trimaran.service_api.net.connection_gate import AcceptedConnection
from trimaran.service_api.types import REFUSAL_STREAM_ID
from trimaran.service_api.wire.frame import TYPE_DATA, encode_frame
from trimaran.service_api.wire.stream import StreamFrame

Answerer = Callable[[bytes, AcceptedConnection], AsyncGenerator[bytes, None]]
"""Gives the answer to a request, a document at a time, as an asynchronous generator; the connection is its asker."""

CONCURRENT_LIMIT: Final = 8
"""Requests that may wait on one stream at once; more are refused, and the client may ask again."""

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


logger = structlog.get_logger()


class DocumentServer:
    """The handler of each stream, and the number of requests on it."""

    def __init__(self, rows: Mapping[int, DocumentRow], audit: AuditTrail) -> None:
        self._rows = dict(rows)
        self._counts = dict.fromkeys(self._rows, 0)
        self.audit = audit
        self.tasks: ActivityScope | None = None
        """Where the answering runs; questions are refused before there is one."""

    def __repr__(self) -> str:
        return f"<DocumentServer {self._counts}>"

    def __contains__(self, stream_id: int) -> bool:
        return stream_id in self._rows

    @property
    def request_count(self) -> int:
        """The number of requests now."""
        return sum(self._counts.values())

    def open(self, stream_id: int, asker: AcceptedConnection, transport: asyncio.Transport) -> DocumentRequest:
        """Begin a question on a stream of the table.

        Raises:
            RemoteProtocolError: so many ask already.
        """
        if self._counts[stream_id] >= CONCURRENT_LIMIT:
            raise RemoteProtocolError(f"too many requests at once: stream_id={stream_id} limit={CONCURRENT_LIMIT}")
        self._counts[stream_id] += 1
        return DocumentRequest(self, stream_id, asker, transport)


class DocumentRequest:
    """One connection that asks: waits for the request, then for the answer, then for that to be read."""

    def __init__(
        self, server: DocumentServer, stream_id: int, asker: AcceptedConnection, transport: asyncio.Transport
    ) -> None:
        self._document_server = server
        self._stream_id = stream_id
        self._asker = asker
        self._transport = transport
        self._task: asyncio.Task[None] | None = None
        self.is_answered = False

    def __repr__(self) -> str:
        return f"<DocumentRequest stream_id={self._stream_id} is_asked={self.is_asked} is_answered={self.is_answered}>"

    @property
    def is_asked(self) -> bool:
        """Whether the request has come whole."""
        return self._task is not None or self.is_answered

    def on_frame(self, frame: StreamFrame, on_answered: Callable[[], None], on_failed: Callable[[str], None]) -> None:
        """Take the request. `on_answered` is called when all of the answer is written, `on_failed` if there is none.

        Raises:
            RemoteProtocolError: this is no request.
        """
        if frame.type != TYPE_DATA or frame.stream_id != self._stream_id:
            raise RemoteProtocolError(
                f"request begins with frame type={frame.type} stream_id={frame.stream_id} "
                f"expected type={TYPE_DATA} stream_id={self._stream_id}"
            )
        if frame.frame_length > REQUEST_LIMIT_BYTES:
            raise RemoteProtocolError(f"request of length={frame.frame_length} limit={REQUEST_LIMIT_BYTES}")
        server = self._document_server
        if server.tasks is None:
            raise RemoteProtocolError("this member cannot answer yet: ask again")
        permission = server._rows[self._stream_id].permission(frame.payload)
        if not self._asker.may(permission):
            asked = printable_line(frame.payload.decode(errors="replace"))
            reason = describe_refusal(permission, self._asker.caller)
            server.audit.refused(permission, self._asker, reason, request=asked)
            self._transport.write(encode_refusal(permission, self._asker))
            self.is_answered = True
            on_answered()
            return
        self._task = server.tasks.create_task(
            self._answer(frame.payload, on_answered, on_failed), name=f"answer-{self._stream_id}"
        )

    def close(self) -> None:
        """The connection is gone: answer no more."""
        self._document_server._counts[self._stream_id] -= 1
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, request: bytes, on_answered: Callable[[], None], on_failed: Callable[[str], None]) -> None:
        answer = self._document_server._rows[self._stream_id].answer
        try:
            async with aclosing(answer(request, self._asker)) as documents:
                async for document in documents:
                    if self._transport.is_closing():
                        return
                    self._transport.write(encode_frame(document, stream_id=self._stream_id))
        except ClusterError as error:
            on_failed(str(error))
        except Exception:  # a request cannot stop a member with it
            logger.exception("answer.failed", stream_id=self._stream_id)
            on_failed("no answer could be made")
        else:
            self.is_answered = True
            on_answered()
