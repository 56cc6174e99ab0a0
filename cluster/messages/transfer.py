"""The message with which a leader hands its term over. See `core.transfer`.

Aeron Cluster has no such message; it is of our own schema, and of no file.
"""

from __future__ import annotations

from typing import ClassVar

from ...service_api.wire.fields import Position, WireMemberId, WireTermId
from ...service_api.wire.message import TrimaranMessage


class TransferLeadership(TrimaranMessage):
    """The leader of a term asks a follower to stand at once, without a canvass, in the next term."""

    TEMPLATE_ID: ClassVar[int] = 50
    leadership_term_id: WireTermId
    """The term that the sender leads and hands over; in any other term the message means nothing."""
    log_position: Position
    """Where the leader's log ends, which takes nothing any more: a follower that has less does not stand."""
    leader_member_id: WireMemberId
