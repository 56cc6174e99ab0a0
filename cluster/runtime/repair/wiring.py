"""Makes what keeps the files of a member whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ..files.wiring import Files
from ..ground.agent_door import ModuleAgent, NodeEnd
from ..ground.room import Room
from ..ground.wiring import Ground
from .comparing import LogComparer
from .upkeep import Upkeep


@dataclass(slots=True, frozen=True)
class Repair(Room):
    """The repair of one member's files, and the comparison of its log with the others'."""

    ground: Ground
    agent: ModuleAgent
    upkeep: Upkeep
    comparer: LogComparer

    def start(self) -> None:
        """Find and mend, from now on."""
        tasks = self.ground.tasks
        self.upkeep.start(tasks)
        restart = partial(self.agent.restart, NodeEnd.LOG_DIFFERED)
        tasks.create_task(self.comparer.watch(restart), name="compare-logs")
        tasks.create_task(self.comparer.watch_neighbours(restart), name="compare-logs-with-held")


def make_repair(ground: Ground, agent: ModuleAgent, files: Files) -> Repair:
    """Make what mends the files of a member; it asks the other members for what is missing."""
    ctx, config, host = agent.module.ctx, ground.config, ground.host
    upkeep = Upkeep(
        ctx,
        files.archive,
        config,
        host=host,
        copies=files.member.log_copies,
        agent=agent,
    )
    comparer = LogComparer(
        ctx,
        files.archive,
        files.member,
        upkeep.mender,
        network=host.network,
        directory=config.directory,
    )
    return Repair(ground, agent, upkeep, comparer)
