"""What the leader appends to the log besides application messages.

Every member's consensus module and every service read these at the same log positions. Application messages
are `SessionMessageHeader` and a payload. Source: Aeron `LogPublisher`; schema 111, templates 20-25.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from ...errors import RemoteProtocolError
from ...types import CloseReason, TimeUnit
from ..fields import (
    Data,
    Int32,
    Int64,
    Position,
    Since,
    Text,
    Timestamp,
    Version,
    WireCorrelationId,
    WireMemberId,
    WireSessionId,
    WireTermId,
)
from ..message import ClusterMessage, Registry, message_header, registry_of
from ..session import SESSION_MESSAGE, SESSION_MESSAGE_HEADER, SessionMessageHeader

CLUSTER_ACTION_FLAGS_DEFAULT: Final = 0
CLUSTER_ACTION_FLAGS_STANDBY_SNAPSHOT: Final = 1
"""The action concerns standby nodes alone."""
CLUSTER_ACTION_FLAGS_ENTRY_SKIP: Final = 256
"""No action: the entry says that another one is skipped. See `EntrySkip`."""
CLUSTER_ACTION_FLAGS_FEATURE_LEVEL: Final = 512
"""No action: the entry says which feature level is in force from here on. See `FeatureLevelRaise`."""


class ClusterAction(IntEnum):
    """What the cluster does at a log position. Source: schema 111 `ClusterAction`."""

    SUSPEND = 0
    RESUME = 1
    SNAPSHOT = 2


class ChangeType(IntEnum):
    """How a member changed, in logs written before Aeron 1.41. Source: schema 111 `ChangeType`."""

    JOIN = 0
    QUIT = 1


class TimerEvent(ClusterMessage):
    """A timer fired."""

    TEMPLATE_ID: ClassVar[int] = 20
    leadership_term_id: WireTermId
    correlation_id: WireCorrelationId
    timestamp: Timestamp


class SessionOpenEvent(ClusterMessage):
    """A client's session was opened; the end of this message is its opened_log_position."""

    TEMPLATE_ID: ClassVar[int] = 21
    leadership_term_id: WireTermId
    correlation_id: WireCorrelationId
    cluster_session_id: WireSessionId
    timestamp: Timestamp
    response_stream_id: Int32
    response_channel: Text = ""
    encoded_principal: Data = b""


class SessionCloseEvent(ClusterMessage):
    """A client's session was closed."""

    TEMPLATE_ID: ClassVar[int] = 22
    leadership_term_id: WireTermId
    cluster_session_id: WireSessionId
    timestamp: Timestamp
    close_reason: CloseReason | None


class ClusterActionRequest(ClusterMessage):
    """The cluster suspends, resumes or takes a snapshot; `log_position` is the end of this very message."""

    TEMPLATE_ID: ClassVar[int] = 23
    leadership_term_id: WireTermId
    log_position: Position
    timestamp: Timestamp
    action: ClusterAction | None
    flags: Annotated[Int32 | None, Since(11)] = None


class EntrySkip(ClusterActionRequest):
    """An operator has an earlier entry skipped: no service is given the entry that ends at `skipped_log_position`.

    For readers that do not know it, Aeron's among them, it is a ClusterActionRequest without an action, which none of
    them acts on: `action` is null, and the flags ask neither members nor standby nodes for anything.
    """

    skipped_log_position: Annotated[Position, Since(11)] = 0


class FeatureLevelRaise(ClusterActionRequest):
    """From the end of this entry on another feature level is in force: see `cluster.core.vocabulary.feature_levels`.

    For readers that do not know it, it is a ClusterActionRequest without an action, as an `EntrySkip`. Its block has
    another length than the one of an `EntrySkip`, so that nobody takes one for the other.
    """

    feature_level: Annotated[Int64, Since(11)] = 0
    """Of the services; from 0 to 2^31 - 1."""
    trimaran_level: Annotated[Int32, Since(11)] = 0
    """What Trimaran itself must know to process what follows."""


class NewLeadershipTermEvent(ClusterMessage):
    """The first entry of a leadership term; `log_position` is the end of this very message."""

    TEMPLATE_ID: ClassVar[int] = 24
    leadership_term_id: WireTermId
    log_position: Position
    timestamp: Timestamp
    term_base_log_position: Position
    leader_member_id: WireMemberId
    log_session_id: Int32
    time_unit: Annotated[TimeUnit | None, Since(4)] = None
    app_version: Annotated[Version, Since(4)] = 0


class MembershipChangeEvent(ClusterMessage):
    """Says who the members are from here on, if `cluster_members` is a text of ours.

    The text is that of `cluster.core.vocabulary.configuration`. Readers pass over an event of Aeron's, written before
    1.41, whose text is another, and Aeron passes over ours.
    """

    TEMPLATE_ID: ClassVar[int] = 25
    leadership_term_id: WireTermId
    log_position: Position
    timestamp: Timestamp
    leader_member_id: WireMemberId
    cluster_size: Int32
    change_type: ChangeType | None
    member_id: WireMemberId
    cluster_members: Text = ""


def encode_session_message(leadership_term_id: int, session_id: int, timestamp: int, payload: bytes) -> bytes:
    """Lay out an application message, as a service offers it."""
    return SESSION_MESSAGE_HEADER.pack(*SESSION_MESSAGE, leadership_term_id, session_id, timestamp) + payload


def decode_feature_level_raise(encoded: bytes) -> FeatureLevelRaise | None:
    """Decode a message of the log that raises the feature level; None where it is any other message, or malformed."""
    if encoded[2:6] != _CLUSTER_ACTION:
        return None
    try:
        message = FeatureLevelRaise.decode(encoded)
    except RemoteProtocolError:
        return None
    return message if message.flags == CLUSTER_ACTION_FLAGS_FEATURE_LEVEL and message.action is None else None


_CLUSTER_ACTION: Final = struct.pack("<HH", *message_header(ClusterActionRequest)[1:3])
"""The template id and the schema id of a message that begins as a ClusterActionRequest."""

ENTRY_SKIP: Final = message_header(EntrySkip)
"""The SBE message header of an `EntrySkip`: its block length tells it from other cluster actions."""


LOG_MESSAGES: Final[Registry] = registry_of(
    SessionMessageHeader,
    TimerEvent,
    SessionOpenEvent,
    SessionCloseEvent,
    ClusterActionRequest,
    NewLeadershipTermEvent,
    MembershipChangeEvent,
)
"""What the log may hold."""
