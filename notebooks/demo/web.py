"""What the log of the demo says about web requests: their fields, and what became of them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from examples.quota_watch import QuotaWatch
from examples.replays_on_spark import replay_outputs
from trimaran.archive.spark import decode_payload

from .traffic import MIDNIGHT_S

REQUEST_KEY = ["cluster_session_id", "request_sequence"]
"""What tells a request from all others. One that was sent again to a new leader is in the log twice, and ran once."""


def web_requests(log: DataFrame) -> DataFrame:
    """Give the web requests of a log: the columns of `REQUEST_KEY`, host, hour of the morning (0 to 12), and url."""
    host, time_s, url = (F.split("payload", "\t")[i] for i in range(3))
    hour = F.floor((time_s.cast("long") - MIDNIGHT_S) / 3600).cast("int")
    requests = decode_payload(log, str, requests=True)
    columns = requests.select(*REQUEST_KEY, host.alias("host"), hour.alias("hour"), url.alias("url"))
    return columns.dropDuplicates(REQUEST_KEY)


def decisions(spark: SparkSession, member: Path, service: type[QuotaWatch] = QuotaWatch) -> DataFrame:
    """Replay a member's log to a service: the columns of `REQUEST_KEY`, and decision: allowed or denied."""
    replies = replay_outputs(spark, member, service, kinds=["reply"], bound="recorded")
    decision = F.split(F.col("payload").cast("string"), "\t")[0]
    return replies.select(
        "cluster_session_id", F.col("correlation_id").alias("request_sequence"), decision.alias("decision")
    ).dropDuplicates(REQUEST_KEY)


def count_decisions(decided: DataFrame, by: str) -> DataFrame:
    """Count the requests that were allowed and denied, for each value of a column."""
    return decided.groupBy(by).pivot("decision", ["allowed", "denied"]).count().na.fill(0)
