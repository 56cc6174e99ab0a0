"""The query benchmark from end to end, against a real cluster of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.query import QueryParameters, run
from trimaran.service_api.errors import ConfigurationError


def test_every_kind_and_depth_is_measured(tmp_path: Path) -> None:
    report = run(
        QueryParameters(members=1, queries=40, warmup=4, depths=(1, 8), with_echo=False, time_limit_s=60),
        directory=tmp_path,
    )

    names = [f"{kind}, {depth} in flight," for kind in ("linearizable", "stale") for depth in (1, 8)]
    assert [name for name in report if "in flight" in name] == names
    assert all(report[name]["per_s"] > 0 < report[name]["p50_us"] <= report[name]["max_us"] for name in names)


def test_depth_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="depths=\\(0,\\) expected at least 1 each"):
        QueryParameters(depths=(0,))
