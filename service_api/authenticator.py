"""Who may open a session: asked by the leader before the session's opening goes into the log.

    leader gets SessionConnectRequest     on_connect_request(session_id, encoded_credentials, now_ms)
    at once, and then every 100 ms        on_connected_session(proxy, now_ms)      until it has decided
      proxy.authenticate(principal)       the session opens; the principal is in the log and on `ClientSession`
      proxy.reject()                      the client is told so, and nothing of it was ever in the log
      proxy.challenge(bytes)              the client is asked; it answers with a ChallengeResponse
    leader gets ChallengeResponse         on_challenge_response(session_id, encoded_credentials, now_ms)
    at once, and then every 100 ms        on_challenged_session(proxy, now_ms)     until it has decided

    once a second                         still_admits(principal, proof_id)            of each principal with a session

An authenticator is no part of replicated state: each member has its own, which may read files when it is made, and may
forget everything when the leader changes; clients then begin again. What counts is in the log: the principal, and the
name of the proof that it has given.

The leader's decides about openings. When a client comes back with the token of an open session, the member that it is
connected to, follower or leader, asks it for its credentials and runs the same callbacks with a number of their own:
the token counts if the authenticator gives the principal of the session. A follower calls them when a keep-alive comes,
and not every 100 ms.

A right to a session lasts as long as the authenticator says. One that has `still_admits` (`RevokingAuthenticator`) is
asked again while sessions are open, and by each new leader: the sessions of whom it does not admit any more end.

Source: aeron.md §3.6; Aeron `Authenticator`, `SessionProxy`.
"""

from __future__ import annotations

from typing import Final, Protocol

CREDENTIALS_LIMIT_BYTES: Final = 4 << 10
"""Of credentials and of answers to a challenge; longer ones are refused before an authenticator sees them."""

PRINCIPAL_LIMIT_BYTES: Final = 4 << 10
"""Of an encoded principal. Source: aeron.md §3.5, limits."""

CHALLENGE_LIMIT_BYTES: Final = 4 << 10


class SessionProxy(Protocol):
    """A session that is not open yet, as its authenticator sees it. The last call of a callback counts."""

    @property
    def session_id(self) -> int:
        """The id of this attempt: negative, never used again by this process.

        Not the cluster session id, as in Aeron: that is given when the session opens, so that attempts that end
        otherwise leave no gap.
        """

    @property
    def address(self) -> str:
        """Where the client connects from: an IPv4 address, or an IPv6 network of 64 bits; "-" where there is none.

        Good for limits, not for telling who somebody is.
        """

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Ask the client to prove who it is. True: it is asked.

        Raises:
            LocalProtocolError: the challenge is longer than `CHALLENGE_LIMIT_BYTES`.
        """

    def authenticate(self, encoded_principal: bytes, proof_id: str = "") -> bool:
        """Authenticate the client as this principal. True: the session opens.

        `proof_id` names the proof that it has given, for `RevokingAuthenticator.still_admits`: at most 64 letters,
        digits and `. _ -`. It is in the log, so it must not help anybody to make the proof.

        Raises:
            LocalProtocolError: the principal is longer than `PRINCIPAL_LIMIT_BYTES`, or this can be no proof id.
        """

    def reject(self) -> None:
        """Refuse the client; why is not said."""


class Authenticator(Protocol):
    """Decides who may open a session. Plain functions that must not block: the leader stands still meanwhile.

    One that raises has rejected the session it was asked about. The setting `authenticator` names the class, as
    `module:Class`; it is made without arguments when the node starts.

        class OneSecret:
            def on_connect_request(self, session_id, encoded_credentials, now_ms):
                self.credentials = encoded_credentials

            def on_connected_session(self, proxy, now_ms):
                if compare_digest(self.credentials, b"open sesame"):
                    proxy.authenticate(b"friend")
                else:
                    proxy.reject()
    """

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """A client wants a session. `on_connected_session` follows at once."""

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Decide, challenge, or do nothing yet: it is called again every 100 ms, until the session timeout."""

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """The client has answered the challenge. `on_challenged_session` follows at once."""

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Decide, challenge again, or wait: it is called again every 100 ms, until the session timeout."""


class RevokingAuthenticator(Authenticator, Protocol):
    """An authenticator that can end what it has allowed: it says who would be let in now."""

    def still_admits(self, encoded_principal: bytes, proof_id: str) -> bool:
        """Return whether a client with this principal, which has given this proof, may keep its session.

        The leader asks once a second about each pair that has sessions, however many these are. False ends them all.
        One that raises has changed nothing.
        """


class AcceptAll:
    """Lets everybody in, as nobody in particular: the default."""

    def on_connect_request(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Whatever the credentials are."""

    def on_connected_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Authenticate the client."""
        proxy.authenticate(b"")

    def on_challenge_response(self, session_id: int, encoded_credentials: bytes, now_ms: int) -> None:
        """Do nothing: this authenticator sends no challenge."""

    def on_challenged_session(self, proxy: SessionProxy, now_ms: int) -> None:
        """Do nothing: this authenticator sends no challenge."""
        proxy.authenticate(b"")
