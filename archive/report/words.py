"""Formats numbers for people: counts, bytes, durations, times. Each text is short and has its unit."""

from __future__ import annotations

from datetime import datetime
from typing import Final

ABSENT: Final = "–"
"""What a table shows where there is no value."""

_SECOND_US: Final = 1_000_000
_MINUTE_US: Final = 60 * _SECOND_US
_HOUR_US: Final = 60 * _MINUTE_US
_DAY_US: Final = 24 * _HOUR_US
_BINARY_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def count(value: float, what: str | None = None) -> str:
    """Write a number of things, with their name if there is one: "1 message", "1,018 messages"."""
    number = f"{int(value):,}"
    if what is None:
        return number
    return f"{number} {what}" if int(value) == 1 else f"{number} {plural(what)}"


def plural(what: str) -> str:
    """Return the plural of a name: "message" is "messages", "change of leader" is "changes of leader"."""
    first, *rest = what.split(" of ", 1)
    many = f"{first[:-1]}ies" if first.endswith("y") and first[-2] not in "aeiou" else f"{first}s"
    return " of ".join([many, *rest])


def length(value_bytes: float) -> str:
    """Write a number of bytes with three digits: "436 bytes", "426 KiB", "1.21 GiB"."""
    value, unit = float(value_bytes), _BINARY_UNITS[0]
    for unit in _BINARY_UNITS:
        if abs(value) < 1000 or unit == _BINARY_UNITS[-1]:
            break
        value /= 1024
    return count(value, "byte") if unit == "bytes" else f"{_three_digits(value)} {unit}"


def duration(value_us: float) -> str:
    """Write a number of microseconds with three digits: "85 µs", "4.2 ms", "0.31 s", "3 min 20 s", "2 h 5 min"."""
    if value_us == 0:
        return "0 s"
    if abs(value_us) < 1_000:
        return f"{value_us:.0f} µs"
    if abs(value_us) < 100_000:
        return f"{_three_digits(value_us / 1_000)} ms"
    if abs(value_us) < 2 * _MINUTE_US:
        return f"{_three_digits(value_us / _SECOND_US)} s"
    large, small, names = (
        (_MINUTE_US, _SECOND_US, ("min", "s"))
        if abs(value_us) < 2 * _HOUR_US
        else (_HOUR_US, _MINUTE_US, ("h", "min"))
        if abs(value_us) < 2 * _DAY_US
        else (_DAY_US, _HOUR_US, ("d", "h"))
    )
    whole = round(value_us / small)
    step = large // small
    return f"{whole // step} {names[0]} {whole % step} {names[1]}"


def rate(value_per_s: float, what: str) -> str:
    """Write how many things there are in a second: "12.5 messages/s", "1,204 messages/s"."""
    number = f"{value_per_s:,.0f}" if value_per_s >= 100 else _three_digits(value_per_s)
    return f"{number} {plural(what)}/s"


def share(part: float) -> str:
    """Write a part of a whole, which is 1: "12 %", "0.4 %"; only the whole is "100 %", and only nothing is "0 %"."""
    percent = 100 * part
    if 0 < percent < 0.1:
        return "under 0.1 %"
    if 99.5 <= percent < 100:
        return f"{min(percent, 99.9):.1f} %"
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def moment(at: datetime) -> str:
    """Write a moment to the millisecond: "2026-11-21 04:08:34.705"."""
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03}"


def listing(names: list[str]) -> str:
    """Write names one after the other: "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _three_digits(value: float) -> str:
    """Write a number with three digits that count, and without zeros after its point."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
