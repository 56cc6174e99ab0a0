"""Logs what callbacks raise: the first of each kind with its traceback, then counts.

A client can make a service raise at each message. A traceback for each would cost 0.3 ms and a kilobyte of output on
every member, which every other client would pay for. What is raised at the same place of the same callback is of one
kind, whatever it says.

Bounds: `_KIND_LIMIT` kinds are told apart, further ones count as one; a summary of each kind every 10 s at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

_KIND_LIMIT: Final = 256
_SUMMARY_INTERVAL_NS: Final = 10_000_000_000
_OTHERS: Final = ("others", "", 0)

logger = structlog.get_logger()


@dataclass(slots=True)
class _Kind:
    """What was raised at one place. Counts are of failures that no line has told yet."""

    service: str
    error: str
    """Of the newest one."""
    log_position: int
    told_ns: int
    count: int = 0


class FailureLog:
    """What the callbacks of one container have raised, as answers."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._kinds: dict[tuple[str, str, int], _Kind] = {}

    def __repr__(self) -> str:
        return f"<FailureLog kinds={len(self._kinds)}>"

    def note(self, error: BaseException, *, service: object, log_position: int) -> None:
        """Log the first of a kind, count the others."""
        key = _place_of(error)
        kind = self._kinds.get(key)
        if kind is None and len(self._kinds) >= _KIND_LIMIT:
            key = _OTHERS
            kind = self._kinds.get(key)
        if kind is None:
            self._kinds[key] = _Kind(repr(service), repr(error), log_position, self._monotonic_ns())
            logger.error(
                "service.failed",
                service=repr(service),
                log_position=log_position,
                error=repr(error),
                exc_info=error,
            )
            return
        kind.count += 1
        kind.error, kind.log_position = repr(error), log_position

    def summarise(self) -> None:
        """Log how many more there were of each kind, if the last line about it is a while ago; to be called often."""
        now_ns = self._monotonic_ns()
        for kind in self._kinds.values():
            if kind.count and now_ns - kind.told_ns >= _SUMMARY_INTERVAL_NS:
                logger.error(
                    "service.failed_again",
                    service=kind.service,
                    log_position=kind.log_position,
                    error=kind.error,
                    count=kind.count,
                )
                kind.told_ns, kind.count = now_ns, 0


def _place_of(error: BaseException) -> tuple[str, str, int]:
    """The type of an error, and the file and line that raised it."""
    name, trace = type(error).__qualname__, error.__traceback__
    if trace is None:
        return name, "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return name, trace.tb_frame.f_code.co_filename, trace.tb_lineno
