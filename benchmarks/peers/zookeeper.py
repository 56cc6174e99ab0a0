"""Apache ZooKeeper: three servers, `setData` on one znode, pipelined on one connection to the leader.

The leader of 3.8.0 can lose a wake-up: its CommitProcessor looks at its queues, takes its lock, and then waits without
another look, so that a commit which came in between stays there until the next request. With one request in flight and
Java still warming up that was one load in about 30: the leader a transaction behind its followers, every thread idle,
and after 30 s the session expired, "the peer closed the connection". Its own client goes on after a third of the
session's timeout, when it pings. Ours pings as soon as nothing has come for a while, so that no more than that is lost.

Tried, and within the noise of a tenth: serial and parallel collector, a larger heap, no digest, no snapshots, commits
in batches, no workers for commits, learners that send asynchronously. Both processors are busy with the servers.
"""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Final

from ...service_api.errors import ClusterError
from ..rig.processes import ProcessGroup
from .peer import MEMBERS, Measured, Missing, find_program, free_ports, wait_until
from .pipeline import PipelineParameters, run_pipeline

_JARS: Final = Path("/usr/share/java")
_HEAP: Final = "-Xmx1g"


class ZooKeeper:
    """Debian's package `zookeeper`."""

    name = "ZooKeeper"
    durability = "on disk (fsync) on a majority"
    client = "one connection to the leader, pipelined, in Python: its own Java client is not faster on two cores"

    warmup_messages = 100_000
    """Until then Java's compiler makes it faster and faster."""

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._leader = 0

    def find(self) -> str | Missing:
        """The version stands in the name of the jar."""
        jars = sorted(_JARS.glob("zookeeper-[0-9]*.jar"))
        if not jars or shutil.which("java") is None:
            return Missing("zookeeper or java is not installed: make peers")
        java = find_program("java", "-version")
        return f"{jars[-1].stem}, {java}"

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the servers and find the leader."""
        ports = free_ports(3 * MEMBERS)
        self._ports = ports[:MEMBERS]
        servers = [
            f"server.{i}=127.0.0.1:{ports[MEMBERS + i]}:{ports[2 * MEMBERS + i]};127.0.0.1:{ports[i]}"
            for i in range(MEMBERS)
        ]
        for i in range(MEMBERS):
            data = directory / f"zookeeper-{i}"
            data.mkdir()
            (data / "myid").write_text(f"{i}\n")
            settings = [
                f"dataDir={data}",
                "tickTime=2000",
                "initLimit=10",
                "syncLimit=5",
                "admin.enableServer=false",
                "standaloneEnabled=false",
                "4lw.commands.whitelist=srvr",
                # Its own default stops reading at 1,000 requests in flight.
                "globalOutstandingLimit=100000",
                # Its own default is 60 connections from one address.
                "maxClientCnxns=0",
                *servers,
            ]
            (data / "zoo.cfg").write_text("\n".join(settings) + "\n")
            group.spawn(
                f"zookeeper-{i}",
                (
                    "java",
                    _HEAP,
                    "-cp",
                    # With all of _JARS there are five loggers to choose from, and the one that is found says nothing.
                    f"{_JARS / 'zookeeper.jar'}:{_JARS / 'slf4j-simple.jar'}",
                    "-Dorg.slf4j.simpleLogger.showDateTime=true",
                    "-Dzookeeper.jmx.log4j.disable=true",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(data / "zoo.cfg"),
                ),
                log_path=directory / f"zookeeper-{i}.log",
            )
        wait_until(self._has_leader, "a leader of ZooKeeper", group)

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Pipeline `setData`."""
        return run_pipeline(
            PipelineParameters(
                dialect="zookeeper",
                host="127.0.0.1",
                port=self._leader,
                inflight=inflight,
                messages=messages,
                payload=payload,
            )
        )

    def _has_leader(self) -> bool:
        modes = {port: _mode(port) for port in self._ports}
        leaders = [port for port, mode in modes.items() if mode == "leader"]
        if len(leaders) == 1 and list(modes.values()).count("follower") == MEMBERS - 1:
            self._leader = leaders[0]
            return True
        return False


def _mode(port: int) -> str:
    """Ask a server what it is, with the four letters that it knows.

    Raises:
        OSError: it does not listen yet.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.sendall(b"srvr")
        answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    modes = [line.partition(": ")[2] for line in answer.splitlines() if line.startswith("Mode")]
    if len(modes) > 1:
        raise ClusterError(f"zookeeper said: {answer!r}")
    return modes[0] if modes else ""
