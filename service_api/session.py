"""A client's session as a service sees it."""

from __future__ import annotations

from typing import Protocol

from .types import ClusterSessionId


class ClientSession(Protocol):
    """One open client session, the same on every member. Source: Aeron `ClientSession`."""

    @property
    def id(self) -> ClusterSessionId:
        """The session's id: ascending in order of opening, never used again."""

    @property
    def encoded_principal(self) -> bytes:
        """The principal of the client, as its authenticator set it; empty without authentication."""

    @property
    def is_closing(self) -> bool:
        """Whether a service of this node has asked for the session to be closed."""

    def offer(self, payload: bytes | bytearray | memoryview) -> bool:
        """Send a message to the client. At most once: a new leader does not send it again.

        Only the leader sends; on followers and in replay the message is counted and discarded, and the result is True
        as well, so that services need no role checks. False: the session is closing.

        Raises:
            LocalProtocolError: the payload is larger than the log's largest message, or the call is not legal in this
                callback (the caller's fault).
        """

    def close(self) -> None:
        """Ask for the session to be closed: `on_session_close` follows in log order.

        Raises:
            LocalProtocolError: the call is not legal in this callback.
        """
