"""PySyncObj: three Python processes; the load is made inside the leader's own, without a client."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from ...service_api.errors import ClusterError, ClusterTimeoutError
from ..rig.processes import ManagedProcess, ProcessGroup
from .peer import MEMBERS, START_TIMEOUT_S, Measured, Missing, free_ports

_LOAD_TIMEOUT_S: Final = 120.0


class PySyncObj:
    """The package `pysyncobj` of PyPI, with the settings that were fastest here: see `pysyncobj_node`."""

    name = "PySyncObj"
    durability = "in memory on a majority: no journal"
    client = "calls inside the leader's process, no client connection"
    warmup_messages = 0

    def __init__(self) -> None:
        self._nodes: list[ManagedProcess] = []
        self._leader = 0

    def find(self) -> str | Missing:
        """Ask the installed package."""
        try:
            return f"pysyncobj {version('pysyncobj')}"
        except PackageNotFoundError:
            return Missing("pysyncobj is not installed: make peers")

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the nodes and wait until they agree on a leader."""
        ports = free_ports(MEMBERS)
        for i, port in enumerate(ports):
            others = [f"127.0.0.1:{other}" for other in ports if other != port]
            self._nodes.append(
                group.spawn(
                    f"pysyncobj-{i}",
                    (sys.executable, "-m", "trimaran.benchmarks.peers.pysyncobj_node", f"127.0.0.1:{port}", *others),
                    log_path=directory / f"pysyncobj-{i}.log",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            group.check_running()
            roles = [self._ask(node, {"do": "role"})["role"] for node in self._nodes]
            if sorted(roles) == ["follower"] * (MEMBERS - 1) + ["leader"]:
                self._leader = roles.index("leader")
                return
            time.sleep(0.1)
        raise ClusterTimeoutError(f"waited {START_TIMEOUT_S:g} s for a leader of PySyncObj")

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Let the leader call its own replicated method."""
        request = {"do": "load", "inflight": inflight, "messages": messages, "payload": payload}
        return Measured(**self._ask(self._nodes[self._leader], request))

    def _ask(self, node: ManagedProcess, request: dict[str, object]) -> dict[str, Any]:
        stdin, stdout = node.popen.stdin, node.popen.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(request).encode() + b"\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline() or b'{"error": "the node ended"}')
        if "error" in answer:
            raise ClusterError(f"pysyncobj: {answer['error']}\n{node.log_tail()}")
        return answer
