"""Client sessions: how much and how evenly they send, and how each began and ended."""

from __future__ import annotations

from typing import Final

from ....service_api.wire.frame import UNFRAGMENTED
from ....service_api.wire.log.layout import SESSION_MESSAGE_HEADER
from .log_columns import (
    APPLICATION_LENGTH,
    CLIENT_SESSION_ID,
    SERVICE_ID,
    check_columns,
    check_interval,
    has_flags,
    micros_between,
)
from .log_events import session_ends
from .sql import DataFrame, sql
from .whole_messages import whole_messages

QUANTILES: Final = (0.5, 0.99)
ACCURACY: Final = 10_000
"""Of `percentile_approx`: a rank is wrong by a ten-thousandth of the values at most."""


def session_traffic(log: DataFrame, *, interval: str | None = "1 second") -> DataFrame:
    """Return how much each session sent, and the time between its messages, for each interval or for the whole log.

    Needs recording_id, position, frame_length, flags, type, term_id, template_id, block_length, cluster_session_id and
    timestamp of frames (or of messages). `interval` is a length of time as Spark writes it ("1 second", "5 minutes"),
    None for one row for each session.

    Gives, ordered by recording_id, session and interval:

    - recording_id, cluster_session_id (NULL for what services offered), service_id (NULL for clients);
    - from_timestamp and to_timestamp: the interval; without one, the first and last message. Intervals without a
      message have no row;
    - messages, application_bytes: what the application gave to send, without the SBE header and block: 32 bytes, or
      48 of a request;
    - messages_per_s, bytes_per_s: over the interval (NULL if first and last message came at the same time);
    - gap_us_p50, gap_us_p99 and gap_us_max: microseconds from the message before, of the same session, to each of
      these (NULL for a session's first message). Approximate to a ten-thousandth of the ranks, the maximum exact.

    Cost: that of `whole_messages`, one shuffle by session, and a sort by position within each session.
    """
    if interval is None:
        group, begin, end, condition = "", "min(timestamp)", "max(timestamp)", ""
    else:
        group = f", `window`(timestamp, '{check_interval(interval)}')"
        begin, end, condition = "min(bucket.`start`)", "min(bucket.`end`)", "WHERE timestamp IS NOT NULL"
    in_order = "OVER (PARTITION BY recording_id, cluster_session_id, service_id ORDER BY position)"
    seconds = f"nullif({micros_between('from_timestamp', 'to_timestamp')} / 1e6, 0)"
    quantiles = ", ".join(
        f"element_at(quantiles, {place}) AS gap_us_p{int(q * 100)}" for place, q in enumerate(QUANTILES, 1)
    )
    return sql(
        f"""
        SELECT recording_id, cluster_session_id, service_id, from_timestamp, to_timestamp, messages, application_bytes,
            messages / {seconds} AS messages_per_s, application_bytes / {seconds} AS bytes_per_s,
            {quantiles}, gap_us_max
        FROM (
            SELECT recording_id, cluster_session_id, service_id, {begin} AS from_timestamp, {end} AS to_timestamp,
                count(*) AS messages, sum(application_length) AS application_bytes,
                percentile_approx(gap_us, `array`({", ".join(map(str, QUANTILES))}), {ACCURACY}) AS quantiles,
                max(gap_us) AS gap_us_max
            FROM (
                SELECT * {f"{group} AS bucket" if group else ""}
                FROM (SELECT *, {micros_between(f"lag(timestamp) {in_order}", "timestamp")} AS gap_us FROM messages)
                {condition}
            )
            GROUP BY recording_id, cluster_session_id, service_id {", bucket" if group else ""}
        )
        ORDER BY recording_id, cluster_session_id, service_id, from_timestamp
        """,
        messages=_session_messages(log),
    )


def session_lives(log: DataFrame, *, events: DataFrame | None = None) -> DataFrame:
    """Return one row for each client session: when and how it began and ended, and what it did in between.

    Needs what `session_traffic` does, leadership_term_id and correlation_id, and of SessionOpenEvents and
    SessionCloseEvents payload; `events` is where these are read from, the log itself unless told.

    Gives, ordered by recording_id and cluster_session_id:

    - recording_id, cluster_session_id, correlation_id (of the client's connect request);
    - opened_position and opened_timestamp: NULL if it was opened before this log begins;
    - closed_position, closed_timestamp and close_reason (CLIENT_ACTION, SERVICE_ACTION, TIMEOUT): NULL while open;
    - state: "open" at the end of the log, "closed" by its client or a service, or "timed out";
    - lifetime_us: microseconds from open to close, to the last entry of the log if it is still open;
    - response_stream_id, response_channel, encoded_principal (bytes, as the authenticator wrote them);
    - messages, application_bytes, and longest_idle_us: the longest time between two of its entries, opening and
      closing among them. Keep-alives are not in the log, so a session can be idle for long and well.

    Cost: that of `whole_messages`, one shuffle by session, a sort by position within each, and one pass over `events`.
    """
    last = "coalesce(closed_timestamp, log_end)"
    return sql(
        f"""
        SELECT recording_id, cluster_session_id, correlation_id, opened_position, opened_timestamp,
            closed_position, closed_timestamp, close_reason,
            CASE WHEN closed_position IS NULL THEN 'open'
                WHEN close_reason = 'TIMEOUT' THEN 'timed out' ELSE 'closed' END AS state,
            {micros_between("opened_timestamp", last)} AS lifetime_us,
            response_stream_id, response_channel, encoded_principal, messages, application_bytes, longest_idle_us
        FROM activity
        LEFT JOIN ends USING (recording_id, cluster_session_id)
        ORDER BY recording_id, cluster_session_id
        """,
        activity=_activity(log),
        ends=session_ends(log if events is None else events),
    )


_COLUMNS: Final = ("template_id", "block_length", "cluster_session_id", "timestamp")


def _session_messages(log: DataFrame) -> DataFrame:
    """The application's messages: where, when, whose, how long."""
    check_columns(log, "traffic of sessions", *_COLUMNS)
    # Fragments say nothing of their message: those of all messages are put together before the others are left out.
    parts = f"SELECT * FROM log WHERE template_id = {SESSION_MESSAGE_HEADER} OR NOT {has_flags(UNFRAGMENTED)}"
    return sql(
        f"""
        SELECT recording_id, position, timestamp, {SERVICE_ID} AS service_id,
            {CLIENT_SESSION_ID} AS cluster_session_id, {APPLICATION_LENGTH} AS application_length
        FROM messages
        WHERE template_id = {SESSION_MESSAGE_HEADER}
        """,
        messages=whole_messages(sql(parts, log=log)),
    )


def _activity(log: DataFrame) -> DataFrame:
    """One row for each client session that the log has any entry of, and when the log ends."""
    check_columns(log, "lives of sessions", *_COLUMNS)
    # Messages that are not of a client are spread, not put into one partition of their own.
    in_session = f"OVER (PARTITION BY recording_id, coalesce({CLIENT_SESSION_ID}, -1 - position) ORDER BY position)"
    return sql(
        f"""
        SELECT *
        FROM (
            SELECT *, max(last_timestamp) OVER (PARTITION BY recording_id) AS log_end
            FROM (
                SELECT recording_id, client_session_id AS cluster_session_id,
                    count(application_length) AS messages, coalesce(sum(application_length), 0) AS application_bytes,
                    max(idle_us) AS longest_idle_us, max(timestamp) AS last_timestamp
                FROM (
                    SELECT *, {CLIENT_SESSION_ID} AS client_session_id, {APPLICATION_LENGTH} AS application_length,
                        {micros_between(f"lag(timestamp) {in_session}", "timestamp")} AS idle_us
                    FROM messages
                )
                GROUP BY recording_id, client_session_id
            )
        )
        WHERE cluster_session_id IS NOT NULL
        """,
        messages=whole_messages(log),
    )
