"""What the processors do by themselves: how quick they are, how quickly they wake each other, and what others took.

Machines of one name are not equal, and a virtual one shares its processors with neighbours that nobody sees: figures of
two runs can be compared where these are the same.
"""

from __future__ import annotations

import multiprocessing
import socket
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

from ...service_api.errors import ClusterTimeoutError
from ...service_api.processors import count_processors
from .schedule import ProcessorTimes

_PASSES: Final = 500_000
_LOOPS: Final = 5
_ROUND_TRIPS: Final = 2_000
_LIMIT_S: Final = 60.0

_STATISTICS: Final = Path("/proc/stat")


class StolenTime:
    """How much of the processors' time the hypervisor has given to others since this was made."""

    def __init__(self) -> None:
        self._begin = ProcessorTimes.read(_STATISTICS)

    def percent(self) -> float:
        """Return how much; 0 where nobody counts."""
        passed = ProcessorTimes.read(_STATISTICS) - self._begin
        return round(100 * passed.stolen_ns / max(1, passed.total_ns), 1)


def measure_processors() -> dict[str, float]:
    """Time a pass of a Python loop with a process on each processor, and a byte that two processes pass to and fro."""
    return {"loop_ns": round(_loop_ns(), 1), "round_trip_us": round(_round_trip_us(), 1)}


def _loop_ns() -> float:
    """The median of all loops of all processes."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(count_processors())]
    processes = [context.Process(target=_loop, args=(writer,), daemon=True) for _, writer in pipes]
    for process, (_, writer) in zip(processes, pipes, strict=True):
        process.start()
        writer.close()  # so that a process that dies ends the wait for it
    found: list[float] = []
    for reader, _ in pipes:
        if not reader.poll(_LIMIT_S):
            raise ClusterTimeoutError(f"a loop of {_PASSES} passes took more than {_LIMIT_S:g} s")
        found += reader.recv()
    for process in processes:
        process.join(_LIMIT_S)
    return median(found)


def _loop(writer: Connection) -> None:
    taken = []
    for _ in range(_LOOPS):
        total = 0
        begin_ns = time.perf_counter_ns()
        for number in range(_PASSES):
            total += number
        taken.append((time.perf_counter_ns() - begin_ns) / _PASSES)
    writer.send(taken)


def _round_trip_us() -> float:
    """The median of many, over loopback, where both wait for each other in the kernel."""
    context = multiprocessing.get_context("spawn")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(_LIMIT_S)
        process = context.Process(target=_reflect, args=(server.getsockname(),), daemon=True)
        process.start()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(_LIMIT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken = []
            for _ in range(_ROUND_TRIPS):
                begin_ns = time.perf_counter_ns()
                connection.send(b"x")
                connection.recv(1)
                taken.append((time.perf_counter_ns() - begin_ns) / 1e3)
        process.join(_LIMIT_S)
    return median(taken)


def _reflect(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=_LIMIT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := connection.recv(1):
            connection.send(data)
