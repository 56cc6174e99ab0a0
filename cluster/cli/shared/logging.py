"""The format of a node's log lines: text in a terminal, one JSON object for each line elsewhere.

Lines go to standard error: standard output is for data.
"""

from __future__ import annotations

import logging
import sys
from typing import Final

import structlog

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure_logging(
    log_format: str,
    *,
    member_id: int,
    group_index: int | None = None,
    level: str = "info",
    tap: structlog.typing.Processor | None = None,
) -> None:
    """Set structlog up for this process and bind the member id, and the group's if there is one, to every line.

    `tap` sees each line first.

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

    processors: list[structlog.typing.Processor] = [
        *([] if tap is None else [tap]),
        add_member_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not console),
    ]
    if not console:
        # Without the frames' variables: those are users' data, and many kilobytes of it.
        transformer = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors.append(structlog.processors.ExceptionRenderer(transformer))
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
