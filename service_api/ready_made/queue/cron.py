"""When a cron line fires: five fields, in UTC, and nothing but arithmetic, so that every member says the same.

    minute  hour  day of month  month  day of week
    */5     *     *             *      *             every five minutes
    0       9     *             *      mon-fri       at 09:00 on weekdays
    30      2     1,15          *      *             at 02:30 on the 1st and the 15th

A field is `*`, a number, a range `a-b`, a list of these, and each with a step `/n`. Months and days have English names
of three letters; Sunday is 0 and 7. Where both days are restricted, either is enough, as cron has it.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_TEXT_LIMIT: Final = 256
_LEAP_YEAR: Final = 2000
_YEARS_AHEAD: Final = 40
"""29 February on a given day of the week comes at least so often, also over a year such as 2100."""


class CronLine(NamedTuple):
    """A cron line that was read: the numbers of each field."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    is_either_day: bool
    """Whether a day fits by one of the two fields; otherwise by both."""

    def next_after(self, moment: datetime) -> datetime:
        """Return the first minute after a moment, in UTC, at which the line fires.

        Raises:
            ValueError: there is none within 40 years.
        """
        first = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = first.replace(hour=0, minute=0)
        while day.year <= first.year + _YEARS_AHEAD:
            if day.month not in self.months:
                day = _first_of_next_month(day)
                continue
            if self._has_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute)
                        if found >= first:
                            return found
            day += timedelta(days=1)
        raise ValueError(f"cron fires at no time after {moment.isoformat()}")

    def _has_day(self, day: datetime) -> bool:
        is_day, is_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return is_day or is_weekday if self.is_either_day else is_day and is_weekday


def parse_cron(text: str) -> CronLine:
    """Read a cron line.

    Raises:
        ValueError: it is none, or fires at no time; names the field, what it is and what was expected.
    """
    parts = text.lower().split()
    if len(text) > _TEXT_LIMIT or len(parts) != len(_FIELDS):
        raise ValueError(
            f"cron={text[:_TEXT_LIMIT]!r} has {len(parts)} fields, expected 5: minute hour day-of-month month "
            "day-of-week, such as '*/5 * * * *'"
        )
    minutes, hours, days, months, weekdays = (
        _parse_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    # As cron has it: a field that begins with `*` restricts no day by itself, also with a step.
    is_either_day = not parts[2].startswith("*") and not parts[4].startswith("*")
    line = CronLine(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), is_either_day)
    longest = max(monthrange(_LEAP_YEAR, month)[1] for month in months)
    if min(days) > longest and not is_either_day:
        raise ValueError(f"cron={text!r} fires at no time: its months have at most {longest} days")
    return line


def _parse_field(text: str, name: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        range_text, slash, step_text = part.partition("/")
        first_text, dash, last_text = range_text.partition("-")
        is_whole = range_text == "*"
        first = low if is_whole else _parse_number(first_text, name, part, names)
        last = _parse_number(last_text, name, part, names) if dash else high if is_whole or slash else first
        step = _parse_number(step_text, name, part, {}) if slash else 1
        if not low <= first <= last <= high or step < 1:
            raise ValueError(f"cron: {name}={part!r} expected numbers from {low} to {high}, rising, and a step from 1")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _parse_number(text: str, name: str, part: str, names: dict[str, int]) -> int:
    if text in names:
        return names[text]
    if not re.fullmatch(r"[0-9]{1,4}", text):
        known = f" or one of {', '.join(names)}" if names else ""
        raise ValueError(f"cron: {name}={part!r} has {text!r}, expected a number{known}")
    return int(text)


def _first_of_next_month(day: datetime) -> datetime:
    return day.replace(year=day.year + day.month // 12, month=day.month % 12 + 1, day=1)
