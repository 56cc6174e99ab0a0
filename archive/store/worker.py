"""A thread that does one blocking job after another for an event loop, with one wake-up of the loop per job.

`loop.run_in_executor` builds two futures and a lock per call (33 us a hop); the group commit needs neither. A
simulation gives the recording another `Worker`, which runs the job on its own loop at a virtual time.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Protocol

Job = Callable[[], None]
Done = Callable[[BaseException | None], None]


class Worker(Protocol):
    """Runs jobs in the order they were submitted, and says so on the event loop."""

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` elsewhere, then call `done` on the event loop with the exception it raised, or None."""

    def close(self) -> None:
        """Take no more jobs; those submitted are still run."""


WorkerFactory = Callable[[str], Worker]
"""Makes a worker from a name for its thread."""


class ThreadWorker:
    """One daemon thread, started with the first job. Its owner bounds the queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Job, Done, asyncio.AbstractEventLoop] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job, done: Done) -> None:
        """Run `job` in the thread, then call `done` on the running event loop.

        Raises:
            RuntimeError: the worker is closed.
        """
        if self._closed:
            raise RuntimeError(f"worker is closed: name={self._name}")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put((job, done, asyncio.get_running_loop()))

    def close(self) -> None:
        """End the thread after its pending jobs; does not wait for it."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done, loop = item
            failure: BaseException | None = None
            try:
                job()
            except BaseException as error:  # handed to the owner, who decides
                failure = error
            if loop.is_closed():
                return
            try:
                loop.call_soon_threadsafe(done, failure)
            except RuntimeError:
                # The loop was closed between the check and the call: nobody is left to be told.
                return
