"""The harness's side of its client processes: start them, lead them through the phases, collect results."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .client_process import ClientParameters
from .processes import ManagedProcess, ProcessError, ProcessGroup

Event = dict[str, Any]  # one line of JSON from a client process

_LINE_LIMIT = 16 << 20
"""The longest line that a client may print, in bytes: its histogram."""


class ClientProcess:
    """One client process and the lines to and from it."""

    def __init__(self, process: ManagedProcess, events: asyncio.StreamReader, pipe: asyncio.ReadTransport) -> None:
        self.process = process
        self._events = events
        self._pipe = pipe

    @classmethod
    async def spawn(
        cls, group: ProcessGroup, name: str, parameters: ClientParameters, *, log_path: Path
    ) -> ClientProcess:
        """Start a client process in `group`."""
        process = group.spawn(
            name,
            (sys.executable, "-m", "trimaran.benchmarks.client_process", parameters.to_json()),
            log_path=log_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        events = asyncio.StreamReader(limit=_LINE_LIMIT)
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(events), process.popen.stdout
        )
        return cls(process, events, pipe)

    def close(self) -> None:
        """Stop reading; the process is its group's to end."""
        self._pipe.close()

    def go(self) -> None:
        """Let it do the next phase."""
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(b"go\n")
        self.process.popen.stdin.flush()

    async def wait_for(self, wanted: str, on_progress: Callable[[int], None] | None = None) -> Event:
        """Wait for an event.

        Raises:
            ProcessError: the process ended instead; the message has what it printed.
        """
        while line := await self._events.readline():
            event: Event = json.loads(line)
            if event["event"] == wanted:
                return event
            if on_progress is not None and event["event"] == "progress":
                on_progress(event["replies"])
        # The process closed its output, so it is about to end by itself: that takes no time worth a yield.
        self.process.popen.wait()
        process = self.process
        status = process.popen.returncode
        raise ProcessError(f"{process.name} failed: exit_status={status}\n{process.log_tail()}")


async def all_events(
    clients: Sequence[ClientProcess], wanted: str, on_progress: Callable[[int, int], None] | None = None
) -> list[Event]:
    """Wait for an event of every client; `on_progress` gets the client's index and its replies so far."""

    def progress_of(index: int) -> Callable[[int], None] | None:
        return None if on_progress is None else lambda replies: on_progress(index, replies)

    async with asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(client.wait_for(wanted, progress_of(index))) for index, client in enumerate(clients)
        ]
    return [task.result() for task in waiting]


def all_go(clients: Sequence[ClientProcess]) -> None:
    """Let every client do the next phase."""
    for client in clients:
        client.go()
