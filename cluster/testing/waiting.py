"""Who waits for what: a coroutine that is watched, and the words for where it stands still."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import FrameType
from typing import Any, Final, Generic, TypeVar

_DEPTH_LIMIT: Final = 50
_OWN_PACKAGES: Final = __name__.partition(".")[0], "asyncio", "contextlib"

T = TypeVar("T")


class StillWaitingError(AssertionError):
    """A test waits for something that will not happen. It is no `TimeoutError`, so that no test takes it for one."""


class Watched(Generic[T]):
    """Runs a coroutine, and says each time that it goes on."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], on_step: Callable[[], None]) -> None:
        self._coroutine, self._on_step = coroutine, on_step

    async def run(self) -> T:
        """Run the coroutine to its end."""
        __tracebackhide__ = True
        result: T = await self._steps()
        return result

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, T]:
        __tracebackhide__ = True
        coroutine, error = self._coroutine, None
        while True:
            self._on_step()
            try:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            error = None
            try:
                yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:
                error = thrown


def describe_wait(coroutine: Coroutine[Any, Any, Any]) -> Iterator[str]:
    """Say where a coroutine stands: the line of the test, and which calls lie below it."""
    calls: list[str] = []
    place = ""
    awaited: Any = coroutine
    for _ in range(_DEPTH_LIMIT):
        frame: FrameType | None = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        if not _is_own(frame):
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            place, calls = f"{frame.f_code.co_filename}:{frame.f_lineno}: {source}", []
        else:
            calls.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if place:
        yield f"  at: {place}"
    if calls:
        yield f"  awaits: {' > '.join(calls)}"


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is the framework's or the standard library's."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN_PACKAGES
