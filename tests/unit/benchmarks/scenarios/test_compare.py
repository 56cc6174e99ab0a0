"""The comparison with peers: what is said of them, and the bytes that are exchanged with those that we talk to."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from trimaran.benchmarks.machine import data_directory
from trimaran.benchmarks.peers.etcd import Etcd, EtcdTransactions
from trimaran.benchmarks.peers.peer import LoadPoint, Measured, Missing, Peer, SessionsLoad, SessionsPeer
from trimaran.benchmarks.peers.pipeline import (
    JetStreamDialect,
    PipelineParameters,
    ZooKeeperDialect,
    run_pipeline,
)
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup
from trimaran.benchmarks.scenarios import compare
from trimaran.benchmarks.scenarios.compare import OURS, OURS_KV, ComparedWork, CompareParameters
from trimaran.benchmarks.scenarios.compare_sessions import print_sessions
from trimaran.benchmarks.statistics.report import Report, write_json
from trimaran.service_api import ClusterError, ClusterTimeoutError, ConfigurationError


class FakePeer:
    """A peer with a rate for each start."""

    durability = "none"
    client = "none"
    warmup_messages = 0

    def __init__(self, name: str, rates: list[float], loads: list[tuple[str, int, int]]) -> None:
        self.name = name
        self._rates = rates
        self._loads = loads

    def find(self) -> str | Missing:
        return "1.0" if self._rates else Missing(f"{self.name} is not installed")

    def start(self, directory: Path, group: ProcessGroup) -> None:
        assert not any(directory.iterdir())
        (directory / "data").touch()

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        self._loads.append((self.name, inflight, messages))
        is_measured = len([load for load in self._loads if load[0] == self.name]) % 2 == 0
        return Measured(self._rates.pop(0) if is_measured else 1.0, p50_us=10.0, p99_us=None)


def test_what_gets_faster_as_it_runs_is_run_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loads: list[tuple[str, int, int]] = []
    java = FakePeer("java", [], loads)
    java.warmup_messages = 5_000
    monkeypatch.setattr(java, "find", lambda: "1.0")

    def load(*, inflight: int, messages: int, payload: int) -> Measured:
        loads.append(("java", inflight, messages))
        return Measured(1.0, p50_us=1.0, p99_us=1.0, client_cpu_us=2.5)

    monkeypatch.setattr(java, "load", load)
    monkeypatch.setattr(compare, "make_peers", lambda: [java])

    report = compare.run(CompareParameters(rounds=1, depths=(1, 64)), directory=tmp_path)

    assert loads[0] == ("java", 64, 5_000)
    assert len(loads) == 1 + 2 * 2
    assert report["peers"]["java"]["depths"]["1"]["client_cpu_us"] == 2.5


def test_systems_are_interleaved_warmed_up_and_compared_by_medians(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loads: list[tuple[str, int, int]] = []
    rates = {OURS: [100.0, 900.0, 300.0], "slow": [10.0, 20.0, 30.0], "absent": []}
    monkeypatch.setattr(
        compare, "make_peers", lambda: [FakePeer(name, values, loads) for name, values in rates.items()]
    )

    report = compare.run(CompareParameters(rounds=3, depths=(64,)), directory=tmp_path)

    assert [name for name, _, _ in loads] == [OURS, OURS, "slow", "slow"] * 3
    assert all(warmup < messages for (_, _, warmup), (_, _, messages) in zip(loads[::2], loads[1::2], strict=True))
    assert report["peers"][OURS]["depths"]["64"]["messages_per_s"] == 300
    slow = report["peers"]["slow"]["depths"]["64"]
    assert (slow["messages_per_s"], slow["rounds"], slow["trimaran_is_times_faster"]) == (20, [10, 20, 30], 15.0)
    assert (slow["p50_us"], slow["p99_us"]) == (10.0, None)
    assert report["peers"]["absent"] == {"missing": "absent is not installed"}
    compare.print_comparison(report)


class FailingPeer(FakePeer):
    """A peer that fails where it is told to: at a start or a load, by its number from 0."""

    def __init__(self, name: str, *, starts: tuple[int, ...] = (), loads: tuple[int, ...] = ()) -> None:
        super().__init__(name, [50.0] * 100, [])
        self._failing_starts = starts
        self._failing_loads = loads
        self.starts = 0
        self._load_count = 0

    def start(self, directory: Path, group: ProcessGroup) -> None:
        super().start(directory, group)
        self.starts += 1
        if self.starts - 1 in self._failing_starts:
            raise ClusterTimeoutError("no leader\nand what it printed last")

    def load(self, *, inflight: int, messages: int, payload: int) -> Measured:
        self._load_count += 1
        if self._load_count - 1 in self._failing_loads:
            raise ValueError("not a number")
        return super().load(inflight=inflight, messages=messages, payload=payload)


def test_what_fails_is_told_and_costs_nobody_else_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the weak one the second depth of the first round fails; the third is measured after another start."""
    weak = FailingPeer("weak", loads=(2,))
    broken = FailingPeer("broken", starts=(0, 1))
    ours = FakePeer(OURS, [100.0] * 6, [])
    monkeypatch.setattr(compare, "make_peers", lambda: [broken, weak, ours])

    report = compare.run(CompareParameters(rounds=2, depths=(1, 64, 1024)), directory=tmp_path)
    compare.print_comparison(report)
    compare.check_ourselves(report)

    found = report["peers"]["weak"]
    assert {depth: one["rounds"] for depth, one in found["depths"].items()} == {
        "1": [50, 50],
        "64": [None, 50],
        "1024": [50, 50],
    }
    assert found["depths"]["64"]["trimaran_is_times_faster"] == 2.0
    assert found["failures"] == [{"round": 1, "load": "64 in flight", "reason": "ValueError: not a number"}]
    assert (weak.starts, broken.starts) == (3, 2)
    assert report["peers"]["broken"]["depths"] == {}
    assert [failure["reason"] for failure in report["peers"]["broken"]["failures"]] == ["no leader"] * 2
    assert "failures" not in report["peers"][OURS]
    printed = capsys.readouterr().out
    assert "broken failed in round 2, at start: no leader\n" in printed
    assert "weak failed in round 1, 64 in flight: ValueError: not a number\n" in printed


def test_our_own_failure_is_an_error_after_everything_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ours, other = FailingPeer(OURS, starts=(1,)), FakePeer("other", [10.0] * 2, [])
    monkeypatch.setattr(compare, "make_peers", lambda: [ours, other])

    report = compare.run(CompareParameters(rounds=2, depths=(64,)), directory=tmp_path)

    assert report["peers"]["other"]["depths"]["64"]["rounds"] == [10, 10]
    assert report["peers"][OURS]["depths"]["64"]["rounds"] == [50, None]
    with pytest.raises(ClusterError, match="Trimaran, file sync level 1 failed: round 2, at start: no leader"):
        compare.check_ourselves(report)


def test_an_interrupted_comparison_has_written_its_whole_rounds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = FakePeer("other", [10.0, 20.0, 30.0], [])
    found = tmp_path / "results" / "compare.json"
    seen: list[Report] = []

    def settle() -> None:
        if found.exists():
            seen.append(json.loads(found.read_text()))
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(compare, "make_peers", lambda: [other])
    monkeypatch.setattr(data_directory, "settle_disk", settle)
    with pytest.raises(KeyboardInterrupt):
        compare.run(
            CompareParameters(rounds=3, depths=(64,)), directory=tmp_path, on_round=partial(write_json, path=found)
        )

    assert [report["peers"]["other"]["depths"]["64"]["rounds"] for report in seen] == [[10], [10, 20]]
    assert compare.rounds_done(seen[-1]) == 2
    assert [path.name for path in found.parent.iterdir()] == ["compare.json"]


def test_every_peer_says_what_its_acknowledgement_promises() -> None:
    peers: list[Peer] = compare.make_peers()

    assert next(peer.name for peer in peers) == OURS
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(peer.durability and peer.client for peer in peers)
    assert all(isinstance(peer.find(), str | Missing) for peer in peers)


class FakeStore(FakePeer):
    """A key-value store with one rate; keeps what it was asked for."""

    def __init__(self, name: str, rate: float) -> None:
        super().__init__(name, [rate], [])
        self.rate = rate
        self.asked: list[tuple[str, int]] = []

    def operate(self, point: LoadPoint, *, messages: int, payload: int) -> Measured:
        self.asked.append((point.name, messages))
        return Measured(self.rate, p50_us=5.0, p99_us=9.0)


def test_stores_are_put_to_and_got_from_with_one_session_and_with_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores: list[Peer] = [FakeStore(OURS_KV, 300.0), FakeStore("etcd", 100.0)]
    monkeypatch.setattr(CompareParameters, "make_peers", lambda parameters: stores)
    parameters = CompareParameters(rounds=1, depths=(1, 64), sessions=(50,), workload=ComparedWork.KV)

    report = compare.run(parameters, directory=tmp_path)

    assert report["scenario"] == "compare-kv"
    assert report["loads"] == {
        "put 1": "put, 1 in flight",
        "put 64": "put, 64 in flight",
        "put 50x1": "put, 50 sessions x 1",
        "get 1": "get, 1 in flight",
        "get 64": "get, 64 in flight",
        "get 50x1": "get, 50 sessions x 1",
    }
    assert isinstance(stores[1], FakeStore)
    assert stores[1].asked[:6] == [
        ("put 1", 80),
        ("put 1", 400),
        ("put 64", 1_200),
        ("put 64", 6_000),
        ("put 50x1", 100),
        ("put 50x1", 500),
    ]
    assert report["peers"]["etcd"]["depths"]["get 50x1"]["trimaran_is_times_faster"] == 3.0
    compare.print_comparison(report)
    assert "etcd" in capsys.readouterr().out


class FakeSessions(FakePeer):
    """A system with many sessions; keeps what it was asked for, and fails where its sessions are too many."""

    def __init__(self, name: str, cpu_us: float, *, limit: int = 1_000_000) -> None:
        super().__init__(name, [1.0], [])
        self._cpu_us = cpu_us
        self._limit = limit
        self.asked: list[SessionsLoad] = []

    def load_sessions(self, load: SessionsLoad, directory: Path, servers: Sequence[ManagedProcess]) -> Measured:
        self.asked.append(load)
        if load.sessions > self._limit:
            raise ClusterError("too many sessions")
        return Measured(1e6 / self._cpu_us, p50_us=5.0, p99_us=9.0, client_cpu_us=2.0, server_cpu_us=self._cpu_us)


def test_many_sessions_of_everybody_are_measured_and_who_cannot_have_so_many_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours, one, other = (
        FakeSessions(OURS, 20.0),
        FakeSessions(f"{OURS}, one session", 10.0),
        FakeSessions("other", 50.0, limit=100),
    )
    monkeypatch.setattr(CompareParameters, "make_peers", lambda parameters: [ours, one, other])
    parameters = CompareParameters(rounds=1, sessions=(100, 1_000), processes=3, seconds=1.0)

    report = compare.run(parameters, directory=tmp_path)

    assert report["scenario"] == "compare-sessions"
    assert report["loads"] == {"100x1": "100 sessions x 1", "1000x1": "1000 sessions x 1"}
    assert [(load.sessions, load.processes, load.measure_s) for load in ours.asked] == [(100, 3, 1.0), (1_000, 3, 1.0)]
    assert report["peers"]["other"]["depths"]["100x1"]["trimaran_is_times_faster"] == 2.5
    assert report["peers"]["other"]["depths"]["100x1"]["server_cpu_us"] == 50.0
    assert report["peers"]["other"]["failures"] == [
        {"round": 1, "load": "1000 sessions x 1", "reason": "too many sessions"}
    ]
    assert report["percent_of_one_session"]["1000x1"] == {OURS: {"members": 50.0, "all": 54.5}}
    print_sessions(report)
    assert "50 % of one session's requests per processor second" in " ".join(capsys.readouterr().out.split())


def test_every_system_with_many_sessions_says_who_makes_the_load() -> None:
    peers = CompareParameters(sessions=(10,)).make_peers()

    assert peers[0].name == OURS
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(isinstance(peer, SessionsPeer) and peer.client and peer.durability for peer in peers)


def test_values_that_make_no_comparison_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rounds=0"):
        CompareParameters(rounds=0)
    with pytest.raises(ConfigurationError, match=r"depths=\(7,\)"):
        CompareParameters(depths=(7,))
    with pytest.raises(ConfigurationError, match=r"sessions=\(0,\)"):
        CompareParameters(sessions=(0,))
    with pytest.raises(ConfigurationError, match="processes=0"):
        CompareParameters(processes=0)
    with pytest.raises(ConfigurationError, match="nobody"):
        compare.run(CompareParameters(peers=("nobody",)))


# --- what is sent, and what is made of the answers


def test_zookeeper_answers_are_counted_whole_and_refusals_are_errors() -> None:
    """The layout as a real server sent it: length, xid, zxid, error, 68 bytes of what it knows of the znode."""
    dialect = ZooKeeperDialect(32)
    answer = struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68)
    data = bytearray(answer * 3 + answer[:50])

    assert dialect.take_answers(data) == 3
    assert data == answer[:50]
    assert len(dialect.requests(0, 5)) == 5 * len(dialect.requests(5, 1))
    assert struct.unpack_from(">iii", dialect.requests(7, 1)) == (len(dialect.requests(7, 1)) - 4, 8, 5)
    ping = struct.pack(">iiqi", 16, -2, 3, 0)
    data = bytearray(ping + answer + ping + answer + answer[:40])
    assert dialect.take_answers(data) == 2
    assert data == answer[:40]
    assert dialect.keep_alive() == struct.pack(">iii", 8, -2, 11)
    with pytest.raises(ClusterError, match="error=-101"):
        dialect.take_answers(bytearray(struct.pack(">iiqi", 16, 1, 3, -101)))


def test_jetstream_acknowledgements_are_counted_whole_and_refusals_are_errors() -> None:
    dialect = JetStreamDialect(32)
    body = b'{"stream":"TRIMARAN", "seq":1}'
    answer = b"MSG _INBOX.trimaran 1  %d\r\n%b\r\n" % (len(body), body)
    data = bytearray(answer + b"PING\r\n" + answer + answer[:30])

    assert dialect.take_answers(data) == 2
    assert data == answer[:30]
    refusal = b'{"error":{"code":503}}'
    with pytest.raises(ClusterError, match="503"):
        dialect.take_answers(bytearray(b"MSG _INBOX.trimaran 1 %d\r\n%b\r\n" % (len(refusal), refusal)))
    with pytest.raises(ClusterError, match="Permissions"):
        dialect.take_answers(bytearray(b"-ERR 'Permissions Violation'\r\n"))


def test_etcd_requests_are_protocol_buffers() -> None:
    """Key is field 1 of a put and value field 2; a transaction holds each put in field 2 of a field 2."""
    body, per_request = Etcd()._request(32, 1024)
    several, in_one = EtcdTransactions()._request(200, 1024)

    assert (body, per_request) == (b"\x0a\x12trimaran-benchmark\x12\x20" + b"x" * 32, 1)
    assert in_one == 128
    put = b"\x0a\x14trimaran-benchmark-0\x12\xc8\x01" + b"x" * 200
    assert several.startswith(b"\x12\xe4\x01\x12\xe1\x01" + put)


async def test_a_pipeline_pings_a_server_that_is_silent_and_says_how_far_it_came_when_it_is_closed() -> None:
    """ZooKeeper 3.8.0 now and then answers nothing until something else comes in."""
    received = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(struct.pack(">i", 0))
        request = len(ZooKeeperDialect(32).requests(0, 1))
        ping = len(ZooKeeperDialect(32).keep_alive())
        await reader.readexactly(request)
        received.extend(await reader.readexactly(ping))
        writer.write(struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68) + struct.pack(">iiqi", 16, -2, 3, 0))
        await reader.readexactly(request)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parameters = PipelineParameters(
        dialect="zookeeper", host="127.0.0.1", port=port, inflight=1, messages=100, payload=32
    )
    with pytest.raises(ClusterError, match="the peer closed the connection: answered=1 sent=2 of=100"):
        await asyncio.to_thread(run_pipeline, parameters)
    server.close()

    assert received == ZooKeeperDialect(32).keep_alive()


async def test_a_pipeline_keeps_so_many_in_flight_and_counts_every_answer() -> None:
    """Against a server that answers as ZooKeeper does."""
    waiting: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            writer.write(struct.pack(">i", 0))
        request = len(ZooKeeperDialect(32).requests(0, 1))
        buffered = b""
        while data := await reader.read(1 << 16):
            buffered += data
            count, rest = divmod(len(buffered), request)
            waiting.append(count)
            buffered = buffered[len(buffered) - rest :]
            writer.write((struct.pack(">iiqi", 84, 1, 3, 0) + bytes(68)) * count)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    parameters = PipelineParameters(
        dialect="zookeeper", host="127.0.0.1", port=port, inflight=8, messages=100, payload=32
    )
    measured = await asyncio.to_thread(run_pipeline, parameters)
    server.close()

    assert sum(waiting) == 100
    assert max(waiting) <= 8
    assert measured.messages_per_s > 0
    assert measured.p50_us is not None
    assert measured.p99_us is not None
    assert measured.p50_us <= measured.p99_us
