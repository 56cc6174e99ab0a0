"""Echo traffic of one session: closed loop (a fixed number in flight) or open loop (a fixed rate).

A message begins with its sequence number, int64, little endian; the rest is zeros. Replies must come in
order, each
once: anything else ends the run, for a benchmark of wrong answers is worth nothing.

A closed loop sends the next message when a reply comes, so a stall of the cluster stops the traffic and shows
in few latencies. An open loop sends at the intended times whatever happens, and measures from those: a stall
counts for every message that should have gone out meanwhile.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import sub
from time import monotonic_ns
from typing import Final

from ...client import ClusterClient
from ...service_api.errors import ClusterError
from ...service_api.wire.session import EventCode
from .arrivals import ArrivalPiece, Burst, arrival_pieces
from .ticker import Ticker

SEQUENCE: Final = struct.Struct("<q")
_unpack_sequence: Final = SEQUENCE.unpack_from

_NANOS_PER_SECOND: Final = 1_000_000_000


def message_packer(payload_length: int) -> Callable[[int], bytes]:
    """Return what makes the message of a sequence number."""
    return struct.Struct(f"<q{payload_length - SEQUENCE.size}x").pack


class LoadError(ClusterError):
    """The cluster did not answer as an echo does."""


@dataclass(slots=True)
class Phase:
    """One run of messages and what was measured; 8 bytes a message in each array."""

    first: int
    """The sequence number of its first message."""
    message_limit: int
    sent_at_ns: array[int] = field(default_factory=lambda: array("q"))
    """By message: when it was offered, or, open loop, when it should have been. Requests: in the order of replies."""
    replied_at_ns: array[int] = field(default_factory=lambda: array("q"))
    """By message: when its reply came."""
    send_lags_ns: array[int] = field(default_factory=lambda: array("q"))
    """Open loop: how late messages were offered; the load generator's own share of the latencies."""
    started_ns: int = 0
    ended_ns: int = 0

    @property
    def latencies_ns(self) -> Iterator[int]:
        """By message whose reply came: how long that took."""
        return map(sub, self.replied_at_ns, self.sent_at_ns)


class WaitingLoad:
    """What waits for replies, and gives up when something goes wrong."""

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._error: ClusterError | None = None

    def fail(self, reason: str) -> None:
        """Give up at the next wait."""
        self._error = self._error or LoadError(reason)
        self._wake.set()

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._wake.clear()
            self._check()
            await self._wake.wait()
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


class EchoLoad(WaitingLoad):
    """Makes the traffic; the egress listener of its own session."""

    def __init__(
        self, *, payload_length: int, inflight: int, rate_per_s: float | None, bursts: Sequence[Burst] = ()
    ) -> None:
        super().__init__()
        self._pack_message = message_packer(payload_length)
        self._inflight = inflight
        self._rate_per_s = rate_per_s
        self._bursts = bursts
        self._try_offer: Callable[[bytes], bool] = lambda payload: False
        self._begin(Phase(0, 0))
        self._sent = 0
        self._received = 0
        self._direct_limit = 0
        """The sequence number before which `on_message` sends the next message itself; 0 while a coroutine sends."""

    @property
    def received_count(self) -> int:
        """Replies of the current phase."""
        return self._received - self._phase.first

    async def run(self, cluster: ClusterClient, message_count: int) -> Phase:
        """Send messages and wait for their replies.

        Raises:
            LoadError: the replies are not those of an echo, or the session did not last.
        """
        self._try_offer = cluster.try_offer
        phase = Phase(self._sent, message_count)
        self._begin(phase)
        if message_count:
            phase.started_ns = monotonic_ns()
            if self._rate_per_s is None:
                await self._send_closed_loop(cluster, phase)
            else:
                pieces = arrival_pieces(self._rate_per_s, self._bursts, message_count)
                await self._send_open_loop(cluster, phase, self._rate_per_s, pieces)
            await self._wait_for(lambda: self.received_count == message_count)
            phase.ended_ns = monotonic_ns()
        return phase

    def _begin(self, phase: Phase) -> None:
        """Keep what each reply needs at hand: looking it up would be part of what is measured."""
        self._phase = phase
        self._limit = phase.first + phase.message_limit
        self._record_send, self._record_reply = phase.sent_at_ns.append, phase.replied_at_ns.append

    # The listener

    def on_message(self, timestamp: int, leadership_term_id: int, payload: memoryview) -> None:
        """Take a reply and, in a closed loop, send the next message."""
        now_ns = monotonic_ns()
        received = self._received
        if _unpack_sequence(payload)[0] != received:
            self.fail(f"reply out of order: payload={bytes(payload[:64])!r} expected={received}")
        self._received = received = received + 1
        self._record_reply(now_ns)
        sent = self._sent
        if sent < self._direct_limit:
            if self._try_offer(self._pack_message(sent)):
                self._record_send(now_ns)
                self._sent = sent + 1
            else:
                self._direct_limit = 0
                self._wake.set()
        elif received == self._limit:
            self._wake.set()

    def on_new_leader(self, leadership_term_id: int, leader_member_id: int) -> None:
        """Give up: replies may be lost, and figures over a fail-over are another benchmark's."""
        self.fail(f"leader changed: {leadership_term_id=} {leader_member_id=}")

    def on_session_event(self, code: EventCode, detail: str) -> None:
        """Give up when the session ends."""
        if code is not EventCode.OK:
            self.fail(f"session event: code={code.name} detail={detail!r}")

    # Sending

    async def _send_closed_loop(self, cluster: ClusterClient, phase: Phase) -> None:
        limit = phase.first + phase.message_limit
        while self._sent < limit:
            # Fill the window, waiting for room where messages are large; then replies keep it full.
            while self._sent < limit and self._sent - self._received < self._inflight:
                phase.sent_at_ns.append(monotonic_ns())
                payload = self._pack_message(self._sent)
                self._sent += 1
                await cluster.offer(payload)
            self._direct_limit = limit
            await self._wait_for(lambda: not self._direct_limit or self._sent == limit)
            self._direct_limit = 0

    async def _send_open_loop(
        self, cluster: ClusterClient, phase: Phase, rate_per_s: float, pieces: Iterator[ArrivalPiece]
    ) -> None:
        with Ticker(1 / rate_per_s) as ticker:
            phase.started_ns = start_ns = monotonic_ns()
            for piece in pieces:
                start_ns = await self._send_piece(cluster, phase, ticker, piece, start_ns)

    async def _send_piece(
        self, cluster: ClusterClient, phase: Phase, ticker: Ticker, piece: ArrivalPiece, start_ns: int
    ) -> int:
        """Send what is due from `start_ns` on; return when the piece after it begins."""
        period_ns = _NANOS_PER_SECOND / piece.rate_per_s
        limit = piece.message_count
        sent = 0
        while sent < limit:
            now_ns = monotonic_ns()
            due = min(int((now_ns - start_ns) / period_ns) + 1, limit)
            while sent < due:
                intended_ns = start_ns + int(sent * period_ns)
                phase.sent_at_ns.append(intended_ns)
                phase.send_lags_ns.append(now_ns - intended_ns)
                payload = self._pack_message(self._sent)
                self._sent += 1
                sent += 1
                if not cluster.try_offer(payload):
                    await cluster.offer(payload)
                    now_ns = monotonic_ns()
            self._check()
            await ticker.wait()
        return start_ns + int(limit * period_ns)
