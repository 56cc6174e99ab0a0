"""A client that routes badly on purpose: what it sends must be refused, by the group or by its service.

    a key of another group      its request is in the log, and the service refuses to run it
    another group meant         the session is refused: the members are not those of the group that the client demands

Its requests have client ids of their own, so that the referee knows them.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from .....client import ClientConfig, ClusterClient, ConnectRejectedError, RejectedError, RequestFailedError
from .....client.groups.group_table import group_config
from .....service_api import ClusterError, ClusterTimeoutError
from .....service_api.groups.group import Group
from ..clients.paths import NO_SESSION
from ..clients.service_workload import end_run, pause_until
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


class Stranger:
    """One such client; as `ClientApplication`."""

    def __init__(
        self,
        config: ClientConfig,
        number: int,
        group_count: int,
        keys: Mapping[int, Sequence[int]],
        *,
        random: Random,
        unit_s: float,
    ) -> None:
        """Make the client `number`. `keys` are some of each group; `unit_s` is the heartbeat timeout."""
        self.config = config
        self.refused_count = 0
        self._group_count, self._keys, self._random, self._unit_s = group_count, keys, random, unit_s
        self._stopped = asyncio.Event()
        self._sequence = number * _TRIES

    def __repr__(self) -> str:
        return f"<Stranger refused={self.refused_count}>"

    def stop(self) -> None:
        """Try nothing more."""
        self._stopped.set()

    def abandon(self) -> None:
        """Nothing is kept about what was in flight."""

    async def run(self) -> None:
        """Try one thing after another until `stop`."""
        while not self._stopped.is_set():
            found = Group(self._random.randrange(self._group_count), self._group_count)
            config = replace(group_config(self.config, found), random=Random(self._random.getrandbits(64)).random)
            try:
                if self._random.random() < 0.5:
                    await self._demand_another(config, found)
                else:
                    await self._send_strange_keys(config, found)
            except (RejectedError, *NO_SESSION):
                pass
            except RuleBroken as broken:
                end_run(broken)
                return
            await pause_until(self._stopped, self._random.expovariate(1 / self._unit_s))

    async def _demand_another(self, config: ClientConfig, found: Group) -> None:
        """Connect to a group and mean another one, or another number of groups."""
        demanded = Group((found.index + 1) % found.count, found.count)
        if self._random.random() < 0.5:
            demanded = Group(found.index, found.count + 1)
        try:
            client = await ClusterClient.connect(config=replace(config, group=demanded))
        except ConnectRejectedError:
            self.refused_count += 1
            return
        except ClusterTimeoutError:
            return
        await client.aclose()
        raise RuleBroken(REFUSAL_RULE, demanded=str(demanded), found=str(found))

    async def _send_strange_keys(self, config: ClientConfig, found: Group) -> None:
        """Send requests about keys of the other groups to one that does not own them."""
        async with await ClusterClient.connect(config=config) as client:
            for _ in range(self._random.randint(1, 5)):
                owner = (found.index + self._random.randrange(1, found.count)) % found.count
                key = self._random.choice(self._keys[owner])
                self._sequence += 1
                value = STRANGER_CLIENT_ID * _SEQUENCES + self._sequence
                request = Request(RequestKind.APPEND, key, self._sequence, STRANGER_CLIENT_ID, value)
                try:
                    await client.request(request.encode())
                except RequestFailedError:
                    self.refused_count += 1
                    continue
                except ClusterError:
                    return  # nobody knows what became of it
                raise RuleBroken(REFUSAL_RULE, key=key, found_group=found.index, expected_group=owner)
