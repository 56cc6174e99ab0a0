"""Runs a command while a lock is held: `trimaran locks run`.

When the lock is lost, the command is told to end: another process may hold the lock already. A store that checks the
fencing token is safe meanwhile. SIGTERM and SIGHUP are passed on to the command, and so is SIGINT, except from a
terminal, which sends it to both. While the lock is waited for, each of them ends the wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ....archive.tool.output import EXIT_FAILED, print_error
from ....client import ClientConfig
from ....client.ready_made import HeldLock, LocksClient, LockTimeoutError
from ....service_api.errors import ClusterError
from ....service_api.stop_signals import stop_signals
from ...runtime.ground.activities import ActivityScope

TOKEN_VARIABLE: Final = "LOCK_TOKEN"
"""Where a command finds the fencing token. Variables that begin with TRIMARAN_ are settings of commands."""
NAME_VARIABLE: Final = "LOCK_NAME"
_SIGNALS: Final = stop_signals()
_SIGNALLED: Final = 128
"""A shell adds it to the number of the signal that ended a command."""
_RELEASE_LIMIT_S: Final = 5.0
"""How long the release may take; the end of the session ends the lock as well."""


@dataclass(frozen=True)
class LockedCommand:
    """A command, and the lock that it needs."""

    name: str
    command: tuple[str, ...]
    is_shared: bool
    wait_s: float | None
    """How long to wait for the lock; None: for ever."""
    lease_s: float
    value: str
    grace_s: float
    """How long the command may take to end after SIGTERM."""

    async def run(self, config: ClientConfig) -> int:
        """Take the lock, run the command, give the lock back; returns the exit status.

        Raises:
            ClusterError: as `LocksClient.connect` and `LocksClient.acquire`; nothing has run then.
        """
        signals = _Signals()
        with signals.caught():
            async with LocksClient.connect(config=config) as locks:
                try:
                    held = await self._acquire(locks, signals)
                except LockTimeoutError as error:
                    print_error(str(error))
                    return EXIT_FAILED
                if held is None:
                    return _SIGNALLED + signals.first
                try:
                    return await self._run_holding(held, signals)
                finally:
                    with contextlib.suppress(ClusterError, TimeoutError):
                        async with asyncio.timeout(_RELEASE_LIMIT_S):
                            await held.release()

    async def _acquire(self, locks: LocksClient, signals: _Signals) -> HeldLock | None:
        """Wait for the lock; None if a signal came first."""
        task = asyncio.current_task()
        assert task is not None
        signals.send = lambda number: task.cancel()
        try:
            return await locks.acquire(
                self.name, shared=self.is_shared, timeout_s=self.wait_s, lease_s=self.lease_s, value=self.value
            )
        except asyncio.CancelledError:
            if not signals.first:
                raise
            while task.uncancel():
                continue
            return None
        finally:
            signals.send = lambda number: None

    async def _run_holding(self, held: HeldLock, signals: _Signals) -> int:
        if signals.first:
            return _SIGNALLED + signals.first
        environment = os.environ | {TOKEN_VARIABLE: str(held.token), NAME_VARIABLE: self.name}
        process = await asyncio.create_subprocess_exec(*self.command, env=environment)
        signals.send = lambda number: _pass_on(process, number)
        async with ActivityScope() as tasks:
            tasks.create_task(self._end_when_lost(held, process), name="lock lost")
            code = await process.wait()
        return EXIT_FAILED if held.lost.is_set() else _status_of(code)

    async def _end_when_lost(self, held: HeldLock, process: Process) -> None:
        await held.lost.wait()
        print_error(f"lock={self.name!r} was lost: the command is told to end")
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
            process.terminate()
            await asyncio.sleep(self.grace_s)
            process.kill()


class _Signals:
    """The signals that would end this process, handed on instead."""

    def __init__(self) -> None:
        self.first = 0
        """The number of the first one; 0: none came."""
        self.send: Callable[[signal.Signals], object] = lambda number: None
        """What is done with each."""

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Catch them."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        self.first = self.first or int(number)
        self.send(number)


def _pass_on(process: Process, number: signal.Signals) -> None:
    is_from_terminal = number is signal.SIGINT and sys.stdin is not None and sys.stdin.isatty()
    if process.returncode is None and not is_from_terminal:
        process.send_signal(number)


def _status_of(code: int) -> int:
    return code if code >= 0 else _SIGNALLED - code
