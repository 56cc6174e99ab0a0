"""Performs what the core asks for when the members change: dial them, tell them, remember them, end lost rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiofiles.os
import structlog

from ....service_api.access.rights import Rights
from ....service_api.net.connection_gate import ConnectionGate
from ...core import effects as fx
from ...core.vocabulary.configuration import Configuration
from ..files.members_file import MembersFile
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from ..links.member_links import MemberLinks
from .log_control import LogControl

logger = structlog.get_logger()


class MemberRoster:
    """The links and the file of one member that depend on who the members are."""

    def __init__(
        self,
        links: MemberLinks,
        log: LogControl,
        file: MembersFile,
        *,
        tasks: ActivityScope,
        rights: Rights,
        gate: ConnectionGate,
        agent: AgentDoor,
    ) -> None:
        self._links = links
        self._log = log
        self._file = file
        self._tasks = tasks
        self._rights = rights
        self._gate = gate
        self._agent = agent
        self._storing = asyncio.Lock()
        self.handlers: dict[type, Callable[[Any], Any]] = {  # Any: each takes the effect that it is keyed by
            fx.RosterChanged: self._on_roster_changed,
            fx.ConfigurationCommitted: self._on_committed,
            fx.MemberRemoved: lambda effect: logger.warning("member.removed", reason=effect.reason),
        }
        if file.newest is not None:  # committed before this start: a member that lags finds who moved
            links.tell_members(file.newest)

    def __repr__(self) -> str:
        return f"<MemberRoster {self._file!r}>"

    def _on_roster_changed(self, _: fx.RosterChanged) -> None:
        """Dial who is new, and nobody who is gone; what was given to who is none any more ends."""
        self._links.dial_roster()
        self._log.dial_roster()
        self._rights.review(self._gate.connections())

    def _on_committed(self, effect: fx.ConfigurationCommitted) -> None:
        """Say who the members are, to all that can hear it, and remember it."""
        configuration = effect.configuration
        logger.info(
            "members.changed",
            cause=configuration.cause,
            log_position=configuration.log_position,
            members=configuration.describe(),
        )
        self._links.tell_members(configuration)
        self._tasks.create_task(self._store(configuration), name="members-file")

    async def _store(self, configuration: Configuration) -> None:
        """Remember the members. No turn waits for it: it is a memory of addresses, and a disk may stand still."""
        try:
            async with self._storing:
                await aiofiles.os.wrap(self._file.store)(configuration)
        except OSError as error:
            self._agent.terminate(error)
