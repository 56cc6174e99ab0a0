"""Small pandas frames, as the analyses give them, whose figures and sentences are known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pandas as pd


def at(seconds: float) -> pd.Timestamp:
    return pd.Timestamp("2026-11-21 04:08:30") + timedelta(seconds=seconds)


def terms(**changes: Any) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {
        "leadership_term_id": [0, 1, 3],
        "leader_member_id": [0, 2, 0],
        "first_timestamp": [at(0), at(2.5), at(10)],
        "last_timestamp": [at(2), at(9), at(11)],
        "hand_over_us": [500_000, 1_000_000, None],
    }
    return pd.DataFrame(columns | changes)


def elections(*, with_reasons: bool = False) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "leadership_term_id": [0, 1, 3],
            "leader_before": [None, 0, 2],
            "leader_after": [0, 2, 0],
            "skipped_terms": [None, 0, 1],
            "gap_us": [None, 310_000, 42_000],
        }
    )
    if with_reasons:
        frame["election_us"] = [None, 12_000, 8_000]
        frame["start_reason"] = [None, "LOG_LINK_CLOSED", "LEADER_HEARTBEAT_TIMEOUT"]
        frame["start_detail"] = [None, "log link closed: connection closed", "no heartbeat"]
    return frame


def states() -> pd.DataFrame:
    names = [
        "INIT",
        "CANVASS",
        "NOMINATE",
        "CANDIDATE_BALLOT",
        "LEADER_LOG_REPLICATION",
        "LEADER_REPLAY",
        "LEADER_READY",
    ]
    times = [at(0.001 * step) for step in (0, 1, 3, 9, 10, 11, 12, 13)]
    rows: list[tuple[Any, ...]] = [
        (2, 1, name, begin, end) for name, begin, end in zip(names, times[:-1], times[1:], strict=True)
    ]
    rows.append((1, 1, "FOLLOWER_BALLOT", at(0.002), at(0.004)))
    rows.append((0, None, "CANVASS", at(5), at(6)))  # an election that never closed
    frame = pd.DataFrame(rows, columns=["member_id", "leadership_term_id", "state", "entered_at", "left_at"])
    frame["duration_us"] = (frame["left_at"] - frame["entered_at"]).dt.total_seconds() * 1e6
    frame["reason"], frame["detail"] = "SOME_REASON", "some detail"
    return frame


def traffic() -> pd.DataFrame:
    """Two sessions and a service in intervals of half a second; nobody sends in the third one."""
    rows = [(0.0, 1, None, 10), (0.0, 2, None, 4), (0.5, 1, None, 6), (1.5, None, 0, 2), (1.5, 1, None, 8)]
    return pd.DataFrame(
        [(at(begin), at(begin + 0.5), session, service, many, 100 * many) for begin, session, service, many in rows],
        columns=["from_timestamp", "to_timestamp", "cluster_session_id", "service_id", "messages", "application_bytes"],
    )


def arrivals() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cluster_session_id": [1, 2, None, 3],
            "service_id": [None, None, 0, None],
            "messages": [100, 50, 20, 1],
            "gap_us_p50": [150, 2_000, 30_000, None],
            "gap_us_p99": [900, 50_000, 60_000, None],
            "gap_us_max": [4_000, 2_300_000, 70_001, None],
        }
    )


def lives() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "cluster_session_id": [1, 2, 3, 4, 5],
            "opened_timestamp": [at(0), at(1), at(2), at(3), pd.NaT],
            "closed_timestamp": [pd.NaT, at(4), at(2.5), at(9), at(8)],
            "close_reason": [None, "CLIENT_ACTION", "SERVICE_ACTION", "TIMEOUT", "CLIENT_ACTION"],
            "lifetime_us": [10_000_000, 3_000_000, 500_000, 6_000_000, None],
            "messages": [40, 30, 0, 1, 2],
            "encoded_principal": [b"alice", bytearray(b"bob"), b"", b"$x^2$ <b>", b"\xff\x00"],
        }
    )


def timers(*, with_deadlines: bool = False) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "correlation_id": [7, 7, 3, 7],
            "fired_timestamp": [at(0), at(1), at(1.5), at(2)],
        }
    )
    if with_deadlines:
        frame["late_us"] = [1_000.0, 3_000.0, 250_000.0, 2_000.0]
    return frame


def bursts() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "from_timestamp": [at(0), at(3)],
            "to_timestamp": [at(1), at(4)],
            "messages_per_s": [120.0, 480.0],
            "times_mean": [1.0, 4.0],
        }
    )


def gaps() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "from_timestamp": [at(1), at(5)],
            "to_timestamp": [at(3), at(5.5)],
            "gap_us": [2_000_000, 500_000],
            "over_terms": [True, False],
        }
    )


def histogram() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "template_id": [1, 1, 20, None],
            "from_length": [32, 64, 32, 64],
            "to_length": [64, 128, 64, 128],
            "messages": [30, 60, 6, 4],
            "message_bytes": [1_500, 6_000, 240, 300],
        }
    )


def sizes() -> pd.DataFrame:
    """Of the same messages: what they take in the log, and the padding there, which is no message."""
    return pd.DataFrame(
        {
            "template_id": [1, 20, None, None],
            "message": ["SessionMessageHeader", "TimerEvent", None, "(padding)"],
            "messages": [90, 6, 4, 0],
            "message_bytes": [7_500, 240, 300, 0],
            "log_bytes": [10_600, 450, 450, 500],
        }
    )


def pairs(*, with_difference: bool = True) -> pd.DataFrame:
    """Member 2 goes astray at 640; member 1 is behind."""
    same = {"start_position": 0, "stop_position": 960, "identical_to": 960, "diverges_at": None, "differences": None}
    astray = {**same, "identical_to": 640, "diverges_at": 640, "differences": ["payload"], "verdict": "different"}
    rows = [
        {"member_a": "node-0", "member_b": "node-1", **same, "stop_a": 1_280, "stop_b": 960, "verdict": "a is longer"},
        {"member_a": "node-0", "member_b": "node-2", **astray, "stop_a": 1_280, "stop_b": 960},
        {"member_a": "node-1", "member_b": "node-2", **astray, "stop_a": 960, "stop_b": 960},
    ]
    return pd.DataFrame(rows if with_difference else rows[:1])


def group_traffic(group_count: int) -> pd.DataFrame:
    """Two seconds, in each of which group K logs ten messages more than the one before it, from ten on."""
    rows = [
        (index, at(second), at(second + 1), 10 * (index + 1)) for index in range(group_count) for second in range(2)
    ]
    return pd.DataFrame(rows, columns=["group", "from_timestamp", "to_timestamp", "messages"])
