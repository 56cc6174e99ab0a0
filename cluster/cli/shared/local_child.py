"""A node process that ends when the command that started it ends, for any reason.

The command stops its nodes itself. Should it be killed before it can, the kernel ends them: on Linux a process
may ask for a signal at the death of its parent. Elsewhere, where standard input is a pipe from the command, a thread
waits for its end, and ends the process then.

    python -m trimaran.cluster.cli.shared.local_child PARENT_PID node --member-id 0 ...
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import sys
import threading
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Ask for SIGKILL when the parent dies; leave at once if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    elif stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=end_with_pipe, args=(0,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent_pid:
        raise SystemExit(f"the parent has ended: parent_pid={parent_pid}")


def end_with_pipe(descriptor: int) -> None:
    """Wait for the end of a pipe that the parent holds open, and kill this process then. What comes is passed over."""
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> None:
    """Bind this process to its parent, then become the command line."""
    end_with_parent(int(arguments[0]))
    from .. import main as trimaran

    trimaran(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
