"""The members' own logs about elections as DataFrames: reasons, states, refusals.

`trimaran node` writes one JSON object a line to standard error unless that is a terminal (`--log-format json`). The
events of an election are `election.started`, `election.state_changed`, `election.closed`, `vote.refused`,
`nomination.refused` and `leader.refused`; each has a `reason` to count by and a `detail` to read.

An *election of a member* is what follows one `election.started` of that member, up to the next one. It may go through
its states more than once, and ends by `election.closed` in a leadership term, or never if the process did first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .engine import Column, DataFrame, F, SparkSession, Window
from .log_columns import check_columns, micros_between

NODE_LOG_FIELDS: Final = (
    *("event string", "member_id int", "level string", "timestamp string", "reason string", "detail string"),
    *("old string", "new string", "leadership_term_id long", "leader_member_id int", "candidate_member_id int"),
    *("candidate_term_id long", "append_position long", "commit_position long", "log_position long"),
    *("cluster_session_id long", "pid long"),
)
"""The fields of an event that have a column, and their types."""
_STARTED: Final = "election.started"
_CHANGED: Final = "election.state_changed"
_CLOSED: Final = "election.closed"
_REFUSED: Final = ("vote.refused", "nomination.refused", "leader.refused")
_ELECTION_COLUMNS: Final = (
    *("member_id", "timestamp", "event", "reason", "detail", "new", "leadership_term_id", "leader_member_id"),
    *("candidate_member_id", "candidate_term_id", "append_position", "commit_position", "line_number"),
)


def read_node_logs(spark: SparkSession, paths: str | Path | Sequence[str | Path]) -> DataFrame:
    """Read the JSON lines that members logged: one row for each event of a member.

    `paths` are files or directories of them; the process that runs the task must see them. A file may hold several
    runs of a member, and files may hold several members. Lines that are no events of a member are left out.

    Gives timestamp (microseconds, the member's wall clock), member_id, event, level, the fields that events of
    elections and sessions have (reason, detail, old, new, leadership_term_id, leader_member_id, candidate_member_id,
    candidate_term_id, append_position, commit_position, log_position, cluster_session_id, pid; NULL where an event has
    none), file, line_number (grows within a file, not by one) and line (the JSON itself, for all other fields).

    Cost: one pass over the files, whose parsing is Spark's own.
    """
    names = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    event = F.from_json("value", ", ".join(NODE_LOG_FIELDS))
    return (
        spark.read.text(names)
        .select(
            event.alias("e"),
            F.col("_metadata.file_name").alias("file"),
            (F.col("_metadata.file_block_start") + F.monotonically_increasing_id()).alias("line_number"),
            F.col("value").alias("line"),
        )
        .where(F.col("e.event").isNotNull() & F.col("e.member_id").isNotNull())
        .select(
            F.try_to_timestamp("e.timestamp").alias("timestamp"),
            *(f"e.{name}" for name in (field.split()[0] for field in NODE_LOG_FIELDS) if name != "timestamp"),
            *("file", "line_number", "line"),
        )
    )


def election_states(node_logs: DataFrame) -> DataFrame:
    """Return one row for each state that a member went through in each of its elections.

    Takes what `read_node_logs` gives. Gives member_id, election_number (1, 2, ... by member), leadership_term_id (in
    which the election closed; NULL if it never did), state, entered_at, left_at, duration_us, reason and detail (why it
    was entered), append_position and commit_position (bytes, when it was entered; NULL for the first INIT). left_at is
    NULL where a log ends in the middle of an election.

    Cost: that of reading the logs, and a window by member over the events of elections.
    """
    runs = _elections(node_logs).where(F.col("event").isin(_STARTED, _CHANGED))
    following = Window.partitionBy("member_id", "election_number").orderBy(*_ORDER)
    left_at = F.lead("timestamp").over(following)
    return (
        runs.withColumn("left_at", left_at)
        .withColumn("state", F.when(F.col("event") == _STARTED, "INIT").otherwise(F.col("new")))
        .where(F.col("state") != "CLOSED")
        .select(
            *("member_id", "election_number", F.col("closed_term_id").alias("leadership_term_id"), "state"),
            *(F.col("timestamp").alias("entered_at"), "left_at"),
            micros_between(F.col("timestamp"), F.col("left_at")).alias("duration_us"),
            *("reason", "detail", "append_position", "commit_position"),
        )
        .orderBy("entered_at", "member_id")
    )


def member_elections(node_logs: DataFrame) -> DataFrame:
    """Return one row for each election of each member.

    Takes what `read_node_logs` gives. Gives member_id, election_number, reason and detail (why it began), started_at,
    closed_at, duration_us, leadership_term_id and leader_member_id (what came of it; these four are NULL if it never
    closed), ballots (how often the member stood), restarts (how often it had to begin again) and states (their names
    in order).

    Cost: that of `election_states`.
    """
    check_columns(node_logs, "member_elections", *_ELECTION_COLUMNS)
    is_start, is_end, changed = (F.col("event") == name for name in (_STARTED, _CLOSED, _CHANGED))
    names = F.sort_array(F.collect_list(F.when(changed, F.struct("timestamp", "line_number", "new"))))
    return (
        _elections(node_logs)
        .groupBy("member_id", "election_number")
        .agg(
            F.max(F.when(is_start, F.col("reason"))).alias("reason"),
            F.max(F.when(is_start, F.col("detail"))).alias("detail"),
            F.min(F.when(is_start, F.col("timestamp"))).alias("started_at"),
            F.max(F.when(is_end, F.col("timestamp"))).alias("closed_at"),
            F.max("closed_term_id").alias("leadership_term_id"),
            F.max(F.when(is_end, F.col("leader_member_id"))).alias("leader_member_id"),
            F.count_if(changed & (F.col("new") == "CANDIDATE_BALLOT")).alias("ballots"),
            F.count_if(changed & (F.col("new") == "INIT")).alias("restarts"),
            F.concat(F.array(F.lit("INIT")), names.getField("new")).alias("states"),
        )
        .withColumn("duration_us", micros_between(F.col("started_at"), F.col("closed_at")))
        .orderBy("started_at", "member_id")
    )


def refusals(node_logs: DataFrame) -> DataFrame:
    """Return one row for each line about a vote, nomination or leader that a member refused.

    A line about votes may stand for several: of one candidate and reason a member logs the first, and then one in ten
    seconds, with their number as `count`.

    Takes what `read_node_logs` gives. Gives timestamp, member_id (who refused; with nomination.refused, who did not
    stand), event, reason, detail, refused_member_id (the candidate or leader; NULL with nomination.refused),
    refused_term_id (the one it wanted to lead), election_number and leadership_term_id (what came of the election that
    the member was in; NULL if it was in none, or that never closed).

    Cost: that of `election_states`.
    """
    return (
        _elections(node_logs)
        .where(F.col("event").isin(*_REFUSED))
        .select(
            *("timestamp", "member_id", "event", "reason", "detail"),
            F.coalesce("candidate_member_id", "leader_member_id").alias("refused_member_id"),
            F.coalesce("candidate_term_id", "leadership_term_id").alias("refused_term_id"),
            "election_number",
            F.when(F.col("timestamp") <= F.col("closed_time"), F.col("closed_term_id")).alias("leadership_term_id"),
        )
        .orderBy("timestamp", "member_id")
    )


_ORDER: Final = ("timestamp", "line_number")


def _elections(node_logs: DataFrame) -> DataFrame:
    """Keep the events of elections; number the elections of each member, and say how each closed."""
    check_columns(node_logs, "elections of members", *_ELECTION_COLUMNS)
    so_far = Window.partitionBy("member_id").orderBy(*_ORDER).rowsBetween(Window.unboundedPreceding, 0)
    whole = Window.partitionBy("member_id", "election_number")
    is_closed = F.col("event") == _CLOSED
    return (
        node_logs.where(F.col("event").isin(_STARTED, _CHANGED, _CLOSED, *_REFUSED))
        .select(*_ELECTION_COLUMNS)
        .withColumn("election_number", _count(F.col("event") == _STARTED).over(so_far))
        .where(F.col("election_number") > 0)
        .withColumn("closed_term_id", F.max(F.when(is_closed, F.col("leadership_term_id"))).over(whole))
        .withColumn("closed_time", F.max(F.when(is_closed, F.col("timestamp"))).over(whole))
    )


def _count(condition: Column) -> Column:
    return F.sum(F.when(condition, 1).otherwise(0))
