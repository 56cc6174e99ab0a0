"""Every system under many sessions with one message in flight on each: who makes the load, and what it took.

Processor time is read from the kernel at both ends of the time that is measured, of every server and of every process
of the load, so that a reader sees whether the load limited it. Clients in C are used where there are some that can do
this. Ours is measured with three loads: with the bytes alone, made as those of ZooKeeper and of NATS JetStream are
(`connections`); with the client that applications use; and with that client's sessions on shared connections.
"""

from __future__ import annotations

import asyncio
import math
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from ...cluster.documents.query import query_status
from ...service_api.errors import ClusterError, ClusterTimeoutError
from ..load.client_process import ClientParameters
from ..load.coordination import ClientProcess, all_events, all_go, share, spawn_clients
from ..load.sessions import SESSIONS_PER_PROCESS
from ..rig.member_status import consensus_endpoint
from ..rig.meter import Usage
from ..rig.processes import ManagedProcess, ProcessGroup
from ..statistics.histogram import Histogram
from .connections import ConnectionsParameters
from .etcd import Etcd
from .jetstream import JetStream
from .peer import Measured, SessionsLoad
from .redis import Redis
from .trimaran import Trimaran
from .zookeeper import ZooKeeper

_TIME_LIMIT_S: Final = 300.0
_ASK_TIMEOUT_S: Final = 10.0
_IN_PYTHON: Final = "raw sockets on epoll, in Python, to the leader"
_SESSION_LIMIT: Final = 20_000
_OPENING_S: Final = 0.001
"""Of a connection of h2load, more than it takes."""
_EDGE_S: Final = 1
"""Left out at either end of the time that h2load measures."""
_LOOKS: Final = 50
_PRESENT: Final = 0.95
"""The share of connections that must have a request in flight at one time: some are always between two requests."""
_ONE_SESSION: Final = 1_000
"""Messages in flight of the one session that many are compared with: more in flight are a little cheaper yet."""
_WARMUP_ROUNDS: Final = 10
_WARMUP_LEAST: Final = 5_000


@dataclass(slots=True, frozen=True)
class UsageReading:
    """Processor time so far, at a moment."""

    at_ns: int
    """On the monotonic clock."""
    at_us: int
    """Of the time of day."""
    servers_s: float
    clients_s: float

    @classmethod
    def take(cls, servers: Sequence[ManagedProcess], clients: Sequence[ManagedProcess]) -> Self:
        """Read it.

        Raises:
            ProcessError: a server has ended; a client that has says why itself.
        """
        for process in servers:
            process.check_running()
        used = [sum(Usage.of_process(process.pid).cpu_s for process in some) for some in (servers, clients)]
        return cls(time.monotonic_ns(), time.time_ns() // 1_000, *used)

    def measured_until(self, end: UsageReading, latencies: Histogram) -> Measured:
        """The figures of the time from here to another reading, given how long each request took that ended in it.

        Raises:
            ClusterError: there was none.
        """
        if not latencies.count:
            raise ClusterError("no request was answered in the time that was measured")
        client_s, server_s = end.clients_s - self.clients_s, end.servers_s - self.servers_s
        return Measured.of(latencies, (end.at_ns - self.at_ns) / 1e9, client_s=client_s, server_s=server_s)


def run_connections(
    dialect: str, port: int, load: SessionsLoad, *, servers: Sequence[ManagedProcess], directory: Path
) -> Measured:
    """Let load processes of `connections` keep one request of each connection in flight.

    Raises:
        ClusterError: it took too long. The errors of processes, which say what each printed last, come in a group.
    """
    return asyncio.run(_run_connections(dialect, port, load, servers, directory))


async def _run_connections(
    dialect: str, port: int, load: SessionsLoad, servers: Sequence[ManagedProcess], directory: Path
) -> Measured:
    count = min(load.processes, load.sessions)
    shares = [share(load.sessions, count, index) for index in range(count)]
    parameters = [
        ConnectionsParameters(
            dialect=dialect,
            host="127.0.0.1",
            port=port,
            first=sum(shares[:index]),
            connections=connections,
            payload=load.payload,
        )
        for index, connections in enumerate(shares)
    ]
    name = f"{dialect}-connections"
    try:
        with ProcessGroup() as group:
            async with (
                asyncio.timeout(_TIME_LIMIT_S),
                spawn_clients(group, parameters, directory=directory, name=name, module="peers.connections") as clients,
            ):
                await all_events(clients, "ready")
                return await _measure(clients, load, servers)
    except TimeoutError as error:
        raise ClusterTimeoutError(f"benchmark not done: time_limit_s={_TIME_LIMIT_S:g}") from error


async def _measure(clients: list[ClientProcess], load: SessionsLoad, servers: Sequence[ManagedProcess]) -> Measured:
    """Start the load, warm up, measure, and collect what came in between; ends as soon as a load process does."""
    processes = [client.process for client in clients]
    async with asyncio.TaskGroup() as tasks:
        results = tasks.create_task(all_events(clients, "result"))
        all_go(clients)
        await asyncio.sleep(load.warmup_s)
        begin = UsageReading.take(servers, processes)
        await asyncio.sleep(load.measure_s)
        end = UsageReading.take(servers, processes)
        all_go(clients, f"{begin.at_ns} {end.at_ns}")
    latencies = Histogram()
    for event in results.result():
        latencies.add(Histogram.from_json(event["latencies"]))
    for client in clients:
        await asyncio.to_thread(client.process.popen.wait)
    return begin.measured_until(end, latencies)


class ZooKeeperSessions(ZooKeeper):
    """A session for each client, `setData` of one znode."""

    client = _IN_PYTHON

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Write the znode."""
        return run_connections("zookeeper", self._leader, load, servers=servers, directory=directory)


class JetStreamSessions(JetStream):
    """A connection for each client, with an inbox of its own for acknowledgements."""

    client = _IN_PYTHON.replace("the leader", "the stream's leader")

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Publish."""
        return run_connections("jetstream", self._leader, load, servers=servers, directory=directory)


class EtcdSessions(Etcd):
    """An HTTP/2 connection for each client, `Put` of one key."""

    client = "h2load (C), gRPC, to the leader"

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Let h2load put for a time; of its log those requests count that ended in the middle of that time.

        Raises:
            ClusterError: h2load failed, puts were refused, or not all connections took part.
        """
        path, body = self.put_request(load.payload)
        request_file, log_file = directory / "put", directory / "put-latencies"
        request_file.write_bytes(body)
        log_file.unlink(missing_ok=True)
        revision = self.revision()
        # It opens its connections while it warms up.
        warmup_s = math.ceil(load.warmup_s + load.sessions * _OPENING_S)
        with ProcessGroup() as clients:
            h2load = clients.spawn(
                "h2load",
                (
                    "h2load",
                    f"--duration={math.ceil(load.measure_s) + 2 * _EDGE_S}",
                    f"--warm-up-time={warmup_s}",
                    f"--clients={load.sessions}",
                    "--max-concurrent-streams=1",
                    f"--data={request_file}",
                    f"--log-file={log_file}",
                    "--header=content-type: application/grpc",
                    "--header=te: trailers",
                    f"http://127.0.0.1:{self.leader_port}{path}",
                ),
                log_path=directory / "h2load.log",
            )
            time.sleep(warmup_s + _EDGE_S)
            begin = UsageReading.take(servers, [h2load])
            time.sleep(load.measure_s)
            end = UsageReading.take(servers, [h2load])
            try:
                status = h2load.popen.wait(_TIME_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise ClusterTimeoutError(f"h2load not done: time_limit_s={_TIME_LIMIT_S:g}") from None
        if status:
            raise ClusterError(f"h2load failed: {h2load.log_tail()}")
        # Of each request: when it began, by the time of day in microseconds; its status; how long it took.
        rows = [(int(began), int(took)) for began, _, took in map(str.split, log_file.read_text().splitlines())]
        if self.revision() - revision < len(rows):
            raise ClusterError(f"etcd changed {self.revision() - revision} times, expected at least {len(rows)}")
        in_flight = _most_in_flight(rows, range(begin.at_us, end.at_us, (end.at_us - begin.at_us) // _LOOKS))
        if in_flight < _PRESENT * load.sessions:
            raise ClusterError(f"h2load had requests in flight on {in_flight} of {load.sessions} connections at most")
        latencies = Histogram()
        ends = ((began_us + took_us, took_us) for began_us, took_us in rows)
        latencies.record_all(took_us * 1_000 for ended_us, took_us in ends if begin.at_us <= ended_us < end.at_us)
        return begin.measured_until(end, latencies)


def _most_in_flight(rows: Sequence[tuple[int, int]], looks_us: range) -> int:
    """How many requests were in flight at most when one looks now and then; `rows` have begin and duration of each."""
    changes = [(began_us, 1) for began_us, _ in rows] + [(began_us + took_us, -1) for began_us, took_us in rows]
    changes.sort()
    most = in_flight = place = 0
    for look_us in looks_us:
        while place < len(changes) and changes[place][0] <= look_us:
            in_flight += changes[place][1]
            place += 1
        most = max(most, in_flight)
    return most


class RedisSessions(Redis):
    """A connection for each client, `SET` of one key."""

    client = "redis-benchmark (C)"

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Let redis-benchmark set one key, as often as it takes; what it takes to connect counts with it."""
        warmup = self.set_one_key(load.sessions, max(5 * load.sessions, 20_000), load.payload)
        count = max(round(warmup.messages_per_s * load.measure_s), 10 * load.sessions)
        begin = UsageReading.take(servers, [])
        measured = self.set_one_key(load.sessions, count, load.payload)
        end = UsageReading.take(servers, [])
        return replace(measured, server_cpu_us=(end.servers_s - begin.servers_s) * 1e6 / count)


class ClientKind(StrEnum):
    """Which load of ours."""

    BYTES = "bytes"
    """The bytes of a client alone, as those of others are sent."""
    CLIENT = "its own client"
    SHARED = "its own client, shared connections"
    ONE_SESSION = "one session"
    """As many in flight, up to a thousand, but of one session: what many sessions are compared with."""


_CLIENTS: Final = {
    ClientKind.BYTES: _IN_PYTHON,
    ClientKind.CLIENT: "ClusterClient for asyncio: a session has connections of its own to each member",
    ClientKind.SHARED: "ClusterClient for asyncio: a process's sessions share one connection to each member",
    ClientKind.ONE_SESSION: f"ClusterClient for asyncio: one session with as many in flight, {_ONE_SESSION:,} at most",
}


class TrimaranSessions(Trimaran):
    """`trimaran node` under one kind of load."""

    def __init__(self, file_sync_level: int, kind: ClientKind = ClientKind.BYTES) -> None:
        super().__init__(file_sync_level)
        self._settings = {
            **self._settings,
            "session_limit": str(_SESSION_LIMIT),
            "client_session_limit": str(_SESSION_LIMIT),
            "connection_session_limit": str(_SESSION_LIMIT),
        }
        self._kind = kind
        self.client = _CLIENTS[kind]
        if kind is not ClientKind.BYTES:
            self.name += f", {kind}"

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        """Let the service echo."""
        if self._kind is ClientKind.BYTES:
            port = asyncio.run(self._leader_port())
            return run_connections("trimaran", port, load, servers=servers, directory=directory)
        return asyncio.run(self._run_clients(load, directory))

    async def _leader_port(self) -> int:
        cluster = self.cluster
        status = await query_status(consensus_endpoint(cluster, 0), _ASK_TIMEOUT_S, network=cluster.network)
        if status.leader_member_id is None:
            raise ClusterError("trimaran has no leader")
        return int(cluster.base_ports[status.leader_member_id])

    async def _run_clients(self, load: SessionsLoad, directory: Path) -> Measured:
        """Start processes of the client that applications use; they open their sessions before they warm up."""
        count = max(load.processes, -(-load.sessions // SESSIONS_PER_PROCESS))
        sessions = [share(load.sessions, count, index) for index in range(count)]
        if self._kind is ClientKind.ONE_SESSION:
            sessions = [min(load.sessions, _ONE_SESSION)]
        clients = [
            ClientParameters(
                endpoints=self.cluster.ingress_endpoints,
                payload_length=load.payload,
                inflight=in_flight,
                warmup_count=max(_WARMUP_ROUNDS * in_flight, _WARMUP_LEAST),
                message_count=_WARMUP_ROUNDS * in_flight,
                rate_per_s=None,
                connect_timeout_s=_TIME_LIMIT_S,
                session_count=None if self._kind is ClientKind.ONE_SESSION else in_flight,
                is_shared=self._kind is ClientKind.SHARED,
                measure_s=load.measure_s,
            )
            for in_flight in sessions
        ]
        return await self._measure(clients, directory)
