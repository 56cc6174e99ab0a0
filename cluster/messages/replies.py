"""The messages about requests in the container's part of a service's snapshot.

For each session that has sent requests, in order of its id: one `SessionRequests`, then a `KeptReply` for each reply
that its client has not acknowledged.

Aeron has no counterpart, and its service container passes over both when it loads the snapshot.
Source: Aeron `ServiceSnapshotLoader`.
"""

from __future__ import annotations

from typing import ClassVar

from ...service_api.wire.fields import Data, Int32, Int64, WireSessionId
from ...service_api.wire.message import PassedOverMessage


class SessionRequests(PassedOverMessage):
    """How far a session's requests have come."""

    TEMPLATE_ID: ClassVar[int] = 8110
    cluster_session_id: WireSessionId
    first_sequence: Int64
    """The sequence of the first reply kept; without any, of the next request."""
    reply_count: Int32
    """The `KeptReply` messages that follow."""


class KeptReply(PassedOverMessage):
    """One reply, of the sequence after the one before."""

    TEMPLATE_ID: ClassVar[int] = 8111
    code: Int32
    """A `RequestCode`."""
    payload: Data = b""
