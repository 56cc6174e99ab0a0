"""The format of a node's log lines: text in a terminal, one JSON object for each line elsewhere.

Lines go to standard error: standard output is for data. One event is one line in both formats, and no value can look
like a line or a field of its own, or command the terminal: values hold what clients sent. Variables of frames, which
hold it too, are never shown.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any, Final

import structlog

from ....archive.tool.log_writer import new_log_writer
from ...runtime.files.process_log import LevelledLogger, ProcessLog

_TRACE_FRAME_LIMIT: Final = 8
_CHAIN_LIMIT: Final = 4


def configure_logging(
    log_format: str,
    *,
    member_id: int,
    group_index: int | None = None,
    process_log: ProcessLog | None = None,
) -> None:
    """Set structlog up for this process and bind the member id, and the group's if there is one, to every line.

    A process that serves several groups binds `group` as a context variable of the tasks of each.

    `process_log` sees each line first, and decides from which level on there are lines; without it that is `info`.

    `log_format` is auto, console or json; auto is console if standard error is a terminal.
    """
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()) if console else structlog.processors.JSONRenderer()
    )

    def add_member_id(
        logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Not a context variable: what a socket calls back runs in a context of its own."""
        event["member_id"] = member_id
        if group_index is not None:
            event.setdefault("group", group_index)
        return event

    listeners = [] if process_log is None else process_log.processors
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        *listeners,
        add_member_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console),
    ]
    if console:
        processors += [structlog.processors.ExceptionRenderer(_format_trace), _as_one_line]
    else:
        # Without the frames' variables: those are users' data, and many kilobytes of it.
        transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors.append(structlog.processors.ExceptionRenderer(transformer))
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=LevelledLogger,
        logger_factory=new_log_writer(),
        cache_logger_on_first_use=True,
    )


def _as_one_line(
    logger: structlog.typing.WrappedLogger, name: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Have each value written so that it stays in its place; a trace is a value like any other."""
    if "exception" in event:
        event["trace"] = event.pop("exception")  # the renderer would write it below the line
    event["event"] = repr(event["event"])[1:-1]
    return {key: value if _is_plain(value) else _Shown(value) for key, value in event.items()}


def _is_plain(value: Any) -> bool:  # whatever is logged
    """Return whether a value is a word, or a number or the like whose text is printable."""
    if isinstance(value, str):
        return value.isprintable() and not any(mark in value for mark in " =\"'")
    return repr(value).isprintable()


class _Shown:
    """Stands for a value whose text would not stay in its place; the renderer writes this object's `repr`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __repr__(self) -> str:
        text = repr(self._value)  # quoted and printable, where the value is a string
        return text if text.isprintable() else repr(text)


def _format_trace(exc_info: structlog.typing.ExcInfo) -> str:
    """Write an exception, and those that it was raised for, in one line: each with its last calls, innermost first."""
    error: BaseException | None = exc_info[1]
    parts: list[str] = []
    while error is not None and len(parts) < _CHAIN_LIMIT:
        frames = reversed(traceback.extract_tb(error.__traceback__)[-_TRACE_FRAME_LIMIT:])
        calls = " < ".join(f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)
        parts.append(f"{type(error).__name__}: {error}{' at ' if calls else ''}{calls}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "; after ".join(parts)
