"""Dials another member until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.transport import NetworkStack, Purpose

CONNECT_TIMEOUT_S: Final = 2.0

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


async def dial_forever(
    network: NetworkStack,
    purpose: Purpose,
    endpoint: Endpoint,
    make_protocol: Callable[[asyncio.Future[None]], asyncio.BaseProtocol],
) -> None:
    """Keep one connection to the endpoint: whenever it is lost, connect again, pausing longer after each failure.

    `make_protocol` is given a future that its protocol resolves when the connection is lost.
    """
    loop = asyncio.get_running_loop()
    pause_s = _FIRST_PAUSE_S
    while True:
        closed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await network.dial(purpose, endpoint, partial(make_protocol, closed))
        except (OSError, TimeoutError):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            continue
        pause_s = _FIRST_PAUSE_S
        try:
            await closed
        finally:
            transport.close()
        await asyncio.sleep(pause_s)
