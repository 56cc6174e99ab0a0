"""A client that names other clients' sessions: it knows their ids, terms and digests, and not their secrets.

It connects to one member after the other, also to those that do not lead, and shows on each connection a session id
with a guess, the digest that the log holds, or nothing; then it says what a holder would say: a keep-alive, a message,
a close. What it gets back is an answer, and never a session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.transport import NetworkStack, Purpose
from trimaran.service_api.types import (
    EGRESS_STREAM_ID,
    INGRESS_STREAM_ID,
    ClusterSessionId,
    CorrelationId,
    TermId,
)
from trimaran.service_api.wire.frame import encode_message
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message, decode_message, registry_of
from trimaran.service_api.wire.session import (
    AdminResponse,
    Challenge,
    ChallengeResponse,
    EventCode,
    NewLeaderEvent,
    SessionCloseRequest,
    SessionEvent,
    SessionKeepAlive,
    SessionLimits,
    SessionMessageHeader,
)
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

STOLEN: Final = b"said by a thief " * 4
"""What it would have the service believe; no service may ever be given this."""

_MTU: Final = 1_408
_EGRESS_MESSAGES: Final = registry_of(
    SessionMessageHeader, SessionEvent, NewLeaderEvent, Challenge, AdminResponse, SessionLimits
)
_HELLO: Final = SetupFrame(session_id=0, stream_id=INGRESS_STREAM_ID, mtu_length_bytes=_MTU).encode()


@dataclass(slots=True, frozen=True)
class Loot:
    """What is known of somebody's session to whoever reads the log."""

    cluster_session_id: ClusterSessionId
    leadership_term_id: TermId
    token_digest: bytes | None


class Thief:
    """A coroutine, `run`, and what came of it."""

    def __init__(
        self,
        network: NetworkStack,
        endpoints: Sequence[str],
        *,
        random: Random,
        find_loot: Callable[[], Sequence[Loot]],
        on_success: Callable[[Loot, str], None],
        pause_s: float,
    ) -> None:
        """`find_loot` gives the sessions there are; `on_success` is told when one of them was used."""
        self._network = network
        self._endpoints, self._random, self._pause_s = endpoints, random, pause_s
        self._find_loot, self._on_success = find_loot, on_success
        self.attempt_count = 0
        self.refused_count = 0
        """Times it was told that a token does not fit."""

    def __repr__(self) -> str:
        return f"<Thief attempts={self.attempt_count} refused={self.refused_count}>"

    async def run(self) -> None:
        """Try until cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._pause_s))
            loot = self._find_loot()
            if loot:
                await self._try(self._random.choice(loot))

    async def _try(self, loot: Loot) -> None:
        """Connect to some member and use a session there, for a while."""
        endpoint = Endpoint.parse(self._random.choice(self._endpoints))
        connection = _Connection(lambda message: self._on_message(loot, message))
        try:
            async with asyncio.timeout(self._pause_s):
                transport, _ = await self._network.dial(Purpose.INGRESS, endpoint, lambda: connection)
        except OSError:
            return
        self.attempt_count += 1
        try:
            transport.write(_HELLO)
            for _ in range(self._random.randint(1, 4)):
                transport.write(b"".join(_frames(message) for message in self._draw(loot)))
                await asyncio.sleep(self._random.random() * 2 * self._pause_s)
        finally:
            transport.abort()

    def _draw(self, loot: Loot) -> list[bytes]:
        """Show something or nothing, then say what a holder would."""
        chance, session_id, term_id = self._random, loot.cluster_session_id, loot.leadership_term_id
        said: list[bytes] = []
        for secret in chance.choice(([], [b""], [chance.randbytes(32)], [loot.token_digest or b"none"])):
            proof = ChallengeResponse(
                correlation_id=CorrelationId(-1), cluster_session_id=session_id, encoded_credentials=secret
            )
            said.append(proof.encode())
        header = SessionMessageHeader(leadership_term_id=term_id, cluster_session_id=session_id, timestamp=0)
        keep_alive = SessionKeepAlive(leadership_term_id=term_id, cluster_session_id=session_id)
        close = SessionCloseRequest(leadership_term_id=term_id, cluster_session_id=session_id)
        said.append(keep_alive.encode())
        said.append(chance.choice((keep_alive.encode(), header.encode() + STOLEN, close.encode())))
        return said

    def _on_message(self, loot: Loot, message: Message) -> None:
        if isinstance(message, SessionEvent) and message.code is EventCode.AUTHENTICATION_REJECTED:
            self.refused_count += 1
        elif isinstance(message, NewLeaderEvent | SessionMessageHeader) or (
            isinstance(message, SessionEvent) and message.code is EventCode.OK
        ):
            self._on_success(loot, type(message).__name__)


class _Connection(asyncio.Protocol):
    """Reads the messages of one member."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self._on_message = on_message
        self._parser = FrameParser(65_504)
        self._assembler = MessageAssembler()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        for frame in self._parser.feed(data):
            if frame.stream_id != EGRESS_STREAM_ID:
                continue
            encoded = self._assembler.append(frame)
            if encoded is not None:
                self._on_message(decode_message(encoded, registry=_EGRESS_MESSAGES))


def _frames(message: bytes) -> bytes:
    return encode_message(message, stream_id=INGRESS_STREAM_ID, mtu_length=_MTU)
