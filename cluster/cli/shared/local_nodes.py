"""The members of a cluster as processes of this machine: started, watched, and stopped with the command.

Each node is a process in its own group, so that Ctrl-C reaches the command alone, which ends them in order. One that
ends unasked is told with the tail of its log. What is still there at the end is killed by its pid.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from ....service_api.endpoint import Endpoint
from ....service_api.errors import ClusterError, ErrorCategory
from ....service_api.groups.ports import group_endpoint
from ....service_api.net.transport import SOCKETS
from ...settings.config_layers import flag_arguments
from ...settings.member_endpoints import PORTS_PER_MEMBER
from ...settings.variables import clean_environment

BASE_PORTS: Final = range(15_000, 31_000)
"""Below the ports that the kernel gives to outgoing connections, which could take one of ours in between."""

BASE_PORT_ATTEMPTS: Final = 200
STOP_TIMEOUT_S: Final = 20.0
KILL_TIMEOUT_S: Final = 5.0
_STANDARD_INPUT: Final = asyncio.subprocess.DEVNULL if sys.platform == "linux" else asyncio.subprocess.PIPE
"""A pipe that ends with this process where the kernel has no signal for that (`local_child`)."""
LOG_TAIL_LINES: Final = 12
LOG_TAIL_BYTES: Final = 16_384


class LocalNodesError(ClusterError):
    """Members on this machine could not be started, ended unasked, or did not end when asked."""

    category: ClassVar[ErrorCategory] = ErrorCategory.FATAL


@dataclass(slots=True)
class NodeProcess:
    """One member's process."""

    member_id: int
    directory: Path
    log_file: Path
    process: asyncio.subprocess.Process
    is_ending: bool = False
    """Whether it was asked to end."""

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet."""
        return self.process.returncode is None


class LocalNodes:
    """The processes of one cluster: `start` and `watch` them, and `close` them whatever happens.

    `settings` are the settings that all members share, by name; a member's directory and log lie in `directory`.
    """

    def __init__(self, directory: Path, endpoints: Sequence[str], settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._settings = settings
        self.endpoints = list(endpoints)
        self.members = ",".join(f"{i}={endpoint}" for i, endpoint in enumerate(self.endpoints))
        """As in the setting `members`."""
        self.nodes: list[NodeProcess] = []
        """By member id, once they are started; one that is started again replaces the one that ended."""

    async def start(self) -> None:
        """Start every node; they find each other by themselves."""
        for member_id in range(len(self.endpoints)):
            self.nodes.append(await self._start_node(member_id))

    async def restart(self, member_id: int) -> NodeProcess:
        """Start a node again that has ended, on the same directory."""
        self.nodes[member_id] = await self._start_node(member_id)
        return self.nodes[member_id]

    async def _start_node(self, member_id: int) -> NodeProcess:
        directory = self._directory / f"node-{member_id}"
        log_file = self._directory / f"node-{member_id}.log"
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "trimaran.cluster.cli.shared.local_child",
                str(os.getpid()),
                "node",
                *self._flags(member_id, directory),
                stdin=_STANDARD_INPUT,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )
        return NodeProcess(member_id, directory, log_file, process)

    def _flags(self, member_id: int, directory: Path) -> list[str]:
        settings = {
            "member_id": str(member_id),
            "members": self.members,
            "directory": str(directory),
            "log_format": "json",
            **self._settings,
        }
        return [part for name, value in settings.items() for part in flag_arguments(name, value)]

    async def watch(self, node: NodeProcess) -> None:
        """Wait for the end of one node.

        Raises:
            LocalNodesError: it ended unasked, or did not end well; shows the tail of its log.
        """
        status = await node.process.wait()
        if node.is_ending and status in (0, -signal.SIGKILL):
            return
        raise LocalNodesError(describe_end(node))

    def kill(self, member_id: int) -> None:
        """End one node with SIGKILL, at once and without a chance to clean up."""
        node = self.nodes[member_id]
        node.is_ending = True
        with suppress(ProcessLookupError):
            node.process.kill()

    def running(self) -> list[NodeProcess]:
        """The nodes that run."""
        return [node for node in self.nodes if node.is_running]

    async def stop(self) -> None:
        """Stop every running node in order.

        Raises:
            LocalNodesError: one did not end in time.
        """
        for node in self.running():
            node.is_ending = True
            with suppress(ProcessLookupError):
                node.process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                for node in self.nodes:
                    await node.process.wait()
        except TimeoutError:
            late = [node.member_id for node in self.running()]
            raise LocalNodesError(f"nodes did not stop: member_ids={late} timeout_s={STOP_TIMEOUT_S:g}") from None

    async def close(self) -> None:
        """Kill what still runs and wait for its end, so that no process is left behind."""
        for node in self.running():
            self.kill(node.member_id)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_TIMEOUT_S):
                for node in self.nodes:
                    await node.process.wait()


def describe_end(node: NodeProcess) -> str:
    """Return a text which says that a node has ended, with the tail of its log."""
    tail = "\n".join(f"  {line}" for line in _tail(node.log_file))
    status = node.process.returncode
    return f"node ended unexpectedly: member_id={node.member_id} exit_status={status} log={node.log_file}\n{tail}"


def free_base_ports(count: int, *, group_count: int = 1) -> Sequence[int]:
    """Find base ports whose five ports are free on loopback, in each group, all held at once so that they differ.

    Raises:
        LocalNodesError: there are none.
    """
    slots = range(BASE_PORTS.start, BASE_PORTS.stop, PORTS_PER_MEMBER)
    # Nothing holds a port until its member listens: who starts a cluster at the same time begins at another slot.
    first = os.getpid() * count
    found: list[int] = []
    with ExitStack() as held:
        for attempt in range(BASE_PORT_ATTEMPTS):
            if len(found) == count:
                return found
            base_port = slots[(first + attempt) % len(slots)]
            if _hold_ports(base_port, group_count, held):
                found.append(base_port)
    raise LocalNodesError(f"no free ports on loopback: attempts={BASE_PORT_ATTEMPTS}")


def _hold_ports(base_port: int, group_count: int, held: ExitStack) -> bool:
    with ExitStack() as attempt:
        for group_index in range(group_count):
            for port in range(base_port, base_port + PORTS_PER_MEMBER):
                endpoint = group_endpoint(f"127.0.0.1:{port}", group_index)
                try:
                    attempt.enter_context(SOCKETS.hold(Endpoint.parse(endpoint)))
                except OSError:
                    return False
        held.push(attempt.pop_all())
        return True


def _tail(log_file: Path) -> list[str]:
    try:
        data = log_file.read_bytes()[-LOG_TAIL_BYTES:]
    except OSError:
        return []
    return data.decode("utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:]
