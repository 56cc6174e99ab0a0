"""The output of a trace: its lines, and between them what the members log, at virtual time.

Two runs of one seed give the same text, so what differs from one machine to the next is left out of the log's lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final, TextIO

import structlog

from ...testing.simulation.world.loop import SimulatedLoop

_LEFT_OUT: Final = ("level", "exc_info", "pid")


class TraceOutput:
    """Writes lines until nobody reads any more; the run must not notice that."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_read = True

    def __repr__(self) -> str:
        return f"<TraceOutput read={self._is_read}>"

    def write_line(self, line: str) -> None:
        """Write one line."""
        if not self._is_read:
            return
        try:
            self._file.write(line + "\n")
        except BrokenPipeError:
            # `| head` has seen enough; at the end of the process nothing must be flushed into it.
            self._is_read = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._file.fileno())

    @contextlib.contextmanager
    def with_member_logs(self) -> Iterator[None]:
        """Write the log lines of members, too."""
        kept = structlog.get_config()
        structlog.configure(
            processors=[structlog.processors.add_log_level, _render],
            wrapper_class=structlog.make_filtering_bound_logger("info"),
            logger_factory=lambda *names: _LineLogger(self),
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**kept)


class _LineLogger:
    """What structlog gives a rendered line to."""

    def __init__(self, output: TraceOutput) -> None:
        self.info = self.warning = self.error = self.critical = self.debug = output.write_line


def _render(logger: Any, name: str, event: structlog.typing.EventDict) -> str:  # structlog's type for a logger
    """Make one line of an event, in the columns of the trace."""
    loop = asyncio.get_running_loop()
    begin = f"{loop.scheduler.now_ns / 1e9:12.6f}  log {loop.address}" if isinstance(loop, SimulatedLoop) else "log"
    level, what = event["level"], event.pop("event")
    facts = " ".join(f"{key}={value}" for key, value in event.items() if key not in _LEFT_OUT)
    return f"{begin}  {'' if level == 'info' else f'{level} '}{what} {facts}".rstrip()
