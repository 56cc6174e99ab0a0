"""`trimaran status`: ask every member at once, show what they answer, once or again and again.

Exit status: 0 when there is a leader and a majority answers in its term; when not, the reason is one line on standard
error: 3 no member can be reached, 11 members answer and none leads, 10 a leader without a majority; 2 on wrong usage.
`--watch` goes on until Ctrl-C, which is its proper end: 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from trimaran.archive.tool.output import (
    EXIT_NO_LEADER,
    EXIT_UNHEALTHY,
    EXIT_UNREACHABLE,
    OutputFormat,
    OutputOption,
    fail,
    print_object,
)

from ...runtime.system_clock import SystemClock
from ..setting_flags import load_members_from_flags, with_member_flags
from ..watching import TimeoutOption, WatchOption, watch
from .report import ClusterReport, ask_members, make_report
from .view import as_table


@with_member_flags
def status(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show how every member of a cluster is, also when some are down.

    The members come from flags, TRIMARAN_* variables and a TOML file, as for `trimaran node`.

    With -o json it prints one object; with -o jsonl, or --watch, one in each line.

    Exit status 0: there is a leader, and a majority in its term; 2: wrong usage; 3: no member can be reached;
    10: a leader without a majority; 11: members answer, but there is no leader.
    """
    members = load_members_from_flags(settings)
    endpoints = {member.member_id: member.consensus for member in members}
    if watch_every is not None:
        watch(lambda: _ask(endpoints, timeout), as_table, interval_s=watch_every, output=output)
        return
    report = asyncio.run(_ask(endpoints, timeout))
    print_object(report.model_dump(mode="json"), output, lambda: as_table(report))
    if not report.has_quorum:
        fail(report.verdict, exit_status(report))


def exit_status(report: ClusterReport) -> int:
    """Give the status that says whether a cluster can work."""
    if not report.answered_count:
        return EXIT_UNREACHABLE
    if report.leader_member_id is None:
        return EXIT_NO_LEADER
    return 0 if report.has_quorum else EXIT_UNHEALTHY


async def _ask(endpoints: Mapping[int, str], timeout_s: float) -> ClusterReport:
    asked_at_ms = SystemClock().epoch_time()
    return make_report(await ask_members(endpoints, timeout_s), asked_at_ms=asked_at_ms)
