"""NATS JetStream: three servers, a stream with three replicas in files, publications pipelined on one connection."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from ...service_api.errors import ClusterError
from ..rig.processes import ProcessGroup
from .peer import MEMBERS, Measured, Missing, find_program, free_ports, wait_until
from .pipeline import JetStreamDialect, PipelineParameters, run_pipeline

_STREAM = "TRIMARAN"


class JetStream:
    """Debian's package `nats-server`."""

    name = "NATS JetStream R3"
    durability = "in memory on a majority: files are synced every two minutes"
    client = "one connection to the stream's leader, pipelined, in Python"
    warmup_messages = 0

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._leader = 0

    def find(self) -> str | Missing:
        """Ask the server."""
        return find_program("nats-server", "--version")

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the servers, make the stream, and find the server that leads it."""
        ports = free_ports(2 * MEMBERS)
        self._ports = ports[:MEMBERS]
        routes = ",".join(f"nats://127.0.0.1:{port}" for port in ports[MEMBERS:])
        for i in range(MEMBERS):
            text = "\n".join(
                (
                    f"server_name: n{i}",
                    f'listen: "127.0.0.1:{ports[i]}"',
                    f'jetstream {{ store_dir: "{directory / f"nats-{i}"}" }}',
                    f'cluster {{ name: trimaran, listen: "127.0.0.1:{ports[MEMBERS + i]}", routes: [{routes}] }}',
                )
            )
            config = directory / f"nats-{i}.conf"
            config.write_text(text + "\n")
            group.spawn(f"nats-{i}", ("nats-server", "-c", str(config)), log_path=directory / f"nats-{i}.log")
        wait_until(self._has_stream, "a stream of JetStream", group)

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Pipeline publications."""
        return run_pipeline(
            PipelineParameters(
                dialect="jetstream",
                host="127.0.0.1",
                port=self._leader,
                inflight=inflight,
                messages=messages,
                payload=payload,
            )
        )

    def _has_stream(self) -> bool:
        made = _ask(
            self._ports[0],
            f"$JS.API.STREAM.CREATE.{_STREAM}",
            {
                "name": _STREAM,
                "subjects": [JetStreamDialect.SUBJECT.decode()],
                "num_replicas": MEMBERS,
                "storage": "file",
                "retention": "limits",
                "discard": "old",
            },
        )
        if made is None or "error" in made:
            return False
        info = _ask(self._ports[0], f"$JS.API.STREAM.INFO.{_STREAM}", {})
        cluster = {} if info is None else info.get("cluster", {})
        replicas = cluster.get("replicas", [])
        if not cluster.get("leader") or len(replicas) != MEMBERS - 1 or not all(r.get("current") for r in replicas):
            return False
        self._leader = self._ports[int(cluster["leader"].removeprefix("n"))]
        return True


def _ask(port: int, subject: str, request: dict[str, object]) -> dict[str, Any] | None:
    """Ask JetStream's API and give its answer; None while nobody answers.

    Raises:
        OSError: the server does not listen yet.
    """
    body = json.dumps(request).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.setup 1\r\n')
        connection.sendall(b"PUB %b _INBOX.setup %d\r\n%b\r\n" % (subject.encode(), len(body), body))
        stream = connection.makefile("rb")
        for line in stream:
            if line.startswith(b"MSG"):
                found = json.loads(stream.read(int(line.split()[-1])))
                if not isinstance(found, dict):
                    raise ClusterError(f"jetstream said: {found!r}")
                return found
            if line.startswith(b"PING"):
                connection.sendall(b"PONG\r\n")
            if line.startswith(b"-ERR"):
                return None
    return None
