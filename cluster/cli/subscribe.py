"""`trimaran subscribe`: hand out the committed entries of the log, from a position on, to a program.

An entry is one JSON object on one line, printed or, with `--to`, posted; `typed` has the message of a typed service.
With `--position-file` the command goes on where it ended. `--to redis://...` adds entries to a stream, which has the
position itself.

Exit status: 0 ended by --limit, Ctrl-C or the reader; 2 wrong usage, or the position cannot be had; 3 no member serves
the log; 12 the caller may not read it, or the receiver of --to refuses an entry or has lost some.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ...archive.tool.output import (
    EXIT_REFUSED,
    EXIT_USAGE,
    ended_by_reader,
    fail,
    print_line,
)
from ...service_api.cluster_id import format_cluster_id
from ..subscriptions.entries import EntryKind, LogEntry
from ..subscriptions.log_source import ServedBy, Start
from ..subscriptions.position_store import FilePositionStore
from ..subscriptions.pump import Sink, pump
from ..subscriptions.redis_stream import RedisRefusedError, RedisStreamBehindError, RedisStreamSink
from ..subscriptions.rows import as_row
from ..subscriptions.subscription import Subscription, subscribe
from ..subscriptions.webhook import WebhookRefusedError, WebhookSink
from .shared.cluster_log import ServedByOption, subscription_errors_as_exits
from .shared.setting_flags import (
    load_cluster_id_from_flags,
    load_consensus_endpoints,
    load_network_from_flags,
    with_client_flags,
)
from .shared.watching import TimeoutOption

FromOption = Annotated[
    str,
    typer.Option("--from", metavar="POSITION", help="Begin at this position: a number, `earliest` or `latest`."),
]
KindOption = Annotated[
    list[EntryKind] | None,
    typer.Option("--kind", metavar="KIND", help="Only entries of this kind: request, ..."),
]
SessionsOption = Annotated[
    list[int] | None, typer.Option("--session", metavar="ID", help="Only entries of this session.")
]
TopicOption = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Only events of this topic.")]
TemplateOption = Annotated[
    list[int] | None,
    typer.Option("--template", metavar="ID", help="Only entries whose payload has this SBE template."),
]
PositionFileOption = Annotated[
    Path | None,
    typer.Option("--position-file", metavar="FILE", help="Keep the position here, and begin there if it exists."),
]
EndOption = Annotated[int | None, typer.Option("-n", "--limit", min=1, help="End after this many entries.")]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="URL",
        help="Deliver entries instead of printing them: post JSON lines to http(s)://..., "
        "or add to the stream of redis(s)://HOST:PORT/0?stream=NAME.",
    ),
]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0.1, metavar="SECONDS", help="How long to wait for a member that serves.")
]


@with_client_flags
def hand_out_entries(
    from_position: FromOption = Start.EARLIEST.value,
    kind: KindOption = None,
    session: SessionsOption = None,
    topic: TopicOption = None,
    template: TemplateOption = None,
    served_by: ServedByOption = ServedBy.FOLLOWER,
    position_file: PositionFileOption = None,
    to: ToOption = None,
    limit: EndOption = None,
    timeout: TimeoutOption = 5.0,
    wait: WaitOption = 30.0,
    **settings: Any,
) -> None:
    """Print the committed entries of the cluster's log as JSON lines, as they are committed, until Ctrl-C.

    Each entry comes once, in order, also when members die or the leader changes.
    """
    if to is not None and _is_redis(to) and position_file is not None:
        fail("--position-file is not for --to redis://...: the stream has the position", EXIT_USAGE)
    store = None if position_file is None else FilePositionStore(position_file)
    stored = None if store is None else store.load()
    start = _read_position(from_position)
    cluster_id = load_cluster_id_from_flags(settings)

    def subscribe_from(position: int | None) -> Subscription:
        return subscribe(
            [*load_consensus_endpoints(settings).values()],
            from_position=start if position is None else position,
            kinds=kind or (),
            cluster_session_ids=session or (),
            topics=topic or (),
            template_ids=template or (),
            typed=True,
            served_by=served_by,
            reconnect_timeout_s=wait,
            timeout_s=timeout,
            cluster_id=format_cluster_id(cluster_id) or "",
            network=load_network_from_flags(settings),
        )

    try:
        with subscription_errors_as_exits(), ended_by_reader(), contextlib.suppress(KeyboardInterrupt):
            asyncio.run(_run(subscribe_from, to, store, stored, limit))
    except (WebhookRefusedError, RedisRefusedError, RedisStreamBehindError) as error:
        fail(str(error), EXIT_REFUSED)


class Printer:
    """Prints entries, each as a JSON object on its own line."""

    async def deliver(self, entries: Sequence[LogEntry]) -> None:
        """Print entries; each is out when this returns."""
        for entry in entries:
            print_line(as_row(entry))


async def _run(
    subscribe_from: Callable[[int | None], Subscription],
    url: str | None,
    store: FilePositionStore | None,
    position: int | None,
    limit: int | None,
) -> None:
    async with AsyncExitStack() as resources:
        sink: Sink = Printer()
        if url is not None and _is_redis(url):
            stream = await resources.enter_async_context(RedisStreamSink(url))
            sink, position = stream, await stream.load_position()
        elif url is not None:
            sink = await resources.enter_async_context(WebhookSink(url))
        entries = await resources.enter_async_context(subscribe_from(position))
        await pump(entries, sink, store, entry_limit=limit)


def _is_redis(url: str) -> bool:
    return url.startswith(("redis://", "rediss://"))


def _read_position(text: str) -> int | Start:
    if text in [*Start]:
        return Start(text)
    if not text.isdecimal():
        fail(f"--from {text} expected a number of bytes, earliest or latest", EXIT_USAGE)
    return int(text)
