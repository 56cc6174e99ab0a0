"""Typed: echoes, requests with bytes, with classes and with double execution in turn: the cost of each layer.

Requests with bytes and with classes in batches, too, where several are in flight. Each measurement has a cluster of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import Payload, Rounds, SyncLevel
from ..statistics.report import Report, print_table, progress_line
from . import echo, request

ECHO: Final = "echo"
BYTES: Final = "bytes"
BATCH: Final = 256
_DEEP: Final = 1024

_CASES: Final[dict[str, Mapping[str, Any]]] = {
    BYTES: {},
    "typed": {"is_typed": True},
    "doubled": {"is_typed": True, "node_settings": {"double_execution": "true"}},
    "bytes_many": {"batch": BATCH},
    "typed_many": {"is_typed": True, "batch": BATCH},
}
"""The cases measured beside echoes, each with its own parameters."""


@dataclass(slots=True, frozen=True, kw_only=True)
class TypedParameters:
    """Parameters of one run."""

    depths: Annotated[
        tuple[int, ...],
        typer.Option(min=1, help="Requests in flight, of callers that each make one call after another."),
    ] = (1024, 64, 1)
    payload: Payload = 32
    requests: Annotated[
        int, typer.Option(min=1, help="Requests of a run at the deepest; 1 in flight: a fortieth; else a half.")
    ] = 200_000
    rounds: Rounds = 3
    file_sync_level: SyncLevel = 1

    def count(self, depth: int) -> int:
        """Return how many requests are measured with so many in flight."""
        return max(depth, self.requests // (40 if depth == 1 else 1 if depth >= _DEEP else 2))


def run(parameters: TypedParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every case in each round, in turn; the medians count.

    Raises:
        ClusterError: it could not be measured, or a request did not run exactly once.
    """
    cases = {depth: [ECHO, *(case for case in _CASES if _fits(case, depth))] for depth in parameters.depths}
    found: dict[int, dict[str, list[Report]]] = {depth: {case: [] for case in cases[depth]} for depth in cases}
    total = parameters.rounds * sum(map(len, cases.values()))
    done = 0
    with data_directory(directory, "typed", keep=keep) as data_dir, progress_line(total) as progress:
        environment = describe(data_dir)
        for number in range(parameters.rounds):
            for depth, names in cases.items():
                for case in names:
                    progress.describe(f"round {number + 1}/{parameters.rounds}: {case}, {depth:,} in flight")
                    with measurement_directory(data_dir / f"{done}", keep=keep) as place:
                        found[depth][case].append(_measure(parameters, case, depth, place / "cluster"))
                    done += 1
                    progress.update(done)
    return {
        "scenario": "typed",
        "depths": {str(depth): _row(reports) for depth, reports in found.items()},
        "rounds": parameters.rounds,
        "parameters": asdict(parameters),
        "environment": environment,
    }


def print_cases(report: Report) -> None:
    """Print a line for each measurement: its rate, and the share of that of echoes and of requests with bytes."""
    for depth, row in report["depths"].items():
        of_echo, of_bytes = row["percent_of_echo"], row["percent_of_bytes"]
        lines = {
            case: f"{rate:,}/s, {of_echo[case]:g} % of echo, {of_bytes[case]:g} % of bytes"
            for case, rate in row["requests_per_s"].items()
        }
        if "percent_of_bytes_many" in row:
            lines["typed_many beside bytes_many"] = f"{row['percent_of_bytes_many']:g} %"
        print_table(f"{int(depth):,} in flight", lines)


def _fits(case: str, depth: int) -> bool:
    """Return True if a case differs from its sibling: a batch of one request does not."""
    return depth > 1 or "batch" not in _CASES[case]


def _measure(parameters: TypedParameters, case: str, depth: int, directory: Path) -> Report:
    count = parameters.count(depth)
    shared: dict[str, Any] = {
        "inflight": depth,
        "payload": parameters.payload,
        "warmup": min(20_000, count),
        "file_sync_level": parameters.file_sync_level,
    }
    if case == ECHO:
        return echo.run(echo.EchoParameters(messages=count, **shared), directory=directory)
    given = request.RequestParameters(requests=count, **shared, **_CASES[case])
    return request.run(given, directory=directory)


def _rate(report: Report) -> float:
    return float(report["throughput_msgs_per_s"] if report["scenario"] == ECHO else report["requests_per_s"])


def _row(reports: Mapping[str, list[Report]]) -> dict[str, Any]:
    """Put the rounds with one number in flight together."""
    runs = {case: [_rate(each) for each in found] for case, found in reports.items()}
    rates = {case: median(each) for case, each in runs.items()}
    row = {
        "requests_per_s": {case: round(rate) for case, rate in rates.items()},
        "percent_of_echo": {case: round(100 * rate / rates[ECHO], 1) for case, rate in rates.items()},
        "percent_of_bytes": {case: round(100 * rate / rates[BYTES], 1) for case, rate in rates.items()},
        "p50_us": {case: median(each["p50_us"] for each in found) for case, found in reports.items()},
        "runs": runs,
    }
    if "typed_many" in rates:
        row["percent_of_bytes_many"] = round(100 * rates["typed_many"] / rates["bytes_many"], 1)
    return row
