"""Keeps the members of a development cluster running, and reports what happens to them.

A member that somebody kills, to see what happens, is started again after a moment. One that was told to stop stays
stopped; so `trimaran shutdown` ends all of them. One that fails has a reason that a restart would only repeat: it stays
down, and its last words are shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ..shared.local_nodes import LocalNodes, LocalNodesError, NodeProcess, describe_end

RESTART_DELAY_S: Final = 2.0
"""Time enough to see a cluster without the member."""


class Supervisor:
    """Runs the members until it is cancelled; `stop` must be called whatever happens."""

    def __init__(
        self, nodes: LocalNodes, say: Callable[[str, str], None], *, restart_delay_s: float = RESTART_DELAY_S
    ) -> None:
        self._nodes = nodes
        self._say = say
        self._restart_delay_s = restart_delay_s

    async def start(self) -> None:
        """Start every member."""
        await self._nodes.start()
        for node in self._nodes.nodes:
            self._tell_start(node)

    async def run(self) -> None:
        """Keep them running, until every one was told to stop.

        Raises:
            LocalNodesError: no member is left, and one has failed.
        """
        async with asyncio.TaskGroup() as group:
            for node in self._nodes.nodes:
                group.create_task(self._keep_running(node), name=f"member-{node.member_id}")
        if any(node.process.returncode for node in self._nodes.nodes):
            raise LocalNodesError("no member is left running")

    async def stop(self) -> None:
        """End every member in order; what does not end is killed."""
        try:
            await self._nodes.stop()
        finally:
            await self._nodes.close()

    async def _keep_running(self, node: NodeProcess) -> None:
        """Return when the member has ended and nobody killed it."""
        while True:
            status = await node.process.wait()
            if status >= 0:
                word, text = ("down", describe_end(node)) if status else ("stopped", f"member {node.member_id}")
                self._say(word, text)
                return
            self._say("killed", f"member {node.member_id} by signal {-status}; starts again in a moment")
            await asyncio.sleep(self._restart_delay_s)
            node = await self._nodes.restart(node.member_id)
            self._tell_start(node)

    def _tell_start(self, node: NodeProcess) -> None:
        self._say("member", f"{node.member_id}: pid {node.process.pid}, log {node.log_file}")
