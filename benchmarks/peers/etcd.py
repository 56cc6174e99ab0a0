"""etcd: three members, `Put` of one key by gRPC from h2load, a client in C; alone or many in one transaction."""

from __future__ import annotations

import base64
import json
import re
import urllib.request
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import quantiles
from typing import Any, Final, NamedTuple

from ...service_api.errors import ClusterError
from ..rig.processes import ProcessGroup
from .etcd_gateway import hand_lock_round, watch_puts, write_scanned_keys
from .peer import (
    MEMBERS,
    SCANNED_KEYS,
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
_PUTS_IN_TRANSACTION: Final = 128
"""Its limit, unless it is told otherwise."""
_STREAMS_LIMIT: Final = 256
"""Requests in flight on one connection of h2load: with 64 or 16, and so more connections, etcd does 5 to 15 % less."""


class _Said(NamedTuple):
    """What h2load told."""

    text: str
    """The end of what it printed."""
    took_us: list[tuple[int, int]]
    """Of each request: when it began, and how long it took."""
    cpu_s: float

    def measured(self, per_request: int) -> Measured:
        """The figures, where each request carries so many messages."""
        count = len(self.took_us) * per_request
        took_us = [took for _, took in self.took_us]
        end_us = max(begin + took for begin, took in self.took_us)
        cuts = quantiles(took_us, n=100) if len(took_us) > 1 else took_us * 99
        return Measured(
            count / ((end_us - min(begin for begin, _ in self.took_us)) / 1e6),
            p50_us=cuts[49],
            p99_us=cuts[98],
            client_cpu_us=self.cpu_s * 1e6 / count,
        )


class Etcd:
    """Debian's packages `etcd-server` and `nghttp2-client`."""

    name = "etcd"
    durability = "on disk (fdatasync) on a majority"
    client = "h2load (C), gRPC, to the leader"
    warmup_messages = 0
    _path = "/etcdserverpb.KV/Put"

    def __init__(self) -> None:
        self._clients: list[int] = []
        self.leader_port = 0
        self._directory = Path()

    def find(self) -> str | Missing:
        """Ask etcd; its client is needed, too."""
        client = find_program("h2load", "--version")
        found = find_program("etcd", "--version")
        return client if isinstance(client, Missing) else found

    def start(self, directory: Path, group: ProcessGroup) -> None:
        """Start the members and find the leader."""
        self._directory = directory
        ports = free_ports(2 * MEMBERS)
        self._clients = ports[:MEMBERS]
        cluster = ",".join(f"e{i}=http://127.0.0.1:{ports[MEMBERS + i]}" for i in range(MEMBERS))
        for i in range(MEMBERS):
            peer, client = f"http://127.0.0.1:{ports[MEMBERS + i]}", f"http://127.0.0.1:{ports[i]}"
            group.spawn(
                f"etcd-{i}",
                (
                    "etcd",
                    f"--name=e{i}",
                    f"--data-dir={directory / f'etcd-{i}'}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--initial-cluster={cluster}",
                    "--log-level=error",
                ),
                log_path=directory / f"etcd-{i}.log",
            )
        wait_until(self._has_leader, "a leader of etcd", group)

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        """Let h2load put, and see that the store has changed as often."""
        body, per_request = self._request(payload, inflight)
        in_flight = max(1, inflight // per_request)
        count = messages // per_request
        before = self.revision()
        said = self._h2load(self._path, body, count, -(-in_flight // _STREAMS_LIMIT), in_flight)
        self._check_changed(before, count, said.text)
        return said.measured(per_request)

    def _h2load(self, path: str, body: bytes, count: int, connections: int, inflight: int) -> _Said:
        """Send a request so often, with so many in flight over all connections."""
        request_file = self._directory / "request"
        request_file.write_bytes(_grpc(body))
        log_file = self._directory / "latencies"
        log_file.unlink(missing_ok=True)
        done, cpu_s = run_client(
            (
                "h2load",
                f"--requests={count}",
                f"--clients={connections}",
                f"--max-concurrent-streams={-(-inflight // connections)}",
                f"--data={request_file}",
                f"--log-file={log_file}",
                "--header=content-type: application/grpc",
                "--header=te: trailers",
                f"http://127.0.0.1:{self.leader_port}{path}",
            ),
            timeout_s=_TIMEOUT_S,
        )
        text = f"{done.stdout[-1000:]}{done.stderr[-500:]}"
        if done.returncode:
            raise ClusterError(f"h2load failed: {text}")
        rows = [line.split() for line in log_file.read_text().splitlines()]
        return _Said(text, [(int(row[0]), int(row[2])) for row in rows], cpu_s)

    def _check_changed(self, before: int, count: int, text: str) -> None:
        """Raise unless the store has changed so often: h2load takes a refusal by gRPC for an answer."""
        changed = self.revision() - before
        if changed != count:
            raise ClusterError(f"etcd changed {changed} times, expected={count}: {text}")

    def put_request(self, payload: int) -> tuple[str, bytes]:
        """The path and the whole body of a request that puts one key."""
        return Etcd._path, _grpc(_put(payload))

    def _request(self, payload: int, inflight: int) -> tuple[bytes, int]:
        """The body of a request, and how many messages it carries."""
        return _put(payload), 1

    def _has_leader(self) -> bool:
        for port in self._clients:
            status = _call(port, "/v3/maintenance/status", {})
            if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                self.leader_port = port
        return self.leader_port != 0

    def put_keys(self, keys: Iterable[bytes], value: bytes) -> None:
        """Put keys with one value, as many in a transaction as it takes.

        Raises:
            OSError: the leader does not answer.
        """
        left, encoded = iter(keys), base64.b64encode(value).decode()
        while part := [*islice(left, _PUTS_IN_TRANSACTION)]:
            puts = [{"requestPut": {"key": base64.b64encode(key).decode(), "value": encoded}} for key in part]
            _call(self.leader_port, "/v3/kv/txn", {"success": puts})

    def revision(self) -> int:
        """How often the store has changed."""
        found = _call(self.leader_port, "/v3/kv/range", {"key": base64.b64encode(STORE_KEY).decode()})
        return int(found["header"]["revision"])


class EtcdKv(Etcd):
    """The same cluster under Put, linearizable Range, and Txn; a watch and a lock by its JSON gateway.

    It has no queue of its own: a job is not measured.
    """

    client = (
        "h2load (C), gRPC, to the leader, one connection for each session; watch and lock: threads of Python on the "
        "JSON gateway"
    )
    operations = frozenset(StoreOperation) - {StoreOperation.JOB}
    _RANGE: Final = "/etcdserverpb.KV/Range"
    _TRANSACTION: Final = "/etcdserverpb.KV/Txn"

    def operate(self, point: LoadPoint, *, messages: int, payload: int) -> Measured:
        """Let h2load or threads of this process do an operation, and see that it was done."""
        match point.operation:
            case StoreOperation.PUT:
                return self._write(self._path, _put(payload), point, messages)
            case StoreOperation.TRANSACTION:
                return self._write(self._TRANSACTION, _puts_together(payload, TRANSACTION_PUTS), point, messages)
            case StoreOperation.GET:
                self._h2load(self._path, _put(payload), 1, 1, 1)  # there is something to get
                return self._read(_field(1, STORE_KEY), point, messages, payload)
            case StoreOperation.SCAN:
                write_scanned_keys(self.leader_port, b"x" * payload)
                scanned = _field(1, b"scanned-") + _field(2, b"scanned.")
                return self._read(scanned, point, messages, SCANNED_KEYS * payload)
            case StoreOperation.WATCH:
                return watch_puts(self.leader_port, messages, b"x" * payload)
            case StoreOperation.LOCK:
                return hand_lock_round(self.leader_port, point.sessions, messages)
        raise ClusterError(f"etcd does not do operation={point.operation}")

    def _write(self, path: str, body: bytes, point: LoadPoint, messages: int) -> Measured:
        before = self.revision()
        said = self._h2load(path, body, messages, point.sessions, point.sessions * point.inflight)
        self._check_changed(before, messages, said.text)
        return said.measured(1)

    def _read(self, body: bytes, point: LoadPoint, messages: int, least_bytes: int) -> Measured:
        """Let h2load ask for a range, of which each answer has so many bytes at least."""
        said = self._h2load(self._RANGE, body, messages, point.sessions, point.sessions * point.inflight)
        data = re.search(r"\((\d+)\) data", said.text)
        if data is None or int(data[1]) < messages * least_bytes:
            raise ClusterError(f"etcd did not give {least_bytes} bytes {messages} times: {said.text}")
        return said.measured(1)


class EtcdTransactions(Etcd):
    """The same with up to 128 puts in one transaction: what a user of etcd may do who batches by hand."""

    name = "etcd, 128 puts in a transaction"
    _path = "/etcdserverpb.KV/Txn"

    def _request(self, payload: int, inflight: int) -> tuple[bytes, int]:
        count = min(_PUTS_IN_TRANSACTION, inflight)
        return _puts_together(payload, count), count


def _grpc(message: bytes) -> bytes:
    """A message as gRPC sends it, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def _put(payload: int, suffix: bytes = b"") -> bytes:
    """PutRequest: key is field 1, value field 2."""
    return _field(1, STORE_KEY + suffix) + _field(2, b"x" * payload)


def _puts_together(payload: int, count: int) -> bytes:
    """TxnRequest: success is field 2, RequestOp.request_put field 2; each put needs a key of its own."""
    return b"".join(_field(2, _field(2, _put(payload, b"-%d" % number))) for number in range(count))


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _call(port: int, path: str, body: dict[str, object]) -> dict[str, Any]:
    """Call etcd's JSON gateway.

    Raises:
        OSError: it does not listen or answer.
    """
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5) as answer:  # nosec B310
        found: dict[str, Any] = json.load(answer)
    return found
