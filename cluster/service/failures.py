"""What a callback that raises means: an answer that is the same on every member, or the end of this member.

A service is a function of its state and of the log. What it raises because of these two, every member raises at the
same entry: that counts as an answer, and the log goes on. What came from this member alone does not count, since the
others have not met it: its memory, its disk, its network, a signal that ends the process. The state may then be half
changed, so the member stops before it answers or acknowledges anything.

A callback that calls `sys.exit` raises `SystemExit`, on every member: an answer like any other. It is none where a
handler of a signal raised it: that signal came to this process.

How deep a callback may recurse is a matter of the log, too: `FixedHeadroom` gives each the same room on every member.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import traceback
from collections.abc import Iterator
from typing import Final

from ...service_api import InvariantViolation, ServiceFailedError
from ...service_api.service import PLAIN_CALLBACKS

_CHAIN_LIMIT: Final = 64
"""Exceptions of one failure that are looked at."""

_FAILURE_LIMIT: Final = 300
"""Characters of a failure that are noted."""

_OWN_WORDS: Final = (PermissionError, FileExistsError, FileNotFoundError)
"""What a service may raise for reasons of its own, as in `PermissionError("not your account")`: the kernel's have an
errno."""


def foreign_cause(error: BaseException) -> BaseException | None:
    """Return what shows that a failure is this member's alone; None where state and message explain it.

    An error that was raised while such a one was handled is no answer either: the others were not there.
    """
    return next((part for part in _chain(error) if _is_foreign(part)), None)


def _is_foreign(error: BaseException) -> bool:
    if isinstance(error, SystemExit):
        return _is_of_signal_handler(error)
    if isinstance(error, OSError):
        return error.errno is not None or not isinstance(error, _OWN_WORDS)
    return isinstance(error, MemoryError | InvariantViolation) or not isinstance(error, Exception | BaseExceptionGroup)


def _is_of_signal_handler(error: BaseException) -> bool:
    """Return whether a handler of a signal is among the functions that an exception went through."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    code = {code for handler in handlers if (code := getattr(handler, "__code__", None)) is not None}
    return any(frame.f_code in code for frame, _ in traceback.walk_tb(error.__traceback__))


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, those in it, and those it was raised for, each once."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _CHAIN_LIMIT:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, BaseExceptionGroup):
            waiting += part.exceptions
        waiting += [before for before in (part.__cause__, part.__context__) if before is not None]


def failed_here(
    error: BaseException, cause: BaseException, *, service: object, log_position: int, is_at_entry: bool = True
) -> ServiceFailedError:
    """Make the error that this member stops with; `is_at_entry` where the callback belongs to an entry of the log."""
    callback = _callback_of(error)
    failed = ServiceFailedError(
        f"{callback} of {service!r} failed in a way that other members need not share:"
        f" log_position={log_position} error={cause!r}. This member stops before it answers, and its log is kept."
        f" {_advice(cause)}, then start it again;"
        f" `trimaran archive grep DIR --log` shows the entry that ends at this position",
        callback=callback,
        failure=f"{cause!r}"[:_FAILURE_LIMIT],
        log_position=log_position if is_at_entry else None,
    )
    failed.__cause__ = error
    return failed


def _advice(cause: BaseException) -> str:
    if isinstance(cause, MemoryError):
        return "Give it more memory"
    if isinstance(cause, OSError):
        return "Take the call that leaves the process out of the callback, or mend what it met"
    if isinstance(cause, Exception):
        return "Report this bug in Trimaran"
    return "Take out of the service what ends the process or the task"


def _callback_of(error: BaseException) -> str:
    """The name of the service's function that was called."""
    names = (frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((name for name in names if name in PLAIN_CALLBACKS), "a callback")


def is_own_cancellation(error: BaseException) -> bool:
    """Whether the running task is really being cancelled: what it called may have raised `CancelledError` by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class FixedHeadroom:
    """Gives callbacks the same room for recursion, however deep the stack is where they are called from.

    Without it a nested message that one member takes raises `RecursionError` on another, which runs the same entry from
    a deeper place. The room is the recursion limit of the process when the first entry is delivered: Python's 1,000, or
    what the service has set when it was imported. From Python 3.12 on, C functions have a limit of their own, which
    differs from build to build: members of a cluster run the same Python.
    """

    __slots__ = ("_before", "_headroom")

    def __init__(self) -> None:
        self._headroom = 0
        self._before = 0

    def __repr__(self) -> str:
        return f"<FixedHeadroom {self._headroom}>"

    def enter(self) -> None:
        """Callbacks follow, called from this depth or a fixed number of frames below it."""
        self._before = sys.getrecursionlimit()
        if not self._headroom:
            self._headroom = self._before
        text = ""
        try:
            sys.setrecursionlimit(1)  # the interpreter says how deep the stack is where a limit is too low
        except RecursionError as error:
            text = error.args[0]
        sys.setrecursionlimit((_DEPTHS.get(text) or _read_depth(text)) + self._headroom)

    def leave(self) -> None:
        """What follows has the limit that it had before."""
        sys.setrecursionlimit(self._before)


def _read_depth(text: str) -> int:
    """Read how deep the stack is from what the interpreter says of it, and remember it."""
    depth = _DEPTHS[text] = int(text.partition(" depth ")[2].partition(":")[0])
    return depth


_DEPTHS: Final[dict[str, int]] = {}
"""What the interpreter says, and the depth in it; a few hundred at most, as there are depths."""
