"""The lines of a member's log: one for each event, whatever is in it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from trimaran.cluster.cli.shared.logging import configure_logging

EVIL = '\x1b]0;pwned\x07\x1b[31mRED\n{"event": "forged", "level": "critical"}\r\u202eevil\u2028 level=critical'
MARKS = "\x1b\x07\r\u202e\u2028"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def log_failure(text: str) -> None:
    """As a service's handler that raises with a client's text, and has a secret in a variable."""
    secret = "a secret of a client"
    try:
        try:
            raise KeyError(len(secret))
        except KeyError:
            raise ValueError(text)  # noqa: B904  # its context is the point
    except ValueError as error:
        structlog.get_logger().error("service.failed", error=repr(error), detail=text, exc_info=error)


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_texts_of_clients_stay_in_their_place(capfd: pytest.CaptureFixture[str], log_format: str) -> None:
    """They set a terminal's title, looked like lines of the log, and came with the variables of frames."""
    configure_logging(log_format, member_id=1)

    log_failure(EVIL)
    structlog.get_logger().info(EVIL)

    written = capfd.readouterr().err
    assert len(written.splitlines()) == 2
    assert not any(mark in written for mark in MARKS)
    assert "a secret of a client" not in written


def test_a_field_cannot_be_forged_on_the_console(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", member_id=1)

    structlog.get_logger().info("session.opened", reason="a level=critical", principal="ann", count=3, missing=None)

    line = capfd.readouterr().err
    assert "reason='a level=critical'" in line
    assert "principal=ann" in line
    assert ("count=3" in line, "missing=None" in line, "member_id=1" in line) == (True, True, True)


def test_the_console_says_where_an_error_was_raised_and_for_what(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", member_id=1)

    log_failure("bad")

    (line,) = capfd.readouterr().err.splitlines()
    assert "trace='ValueError: bad at log_failure (test_logging.py:" in line
    assert "; after KeyError: 20 at log_failure (test_logging.py:" in line


def test_json_lines_keep_the_text_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", member_id=1)

    structlog.get_logger().info("session.opened", principal=EVIL)

    assert json.loads(capfd.readouterr().err)["principal"] == EVIL
