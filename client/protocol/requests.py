"""Requests of one session, from the call to the reply, exactly once whatever happens to leaders and connections.

    unsent ──► sent, numbered 1, 2, 3, ... ──► answered
      │                │
      │                └─ timed out, or the session ended: outcome unknown (`RequestIndeterminateError`)
      └─ timed out, withdrawn, or the session ended: certainly not applied (`RejectedError`)

A request gets its number when it is sent for the first time, to any leader; from then on it keeps its place. Numbers
have no gaps, because the cluster runs a session's requests in the order of their numbers: so a request's place among
those that are sent says its number. What is sent and unanswered is sent again, in order and before anything new,
whenever the path to a leader stands again: what was run before is answered with the reply of that time. So a request
that timed out is not forgotten here, only nobody waits for it.

A batch is requests that follow each other, with one future for all of them. What does not fit in the window waits in
one place among the unsent ones, and goes piece by piece.

Each request says up to where every reply has been received; the cluster keeps the others. Bounds: the number and bytes
of requests sent and unanswered, and the bytes waiting for the socket. What is beyond waits, each with its caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias, final

from ...service_api.errors import ClusterError
from ...service_api.wire.frame import FRAME_ALIGNMENT
from ...service_api.wire.request import RequestCode
from ...service_api.wire.session_frame import REQUEST_PAYLOAD_OFFSET
from ..config import ClientConfig
from ..errors import RejectedError, RequestFailedError, RequestIndeterminateError
from .ingress_publisher import IngressPublisher

_NEVER_NS: Final = 1 << 63
_REPLY: Final = int(RequestCode.REPLY)
_FIRST_REFUSAL: Final = int(RequestCode.WINDOW_EXCEEDED)
_OVERHEAD_BYTES: Final = REQUEST_PAYLOAD_OFFSET + FRAME_ALIGNMENT
"""No frame of a request is longer than its payload by more."""
_TIMED_OUT: Final = "timed out before it was sent: no leader, or no room to send"


@final
class RequestBatch:
    """Requests that one caller waits for together; each has an outcome of its own."""

    __slots__ = ("deadline_ns", "first_sequence", "future", "outcomes", "payloads", "sent_count", "unknown_count")

    def __init__(self, future: asyncio.Future[None], payloads: Sequence[bytes], deadline_ns: int) -> None:
        """Take at least one payload, and a future that is done once the last outcome is there."""
        self.future = future
        self.payloads = payloads
        self.deadline_ns = deadline_ns
        self.outcomes: list[bytes | ClusterError] = [b""] * len(payloads)
        """By position; complete once `future` is done."""
        self.unknown_count = len(payloads)
        self.sent_count = 0
        self.first_sequence = 0
        """Of the request at position 0, once that is sent; the others follow it without a gap."""

    def __repr__(self) -> str:
        return f"<RequestBatch count={len(self.payloads)} sent={self.sent_count} unknown={self.unknown_count}>"

    def settle(self, sequence: int, outcome: bytes | ClusterError) -> None:
        """Take the outcome of a request that was sent; each has one."""
        self.outcomes[sequence - self.first_sequence] = outcome
        self._count(1)

    def settle_run(self, sequence: int, replies: Sequence[bytes]) -> None:
        """Take the replies to requests that were sent one after another."""
        position = sequence - self.first_sequence
        self.outcomes[position : position + len(replies)] = replies
        self._count(len(replies))

    def reject_unsent(self, reason: str) -> None:
        """Say of what is not sent that it never will be."""
        unsent_count = len(self.payloads) - self.sent_count
        self.outcomes[self.sent_count :] = [RejectedError(reason) for _ in range(unsent_count)]
        self._count(unsent_count)

    def _count(self, count: int) -> None:
        self.unknown_count -= count
        if not self.unknown_count and not self.future.done():
            self.future.set_result(None)


_Waiter: TypeAlias = "asyncio.Future[bytes] | RequestBatch"
_Request: TypeAlias = tuple[_Waiter, bytes, int]
"""Who waits, the payload, and the deadline in ns. Who waits for one that timed out is the code that resolves it."""


class RequestWindow:
    """The requests of one session, in order."""

    def __init__(self, config: ClientConfig) -> None:
        self._count_limit = config.request_window_count
        self._bytes_limit = config.request_window_bytes
        self._outgoing_limit = config.outgoing_window_bytes
        self._unsent: deque[_Request] = deque()
        """A batch stands here once, without a payload, until all of it is sent."""
        self._sent: deque[_Request | None] = deque()
        """Of ascending sequences without a gap up to the one before `_next_sequence`. None is one that is answered; the
        first is not."""
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

    def submit(self, future: asyncio.Future[bytes], payload: bytes, deadline_ns: int) -> None:
        """Take a new request: it is sent now, or when there is room and a leader. `future` gets the reply."""
        if deadline_ns < self._deadline_ns:
            self._deadline_ns = deadline_ns
        publisher, sent = self._publisher, self._sent
        if (
            publisher is None
            or self._unsent
            or self._must_resend
            or self.is_held
            or len(sent) >= self._count_limit
            or self._sent_bytes >= self._bytes_limit
            or len(publisher.outgoing) >= self._outgoing_limit
        ):
            self._unsent.append((future, payload, deadline_ns))
            return
        # As `_send` does, without a call.
        sequence = self._next_sequence
        self._next_sequence = sequence + 1
        self._sent_bytes += len(payload)
        publisher.offer_request(sequence, sequence - len(sent) - 1, payload)
        sent.append((future, payload, deadline_ns))

    def submit_batch(self, batch: RequestBatch) -> None:
        """Take new requests that follow each other: they are sent as `submit` sends one."""
        if batch.deadline_ns < self._deadline_ns:
            self._deadline_ns = batch.deadline_ns
        self._unsent.append((batch, b"", batch.deadline_ns))
        self.pump()

    def withdraw(self, waiter: _Waiter) -> None:
        """Withdraw requests whose caller no longer waits: what is not sent yet never will be."""
        unsent = self._unsent
        if unsent and any(request[0] is waiter for request in unsent):
            self._unsent = deque(request for request in unsent if request[0] is not waiter)

    @property
    def end_sequence(self) -> int:
        """The number after those that the requests made up to now have, or get unless some are withdrawn."""
        return self._next_sequence + self._unsent_count

    @property
    def outstanding_count(self) -> int:
        """How many requests have no outcome: one that is not sent has none as long as its caller waits."""
        return sum(request is not None for request in self._sent) + self._unsent_count

    def outstanding(self, end_sequence: int) -> list[asyncio.Future[Any]]:  # Any: a batch's gives nothing
        """Return futures of the requests before this number that have no outcome, also of those that nobody waits for.

        Each is done no later than there is an outcome, and earlier where a caller has given up: then ask again.
        """
        futures = []
        for index, request in enumerate(self._sent):
            if request is None or self._next_sequence - len(self._sent) + index >= end_sequence:
                continue
            waiter, payload, deadline_ns = request
            future = _future_of(waiter)
            if future.done():
                future = _unheard(future)
                self._sent[index] = future, payload, deadline_ns
            futures.append(future)
        if self._next_sequence < end_sequence:
            futures += [future for waiter, _, _ in self._unsent if not (future := _future_of(waiter)).done()]
        return [*dict.fromkeys(futures)]

    @property
    def _unsent_count(self) -> int:
        count = 0
        for waiter, _, _ in self._unsent:
            if not _future_of(waiter).done():
                count += len(waiter.payloads) - waiter.sent_count if type(waiter) is RequestBatch else 1
        return count

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
            waiter, payload, deadline_ns = unsent[0]
            if type(waiter) is RequestBatch:
                if not waiter.future.done():
                    self._send(waiter, self._next_piece(waiter, publisher), waiter.deadline_ns, publisher)
                    if waiter.sent_count < len(waiter.payloads):
                        continue
            elif not waiter.done():
                self._send(waiter, (payload,), deadline_ns, publisher)
            unsent.popleft()
        return publisher.appended_bytes > before

    def on_answer(self, sequence: int, code: int, reply: bytes) -> None:
        """Take what the cluster says of a request; what it says again is nothing new."""
        sent = self._sent
        index = sequence - self._next_sequence + len(sent)
        if not 0 <= index < len(sent):
            return
        request = sent[index]
        if request is None:
            return
        if code >= _FIRST_REFUSAL:
            self._on_refused()
            return
        waiter, payload, _ = request
        self._sent_bytes -= len(payload)
        if index:
            sent[index] = None
        else:
            sent.popleft()
            self._drop_answered()
        outcome = reply if code == _REPLY else _error_of(code, reply)
        _settle(waiter, sequence, outcome)

    def on_replies(self, sequence: int, replies: Sequence[bytes]) -> None:
        """Take replies to requests that were sent one after another, `sequence` and those that follow it."""
        sent = self._sent
        if sequence != self._next_sequence - len(sent) or len(replies) > len(sent):
            for number, reply in enumerate(replies, sequence):
                self.on_answer(number, _REPLY, reply)
            return
        popleft, freed_bytes = sent.popleft, 0
        batch, begin = None, 0
        """The batch that the replies from `begin` on are to."""
        for index, reply in enumerate(replies):
            request = popleft()
            waiter: _Waiter | None = None
            if request is not None:
                waiter, payload, _ = request
                freed_bytes += len(payload)
            if waiter is batch and batch is not None:
                continue
            if batch is not None:
                batch.settle_run(sequence + begin, replies[begin:index])
                batch = None
            if type(waiter) is RequestBatch:
                batch, begin = waiter, index
            elif waiter is not None and not waiter.done():
                waiter.set_result(reply)
        if batch is not None:
            batch.settle_run(sequence + begin, replies[begin:])
        self._sent_bytes -= freed_bytes
        self._drop_answered()

    @property
    def deadline_ns(self) -> int:
        """When to look for requests that have timed out; far away if none can."""
        return self._deadline_ns

    def poll(self, now_ns: int) -> None:
        """Fail requests that are past their deadline: rejected if not sent, indeterminate if sent."""
        if now_ns < self._deadline_ns:
            return
        late = [waiter for waiter, _, deadline_ns in self._unsent if deadline_ns <= now_ns]
        if late:
            self._unsent = deque(request for request in self._unsent if request[2] > now_ns)
            for waiter in late:
                _reject(waiter, _TIMED_OUT)
        for index, request in enumerate([*self._sent]):
            if request is not None and request[2] <= now_ns:
                self._mark_indeterminate(index)
        self._deadline_ns = min(
            (request[2] for request in (*self._sent, *self._unsent) if request is not None), default=_NEVER_NS
        )

    def end_unsent(self, reason: str) -> None:
        """The session is ending: what is not sent never will be."""
        unsent, self._unsent = self._unsent, deque()
        for waiter, _, _ in unsent:
            _reject(waiter, reason)

    def end(self, reason: str) -> None:
        """The session has ended: nobody will ever know what came of the unanswered requests."""
        self.detach()
        self.end_unsent(reason)
        unanswered = [*self._unanswered()]
        self._sent, self._sent_bytes = deque(), 0
        for sequence, (waiter, _, _) in unanswered:
            _settle(waiter, sequence, RequestIndeterminateError(reason, None))
        self._deadline_ns = _NEVER_NS

    # Inside

    def _send(self, waiter: _Waiter, payloads: Sequence[bytes], deadline_ns: int, publisher: IngressPublisher) -> None:
        """Send requests of one caller for the first time."""
        sequence, sent = self._next_sequence, self._sent
        if type(waiter) is RequestBatch:
            if not waiter.sent_count:
                waiter.first_sequence = sequence
            waiter.sent_count += len(payloads)
        publisher.offer_requests(sequence, sequence - len(sent) - 1, payloads)
        self._next_sequence = sequence + len(payloads)
        self._sent_bytes += sum(map(len, payloads))
        sent.extend(zip(repeat(waiter), payloads, repeat(deadline_ns)))

    def _next_piece(self, batch: RequestBatch, publisher: IngressPublisher) -> Sequence[bytes]:
        """Return the payloads that there is room for, at least one; the last one may overshoot the bytes."""
        begin = batch.sent_count
        piece = batch.payloads[begin : begin + self._count_limit - len(self._sent)]
        window_room = self._bytes_limit - self._sent_bytes
        outgoing_room = self._outgoing_limit - len(publisher.outgoing)
        piece_bytes = sum(map(len, piece))
        if piece_bytes <= window_room and piece_bytes + len(piece) * _OVERHEAD_BYTES <= outgoing_room:
            return piece
        count = used_bytes = 0
        while count < len(piece) and used_bytes < window_room and used_bytes + count * _OVERHEAD_BYTES < outgoing_room:
            used_bytes += len(piece[count])
            count += 1
        return piece[:count]

    def _resend(self, publisher: IngressPublisher) -> None:
        self._must_resend = False
        acknowledged = self._next_sequence - len(self._sent) - 1
        for sequence, (_, payload, _) in self._unanswered():
            publisher.offer_request(sequence, acknowledged, payload)
            self.resent_count += 1

    def _unanswered(self) -> Iterator[tuple[int, _Request]]:
        """Iterate over what is sent and not answered, with its numbers."""
        first = self._next_sequence - len(self._sent)
        return ((sequence, request) for sequence, request in enumerate(self._sent, first) if request is not None)

    def _drop_answered(self) -> None:
        """Have the first request that is sent be one that is not answered."""
        sent = self._sent
        while sent and sent[0] is None:
            sent.popleft()

    def _on_refused(self) -> None:
        """Something was not run, and keeps its number: send all again, with what is acknowledged by now.

        Of a run of requests all those after the first are refused as well. So once is enough, until the first has
        been answered.
        """
        first = self._next_sequence - len(self._sent)
        if first != self._nudged_sequence:
            self._nudged_sequence = first
            self._must_resend = True

    def _mark_indeterminate(self, index: int) -> None:
        """Tell the caller that the outcome is not known, and go on waiting for it."""
        request = self._sent[index]
        assert request is not None
        waiter, payload, _ = request
        caller = _future_of(waiter)
        if caller.done():
            self._sent[index] = waiter, payload, _NEVER_NS
            return
        outcome = _unheard(caller)
        self._sent[index] = outcome, payload, _NEVER_NS
        error = RequestIndeterminateError("timed out after it was sent, unanswered", outcome)
        _settle(waiter, self._next_sequence - len(self._sent) + index, error)


def _future_of(waiter: _Waiter) -> asyncio.Future[Any]:  # Any: a batch's gives nothing
    return waiter.future if type(waiter) is RequestBatch else waiter


def _unheard(caller: asyncio.Future[Any]) -> asyncio.Future[bytes]:  # Any: as above
    """Make a future for an outcome, in place of a caller's: one that nobody has to look at."""
    outcome: asyncio.Future[bytes] = caller.get_loop().create_future()
    outcome.add_done_callback(_retrieve)
    return outcome


def _settle(waiter: _Waiter, sequence: int, outcome: bytes | ClusterError) -> None:
    """Tell who waits for a request that was sent what came of it."""
    if type(waiter) is RequestBatch:
        waiter.settle(sequence, outcome)
    elif waiter.done():
        return
    elif isinstance(outcome, ClusterError):
        waiter.set_exception(outcome)
    else:
        waiter.set_result(outcome)


def _reject(waiter: _Waiter, reason: str) -> None:
    """Tell who waits for what is not sent that it never will be."""
    if type(waiter) is RequestBatch:
        waiter.reject_unsent(reason)
    elif not waiter.done():
        waiter.set_exception(RejectedError(reason))


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
