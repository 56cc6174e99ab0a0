"""Requests, exactly once: runs each of a session's requests once, and keeps the reply until the client has it.

What decides is the log alone: the sequence of a request, what the session has run, and what its client has
acknowledged. So every member keeps the same replies, and a new leader, or a member that started from a snapshot,
answers what comes again with what was said the first time.

    sequence is the next one     the service runs; the reply is kept, also when the service raised
    it was run before            the kept reply is sent again; NOT_KEPT if the client had acknowledged it
    one before it is missing     OUT_OF_ORDER: nothing runs
    an operator skipped it       FAILED, kept: the service does not run
    too much is kept             WINDOW_EXCEEDED: nothing runs, as if the request had never come

Bounds: `REQUEST_LIMIT` replies and `KEPT_REPLY_LIMIT_BYTES` a session, and one reply more; of all sessions together
`KEPT_REPLIES_LIMIT_BYTES`, and one reply of each session more, so that none can keep another from going on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from ...service_api import LocalProtocolError, RemoteProtocolError
from ...service_api.types import ClusterSessionId
from ...service_api.wire.message import Message
from ...service_api.wire.request import (
    KEPT_REPLIES_LIMIT_BYTES,
    KEPT_REPLY_LIMIT_BYTES,
    KEPT_REPLY_OVERHEAD_BYTES,
    REQUEST_LIMIT,
    RequestCode,
)
from ..messages.replies import KeptReply, SessionRequests
from .client_session import ContainerClientSession
from .several_services import MessageReceiver, NoReceiverError

_SKIPPED: Final = b"an operator has skipped this request: the service was not run"

_ERROR_TEXT_LIMIT: Final = 1024
"""Characters of an error that a client is told."""


class SessionReplies:
    """The replies kept for one session."""

    __slots__ = ("first_sequence", "kept", "kept_bytes")

    def __init__(self) -> None:
        self.first_sequence = 1
        """Of the first reply kept; without any, of the next request."""
        self.kept: deque[tuple[int, bytes]] = deque()
        """Codes and replies, of ascending sequences without a gap."""
        self.kept_bytes = 0

    def __repr__(self) -> str:
        return f"<SessionReplies first={self.first_sequence} kept={len(self.kept)} bytes={self.kept_bytes}>"

    @property
    def next_sequence(self) -> int:
        """The sequence of the request that runs next."""
        return self.first_sequence + len(self.kept)

    @property
    def size_bytes(self) -> int:
        """What the replies take, each with what it takes beside its bytes."""
        return self.kept_bytes + len(self.kept) * KEPT_REPLY_OVERHEAD_BYTES

    def append(self, code: int, reply: bytes) -> None:
        """Keep the reply to the request of `next_sequence`."""
        self.kept.append((code, reply))
        self.kept_bytes += len(reply)


class RequestRunner:
    """Runs the requests of all sessions of one container."""

    __slots__ = (
        "_is_taken",
        "_max_reply_length",
        "_on_service_error",
        "_service",
        "is_passing_over",
        "kept_bytes",
        "sessions",
    )

    def __init__(
        self, service: MessageReceiver, *, max_reply_length: int, on_service_error: Callable[[BaseException], None]
    ) -> None:
        self._service = service
        self._is_taken = service.takes_requests
        self._max_reply_length = max_reply_length
        self._on_service_error = on_service_error
        self.sessions: dict[ClusterSessionId, SessionReplies] = {}
        """Of the open sessions that have sent a request."""
        self.kept_bytes = 0
        """Of the replies of all of them, with what each takes beside its bytes."""
        self.is_passing_over = False
        """Whether the request that is delivered now is one that an operator has skipped."""

    def __repr__(self) -> str:
        return f"<RequestRunner sessions={len(self.sessions)}>"

    def on_request(
        self, session: ContainerClientSession, timestamp: int, sequence: int, acknowledged: int, payload: memoryview
    ) -> None:
        """Answer a request, running the service if this is the one that comes next.

        One body, and counts are kept in local names: this is the hot path of exactly once.
        """
        replies = self.sessions.get(session.id)
        if replies is None:
            replies = self.sessions[session.id] = SessionReplies()
        kept, first_sequence = replies.kept, replies.first_sequence
        while first_sequence <= acknowledged and kept:
            length = len(kept.popleft()[1])
            replies.kept_bytes -= length
            self.kept_bytes -= length + KEPT_REPLY_OVERHEAD_BYTES
            first_sequence += 1
            replies.first_sequence = first_sequence
        count = len(kept)
        if (
            sequence != first_sequence + count
            or count >= REQUEST_LIMIT
            or replies.kept_bytes >= KEPT_REPLY_LIMIT_BYTES
            or (count and self.kept_bytes >= KEPT_REPLIES_LIMIT_BYTES)
        ):
            session.offer_reply(sequence, *_known(replies, sequence))
            return
        code, reply = 0, b""
        if not self._is_taken:
            code = RequestCode.NO_REQUESTS
        elif self.is_passing_over:
            code, reply = RequestCode.FAILED, _SKIPPED
        else:
            try:
                given = self._service.on_request(session, timestamp, payload)
                reply = given if type(given) is bytes else _plain_reply(given)
                if len(reply) > self._max_reply_length:
                    raise LocalProtocolError(f"reply too long: length={len(reply)} limit={self._max_reply_length}")
            except NoReceiverError as error:
                code, reply = RequestCode.NO_REQUESTS, str(error).encode()
            except BaseException as error:
                self._on_service_error(error)
                code, reply = RequestCode.FAILED, _text_of(error)
        kept.append((code, reply))
        length = len(reply)
        replies.kept_bytes += length
        self.kept_bytes += length + KEPT_REPLY_OVERHEAD_BYTES
        session.offer_reply(sequence, code, reply)

    def on_session_close(self, session_id: ClusterSessionId) -> None:
        """Drop the replies of a session that nobody can ask for any more."""
        replies = self.sessions.pop(session_id, None)
        if replies is not None:
            self.kept_bytes -= replies.size_bytes

    # --- snapshots

    def snapshot_messages(self) -> Iterator[Message]:
        """What a snapshot says of requests; nothing may be delivered until the last was taken."""
        for session_id, replies in sorted(self.sessions.items()):
            yield SessionRequests(
                cluster_session_id=session_id, first_sequence=replies.first_sequence, reply_count=len(replies.kept)
            )
            for code, reply in replies.kept:
                yield KeptReply(code=code, payload=reply)

    def restore(self, sessions: Mapping[ClusterSessionId, SessionReplies]) -> None:
        """Take over what a snapshot said."""
        self.sessions = {**sessions}
        self.kept_bytes = sum(replies.size_bytes for replies in sessions.values())


def decode_replies(messages: Iterable[Message]) -> dict[ClusterSessionId, SessionReplies]:
    """Read what `snapshot_messages` gave.

    Raises:
        RemoteProtocolError: it is not that.
    """
    sessions: dict[ClusterSessionId, SessionReplies] = {}
    replies, missing_count = SessionReplies(), 0
    for message in messages:
        if isinstance(message, KeptReply) and missing_count:
            replies.append(message.code, message.payload)
            missing_count -= 1
        elif isinstance(message, SessionRequests) and not missing_count:
            replies, missing_count = SessionReplies(), message.reply_count
            replies.first_sequence = message.first_sequence
            sessions[ClusterSessionId(message.cluster_session_id)] = replies
        else:
            raise RemoteProtocolError(f"replies: missing={missing_count} unexpected={message!r}")
    if missing_count:
        raise RemoteProtocolError(f"replies: missing={missing_count} at their end")
    return sessions


def _known(replies: SessionReplies, sequence: int) -> tuple[int, bytes]:
    """What is to be said of a request that does not run now."""
    if sequence > replies.next_sequence:
        return RequestCode.OUT_OF_ORDER, b""
    if sequence == replies.next_sequence:
        return RequestCode.WINDOW_EXCEEDED, b""
    if sequence < replies.first_sequence:
        return RequestCode.NOT_KEPT, b""
    return replies.kept[sequence - replies.first_sequence]


def _plain_reply(given: object) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        raise TypeError(f"on_request gave {type(given).__name__} expected bytes, bytearray or memoryview")
    return bytes(given)


def _text_of(error: BaseException) -> bytes:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return text[:_ERROR_TEXT_LIMIT].encode(errors="replace")
