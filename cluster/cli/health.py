"""`trimaran health`: ask every member at once, say what is wrong, and end with a status that a script can act on.

`trimaran status` asks whether a cluster can work. This command asks whether it is as it should be: a cluster of three
with one member down still works, and is not healthy, because with another one down it stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import typer
from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.text import Text

from ...archive.tool.output import (
    EXIT_OK,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    new_table,
    print_object,
)
from ...service_api.documents.member_status import find_leader
from ...service_api.member_id import MEMBER_ID_MAX
from ..documents.health import ClusterView, Problem, describe_upgrade, judge_cluster
from ..documents.query import Outcome
from ..settings.health_limits import HealthLimits
from .shared.cluster_report import ClusterReport, ask_cluster, exit_status, is_voter
from .shared.every_group import of_every_group
from .shared.setting_flags import load_asked_cluster, load_health_limits_from_flags, with_health_flags
from .shared.watching import TimeoutOption

HEALTH_SCHEMA_VERSION: Final = 1
WAIT_INTERVAL_S: Final = 0.5
"""Between two questions of `--wait`."""


class HealthReport(BaseModel):
    """What `trimaran health -o json` prints: one object, always with all of these keys."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_version: int = HEALTH_SCHEMA_VERSION
    cluster_id: str | None
    """The cluster that was reached; None if it is not known, or members answered as those of several."""
    group: str
    """Which of the cluster's groups answered, as `index/count`; empty: none did, or the cluster has no groups."""
    asked_at_ms: int
    is_healthy: bool
    exit_status: int
    """0 healthy, 3 no member can be reached, 10 unhealthy, 11 no leader."""
    verdict: str
    """The state of the cluster as one line for people."""
    upgrade: str | None
    """Which members run which code, while an upgrade is in progress; None otherwise. It is no problem."""
    problems: list[Problem]


@with_health_flags
@of_every_group
def health(
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="SECONDS", help="Wait up to this long until the cluster is healthy."),
    ] = 0.0,
    member: Annotated[
        int | None,
        typer.Option(
            "--member",
            min=0,
            max=MEMBER_ID_MAX,
            metavar="ID",
            help="Look for problems of this member alone: for its watchdog.",
        ),
    ] = None,
    **settings: Any,
) -> None:
    """Check whether a cluster is healthy, and say what to do about each problem.

    Every member answers, all are in one term, none is far behind or stands still, snapshots are made, and disks have
    room. The limits are settings. Members with different code are healthy while an upgrade is in progress, and a line
    says so.

    Exit status 0: healthy; 2: wrong usage; 3: no member can be reached; 10: unhealthy, such as a member that is down;
    11: members answer, but there is no leader. With --member, 10 is for problems of that member, and neither another
    member that is down nor a cluster without a leader is one.
    """
    cluster, limits = load_asked_cluster(settings), load_health_limits_from_flags(settings)
    cluster.only(member)

    async def ask() -> HealthReport:
        endpoints, cluster_id, network = cluster
        return diagnose(await ask_cluster(endpoints, timeout, cluster_id=cluster_id, network=network), limits, member)

    report = asyncio.run(_ask_until_well(ask, wait))
    print_object(report.model_dump(mode="json"), output, lambda: health_table(report))
    raise typer.Exit(report.exit_status)


def health_table(report: HealthReport) -> RenderableType:
    """Draw the verdict, an upgrade that is in progress, and a line for each problem."""
    word = "healthy" if report.is_healthy else "unhealthy"
    lines: list[RenderableType] = [
        Text(f"{word}: {report.verdict}", style="bold green" if report.is_healthy else "bold red")
    ]
    if report.upgrade is not None:
        lines.append(Text(report.upgrade, style="yellow"))
    if report.is_healthy:
        return Group(*lines)
    table = new_table("member", "problem", "detail, and what to do", numbers=["member"])
    for problem in report.problems:
        member = "-" if problem.member_id is None else str(problem.member_id)
        advice = (f"\n{problem.advice}", "dim")
        table.add_row(member, Text(problem.kind.value, style="red"), Text.assemble(problem.detail, advice))
    return Group(*lines, "", table)


async def _ask_until_well(ask: Callable[[], Awaitable[HealthReport]], wait_s: float) -> HealthReport:
    """Ask until the cluster is well, or the time is up; give the last report."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    while True:
        report = await ask()
        if report.is_healthy or loop.time() + WAIT_INTERVAL_S > deadline_s:
            return report
        await asyncio.sleep(WAIT_INTERVAL_S)


def diagnose(report: ClusterReport, limits: HealthLimits, member_id: int | None = None) -> HealthReport:
    """Find what is wrong in what the members answered: with the cluster, or with one of its members."""
    view = ClusterView(
        statuses={
            member.member_id: member.status or f"{member.outcome.value}: {member.detail or member.endpoint}"
            for member in report.members
            if member.kind is not None or member.outcome is Outcome.OTHER_CLUSTER
        },
        voter_ids=frozenset(m.member_id for m in report.members if is_voter(m.kind)),
        leader=find_leader(member.status for member in report.members if member.status is not None),
        strangers=frozenset(m.member_id for m in report.members if m.outcome is Outcome.OTHER_CLUSTER),
        has_quorum=report.has_quorum,
        verdict=report.verdict,
    )
    problems = judge_cluster(view, limits)
    status = exit_status(report)
    if member_id is not None:
        problems = [problem for problem in problems if problem.member_id == member_id]
        status = EXIT_OK
    return HealthReport(
        cluster_id=report.cluster_id,
        group=report.group,
        asked_at_ms=report.asked_at_ms,
        is_healthy=not problems,
        exit_status=status or (EXIT_UNHEALTHY if problems else EXIT_OK),
        verdict=report.verdict,
        upgrade=describe_upgrade(view, limits),
        problems=problems,
    )
