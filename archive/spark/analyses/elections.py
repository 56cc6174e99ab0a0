"""Changes of leadership: what the log shows, and the reasons from the members' own logs."""

from __future__ import annotations

from .log_columns import micros_between
from .node_logs import member_elections, refusals
from .sql import DataFrame, sql
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
    before = "OVER (PARTITION BY recording_id ORDER BY leadership_term_id)"
    changes = sql(
        f"""
        SELECT *, {micros_between("last_timestamp", "first_timestamp")} AS gap_us
        FROM (
            SELECT recording_id, leadership_term_id, start_position AS position,
                lag(leader_member_id) {before} AS leader_before, leader_member_id AS leader_after,
                leadership_term_id - lag(leadership_term_id) {before} - 1 AS skipped_terms,
                lag(last_timestamp) {before} AS last_timestamp, first_timestamp
            FROM terms
        )
        ORDER BY recording_id, leadership_term_id
        """,
        terms=term_timeline(log, events=events),
    )
    if node_logs is None:
        return changes
    return sql(
        """
        SELECT /*+ BROADCAST(reasons) */
            recording_id, leadership_term_id, position, leader_before, leader_after, skipped_terms,
            last_timestamp, first_timestamp, gap_us, start_reason, start_detail, start_member_id, started_at,
            leader_ready_at, election_us, ballots, members, refusals
        FROM changes
        LEFT JOIN (SELECT * FROM told) AS reasons USING (leadership_term_id)
        ORDER BY recording_id, leadership_term_id
        """,
        changes=changes,
        told=_reasons(node_logs),
    )


def _reasons(node_logs: DataFrame) -> DataFrame:
    """One row for each term in which an election closed."""
    of_term = "OVER (PARTITION BY leadership_term_id)"
    leader_closed_at = "CASE WHEN member_id = leader_member_id THEN closed_at END"
    return sql(
        f"""
        SELECT leadership_term_id, start_reason, start_detail, start_member_id, started_at, leader_ready_at,
            {micros_between("started_at", "leader_ready_at")} AS election_us,
            ballots, members, coalesce(refusals, `array`()) AS refusals
        FROM (
            SELECT leadership_term_id,
                min_by(reason, (started_at, member_id)) AS start_reason,
                min_by(detail, (started_at, member_id)) AS start_detail,
                min_by(member_id, (started_at, member_id)) AS start_member_id,
                min(started_at) AS started_at, max(leader_ready_at) AS leader_ready_at, sum(ballots) AS ballots,
                sort_array(collect_list(
                    struct(started_at, member_id, reason, detail, closed_at, duration_us, ballots, restarts, states)
                )) AS members
            FROM (
                SELECT *, coalesce(max({leader_closed_at}) {of_term}, max(closed_at) {of_term}) AS leader_ready_at
                FROM told
                WHERE leadership_term_id IS NOT NULL
            )
            WHERE started_at <= leader_ready_at
            GROUP BY leadership_term_id
        )
        LEFT JOIN (
            SELECT coalesce(leadership_term_id, refused_term_id) AS leadership_term_id,
                sort_array(collect_list(
                    struct(timestamp, member_id, event, reason, detail, refused_member_id, refused_term_id)
                )) AS refusals
            FROM refused
            GROUP BY 1
        ) USING (leadership_term_id)
        """,
        told=member_elections(node_logs),
        refused=refusals(node_logs),
    )
