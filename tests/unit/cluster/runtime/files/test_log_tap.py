"""What is logged as a warning or worse becomes a distinct error, told apart by type and place."""

from __future__ import annotations

import pytest
import structlog

from trimaran.cluster.runtime.files.error_log import ErrorObservation
from trimaran.cluster.runtime.files.log_tap import ErrorLogProcessor, observation_of_exception


@pytest.fixture
def tap() -> ErrorLogProcessor:
    tap = ErrorLogProcessor()
    structlog.configure(
        processors=[tap, structlog.processors.JSONRenderer()], logger_factory=structlog.ReturnLoggerFactory()
    )
    return tap


def attached(tap: ErrorLogProcessor) -> list[ErrorObservation]:
    seen: list[ErrorObservation] = []
    tap.attach(seen.append)
    return seen


def test_only_warnings_and_worse_are_taken_and_all_lines_go_on(tap: ErrorLogProcessor) -> None:
    seen = attached(tap)
    logger = structlog.get_logger()

    lines = [getattr(logger, level)("a.b", fact=1) for level in ("debug", "info", "warning", "error", "critical")]

    assert [trouble.level for trouble in seen] == ["warning", "error", "critical"]
    assert lines == ['{"fact": 1, "event": "a.b"}'] * 5


def test_a_line_of_code_is_one_error_whatever_it_says(tap: ErrorLogProcessor) -> None:
    seen = attached(tap)

    for number in (1, 2):
        structlog.get_logger().warning("link.dropped", waiting_bytes=number)
    structlog.get_logger().warning("link.dropped", waiting_bytes=3)

    assert len({trouble.headline for trouble in seen}) == 2
    assert seen[0].place.startswith("files/test_log_tap.py:")
    assert seen[0].place.endswith(" test_a_line_of_code_is_one_error_whatever_it_says")
    assert seen[0].message == "waiting_bytes=1"


def fail(text: str) -> None:
    raise ValueError(text)


@pytest.mark.parametrize("how", ["exception", "true", "tuple"])
def test_an_exception_is_told_by_its_type_and_where_it_was_raised(tap: ErrorLogProcessor, how: str) -> None:
    seen = attached(tap)

    for text in ("one", "two"):
        try:
            fail(text)
        except ValueError as error:
            exc_info = {"exception": error, "true": True, "tuple": (type(error), error, error.__traceback__)}[how]
            structlog.get_logger().error("service.failed", log_position=96, exc_info=exc_info)

    assert seen[0].headline == seen[1].headline
    assert (seen[0].kind, seen[0].message) == ("ValueError", "log_position=96")
    assert seen[0].place.endswith(" fail")
    assert seen[0].trace.endswith("ValueError: one\n")


def test_a_stall_is_told_by_its_culprit(tap: ErrorLogProcessor) -> None:
    seen = attached(tap)

    for culprit in ("gc2", "on_timer_event"):
        structlog.get_logger().warning("loop.stalled", culprit=culprit)

    assert [trouble.kind for trouble in seen] == ["gc2", "on_timer_event"]


def test_what_comes_before_there_is_a_file_waits_for_it(tap: ErrorLogProcessor) -> None:
    for number in range(40):
        structlog.get_logger().warning("early", number=number)

    seen = attached(tap)
    tap.detach()
    structlog.get_logger().warning("late")

    assert [trouble.message for trouble in seen] == [f"number={number}" for number in range(8, 40)]


def test_an_exception_without_a_trace_has_no_place() -> None:
    trouble = observation_of_exception("critical", "node.failed", OSError(5, "broken"))

    assert (trouble.place, trouble.message) == ("?", "OSError: [Errno 5] broken")
