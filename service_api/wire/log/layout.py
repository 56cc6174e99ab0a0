"""Where the messages of a log hold the fields of their blocks: written by `schema`, from the models.

Do not edit. Source: schema 111, templates 1, 20 to 25 and 100.
"""

from __future__ import annotations

from typing import Final

LOG_SCHEMA_ID: Final = 111
LOG_SCHEMA_VERSION: Final = 16

SESSION_MESSAGE_HEADER: Final = 1
TIMER_EVENT: Final = 20
SESSION_OPEN_EVENT: Final = 21
SESSION_CLOSE_EVENT: Final = 22
CLUSTER_ACTION_REQUEST: Final = 23
NEW_LEADERSHIP_TERM_EVENT: Final = 24
MEMBERSHIP_CHANGE_EVENT: Final = 25
SNAPSHOT_MARKER: Final = 100

MESSAGE_NAMES: Final = {
    SESSION_MESSAGE_HEADER: "SessionMessageHeader",
    TIMER_EVENT: "TimerEvent",
    SESSION_OPEN_EVENT: "SessionOpenEvent",
    SESSION_CLOSE_EVENT: "SessionCloseEvent",
    CLUSTER_ACTION_REQUEST: "ClusterActionRequest",
    NEW_LEADERSHIP_TERM_EVENT: "NewLeadershipTermEvent",
    MEMBERSHIP_CHANGE_EVENT: "MembershipChangeEvent",
    SNAPSHOT_MARKER: "SnapshotMarker",
}
"""The messages by template id, as the schema names them."""

FIELD_OFFSETS: Final = {
    SESSION_MESSAGE_HEADER: {
        "leadership_term_id": 0,
        "cluster_session_id": 8,
        "timestamp": 16,
    },
    TIMER_EVENT: {
        "leadership_term_id": 0,
        "correlation_id": 8,
        "timestamp": 16,
    },
    SESSION_OPEN_EVENT: {
        "leadership_term_id": 0,
        "correlation_id": 8,
        "cluster_session_id": 16,
        "timestamp": 24,
        "response_stream_id": 32,
    },
    SESSION_CLOSE_EVENT: {
        "leadership_term_id": 0,
        "cluster_session_id": 8,
        "timestamp": 16,
        "close_reason": 24,
    },
    CLUSTER_ACTION_REQUEST: {
        "leadership_term_id": 0,
        "log_position": 8,
        "timestamp": 16,
        "action": 24,
        "flags": 28,
    },
    NEW_LEADERSHIP_TERM_EVENT: {
        "leadership_term_id": 0,
        "log_position": 8,
        "timestamp": 16,
        "term_base_log_position": 24,
        "leader_member_id": 32,
        "log_session_id": 36,
        "time_unit": 40,
        "app_version": 44,
    },
    MEMBERSHIP_CHANGE_EVENT: {
        "leadership_term_id": 0,
        "log_position": 8,
        "timestamp": 16,
        "leader_member_id": 24,
        "cluster_size": 28,
        "change_type": 32,
        "member_id": 36,
    },
    SNAPSHOT_MARKER: {
        "type_id": 0,
        "log_position": 8,
        "leadership_term_id": 16,
        "index": 24,
        "mark": 28,
        "time_unit": 32,
        "app_version": 36,
    },
}
"""By template id and name: where in its block a message has a field, in bytes."""

VAR_DATA_COUNTS: Final = {
    SESSION_MESSAGE_HEADER: 0,
    TIMER_EVENT: 0,
    SESSION_OPEN_EVENT: 2,
    SESSION_CLOSE_EVENT: 0,
    CLUSTER_ACTION_REQUEST: 0,
    NEW_LEADERSHIP_TERM_EVENT: 0,
    MEMBERSHIP_CHANGE_EVENT: 1,
    SNAPSHOT_MARKER: 0,
}
"""By template id: the fields of variable length after its block, each with its length before it."""
