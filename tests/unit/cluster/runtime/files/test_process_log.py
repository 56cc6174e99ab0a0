"""What a member keeps of its process' log, and how its level changes while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog

from tests.facts import has_facts
from trimaran.cluster.cli.shared.logging import configure_logging
from trimaran.cluster.runtime.files.error_log import ErrorObservation
from trimaran.cluster.runtime.files.process_log import FIELD_LIMIT, LINE_LIMIT, VALUE_LIMIT, ProcessLog, RecentLines
from trimaran.service_api import ConfigurationError


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    ProcessLog()
    structlog.reset_defaults()


@pytest.fixture
def log() -> ProcessLog:
    log = ProcessLog()
    configure_logging("json", member_id=1, process_log=log)
    return log


def test_the_newest_lines_are_kept_as_texts(log: ProcessLog) -> None:
    logger, values = structlog.get_logger(), [1]
    logger.info("session.opened", session_id=7, values=values, principal="ann\x1b[31m")
    values.append(2)
    try:
        raise ValueError("no quota")
    except ValueError as error:
        logger.error("service.failed", exc_info=error)

    opened, failed = log.lines

    assert (opened.level, opened.event) == ("info", "session.opened")
    assert opened.fields == {"session_id": "7", "values": "[1]", "principal": "ann\\x1b[31m"}
    assert (failed.level, failed.fields) == ("error", {"exception": "ValueError: no quota"})


def test_lines_and_what_is_in_them_are_bounded() -> None:
    lines = RecentLines(epoch_ms=lambda: 5)
    for number in range(LINE_LIMIT + 3):
        lines(None, "info", {"event": "e", "number": number, **{f"f{i}": "x" * 10_000 for i in range(FIELD_LIMIT + 5)}})

    kept = [*lines]
    assert (len(kept), kept[0].fields["number"], kept[0].time_ms) == (LINE_LIMIT, "3", 5)
    assert (len(kept[0].fields), max(map(len, kept[0].fields.values()))) == (FIELD_LIMIT, VALUE_LIMIT)


def test_the_level_changes_for_loggers_that_have_logged_before(
    log: ProcessLog, capfd: pytest.CaptureFixture[str]
) -> None:
    logger, bound = structlog.get_logger(), structlog.get_logger().bind(service_id=0)
    for level in ("info", "debug", "warning"):
        log.set_level(level)
        for each in (logger, bound):
            each.debug("a.debug")
            each.info("an.info")
            each.warning("a.warning")

    events = [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
    assert events == [*["an.info", "a.warning"] * 2, *["a.debug", "an.info", "a.warning"] * 2, *["a.warning"] * 2]


def test_no_level_hides_warnings_from_the_error_log(log: ProcessLog) -> None:
    with pytest.raises(ConfigurationError) as caught:
        log.set_level("error")

    assert has_facts(str(caught.value), "log_level='error'", "debug, info, warning")
    assert log.level == "info"


def test_no_line_has_the_address_of_an_object(log: ProcessLog, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[ErrorObservation] = []
    log.errors.attach(seen.append)

    structlog.get_logger().warning("service.failed", of=object(), text=f"a {object()}")

    written = capfd.readouterr().err
    (kept,), (error,) = [*log.lines], seen
    assert "<object>" in written
    assert " at 0x" not in written + str(kept) + error.text().decode()
