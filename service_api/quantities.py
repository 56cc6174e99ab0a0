"""Sizes, durations and times as people write them: one parser for each, for settings, commands and Spark options."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from .types import TICKS_PER_MS, TimeUnit

_SIZE: Final = re.compile(r"([0-9]{1,19}) ?(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_SIZE_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_SIZE_LIMIT_BYTES: Final = 1 << 63

_DURATION: Final = re.compile(r"([0-9]{1,15}) ?(ms|s|m|h)?", re.IGNORECASE)
_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

_TICKS: Final = re.compile(r"-?[0-9]{1,19}")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_size_bytes(text: str) -> int:
    """Read a size such as `67108864`, `64MiB`, `64m` or `64 MB`, in bytes: every unit is a power of 1,024.

    Raises:
        ValueError: the text is none of these.
    """
    match = _SIZE.fullmatch(text.strip())
    size = int(match[1]) << _SIZE_SHIFTS[(match[2] or "").lower()] if match else _SIZE_LIMIT_BYTES
    if size >= _SIZE_LIMIT_BYTES:
        raise ValueError(f"bad size: {text!r} expected a number of bytes, such as 67108864, 64MiB or 64m")
    return size


def format_size_bytes(length: int) -> str:
    """Write a size in the largest unit that divides it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if length >= factor and length % factor == 0:
            return f"{length // factor}{unit}"
    return str(length)


def parse_duration_ms(text: str) -> int:
    """Read a duration such as `500`, `500ms`, `2s`, `1m` or `1h`, in milliseconds.

    Raises:
        ValueError: the text is none of these.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"bad duration: {text!r} expected milliseconds, such as 500, 500ms, 2s, 1m or 1h")
    return int(match[1]) * _DURATION_UNITS_MS[(match[2] or "ms").lower()]


def parse_time(text: str) -> int | datetime:
    """Read a time: a number in a log's own unit, or a date such as `2026-11-21T04:22:31Z`, in UTC unless it says else.

    Raises:
        ValueError: the text is none of these.
    """
    if _TICKS.fullmatch(text):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"bad time: {text!r} expected a number, or a date such as 2026-11-21T04:22:31Z") from None


def time_in_unit(moment: int | datetime, time_unit: TimeUnit) -> int:
    """Return a time in the unit of a log. A date without a zone is one of UTC."""
    if not isinstance(moment, datetime):
        return moment
    return microseconds_of(moment) * TICKS_PER_MS[time_unit] // 1_000


def microseconds_of(moment: datetime) -> int:
    """Return the microseconds from the Unix epoch to a date. A date without a zone is one of UTC."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def format_date(microseconds: int) -> str:
    """Write microseconds since the Unix epoch as a date in UTC that `parse_time` reads; what is no date as a number."""
    try:
        return f"{_EPOCH + microseconds * _MICROSECOND:%Y-%m-%dT%H:%M:%S.%fZ}"
    except OverflowError:
        return str(microseconds)


def parse_app_version(text: str) -> int:
    """Pack `major.minor.patch` into an int, eight bits each. Source: Aeron `SemanticVersion`.

    Raises:
        ValueError: not three numbers of 0 to 255.
    """
    numbers = [int(part) for part in text.split(".")]
    if len(numbers) != 3 or not all(0 <= number <= 255 for number in numbers):
        raise ValueError(text)
    return numbers[0] << 16 | numbers[1] << 8 | numbers[2]


def format_app_version(packed: int) -> str:
    """Write a packed version as `major.minor.patch`."""
    return f"{packed >> 16 & 0xFF}.{packed >> 8 & 0xFF}.{packed & 0xFF}"
