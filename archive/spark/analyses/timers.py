"""Timers: those that fired are in the log; which were scheduled, moved or cancelled only the service knows."""

from __future__ import annotations

from typing import Final

from ....service_api.types import TimeUnit
from ....service_api.wire.log.layout import TIMER_EVENT
from ..source.timestamps import parse_time_unit
from .log_columns import END_POSITION, check_columns, micros_between
from .sql import DataFrame, sql

SCHEDULED: Final = "timer_scheduled"
CANCELLED: Final = "timer_cancelled"
_FIRED: Final = "fired"


def timers(log: DataFrame, scheduled: DataFrame | None = None, *, time_unit: TimeUnit | str | None = None) -> DataFrame:
    """Return one row for each timer that fired, and with `scheduled` for each that was set, and what became of it.

    Needs recording_id, position, frame_length, template_id, correlation_id and timestamp; of one recording if there is
    `scheduled`. Without that it gives, ordered by recording_id and position: recording_id, position,
    correlation_id, fired_timestamp, and since_last_us: microseconds since the same timer fired before.

    `scheduled` is what a service gave out while the log was replayed to it, as `replay_outputs`
    gives it: kind ("timer_scheduled", "timer_cancelled"; other rows are left alone), correlation_id as in the log,
    position (the end of the entry that was being delivered, in bytes), if it is there ordinal (the order within an
    entry), and deadline: a timestamp, or a number in `time_unit` ("ms", "us", "ns"; None: milliseconds). Then it
    gives, ordered by the first of the two positions:

    - correlation_id, scheduled_position, deadline (timestamp): NULL for a timer that was set before the replay began;
    - state: "fired", "cancelled", "moved" (set again before it fired) or "waiting" (at the end of the log);
    - ended_position: where it fired, was cancelled or moved; fired_timestamp;
    - late_us: microseconds from the deadline to the timestamp with which it fired, never much below 0. Timers that
      were due while nobody led are as late as the election took.

    Cost: one pass over the log's TimerEvents, and a window by timer over these and `scheduled`.

    Raises:
        ConfigurationError: a column is missing, or `time_unit` is none.
    """
    names = ("recording_id", "position", "frame_length", "template_id", "correlation_id", "timestamp")
    check_columns(log, "timers", *names)
    if scheduled is None:
        before = "lag(timestamp) OVER (PARTITION BY recording_id, correlation_id ORDER BY position)"
        return sql(
            f"""
            SELECT recording_id, position, correlation_id, timestamp AS fired_timestamp,
                {micros_between(before, "timestamp")} AS since_last_us
            FROM log
            WHERE template_id = {TIMER_EVENT}
            ORDER BY recording_id, position
            """,
            log=log,
        )
    check_columns(scheduled, "timers", "kind", "correlation_id", "position", "deadline")
    unit = parse_time_unit(time_unit) or TimeUnit.MILLIS
    steps = sql(
        f"""
        SELECT correlation_id, '{_FIRED}' AS kind, {END_POSITION} AS order_position, position,
            timestamp AS fired_timestamp, CAST(NULL AS TIMESTAMP) AS deadline, -1 AS ordinal
        FROM log
        WHERE template_id = {TIMER_EVENT}
        UNION ALL
        SELECT correlation_id, kind, position AS order_position, position, CAST(NULL AS TIMESTAMP) AS fired_timestamp,
            {_deadline(scheduled, unit)} AS deadline, {"ordinal" if "ordinal" in scheduled.columns else 0} AS ordinal
        FROM scheduled
        WHERE kind IN ('{SCHEDULED}', '{CANCELLED}')
        """,
        log=log,
        scheduled=scheduled,
    )
    return _match(steps)


def _match(steps: DataFrame) -> DataFrame:
    """Put what was set beside what became of it: the next step of the same timer.

    A timer that fires and is set again while that entry is delivered has both at one position: it fired first.
    """
    same = "OVER (PARTITION BY correlation_id ORDER BY order_position, ordinal)"
    return sql(
        f"""
        SELECT *, {micros_between("deadline", "fired_timestamp")} AS late_us
        FROM (
            SELECT correlation_id, CASE WHEN is_set THEN position END AS scheduled_position, deadline,
                CASE WHEN NOT is_set OR next_kind = '{_FIRED}' THEN 'fired'
                    WHEN next_kind = '{CANCELLED}' THEN 'cancelled'
                    WHEN next_kind = '{SCHEDULED}' THEN 'moved' ELSE 'waiting' END AS state,
                CASE WHEN is_set THEN next_position ELSE position END AS ended_position,
                CASE WHEN is_set THEN next_fired ELSE fired_timestamp END AS fired_timestamp
            FROM (
                SELECT *, kind = '{SCHEDULED}' AS is_set, lead(kind) {same} AS next_kind, lag(kind) {same} AS last_kind,
                    lead(position) {same} AS next_position, lead(fired_timestamp) {same} AS next_fired
                FROM steps
            )
            WHERE is_set OR (kind = '{_FIRED}' AND last_kind IS DISTINCT FROM '{SCHEDULED}')
        )
        ORDER BY coalesce(scheduled_position, ended_position), correlation_id
        """,
        steps=steps,
    )


def _deadline(scheduled: DataFrame, unit: TimeUnit) -> str:
    """The deadline as a timestamp."""
    if dict(scheduled.dtypes)["deadline"] == "timestamp":
        return "deadline"
    ticks = {
        TimeUnit.MILLIS: "try_multiply(deadline, 1000)",  # NULL where the deadline is beyond all time
        TimeUnit.MICROS: "deadline",
        TimeUnit.NANOS: "deadline div 1000",
    }
    return f"timestamp_micros({ticks[unit]})"
