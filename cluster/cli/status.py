"""`trimaran status`: ask every member at once and show the answers, once or repeatedly.

Exit status: 0 when there is a leader and a majority answers in its term; when not, the reason is one line on standard
error: 3 no member can be reached, 11 members answer and none leads, 10 a leader without a majority; 2 on wrong usage.
`--watch` goes on until Ctrl-C, which is its proper end: 0.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...archive.tool.output import (
    OutputFormat,
    OutputOption,
    fail,
    print_object,
)
from .shared.cluster_report import ClusterReport, ask_cluster, exit_status
from .shared.cluster_table import status_table
from .shared.every_group import of_every_group
from .shared.setting_flags import load_asked_cluster, with_member_flags
from .shared.watching import TimeoutOption, WatchOption, watch


@with_member_flags
@of_every_group
def status(
    output: OutputOption = OutputFormat.TABLE,
    watch_every: WatchOption = None,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the status of every member of a cluster, also when some are down.

    With -o json it prints one object; with -o jsonl, or --watch, one in each line.

    Exit status 0: there is a leader, and a majority in its term; 2: wrong usage; 3: no member can be reached;
    10: a leader without a majority; 11: members answer, but there is no leader.
    """
    cluster = load_asked_cluster(settings)

    async def ask() -> ClusterReport:
        return await ask_cluster(cluster.endpoints, timeout, cluster_id=cluster.cluster_id, network=cluster.network)

    if watch_every is not None:
        watch(ask, status_table, interval_s=watch_every, output=output)
        return
    report = asyncio.run(ask())
    print_object(report.model_dump(mode="json"), output, lambda: status_table(report))
    if not report.has_quorum:
        fail(report.verdict, exit_status(report))
