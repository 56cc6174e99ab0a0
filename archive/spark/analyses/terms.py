"""The leadership terms of a log, and the same as bars to draw."""

from __future__ import annotations

from typing import Final

from .log_columns import EXTENT, INT64_MAX, PAYLOAD_LENGTH, check_columns, micros_between
from .log_events import new_terms
from .sql import DataFrame, sql

_COLUMNS: Final = (
    *("recording_id", "position", "frame_length", "flags", "type", "template_id", "leadership_term_id", "timestamp"),
)


def term_timeline(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return one row for each leadership term: who led, from where to where, how much, and how long nothing came after.

    Needs recording_id, position, frame_length, flags, type, template_id, leadership_term_id, timestamp of frames (or
    of messages), and of the NewLeadershipTermEvents payload. `events` is where these are read from: the log itself
    unless told, so name a DataFrame with payloads where `log` was read without them.

    Gives, ordered by recording_id and leadership_term_id:

    - recording_id, leadership_term_id, leader_member_id;
    - start_position and stop_position, length_bytes: the range of the log, in bytes, padding included;
    - first_timestamp and last_timestamp of its entries; hand_over_us: microseconds from the last one to the first
      of the next term, in which nothing was appended (NULL for the last term, negative if the new leader's clock is
      behind);
    - frames (padding included), messages, payload_bytes: what follows the headers of the frames;
    - time_unit ("ms", "us", "ns"), app_version, log_session_id: what the leader said when it began. These and
      leader_member_id are NULL where that entry was purged with the beginning of the log.

    A term in which no leader appended anything is not in the log and not here.

    Cost: one pass over the log and two over `events`; frames that name no term (padding and the later frames of long
    messages) are compared with each term's range. Nothing but the terms is ordered.
    """
    check_columns(log, "term_timeline", *_COLUMNS)
    source = log if events is None else events
    in_order = "OVER (PARTITION BY recording_id ORDER BY leadership_term_id)"
    return sql(
        f"""
        SELECT /*+ BROADCAST(leaders) */
            recording_id, leadership_term_id, leader_member_id, start_position, stop_position,
            stop_position - start_position AS length_bytes, first_timestamp, last_timestamp,
            {micros_between("last_timestamp", f"lead(first_timestamp) {in_order}")} AS hand_over_us,
            frames, messages, payload_bytes, time_unit, app_version, log_session_id
        FROM (
            SELECT recording_id, leadership_term_id,
                min(start_position) AS start_position, max(stop_position) AS stop_position,
                min(first_timestamp) AS first_timestamp, max(last_timestamp) AS last_timestamp,
                sum(frames) AS frames, sum(messages) AS messages, sum(payload_bytes) AS payload_bytes
            FROM (
                SELECT recording_id,
                    coalesce(term_id, min(term_id) OVER (PARTITION BY recording_id)) AS leadership_term_id,
                    start_position, stop_position, first_timestamp, last_timestamp, frames, messages, payload_bytes
                FROM counts
            )
            GROUP BY recording_id, leadership_term_id
        )
        LEFT JOIN (
            SELECT recording_id, leadership_term_id, leader_member_id, time_unit, app_version, log_session_id
            FROM began
        ) AS leaders USING (recording_id, leadership_term_id)
        ORDER BY recording_id, leadership_term_id
        """,
        counts=_count_terms(log, source),
        began=new_terms(source),
    )


def leaders(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return bars to draw: who led from when to when, and the stretches in which nobody did.

    Needs what `term_timeline` does. Gives recording_id, leadership_term_id, leader_member_id, is_led, from_timestamp,
    to_timestamp and duration_us, in the order of time. A term is led from its first entry to its last; between that and
    the first entry of the next is a row with is_led = false, the next term's id, and no leader_member_id.

    Cost: that of `term_timeline`.
    """
    return sql(
        f"""
        SELECT *, {micros_between("from_timestamp", "to_timestamp")} AS duration_us
        FROM (
            SELECT recording_id, leadership_term_id,
                CASE WHEN is_led THEN leader_member_id END AS leader_member_id,
                is_led,
                CASE WHEN is_led THEN first_timestamp ELSE ended END AS from_timestamp,
                CASE WHEN is_led THEN last_timestamp ELSE first_timestamp END AS to_timestamp
            FROM (
                SELECT *, lag(last_timestamp) OVER (PARTITION BY recording_id ORDER BY leadership_term_id) AS ended
                FROM terms
            )
            CROSS JOIN (VALUES (FALSE), (TRUE)) AS bars(is_led)
            WHERE is_led OR ended IS NOT NULL
        )
        ORDER BY recording_id, from_timestamp, is_led
        """,
        terms=term_timeline(log, events=events),
    )


def _count_terms(log: DataFrame, events: DataFrame) -> DataFrame:
    """Count the frames of each term; those before the first term that begins in this log have no term_id.

    Padding and the later frames of long messages do not name their term: it is the one whose first entry is the last
    before them.
    """
    return sql(
        f"""
        SELECT recording_id, term_id, {EXTENT}, sum({PAYLOAD_LENGTH}) AS payload_bytes
        FROM (
            SELECT /*+ BROADCAST(begins) */ recording_id, position, frame_length, flags, type, timestamp,
                coalesce(leadership_term_id, of_term) AS term_id
            FROM log
            LEFT JOIN (
                SELECT recording_id AS of_recording, leadership_term_id AS of_term, position AS from_position,
                    lead(position, 1, {INT64_MAX}) OVER (PARTITION BY recording_id ORDER BY position) AS until_position
                FROM terms
            ) AS begins
            ON leadership_term_id IS NULL AND recording_id = of_recording
                AND position >= from_position AND position < until_position
        )
        GROUP BY recording_id, term_id
        """,
        log=log,
        terms=new_terms(events),
    )
