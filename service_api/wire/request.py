"""Requests: session messages with a reply each, run exactly once.

A request is a `SessionMessageHeader` whose SBE block is 16 bytes longer, so that code that does not know requests skips
what it does not know, and reads the payload:

    offset size  client -> member, and in the log          member -> client
    0      8     SBE message header: block length 40, else as that of a SessionMessageHeader
    8      24    leadership_term_id, cluster_session_id, timestamp
    32     8     request_sequence                          request_sequence
    40     8     acknowledged_sequence                     code
    48     ..    payload                                   reply

The requests of a session are numbered 1, 2, 3, ... A service runs them in this order, each once. The replies are kept,
in replicated state, until the client says by `acknowledged_sequence` that it has received every reply up to there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

from .fields import Int64, Wire
from .message import message_header, message_struct
from .sbe import INT64_NULL
from .session import SessionMessageHeader


class RequestCode(IntEnum):
    """What came of a request. The first three are final and kept; of the others nothing is."""

    REPLY = 0
    FAILED = 1
    """The service raised; the payload says what."""
    NO_REQUESTS = 2
    """No service takes the request, and none was run; the payload says why where a node runs several."""
    NOT_KEPT = 3
    """It was run, and its reply was acknowledged, and dropped."""
    WINDOW_EXCEEDED = 4
    """It was not run: too many replies are not acknowledged. It may come again, with a higher acknowledgement."""
    OUT_OF_ORDER = 5
    """It was not run: one before it has not come. It may come again, after that."""


class RequestHeader(SessionMessageHeader):
    """Precedes the payload of a request, from the client to the member and in the log."""

    request_sequence: Int64
    acknowledged_sequence: Int64
    """The client has received every reply up to this one."""


class ReplyHeader(SessionMessageHeader):
    """Precedes a reply, from the member to the client."""

    request_sequence: Int64
    code: Annotated[RequestCode | None, Wire("q", INT64_NULL)]


REQUEST_MESSAGE: Final = message_header(RequestHeader)
"""The SBE message header of a request and of a reply."""

REQUEST_BLOCK_LENGTH: Final = REQUEST_MESSAGE[0]
"""What tells a request from another session message."""

REQUEST_HEADER: Final = message_struct(RequestHeader)
"""SBE header, leadership_term_id, cluster_session_id, timestamp, request_sequence, acknowledged_sequence."""

REPLY_HEADER: Final = message_struct(ReplyHeader)
"""The same with the code in the place of acknowledged_sequence."""

REQUEST_HEADER_LENGTH: Final = REQUEST_HEADER.size
"""48 bytes: the payload begins there."""

REQUEST_LIMIT: Final = 4096
"""Requests of a session whose replies are not acknowledged: clients send no more, members run no more.

What a member does at a limit is part of the replicated state, so it is the same everywhere, and no setting.
"""

KEPT_REPLY_LIMIT_BYTES: Final = 4 << 20
"""Replies of a session that are kept; beyond it no request of that session runs until some are acknowledged. The last
reply may go beyond it."""


KEPT_REPLIES_LIMIT_BYTES: Final = 256 << 20
"""Replies of all sessions together that are kept, 64 bytes for each included. Beyond it a session runs a request only
once it has acknowledged every reply before: each goes on, one request at a time, and a silent one stops nobody."""

KEPT_REPLY_OVERHEAD_BYTES: Final = 64
"""What a kept reply takes beside its bytes."""
