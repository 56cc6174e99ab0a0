"""Dials another member until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import NetworkStack, PeerRefusedError, Purpose
from trimaran.service_api.types import MemberId

CONNECT_TIMEOUT_S: Final = 2.0

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5

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
    that member is logged: when that begins, and when it answers otherwise.
    """
    loop = asyncio.get_running_loop()
    pause_s = _FIRST_PAUSE_S
    refusal: str | None = None
    while True:
        closed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await network.dial(
                    purpose, endpoint, partial(make_protocol, closed), member_id=member_id
                )
        except (OSError, TimeoutError) as error:
            if isinstance(error, PeerRefusedError) and str(error) != refusal:
                refusal = str(error)
                logger.error(
                    "member_link.refused",
                    peer_member_id=member_id,
                    link=purpose.value,
                    endpoint=str(endpoint),
                    reason=refusal,
                )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            continue
        pause_s, refusal = _FIRST_PAUSE_S, None
        try:
            await closed
        finally:
            transport.close()
        await asyncio.sleep(pause_s)
