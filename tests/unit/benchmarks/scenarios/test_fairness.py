"""The fairness benchmark from end to end, against a real cluster of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.fairness import FairnessParameters, run
from trimaran.service_api.errors import ConfigurationError


def test_modest_client_is_measured_alone_and_beside_each_greedy_one(tmp_path: Path) -> None:
    report = run(
        FairnessParameters(members=1, messages=20, warmup=2, depths=(8, 64), time_limit_s=60), directory=tmp_path
    )

    names = [name for name in report if name == "alone" or name.startswith("beside")]
    assert names == ["alone", "beside 8 in flight,", "beside 64 in flight,"]
    assert all(0 < report[name]["p50_us"] <= report[name]["max_us"] for name in names)


def test_there_may_be_many_modest_clients(tmp_path: Path) -> None:
    report = run(
        FairnessParameters(members=1, messages=20, warmup=2, sessions=12, depths=(64,), time_limit_s=60),
        directory=tmp_path,
    )

    assert report["beside 64 in flight,"]["p99_times_alone"] > 0


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({"depths": (0,)}, "depths=\\(0,\\)"), ({"payload": 7}, "payload=7"), ({"messages": 0}, "messages=0")],
    ids=["depths", "payload", "messages"],
)
def test_values_that_make_no_run_are_refused(changes: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        FairnessParameters(**changes)  # type: ignore[arg-type]  # of several types
