"""`--watch N`: run a query at an interval and show the newest answer, until Ctrl-C or q.

In a terminal a table always stays in the same place; in a pipe one follows below the other. JSON is one object a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel
from rich.console import RenderableType
from rich.live import Live

from ....archive.tool.output import SHARED_PANEL, OutputFormat, ended_by_reader, make_console, print_line
from ....service_api.operating_system import optional_module

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
    has_screen: bool = False,
) -> None:
    """Ask every `interval_s` and show the answer, until Ctrl-C or q, or the reader of the pipe has seen enough.

    With `has_screen` a table has the whole screen of a terminal, and what was there comes back at the end.
    """
    with ended_by_reader():
        try:
            asyncio.run(_watch(ask, as_table, interval_s, output, has_screen))
        except KeyboardInterrupt:
            return


async def _watch(
    ask: Callable[[], Awaitable[DocumentT]],
    as_table: Callable[[DocumentT], RenderableType],
    interval_s: float,
    output: OutputFormat,
    has_screen: bool,
) -> None:
    console, end = make_console(), asyncio.Event()
    if output is not OutputFormat.TABLE:
        await _repeat(ask, interval_s, lambda document: print_line(document.model_dump(mode="json")), end)
    elif not console.is_terminal:
        await _repeat(ask, interval_s, lambda document: console.print(as_table(document)), end)
    else:
        with (
            ended_by_key(sys.stdin.fileno(), end),
            Live(console=console, auto_refresh=False, screen=has_screen) as live,
        ):
            await _repeat(ask, interval_s, lambda document: live.update(as_table(document), refresh=True), end)


async def _repeat(
    ask: Callable[[], Awaitable[DocumentT]],
    interval_s: float,
    show: Callable[[DocumentT], None],
    end: asyncio.Event,
) -> None:
    """Show an answer every `interval_s` until the end; when members take longer to answer, as soon as they have."""
    loop = asyncio.get_running_loop()
    while not end.is_set():
        due_s = loop.time() + interval_s
        show(await ask())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due_s - loop.time())):
                await end.wait()


@contextlib.contextmanager
def ended_by_key(descriptor: int, end: asyncio.Event) -> Iterator[None]:
    """Set `end` when somebody types q at a terminal; any other descriptor is left alone, and so is one of Windows.

    Keys are read one by one and not shown meanwhile; Ctrl-C stays what it is.
    """
    termios, tty = optional_module("termios"), optional_module("tty")
    if not os.isatty(descriptor) or termios is None or tty is None:
        yield
        return
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(descriptor)

    def on_keys() -> None:
        keys = os.read(descriptor, 1024)
        if b"q" in keys or b"Q" in keys or not keys:
            end.set()
            loop.remove_reader(descriptor)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, on_keys)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
