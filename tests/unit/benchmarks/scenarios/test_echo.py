"""The echo benchmark from end to end: real client processes, against fake members or a real cluster."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.client.fake_member import FakeCluster, fake_cluster
from trimaran.benchmarks.app import main
from trimaran.benchmarks.machine.environment import describe, file_system_of
from trimaran.benchmarks.rig.processes import ProcessError
from trimaran.benchmarks.scenarios.echo import EchoParameters, run
from trimaran.service_api.errors import ClusterTimeoutError, ConfigurationError

FIGURES = ("throughput_msgs_per_s", "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "duration_s")


def against(cluster: FakeCluster, **values: object) -> EchoParameters:
    defaults: dict[str, object] = {"messages": 500, "warmup": 50, "inflight": 16, "time_limit_s": 60.0}
    endpoints = tuple(cluster.endpoints)
    return EchoParameters(**{**defaults, **values, "endpoints": endpoints})  # type: ignore[arg-type]  # by name


async def test_a_closed_loop_reports_every_message(tmp_path: Path) -> None:
    async with fake_cluster(leader=1) as cluster:
        report = await asyncio.to_thread(run, against(cluster, clients=2), directory=tmp_path)

    assert report["messages"] == 500
    assert all(report[name] > 0 for name in FIGURES)
    assert report["p50_us"] <= report["p99_us"] <= report["max_us"]
    assert list(report["cpu_seconds_per_100k"]) == ["client-0", "client-1"]
    assert report["parameters"]["inflight"] == 16
    assert report["environment"]["python"].startswith("CPython")
    assert len(cluster.members[1].payloads) == 550


async def test_an_open_loop_keeps_its_rate_and_tells_its_own_lag(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        report = await asyncio.to_thread(run, against(cluster, messages=400, rate=2_000.0), directory=tmp_path)

    # 400 messages, 0.5 ms apart: the last is due after 199.5 ms.
    assert report["duration_s"] >= 0.1995
    assert report["send_lag"]["max_us"] <= report["max_us"]


async def test_large_messages_wait_for_room(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        parameters = against(cluster, messages=30, warmup=0, inflight=30, payload=200_000)
        report = await asyncio.to_thread(run, parameters, directory=tmp_path)

    assert report["messages"] == 30


async def test_a_run_that_does_not_end_is_given_up(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        cluster.members[0].is_echoing = False

        with pytest.raises(ClusterTimeoutError, match="time_limit_s=2"):
            await asyncio.to_thread(run, against(cluster, time_limit_s=2.0), directory=tmp_path)

        await cluster.until(lambda: not any(member.connections for member in cluster.members))


async def test_a_leader_that_changes_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        cluster.members[0].is_echoing = False
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run_until_failed(against(cluster), tmp_path))
            await cluster.until(lambda: bool(cluster.members[0].payloads))
            await cluster.until(lambda: bool(cluster.members[1].keep_alives))
            await cluster.elect(1)


async def run_until_failed(parameters: EchoParameters, directory: Path) -> None:
    with pytest.raises(ProcessError, match="leader changed"):
        await asyncio.to_thread(run, parameters, directory=directory)


@pytest.mark.parametrize(
    "values",
    [{"payload": 7}, {"messages": 0}, {"clients": 0}, {"rate": 0.0}, {"inflight": 1, "clients": 2}],
    ids=str,
)
def test_parameters_that_make_no_run_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(values))):
        EchoParameters(**values)  # type: ignore[arg-type]  # by name


def test_a_directory_with_files_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="expected an empty one"):
        run(EchoParameters(endpoints=("127.0.0.1:1",)), directory=tmp_path)


def test_wrong_parameters_are_one_line_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "echo", "--payload", "3"])
    monkeypatch.setattr("signal.signal", lambda number, handler: None)

    with pytest.raises(SystemExit) as raised:
        main()

    assert raised.value.code == 2
    assert capsys.readouterr().err == "benchmarks: payload=3 expected at least 8 bytes\n"


def test_the_environment_names_what_figures_depend_on(tmp_path: Path) -> None:
    environment = describe(tmp_path)

    assert "--enable-optimizations" in str(environment["python"])
    for name in (
        "python",
        "tcp_congestion_control",
        "uvloop",
        "checksums",
        "kernel",
        "cpu_model",
        "cores",
        "git_commit",
        "file_system",
        "client_gc",
    ):
        assert name in environment
    assert file_system_of(Path("/proc/self")).startswith("proc on ")


@pytest.mark.slow
def test_a_real_cluster_is_started_measured_and_ended(tmp_path: Path) -> None:
    json_path = tmp_path / "report.json"
    arguments = ("echo", "--messages", "2000", "--warmup", "100", "--inflight", "64", "--clients", "2")
    command = (sys.executable, "-m", "trimaran.benchmarks", *arguments)

    done = subprocess.run(
        (*command, "--dir", str(tmp_path / "data"), "--json", str(json_path)),
        capture_output=True,
        text=True,
        timeout=120,
    )

    report = json.loads(json_path.read_text()) if json_path.exists() else {}
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert "throughput_msgs_per_s" in done.stdout
    assert report["messages"] == 2000
    processes = {"member-0", "member-1", "member-2", "client-0", "client-1"}
    assert set(report["cpu_seconds_per_100k"]) == processes
    assert report["environment"]["file_sync_level"] == 1
    assert report["environment"]["segment_length_bytes"] == 128 << 20
    assert (tmp_path / "data" / "member-0").is_dir()


@pytest.mark.campaign
def test_requests_of_a_real_cluster_are_measured_and_each_ran_once(tmp_path: Path) -> None:
    json_path = tmp_path / "report.json"
    arguments = ("request", "--requests", "2000", "--warmup", "100", "--inflight", "64", "--members", "1")

    done = subprocess.run(
        (
            sys.executable,
            "-m",
            "trimaran.benchmarks",
            *arguments,
            "--dir",
            str(tmp_path / "data"),
            "--json",
            str(json_path),
        ),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert (done.returncode, done.stderr.strip()) == (0, "")
    report = json.loads(json_path.read_text())
    assert (report["requests"], report["ran_twice"], report["in_flight"], report["file_sync_level"]) == (2000, 0, 64, 1)
    assert report["requests_per_s"] > 0
    assert 0 < report["p50_us"] <= report["p99_us"]
