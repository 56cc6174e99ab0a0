"""The log of a member's process, as far as the member itself looks at it: its newest lines, and its level.

Log lines go to standard error, which is on another machine than the operator. So the process keeps the newest ones in
memory, and a caller that may have them asks the member. What is kept of a line is its text: a value that changes later,
or holds much, is not held. Warnings and worse go to the error log, too (`log_tap`).

The level is one of `LEVELS`, and can be changed while the process runs. A logger that is made once asks nobody about
its level, which is why it costs nothing below it; so all loggers of the process are of one class, and the change is a
change of that class.

Bounds: `LINE_LIMIT` lines, each with `FIELD_LIMIT` fields of `VALUE_LIMIT` characters.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import structlog

from ....service_api.errors import ConfigurationError
from ....service_api.printable import printable, without_addresses
from ..ground.system_clock import SystemClock
from .log_tap import ErrorLogProcessor, exception_of

LINE_LIMIT: Final = 1000
FIELD_LIMIT: Final = 32
VALUE_LIMIT: Final = 300

LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}
"""The levels from which on a member logs. There is none above: warnings and errors are always in the error log."""

_METHODS: Final = ("debug", "info", "warning", "warn", "error", "critical", "fatal", "exception", "msg", "log")
_LEFT_OUT: Final = frozenset({"event", "exc_info", "member_id"})


class LogLine(NamedTuple):
    """A line that was logged."""

    time_ms: int
    level: str
    """The method of the logger: `info`, `warning`, ..."""
    event: str
    fields: dict[str, str]


class RecentLines:
    """Hears every log line of a process, and keeps the newest."""

    def __init__(self, epoch_ms: Callable[[], int] | None = None) -> None:
        self._epoch_ms = SystemClock().epoch_time if epoch_ms is None else epoch_ms
        self._lines: deque[LogLine] = deque(maxlen=LINE_LIMIT)

    def __repr__(self) -> str:
        return f"<RecentLines {len(self._lines)}>"

    def __iter__(self) -> Iterator[LogLine]:
        return iter([*self._lines])  # other threads log, too

    def __call__(
        self, logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Keep a line, and pass it on as it is."""
        fields = {str(key): _text(value) for key, value in event.items() if key not in _LEFT_OUT}
        error = exception_of(event.get("exc_info"))
        if error is not None:
            fields["exception"] = _text(f"{type(error).__name__}: {error}")
        kept = dict([*fields.items()][:FIELD_LIMIT])
        self._lines.append(LogLine(self._epoch_ms(), name, _text(event.get("event")), kept))
        return event


class ProcessLog:
    """The log of one process."""

    def __init__(self, level: str = "info") -> None:
        self.errors: Final = ErrorLogProcessor()
        self.lines: Final = RecentLines()
        self.level = level
        self.set_level(level)

    def __repr__(self) -> str:
        return f"<ProcessLog level={self.level} {self.lines!r}>"

    @property
    def processors(self) -> list[structlog.typing.Processor]:
        """The processors of log lines that hear each line first."""
        return [self.errors, self.lines]

    def set_level(self, level: str) -> None:
        """Log from this level on, in the whole process.

        Raises:
            ConfigurationError: it is none of `LEVELS`.
        """
        if level not in LEVELS:
            raise ConfigurationError(f"log_level={level!r}: expected one of {', '.join(LEVELS)}")
        chosen = structlog.make_filtering_bound_logger(LEVELS[level])
        for method in _METHODS:
            setattr(LevelledLogger, method, getattr(chosen, method))
        self.level = level


class LevelledLogger(structlog.make_filtering_bound_logger(logging.INFO)):  # type: ignore[misc]  # made at run time
    """The class of all loggers of a member's process."""


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return printable(without_addresses(text[: 2 * VALUE_LIMIT]))[:VALUE_LIMIT]
