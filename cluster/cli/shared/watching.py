"""`--watch N`: run a query at an interval and show the newest answer, until Ctrl-C.

In a terminal a table always stays in the same place; in a pipe one follows below the other. JSON is one object a line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel
from rich.console import RenderableType
from rich.live import Live

from ....archive.tool.output import SHARED_PANEL, OutputFormat, ended_by_reader, make_console, print_line

WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch", min=0.1, metavar="SECONDS", help="Ask again at this interval, until Ctrl-C.", show_default=False
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.01,
        metavar="SECONDS",
        help="How long a member may take to answer.",
        rich_help_panel=SHARED_PANEL,
    ),
]

DocumentT = TypeVar("DocumentT", bound=BaseModel)


def watch(
    ask: Callable[[], Awaitable[DocumentT]],
    as_table: Callable[[DocumentT], RenderableType],
    *,
    interval_s: float,
    output: OutputFormat,
) -> None:
    """Ask every `interval_s` and show the answer, until Ctrl-C or until the reader of the pipe has seen enough."""
    with ended_by_reader():
        try:
            asyncio.run(_watch(ask, as_table, interval_s, output))
        except KeyboardInterrupt:
            return


async def _watch(
    ask: Callable[[], Awaitable[DocumentT]],
    as_table: Callable[[DocumentT], RenderableType],
    interval_s: float,
    output: OutputFormat,
) -> None:
    console = make_console()
    if output is not OutputFormat.TABLE:
        await _repeat(ask, interval_s, lambda document: print_line(document.model_dump(mode="json")))
    elif not console.is_terminal:
        await _repeat(ask, interval_s, lambda document: console.print(as_table(document)))
    else:
        with Live(console=console, auto_refresh=False) as live:
            await _repeat(ask, interval_s, lambda document: live.update(as_table(document), refresh=True))


async def _repeat(
    ask: Callable[[], Awaitable[DocumentT]], interval_s: float, show: Callable[[DocumentT], None]
) -> None:
    """Show an answer every `interval_s`; when members take longer to answer, as soon as they have."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        show(await ask())
        await asyncio.sleep(due_s - loop.time())
