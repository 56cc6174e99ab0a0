"""A node process that ends when the command that started it ends, for any reason.

The command stops its nodes itself. Should it be killed before it can, the kernel ends them: on Linux a process
may ask for a signal at the death of its parent. Elsewhere the command's own care has to do.

    python -m trimaran.cluster.cli.shared.local_child PARENT_PID node --member-id 0 ...
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def end_with_parent(parent_pid: int) -> None:
    """Ask for SIGKILL when the parent dies; leave at once if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:
        raise SystemExit(f"the parent has ended: parent_pid={parent_pid}")


def main(arguments: Sequence[str]) -> None:
    """Bind this process to its parent, then become the command line."""
    end_with_parent(int(arguments[0]))
    from .. import main as trimaran

    trimaran(arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
