"""The benchmark of groups from end to end, against real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.groups import GroupsParameters, run
from trimaran.service_api.errors import ConfigurationError


def test_each_number_of_groups_is_measured_in_turn(tmp_path: Path) -> None:
    """Every process uses some processor time, and none is forgotten."""
    report = run(
        GroupsParameters(counts=(1, 2), inflight=32, messages=4_000, rounds=1, time_limit_s=120), directory=tmp_path
    )

    assert [name for name in report if "group" in name and name.endswith(",")] == ["1 group,", "2 groups,"]
    for name in ("1 group,", "2 groups,"):
        assert report[name]["messages_per_s"] > 0
        assert 0 < report[name]["p50_us"] <= report[name]["p99_us"]
        assert report[name]["leader_cpu_us"] > 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"counts": (0,)}, "counts="),
        ({"counts": ()}, "counts="),
        ({"counts": (65,)}, "counts="),
        ({"payload": 7}, "payload=7"),
        ({"rounds": 0}, "rounds=0"),
        ({"inflight": 3}, "inflight=3"),
    ],
)
def test_values_that_make_no_run_are_refused(changes: dict[str, object], expected: str) -> None:
    """It names them."""
    with pytest.raises(ConfigurationError, match=expected):
        GroupsParameters(**changes)  # type: ignore[arg-type]  # of several types
