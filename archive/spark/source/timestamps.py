"""Timestamps of a log in the microseconds that Spark's TimestampType has, and the units that a user may name."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ....service_api.errors import ConfigurationError
from ....service_api.types import TimeUnit

MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
TIME_UNITS: Final = {"ms": TimeUnit.MILLIS, "us": TimeUnit.MICROS, "ns": TimeUnit.NANOS}

_LIMIT_MS: Final = ((1 << 63) - 1) // 1000


def to_microseconds(column: Any) -> Any:
    """Turn an Arrow array of timestamps of any unit into one of microseconds.

    Nanoseconds are cut to microseconds. Milliseconds that 64 bits of microseconds cannot hold (beyond the year 290,000,
    so no time that anybody means) become null.
    """
    if column.type == MICROSECONDS:
        return column
    if column.type.unit == "ns":
        return column.cast(MICROSECONDS, safe=False)
    try:
        return column.cast(MICROSECONDS)
    except pa.ArrowInvalid:
        numbers = column.view(pa.int64())
        can_be = pc.and_(pc.greater_equal(numbers, -_LIMIT_MS), pc.less_equal(numbers, _LIMIT_MS))
        return pc.if_else(can_be, numbers, None).view(column.type).cast(MICROSECONDS)


def parse_time_unit(given: TimeUnit | str | None) -> TimeUnit | None:
    """Read the unit of the cluster's clock; None stays None.

    Raises:
        ConfigurationError: there is no such unit.
    """
    if given is None or isinstance(given, TimeUnit):
        return given
    if given not in TIME_UNITS:
        raise ConfigurationError(f"time_unit={given!r} expected one of {', '.join(TIME_UNITS)}")
    return TIME_UNITS[given]
