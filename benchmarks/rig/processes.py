"""Members of a cluster as real processes on loopback, ended by pid whatever happens.

Every child runs in a session of its own, so a Ctrl-C reaches it through us alone, and the kernel kills it
should this process die without a chance to clean up. What a member prints goes to `member-<id>.log` in the
data directory.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ...archive.log.group_directories import group_directory
from ...cluster.cli.shared.local_nodes import BASE_PORTS
from ...cluster.settings.variables import clean_environment
from ...service_api.errors import ClusterError
from ...service_api.groups.group import Group
from ...service_api.groups.ports import GROUP_PORT_STRIDE
from ...service_api.net.transport import SOCKETS, NetworkStack
from ...service_api.tls import TlsSettings, TlsStack
from .certificates import certificates_in

PORTS_PER_MEMBER: Final = 5
"""Ingress, consensus, log, catchup and archive, from one base port."""

_DRAWN_PORTS: Final = range(10_000, BASE_PORTS.start - 10 * GROUP_PORT_STRIDE, PORTS_PER_MEMBER)
_RESERVATIONS: Final = deque[int]()
"""Sockets that keep ports from other processes, the oldest first."""
_RESERVATION_LIMIT: Final = 100
"""Reservations at a time, at most. The oldest is given up for a new one: its member listens by then, or has ended."""
_FILES_BESIDES: Final = 200
"""What a process has open besides the connections of client sessions."""
_PR_SET_PDEATHSIG: Final = 1
_PROJECT_DIR: Final = Path(__file__).resolve().parents[2]
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ProcessError(ClusterError):
    """A process that should run does not; the message ends with what it printed last."""


@dataclass(slots=True)
class ManagedProcess:
    """One child process and where its output goes."""

    name: str
    popen: subprocess.Popen[bytes]
    log_path: Path

    @property
    def pid(self) -> int:
        """The process id."""
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.popen.poll() is None

    def cpu_seconds(self) -> float:
        """User and system time that it took so far, in clock ticks of 10 ms; 0 when it is gone."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.is_running:
            self.popen.send_signal(number)

    def log_tail(self, line_limit: int = 15) -> str:
        """The last lines it printed."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-line_limit:])

    def check_running(self) -> None:
        """Raise unless it runs.

        Raises:
            ProcessError: with its exit status and last lines.
        """
        if not self.is_running:
            status = self.popen.returncode
            raise ProcessError(f"{self.name} ended: exit_status={status} log={self.log_path}\n{self.log_tail()}")


class ProcessGroup:
    """Children that end together: on leaving the `with` block, with a time limit, by pid."""

    def __init__(self, *, stop_timeout_s: float = 10.0) -> None:
        self._stop_timeout_s = stop_timeout_s
        self.processes: list[ManagedProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

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
        """Start a child in the project directory; without `stdout` both its outputs go to `log_path`."""
        with log_path.open("ab") as log:
            popen = subprocess.Popen(
                arguments,
                stdin=stdin,
                stdout=log if stdout is None else stdout,
                stderr=log,
                cwd=_PROJECT_DIR,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        process = ManagedProcess(name, popen, log_path)
        self.processes.append(process)
        return process

    def check_running(self) -> None:
        """Raise unless every child runs."""
        for process in self.processes:
            process.check_running()

    def stop(self) -> None:
        """End every child: SIGTERM to all, then SIGKILL to those that are left at the time limit."""
        for process in self.processes:
            process.signal(signal.SIGCONT)
            process.signal(signal.SIGTERM)
        deadline = time.monotonic() + self._stop_timeout_s
        for process in self.processes:
            try:
                process.popen.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.signal(signal.SIGKILL)
                process.popen.wait()
            for stream in (process.popen.stdin, process.popen.stdout):
                if stream is not None:
                    stream.close()


@dataclass(slots=True)
class ClusterProcesses:
    """A cluster of `trimaran node` processes on free ports of 127.0.0.1.

    `settings` are node settings by name, as flags take them, for example {"file_sync_level": "1"}.
    """

    data_dir: Path
    service: str
    member_count: int = 3
    service_dir: Path = _PROJECT_DIR
    settings: Mapping[str, str] = field(default_factory=dict)
    group: ProcessGroup = field(default_factory=ProcessGroup)
    base_ports: list[int] = field(default_factory=list)
    member_lists: Mapping[int, str] = field(default_factory=dict)
    """The `members` setting of single members, where it is not the plain one."""
    environments: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Variables that single members are given."""
    prefixes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """The command before a member's own, by member: one that replaces itself by what it is to run."""
    members: dict[int, ManagedProcess] = field(default_factory=dict)
    network: NetworkStack = SOCKETS
    """What this process asks the members with, and its clients dial with."""
    with_tls: bool = False
    """Whether it makes certificates, for its members, for itself, and for client processes (`client_tls`)."""
    key_group: Group | None = None
    """The group of keys that these are the members of; its ports are `base_ports`, and `members` are those of group 0.
    """
    place_count: int = 0
    """How many members may be added later: each has a base port after those of the first ones."""
    client_tls: TlsSettings | None = None

    def __post_init__(self) -> None:
        self.base_ports = self.base_ports or find_base_ports(self.member_count + self.place_count)
        if self.key_group is not None:
            group = {"groups": str(self.key_group.count), "group": str(self.key_group.index)}
            self.settings = {**self.settings, **group}
        if self.with_tls:
            certificates = certificates_in(self.data_dir)
            self.settings = {**certificates.node_settings, **self.settings}
            self.network, self.client_tls = TlsStack(certificates.operator), certificates.client

    def __enter__(self) -> Self:
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.enter_context(self.group)
            for member_id in range(self.member_count):
                self.start_member(member_id)
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.group.stop()

    @property
    def ingress_endpoints(self) -> list[str]:
        """Where clients connect, by member id."""
        return [f"127.0.0.1:{port}" for port in self.base_ports]

    def directory_of(self, member_id: int) -> Path:
        """Where a member keeps its files."""
        directory = self.data_dir / f"member-{member_id}"
        return directory if self.key_group is None else group_directory(directory, self.key_group.index)

    def log_path_of(self, member_id: int) -> Path:
        """Where the output of a member goes, of all its runs."""
        return self.data_dir / f"member-{member_id}.log"

    def start_member(self, member_id: int) -> ManagedProcess:
        """Start a member, or start it again after it ended."""
        members = ",".join(f"{i}=127.0.0.1:{port}" for i, port in enumerate(self.base_ports))
        settings = {
            "member_id": str(member_id),
            "members": self.member_lists.get(member_id, members),
            "directory": str(self.data_dir / f"member-{member_id}"),
            "service": self.service,
            "service_dir": str(self.service_dir),
            "log_format": "json",
            **self.settings,
        }
        flags = [text for name, value in settings.items() for text in _flag(name, value)]
        process = self.group.spawn(
            f"member-{member_id}",
            (*self.prefixes.get(member_id, ()), sys.executable, "-m", "trimaran", "node", *flags),
            log_path=self.log_path_of(member_id),
            environment={**clean_environment(), **self.environments.get(member_id, {})},
        )
        self.members[member_id] = process
        return process

    def spawn_beside(self, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> ManagedProcess:
        """Start another command of `trimaran`; its output goes to a file of its name in the data directory."""
        return self.group.spawn(
            name,
            (sys.executable, "-m", "trimaran", *arguments),
            log_path=self.data_dir / f"{name}.log",
            environment={**clean_environment(), **environment},
        )

    def kill_member(self, member_id: int) -> None:
        """End a member without warning (SIGKILL) and wait until it is gone."""
        member = self.members[member_id]
        member.signal(signal.SIGKILL)
        member.popen.wait()

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time by member name, so far."""
        return {member.name: member.cpu_seconds() for member in self.members.values()}

    def check_running(self) -> None:
        """Raise unless every member runs."""
        for member in self.members.values():
            member.check_running()


def raise_file_limit(wanted: int) -> int:
    """Let this process and its children open so many files, as far as it may; gives how many they may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return soft if soft != resource.RLIM_INFINITY else wanted
    for limits in ((wanted, max(wanted, hard)), (min(wanted, hard), hard)):
        with suppress(OSError, ValueError):  # who may not raise the hard limit is told so with either
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def require_connections(count: int) -> None:
    """Let this process and its children have so many connections each, and open a few files besides.

    Raises:
        ClusterError: they may not.
    """
    needed = count + _FILES_BESIDES
    allowed = raise_file_limit(needed)
    if allowed < needed:
        raise ClusterError(f"a process needs {needed:,} open files and may have {allowed:,}: ulimit -n {needed}")


def find_base_ports(count: int, *, group_count: int = 1) -> list[int]:
    """Find base ports whose members' ports are free in each group, and keep them from others that ask here.

    They lie below those that the kernel hands out and those that `trimaran up` and `trimaran demo` draw.

    Raises:
        ProcessError: there are too few.
    """
    candidates = list(_DRAWN_PORTS)
    random.SystemRandom().shuffle(candidates)
    found = sorted(itertools.islice((port for port in candidates if _reserve(port, group_count)), count))
    if len(found) < count:
        raise ProcessError(f"no free ports: wanted={count * PORTS_PER_MEMBER} in={_DRAWN_PORTS}")
    return found


def _reserve(base_port: int, group_count: int) -> bool:
    """Hold a member's first port in each group for datagrams, which no member uses, unless one of its ports is taken.

    Nothing else holds a port until the member listens, and another process would be given it, too.
    """
    sockets = []
    with ExitStack() as stack:
        for group_index in range(group_count):
            first_port = base_port + GROUP_PORT_STRIDE * group_index
            if not all(_is_free(first_port + offset) for offset in range(PORTS_PER_MEMBER)):
                return False
            held = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            try:
                held.bind(("127.0.0.1", first_port))
            except OSError:
                return False
            sockets.append(held)
        _RESERVATIONS.extend(held.detach() for held in sockets)
    while len(_RESERVATIONS) > _RESERVATION_LIMIT:
        os.close(_RESERVATIONS.popleft())
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _flag(name: str, value: str) -> tuple[str, ...]:
    """One setting as the command line takes it: a switch by its name alone."""
    flag = name.replace("_", "-")
    if value in ("true", "false"):
        return (f"--{flag}" if value == "true" else f"--no-{flag}",)
    return (f"--{flag}", value)


def _load_prctl() -> Callable[..., int] | None:
    """Find prctl before the fork: in the child there must be nothing left to import."""
    try:
        return ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None


_PRCTL: Final = _load_prctl()


def die_with_parent() -> None:
    """In the child, before it runs: be killed when the parent dies. Linux only; elsewhere nothing happens."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
