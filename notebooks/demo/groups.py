"""Web requests to a member with two groups: each host's go to the group that owns the host.

Real processes on this machine, one for each group, run the service of `examples/quota_watch.py`. Two thousand requests
from midnight on pass in two seconds.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from examples.access_quota import Request
from trimaran.client import ClientConfig, GroupedClient
from trimaran.cluster.cli.shared.local_nodes import LocalNodes, free_base_ports

from .cluster import SETTINGS
from .morning import data_directory, in_thread
from .traffic import REQUEST_TIMEOUT_S, web_requests

GROUP_COUNT: Final = 2
GROUPED_REQUEST_COUNT: Final = 2_000
LENGTH_S: Final = 2.0
"""How long the requests take, beside starting and stopping."""


def recorded_groups(directory: Path | None = None) -> Path:
    """The directory of a member with two groups; it is recorded first, in about five seconds, if it is not there.

    It lies in `notebooks/data/groups`, unless told otherwise. Delete that to have it made again.

    Raises:
        ClusterError: it could not be made; also TimeoutError, or a group of these.
    """
    directory = directory or data_directory() / "groups"
    if not directory.is_dir():
        in_thread(lambda: asyncio.run(_record(directory)))
    return directory / "node-0"


def grouped_requests() -> Sequence[Request]:
    """The requests that are sent, in the order of time."""
    return web_requests()[:GROUPED_REQUEST_COUNT]


async def _record(directory: Path) -> None:
    """Record into a directory beside, and put it into its place when it is whole."""
    unfinished = directory.with_name(f"{directory.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    (port,) = free_base_ports(1, group_count=GROUP_COUNT)
    nodes = LocalNodes(unfinished, [f"127.0.0.1:{port}"], {**SETTINGS, "groups": str(GROUP_COUNT)})
    try:
        await nodes.start()
        await _send(nodes.endpoints)
        await nodes.stop()
    finally:
        await nodes.close()
    unfinished.rename(directory)


async def _send(endpoints: Sequence[str]) -> None:
    """Send the requests in their rhythm, only faster; every one has its answer at the end."""
    requests = grouped_requests()
    begin_s, end_s = requests[0].time_s, requests[-1].time_s
    config = ClientConfig(
        endpoints=tuple(endpoints),
        connect_timeout_s=REQUEST_TIMEOUT_S,
        credentials=b"web server",
    )
    async with GroupedClient.connect(config=config) as groups, asyncio.TaskGroup() as tasks:
        for index in range(GROUP_COUNT):
            await groups.for_group(index)  # both sessions are open before the clock begins
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        for request in requests:
            due_s = start_s + (request.time_s - begin_s) / max(end_s - begin_s, 1) * LENGTH_S
            await asyncio.sleep(max(due_s - loop.time(), 0))
            tasks.create_task(groups.request(request.host, request.encode(), timeout_s=REQUEST_TIMEOUT_S))
