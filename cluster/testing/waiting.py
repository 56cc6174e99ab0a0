"""Who waits for what: a coroutine that is watched, and the words for where it stands still."""

from __future__ import annotations

import asyncio
import gc
import linecache
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Final, Generic, TypeVar

_DEPTH_LIMIT: Final = 50
_OWN_PACKAGES: Final = __name__.partition(".")[0], "asyncio", "contextlib"

T = TypeVar("T")


class StillWaitingError(AssertionError):
    """A test waits for something that will not happen. It is no `TimeoutError`, so that no test takes it for one."""


class Watched(Generic[T]):
    """Runs a coroutine, says each time that it goes on, and keeps what it comes to.

    A client that waits is woken by each keep-alive, looks, and waits on. That is a step, and no progress: the code of
    the test has progressed if it awaits another object than before.

    Args:
        coroutine: The coroutine.
        on_step: Called before each step, with whether there was progress since the step before.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], on_step: Callable[[bool], None]) -> None:
        self.is_done = False
        self._coroutine, self._on_step = coroutine, on_step
        self._awaited: object = None
        """The object that the test's code has awaited last; kept, so that no other has its identity."""
        self._task: asyncio.Task[Any] | None = None
        self._results: list[T] = []
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Run the coroutine to its end."""
        __tracebackhide__ = True  # pytest shows where the test failed, not who drives it
        self._task = asyncio.current_task()
        try:
            self._results.append(await self._steps())
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # also how pytest says that a test is skipped
            self._error = error
        self.is_done = True

    def result(self) -> T:
        """Return what the coroutine has returned, or raise what it has raised."""
        __tracebackhide__ = True
        if self._error is not None:
            raise self._error
        return self._results[0]

    def cancel(self) -> None:
        """Cancel the coroutine; nobody asks for its result any more."""
        if self._task is not None:
            self._task.cancel()

    @types.coroutine
    def _steps(self) -> Generator[Any, Any, T]:
        __tracebackhide__ = True
        coroutine, error = self._coroutine, None
        is_progress = True
        while True:
            try:
                self._on_step(is_progress)
            except BaseException:
                coroutine.close()
                raise
            try:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            error = None
            before, self._awaited = self._awaited, _awaited_by_test(coroutine)
            is_progress = self._awaited is None or self._awaited is not before
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
    for _, frame in _stack(coroutine):
        if not _is_own(frame):
            source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            place, calls = f"{frame.f_code.co_filename}:{frame.f_lineno}: {source}", []
        else:
            calls.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)
    if place:
        yield f"  at: {place}"
    if calls:
        yield f"  awaits: {' > '.join(calls)}"


def _awaited_by_test(coroutine: Coroutine[Any, Any, Any]) -> object:
    """Return the object that the innermost frame of the test awaits; the coroutine if no frame is the test's."""
    found: object = coroutine
    for awaiting, frame in _stack(coroutine):
        if not _is_own(frame):
            found = _awaited_of(awaiting)
    return found


def _stack(coroutine: Coroutine[Any, Any, Any]) -> Iterator[tuple[Any, FrameType]]:
    """Go through what awaits: the coroutine, what it awaits, and so on, each with its frame."""
    awaiting: Any = coroutine
    for _ in range(_DEPTH_LIMIT):
        if not isinstance(awaiting, _WITH_FRAMES):
            # CPython wraps the step of an async generator, and what `__await__` gives, without saying what is inside.
            inside = gc.get_referents(awaiting) if type(awaiting).__module__ == "builtins" else []
            awaiting = next((each for each in inside if isinstance(each, _WITH_FRAMES)), None)
        if awaiting is None:
            return
        frame = _attribute(awaiting, "frame")
        if frame is None:
            return
        yield awaiting, frame
        awaiting = _awaited_of(awaiting)


def _awaited_of(awaiting: Any) -> Any:
    return _attribute(awaiting, "yieldfrom" if isinstance(awaiting, GeneratorType) else "await")


def _attribute(awaiting: Any, name: str) -> Any:
    return getattr(awaiting, _PREFIXES[type(awaiting)] + name)


_PREFIXES: Final[dict[type, str]] = {CoroutineType: "cr_", GeneratorType: "gi_", AsyncGeneratorType: "ag_"}
_WITH_FRAMES: Final = tuple(_PREFIXES)


def _is_own(frame: FrameType) -> bool:
    """Whether a frame is the framework's or the standard library's."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _OWN_PACKAGES
