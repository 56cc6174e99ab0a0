"""What TLS costs: echoes and a catch-up in plain text and with TLS, interleaved, and held against the targets.

Each round runs every measurement twice, on clusters of their own: plain text first in one round, TLS first in the next.
So a noisy minute of the machine is nobody's alone. Medians over the rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Final

import typer

from ..machine.data_directory import data_directory, measurement_directory
from ..machine.environment import describe
from ..options import SyncLevel
from ..statistics.report import Report, print_table, progress_line
from . import catchup, echo
from .catchup import CatchupParameters
from .echo import EchoParameters

PLAIN: Final = "plain text"
TLS: Final = "TLS"
CATCHUP: Final = "catch-up, MB/s"

_DEEP: Final = 1024
_RATE_SHARE_TARGET: Final = 0.70
_ADDED_P50_TARGET_US: Final = 80.0
_CATCHUP_SHARE_TARGET: Final = 0.50


@dataclass(slots=True, frozen=True, kw_only=True)
class EncryptionParameters:
    """Parameters of one run."""

    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with everything in plain text and with TLS.")] = 5
    depths: Annotated[tuple[int, ...], typer.Option(min=1, help="Messages in flight.")] = (1, 64, 1024)
    messages: Annotated[
        int, typer.Option(min=50, help="Messages of an echo at the deepest; 1 in flight: a fiftieth; else a quarter.")
    ] = 200_000
    missed_mib: Annotated[int, typer.Option(min=0, help="MiB that a member catches up on; 0: no catch-up.")] = 256
    file_sync_level: SyncLevel = 1


def run(parameters: EncryptionParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run all rounds; every process that it starts has ended when it returns or raises.

    Raises:
        ClusterError: a measurement failed.
    """
    measurements = _measurements(parameters)
    found: dict[str, dict[str, list[Report]]] = {name: {PLAIN: [], TLS: []} for name in measurements}
    total = 2 * parameters.rounds * len(measurements)
    with data_directory(directory, "encryption", keep=keep) as data_dir, progress_line(total) as progress:
        environment = describe(data_dir)
        done = 0
        for number in range(parameters.rounds):
            for name, measure in measurements.items():
                for kind in (PLAIN, TLS) if number % 2 == 0 else (TLS, PLAIN):
                    progress.describe(f"round {number + 1}/{parameters.rounds}: {name}, {kind}")
                    place = data_dir / f"{done}"
                    with measurement_directory(place, keep=keep):
                        found[name][kind].append(measure(kind == TLS, place))
                    done += 1
                    progress.update(done)
    return {
        "scenario": "encryption",
        "rows": [judged(name, reports) for name, reports in found.items()],
        "parameters": asdict(parameters),
        "environment": environment,
    }


def print_rows(report: Report) -> None:
    """Print a line for each measurement: medians, the least and the most, and what TLS leaves of the rate."""
    print_table("TLS, 3 members", {row["what"]: "; ".join(filter(None, cells(row))) for row in report["rows"]})


def cells(row: dict[str, Any]) -> list[str]:
    """Say what one measurement has found: plain text, TLS, the share, the target."""
    said = []
    for kind in (PLAIN, TLS):
        rates = row["rates"][kind]
        text = f"{kind} {median(rates):,.0f}/s ({min(rates):,.0f} to {max(rates):,.0f})"
        if "p50_us" in row:
            text += f", p50 {row['p50_us'][kind]:,.0f} µs, CPU {row['cpu_us'][kind]:,.2f} µs"
        said.append(text)
    judged = {True: "reached", False: "not reached", None: ""}[row["reached"]]
    return [*said, f"{row['share']:.1%} of the rate", f"{row['target']}: {judged}" if row["target"] else ""]


def _measurements(parameters: EncryptionParameters) -> dict[str, Callable[[bool, Path], Report]]:
    """Return what is measured, by name: takes whether to encrypt, and a directory."""
    made: dict[str, Callable[[bool, Path], Report]] = {}
    for depth in parameters.depths:
        share = 50 if depth == 1 else 1 if depth >= _DEEP else 4
        made[f"echo, {depth:,} in flight"] = _echo(depth, parameters.messages // share, parameters.file_sync_level)
    if parameters.missed_mib:
        made[CATCHUP] = _catchup(parameters.missed_mib, parameters.file_sync_level)
    return made


def _echo(depth: int, messages: int, level: int) -> Callable[[bool, Path], Report]:
    def measure(tls: bool, place: Path) -> Report:
        given = EchoParameters(
            inflight=depth, messages=max(messages, depth), warmup=messages // 10, file_sync_level=level, tls=tls
        )
        return echo.run(given, directory=place)

    return measure


def _catchup(missed_mib: int, level: int) -> Callable[[bool, Path], Report]:
    def measure(tls: bool, place: Path) -> Report:
        # Little is offered meanwhile: what is measured is the copy.
        given = CatchupParameters(missed_mib=missed_mib, rate=1_000.0, seconds=2.0, file_sync_level=level, tls=tls)
        return catchup.run(given, directory=place)

    return measure


def judged(name: str, reports: dict[str, list[Report]]) -> dict[str, Any]:
    """Put the rounds of one measurement together, and hold them against its target."""
    is_copy = name == CATCHUP
    rate = "megabytes_per_s" if is_copy else "throughput_msgs_per_s"
    rates = {kind: [float(report[rate]) for report in reports[kind]] for kind in (PLAIN, TLS)}
    share = median(rates[TLS]) / median(rates[PLAIN])
    row: dict[str, Any] = {"what": name, "rates": rates, "share": round(share, 3)}
    if is_copy:
        return row | _judged(f"at least {_CATCHUP_SHARE_TARGET:.0%} of the rate", share >= _CATCHUP_SHARE_TARGET)
    row["p50_us"] = {kind: median(float(report["p50_us"]) for report in reports[kind]) for kind in (PLAIN, TLS)}
    row["cpu_us"] = {
        kind: round(median(10 * sum(report["cpu_seconds_per_100k"].values()) for report in reports[kind]), 2)
        for kind in (PLAIN, TLS)
    }
    if name == f"echo, {_DEEP:,} in flight":
        return row | _judged(f"at least {_RATE_SHARE_TARGET:.0%} of the rate", share >= _RATE_SHARE_TARGET)
    if name == "echo, 1 in flight":
        added_us = row["p50_us"][TLS] - row["p50_us"][PLAIN]
        return row | _judged(f"at most {_ADDED_P50_TARGET_US:g} µs more at p50", added_us <= _ADDED_P50_TARGET_US)
    return row | _judged("", None)


def _judged(target: str, reached: bool | None) -> dict[str, Any]:
    return {"target": target, "reached": reached}
