"""What the harness asks of a peer: whether it is there, a running cluster, and one measured load on it."""

from __future__ import annotations

import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol, Self, runtime_checkable

from ...service_api.errors import ClusterTimeoutError
from ..rig.processes import ManagedProcess, ProcessGroup
from ..statistics.histogram import Histogram

START_TIMEOUT_S: Final = 60.0
MEMBERS: Final = 3

_LOOK_INTERVAL_S: Final = 0.05
_VERSION_TIMEOUT_S: Final = 20.0


@dataclass(slots=True, frozen=True)
class Missing:
    """Why a peer cannot be measured here."""

    reason: str


@dataclass(slots=True, frozen=True)
class Measured:
    """One load on one peer: messages a second, and latencies in microseconds where its client tells them."""

    messages_per_s: float
    p50_us: float | None
    p99_us: float | None
    client_cpu_us: float | None = None
    """Processor time of the load's own processes for a message; None where it is inside a member."""
    server_cpu_us: float | None = None
    """Processor time of all members for a message; None where it was not read."""

    @classmethod
    def of(cls, latencies: Histogram, took_s: float, *, client_s: float, server_s: float | None = None) -> Self:
        """Make it of latencies and of the processor time of clients and servers, in all."""
        count = latencies.count
        return cls(
            count / took_s,
            p50_us=latencies.percentile_ns(50.0) / 1e3,
            p99_us=latencies.percentile_ns(99.0) / 1e3,
            client_cpu_us=client_s * 1e6 / count,
            server_cpu_us=None if server_s is None else server_s * 1e6 / count,
        )


class StoreOperation(StrEnum):
    """An operation on a key-value store, or on a lock or a queue beside it. Puts and gets are of one key."""

    PUT = "put"
    GET = "get"
    """Linearizable, where the system has replicas."""
    TRANSACTION = "transaction"
    """Puts of `TRANSACTION_PUTS` keys that are done together."""
    WATCH = "watch"
    """A put, until a session that watches the key has seen it."""
    SCAN = "scan"
    """All of `SCANNED_KEYS` keys, in their order; linearizable."""
    LOCK = "lock"
    """One lock for all sessions: taken, and given back to the next."""
    JOB = "job"
    """A job is sent to a queue, received and acknowledged."""


STORE_KEY: Final = b"trimaran-benchmark"
TRANSACTION_PUTS: Final = 3
SCANNED_KEYS: Final = 10_000


@dataclass(slots=True, frozen=True)
class LoadPoint:
    """One load: how many clients, and how many messages or operations each has in flight."""

    inflight: int
    """Of each session."""
    sessions: int = 1
    operation: StoreOperation | None = None
    """None: messages, of which a peer says itself what they are."""

    @property
    def name(self) -> str:
        """As reports have it."""
        words = [] if self.operation is None else [self.operation.value]
        words += [str(self.inflight)] if self.sessions == 1 else [f"{self.sessions}x{self.inflight}"]
        return " ".join(words)

    @property
    def label(self) -> str:
        """As a table has it."""
        words = f"{self.inflight} in flight" if self.sessions == 1 else f"{self.sessions} sessions x {self.inflight}"
        return words if self.operation is None else f"{self.operation.value}, {words}"


class Peer(Protocol):
    """One system under the same load as the others."""

    name: str
    durability: str
    """What its acknowledgement promises, as it is configured here."""
    client: str
    """Who makes the load, and how."""
    warmup_messages: int
    """Messages at the greatest depth before anything is measured, for programs that get faster as they run."""

    def find(self) -> str | Missing:
        """Say which version is installed, or why there is none."""

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start its members, as children of the group, with their files in a directory; wait until they serve.

        Raises:
            ClusterError: it does not come up.
        """

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Send this many messages, so many in flight, and wait for all acknowledgements.

        Raises:
            ClusterError: some were refused or lost.
        """


@runtime_checkable
class StorePeer(Peer, Protocol):
    """A key-value store under the same operations as the others."""

    operations: frozenset[StoreOperation]
    """What it does."""

    def operate(self, point: LoadPoint, *, messages: int, payload: int) -> Measured:
        """Do this many operations with values of some bytes, and wait for all answers.

        Raises:
            ClusterError: some were refused or lost.
        """


@dataclass(slots=True, frozen=True, kw_only=True)
class SessionsLoad:
    """Many sessions, each on its connection, with one message in flight on each."""

    sessions: int
    payload: int
    processes: int
    """That make the load where it is made in Python; it is one process where the client is a program in C."""
    warmup_s: float
    """With all sessions open, before anything is measured."""
    measure_s: float


@runtime_checkable
class SessionsPeer(Peer, Protocol):
    """A system that many clients use at once. Opening their sessions is no part of what is measured."""

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Open the sessions, keep one message of each in flight, and measure.

        The load may leave files in the directory; the servers are the processes that were started.

        Raises:
            ClusterError: some were refused or lost, or a session did not open.
        """


def find_program(name: str, *version_arguments: str) -> str | Missing:
    """Return what a program prints first of its version."""
    path = shutil.which(name)
    if path is None:
        return Missing(f"{name} is not installed: make peers")
    done = subprocess.run(
        (path, *version_arguments), capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
    )
    return ((done.stdout or done.stderr).splitlines() or [name])[0].strip()


def run_client(command: Sequence[str], *, timeout_s: float) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a client to its end; gives what it printed, and the processor time that it took in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def free_ports(count: int) -> list[int]:
    """Find ports of 127.0.0.1 that no process listens on just now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def wait_until(is_so: Callable[[], bool], what: str, group: ProcessGroup) -> None:
    """Wait until something is so; an OSError counts as "not yet".

    Raises:
        ClusterTimeoutError: it did not come.
        ProcessError: a process of the group has ended.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        group.check_running()
        try:
            if is_so():
                return
        except OSError:
            pass
        time.sleep(_LOOK_INTERVAL_S)
    raise ClusterTimeoutError(f"waited {START_TIMEOUT_S:g} s for {what}")
