"""An event loop for decoders that are called by one: it runs no I/O, and one input after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from tests.fuzz.target import expect


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def on_loop(call: Callable[[], None]) -> None:
    """Call a function while a loop runs, and report what the loop was told of as a failure."""

    async def once() -> None:
        call()

    run_on_loop(once())


def run_on_loop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, and report what the loop was told of as a failure."""
    failures: list[dict[str, Any]] = []
    loop = _loop()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    loop.run_until_complete(work)
    for failure in failures:
        error = failure.get("exception")
        if error is not None:
            raise error
        expect(False, "the loop was told of a failure", failure=failure["message"])
