"""Changes of leadership: what the log shows, and the reasons from the members' own logs."""

from __future__ import annotations

from .engine import Column, DataFrame, F, Window
from .log_columns import micros_between
from .node_logs import member_elections, refusals
from .terms import term_timeline


def elections(log: DataFrame, node_logs: DataFrame | None = None, *, events: DataFrame | None = None) -> DataFrame:
    """Return one row for each change of leadership term, with the reasons if the members' own logs are there.

    Needs what `term_timeline` does (`events` as there). `node_logs` is what `read_node_logs` gives, of as many members
    as there are logs of. Gives, ordered by recording_id and leadership_term_id:

    - recording_id, leadership_term_id, position: the new term, and where in the log it begins, in bytes;
    - leader_before and leader_after: member ids (NULL before the first term of the log, or if not known);
    - skipped_terms: how many terms were stood for in between, and nothing came of them;
    - last_timestamp and first_timestamp: of the last entry before and the first one after, by the clocks of the two
      leaders; gap_us: microseconds between these, in which the log made no progress.

    With `node_logs` also, all NULL or empty where no member's log tells of that term:

    - start_reason, start_detail, start_member_id, started_at: why, where and when the first member began to elect;
    - leader_ready_at: when the new leader, or failing its log the last member, closed its election;
      election_us: microseconds in between;
    - ballots: how often a member stood;
    - members: for each member that was in it before the leader was ready, ordered by the time it began: member_id,
      reason, detail, started_at, closed_at, duration_us, ballots, restarts, states;
    - refusals: what was refused meanwhile: timestamp, member_id, event, reason, detail, refused_member_id,
      refused_term_id.

    Cost: that of `term_timeline`, and of reading the node logs.
    """
    by_recording = Window.partitionBy("recording_id").orderBy("leadership_term_id")

    def before(name: str) -> Column:
        return F.lag(name).over(by_recording)

    changes = (
        term_timeline(log, events=events)
        .withColumn("leader_before", before("leader_member_id"))
        .withColumn("ended", before("last_timestamp"))
        .withColumn("skipped_terms", F.col("leadership_term_id") - before("leadership_term_id") - 1)
        .select(
            *("recording_id", "leadership_term_id", F.col("start_position").alias("position")),
            *("leader_before", F.col("leader_member_id").alias("leader_after")),
            *("skipped_terms", F.col("ended").alias("last_timestamp"), "first_timestamp"),
            micros_between(F.col("ended"), F.col("first_timestamp")).alias("gap_us"),
        )
    )
    if node_logs is not None:
        reasons = F.broadcast(_reasons(node_logs))
        changes = changes.join(reasons, "leadership_term_id", "left").select(
            *changes.columns, *(name for name in reasons.columns if name != "leadership_term_id")
        )
    return changes.orderBy("recording_id", "leadership_term_id")


def _reasons(node_logs: DataFrame) -> DataFrame:
    """One row for each term in which an election closed."""
    told = member_elections(node_logs).where(F.col("leadership_term_id").isNotNull())
    of_term = Window.partitionBy("leadership_term_id")
    is_leader = F.col("member_id") == F.col("leader_member_id")
    ready_at = F.coalesce(
        F.max(F.when(is_leader, F.col("closed_at"))).over(of_term), F.max(F.col("closed_at")).over(of_term)
    )
    member = F.struct(
        *("started_at", "member_id", "reason", "detail", "closed_at", "duration_us", "ballots", "restarts", "states")
    )
    taking_part = told.withColumn("leader_ready_at", ready_at).where(F.col("started_at") <= F.col("leader_ready_at"))
    first = F.struct("started_at", "member_id")
    terms = taking_part.groupBy("leadership_term_id").agg(
        F.min_by("reason", first).alias("start_reason"),
        F.min_by("detail", first).alias("start_detail"),
        F.min_by("member_id", first).alias("start_member_id"),
        F.min("started_at").alias("started_at"),
        F.max("leader_ready_at").alias("leader_ready_at"),
        micros_between(F.min("started_at"), F.max("leader_ready_at")).alias("election_us"),
        F.sum("ballots").alias("ballots"),
        F.sort_array(F.collect_list(member)).alias("members"),
    )
    refused = (
        refusals(node_logs)
        .withColumn("leadership_term_id", F.coalesce("leadership_term_id", "refused_term_id"))
        .groupBy("leadership_term_id")
        .agg(
            F.sort_array(
                F.collect_list(
                    F.struct(
                        *("timestamp", "member_id", "event", "reason", "detail", "refused_member_id", "refused_term_id")
                    )
                )
            ).alias("refusals")
        )
    )
    none = F.array().cast(refused.schema["refusals"].dataType)
    return terms.join(refused, "leadership_term_id", "left").withColumn("refusals", F.coalesce("refusals", none))
