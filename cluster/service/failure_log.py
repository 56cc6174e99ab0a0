"""Logs what callbacks raise: the first of each kind with its traceback, then counts.

A client can make a service raise at each message. A traceback for each would cost 0.3 ms and a kilobyte of output on
every member, which every other client would pay for. What is raised at the same place of the same callback is of one
kind, whatever it says.

Bounds: those of `LineLimiter`; a summary of each kind every 10 s at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from ...service_api.access.line_limiter import KIND_LIMIT, LineLimiter

logger = structlog.get_logger()


_Place = tuple[str, str, int]


@dataclass(slots=True, frozen=True)
class NotedFailure:
    """A failure of a callback: of a kind, the newest is kept."""

    service: str
    error: str
    log_position: int
    noted_ns: int
    """When, by monotonic time; an entry that is replayed fails again."""


class FailureLog:
    """What the callbacks of one container have raised, as answers."""

    def __init__(self, monotonic_ns: Callable[[], int], *, kind_limit: int = KIND_LIMIT) -> None:
        self._monotonic_ns = monotonic_ns
        self._lines = LineLimiter[_Place](kind_limit=kind_limit)
        self._newest: dict[_Place | None, NotedFailure] = {}
        """By kind; None of those beyond the limit."""
        self.newest: NotedFailure | None = None
        """Failures of all kinds."""

    def __repr__(self) -> str:
        return f"<FailureLog kinds={len(self._newest)}>"

    def note(self, error: BaseException, *, service: object, log_position: int) -> None:
        """Log the first of a kind in full, count the others."""
        now_ns, place = self._monotonic_ns(), _place_of(error)
        kind = self._lines.fold(place, now_ns)
        is_first, count = kind not in self._lines, self._lines.count(place, now_ns)
        self.newest = failure = self._newest[kind] = NotedFailure(repr(service), repr(error), log_position, now_ns)
        if is_first:
            logger.error(
                "service.failed",
                service=failure.service,
                log_position=log_position,
                error=failure.error,
                exc_info=error,
            )
            self._newest = {kind: failure for kind, failure in self._newest.items() if kind in self._lines}
        elif count is not None:
            _log_again(failure, count)

    def summarise(self) -> None:
        """Log how many more there were of each kind, if the last line about it is a while ago; to be called often."""
        for kind, count in self._lines.take_untold(self._monotonic_ns()):
            _log_again(self._newest[kind], count)


def _log_again(failure: NotedFailure, count: int) -> None:
    logger.error(
        "service.failed_again",
        service=failure.service,
        log_position=failure.log_position,
        error=failure.error,
        count=count,
    )


def _place_of(error: BaseException) -> _Place:
    """The type of an error, and the file and line that raised it."""
    name, trace = type(error).__qualname__, error.__traceback__
    if trace is None:
        return name, "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return name, trace.tb_frame.f_code.co_filename, trace.tb_lineno
