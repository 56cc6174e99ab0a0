"""The command `trimaran` for the pages of docs/: a process of its own, forked from one that has imported everything.

A page runs dozens of commands and members, and each would import for longer than it runs. `commands_on_path` gives a
directory for PATH. The `trimaran` in it hands its arguments, working directory, environment and open files to a server,
which forks a child that runs the command with them. The script passes signals on and ends with the child's status, and
the child ends with the script. How the installed command starts is what `test_app`, `test_demo` and `test_node_start`
are about.

A command that starts members, as `up` does, runs `sys.executable -m` with the module of `local_child`. Here that is a
script beside `trimaran`, which has such a member forked, too, and is Python for everything else.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.places import ROOT
from tests.system.fork_server import dress
from trimaran.benchmarks.rig.processes import die_with_parent
from trimaran.cluster.cli.app import COMMANDS

REQUEST_LIMIT_BYTES: Final = 1 << 17
"""The longest request: arguments, working directory and environment."""

_MEMBER_OPTIONS: Final = ["-m", "trimaran.cluster.cli.shared.local_child"]
"""What a member is started with that is bound to the process that starts it, whose id comes next."""

MEMBER_PYTHON: Final = "member-python"
"""The name of the script that is `sys.executable` for commands."""

_SCRIPT: Final = """#!{python} -IS
import os, signal, socket, sys
if sys.argv[0].endswith({member_python!r}) and sys.argv[1:3] != {member_options!r}:
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
umask = os.umask(0)
socket.send_fds(server, [repr((sys.argv[1:], os.getcwd(), umask, dict(os.environ))).encode()], [0, 1, 2])
pid = int(server.recv(64))
passed_on = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
for number in passed_on:
    signal.signal(number, lambda number, frame: os.kill(pid, number))
os.closerange(0, 3)
status = int(server.recv(64))
if status < 0:
    if -status in passed_on:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""
"""The answers are the child's process id and, when it has ended, its status, or the signal that ended it, below 0."""


@cache
def commands_on_path() -> Path:
    """The directory with `trimaran` in it; it and the server are there until this process ends."""
    directory = tempfile.TemporaryDirectory(prefix="trimaran-command-")
    address = Path(directory.name, "server")
    command = (sys.executable, "-m", "tests.system.forked_command", str(address))
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    text = _SCRIPT.format(
        python=sys.executable, address=str(address), member_python=MEMBER_PYTHON, member_options=_MEMBER_OPTIONS
    )
    for name in ("trimaran", MEMBER_PYTHON):
        script = Path(directory.name, name)
        script.write_text(text)
        script.chmod(0o755)

    def end() -> None:
        server.kill()
        server.communicate()
        directory.cleanup()

    atexit.register(end)
    return Path(directory.name)


def serve(address: str) -> list[str]:
    """Fork a process for each request, until this one is killed; gives the arguments in what becomes the command."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(64)
        print("ready", flush=True)
        while True:
            caller, _ = listener.accept()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):  # those that have answered
                    pass
            with caller:
                if os.fork() == 0:
                    listener.close()
                    return start(caller)


def start(caller: socket.socket) -> list[str]:
    """Fork the command and answer for it; gives its arguments in the child only."""
    die_with_parent()
    request, files, _, _ = socket.recv_fds(caller, REQUEST_LIMIT_BYTES, 3)
    arguments, directory, umask, environment = ast.literal_eval(request.decode())
    watched = [caller.fileno()]
    if arguments[: len(_MEMBER_OPTIONS)] == _MEMBER_OPTIONS:
        parent_pid, *arguments = arguments[len(_MEMBER_OPTIONS) :]
        try:
            watched.append(os.pidfd_open(int(parent_pid)))
        except ProcessLookupError:
            os._exit(0)
    pid = os.fork()
    if pid == 0:
        caller.close()
        die_with_parent()
        dress(arguments, environment, files)
        os.chdir(directory)
        os.umask(umask)
        own = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.path[:] = [*own, *(path for path in sys.path if path not in ("", str(ROOT)))]
        return list(arguments)
    for file in files:
        os.close(file)
    answer(caller, pid, watched)
    os._exit(0)


def answer(caller: socket.socket, pid: int, watched: Sequence[int]) -> None:
    """Tell the script which process the command is, and how it ended; end it where one of `watched` has ended before.

    They are the script, and of a member also the process that it is bound to.
    """
    poller, ended = select.poll(), os.pidfd_open(pid)
    for descriptor in (*watched, ended):
        poller.register(descriptor, select.POLLIN)
    with contextlib.suppress(OSError):  # the script was killed
        caller.send(b"%d" % pid)
    if ended not in dict(poller.poll()):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        caller.send(b"%d" % status)


if __name__ == "__main__":
    from trimaran.cluster.cli import main

    sys.executable = str(Path(sys.argv[1]).with_name(MEMBER_PYTHON))  # before it is made a default of parameters
    for module in ("uvloop", "trimaran.cluster.node", *(each.target.partition(":")[0] for each in COMMANDS.values())):
        importlib.import_module(module)
    gc.freeze()  # children would copy every page of it in their first collection
    main(serve(sys.argv[1]))
