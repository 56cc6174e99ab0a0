"""A copy of this process that writes a large state, while this one goes on with the log.

The problem: two million orders take seconds to encode, and delivery would stand still for as long. The idea is that of
Redis: `fork` copies the page tables, so the copy has the state as it is now, for good, and only what either of them
changes afterwards is copied, page by page. The copy runs the service's `snapshot_messages` and sends the messages
through a pipe; this process records them, as it records any snapshot.

The copy is nobody: of this process's threads it has the one that forked, and it closes all of its files and sockets
first, so a member that dies is seen to be dead, and its directory is free. It ends when it is done, when the pipe has
no reader, or with its parent. It leaves the processor, and the memory where that runs out, to others.

Invariant: nothing but the pipe comes back from a copy, and all that it says is checked to be whole.

Measured (2 million orders, 195 MB as messages, a process of 692 MB; processor time): the fork takes 18 to 23 ms, the
copy 0.9 s, reading what it sends 0.13 s. `python -m trimaran.benchmarks snapshots` has the rest.
Rejected: a thread, which holds the interpreter's lock as long as the encoding, 20 ms a turn, and needs a state that
does not change; a state that keeps old versions, which every callback would pay for.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Final, NoReturn, Protocol

from ....service_api import ClusterError
from ....service_api.payloads import plain_bytes

_NICENESS: Final = 10
_WRITE_BYTES: Final = 256 << 10
_READ_BYTES: Final = 1 << 20
_PIPE_BYTES: Final = 1 << 20
_SET_PIPE_SIZE: Final = 1031
_SET_PARENT_DEATH_SIGNAL: Final = 1
SILENCE_LIMIT_S: Final = 60
"""A copy that has sent nothing for so long never will: it waits for a lock that a thread held when it was made."""

_LENGTH_BYTES: Final = 8
_END: Final = (1 << 64) - 1
_FAILED: Final = _END - 1
"""In place of a length: all messages were sent, or what follows, to the end, says why there are no more."""


class StateCopy(Protocol):
    """Messages of a state that does not change any more."""

    def read_batch(self) -> list[bytes]:
        """Return the next messages, none at the end. Blocks, for ever if there is something wrong with the copy."""

    def close(self) -> None:
        """Give up what holds the state. Blocks."""


CopyState = Callable[[Iterator[bytes]], StateCopy]
"""Sets the state aside as it is now, to yield the rest of these messages. Raises `OSError` where that cannot be."""


class StateCopyError(ClusterError):
    """The copy of the process did not write the whole state."""

    retriable = True


def find_copy_state() -> CopyState | None:
    """Return how a state is copied on this system; None where a process may not be forked that has threads."""
    return ProcessCopy.fork if sys.platform == "linux" else None


class ProcessCopy:
    """A copy of this process, seen from this process."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid: Final = pid
        self._pipe = pipe
        self._received = bytearray()
        self._is_ended = False
        self._is_reading = threading.Lock()

    def __repr__(self) -> str:
        return f"<ProcessCopy pid={self.pid}>"

    @classmethod
    def fork(cls, messages: Iterator[bytes]) -> ProcessCopy:
        """Copy this process, to yield the rest of these messages there. Takes 20 to 60 ms for each GB of memory.

        Raises:
            OSError: the system has no room for another process.
        """
        parent_pid, set_on_death = os.getpid(), ctypes.CDLL(None).prctl
        read_end, write_end = os.pipe()
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads that hold locks; the copy takes none.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except BaseException:
            os.close(read_end)
            os.close(write_end)
            raise
        if pid == 0:
            set_on_death(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            _run_copy(messages, write_end, parent_pid)
        os.close(write_end)
        with contextlib.suppress(OSError):
            _set_pipe_size(read_end)
        return cls(pid, read_end)

    def read_batch(self) -> list[bytes]:
        """Return the next messages, about 1 MiB or one message; none at the end. Blocks.

        Raises:
            StateCopyError: the copy ended before it had sent everything, or failed.
        """
        with self._is_reading:
            while not self._is_ended:
                batch = self._take()
                if batch:
                    return batch
                if self._is_ended:
                    break
                received = os.read(self._pipe, _READ_BYTES)
                if not received:
                    raise StateCopyError(self._why_it_ended())
                self._received += received
        return []

    def _take(self) -> list[bytes]:
        """Take the whole messages out of what was received."""
        received, at, batch = self._received, 0, []
        while len(received) - at >= _LENGTH_BYTES:
            begin = at + _LENGTH_BYTES
            length = int.from_bytes(received[at:begin], "little")
            if length == _END:
                self._is_ended = True
                break
            if length == _FAILED or len(received) < begin + length:
                break
            at = begin + length
            batch.append(bytes(received[begin:at]))
        del received[:at]
        return batch

    def _why_it_ended(self) -> str:
        received = self._received
        if int.from_bytes(received[:_LENGTH_BYTES], "little") == _FAILED and len(received) > _LENGTH_BYTES:
            return received[_LENGTH_BYTES:].decode(errors="replace")
        return "the copy of the process ended before it had written the state; was it killed, for want of memory?"

    def close(self) -> None:
        """End the copy, and wait until it has. Blocks, for the time that its memory takes to be freed."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with self._is_reading, contextlib.suppress(ChildProcessError):
            os.close(self._pipe)
            os.waitpid(self.pid, 0)


def _set_pipe_size(pipe: int) -> None:
    import fcntl  # there is none on every system

    fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_BYTES)


def _run_copy(messages: Iterator[bytes], pipe: int, parent_pid: int) -> NoReturn:
    """Be the copy: nothing of what this process was doing goes on here."""
    try:
        gc.disable()  # a collection would write to, and so copy, every page
        _leave_all(pipe)
        if os.getppid() == parent_pid:
            _send(messages, pipe)
    except BaseException as error:
        with contextlib.suppress(BaseException):
            _write(pipe, _FAILED.to_bytes(_LENGTH_BYTES, "little") + repr(error).encode(errors="replace"))
    finally:
        os._exit(0)


def _leave_all(pipe: int) -> None:
    signal.set_wakeup_fd(-1)
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_DFL)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    os.nice(_NICENESS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _send(messages: Iterator[bytes], pipe: int) -> None:
    waiting = bytearray()
    for message in messages:
        data = plain_bytes("message", message)
        waiting += len(data).to_bytes(_LENGTH_BYTES, "little")
        waiting += data
        if len(waiting) >= _WRITE_BYTES:
            _write(pipe, waiting)
            waiting.clear()
    _write(pipe, waiting + _END.to_bytes(_LENGTH_BYTES, "little"))


def _write(pipe: int, data: bytes | bytearray) -> None:
    # A copy of what is left would have to be released before the buffer can be cleared: so bytes.
    view = memoryview(bytes(data))
    while view:
        view = view[os.write(pipe, view) :]
