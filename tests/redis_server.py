"""A real Redis server that syncs each write, for tests; `make peers` installs one."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

from tests.waiting import patient, wait_blocking
from trimaran.benchmarks.rig.processes import find_base_ports

REDIS_SERVER: Final = shutil.which("redis-server")
needs_redis: Final = pytest.mark.skipif(REDIS_SERVER is None, reason="no redis-server on this machine: make peers")

_START_TIMEOUT_S: Final = 20.0


class RedisServer:
    """One server with its files in a directory; it can be killed, and started again on the same port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)
        (self.port,) = find_base_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def url(self, stream: str, more: str = "") -> str:
        """The URL of a stream on it."""
        return f"redis://127.0.0.1:{self.port}/0?stream={stream}{more}"

    def start(self, *options: str) -> None:
        """Start it, and wait until it answers."""
        assert REDIS_SERVER is not None
        assert self._process is None
        flags = f"--port {self.port} --bind 127.0.0.1 --appendonly yes --appendfsync always".split()
        command = (REDIS_SERVER, *flags, "--save", "", "--dir", str(self._directory), *options)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        wait_blocking(self._has_started, timeout_s=_START_TIMEOUT_S, what="an answer of redis-server")

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _has_started(self) -> bool | None:
        assert self._process is not None
        assert self._process.poll() is None, "redis-server has ended"
        return self._answers() or None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=patient(2)) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
