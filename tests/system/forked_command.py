"""The command `trimaran` for the pages of docs/: a process of its own, forked from one that has imported everything.

A page runs dozens of commands and members, and each would import for longer than it runs. `commands_on_path` gives a
directory for PATH. The `trimaran` in it hands its arguments, working directory, environment and open files to a server,
which forks a child that runs the command with them. The script passes signals on and ends with the child's status, and
the child ends with the script. How the installed command starts is what `test_app`, `test_demo` and `test_node_start`
are about.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.places import ROOT
from tests.system.fork_server import dress
from trimaran.benchmarks.rig.processes import die_with_parent
from trimaran.cluster.cli.app import COMMANDS

REQUEST_LIMIT_BYTES: Final = 1 << 17
"""The longest request: arguments, working directory and environment."""

_SCRIPT: Final = """#!{python} -IS
import os, signal, socket, sys
server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
server.connect({address!r})
socket.send_fds(server, [repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()], [0, 1, 2])
pid = int(server.recv(64))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(pid, number))
os.closerange(0, 3)
sys.exit(int(server.recv(64)))
"""
"""The answers are the child's process id and, when it has ended, the status that a shell would give it."""


@cache
def commands_on_path() -> Path:
    """The directory with `trimaran` in it; it and the server are there until this process ends."""
    directory = tempfile.TemporaryDirectory(prefix="trimaran-command-")
    address, script = Path(directory.name, "server"), Path(directory.name, "trimaran")
    command = (sys.executable, "-m", "tests.system.forked_command", str(address))
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    script.write_text(_SCRIPT.format(python=sys.executable, address=str(address)))
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
    pid = os.fork()
    if pid == 0:
        caller.close()
        return become(request, files)
    for file in files:
        os.close(file)
    answer(caller, pid)
    os._exit(0)


def answer(caller: socket.socket, pid: int) -> None:
    """Tell the script which process the command is, and how it ended; end it where the script has ended before."""
    poller, ended = select.poll(), os.pidfd_open(pid)
    for watched in (caller.fileno(), ended):
        poller.register(watched, select.POLLIN)
    with contextlib.suppress(OSError):  # the script was killed
        caller.send(b"%d" % pid)
    if ended not in dict(poller.poll()):
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        caller.send(b"%d" % (status if status >= 0 else 128 - status))


def become(request: bytes, files: list[int]) -> list[str]:
    """Make this process look as if it had been started with the request's command; gives its arguments."""
    die_with_parent()
    arguments, directory, environment = ast.literal_eval(request.decode())
    dress(arguments, environment, files)
    os.chdir(directory)
    own = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*own, *(path for path in sys.path if path not in ("", str(ROOT)))]
    return list(arguments)


if __name__ == "__main__":
    from trimaran.cluster.cli import main

    for module in ("uvloop", "trimaran.cluster.node", *(each.target.partition(":")[0] for each in COMMANDS.values())):
        importlib.import_module(module)
    main(serve(sys.argv[1]))
