"""Runs a backup on a path: opens the directory, runs the agent, and begins another backup where one cannot go on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

import aiofiles.os
import structlog

from ....archive.config import ArchiveConfig
from ...runtime.ground.host import Host
from .agent import BackupAgent, BackupGapError
from .directory import BackupDirectory
from .settings import BackupSettings

logger = structlog.get_logger()


async def run_backup(
    path: Path,
    settings: BackupSettings,
    *,
    archive: ArchiveConfig,
    host: Host,
    on_agent: Callable[[BackupAgent], None] = lambda agent: None,
) -> None:
    """Back a cluster up into the directory at `path` until cancelled. `on_agent` is told of each agent.

    Where the members have removed the log that comes next, what is there gets the name `PATH.until-POSITION`, whole as
    it is, and a new backup begins at `path` with the members' newest snapshot. If another one that ended at the same
    position has that name, a number follows: `PATH.until-POSITION-2`.

    Raises:
        ClusterError: the directory cannot be used, or is of another cluster.
        OSError: the disk refused.
    """
    while True:
        async with BackupDirectory.open(path, archive, host) as directory:
            agent = BackupAgent(directory, settings, host)
            on_agent(agent)
            try:
                await agent.run()
            except BackupGapError as error:
                gap, position = error, directory.recorded_position
        disk = host.file_system
        taken = set(disk.list_directory(path.parent))
        names = chain([f"{path.name}.until-{position}"], (f"{path.name}.until-{position}-{n}" for n in count(2)))
        kept = path.with_name(next(name for name in names if name not in taken))
        await aiofiles.os.wrap(disk.rename)(path, kept)
        await aiofiles.os.wrap(disk.sync_directory)(path.parent)
        logger.warning("backup.begun_again", reason=str(gap), kept=str(kept))
