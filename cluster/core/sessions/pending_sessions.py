"""Sessions that are not open yet: from a client's connect request to the opening in the log, or to a refusal.

The leader alone has them, and the log knows nothing of them. Its authenticator is asked at once, so where it decides at
once, as the default does, a session is never pending. What is pending when the leader loses its place is sent to ask
again.

Bounds: one a connection, until a session is open on it; then, with those that are open on it,
`connection_session_limit`. Pending and open sessions together are at most `session_limit`. One client may have its
share of these, `client_session_limit`, so that it leaves the rest to the others: as many pending ones of one address,
and as many open ones of one principal, or of one address where clients have no principal. The silence of a session ends
at the session timeout. A request that would go beyond is refused, and told so. A connection that holds a session
outlives the refusal of another one.

Source: aeron.md §3.5, §3.6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ....service_api.authenticator import (
    CHALLENGE_LIMIT_BYTES,
    CREDENTIALS_LIMIT_BYTES,
    PRINCIPAL_LIMIT_BYTES,
    SessionProxy,
)
from ....service_api.cluster_id import (
    DEMAND_PARAMETER,
    NULL_CLUSTER_ID,
    demanded_cluster_id,
    describe_other_cluster,
)
from ....service_api.errors import ConfigurationError, LocalProtocolError
from ....service_api.groups.demand import find_group_refusal
from ....service_api.types import ClusterSessionId
from ....service_api.wire.session import Challenge, EventCode, SessionConnectRequest
from ....service_api.wire.session_token import (
    CERTIFICATE_PROOF,
    PROOF_PARAMETER,
    TOKEN_PARAMETER,
    channel_digest,
    channel_proof,
    is_proof_id,
)
from .. import effects as fx
from ..context import ConsensusContext
from ..events import ClientConnect
from ..log.log_publisher import LogPublisher
from .session_answers import PROTOCOL_MAJOR_VERSION, answer, redirect
from .session_state import SessionState, enter

CHANNEL_LIMIT: Final = 1 << 10
"""Characters of a response channel, which every member keeps for as long as the session lives."""

NO_ADDRESS: Final = "-"
"""The text for an address that is not known, as `connection_gate.address_of` says it; it has no share."""

_FIRST_SESSION_ID: Final = -2
"""Attempts are numbered downwards from here: -1 is no session at all."""

SHOWN_BYTES: Final = 64
"""How much of a principal is shown in a reason."""


@dataclass(slots=True)
class PendingSession:
    """One client that wants a session."""

    session_id: int
    """Negative: a cluster session id is given when the session opens."""
    connection_id: int
    request: SessionConnectRequest
    time_of_last_activity_ns: int
    address: str
    """Where the client connects from."""
    certified_principal: bytes = b""
    """Who the client is by its certificate: then the authenticator is not asked."""
    encoded_principal: bytes = b""
    proof_id: str = ""
    """The proof that it has given of its principal."""
    state: SessionState = SessionState.INIT

    @property
    def holder(self) -> bytes | str | None:
        """Whose share the session is of, once it is authenticated."""
        return holder_of(self.encoded_principal, self.address)


def holder_of(encoded_principal: bytes, address: str) -> bytes | str | None:
    """Return whose share a session is of: its principal's, else its address'; None if neither is known."""
    return encoded_principal or (None if address == NO_ADDRESS else address)


class PendingSessions:
    """Every session of this leader that is not open yet."""

    def __init__(
        self,
        ctx: ConsensusContext,
        open_session: Callable[[PendingSession, LogPublisher], None],
        *,
        held_count: Callable[[int], int],
        opening_count: Callable[[int], int],
        client_count: Callable[[bytes | str], int],
    ) -> None:
        """`open_session` appends the opening of one that is AUTHENTICATED.

        `held_count` counts the sessions of a connection, `opening_count` those that are appended and not delivered.
        `client_count` counts the sessions of a principal or an address, both kinds of them.
        """
        self._ctx = ctx
        self._open_session = open_session
        self._held_count = held_count
        self._opening_count = opening_count
        self._client_count = client_count
        self._sessions: dict[int, PendingSession] = {}
        """By their own numbers."""
        self._by_connection: dict[int, dict[str, PendingSession]] = {}
        """By connection and response channel: a client that asks for the same twice means one session."""
        self._address_counts = Counter[str]()
        """How many sessions of each address are pending."""
        self._next_session_id = _FIRST_SESSION_ID
        self.timed_out_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __repr__(self) -> str:
        return f"<PendingSessions {[*self._sessions.values()]}>"

    def on_connect(self, event: ClientConnect, publisher: LogPublisher, *, open_count: int) -> None:
        """A client wants a session: let the authenticator decide, or say why it cannot have one.

        A client that has shown who it is with its certificate needs nothing else.
        """
        ctx, connection_id, request = self._ctx, event.connection_id, event.request
        before = self._by_connection.get(connection_id, {}).get(request.response_channel)
        if before is not None and _wants_the_same(before.request, request):
            return  # it was impatient: what becomes of its first request answers the second as well
        if before is not None:
            self._end(before)
        if not self._held_count(connection_id):
            self.on_disconnected(connection_id)
        if ctx.cluster_id == NULL_CLUSTER_ID and DEMAND_PARAMETER in request.response_channel:
            return  # this cluster is about to form and has no id yet: the client asks again
        session = PendingSession(
            self.take_id(), connection_id, request, ctx.now_ns, event.address, event.certified_principal
        )
        problem = (
            self._problem_with(request, open_count)
            or self._problem_on(connection_id)
            or self._problem_at(session.address)
        )
        if problem is not None:
            self._reject(session, EventCode.ERROR, problem)
            return
        self._sessions[session.session_id] = session
        self._address_counts[session.address] += 1
        self._by_connection.setdefault(connection_id, {})[request.response_channel] = session
        enter(session, SessionState.CONNECTED)
        if session.certified_principal:
            self._admit(session, session.certified_principal, CERTIFICATE_PROOF, publisher)
            return
        ctx.authenticator.on_connect_request(session.session_id, request.encoded_credentials, ctx.timestamp)
        self._ask(session, publisher)

    def take_id(self) -> int:
        """Give a negative id, which no other attempt to show a principal has."""
        session_id = self._next_session_id
        self._next_session_id -= 1
        return session_id

    def on_challenge_response(
        self, connection_id: int, session_id: int, encoded_credentials: bytes, publisher: LogPublisher
    ) -> bool:
        """A client answers a challenge. False if there is nothing to answer on this connection."""
        session = self._sessions.get(session_id)
        if session is None or session.connection_id != connection_id or session.state is not SessionState.CHALLENGED:
            return False
        session.time_of_last_activity_ns = self._ctx.now_ns
        self._ctx.authenticator.on_challenge_response(session_id, encoded_credentials, self._ctx.timestamp)
        self._ask(session, publisher)
        return True

    def poll(self, publisher: LogPublisher) -> None:
        """Ask again about those that are undecided; end those that were silent for too long."""
        ctx = self._ctx
        for session in [*self._sessions.values()]:
            if ctx.now_ns - session.time_of_last_activity_ns > ctx.config.session_timeout_ns:
                self.timed_out_count += 1
                state = session.state
                self._end(session)
                answer(
                    ctx,
                    session.connection_id,
                    session.request.correlation_id,
                    EventCode.ERROR,
                    detail=f"session timeout: not authenticated in time: state={state.name}",
                    close_after=not self.count_on(session.connection_id),
                )
                ctx.emit(fx.SessionChanged("session.timed_out", session.session_id, "not authenticated in time"))
            else:
                self._ask(session, publisher)

    def excuse(self, duration_ns: int) -> None:
        """This member stood still for so long, and heard nobody."""
        for session in self._sessions.values():
            session.time_of_last_activity_ns += duration_ns

    def on_disconnected(self, connection_id: int) -> None:
        """A connection is gone, and with it what was pending on it."""
        for session in [*self._by_connection.get(connection_id, {}).values()]:
            self._end(session)

    def roll_back(self) -> None:
        """This member leads no more: clients that wait are sent to ask the next leader."""
        for session in [*self._sessions.values()]:
            self._end(session)
            redirect(self._ctx, session.connection_id, session.request.correlation_id)

    def _problem_with(self, request: SessionConnectRequest, open_count: int) -> str | None:
        """Why this request cannot even be put to the authenticator."""
        major, limit = request.version >> 16, self._ctx.config.session_limit
        if major != PROTOCOL_MAJOR_VERSION:
            return f"invalid client version: major={major} expected={PROTOCOL_MAJOR_VERSION}"
        if open_count + len(self._sessions) >= limit:
            return f"concurrent session limit: sessions={open_count + len(self._sessions)} limit={limit}"
        length = len(request.encoded_credentials)
        if length > CREDENTIALS_LIMIT_BYTES:
            return f"credentials too long: length={length} limit={CREDENTIALS_LIMIT_BYTES}"
        channel = request.response_channel
        if len(channel) > CHANNEL_LIMIT:
            return f"response channel too long: length={len(channel)} limit={CHANNEL_LIMIT}"
        if TOKEN_PARAMETER in channel and channel_digest(channel) is None:
            return f"response channel malformed: expected {TOKEN_PARAMETER}=<64 hexadecimal digits>"
        if channel_proof(channel):
            return f"response channel: expected no {PROOF_PARAMETER}=, which the leader adds"
        return self._problem_with_cluster(channel)

    def _problem_on(self, connection_id: int) -> str | None:
        """Why this connection can have no more sessions."""
        count = self.count_on(connection_id)
        limit = self._ctx.config.connection_session_limit
        return f"sessions of one connection: sessions={count} {limit=}" if count >= limit else None

    def _problem_at(self, address: str) -> str | None:
        """Why an address can have no more sessions that are pending."""
        count, limit = self._address_counts[address], self._ctx.config.client_session_limit
        if address == NO_ADDRESS or count < limit:
            return None
        return (
            f"pending sessions of one address: {address=} sessions={count} {limit=}; end some, or finish opening them"
        )

    def _problem_of(self, holder: bytes | str | None) -> str | None:
        """Why a principal, or an address, can have no more sessions."""
        if holder is None:
            return None
        count, limit = self._client_count(holder), self._ctx.config.client_session_limit
        if count < limit:
            return None
        client = f"principal={holder[:SHOWN_BYTES]!r}" if isinstance(holder, bytes) else f"address={holder!r}"
        return f"sessions of one client: {client} sessions={count} {limit=}; close some, or raise client_session_limit"

    def count_on(self, connection_id: int) -> int:
        """How many sessions a connection has: pending, appended and not delivered, or open."""
        pending_count = len(self._by_connection.get(connection_id, ()))
        return pending_count + self._held_count(connection_id) + self._opening_count(connection_id)

    def _problem_with_cluster(self, channel: str) -> str | None:
        """Why this is not the cluster, or not the group, that the client demands; None if it demands this, or none."""
        try:
            demanded, found = demanded_cluster_id(channel), self._ctx.cluster_id
            other_group = find_group_refusal(channel, self._ctx.config.group)
        except ConfigurationError as error:
            return str(error)
        if demanded not in (NULL_CLUSTER_ID, found, self._ctx.whole_cluster_id):
            return describe_other_cluster(found, expected=demanded)
        return other_group

    def _ask(self, session: PendingSession, publisher: LogPublisher) -> None:
        """Ask the authenticator what is to become of a session, and do it."""
        proxy = ask_authenticator(self._ctx, session.state, session.session_id, session.address)
        match proxy.decision:
            case SessionState.AUTHENTICATED:
                self._admit(session, proxy.payload, proxy.proof_id, publisher)
            case SessionState.CHALLENGED:
                enter(session, SessionState.CHALLENGED)
                self._send_challenge(session, proxy.payload)
            case SessionState.REJECTED:
                self._forget(session)
                self._reject(session, EventCode.AUTHENTICATION_REJECTED, "authentication rejected")
            case _:
                pass  # undecided: asked again at the next poll

    def _admit(self, session: PendingSession, encoded_principal: bytes, proof_id: str, publisher: LogPublisher) -> None:
        self._forget(session)
        session.encoded_principal, session.proof_id = encoded_principal, proof_id
        problem = self._problem_of(session.holder)
        if problem is not None:
            self._reject(session, EventCode.ERROR, problem)
            return
        enter(session, SessionState.AUTHENTICATED)
        self._open_session(session, publisher)

    def _send_challenge(self, session: PendingSession, encoded_challenge: bytes) -> None:
        challenge = Challenge(
            correlation_id=session.request.correlation_id,
            cluster_session_id=ClusterSessionId(session.session_id),
            encoded_challenge=encoded_challenge,
        )
        self._ctx.emit(fx.SendToClient(session.connection_id, challenge))

    def _reject(self, session: PendingSession, code: EventCode, detail: str) -> None:
        enter(session, SessionState.REJECTED)
        answer(
            self._ctx,
            session.connection_id,
            session.request.correlation_id,
            code,
            detail=detail,
            close_after=not self.count_on(session.connection_id),
        )
        self._ctx.emit(fx.SessionChanged("session.rejected", session.session_id, detail))
        enter(session, SessionState.CLOSED)

    def _end(self, session: PendingSession) -> None:
        self._forget(session)
        enter(session, SessionState.CLOSED)

    def _forget(self, session: PendingSession) -> None:
        del self._sessions[session.session_id]
        self._address_counts[session.address] -= 1
        if not self._address_counts[session.address]:
            del self._address_counts[session.address]
        of_connection = self._by_connection[session.connection_id]
        del of_connection[session.request.response_channel]
        if not of_connection:
            del self._by_connection[session.connection_id]


def _wants_the_same(before: SessionConnectRequest, now: SessionConnectRequest) -> bool:
    return (before.version, before.response_channel, before.encoded_credentials) == (
        now.version,
        now.response_channel,
        now.encoded_credentials,
    )


def ask_authenticator(ctx: ConsensusContext, state: SessionState, session_id: int, address: str) -> AdmissionProxy:
    """Ask about a client that has connected or, in another state, was challenged; return what it decides."""
    proxy = AdmissionProxy(session_id, address)
    if state is SessionState.CONNECTED:
        ctx.authenticator.on_connected_session(proxy, ctx.timestamp)
    else:
        ctx.authenticator.on_challenged_session(proxy, ctx.timestamp)
    return proxy


class AdmissionProxy(SessionProxy):
    """Notes what an authenticator says of one session."""

    __slots__ = ("_address", "_session_id", "decision", "payload", "proof_id")

    def __init__(self, session_id: int, address: str) -> None:
        self._session_id = session_id
        self._address = address
        self.decision: SessionState | None = None
        self.payload = b""
        self.proof_id = ""

    @property
    def session_id(self) -> int:
        """Give the number that the authenticator knows the session by."""
        return self._session_id

    @property
    def address(self) -> str:
        """Give where the client connects from."""
        return self._address

    def challenge(self, encoded_challenge: bytes) -> bool:
        """Note that the client is to be asked."""
        self._decide(SessionState.CHALLENGED, encoded_challenge, "challenge", CHALLENGE_LIMIT_BYTES)
        return True

    def authenticate(self, encoded_principal: bytes, proof_id: str = "") -> bool:
        """Note that the client has shown a principal."""
        if not is_proof_id(proof_id):
            raise LocalProtocolError(
                f"{proof_id=} expected at most 64 letters, digits and . _ -, and not a reserved word"
            )
        self._decide(SessionState.AUTHENTICATED, encoded_principal, "principal", PRINCIPAL_LIMIT_BYTES)
        self.proof_id = proof_id
        return True

    def reject(self) -> None:
        """Note that the client is refused."""
        self.decision = SessionState.REJECTED

    def _decide(self, decision: SessionState, payload: bytes, what: str, limit: int) -> None:
        if len(payload) > limit:
            raise LocalProtocolError(f"{what} too long: length={len(payload)} limit={limit}")
        self.decision, self.payload = decision, bytes(payload)
