"""The loads of stores: what our own clients do, and what is sent to etcd's JSON gateway."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

import pytest

from trimaran.benchmarks.peers import store_works
from trimaran.benchmarks.peers.etcd import EtcdKv
from trimaran.benchmarks.peers.peer import LoadPoint, StoreOperation
from trimaran.benchmarks.peers.redis import RedisKv
from trimaran.benchmarks.peers.store_works import make_work
from trimaran.benchmarks.peers.trimaran import TrimaranKv
from trimaran.benchmarks.scenarios import compare
from trimaran.benchmarks.scenarios.compare import OURS_KV, ComparedWork, CompareParameters
from trimaran.cluster.testing import MemoryCluster
from trimaran.service_api import ClusteredService, ClusterError
from trimaran.service_api.ready_made.kv import KvService
from trimaran.service_api.ready_made.locks import LockService
from trimaran.service_api.ready_made.queue import QueueService

PAYLOAD = 8
SERVICES: dict[StoreOperation, type[ClusteredService]] = {
    StoreOperation.LOCK: LockService,
    StoreOperation.JOB: QueueService,
}


@pytest.mark.parametrize("operation", StoreOperation)
def test_each_operation_of_a_store_is_done_by_several_sessions_at_once(
    operation: StoreOperation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_works, "SCANNED_KEYS", 250)
    with MemoryCluster(SERVICES.get(operation, KvService)) as cluster:

        async def test() -> None:
            spare, *sessions = [await cluster.connect() for _ in range(3)]
            work = make_work(operation, PAYLOAD)
            async with work.begun(spare):
                operates = [work.operation(session) for session in sessions]
                for _ in range(2):
                    await asyncio.gather(*(operate() for operate in operates for _ in range(3)))

        cluster.run(test())


def test_a_get_of_another_value_is_an_error() -> None:
    with MemoryCluster(KvService) as cluster:

        async def test() -> None:
            spare, session = await cluster.connect(), await cluster.connect()
            work = make_work(StoreOperation.GET, PAYLOAD)
            async with work.begun(spare):
                await make_work(StoreOperation.PUT, PAYLOAD + 1).operation(spare)()
                with pytest.raises(ClusterError, match="expected 8 bytes"):
                    await work.operation(session)()

        cluster.run(test())


class FakeGateway(ThreadingHTTPServer):
    """What etcd's JSON gateway answers to a load: puts, one watch, leases and one lock."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _GatewayHandler)
        self.shown: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.lock = threading.Lock()
        self.asked: list[str] = []
        self.leases: list[int] = []
        self.is_refusing = False

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/v3/kv/put":
            self.shown.put({"events": [{"kv": body}]})
        elif path == "/v3/lease/grant":
            self.leases.append(len(self.leases))
            return {"ID": str(self.leases[-1])}
        elif path == "/v3/lock/lock":
            self.lock.acquire()
            return {"key": base64.b64encode(f"lock/{body['lease']}".encode()).decode()}
        elif path == "/v3/lock/unlock":
            assert body["key"]
            self.lock.release()
        return {}


class _GatewayHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent as a whole
    server: FakeGateway

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(503 if self.server.is_refusing else 200)
        if self.path == "/v3/watch" and not self.server.is_refusing:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.show({"created": True})
            while True:
                self.show(self.server.shown.get())
        answer = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def show(self, result: dict[str, Any]) -> None:
        line = json.dumps({"result": result}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Write nothing."""


@contextmanager
def fake_etcd() -> Iterator[tuple[EtcdKv, FakeGateway]]:
    """Return an etcd whose leader's gateway is a fake one."""
    with FakeGateway() as gateway:
        serving = threading.Thread(target=gateway.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        serving.start()
        etcd = EtcdKv()
        etcd.leader_port = gateway.server_address[1]
        try:
            yield etcd, gateway
        finally:
            gateway.shutdown()
            serving.join()


def test_puts_of_etcd_are_measured_until_its_watch_has_shown_them() -> None:
    with fake_etcd() as (etcd, gateway):
        measured = etcd.operate(LoadPoint(1, operation=StoreOperation.WATCH), messages=5, payload=PAYLOAD)

    assert gateway.asked == ["/v3/kv/put"] * 5
    assert measured.p50_us is not None
    assert measured.messages_per_s > 0


def test_a_lock_of_etcd_is_handed_round_between_sessions_with_a_lease_each() -> None:
    with fake_etcd() as (etcd, gateway):
        etcd.operate(LoadPoint(1, 3, StoreOperation.LOCK), messages=20, payload=PAYLOAD)

    assert len(gateway.leases) == 3
    assert (gateway.asked.count("/v3/lock/lock"), gateway.asked.count("/v3/lock/unlock")) == (20, 20)


@pytest.mark.parametrize("operation", [StoreOperation.WATCH, StoreOperation.LOCK])
def test_what_etcd_refuses_is_an_error(operation: StoreOperation) -> None:
    with fake_etcd() as (etcd, gateway):
        gateway.is_refusing = True
        with pytest.raises(ClusterError, match="status=503"):
            etcd.operate(LoadPoint(1, 2, operation), messages=5, payload=PAYLOAD)


def test_a_store_is_put_under_the_loads_that_it_can_be_put_under() -> None:
    parameters = CompareParameters(workload=ComparedWork.KV)

    done = {
        peer.name: {point.operation for point in parameters.points_of(peer)}
        for peer in (TrimaranKv(1), EtcdKv(), RedisKv())
    }

    assert {point.operation for point in parameters.points} == set(StoreOperation)
    assert done[OURS_KV] == set(StoreOperation)
    assert done["etcd"] == set(StoreOperation) - {StoreOperation.JOB}
    assert done[RedisKv.name] == {StoreOperation.PUT, StoreOperation.GET, StoreOperation.TRANSACTION}


def test_a_table_of_stores_has_a_row_for_each_load_and_says_what_failed_and_what_is_not_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = {"messages_per_s": 500, "p50_us": 2_000.0, "rounds": [500]}
    report = {
        "scenario": "compare-kv",
        "loads": {"put 1": "put, 1 in flight", "job 1": "job, 1 in flight"},
        "peers": {
            "ours": {"durability": "disk", "depths": {"put 1": figures, "job 1": figures}},
            "weak": {
                "durability": "page cache",
                "depths": {},
                "failures": [{"round": 1, "load": "put, 1 in flight", "reason": "no"}],
            },
            "absent": {"missing": "not installed"},
        },
        "not_measurable": {},
    }

    compare.print_comparison(report)

    printed = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if line.startswith("│")]
    assert rows == [
        ["an acknowledged write is", "disk", "page cache"],
        ["put, 1 in flight", "500/s, 2 ms", "failed"],
        ["job, 1 in flight", "500/s, 2 ms", "-"],
    ]
    assert "absent was not measured: not installed\n" in printed
