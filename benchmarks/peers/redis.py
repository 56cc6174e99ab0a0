"""Redis with an append-only file, one server and no replica: context for what one fsynced process does."""

from __future__ import annotations

import csv
import socket
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from ...service_api.errors import ClusterError
from ..rig.processes import ProcessGroup
from .peer import (
    STORE_KEY,
    TRANSACTION_PUTS,
    LoadPoint,
    Measured,
    Missing,
    StoreOperation,
    find_program,
    free_ports,
    run_client,
    wait_until,
)

_TIMEOUT_S: Final = 120.0
_SET: Final = ("-t", "set")
_GET: Final = ("-t", "get")
_PIPELINE: Final = 16
_PUT_AT_ONCE: Final = 500
_CLIENTS_LIMIT: Final = 15_000
"""Its own default is 10,000."""


class Redis:
    """Debian's packages `redis-server` and `redis-tools`."""

    name = "Redis, AOF (context)"
    durability = "on disk (fsync) on one server, not replicated"
    client = "redis-benchmark (C), up to 16 commands pipelined on a connection"
    warmup_messages = 0

    def __init__(self) -> None:
        self._port = 0

    def find(self) -> str | Missing:
        """Ask the server; its client is needed, too."""
        client = find_program("redis-benchmark", "--version")
        found = find_program("redis-server", "--version")
        return client if isinstance(client, Missing) else found

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the server."""
        (self._port,) = free_ports(1)
        data = directory / "redis"
        data.mkdir()
        options = {
            "port": str(self._port),
            "bind": "127.0.0.1",
            "dir": str(data),
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "maxclients": str(_CLIENTS_LIMIT),
        }
        flags = [text for name, value in options.items() for text in (f"--{name}", value)]
        group.spawn("redis", ("redis-server", *flags), log_path=directory / "redis.log")
        wait_until(self._answers, "Redis", group)

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Let redis-benchmark set one key."""
        pipeline = min(_PIPELINE, inflight) if inflight >= 2 * _PIPELINE else 1
        return self._benchmark(_SET, inflight // pipeline, pipeline, messages, payload)

    def put_keys(self, keys: Iterable[bytes], value: bytes) -> None:
        """Set keys to one value, some hundred commands at a time.

        Raises:
            ClusterError: one was refused.
        """
        with socket.create_connection(("127.0.0.1", self._port), timeout=_TIMEOUT_S) as connection:
            left = iter(keys)
            while part := [*islice(left, _PUT_AT_ONCE)]:
                connection.sendall(b"".join(_set_command(key, value) for key in part))
                answer = b""
                while answer.count(b"\r\n") < len(part):
                    received = connection.recv(1 << 16)
                    answer += received
                    if not received or b"-" in answer:
                        raise ClusterError(f"Redis did not set {len(part)} keys: {answer[-200:]!r}")

    def set_one_key(self, connections: int, count: int, payload: int) -> Measured:
        """Let redis-benchmark set one key so often, with one command in flight on each connection."""
        return self._benchmark(_SET, connections, 1, count, payload)

    def _benchmark(
        self, command: tuple[str, ...], connections: int, pipeline: int, messages: int, payload: int
    ) -> Measured:
        arguments = f"-n {messages} -c {connections} -P {pipeline} -d {payload} --csv --precision 3"
        client = ("redis-benchmark", "-h", "127.0.0.1", "-p", str(self._port), *arguments.split(), *command)
        done, cpu_s = run_client(client, timeout_s=_TIMEOUT_S)
        if done.returncode:
            raise ClusterError(f"redis-benchmark failed: {done.stderr.strip()[-500:]}")
        (row,) = csv.DictReader(done.stdout.splitlines())
        return Measured(
            float(row["rps"]),
            p50_us=float(row["p50_latency_ms"]) * 1000,
            p99_us=float(row["p99_latency_ms"]) * 1000,
            client_cpu_us=cpu_s * 1e6 / messages,
        )

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), timeout=2) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")


def _set_command(key: bytes, value: bytes) -> bytes:
    """Encode SET. Source: Redis serialization protocol, arrays of bulk strings."""
    words = (b"SET", key, value)
    return b"*3\r\n" + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class RedisKv(Redis):
    """The same server under SET, GET, and MSET, which sets several keys together."""

    client = "redis-benchmark (C), one connection for each session, what is in flight on it pipelined"
    operations = frozenset((StoreOperation.PUT, StoreOperation.GET, StoreOperation.TRANSACTION))

    def operate(self, point: LoadPoint, *, messages: int, payload: int) -> Measured:
        """Let redis-benchmark set or get one key, or set several."""
        command: tuple[str, ...] = _SET
        if point.operation is StoreOperation.GET:
            self._benchmark(_SET, 1, 1, 1, payload)  # there is something to get
            command = _GET
        elif point.operation is StoreOperation.TRANSACTION:
            keys = (f"{STORE_KEY.decode()}-{number}" for number in range(TRANSACTION_PUTS))
            command = ("mset", *(word for key in keys for word in (key, "x" * payload)))
        return self._benchmark(command, point.sessions, point.inflight, messages, payload)
