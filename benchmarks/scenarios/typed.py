"""Typed: the request benchmark with bytes and with classes in turn, each time on a cluster of its own."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from trimaran.service_api.errors import ConfigurationError

from ..statistics.report import Report
from .request import RequestParameters
from .request import run as run_requests


def run(parameters: RequestParameters, *, rounds: int, directory: Path | None = None) -> Report:
    """Measure both, `rounds` times in turn; the medians count.

    Raises:
        ClusterError: it could not be measured, or a request did not run exactly once.
    """
    if rounds < 1:
        raise ConfigurationError(f"rounds={rounds} expected at least 1")
    reports: dict[str, list[Report]] = {"bytes": [], "typed": []}
    for _ in range(rounds):
        for name, found in reports.items():
            own = None if directory is None else directory / f"{name}-{len(found)}"
            found.append(run_requests(replace(parameters, is_typed=name == "typed"), directory=own))
    rates = {name: median(each["requests_per_s"] for each in found) for name, found in reports.items()}
    return {
        "scenario": "typed",
        "bytes_requests_per_s": round(rates["bytes"]),
        "typed_requests_per_s": round(rates["typed"]),
        "typed_percent": round(100 * rates["typed"] / rates["bytes"], 1),
        "bytes_p50_us": median(each["p50_us"] for each in reports["bytes"]),
        "typed_p50_us": median(each["p50_us"] for each in reports["typed"]),
        "rounds": rounds,
        "runs": {name: [each["requests_per_s"] for each in found] for name, found in reports.items()},
        "parameters": asdict(parameters),
        "environment": reports["bytes"][0]["environment"],
    }
