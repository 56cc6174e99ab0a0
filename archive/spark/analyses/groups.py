"""The traffic of the groups of a cluster: who of them has how much of it."""

from __future__ import annotations

from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from ...reading.frame_columns import GROUP_COLUMN
from .engine import DataFrame, F
from .log_columns import check_columns, micros_between


def group_traffic(log: DataFrame, *, interval: str = "1 second") -> DataFrame:
    """Return how many messages of clients and services each group logged in each interval of time.

    Needs group, template_id and timestamp: what is read of the directory of a member with groups. `interval` is a
    length of time as Spark writes it ("1 second", "5 minutes").

    Gives, ordered by group and from_timestamp: group; from_timestamp and to_timestamp, the interval; messages;
    messages_per_s. Intervals without a message have no row. Times are those of each group's leader: clocks of
    different groups may differ as those of machines do.

    Cost: one pass.
    """
    check_columns(log, "group_traffic", GROUP_COLUMN, "template_id", "timestamp")
    sent = log.where((F.col("template_id") == SESSION_MESSAGE_HEADER) & F.col("timestamp").isNotNull())
    counted = sent.groupBy("group", F.window("timestamp", interval).alias("window")).agg(
        F.count(F.lit(1)).alias("messages")
    )
    placed = counted.withColumns({"from_timestamp": F.col("window.start"), "to_timestamp": F.col("window.end")})
    seconds = micros_between(F.col("from_timestamp"), F.col("to_timestamp")) / 1e6
    return placed.select(
        *("group", "from_timestamp", "to_timestamp", "messages"), (F.col("messages") / seconds).alias("messages_per_s")
    ).orderBy("group", "from_timestamp")
