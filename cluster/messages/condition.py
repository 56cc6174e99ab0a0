"""The messages in which members tell each other how they are: their clock, their term, their
disk, and whether they would lead.

See `core.conditions`. Aeron Cluster has no such messages; these are of our own schema, and of no file. A member asks on
the link that it dialled itself, and the answer comes on the link that the other one dialled. The nonce ties the two
together: it reaches only who listens at the member's configured endpoint.
"""

from __future__ import annotations

from typing import ClassVar

from ...service_api.types import NULL_POSITION, NULL_VALUE
from ...service_api.wire.fields import Int32, Int64, WireMemberId, WireTermId
from ...service_api.wire.message import TrimaranMessage


class ConditionQuery(TrimaranMessage):
    """A member asks another how it is."""

    TEMPLATE_ID: ClassVar[int] = 33
    nonce: Int64
    """A random number that is not told twice: what makes the answer one to this question."""
    member_id: WireMemberId


class MemberCondition(TrimaranMessage):
    """How a member is, as answer to a `ConditionQuery`."""

    TEMPLATE_ID: ClassVar[int] = 34
    nonce: Int64
    epoch_ms: Int64
    """Its time of day, in milliseconds since the Unix epoch."""
    leadership_term_id: WireTermId
    """The highest term that it stood in, led, or followed, or that another member vouches for in turn."""
    reluctance: Int32
    """Why it would rather not lead: the sum of the values of `Reluctance`; 0 if it is willing."""
    member_id: WireMemberId
    leader_priority: Int32 = 0
    """How much it is preferred as leader: its setting."""
    snapshot_position: Int64 = NULL_POSITION
    """Where its newest complete snapshot was taken; -1 if it has none."""
    sync_ns: Int64 = NULL_VALUE
    """How long a sync of its disk takes now, in nanoseconds; -1 while it syncs next to nothing."""
