"""Worker processes that run one seed at a time, and report when one of them dies.

Whatever becomes of a process, its seed gets an outcome: an error that nobody caught, a crash of the interpreter, a
signal from outside, and a seed that does not come to an end. For the last the process has a watchdog thread of the
interpreter, which writes where the seed was and ends the process; should even that fail, we kill it a while later.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

from ...testing.simulation.campaign import Simulate
from ...testing.simulation.run import Failure, Options, RunOutcome

DEATH_RULE: Final = "the process that runs a seed outlives it"
ENDLESS_RULE: Final = "a seed comes to an end"
ERROR_RULE: Final = "no error leaves the simulator"

_TICK_S: Final = 0.2
_GRACE_S: Final = 30.0
_JOIN_TIMEOUT_S: Final = 5.0
_NOTE_LIMIT: Final = 6_000
"""The most characters of a stack that are shown."""

_WAIT_FACTOR: Final = 10
"""So many times its limit of processor time a seed may take by the clock: on a busy machine it waits."""

_WATCHDOG_MARK: Final = "Timeout ("
"""How the watchdog's text begins."""


@dataclass(slots=True)
class _Worker:
    """One process, and what it is doing."""

    process: BaseProcess
    connection: Any  # Connection's two type parameters are of no use here
    note_file: Path
    """What the watchdog, or a crash, has to say."""
    task: tuple[int, Options] | None = None
    started_ns: int = 0


class WorkerPool:
    """Runs seeds in processes of their own; a context manager that leaves none behind.

    Bounded: as many seeds as processes are under way, `submit` refuses more. `limit_s` is the processor time of a seed.
    """

    def __init__(self, simulate: Simulate, *, count: int, limit_s: float, monotonic_ns: Callable[[], int]) -> None:
        self._simulate, self._count, self._limit_s, self._monotonic_ns = simulate, count, limit_s, monotonic_ns
        self._context = multiprocessing.get_context("spawn")
        self._directory = tempfile.TemporaryDirectory(prefix="trimaran-sim-")
        self._workers: list[_Worker] = []
        self._started_count = 0

    def __repr__(self) -> str:
        return f"<WorkerPool {self.busy_count} of {self._count} busy>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.process.close()
        self._workers.clear()
        self._directory.cleanup()

    @property
    def busy_count(self) -> int:
        """How many seeds are under way."""
        return sum(worker.task is not None for worker in self._workers)

    @property
    def free_count(self) -> int:
        """How many seeds can be given now."""
        return self._count - self.busy_count

    def submit(self, seed: int, options: Options) -> None:
        """Give a seed to a free process, or to a new one."""
        assert self.free_count > 0
        worker = next((worker for worker in self._workers if worker.task is None), None) or self._start_worker()
        worker.task, worker.started_ns = (seed, options), self._monotonic_ns()
        # A process that died while it was idle is found out by wait().
        with contextlib.suppress(BrokenPipeError):
            worker.connection.send(worker.task)

    def wait(self) -> list[RunOutcome]:
        """Wait for at most a fifth of a second; give the outcomes that have come since."""
        ready = wait([worker.connection for worker in self._workers], _TICK_S)
        outcomes = [self._collect(worker) for worker in [*self._workers] if worker.connection in ready]
        overdue_ns = self._monotonic_ns() - int((_WAIT_FACTOR * self._limit_s + _GRACE_S) * 1e9)
        for worker in self._workers:
            if worker.task is not None and worker.started_ns < overdue_ns:
                worker.process.kill()
        return [outcome for outcome in outcomes if outcome is not None]

    def run(self, seed: int, options: Options) -> RunOutcome:
        """Run one seed and wait for it; nothing else may be under way."""
        assert not self.busy_count
        self.submit(seed, options)
        while True:
            for outcome in self.wait():
                return outcome

    def _start_worker(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        self._started_count += 1
        note_file = Path(self._directory.name, f"worker-{self._started_count}.txt")
        process = self._context.Process(
            target=_serve,
            args=(theirs, self._simulate, note_file, self._limit_s),
            name=f"sim-{self._started_count}",
            daemon=True,
        )
        # Ctrl-C reaches the whole group. A process inherits what is blocked: it leaves the end to us from its first
        # instruction on, and we hear of a Ctrl-C of this moment afterwards. The tracker comes first: starting it lets
        # the signal through again.
        if os.name == "posix":
            resource_tracker.ensure_running()
        with _interrupts_blocked():
            process.start()
        theirs.close()
        worker = _Worker(process, ours, note_file)
        self._workers.append(worker)
        return worker

    def _collect(self, worker: _Worker) -> RunOutcome | None:
        """Take what a worker sent; if it died, say so in its name. None if it had nothing to do."""
        try:
            outcome: RunOutcome = worker.connection.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        worker.task = None
        return outcome

    def _bury(self, worker: _Worker) -> RunOutcome | None:
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join(_JOIN_TIMEOUT_S)
        worker.process.kill()
        worker.process.join()
        exit_code = worker.process.exitcode
        worker.process.close()
        if worker.task is None:
            return None
        seed, options = worker.task
        return RunOutcome(
            seed, options, failure=_failure_of_death(exit_code, _read_note(worker.note_file), self._limit_s)
        )


def _failure_of_death(exit_code: int | None, note: str, limit_s: float) -> Failure:
    if note.startswith(_WATCHDOG_MARK) or exit_code == -signal.SIGPROF:
        return Failure(ENDLESS_RULE, f"{ENDLESS_RULE}: limit_s={limit_s:g}\n{note}".rstrip(), 0.0)
    how = f"exit_code={exit_code}"
    if exit_code is not None and exit_code < 0:
        how = f"signal={signal.Signals(-exit_code).name}"
    return Failure(DEATH_RULE, f"{DEATH_RULE}: {how}\n{note}".rstrip(), 0.0)


def _read_note(note_file: Path) -> str:
    try:
        return note_file.read_text(encoding="utf-8", errors="replace")[:_NOTE_LIMIT]
    except OSError:
        return ""


def _serve(connection: Connection, simulate: Simulate, note_file: Path, limit_s: float) -> None:
    """Run what comes until the other end is closed; the main function of a worker."""
    os.dup2(2, 1)  # what a service prints must not get among the figures
    with note_file.open("w", encoding="utf-8") as note, contextlib.suppress(EOFError, BrokenPipeError):
        faulthandler.enable(note)
        set_timer = _make_processor_timer(note)
        while True:
            seed, options = connection.recv()
            faulthandler.dump_traceback_later(_WAIT_FACTOR * limit_s, exit=True, file=note)
            set_timer(limit_s)
            outcome = run_guarded(simulate, seed, options)
            set_timer(0)
            faulthandler.cancel_dump_traceback_later()
            connection.send(outcome)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT until the end of the block, where a process can."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _make_processor_timer(note: TextIO) -> Callable[[float], object]:
    """Return what ends this process, with its stacks in the note, after so much processor time; 0 stops it.

    On a system without such a timer the limit of wall time ends the process, which is `_WAIT_FACTOR` times as long.
    """
    if not hasattr(signal, "setitimer") or not hasattr(faulthandler, "register"):  # Windows
        return lambda limit_s: None
    faulthandler.register(signal.SIGPROF, note, chain=True)  # which ends the process
    return partial(signal.setitimer, signal.ITIMER_PROF)


def run_guarded(simulate: Simulate, seed: int, options: Options) -> RunOutcome:
    """Run one seed; an error that leaves the simulator is a failure of the seed, too."""
    try:
        return simulate(seed, options)
    except Exception as error:
        text = "".join(traceback.format_exception(error))[-_NOTE_LIMIT:].rstrip()
        rule = f"{ERROR_RULE}: {type(error).__name__}"
        return RunOutcome(seed, options, failure=Failure(rule, f"{rule}: {error}\n{text}", 0.0))
