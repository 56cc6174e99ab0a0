"""Options of the whole suite."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import structlog

# A shell that starts the suite in the background has Ctrl-C ignored, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the text scenarios anew instead of comparing with them; look at the difference before you commit",
    )


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Let no test change what the next one sees of the log: commands that run in this process set its level."""
    kept = structlog.get_config() if structlog.is_configured() else None
    yield
    if kept is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**kept)
