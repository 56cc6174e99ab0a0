"""A client that routes badly on purpose: what it sends must be refused, by the group or by its service.

    a key of another group      its request is in the log, and the service refuses to run it
    another group meant         the session is refused: the members are not those of the group that the client demands

Its requests have client ids of their own, so that the referee knows them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from .....client import ClusterClient, ConnectRejectedError, RequestFailedError
from .....service_api import ClusterError, ClusterTimeoutError
from .....service_api.groups.group import Group
from ..clients.application import Lane, OperationRow, Pace, Session, end_run
from ..clients.paths import OneSession
from ..rules.group_rules import REFUSAL_RULE
from ..services.registers import Request, RequestKind
from ..world.expect import RuleBroken

STRANGER_CLIENT_ID: Final = 1 << 29
_SEQUENCES: Final = 1 << 32
_TRIES: Final = 1 << 16
"""Requests of one such client."""


def key_of_register(payload: bytes) -> int | None:
    """Return the key of a request of registers; None if it is none, or of a stranger."""
    try:
        request = Request.decode(payload)
    except (struct.error, ValueError):
        return None
    return None if request.client_id == STRANGER_CLIENT_ID else request.key


class StrangerWork:
    """The operations of one such client."""

    def __init__(
        self, number: int, group_count: int, keys: Mapping[int, Sequence[int]], *, random: Random, unit_s: float
    ) -> None:
        """Make the work of client `number`. `keys` are some of each group; `unit_s` is the heartbeat timeout."""
        rows = [
            OperationRow("key of another group", 3.0, self._send_strange_key),
            OperationRow("another group meant", 1.0, self._demand_another),
        ]
        pace = Pace(in_flight_limit=1, think_mean_s=unit_s / 2, idle_max_s=unit_s, close_rate=0.3)
        self.lanes = [Lane(rows, pace, random)]
        self.refused_count = 0
        self._group_count, self._keys, self._random = group_count, keys, random
        self._sequence = number * _TRIES

    def __repr__(self) -> str:
        return f"<StrangerWork refused={self.refused_count}>"

    def make_session(self, number: int) -> Session:
        """Make a session with some group."""
        return Session(number, Group(self._random.randrange(self._group_count), self._group_count))

    def abandon(self) -> None:
        """Keep nothing about what is under way."""

    async def _demand_another(self, session: Session, random: Random) -> None:
        """Connect to a group and mean another one, or another number of groups."""
        assert session.group is not None
        found = session.group
        demanded = Group((found.index + 1) % found.count, found.count)
        if random.random() < 0.5:
            demanded = Group(found.index, found.count + 1)
        try:
            client = await ClusterClient.connect(config=replace(session.config, group=demanded))
        except ConnectRejectedError:
            self.refused_count += 1
            return
        except ClusterTimeoutError:
            return
        await client.aclose()
        end_run(RuleBroken(REFUSAL_RULE, demanded=str(demanded), found=str(found)))

    async def _send_strange_key(self, session: Session, random: Random) -> None:
        """Send a request about a key of another group to one that does not own it."""
        assert isinstance(session.path, OneSession)
        assert session.group is not None
        found = session.group
        owner = (found.index + random.randrange(1, found.count)) % found.count
        key = random.choice(self._keys[owner])
        self._sequence += 1
        value = STRANGER_CLIENT_ID * _SEQUENCES + self._sequence
        request = Request(RequestKind.APPEND, key, self._sequence, STRANGER_CLIENT_ID, value)
        try:
            await session.path.client.request(request.encode())
        except RequestFailedError:
            self.refused_count += 1
        except ClusterError:
            session.end()  # nobody knows what became of it
        else:
            end_run(RuleBroken(REFUSAL_RULE, key=key, found_group=found.index, expected_group=owner))
