"""Copies log lines of level warning and above to the error log.

A processor of structlog, first in the chain, so it sees values and exceptions before they are made text. Logging is set
up before the member has a file to keep errors in: what comes before `attach` waits, a few at most.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import structlog

from .error_log import ErrorObservation

_LEVELS: Final = {"warning": "warning", "error": "error", "exception": "error", "critical": "critical"}
"""Method of a logger to level; other levels are ignored."""

_WAITING_LIMIT: Final = 32
_TRACE_FRAME_LIMIT: Final = 20
_MESSAGE_VALUE_LIMIT: Final = 300
_STRUCTLOG: Final = str(Path(structlog.__file__).parent)
_NO_MESSAGE: Final = ("exc_info", "level", "timestamp", "member_id", "event")


class ErrorLogProcessor:
    """Hears every log line of a process; makes a `ErrorObservation` of each that is a warning or worse."""

    def __init__(self) -> None:
        self._observe: Callable[[ErrorObservation], None] | None = None
        self._waiting: deque[ErrorObservation] = deque(maxlen=_WAITING_LIMIT)

    def __repr__(self) -> str:
        return f"<ErrorLogProcessor attached={self._observe is not None} waiting={len(self._waiting)}>"

    def __call__(
        self, logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Look at a line, and pass it on as it is."""
        level = _LEVELS.get(name)
        if level is not None:
            trouble = observation_of(level, event)
            if self._observe is None:
                self._waiting.append(trouble)
            else:
                self._observe(trouble)
        return event

    def attach(self, observe: Callable[[ErrorObservation], None]) -> None:
        """Hand everything to `observe`, beginning with what has waited."""
        self._observe = observe
        while self._waiting:
            observe(self._waiting.popleft())

    def detach(self) -> None:
        """Keep what comes to oneself again."""
        self._observe = None


@contextlib.contextmanager
def keep_failure(observe: Callable[[ErrorObservation], None]) -> Iterator[None]:
    """Take down what ends the block, which nobody has logged."""
    try:
        yield
    except Exception as error:
        observe(observation_of_exception("critical", "node.failed", error))
        raise


def observation_of(level: str, event: structlog.typing.EventDict) -> ErrorObservation:
    """Make a trouble of a log line: what tells it from others is its exception and place, or the line of code."""
    error = exception_of(event.get("exc_info"))
    message = " ".join(
        f"{key}={str(value)[:_MESSAGE_VALUE_LIMIT]}" for key, value in event.items() if key not in _NO_MESSAGE
    )
    if error is not None:
        return observation_of_exception(level, str(event.get("event")), error, message=message)
    place = _place_of_caller()
    kind = event.get("culprit") or event.get("file") or ""
    return ErrorObservation(level, str(event.get("event")), str(kind), place, message)


def observation_of_exception(level: str, event: str, error: BaseException, *, message: str = "") -> ErrorObservation:
    """Make a trouble of an exception; its place is where it was raised."""
    trace = "".join(traceback.format_exception(error, limit=_TRACE_FRAME_LIMIT))
    said = f"{type(error).__name__}: {error}"
    return ErrorObservation(
        level, event, type(error).__name__, _place_of_raise(error.__traceback__), message or said, trace
    )


def exception_of(exc_info: Any) -> BaseException | None:
    """Find the exception that a log line is about, in what the caller gave as `exc_info`; None without one."""
    if isinstance(exc_info, BaseException):
        return exc_info
    if isinstance(exc_info, tuple):
        return exc_info[1] if isinstance(exc_info[1], BaseException) else None
    return sys.exc_info()[1] if exc_info else None


def _place_of_raise(trace: TracebackType | None) -> str:
    if trace is None:
        return "?"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return _place(trace.tb_frame, trace.tb_lineno)


def _place_of_caller() -> str:
    """Find the line that logs: the innermost one that is neither structlog's nor this module's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_STRUCTLOG) or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    return "?" if frame is None else _place(frame, frame.f_lineno)


def _place(frame: FrameType, line: int) -> str:
    """Return where: the last two parts of the path tell enough, and no machine's directories."""
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{line} {frame.f_code.co_qualname}"
