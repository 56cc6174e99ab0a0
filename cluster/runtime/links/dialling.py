"""Dials another member until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from trimaran.service_api.addresses.sockets import NameUnresolvedError
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import NetworkStack, PeerRefusedError, Purpose
from trimaran.service_api.types import MemberId

CONNECT_TIMEOUT_S: Final = 2.0

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5

_AT_ONCE_S: Final = 0.2
_LOST_LIMIT: Final = 3
"""After so many encrypted connections in a row that were lost so soon, a member is dialled more seldom."""

logger = structlog.get_logger()


async def dial_forever(
    network: NetworkStack,
    purpose: Purpose,
    endpoint: Endpoint,
    make_protocol: Callable[[asyncio.Future[None]], asyncio.BaseProtocol],
    *,
    member_id: MemberId,
) -> None:
    """Keep one connection to a member's endpoint: when it is lost, connect again, pausing longer after each failure.

    `make_protocol` is given a future that its protocol resolves when the connection is lost. Who answers and is not
    that member is logged: when that begins, and when it answers otherwise; so is a name that has no address. Each dial
    resolves the name again. Connections that are encrypted and lost at
    once, several in a row, are failures: the other side refuses the certificate, which it sees after the dialling.
    """
    loop = asyncio.get_running_loop()
    pause_s, lost_count = _FIRST_PAUSE_S, 0
    told: str | None = None

    def tell(reason: str, *, event: str = "member_link.refused") -> None:
        nonlocal told
        if reason != told:
            told = reason
            facts = {"link": purpose.value, "endpoint": str(endpoint), "reason": reason}
            logger.error(event, peer_member_id=member_id, **facts)

    while True:
        closed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await network.dial(
                    purpose, endpoint, partial(make_protocol, closed), member_id=member_id
                )
        except (OSError, TimeoutError) as error:
            if isinstance(error, PeerRefusedError):
                tell(str(error))
            elif isinstance(error, NameUnresolvedError):
                tell(str(error.strerror), event="member_link.unresolved")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            continue
        begun_s = loop.time()
        try:
            await closed
        finally:
            transport.close()
        lost_count = lost_count + 1 if network.encrypts and loop.time() - begun_s < _AT_ONCE_S else 0
        if lost_count >= _LOST_LIMIT:
            tell("it ends each connection at once: it may refuse this member's certificate, and its own log says why")
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            pause_s = _FIRST_PAUSE_S
            told = told if lost_count else None
        await asyncio.sleep(pause_s)
