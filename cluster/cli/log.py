"""`trimaran log`: the log of a running cluster: its last entries, and what operators do about entries of it.

`trimaran archive` reads the log in a directory, with the same rows. `log tail` shows only what is committed, from
whichever member serves it.

Exit status of `tail`: 0 read up to the end; 2 wrong usage, or the position cannot be had; 3 no member serves the log;
12 the caller may not read it.
"""

from __future__ import annotations

import contextlib
from random import SystemRandom
from typing import Any, Final

from ...archive.tool.commands.rows import HEADING, as_line
from ...archive.tool.commands.tail import BeginOption, CountOption, FollowOption, refuse_to_follow_as_json
from ...archive.tool.output import OutputFormat, OutputOption, new_group, print_stream
from ...service_api.cluster_id import format_cluster_id
from ..subscriptions.log_source import LogSource, ServedBy
from .archive import VOCABULARY
from .operate.log_skip import skip
from .operate.log_trust import trust
from .shared.cluster_log import ServedByOption, tail_rows
from .shared.every_group import of_every_group
from .shared.setting_flags import (
    load_cluster_id_from_flags,
    load_consensus_endpoints,
    load_network_from_flags,
    with_member_flags,
)
from .shared.watching import TimeoutOption

app: Final = new_group("Show the log of a running cluster; skip or trust entries of it.")
app.command(epilog="Example: trimaran log trust --member 2 --confirm --config trimaran-data/cluster.toml")(trust)
app.command(epilog="Example: trimaran log skip --log-position 8352 --confirm --config trimaran-data/cluster.toml")(skip)


@app.command(epilog="Example: trimaran log tail -f --config trimaran-data/cluster.toml")
@with_member_flags
@of_every_group
def tail(
    count: CountOption = 10,
    begin: BeginOption = None,
    follow: FollowOption = False,
    served_by: ServedByOption = ServedBy.LEADER,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the last committed entries of a cluster, or those from a position on; with -f also new ones as they come.

    Any member serves them, the leader first. `trimaran archive tail DIR` shows the end of the log in a directory.
    """
    refuse_to_follow_as_json(output, follow=follow)
    source = LogSource(
        [*load_consensus_endpoints(settings).values()],
        served_by=served_by,
        network=load_network_from_flags(settings),
        cluster_id=format_cluster_id(load_cluster_id_from_flags(settings)) or "",
        timeout_s=timeout,
        random=SystemRandom().random,
    )
    rows = tail_rows(source, VOCABULARY, count, begin=begin, is_followed=follow, timeout_s=timeout)
    with contextlib.suppress(KeyboardInterrupt):  # the proper end of following
        print_stream(rows, output, heading=HEADING, as_line=as_line)
