"""The typed benchmark: every case is measured, and each request runs once."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran.benchmarks.scenarios.request import RequestParameters
from trimaran.benchmarks.scenarios.typed import run
from trimaran.service_api.errors import ConfigurationError


@pytest.mark.campaign
def test_bytes_and_classes_are_measured_in_turn(tmp_path: Path) -> None:
    parameters = RequestParameters(inflight=16, requests=500, warmup=50)

    report = run(parameters, rounds=1, directory=tmp_path / "data")

    assert {case: len(runs) for case, runs in report["runs"].items()} == {"bytes": 1, "typed": 1, "doubled": 1}
    assert min(report["requests_per_s"].values()) > 0
    assert report["percent_of_bytes"]["bytes"] == 100.0


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="rounds=0 expected at least 1"):
        run(RequestParameters(), rounds=0)
