"""`quorate status`: ask every member at once, show what they answer, once or again and again.

Exit status: 0 when there is a leader and a majority answers in its term, 1 when not (the reason is one line on standard
error), 2 on wrong usage. `--watch` goes on until Ctrl-C, which is its proper end: 0.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.live import Live

from cluster.cli.app import EXIT_FAILED
from cluster.cli.setting_flags import load_members_from_flags, with_member_flags
from cluster.runtime.system_clock import SystemClock

from .report import ClusterReport, ask_members, make_report
from .view import as_json, as_table, make_console


class OutputFormat(StrEnum):
    """How the command prints what the members answered."""

    TABLE = "table"
    JSON = "json"


@with_member_flags
def status(
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")] = OutputFormat.TABLE,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", min=0.1, metavar="SECONDS", help="Ask again so often, until Ctrl-C.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.01, metavar="SECONDS", help="How long a member may take to answer.")
    ] = 1.0,
    **settings: Any,
) -> None:
    """Show how every member of a cluster is, also when some are down.

    The members come from flags, QUORATE_* variables and a TOML file, as for `quorate node`.

    With -o json it prints one object; with --watch, too, one in each line.

    Exit status 0: there is a leader, and a majority in its term; 1: there is not; 2: wrong usage.
    """
    members = load_members_from_flags(settings)
    endpoints = {member.member_id: member.consensus for member in members}
    if watch is None:
        report = asyncio.run(_ask(endpoints, timeout))
        _printer(output, indent=2)(report)
        if not report.has_quorum:
            typer.echo(f"quorate: {report.verdict}", err=True)
            raise typer.Exit(EXIT_FAILED)
        return
    try:
        asyncio.run(_watch(endpoints, timeout, output, watch))
    except KeyboardInterrupt:
        return
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`| head`).
        sys.stderr.close()
        raise typer.Exit from None


async def _ask(endpoints: Mapping[int, str], timeout_s: float) -> ClusterReport:
    asked_at_ms = SystemClock().epoch_time()
    return make_report(await ask_members(endpoints, timeout_s), asked_at_ms=asked_at_ms)


async def _watch(endpoints: Mapping[int, str], timeout_s: float, output: OutputFormat, interval_s: float) -> None:
    """Ask and show until cancelled: in a terminal always in the same place, otherwise one below the other."""
    console = make_console()
    if output is OutputFormat.JSON or not console.is_terminal:
        await _repeat(endpoints, timeout_s, interval_s, _printer(output, indent=None))
        return
    with Live(console=console, auto_refresh=False) as live:
        await _repeat(endpoints, timeout_s, interval_s, lambda report: live.update(as_table(report), refresh=True))


async def _repeat(
    endpoints: Mapping[int, str], timeout_s: float, interval_s: float, show: Callable[[ClusterReport], None]
) -> None:
    """Show a report every `interval_s`; when members take longer to answer, as soon as they have."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        show(await _ask(endpoints, timeout_s))
        await asyncio.sleep(due_s - loop.time())


def _printer(output: OutputFormat, *, indent: int | None) -> Callable[[ClusterReport], None]:
    if output is OutputFormat.JSON:
        return lambda report: typer.echo(as_json(report, indent=indent))
    console = make_console()
    return lambda report: console.print(as_table(report))
