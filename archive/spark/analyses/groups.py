"""The traffic of the groups of a cluster: who of them has how much of it."""

from __future__ import annotations

from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from ...reading.frame_columns import GROUP_COLUMN
from .log_columns import check_columns, check_interval, micros_between
from .sql import DataFrame, sql


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
    seconds = f"({micros_between('from_timestamp', 'to_timestamp')} / 1e6)"
    return sql(
        f"""
        SELECT *, messages / {seconds} AS messages_per_s
        FROM (
            SELECT `group`, bucket.`start` AS from_timestamp, bucket.`end` AS to_timestamp, count(*) AS messages
            FROM (
                SELECT `group`, `window`(timestamp, '{check_interval(interval)}') AS bucket
                FROM log
                WHERE template_id = {SESSION_MESSAGE_HEADER} AND timestamp IS NOT NULL
            )
            GROUP BY `group`, bucket
        )
        ORDER BY `group`, from_timestamp
        """,
        log=log,
    )
