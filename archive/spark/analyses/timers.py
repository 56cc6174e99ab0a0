"""Timers: those that fired are in the log; which were scheduled, moved or cancelled only the service knows."""

from __future__ import annotations

from typing import Final

from ....service_api.types import TimeUnit
from ....service_api.wire.log.layout import TIMER_EVENT
from ..source.timestamps import parse_time_unit
from .engine import Column, DataFrame, F, Window
from .log_columns import check_columns, end_position, micros_between

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
    fired = log.where(F.col("template_id") == TIMER_EVENT)
    if scheduled is None:
        same = Window.partitionBy("recording_id", "correlation_id").orderBy("position")
        before = F.lag("timestamp").over(same)
        return fired.select(
            *("recording_id", "position", "correlation_id", F.col("timestamp").alias("fired_timestamp")),
            micros_between(before, F.col("timestamp")).alias("since_last_us"),
        ).orderBy("recording_id", "position")
    check_columns(scheduled, "timers", "kind", "correlation_id", "position", "deadline")
    unit = parse_time_unit(time_unit) or TimeUnit.MILLIS
    ordinal = F.col("ordinal") if "ordinal" in scheduled.columns else F.lit(0)
    steps = fired.select(
        "correlation_id",
        F.lit(_FIRED).alias("kind"),
        end_position().alias("order_position"),
        "position",
        F.col("timestamp").alias("fired_timestamp"),
        F.lit(None).cast("timestamp").alias("deadline"),
        F.lit(-1).alias("ordinal"),
    ).unionByName(
        scheduled.where(F.col("kind").isin(SCHEDULED, CANCELLED)).select(
            *("correlation_id", "kind", F.col("position").alias("order_position"), "position"),
            F.lit(None).cast("timestamp").alias("fired_timestamp"),
            _deadline(scheduled, unit).alias("deadline"),
            ordinal.alias("ordinal"),
        )
    )
    return _match(steps)


def _match(steps: DataFrame) -> DataFrame:
    """Put what was set beside what became of it: the next step of the same timer.

    A timer that fires and is set again while that entry is delivered has both at one position: it fired first.
    """
    same = Window.partitionBy("correlation_id").orderBy("order_position", "ordinal")
    states = {_FIRED: "fired", CANCELLED: "cancelled", SCHEDULED: "moved"}
    next_kind = F.lead("kind").over(same)
    state = F.coalesce(*(F.when(F.col("next_kind") == kind, F.lit(name)) for kind, name in states.items()))
    is_set = F.col("kind") == SCHEDULED
    return (
        steps.withColumns(
            {
                "next_kind": next_kind,
                "last_kind": F.lag("kind").over(same),
                "next_position": F.lead("position").over(same),
                "next_fired": F.lead("fired_timestamp").over(same),
            }
        )
        .where(is_set | ((F.col("kind") == _FIRED) & ~F.col("last_kind").eqNullSafe(SCHEDULED)))
        .select(
            "correlation_id",
            F.when(is_set, F.col("position")).alias("scheduled_position"),
            "deadline",
            F.when(is_set, F.coalesce(state, F.lit("waiting"))).otherwise("fired").alias("state"),
            F.when(is_set, F.col("next_position")).otherwise(F.col("position")).alias("ended_position"),
            F.when(is_set, F.col("next_fired")).otherwise(F.col("fired_timestamp")).alias("fired_timestamp"),
        )
        .withColumn("late_us", micros_between(F.col("deadline"), F.col("fired_timestamp")))
        .orderBy(F.coalesce("scheduled_position", "ended_position"), "correlation_id")
    )


def _deadline(scheduled: DataFrame, unit: TimeUnit) -> Column:
    """The deadline as a timestamp."""
    if dict(scheduled.dtypes)["deadline"] == "timestamp":
        return F.col("deadline")
    ticks = {
        TimeUnit.MILLIS: F.try_multiply("deadline", F.lit(1000)),  # NULL where the deadline is beyond all time
        TimeUnit.MICROS: F.col("deadline"),
        TimeUnit.NANOS: F.expr("deadline div 1000"),
    }
    return F.timestamp_micros(ticks[unit])
