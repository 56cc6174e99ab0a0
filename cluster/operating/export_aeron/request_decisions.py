"""Which requests of a log ran, decided without the service.

A request runs if it is the next of its session and not too much is kept (`service.replies`). All of this is in the log,
but for the lengths of the replies: what is too much depends on them. So the log is followed by two runners. To one
every reply is empty, to the other every reply is as long as a reply can be. What a member decided lies between the two:
where they agree, so did every member. Where they do not, nobody can tell without the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ....service_api.types import ClusterSessionId
from ...service.replies import RequestRunner, SessionReplies


class RequestOutcome(Enum):
    """What came of a request."""

    RAN = "ran"
    NOT_RUN = "not run"
    """It came again, or before the one before it, or was skipped, or too much was kept."""
    UNKNOWN = "unknown"
    """It depends on the lengths of replies."""


class RequestDecisions:
    """Follows the requests of one log."""

    def __init__(self, *, max_reply_length: int) -> None:
        self._runners = tuple(_Follower(bytes(length), max_reply_length) for length in (0, max_reply_length))

    def restore(self, replies: Mapping[ClusterSessionId, SessionReplies]) -> None:
        """Take over what a snapshot says, which is exact."""
        for runner in self._runners:
            runner.restore(replies)

    def on_request(
        self, session_id: ClusterSessionId, sequence: int, acknowledged: int, *, is_skipped: bool
    ) -> RequestOutcome:
        """Decide about the next request of the log; `is_skipped` says that an operator had it skipped."""
        ran = {runner.ran(session_id, sequence, acknowledged, is_skipped=is_skipped) for runner in self._runners}
        if len(ran) > 1:
            return RequestOutcome.UNKNOWN
        return RequestOutcome.RAN if ran == {True} else RequestOutcome.NOT_RUN

    def on_session_close(self, session_id: ClusterSessionId) -> None:
        """Forget a session."""
        for runner in self._runners:
            runner.requests.on_session_close(session_id)


class _Follower:
    """A service that gives every request the same answer, and its runner; the session that asks is this object, too."""

    takes_messages = takes_requests = True

    def __init__(self, reply: bytes, max_reply_length: int) -> None:
        self._reply = reply
        self._has_run = False
        self.id = ClusterSessionId(0)
        self.requests = RequestRunner(self, max_reply_length=max_reply_length, on_service_error=lambda error: None)

    def ran(self, session_id: ClusterSessionId, sequence: int, acknowledged: int, *, is_skipped: bool) -> bool:
        self.id, self._has_run = session_id, False
        self.requests.is_passing_over = is_skipped
        self.requests.on_request(self, 0, sequence, acknowledged, memoryview(b""))  # type: ignore[arg-type]
        return self._has_run

    def restore(self, replies: Mapping[ClusterSessionId, SessionReplies]) -> None:
        copies: dict[ClusterSessionId, SessionReplies] = {}
        for session_id, found in replies.items():
            copy = copies[session_id] = SessionReplies()
            copy.first_sequence = found.first_sequence
            for code, reply in found.kept:
                copy.append(code, reply)
        self.requests.restore(copies)

    def on_request(self, session: object, timestamp: int, payload: memoryview) -> bytes:
        self._has_run = True
        return self._reply

    def on_session_message(self, session: object, timestamp: int, payload: memoryview) -> None:
        """No request comes here."""

    def offer_reply(self, sequence: int, code: int, reply: bytes) -> None:
        """Nobody waits for it."""
