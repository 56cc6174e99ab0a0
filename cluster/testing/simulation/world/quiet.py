"""Members and clients that log nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

_CRITICAL_LEVEL: Final = 50


@contextmanager
def quiet_log(*, is_quiet: bool = True) -> Iterator[None]:
    """Keep hundreds of elections out of the log, and out of the output of a test."""
    kept = structlog.get_config()
    if is_quiet:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL_LEVEL))
    try:
        yield
    finally:
        structlog.configure(**kept)
