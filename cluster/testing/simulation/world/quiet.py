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
    if not is_quiet:
        yield
        return
    kept, was_configured = structlog.get_config(), structlog.is_configured()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL_LEVEL))
    try:
        yield
    finally:
        if was_configured:
            structlog.configure(**kept)
        else:
            structlog.reset_defaults()
