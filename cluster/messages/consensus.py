"""The messages between members: canvass, vote, leadership, replication progress, catch-up and termination.

Source: Aeron `ConsensusPublisher` and `ConsensusAdapter`; schema 111, templates 50-57, 75 and 76.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from ...service_api.wire.fields import (
    Int32,
    Position,
    Since,
    Text,
    Timestamp,
    UInt8,
    Version,
    WireMemberId,
    WireRecordingId,
    WireTermId,
)
from ...service_api.wire.message import ClusterMessage, Registry, registry_of

APPEND_POSITION_FLAG_NONE: Final = 0
APPEND_POSITION_FLAG_CATCHUP: Final = 1
"""The follower reports from its catch-up, not from the live log."""
APPEND_POSITION_FLAG_HELD: Final = 2
"""Ours: the follower cannot deliver the log, and would lead only while no other can. Aeron passes it over."""
APPEND_POSITION_FLAG_RELAYED: Final = 4
"""Ours: the log comes to the follower from another member than the leader. Aeron passes it over."""
APPEND_POSITION_FLAG_NO_VOTER: Final = 8
"""Ours: the follower may have forgotten votes and what it reported, so nothing commits by it. Aeron passes it over."""


class CanvassPosition(ClusterMessage):
    """A member in an election tells the others where its log ends."""

    TEMPLATE_ID: ClassVar[int] = 50
    log_leadership_term_id: WireTermId
    log_position: Position
    leadership_term_id: WireTermId
    follower_member_id: WireMemberId
    protocol_version: Annotated[Version, Since(9)] = 0


class RequestVote(ClusterMessage):
    """A candidate asks for a vote in its candidate term."""

    TEMPLATE_ID: ClassVar[int] = 51
    log_leadership_term_id: WireTermId
    log_position: Position
    candidate_term_id: WireTermId
    candidate_member_id: WireMemberId
    protocol_version: Annotated[Version, Since(9)] = 0


class Vote(ClusterMessage):
    """A member answers a candidate; the log term and position are the voter's own."""

    TEMPLATE_ID: ClassVar[int] = 52
    candidate_term_id: WireTermId
    log_leadership_term_id: WireTermId
    log_position: Position
    candidate_member_id: WireMemberId
    follower_member_id: WireMemberId
    vote: bool | None


class NewLeadershipTerm(ClusterMessage):
    """A leader announces its term, and tells a lagging follower of the term after the follower's own.

    `log_leadership_term_id` is the follower's last term as the leader knows it; `next_*` describe the one
    after it and are -1 where there is none.
    """

    TEMPLATE_ID: ClassVar[int] = 53
    log_leadership_term_id: WireTermId
    next_leadership_term_id: WireTermId
    next_term_base_log_position: Position
    next_log_position: Position
    leadership_term_id: WireTermId
    term_base_log_position: Position
    log_position: Position
    leader_recording_id: WireRecordingId
    timestamp: Timestamp
    leader_member_id: WireMemberId
    log_session_id: Int32
    app_version: Version
    is_startup: bool | None
    commit_position: Annotated[Position | None, Since(15)] = None


class AppendPosition(ClusterMessage):
    """A follower tells the leader how far its log is recorded, and that it is alive."""

    TEMPLATE_ID: ClassVar[int] = 54
    leadership_term_id: WireTermId
    log_position: Position
    follower_member_id: WireMemberId
    flags: Annotated[UInt8 | None, Since(8)] = None


class CommitPosition(ClusterMessage):
    """A leader tells its followers how far the log is committed, and that it is alive."""

    TEMPLATE_ID: ClassVar[int] = 55
    leadership_term_id: WireTermId
    log_position: Position
    leader_member_id: WireMemberId


class CatchupPosition(ClusterMessage):
    """A follower asks the leader to replay the log to it from a position."""

    TEMPLATE_ID: ClassVar[int] = 56
    leadership_term_id: WireTermId
    log_position: Position
    follower_member_id: WireMemberId
    catchup_endpoint: Text = ""


class StopCatchup(ClusterMessage):
    """A leader tells a follower that the live log reaches it now."""

    TEMPLATE_ID: ClassVar[int] = 57
    leadership_term_id: WireTermId
    follower_member_id: WireMemberId


class TerminationPosition(ClusterMessage):
    """A leader tells its followers to stop once they have processed a position."""

    TEMPLATE_ID: ClassVar[int] = 75
    leadership_term_id: WireTermId
    log_position: Position


class TerminationAck(ClusterMessage):
    """A follower tells the leader that its services have stopped at the position."""

    TEMPLATE_ID: ClassVar[int] = 76
    leadership_term_id: WireTermId
    log_position: Position
    member_id: WireMemberId


CONSENSUS_MESSAGES: Final[Registry] = registry_of(
    CanvassPosition,
    RequestVote,
    Vote,
    NewLeadershipTerm,
    AppendPosition,
    CommitPosition,
    CatchupPosition,
    StopCatchup,
    TerminationPosition,
    TerminationAck,
)
"""What a member accepts from another on the consensus link."""
