"""Typed: requests with bytes, with classes and with double execution in turn, each time on a cluster of its own.

Bytes and classes in batches, too.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from ..options import Payload, Rounds, SyncLevel
from ..statistics.report import Report
from .request import RequestParameters
from .request import run as run_requests

_BATCH: Final = 256

_CASES: Final[dict[str, dict[str, Any]]] = {
    "bytes": {},
    "typed": {"is_typed": True},
    "doubled": {"is_typed": True, "node_settings": {"double_execution": "true"}},
    "bytes_many": {"batch": _BATCH},
    "typed_many": {"is_typed": True, "batch": _BATCH},
}
"""What is measured, and what each has beside the parameters."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TypedParameters:
    """Parameters of one run."""

    inflight: Annotated[
        int, typer.Option(min=1, help="Requests in flight, of callers that each make one call after another.")
    ] = 1024
    payload: Payload = 32
    requests: Annotated[int, typer.Option(min=1, help="Requests of each run.")] = 200_000
    rounds: Rounds = 3
    file_sync_level: SyncLevel = 1


def run(parameters: TypedParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every case in each round, in turn; the medians count.

    Raises:
        ClusterError: it could not be measured, or a request did not run exactly once.
    """
    reports: dict[str, list[Report]] = {name: [] for name in _CASES}
    for _ in range(parameters.rounds):
        for name, found in reports.items():
            told = RequestParameters(
                inflight=parameters.inflight,
                payload=parameters.payload,
                requests=parameters.requests,
                file_sync_level=parameters.file_sync_level,
                **_CASES[name],
            )
            place = None if directory is None else directory / f"{name}-{len(found)}"
            found.append(run_requests(told, directory=place, keep=keep))
    rates = {name: median(each["requests_per_s"] for each in found) for name, found in reports.items()}
    return {
        "scenario": "typed",
        "requests_per_s": {name: round(rate) for name, rate in rates.items()},
        "percent_of_bytes": {name: round(100 * rate / rates["bytes"], 1) for name, rate in rates.items()},
        "percent_of_bytes_many": round(100 * rates["typed_many"] / rates["bytes_many"], 1),
        "p50_us": {name: median(each["p50_us"] for each in found) for name, found in reports.items()},
        "rounds": parameters.rounds,
        "runs": {name: [each["requests_per_s"] for each in found] for name, found in reports.items()},
        "parameters": asdict(parameters),
        "environment": reports["bytes"][0]["environment"],
    }
