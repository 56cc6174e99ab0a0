"""The vocabulary shared by every package: ids, enums and the constants that mean "absent".

Ids are `NewType`s of int so that a type checker tells them apart; positions and counts, which are added and
compared, stay plain int. A position is a byte offset in the log and always a multiple of 32.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NewType

MemberId = NewType("MemberId", int)
TermId = NewType("TermId", int)
ClusterSessionId = NewType("ClusterSessionId", int)
RecordingId = NewType("RecordingId", int)
CorrelationId = NewType("CorrelationId", int)

NULL_POSITION: Final = -1
"""A position that is not known, on the wire and on disk."""

NULL_VALUE: Final = -1
"""An id or value that is not set, on the wire and on disk."""

NULL_TERM_ID: Final = TermId(NULL_VALUE)
"""No leadership term yet; the first one is 0."""

NULL_SESSION_ID: Final = ClusterSessionId(NULL_VALUE)
"""No cluster session."""

LOG_STREAM_ID: Final = 100
INGRESS_STREAM_ID: Final = 101
EGRESS_STREAM_ID: Final = 102
SERVICE_SNAPSHOT_STREAM_ID: Final = 106
CONSENSUS_MODULE_SNAPSHOT_STREAM_ID: Final = 107
CONSENSUS_STREAM_ID: Final = 108

STATUS_STREAM_ID: Final = 200
"""Ours: one question to a member's consensus endpoint, one answer about its state. Aeron uses no stream of this id."""

SNAPSHOT_SHIPPING_STREAM_ID: Final = 220
"""Ours: a member that lacks the oldest part of the log asks another, on its consensus endpoint, for its snapshot."""

BACKUP_STREAM_ID: Final = 221
"""Ours: a backup asks a member, on its consensus endpoint, where its log and snapshots are, or whether it is there."""

COMMIT_POSITION_COUNTER_ID: Final = -2
"""Bounds a replay of a member's log by its commit position; no recording has this id."""

REFUSAL_STREAM_ID: Final = 202
"""Ours: instead of an answer, where the caller may not have one: a document that says who may."""

OPERATION_STREAM_ID: Final = 201
"""Ours: a leader is asked on its consensus endpoint to do something, and answers step by step."""

INSPECTION_STREAM_ID: Final = 210
"""Ours: a member is asked on its consensus endpoint about members, sessions or timers."""

DIAGNOSIS_STREAM_ID: Final = 211
"""Ours: a member is asked on its consensus endpoint for its errors, log lines, settings or metrics."""


class Role(IntEnum):
    """What a member is to its cluster at this moment. Source: Aeron `Cluster.Role`."""

    FOLLOWER = 0
    CANDIDATE = 1
    LEADER = 2


class CloseReason(IntEnum):
    """Why a cluster session was closed. Source: schema 111 `CloseReason`."""

    CLIENT_ACTION = 0
    SERVICE_ACTION = 1
    TIMEOUT = 2


class TimeUnit(IntEnum):
    """The unit of cluster time, the same on every member and recorded in the log.

    Source: schema 111 `ClusterTimeUnit`.
    """

    MILLIS = 0
    MICROS = 1
    NANOS = 2


TICKS_PER_MS: Final = {TimeUnit.MILLIS: 1, TimeUnit.MICROS: 1_000, TimeUnit.NANOS: 1_000_000}
"""How many of each unit are a millisecond."""
