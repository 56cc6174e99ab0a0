"""Keeps the groups of one member running: a process of its own for each, behind `trimaran node --groups N`.

A Python process uses one core, so each group is a process. What happens to one is nothing to the others:

- a group that is killed, or fails, starts again after a pause: 1 s, doubled each time up to 30 s, 1 s again once it has
  run for a minute;
- a group that ends by itself with status 0 was told to stop, by `trimaran shutdown` for example: it stays stopped;
- a group whose settings cannot be used, status 2, would fail again: all groups are stopped in order, and the command
  ends with 2;
- SIGTERM or SIGINT goes on to every group, which hands over and stops; a second one stops them at once.

The command ends with the last group: with 0, or with 1 if a group failed while it was stopping. Groups do not outlive
the command, however it ends: see `local_child`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from ....archive.tool.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from ....service_api.stop_signals import on_stop_signal
from ...settings.config import NodeConfig
from ...settings.config_layers import flag_arguments, setting_kind
from ...settings.variables import clean_environment

RESTART_MIN_S: Final = 1.0
RESTART_MAX_S: Final = 30.0
STABLE_S: Final = 60.0
"""How long a group has to run for its next pause to be the shortest again."""

logger = structlog.get_logger()


class GroupSupervisor:
    """Runs the groups of one member until each has stopped; `config` is that of the whole member."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        program: Sequence[str] = (sys.executable, "-m", "trimaran.cluster.cli.shared.local_child"),
        restart_min_s: float = RESTART_MIN_S,
    ) -> None:
        self._config = config
        self._program = program
        self._restart_min_s = restart_min_s
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._status = EXIT_OK

    def __repr__(self) -> str:
        return f"<GroupSupervisor groups={self._config.groups} running={sorted(self._processes)}>"

    async def run(self) -> int:
        """Start every group, keep them running, and return the exit status of the command."""
        on_stop_signal(self.stop)
        async with asyncio.TaskGroup() as tasks:
            for group_index in range(self._config.groups):
                tasks.create_task(self._keep_running(group_index), name=f"group-{group_index}")
        return self._status

    def stop(self) -> None:
        """Tell every group to stop; those that are stopping already, at once."""
        self._stopping.set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def _keep_running(self, group_index: int) -> None:
        pause_s = self._restart_min_s
        now_s: Callable[[], float] = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            started_s = now_s()
            status = await self._run_once(group_index)
            if status == EXIT_OK or (self._stopping.is_set() and status == -signal.SIGTERM):  # had not begun
                logger.info("group.stopped", group=group_index)
                return
            if status == EXIT_USAGE:
                logger.error("group.refused", group=group_index, exit_status=status, reason="it says why above")
                self._status = EXIT_USAGE
                self.stop()
                return
            if self._stopping.is_set():
                self._status = self._status or EXIT_FAILED
                logger.error("group.ended", group=group_index, exit_status=status)
                return
            if now_s() - started_s >= STABLE_S:
                pause_s = self._restart_min_s
            logger.error("group.ended", group=group_index, exit_status=status, restart_in_s=pause_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
            pause_s = min(2 * pause_s, RESTART_MAX_S)

    async def _run_once(self, group_index: int) -> int:
        process = await asyncio.create_subprocess_exec(
            *self._program,
            str(os.getpid()),
            "node",
            *self._flags(group_index),
            stdin=asyncio.subprocess.PIPE,  # closed when this process ends: see `local_child`
            env=clean_environment(),
            start_new_session=True,
        )
        self._processes[group_index] = process
        logger.info("group.started", group=group_index, pid=process.pid)
        if self._stopping.is_set():  # meanwhile
            process.send_signal(signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            del self._processes[group_index]

    def _flags(self, group_index: int) -> list[str]:
        """Write the settings of the whole member as flags, and which group it is: the process makes its own of them."""
        fields = NodeConfig.model_fields
        given = {name: getattr(self._config, name) for name in fields}
        changed = {
            name: setting_kind(name).show(value)
            for name, value in given.items()
            if fields[name].is_required() or value != fields[name].default
        }
        changed["group"] = str(group_index)
        return [part for name, text in changed.items() for part in flag_arguments(name, text)]
