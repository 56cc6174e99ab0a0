"""What processes use is read from the kernel and from members' metrics, and told as differences."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimaran.benchmarks.rig.meter import Meter, Usage, usage_report
from trimaran.benchmarks.rig.processes import ClusterProcesses, ProcessError
from trimaran.benchmarks.statistics.histogram import Histogram
from trimaran.benchmarks.statistics.report import percentile_curve


def test_usage_is_a_difference_and_what_is_unknown_stays_unknown() -> None:
    before, after = Usage(1.0, 0.5, 4096, None), Usage(1.25, 0.75, 12_288, 7)

    used = after - before

    assert used == Usage(0.25, 0.25, 8192, None)
    assert usage_report({"member-0": used}, 50_000) == {
        "cpu_seconds_per_100k": {"member-0": 1.0},
        "usage": {"member-0": {"user_s": 0.25, "system_s": 0.25, "written_bytes": 8192, "sync_count": None}},
    }


def test_a_process_is_read_and_one_that_is_gone_used_nothing() -> None:
    assert Usage.of_process(os.getpid()).cpu_s > 0
    assert Usage.of_process(0) == Usage(0.0, 0.0, None)


async def test_without_a_cluster_nothing_is_read() -> None:
    meter = Meter(None)

    await meter.begin()
    await meter.end()

    assert meter.used == {}


async def test_a_member_that_does_not_tell_where_its_metrics_are_is_named(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path, "none", 1, settings={"metrics_endpoint": "127.0.0.1:0"})
    log = cluster.log_path_of(0)
    log.write_text("")
    with cluster.group:
        cluster.members[0] = cluster.group.spawn("member-0", ("sleep", "20"), log_path=log)

        with pytest.raises(ProcessError, match=r"metrics\.listening"):
            await Meter(cluster).begin()


def test_a_curve_of_percentiles_ends_where_one_latency_is_left() -> None:
    histogram = Histogram()
    histogram.record_all(range(0, 1000_000, 1000))

    curve = percentile_curve(histogram)

    assert list(curve)[:6] == ["0", "25", "50", "62.5", "75", "81.25"]
    assert curve["50"] == pytest.approx(500, rel=0.01)
    assert list(curve.values()) == sorted(curve.values())
    assert 99.9 < float(list(curve)[-2]) < 100
    assert curve["100"] == 999.0
    assert percentile_curve(Histogram()) == {"0": 0.0, "100": 0.0}
