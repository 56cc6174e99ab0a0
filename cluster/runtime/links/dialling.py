"""Dials other members until they answer: those that there are, where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from ....service_api.endpoint import Endpoint
from ....service_api.net.sockets import NameUnresolvedError
from ....service_api.net.transport import NetworkStack, PeerRefusedError, Purpose
from ....service_api.types import MemberId
from ..ground.activities import ActivityScope

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
    find_former: Callable[[], Endpoint | None] = lambda: None,
) -> None:
    """Keep one connection to a member's endpoint: when it is lost, connect again, pausing longer after each failure.

    `find_former` says where else the member may be, if it does: every other dial goes there.

    `make_protocol` is given a future that its protocol resolves when the connection is lost. Who answers and is not
    that member is logged: when that begins, and when it answers otherwise; so is a name that has no address. Each dial
    resolves the name again. Connections that are encrypted and lost at
    once, several in a row, are failures: the other side refuses the certificate, which it sees after the dialling.
    """
    loop = asyncio.get_running_loop()
    pause_s, lost_count = _FIRST_PAUSE_S, 0
    told: str | None = None
    dialled = endpoint

    def tell(reason: str, *, event: str = "member_link.refused") -> None:
        nonlocal told
        if reason != told:
            told = reason
            facts = {"link": purpose.value, "endpoint": str(dialled), "reason": reason}
            logger.error(event, peer_member_id=member_id, **facts)

    while True:
        closed: asyncio.Future[None] = loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                transport, _ = await network.dial(purpose, dialled, partial(make_protocol, closed), member_id=member_id)
        except (OSError, TimeoutError) as error:
            if isinstance(error, PeerRefusedError):
                tell(str(error))
            elif isinstance(error, NameUnresolvedError):
                tell(str(error.strerror), event="member_link.unresolved")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            former = find_former() if dialled == endpoint else None
            dialled = endpoint if former is None else former
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


class DialledMembers:
    """Keeps one connection to each of some members; which these are, and where, may change."""

    def __init__(
        self,
        purpose: Purpose,
        make_protocol: Callable[[MemberId, asyncio.Future[None]], asyncio.BaseProtocol],
        *,
        drop: Callable[[MemberId], None],
        find_former: Callable[[MemberId], Endpoint | None] = lambda _: None,
    ) -> None:
        """`make_protocol` and `find_former` are as for `dial_forever`; `drop` ends the connection to a member."""
        self._purpose = purpose
        self._make_protocol = make_protocol
        self._drop = drop
        self._find_former = find_former
        self._dialled: dict[MemberId, tuple[Endpoint, asyncio.Task[None]]] = {}

    def __repr__(self) -> str:
        return f"<DialledMembers {self._purpose.value} {sorted(self._dialled)}>"

    def dial(self, network: NetworkStack, endpoints: Mapping[MemberId, Endpoint], tasks: ActivityScope) -> None:
        """Dial these members from now on, and no others."""
        for member_id, (endpoint, task) in [*self._dialled.items()]:
            if endpoints.get(member_id) != endpoint:
                del self._dialled[member_id]
                task.cancel()
                self._drop(member_id)
        for member_id, endpoint in endpoints.items():
            if member_id not in self._dialled:
                make_protocol = partial(self._make_protocol, member_id)
                dialling = dial_forever(
                    network,
                    self._purpose,
                    endpoint,
                    make_protocol,
                    member_id=member_id,
                    find_former=partial(self._find_former, member_id),
                )
                task = tasks.create_task(dialling, name=f"{self._purpose.value}-link-{member_id}")
                self._dialled[member_id] = endpoint, task

    def close(self) -> None:
        """Dial nobody any more."""
        for _, task in self._dialled.values():
            task.cancel()
        self._dialled.clear()
