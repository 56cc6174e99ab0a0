"""The messages of a member that lacks the oldest part of the log: it asks another for its snapshot and earlier terms.

Aeron has a query for the recordings of snapshots (templates 72 and 73, deprecated), but its answer lacks the terms that
the log went through. A member needs them all: they are what its log is compared by, and what it tells those that lag
after it. Hence messages of our own, with Aeron's group of snapshots. Asked on the consensus endpoint, on
`SNAPSHOT_SHIPPING_STREAM_ID`; answered with one `SnapshotOffer` and as many `LeadershipTerms` as it takes.
"""

from __future__ import annotations

from typing import ClassVar

from ...service_api.wire.fields import (
    Int32,
    Position,
    Text,
    Timestamp,
    WireMemberId,
    WireRecordingId,
    WireTermId,
)
from ...service_api.wire.message import GroupElement, TrimaranMessage, registry_of
from .backup import SnapshotRecording


class SnapshotQuery(TrimaranMessage):
    """A member asks for the newest complete snapshot, to go on from there instead of from its log's end.

    Position -1: its log is empty, so that it wants what the log begins with, if that is a snapshot and the log still
    begins at 0.
    """

    TEMPLATE_ID: ClassVar[int] = 20
    follower_member_id: WireMemberId
    log_position: Position


class SnapshotOffer(TrimaranMessage):
    """Answers a `SnapshotQuery`: one recording for the consensus module and each service, and where the log lies.

    No snapshots: there is none, and `detail` says why. One at position 0 is what the log begins with: no term is before
    it. The recordings, and the log from the snapshot on, are kept for
    a while for the member that asked.
    """

    TEMPLATE_ID: ClassVar[int] = 21
    member_id: WireMemberId
    log_recording_id: WireRecordingId
    log_start_position: Position
    term_count: Int32
    """How many terms follow, in `LeadershipTerms`."""
    snapshots: tuple[SnapshotRecording, ...] = ()
    detail: Text = ""


class LeadershipTermEntry(GroupElement):
    """One term of the recording log; its end is where the next one begins."""

    leadership_term_id: WireTermId
    term_base_log_position: Position
    timestamp: Timestamp


class LeadershipTerms(TrimaranMessage):
    """Some of the terms up to a snapshot's, in order."""

    TEMPLATE_ID: ClassVar[int] = 22
    terms: tuple[LeadershipTermEntry, ...] = ()


SHIPPING_ANSWERS = registry_of(SnapshotOffer, LeadershipTerms)
