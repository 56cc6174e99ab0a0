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

from .log_columns import check_columns, micros_between
from .sql import DataFrame, SparkSession, sql

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
    fields = [f"e.{name}" for name in (field.split()[0] for field in NODE_LOG_FIELDS) if name != "timestamp"]
    return (
        spark.read.text(names)
        .selectExpr(
            f"from_json(value, '{', '.join(NODE_LOG_FIELDS)}') AS e",
            "_metadata.file_name AS file",
            "_metadata.file_block_start + monotonically_increasing_id() AS line_number",
            "value AS line",
        )
        .where("e.event IS NOT NULL AND e.member_id IS NOT NULL")
        .selectExpr("try_to_timestamp(e.timestamp) AS timestamp", *fields, "file", "line_number", "line")
    )


def election_states(node_logs: DataFrame) -> DataFrame:
    """Return one row for each state that a member went through in each of its elections.

    Takes what `read_node_logs` gives. Gives member_id, election_number (1, 2, ... by member), leadership_term_id (in
    which the election closed; NULL if it never did), state, entered_at, left_at, duration_us, reason and detail (why it
    was entered), append_position and commit_position (bytes, when it was entered; NULL for the first INIT). left_at is
    NULL where a log ends in the middle of an election.

    Cost: that of reading the logs, and a window by member over the events of elections.
    """
    return sql(
        f"""
        SELECT member_id, election_number, closed_term_id AS leadership_term_id, state,
            timestamp AS entered_at, left_at,
            {micros_between("timestamp", "left_at")} AS duration_us, reason, detail, append_position, commit_position
        FROM (
            SELECT *, CASE WHEN event = '{_STARTED}' THEN 'INIT' ELSE new END AS state,
                lead(timestamp) OVER (PARTITION BY member_id, election_number ORDER BY event_number) AS left_at
            FROM events
            WHERE event IN ('{_STARTED}', '{_CHANGED}')
        )
        WHERE state <> 'CLOSED'
        ORDER BY entered_at, member_id
        """,
        events=_elections(node_logs),
    )


def member_elections(node_logs: DataFrame) -> DataFrame:
    """Return one row for each election of each member.

    Takes what `read_node_logs` gives. Gives member_id, election_number, reason and detail (why it began), started_at,
    closed_at, duration_us, leadership_term_id and leader_member_id (what came of it; these four are NULL if it never
    closed), ballots (how often the member stood), restarts (how often it had to begin again) and states (their names
    in order).

    Cost: that of `election_states`.
    """
    is_start, is_end, changed = (f"FILTER (WHERE event = '{name}')" for name in (_STARTED, _CLOSED, _CHANGED))
    return sql(
        f"""
        SELECT member_id, election_number, reason, detail, started_at, closed_at, leadership_term_id, leader_member_id,
            ballots, restarts, concat(`array`('INIT'), transform(changes, change -> change.new)) AS states,
            {micros_between("started_at", "closed_at")} AS duration_us
        FROM (
            SELECT member_id, election_number,
                max(reason) {is_start} AS reason,
                max(detail) {is_start} AS detail,
                min(timestamp) {is_start} AS started_at,
                max(timestamp) {is_end} AS closed_at,
                max(closed_term_id) AS leadership_term_id,
                max(leader_member_id) {is_end} AS leader_member_id,
                count(CASE WHEN new = 'CANDIDATE_BALLOT' THEN 1 END) {changed} AS ballots,
                count(CASE WHEN new = 'INIT' THEN 1 END) {changed} AS restarts,
                sort_array(collect_list(CASE WHEN event = '{_CHANGED}' THEN struct(event_number, new) END)) AS changes
            FROM events
            GROUP BY member_id, election_number
        )
        ORDER BY started_at, member_id
        """,
        events=_elections(node_logs),
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
    return sql(
        f"""
        SELECT timestamp, member_id, event, reason, detail,
            coalesce(candidate_member_id, leader_member_id) AS refused_member_id,
            coalesce(candidate_term_id, leadership_term_id) AS refused_term_id,
            election_number,
            CASE WHEN timestamp <= closed_time THEN closed_term_id END AS leadership_term_id
        FROM events
        WHERE event IN ({_listed(_REFUSED)})
        ORDER BY timestamp, member_id
        """,
        events=_elections(node_logs),
    )


def _elections(node_logs: DataFrame) -> DataFrame:
    """Keep the events of elections; number them, and the elections of each member, and say how each closed."""
    check_columns(node_logs, "elections of members", *_ELECTION_COLUMNS)
    in_order = "OVER (PARTITION BY member_id ORDER BY timestamp, line_number)"
    whole = "OVER (PARTITION BY member_id, election_number)"
    return sql(
        f"""
        SELECT *,
            max(CASE WHEN event = '{_CLOSED}' THEN leadership_term_id END) {whole} AS closed_term_id,
            max(CASE WHEN event = '{_CLOSED}' THEN timestamp END) {whole} AS closed_time
        FROM (
            SELECT *, count(CASE WHEN event = '{_STARTED}' THEN 1 END) OVER (
                    PARTITION BY member_id ORDER BY event_number ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
                ) AS election_number
            FROM (
                SELECT {", ".join(_ELECTION_COLUMNS)}, row_number() {in_order} AS event_number
                FROM node_logs
                WHERE event IN ({_listed((_STARTED, _CHANGED, _CLOSED, *_REFUSED))})
            )
        )
        WHERE election_number > 0
        """,
        node_logs=node_logs,
    )


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)
