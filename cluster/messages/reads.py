"""The messages between members that confirm a leader for a query. See `core.leadership_probe`.

Aeron Cluster has no such messages; these are of our own schema, and of no file.
"""

from __future__ import annotations

from typing import ClassVar

from ...service_api.wire.fields import Int64, Position, WireMemberId, WireTermId
from ...service_api.wire.message import TrimaranMessage


class LeadershipProbe(TrimaranMessage):
    """A leader asks whether this member still follows it."""

    TEMPLATE_ID: ClassVar[int] = 3
    leadership_term_id: WireTermId
    probe_id: Int64
    """Counts the rounds of this leader in this term."""
    leader_member_id: WireMemberId


class LeadershipProbeAck(TrimaranMessage):
    """A member's confirmation: it follows this leader, and takes part in no higher term."""

    TEMPLATE_ID: ClassVar[int] = 4
    leadership_term_id: WireTermId
    probe_id: Int64
    follower_member_id: WireMemberId


class ReadPositionRequest(TrimaranMessage):
    """A follower asks its leader how far the log is committed now, for certain."""

    TEMPLATE_ID: ClassVar[int] = 5
    leadership_term_id: WireTermId
    asked_ns: Int64
    """When, by the follower's monotonic clock. It means nothing to the leader, which says it again."""
    follower_member_id: WireMemberId


class ReadPosition(TrimaranMessage):
    """At some time after `asked_ns` the log was committed up to here, and no further by anybody."""

    TEMPLATE_ID: ClassVar[int] = 6
    leadership_term_id: WireTermId
    asked_ns: Int64
    log_position: Position
    leader_member_id: WireMemberId
