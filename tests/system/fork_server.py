"""Starts members, clients and other commands from a process that has imported everything already.

A member spends most of a short test importing. Here one server per test process imports `trimaran` once and forks a
child for each member. Apart from that the child is what `python -m trimaran node` is: a process of its own in a
session of its own, with its own signals, exit status and log. Tests of the command itself (`test_node_start`,
`test_demo`, the benchmarks) start it as a user does; the guides have a server of their own (`forked_command`).

A member under chaos has a library before all others (`LD_PRELOAD`), which must be there when a process starts: each
such library has a server of its own. The library is started again in the child, with the variables of that member.

Client and server talk over a socket: a request and a report are one JSON line each, and with a request come the open
files of the child. A client sends the next request when the last one was reported. The server has one thread, since it
forks.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.places import ROOT
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup, die_with_parent

PRELOADED: Final = (
    *("trimaran.cluster.cli.node", "trimaran.cluster.node", "tests.system.append_list", "uvloop"),
    *(f"trimaran.cluster.cli.{name}" for name in ("archive", "log", "member", "members", "operate", "status")),
    *(f"trimaran.cluster.cli.{name}" for name in ("health", "recover", "snapshot", "feature_level")),
    *("trimaran.client", "trimaran.client.ready_made", "trimaran.benchmarks.chaos.probe"),
    *(f"trimaran.benchmarks.load.{name}" for name in ("echo", "requests", "sessions")),
)

FORKED_MODULES: Final = ("trimaran", "trimaran.benchmarks.load.client_process", "tests.system.named_node")
"""Modules that are run in a forked process."""

_PRELOAD: Final = "LD_PRELOAD"
_REQUEST_LIMIT_BYTES: Final = 1 << 16


def readable(sockets: Sequence[socket.socket], timeout_s: float | None) -> list[socket.socket]:
    """The sockets that have something to read, waited for so long. Not by `select`, which knows 1,024 descriptors."""
    poller, by_descriptor = select.poll(), {sock.fileno(): sock for sock in sockets}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.POLLIN)
    events = poller.poll(None if timeout_s is None else timeout_s * 1_000)
    return [by_descriptor[descriptor] for descriptor, _ in events]


class ForkedProcess(subprocess.Popen[bytes]):
    """A child of the server, with the part of `Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        """Stand for a process that was started already; there are no pipes to it."""
        self._server = server
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._child_created = False  # not ours to wait for

    def poll(self) -> int | None:
        """Give the exit status; None while it runs."""
        if self.returncode is None:
            self._server.take_reports(0)
            self.returncode = self._server.statuses.pop(self.pid, None)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit status.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (status := self.poll()) is None:
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired(f"pid={self.pid}", timeout or 0)
            self._server.take_reports(left_s)
        return status

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The client's side: asks for children and hears of their ends."""

    def __init__(self, library: str) -> None:
        self.statuses: dict[int, int] = {}
        """Exit statuses by process id, until somebody asks."""
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = (sys.executable, "-m", "tests.system.fork_server")
            environment = {**os.environ, _PRELOAD: library} if library else None
            self._popen = subprocess.Popen(
                command, stdin=theirs.fileno(), cwd=ROOT, env=environment, preexec_fn=die_with_parent
            )
        self._reports = b""
        self._started: list[int] = []
        self._is_ready = False
        while not self._is_ready:
            self.take_reports(None)

    def fork(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
    ) -> ForkedProcess:
        """Run a module as `python -m` does, in a new process with these files for its input, output and errors."""
        request = json.dumps([module, [*arguments], dict(environment)]).encode() + b"\n"
        sent = socket.send_fds(self._socket, [request], files)
        self._socket.sendall(request[sent:])
        while not self._started:
            self.take_reports(None)
        return ForkedProcess(self, self._started.pop())

    def take_reports(self, timeout_s: float | None) -> None:
        """Read what the server has said, waiting for it so long."""
        if not readable([self._socket], timeout_s):
            return
        received = self._socket.recv(65536)
        assert received, f"the fork server has ended: exit_status={self._popen.wait()}"
        *lines, self._reports = (self._reports + received).split(b"\n")
        for line in lines:
            report = json.loads(line)
            if "status" in report:
                self.statuses[report["pid"]] = report["status"]
            elif "ready" in report:
                self._is_ready = True
            else:
                self._started.append(report["pid"])

    def close(self) -> None:
        """End the server; children that are left end with it."""
        self._socket.close()
        self._popen.wait()


@cache
def fork_server(library: str = "") -> ForkServer:
    """The server of this process whose children have this library before all others."""
    server = ForkServer(library)
    atexit.register(server.close)
    return server


_START: Final = ProcessGroup.spawn
"""How a group starts a process; a test may give `ProcessGroup` itself what `ForkedGroup` has."""


class ForkedGroup(ProcessGroup):
    """A group whose members and clients are forked; whatever else it is asked for it starts as any group does."""

    def __init__(self) -> None:
        """Have the server import now: a loop that waits for it later stands still, and its clients time out."""
        super().__init__()
        fork_server()

    def spawn(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        log_path: Path,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ManagedProcess:
        """Start a child in the project directory."""
        module = arguments[2] if tuple(arguments[:2]) == (sys.executable, "-m") else ""
        if module not in FORKED_MODULES:
            return _START(self, name, arguments, log_path=log_path, stdin=stdin, stdout=stdout, environment=environment)
        environment = os.environ if environment is None else environment
        server = fork_server(environment.get(_PRELOAD, ""))
        with log_path.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            theirs_in, ours_in = os.pipe() if stdin == subprocess.PIPE else (os.dup(nothing.fileno()), None)
            ours_out, theirs_out = os.pipe() if stdout == subprocess.PIPE else (None, os.dup(log.fileno()))
            popen = server.fork(module, arguments[3:], environment, [theirs_in, theirs_out, log.fileno()])
            os.close(theirs_in)
            os.close(theirs_out)
        popen.stdin = None if ours_in is None else os.fdopen(ours_in, "wb")
        popen.stdout = None if ours_out is None else os.fdopen(ours_out, "rb")
        process = ManagedProcess(name, popen, log_path)
        self.processes.append(process)
        return process


def serve(client: socket.socket) -> str:
    """Fork a child for each request; gives the module to run in the child. Ends the server when the client has gone."""
    waking, woken = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(waking.fileno())
    client.sendall(b'{"ready": true}\n')
    request, files = b"", list[int]()
    while True:
        ready = readable([client, woken], None)
        if woken in ready:
            woken.recv(4096)
            report_ends(client)
        if client not in ready:
            continue
        received, came, *_ = socket.recv_fds(client, _REQUEST_LIMIT_BYTES, 3)
        if not received:
            raise SystemExit
        request, files = request + received, files + came
        if not request.endswith(b"\n"):
            continue
        server_pid, pid = os.getpid(), os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for held in (client, waking, woken):
                held.close()
            module, arguments, environment = json.loads(request)
            die_with_parent()
            if os.getppid() != server_pid:
                raise SystemExit
            dress(arguments, environment, files)
            return str(module)
        for file in files:
            os.close(file)
        request, files = b"", []
        client.sendall(json.dumps({"pid": pid}).encode() + b"\n")


def report_ends(client: socket.socket) -> None:
    """Collect the children that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        report = {"pid": pid, "status": os.waitstatus_to_exitcode(status)}
        client.sendall(json.dumps(report).encode() + b"\n")


def dress(arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]) -> None:
    """Give a forked process a session, the arguments and environment of its own, and these files for 0, 1 and 2."""
    os.setsid()
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["trimaran", *arguments]


if __name__ == "__main__":
    from trimaran.cluster.cli import main

    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()  # children would copy every page of it in their first collection
    with socket.socket(fileno=os.dup(0)) as connection:
        own = serve(connection)
    if library := os.environ.pop(_PRELOAD, ""):
        ctypes.CDLL(library).chaos_shim_start()
    if own == "trimaran":
        main(sys.argv[1:])
    else:
        runpy.run_module(own, run_name="__main__", alter_sys=True)
