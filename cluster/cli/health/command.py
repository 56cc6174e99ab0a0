"""`quorate health`: ask every member at once, say what is wrong, and end with a status that a script can act on."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cluster.cli.setting_flags import load_members_from_flags, with_member_flags
from cluster.cli.status.report import ask_members, make_report
from cluster.cli.status.view import make_console
from cluster.runtime.system_clock import SystemClock
from cluster.setting_kinds import parse_size_bytes
from service_api import ConfigurationError

from .diagnosis import HealthReport, diagnose


class OutputFormat(StrEnum):
    """How the command prints what it found."""

    TABLE = "table"
    JSON = "json"


@with_member_flags
def health(
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")] = OutputFormat.TABLE,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, metavar="SECONDS", help="How long a member may take to answer.")
    ] = 1.0,
    max_lag: Annotated[
        str, typer.Option("--max-lag", metavar="BYTES", help="How far a member may be behind, such as 16MiB.")
    ] = "16MiB",
    **settings: Any,
) -> None:
    """Tell whether a cluster is well: every member answers, in one term, and none is far behind.

    The members come from flags, QUORATE_* variables and a TOML file, as for `quorate node`.

    Exit status 0: healthy; 2: wrong usage; 3: no member can be reached; 10: unhealthy, such as a member that is down;
    11: members answer, but there is no leader.
    """
    members = load_members_from_flags(settings)
    try:
        lag_limit_bytes = parse_size_bytes(max_lag)
    except ValueError:
        raise ConfigurationError(f"bad size: --max-lag={max_lag!r} expected a size, such as 16MiB") from None
    endpoints = {member.member_id: member.consensus for member in members}
    report = asyncio.run(_ask(endpoints, timeout, lag_limit_bytes))
    if output is OutputFormat.JSON:
        typer.echo(report.model_dump_json(indent=2))
    else:
        show(report, make_console())
    raise typer.Exit(report.exit_status)


def show(report: HealthReport, console: Console) -> None:
    """Print the verdict, and a line for each problem."""
    word = "healthy" if report.is_healthy else "unhealthy"
    verdict = Text(f"{word}: {report.verdict}", style="bold green" if report.is_healthy else "bold red")
    if report.is_healthy:
        console.print(verdict)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("member", justify="right", no_wrap=True)
    table.add_column("problem", no_wrap=True)
    table.add_column("detail", overflow="fold")
    for problem in report.problems:
        member = "-" if problem.member_id is None else str(problem.member_id)
        table.add_row(member, Text(problem.kind.value, style="red"), Text(problem.detail))
    console.print(Group(verdict, "", table))


async def _ask(endpoints: Mapping[int, str], timeout_s: float, lag_limit_bytes: int) -> HealthReport:
    asked_at_ms = SystemClock().epoch_time()
    report = make_report(await ask_members(endpoints, timeout_s), asked_at_ms=asked_at_ms)
    return diagnose(report, lag_limit_bytes=lag_limit_bytes)
