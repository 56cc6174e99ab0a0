"""Of failures of one kind the first is logged in full, the others are counted."""

from __future__ import annotations

from typing import Any

from structlog.testing import capture_logs

from trimaran.cluster.service.failure_log import FailureLog


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def raised_elsewhere() -> Exception:
    try:
        raise ValueError("elsewhere")
    except ValueError as error:
        return error


def test_the_first_of_a_kind_has_a_traceback_and_the_others_are_counted() -> None:
    now_ns = [0]
    log = FailureLog(lambda: now_ns[0])
    with capture_logs() as lines:
        for number in range(1000):
            log.note(raised(str(number)), service="Counter", log_position=number)
            log.summarise()
        log.note(raised_elsewhere(), service="Counter", log_position=1000)
        now_ns[0] = 10_000_000_000
        log.summarise()
        log.summarise()

    found: list[dict[str, Any]] = [
        {name: value for name, value in line.items() if name != "exc_info"} for line in lines
    ]
    assert ["exc_info" in line for line in lines] == [True, True, False]
    assert found[0]["error"] == "ValueError('0')"
    assert found[2] == {
        "event": "service.failed_again",
        "log_level": "error",
        "service": "'Counter'",
        "log_position": 999,
        "error": "ValueError('999')",
        "count": 999,
    }


def test_kinds_beyond_the_limit_count_as_one() -> None:
    log = FailureLog(lambda: 0, kind_limit=1)
    with capture_logs() as lines:
        for error in (raised("1"), raised_elsewhere(), KeyError("another")):
            log.note(error, service="Counter", log_position=0)

    assert len(lines) == 2
