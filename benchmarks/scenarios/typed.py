"""Typed: requests with bytes, with classes and with double execution in turn, each time on a cluster of its own."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from trimaran.service_api.errors import ConfigurationError

from ..statistics.report import Report
from .request import RequestParameters
from .request import run as run_requests

_CASES: Final[dict[str, dict[str, Any]]] = {
    "bytes": {},
    "typed": {"is_typed": True},
    "doubled": {"is_typed": True, "node_settings": {"double_execution": "true"}},
}
"""What is measured, and what each has beside the parameters."""


def run(parameters: RequestParameters, *, rounds: int, directory: Path | None = None) -> Report:
    """Measure every case, `rounds` times in turn; the medians count.

    Raises:
        ClusterError: it could not be measured, or a request did not run exactly once.
    """
    if rounds < 1:
        raise ConfigurationError(f"rounds={rounds} expected at least 1")
    reports: dict[str, list[Report]] = {name: [] for name in _CASES}
    for _ in range(rounds):
        for name, found in reports.items():
            own = None if directory is None else directory / f"{name}-{len(found)}"
            found.append(run_requests(replace(parameters, **_CASES[name]), directory=own))
    rates = {name: median(each["requests_per_s"] for each in found) for name, found in reports.items()}
    return {
        "scenario": "typed",
        "requests_per_s": {name: round(rate) for name, rate in rates.items()},
        "percent_of_bytes": {name: round(100 * rate / rates["bytes"], 1) for name, rate in rates.items()},
        "p50_us": {name: median(each["p50_us"] for each in found) for name, found in reports.items()},
        "rounds": rounds,
        "runs": {name: [each["requests_per_s"] for each in found] for name, found in reports.items()},
        "parameters": asdict(parameters),
        "environment": reports["bytes"][0]["environment"],
    }
