"""Cron lines: which times they mean, and what is wrong with those that mean none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimaran.service_api.ready_made.queue.cron import parse_cron


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("* * * * *", "2026-11-26T10:00", "2026-11-26T10:01"),
        ("*/5 * * * *", "2026-11-26T10:00", "2026-11-26T10:05"),
        ("*/5 * * * *", "2026-11-26T10:04:59.999", "2026-11-26T10:05"),
        ("7/20 * * * *", "2026-11-26T10:28", "2026-11-26T10:47"),
        ("0 9 * * mon-fri", "2026-11-27T09:00", "2026-11-30T09:00"),
        ("0 9 * * 7", "2026-11-26T10:00", "2026-11-29T09:00"),
        ("0 9 * * SUN", "2026-11-26T10:00", "2026-11-29T09:00"),
        ("59 23 31 dec *", "2026-12-31T23:59", "2027-12-31T23:59"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 29 2 *", "2026-11-26T00:00", "2028-02-29T00:00"),
        ("0 0 31 * *", "2026-11-30T00:00", "2026-12-31T00:00"),
        # Both days are restricted: either is enough.
        ("0 0 13 * fri", "2026-11-26T00:00", "2026-11-27T00:00"),
        ("0 0 13 * fri", "2026-12-11T00:00", "2026-12-13T00:00"),
        # A day that begins with `*` restricts with a step, but not as an alternative.
        ("0 0 */2 * mon", "2026-11-26T00:00", "2026-12-07T00:00"),
        ("10-20/5,40 3 * * *", "2026-11-26T03:20", "2026-11-26T03:40"),
    ],
)
def test_a_line_fires_next(line: str, after: str, expected: str) -> None:
    assert parse_cron(line).next_after(at(after)) == at(expected)


def test_times_are_utc_whatever_the_zone_of_the_moment() -> None:
    moment = datetime(2026, 11, 26, 1, 30, tzinfo=timezone(timedelta(hours=5)))

    assert parse_cron("0 21 * * *").next_after(moment) == at("2026-11-25T21:00")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("* * * *", "4 fields.* 5"),
        ("* * * * * *", "6 fields.* 5"),
        ("", "0 fields.* 5"),
        ("60 * * * *", r"minute='60' .*0 to 59"),
        ("* 5-3 * * *", r"hour='5-3' .*0 to 23, rising"),
        ("* * 0 * *", r"day of month='0' .*1 to 31"),
        ("* * * foo *", r"month='foo' .*'foo'.*jan, feb"),
        ("* * * * 8", r"day of week='8' .*0 to 7"),
        ("*/0 * * * *", r"minute='\*/0' .*step"),
        ("*/ * * * *", r"minute='\*/' .*''.*number"),
        ("1,,2 * * * *", r"minute='' .*''.*number"),
        ("-1 * * * *", r"minute='-1' .*''.*number"),
        ("٣ * * * *", "expected a number"),
        ("1_0 * * * *", "expected a number"),
        ("0 0 30 2 *", "no time: .*29 days"),
        ("0 0 31 4,6 *", "no time: .*30 days"),
        ("0 " * 1_000, "has 1000 fields"),
    ],
)
def test_a_line_that_means_no_time_is_refused(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_cron(line)


FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "3", "0,30", "10-12"]),
    st.sampled_from(["*", "*/5", "0", "23", "1-3"]),
    st.sampled_from(["*", "*/9", "1", "29", "31"]),
    st.sampled_from(["*", "1", "2,3", "*/4"]),
    st.sampled_from(["*", "0", "1-5", "sat"]),
)


@settings(max_examples=60)
@given(FIELDS, st.datetimes(datetime(2024, 1, 1), datetime(2027, 1, 1)))
def test_no_minute_between_fires(fields: tuple[str, ...], naive: datetime) -> None:
    """The minutes between a moment and the next time do not fit, by a second way to say what fits."""
    line, after = parse_cron(" ".join(fields)), naive.replace(tzinfo=UTC)
    found = line.next_after(after)

    def fits(minute: datetime) -> bool:
        is_day, is_weekday = minute.day in line.days, minute.isoweekday() % 7 in line.weekdays
        has_star = fields[2].startswith("*") or fields[4].startswith("*")
        return (
            minute.month in line.months
            and minute.hour in line.hours
            and minute.minute in line.minutes
            and (is_day and is_weekday if has_star else is_day or is_weekday)
        )

    assert found > after
    assert fits(found)
    first = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    between = min(int((found - first) / timedelta(minutes=1)), 3_000)
    assert not any(fits(first + timedelta(minutes=number)) for number in range(between))
    assert not any(fits(found - timedelta(minutes=number)) for number in range(1, between + 1))
