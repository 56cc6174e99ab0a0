"""Openings: `opening` for several numbers of sessions, on connections of their own and shared, with and without a
password, one after the other. A case that cannot be measured is told with its reason, and the others go on.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table

from trimaran.service_api.errors import ClusterError, ConfigurationError

from ..machine.environment import describe
from ..options import DirectoryOption, JsonOption, KeepOption
from ..statistics.report import Report, progress_line, write_json
from . import opening
from .opening import OpeningParameters

OPENING_TARGETS_S: Final = {10_000: {False: 5.0, True: 30.0}}
"""By sessions and whether the cluster asks for a password: how long they may take to open."""
FAILOVER_P50_TARGETS_MS: Final = {1_000: 500.0}
FAILOVER_MAX_TARGETS_MS: Final = {10_000: 3_000.0}
"""By sessions: how long they may wait for an answer after the leader was killed."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OpeningsParameters:
    """What one run does.

    Raises:
        ConfigurationError: values that make no run.
    """

    sessions: tuple[int, ...] = (1_000, 10_000)
    rounds: int = 1
    """Of each figure the median counts."""
    rest_s: float = 5.0
    case_limit_s: float = 240.0

    def __post_init__(self) -> None:
        if not self.sessions or min(self.sessions) < 1:
            raise ConfigurationError(f"sessions={self.sessions} expected numbers of at least 1")
        if self.rounds < 1 or self.case_limit_s <= 0:
            raise ConfigurationError(
                f"rounds={self.rounds} case_limit_s={self.case_limit_s:g} expected at least 1 and more than 0"
            )

    def cases(self) -> list[OpeningParameters]:
        """What is measured, in its order."""
        return [
            OpeningParameters(
                sessions=sessions, share=share, password=password, rest_s=self.rest_s, time_limit_s=self.case_limit_s
            )
            for sessions, share, password in product(self.sessions, (False, True), (False, True))
        ]


def run(parameters: OpeningsParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Measure every case; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: not one case could be measured.
    """
    cases = parameters.cases()
    found: dict[int, list[Report]] = {index: [] for index in range(len(cases))}
    failures: dict[int, str] = {}
    environment = describe(directory)
    with progress_line(parameters.rounds * len(cases)) as progress:
        for number in range(parameters.rounds):
            for index, case in enumerate(cases):
                progress.describe(_name(case))
                try:
                    place = None if directory is None else directory / f"round-{number}-case-{index}"
                    found[index].append(opening.run(case, directory=place, keep=keep))
                except ClusterError as error:
                    failures[index] = str(error).splitlines()[0]
                progress.update(number * len(cases) + index + 1)
    measured = [_medians(cases[index], reports) for index, reports in found.items() if reports]
    if not measured:
        raise ClusterError(f"no case could be measured: {next(iter(failures.values()))}")
    file_systems = {report["environment"]["file_system"] for reports in found.values() for report in reports}
    return {
        "scenario": "openings",
        "cases": measured,
        "failures": [{**_key(cases[index]), "reason": reason} for index, reason in failures.items()],
        "parameters": asdict(parameters),
        "environment": {**environment, "file_system": ", ".join(sorted(file_systems))},
    }


def _key(case: OpeningParameters) -> dict[str, object]:
    return {"sessions": case.sessions, "share": case.share, "password": case.password}


def _name(case: OpeningParameters) -> str:
    connections = "shared connections" if case.share else "connections of their own"
    return f"{case.sessions:,} sessions, {connections}" + (", password" if case.password else "")


def _medians(case: OpeningParameters, reports: list[Report]) -> Report:
    """Give each figure of a case as the median of its rounds, and of some figures all rounds, growing."""
    figures = {
        part: {name: round(median(report[part][name] for report in reports), 2) for name in reports[0][part]}
        for part in ("opening", "a second at rest", "failover")
    }
    loads = [report["environment"]["load_average_before"][0] for report in reports]
    spreads = {
        f"{part} {name}": sorted(report[part][name] for report in reports)
        for part, name in (("opening", "s"), ("failover", "p50_ms"), ("failover", "p99_ms"), ("failover", "max_ms"))
    }
    return {
        **_key(case),
        "rounds": len(reports),
        "load_average_before": max(loads),
        **figures,
        "rounds_of": spreads,
    }


def openings(
    sessions: Annotated[str, typer.Option(help="Numbers of sessions, with commas.")] = "1000,10000",
    rounds: Annotated[int, typer.Option(help="Rounds; of each figure the median counts.")] = 1,
    rest: Annotated[float, typer.Option(help="Seconds at rest, between opening and the leader's death.")] = 5.0,
    directory: DirectoryOption = None,
    keep: KeepOption = False,
    case_limit: Annotated[float, typer.Option(help="Seconds after which a case is given up.")] = 240.0,
    json: JsonOption = None,
) -> None:
    """`opening` for several numbers of sessions, with own and shared connections, without and with a password."""
    try:
        numbers = tuple(int(part) for part in sessions.split(","))
    except ValueError:
        raise ConfigurationError(f"sessions={sessions!r} expected numbers with commas, such as 1000,10000") from None
    parameters = OpeningsParameters(sessions=numbers, rounds=rounds, rest_s=rest, case_limit_s=case_limit)
    report = run(parameters, directory=directory, keep=keep)
    _print(report)
    if json is not None:
        write_json(report, json)


def _print(report: Report) -> None:
    table = Table("sessions", "open s", "leader µs", "p50 ms", "p99 ms", "max ms", title="openings: 3 members")
    for case in report["cases"]:
        opened, failed_over = case["opening"], case["failover"]
        table.add_row(
            _name(OpeningParameters(**{name: case[name] for name in ("sessions", "share", "password")})),
            f"{opened['s']:g}",
            f"{opened['leader_us']:g}",
            *(f"{failed_over[name]:g}" for name in ("p50_ms", "p99_ms", "max_ms")),
        )
    console = Console()
    console.print(table)
    for failure in report["failures"]:
        console.print(f"{failure['sessions']:,} sessions not measured: {failure['reason']}", highlight=False)
