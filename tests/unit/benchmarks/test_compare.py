"""The comparison with other systems: rounds, medians, failures, and what an acknowledgement promises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from trimaran.benchmarks.machine import data_directory
from trimaran.benchmarks.peers.peer import Measured, Missing, Peer, SessionsLoad, SessionsPeer
from trimaran.benchmarks.rig.processes import ManagedProcess, ProcessGroup
from trimaran.benchmarks.scenarios import compare
from trimaran.benchmarks.scenarios.compare import OURS, ComparedWork, CompareParameters
from trimaran.benchmarks.scenarios.compare_sessions import print_sessions
from trimaran.benchmarks.statistics.report import Report, write_json
from trimaran.service_api import ClusterError, ClusterTimeoutError


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
    with pytest.raises(ClusterError, match=r"file sync level 1.*round 2.*no leader"):
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


@pytest.mark.parametrize(
    "parameters",
    [CompareParameters(), CompareParameters(sessions=(10,)), CompareParameters(workload=ComparedWork.KV)],
    ids=["messages", "sessions", "kv"],
)
def test_every_system_says_what_its_acknowledgement_promises_and_who_makes_the_load(
    parameters: CompareParameters,
) -> None:
    peers: list[Peer] = parameters.make_peers()

    assert peers[0].name == parameters.ours
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(peer.durability and peer.client for peer in peers)
    assert all(isinstance(peer, SessionsPeer) for peer in peers) or not parameters.with_sessions
