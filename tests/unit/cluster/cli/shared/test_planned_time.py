"""The wait of a command for a planned time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import typer

from tests.facts import has_facts
from trimaran.cluster.cli.shared.planned_time import read_planned_time, wait_until_planned

NOW_MS = round(datetime(2026, 12, 1, 1, 0, tzinfo=UTC).timestamp() * 1_000)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "after_ms"),
    [
        ("2026-12-01T02:00:00Z", HOUR_MS),
        ("2026-12-01T04:30+02:00", HOUR_MS + HOUR_MS // 2),
        ("2026-12-01T01:00:00.250Z", 250),
        ("2026-12-01T00:59:00Z", -60_000),
        ("2026-12-08T01:00:00Z", 7 * 24 * HOUR_MS),
    ],
)
def test_a_time_has_a_zone_and_is_in_the_next_days(text: str, after_ms: int) -> None:
    assert read_planned_time(text, NOW_MS) == NOW_MS + after_ms


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("2026-12-01T02:00:00", "time zone"),
        ("tomorrow", "time zone"),
        ("", "time zone"),
        ("9999-12-31T23:59:59-23:59", "too far away"),
        ("2026-12-01T00:58:59Z", "is over"),
        ("0001-01-01T00:00:00+23:59", "is over"),
        ("2026-12-08T01:00:01Z", "too far away"),
    ],
)
def test_another_time_is_wrong_usage(text: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        read_planned_time(text, NOW_MS)

    assert ended.value.exit_code == 2
    assert has_facts(capsys.readouterr().err, f"--at={text}", reason)


def test_a_clock_that_is_set_is_followed() -> None:
    """The machine slept, and its clock leapt an hour; then it is set back by a minute."""
    now_ms, slept_s = NOW_MS, list[float]()
    leaps_ms = iter([0, HOUR_MS, -60_000])

    def sleep(duration_s: float) -> None:
        nonlocal now_ms
        slept_s.append(duration_s)
        now_ms += round(duration_s * 1_000) + next(leaps_ms, 0)

    wait_until_planned(NOW_MS + HOUR_MS + 25_000, clock_ms=lambda: now_ms, sleep=sleep)

    assert slept_s == [10.0, 10.0, 5.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0]
    assert now_ms == NOW_MS + HOUR_MS + 25_000
