"""Requests of one session, from the call to the reply, exactly once whatever happens to leaders and connections.

    unsent ──► sent, numbered 1, 2, 3, ... ──► answered
      │                │
      │                └─ timed out, or the session ended: outcome unknown (`RequestIndeterminateError`)
      └─ timed out, withdrawn, or the session ended: certainly not applied (`RejectedError`)

A request gets its number when it is sent for the first time, to any leader; from then on it keeps its place. Numbers
have no gaps, because the cluster runs a session's requests in the order of their numbers. What is sent and unanswered
is sent again, in order and before anything new, whenever the path to a leader stands again: what was run before is
answered with the reply of that time. So a request that timed out is not forgotten here, only nobody waits for it.

Each request says up to where every reply has been received; the cluster keeps the others. Bounds: the number and bytes
of requests sent and unanswered, and the bytes waiting for the socket. What is beyond waits, each with its caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from ...service_api.errors import ClusterError
from ...service_api.wire.request import RequestCode
from ..config import ClientConfig
from ..errors import RejectedError, RequestFailedError, RequestIndeterminateError
from .ingress_publisher import IngressPublisher

_NEVER_NS: Final = 1 << 63
_REPLY: Final = int(RequestCode.REPLY)
_FIRST_REFUSAL: Final = int(RequestCode.WINDOW_EXCEEDED)


class PendingRequest:
    """One request whose outcome is not known."""

    __slots__ = ("deadline_ns", "future", "payload", "sequence")

    def __init__(self, future: asyncio.Future[bytes], payload: bytes, deadline_ns: int) -> None:
        self.future = future
        """Who waits: the caller, or the code that resolves a request that timed out."""
        self.payload: bytes | None = payload
        """None once its outcome is known, or certainly never will be."""
        self.deadline_ns = deadline_ns
        self.sequence = 0
        """0 until it is sent."""

    def __repr__(self) -> str:
        return f"<PendingRequest sequence={self.sequence} answered={self.payload is None}>"

    @property
    def is_outstanding(self) -> bool:
        """Whether it has no outcome: one that is not sent has none as long as its caller waits."""
        return self.payload is not None and (self.sequence > 0 or not self.future.done())

    def outcome(self) -> asyncio.Future[bytes]:
        """Return what is done no later than the outcome is known; another one where a caller has cancelled its own."""
        future = self.future
        if future.done():
            self.future = future = future.get_loop().create_future()
            future.add_done_callback(_retrieve)
        return future

    def fail(self, error: ClusterError) -> None:
        """End it: nothing more will be known of it."""
        self.payload = None
        if not self.future.done():
            self.future.set_exception(error)


class RequestWindow:
    """The requests of one session, in order."""

    def __init__(self, config: ClientConfig) -> None:
        self._count_limit = config.request_window_count
        self._bytes_limit = config.request_window_bytes
        self._outgoing_limit = config.outgoing_window_bytes
        self._unsent: deque[PendingRequest] = deque()
        self._sent: deque[PendingRequest] = deque()
        """Of ascending sequences without a gap; the first is unanswered."""
        self._sent_bytes = 0
        self._next_sequence = 1
        self._publisher: IngressPublisher | None = None
        self._deadline_ns = _NEVER_NS
        """No deadline is earlier."""
        self._nudged_sequence = 0
        """The first unanswered request when all were sent again because one was refused: once for each such."""
        self._must_resend = False
        self.is_held = False
        """Whether new requests wait until the session is known to be open."""
        self.resent_count = 0

    def __repr__(self) -> str:
        return f"<RequestWindow sent={len(self._sent)} unsent={len(self._unsent)} next={self._next_sequence}>"

    # The client

    def submit(self, request: PendingRequest) -> None:
        """Take a new request: it is sent now, or when there is room and a leader."""
        if request.deadline_ns < self._deadline_ns:
            self._deadline_ns = request.deadline_ns
        publisher = self._publisher
        if (
            publisher is None
            or self._unsent
            or self._must_resend
            or self.is_held
            or len(self._sent) >= self._count_limit
            or self._sent_bytes >= self._bytes_limit
            or len(publisher.outgoing) >= self._outgoing_limit
        ):
            self._unsent.append(request)
        else:
            self._send(request, publisher)

    def withdraw(self, request: PendingRequest) -> None:
        """Withdraw a request whose caller no longer waits: if it is not sent yet, it never will be."""
        if not request.sequence and request in self._unsent:
            self._unsent.remove(request)
            request.payload = None

    def outstanding(self) -> list[PendingRequest]:
        """Return the requests made up to now that have no outcome, also those for which no caller waits any more."""
        return [request for request in (*self._sent, *self._unsent) if request.is_outstanding]

    @property
    def has_unsent(self) -> bool:
        """Whether a request waits to be sent."""
        return bool(self._unsent) or self._must_resend

    # The session

    def attach(self, publisher: IngressPublisher) -> None:
        """The path to a leader stands: send again what it may not have, then what waits."""
        self._publisher = publisher
        self.is_held = False
        self._nudged_sequence = 0
        self._resend(publisher)
        self.pump()

    def detach(self) -> None:
        """There is no path to a leader."""
        self._publisher = None
        self._must_resend = self.is_held = False

    def release(self) -> None:
        """The session is open: send what was held back."""
        self.is_held = False
        self.pump()

    def pump(self) -> bool:
        """Send what waits, as far as there is room. Whether anything was sent."""
        publisher = self._publisher
        if publisher is None or self.is_held or not (self._unsent or self._must_resend):
            return False
        before = publisher.appended_bytes
        if self._must_resend:
            self._resend(publisher)
        unsent = self._unsent
        while (
            unsent
            and len(self._sent) < self._count_limit
            and self._sent_bytes < self._bytes_limit
            and len(publisher.outgoing) < self._outgoing_limit
        ):
            request = unsent.popleft()
            if request.future.done():
                request.payload = None
            else:
                self._send(request, publisher)
        return publisher.appended_bytes > before

    def on_answer(self, sequence: int, code: int, reply: bytes) -> None:
        """Take what the cluster says of a request; what it says again is nothing new."""
        sent = self._sent
        if not sent:
            return
        request = sent[0]
        if sequence != request.sequence:
            index = sequence - request.sequence
            if not 0 < index < len(sent):
                return
            request = sent[index]
        payload = request.payload
        if payload is None:
            return
        if code >= _FIRST_REFUSAL:
            self._on_refused()
            return
        request.payload = None
        self._sent_bytes -= len(payload)
        while sent and sent[0].payload is None:
            sent.popleft()
        future = request.future
        if future.done():
            return
        if code == _REPLY:
            future.set_result(reply)
        else:
            future.set_exception(_error_of(code, reply))

    @property
    def deadline_ns(self) -> int:
        """When to look for requests that have timed out; far away if none can."""
        return self._deadline_ns

    def poll(self, now_ns: int) -> None:
        """Fail requests that are past their deadline: rejected if not sent, indeterminate if sent."""
        if now_ns < self._deadline_ns:
            return
        late = [request for request in self._unsent if request.deadline_ns <= now_ns]
        if late:
            self._unsent = deque(request for request in self._unsent if request.deadline_ns > now_ns)
            for request in late:
                request.fail(RejectedError("timed out before it was sent: no leader, or no room to send"))
        for request in self._sent:
            if request.deadline_ns <= now_ns and request.payload is not None:
                self._mark_indeterminate(request)
        self._deadline_ns = min(
            (request.deadline_ns for request in (*self._sent, *self._unsent) if request.payload is not None),
            default=_NEVER_NS,
        )

    def end_unsent(self, reason: str) -> None:
        """The session is ending: what is not sent never will be."""
        unsent, self._unsent = self._unsent, deque()
        for request in unsent:
            request.fail(RejectedError(reason))

    def end(self, reason: str) -> None:
        """The session has ended: nobody will ever know what came of the unanswered requests."""
        self.detach()
        self.end_unsent(reason)
        sent, self._sent, self._sent_bytes = self._sent, deque(), 0
        for request in sent:
            if request.payload is not None:
                request.fail(RequestIndeterminateError(reason, None))
        self._deadline_ns = _NEVER_NS

    # Inside

    def _send(self, request: PendingRequest, publisher: IngressPublisher) -> None:
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        request.sequence = sequence
        sent = self._sent
        sent.append(request)
        payload = request.payload
        assert payload is not None
        self._sent_bytes += len(payload)
        publisher.offer_request(sequence, sent[0].sequence - 1, payload)

    def _resend(self, publisher: IngressPublisher) -> None:
        self._must_resend = False
        if not self._sent:
            return
        acknowledged = self._sent[0].sequence - 1
        for request in self._unanswered():
            assert request.payload is not None
            publisher.offer_request(request.sequence, acknowledged, request.payload)
            self.resent_count += 1

    def _unanswered(self) -> Iterator[PendingRequest]:
        return (request for request in self._sent if request.payload is not None)

    def _on_refused(self) -> None:
        """Something was not run, and keeps its number: send all again, with what is acknowledged by now.

        Of a run of requests all those after the first are refused as well. So once is enough, until the first has
        been answered.
        """
        first = self._sent[0].sequence
        if first != self._nudged_sequence:
            self._nudged_sequence = first
            self._must_resend = True

    def _mark_indeterminate(self, request: PendingRequest) -> None:
        """Tell the caller that the outcome is not known, and go on waiting for it."""
        future = request.future
        request.deadline_ns = _NEVER_NS
        if future.done():
            return
        request.future = outcome = future.get_loop().create_future()
        outcome.add_done_callback(_retrieve)
        future.set_exception(RequestIndeterminateError("timed out after it was sent, unanswered", outcome))


def _error_of(code: int, reply: bytes) -> ClusterError:
    if code == RequestCode.FAILED:
        return RequestFailedError(reply.decode(errors="replace"))
    if code == RequestCode.NO_REQUESTS:
        return RejectedError(reply.decode(errors="replace") or "the service takes no requests")
    return RequestIndeterminateError(f"the cluster no longer has the reply: code={code}", None)


def _retrieve(outcome: asyncio.Future[bytes]) -> None:
    """Whether anybody asks is the application's choice: no complaint about an error that nobody looked at."""
    if not outcome.cancelled():
        outcome.exception()
