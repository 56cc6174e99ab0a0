"""`trimaran health`: ask every member at once, say what is wrong, and end with a status that a script can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from trimaran.archive.tool.output import OutputFormat, OutputOption, new_table, print_object
from trimaran.service_api import ConfigurationError
from trimaran.service_api.quantities import parse_size_bytes

from ...runtime.system_clock import SystemClock
from ..setting_flags import load_members_from_flags, with_member_flags
from ..status.report import ask_members, make_report
from ..watching import TimeoutOption
from .diagnosis import HealthReport, diagnose

WAIT_INTERVAL_S: Final = 0.5
"""Between two questions of `--wait`."""


@with_member_flags
def health(
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    max_lag: Annotated[
        str, typer.Option("--max-lag", metavar="BYTES", help="How far a member may be behind, such as 16MiB.")
    ] = "16MiB",
    wait: Annotated[
        float, typer.Option("--wait", min=0, metavar="SECONDS", help="Ask again for so long, until it is well.")
    ] = 0.0,
    **settings: Any,
) -> None:
    """Tell whether a cluster is well: every member answers, in one term, and none is far behind.

    The members come from flags, TRIMARAN_* variables and a TOML file, as for `trimaran node`.

    Exit status 0: healthy; 2: wrong usage; 3: no member can be reached; 10: unhealthy, such as a member that is down;
    11: members answer, but there is no leader.
    """
    members = load_members_from_flags(settings)
    try:
        lag_limit_bytes = parse_size_bytes(max_lag)
    except ValueError:
        raise ConfigurationError(f"bad size: --max-lag={max_lag!r} expected a size, such as 16MiB") from None
    endpoints = {member.member_id: member.consensus for member in members}
    report = asyncio.run(_ask_until_well(endpoints, timeout, lag_limit_bytes, wait))
    print_object(report.model_dump(mode="json"), output, lambda: as_table(report))
    raise typer.Exit(report.exit_status)


def as_table(report: HealthReport) -> RenderableType:
    """Draw the verdict, and a line for each problem."""
    word = "healthy" if report.is_healthy else "unhealthy"
    verdict = Text(f"{word}: {report.verdict}", style="bold green" if report.is_healthy else "bold red")
    if report.is_healthy:
        return verdict
    table = new_table("member", "problem", "detail", numbers=["member"])
    for problem in report.problems:
        member = "-" if problem.member_id is None else str(problem.member_id)
        table.add_row(member, Text(problem.kind.value, style="red"), Text(problem.detail))
    return Group(verdict, "", table)


async def _ask_until_well(
    endpoints: Mapping[int, str], timeout_s: float, lag_limit_bytes: int, wait_s: float
) -> HealthReport:
    """Ask until the cluster is well, or the time is up; give the last report."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        report = await _ask(endpoints, timeout_s, lag_limit_bytes)
        if report.is_healthy or loop.time() + WAIT_INTERVAL_S > deadline_s:
            return report
        await asyncio.sleep(WAIT_INTERVAL_S)


async def _ask(endpoints: Mapping[int, str], timeout_s: float, lag_limit_bytes: int) -> HealthReport:
    asked_at_ms = SystemClock().epoch_time()
    report = make_report(await ask_members(endpoints, timeout_s), asked_at_ms=asked_at_ms)
    return diagnose(report, lag_limit_bytes=lag_limit_bytes)
