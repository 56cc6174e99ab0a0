"""Snapshots: `snapshot` for a service with many orders, in each way that it may write them, one after the other."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from trimaran.service_api.errors import ClusterError, ConfigurationError

from ..machine.environment import describe
from ..options import DirectoryOption, JsonOption, KeepOption
from ..services import ORDERS_SERVICES
from ..statistics.report import Report, write_json
from . import snapshot
from .snapshot import SnapshotParameters

STOP_TARGETS_MS: Final = {"pieces": 2_000.0, "copy": 100.0}
"""How long delivery may stand still with 2,000,000 orders: with the helper, and with the concurrent way."""
LOAD_TARGET_S: Final = 5.0
TARGET_ORDERS: Final = 2_000_000
"""The state that the targets are for."""

_FIGURES: Final = (
    *("delivery_stop_max_ms", "reply_stop_max_ms", "reply_stop_steady_max_ms", "ingress_stop_max_ms"),
    *("loop_stop_max_ms", "snapshot_max_ms", "restart_s", "load_s"),
)


@dataclass(slots=True, frozen=True, kw_only=True)
class SnapshotsParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    orders: int = TARGET_ORDERS
    ways: tuple[str, ...] = tuple(ORDERS_SERVICES)
    runs: int = 3
    """Snapshots of each way, of which the worst counts."""

    def __post_init__(self) -> None:
        if self.orders < 1 or not self.ways:
            raise ConfigurationError(f"orders={self.orders} ways={self.ways} expected at least 1 order and one way")
        self.cases()

    def cases(self) -> dict[str, SnapshotParameters]:
        """What is measured, in its order, by way."""
        return {way: SnapshotParameters(orders=self.orders, way=way, runs=self.runs) for way in self.ways}


def run(parameters: SnapshotsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every way; one that cannot be measured is told with its reason.

    Raises:
        ClusterError: not one way could be measured.
    """
    found: dict[str, Report] = {}
    failures: dict[str, str] = {}
    environment = describe(directory)
    console = Console(stderr=True)
    for way, case in parameters.cases().items():
        console.print(f"{case.orders:,} orders, {way}", highlight=False)
        try:
            report = snapshot.run(case, directory=None if directory is None else directory / way, keep=keep)
            environment["file_system"] = report["environment"]["file_system"]
            found[way] = {name: report[name] for name in _FIGURES}
        except ClusterError as error:
            failures[way] = str(error).splitlines()[0]
    if not found:
        raise ClusterError(f"no way could be measured: {next(iter(failures.values()))}")
    return {
        "scenario": "snapshots",
        "ways": found,
        "failures": failures,
        "parameters": asdict(parameters),
        "environment": environment,
    }


def snapshots(
    orders: Annotated[int, typer.Option(help="Orders that the service holds.")] = TARGET_ORDERS,
    ways: Annotated[str, typer.Option(help="How it writes them, with commas.")] = ",".join(ORDERS_SERVICES),
    runs: Annotated[int, typer.Option(help="Snapshots of each way, of which the worst counts.")] = 3,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    json: JsonOption = None,
) -> None:
    """`snapshot` for a service with many orders, in each way that it may write them."""
    parameters = SnapshotsParameters(orders=orders, ways=tuple(filter(None, ways.split(","))), runs=runs)
    report = run(parameters, directory=directory, keep=keep)
    table = Table("figure", *report["ways"], title=f"snapshots: {orders:,} orders")
    for name in _FIGURES:
        table.add_row(name, *(f"{found[name]:,}" for found in report["ways"].values()))
    console = Console()
    console.print(table)
    for way, reason in report["failures"].items():
        console.print(f"{way} not measured: {reason}", highlight=False)
    if json is not None:
        write_json(report, json)
