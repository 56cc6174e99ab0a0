"""The scan: what is varied is measured, what cannot be is told, and a load over many sessions checks each of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.client.fake_member import FakeCluster, fake_cluster
from trimaran.benchmarks.load.client_process import ClientParameters
from trimaran.benchmarks.load.coordination import load_figures, run_clients
from trimaran.benchmarks.load.sessions import SessionLoad
from trimaran.benchmarks.rig.processes import ProcessError, ProcessGroup, raise_file_limit
from trimaran.benchmarks.scenarios import scan
from trimaran.benchmarks.scenarios.scan import Dimension, ScanParameters, parse_dimensions
from trimaran.benchmarks.scenarios.scan_bench import Load, ScanBench
from trimaran.service_api import ClusterError, ConfigurationError


class Silence:
    def describe(self, text: str) -> None: ...
    def update(self, done: int) -> None: ...


def over_sessions(cluster: FakeCluster, **values: object) -> ClientParameters:
    defaults: dict[str, object] = {"inflight": 8, "warmup_count": 40, "message_count": 200, "session_count": 5}
    return ClientParameters(
        endpoints=cluster.endpoints,
        payload_length=32,
        rate_per_s=None,
        connect_timeout_s=10.0,
        **{**defaults, **values},  # type: ignore[arg-type]  # by name
    )


async def test_a_load_goes_round_all_sessions(tmp_path: Path) -> None:
    async with fake_cluster(leader=1) as cluster:
        with ProcessGroup() as group:
            results, _ = await run_clients(
                [over_sessions(cluster)], None, group, Silence(), data_dir=tmp_path, time_limit_s=30.0
            )
        payloads = cluster.members[1].payloads

    figures = load_figures(results, {})
    assert figures["messages"] == 200
    assert figures["leader"] == "member-1"
    assert 0 < figures["p50_us"] <= figures["latency_percentiles_us"]["100"]
    # Each of the five sessions numbers its own messages from 0, over warm-up and measurement.
    sequences = [int.from_bytes(payload[:8], "little") for payload in payloads]
    assert sorted(sequences) == sorted(5 * list(range(48)))


async def test_a_load_may_last_for_a_time_at_the_rate_of_its_warm_up(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        with ProcessGroup() as group:
            results, _ = await run_clients(
                [over_sessions(cluster, message_count=40, measure_s=0.3, session_count=None)],
                None,
                group,
                Silence(),
                data_dir=tmp_path,
                time_limit_s=30.0,
            )

    assert load_figures(results, {})["messages"] > 40


async def test_a_session_that_ends_ends_the_load() -> None:
    async with fake_cluster() as cluster:
        cluster.members[0].is_echoing = False
        load = SessionLoad(payload_length=32, inflight=4)
        async with (
            load.connected(cluster.endpoints, 2, connect_timeout_s=10.0, on_opened=lambda count: None),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(run_until_failed(load))
            await cluster.until(lambda: bool(cluster.members[0].payloads))
            await cluster.elect(1)


async def run_until_failed(load: SessionLoad) -> None:
    with pytest.raises(ClusterError, match="leader changed"):
        await load.run(100)


def test_what_cannot_be_measured_is_told_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(bench: ScanBench, member_count: int, load: Load) -> dict[str, object]:
        if load.payload == 64:
            raise ProcessError("member-1 ended: exit_status=1\nits last lines")
        return {
            "throughput_msgs_per_s": load.payload,
            "p50_us": 1.0,
            "p99_us": 2.0,
            "cpu_seconds_per_100k": {"member-0": 0.5},
            "messages_per_sync": None,
        }

    monkeypatch.setattr(ScanBench, "measure", measure)
    parameters = ScanParameters(only=(Dimension.PAYLOAD,), payloads=(32, 64, 128), rounds=2)

    report = scan.run(parameters, directory=tmp_path)

    assert [(point["value"], point["throughput_msgs_per_s"]) for point in report["points"]] == [(32, 32), (128, 128)]
    assert report["points"][0]["rounds"] == [32, 32]
    assert report["failures"] == [
        {"dimension": "payload", "value": 64, "reason": "member-1 ended: exit_status=1: its last lines"},
    ]
    scan.print_points(report)
    assert "payload 64 not measured: member-1 ended" in capsys.readouterr().out


def test_nothing_that_can_be_measured_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(bench: ScanBench, member_count: int, load: Load) -> dict[str, object]:
        raise ProcessError("no member starts")

    monkeypatch.setattr(ScanBench, "measure", measure)

    with pytest.raises(ClusterError, match="no member starts"):
        scan.run(ScanParameters(only=(Dimension.MEMBERS,)), directory=tmp_path)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"payloads": (32, 4)}, "payloads"),
        ({"seconds": 0.0}, "seconds"),
        ({"rounds": 0}, "rounds"),
        ({"members": ()}, "members"),
        ({"log_mibs": (64, 32)}, "log_mibs"),
    ],
)
def test_values_that_make_no_run_are_refused(values: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        ScanParameters(**values)  # type: ignore[arg-type]  # by name


def test_dimensions_are_named_with_commas() -> None:
    assert parse_dimensions(" payload, log ") == (Dimension.PAYLOAD, Dimension.LOG)
    assert parse_dimensions("") == tuple(Dimension)
    with pytest.raises(ConfigurationError, match="only=depth expected some of payload,inflight"):
        parse_dimensions("payload,depth")


def test_a_limit_of_files_that_is_high_enough_is_left_alone() -> None:
    assert raise_file_limit(8) >= 8


@pytest.mark.campaign
def test_real_clusters_are_measured_along_every_dimension(tmp_path: Path) -> None:
    parameters = ScanParameters(
        seconds=0.1, payloads=(1024,), inflights=(16,), members=(1,), sessions=(20,), log_mibs=(0, 2)
    )

    report = scan.run(parameters, directory=tmp_path, keep=True)

    assert report["failures"] == []
    found = {(point["dimension"], point["value"]): point for point in report["points"]}
    assert list(found) == [
        ("payload", 1024),
        ("inflight", 16),
        ("members", 1),
        ("sessions", 20),
        ("shared", 20),
        ("log", 0),
        ("log", 2),
    ]
    for point in found.values():
        assert point["throughput_msgs_per_s"] > 0
        # On a busy disk the leader may sync nothing for so short a time: the followers are a majority without it.
        members = [usage for name, usage in point["usage"].items() if name.startswith("member")]
        assert len(members) == point["members"]
        assert sum(usage["sync_count"] for usage in members) > 0
        assert sum(usage["written_bytes"] for usage in members) > 0
    for name in ("sessions", "shared"):
        assert found[name, 20]["sessions"] == 20
        assert set(found[name, 20]["resident_bytes"]) == {"member-0", "member-1", "member-2", "client-0"}
        assert min(found[name, 20]["resident_bytes"].values()) > 10_000_000
    assert found["log", 2]["start_s"] > 0
    kept = list(tmp_path.glob("cluster-*/member-0.log"))
    assert len(kept) == 4  # points of one dimension shared one, or two dimensions did
