"""Client sessions, the same list on every member, and the connections they use.

A session begins and ends in the log. The leader acts when it appends (it must answer the client); every member, the
leader too, settles when the entry is delivered. What a leader appended and did not deliver is undone when it loses
its place: an open that may never commit is forgotten, a close that may never commit is taken back, and ids are given
again from the last committed one (aeron.md §3.12, §10 hazard 13).

A session outlives its connection. Clients keep a connection to every member and say on each, with keep-alives, which
session is theirs; so the next leader knows at once where each client is. A connection is believed only if it opened the
session itself, or has shown its secret (`session_claims`): a client that only names a session is told so, and nothing
changes for the one who holds it.

A connection may hold many sessions. Those of one secret are one client's: its proof on a connection, and one keep-alive
there, count for all of them. Only a shown secret does that. A response channel alone, which the log holds, proves
nothing.

Where the client can prove its principal again, its secret counts only together with that (`session_proofs`): a stolen
secret is worth nothing by itself.

A secret shows whose a session is, and not that its client may still have one. That ends with the proof that opened it.
The leader asks its authenticator about each principal that has sessions: before it does anything for them, and then
once a second. It closes the sessions of those that are gone, through the log, so no member and no later leader knows
them. A session that a certificate opened ends in another way: its connections end with the certificate, on every
member, and no other connection can claim it (`session_claims`); so it falls silent.

Source: seed 004; aeron.md §3.5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice
from typing import Final, TypeVar

from ....service_api import CloseReason
from ....service_api.types import NULL_VALUE, ClusterSessionId, CorrelationId, TermId
from ....service_api.wire.log.messages import SessionCloseEvent, SessionOpenEvent
from ....service_api.wire.session import (
    AdminRequestType,
    AdminResponse,
    AdminResponseCode,
    EventCode,
    NewLeaderEvent,
    SessionLimits,
)
from ....service_api.wire.session_token import (
    CERTIFICATE_PROOF,
    bound_digest,
    channel_digest,
    channel_needs_proof,
    channel_proof,
    proven_digest,
    with_proof,
)
from .. import effects as fx
from ..context import ConsensusContext
from ..events import ClientChallengeResponse, ClientClose, ClientConnect, ClientDisconnected, ClientKeepAlive
from ..log.log_publisher import LogPublisher, max_message_length
from ..vocabulary.session_selection import SessionSelection
from .pending_sessions import NO_ADDRESS, SHOWN_BYTES, PendingSession, PendingSessions, holder_of
from .session_answers import answer, redirect
from .session_claims import SessionClaims
from .session_proofs import SessionProofs
from .session_state import SessionState, enter

_TIMEOUT_MAX_MS: Final = (1 << 31) - 1

WELCOME_SLICE: Final = 64
"""Sessions that are welcomed in one turn: some 4 ms of a new leader's loop, which has answers to give meanwhile."""

REVIEW_INTERVAL_NS: Final = 1_000_000_000
REVIEW_SLICE: Final = 256
"""Principals that the authenticator is asked about in one poll, some 0.5 ms. A new leader asks about all at once."""

_ENDED_LIMIT: Final = 1_000
"""Sessions that a leader has ended and can tell the reason of."""

_Key = TypeVar("_Key", str, bytes, tuple[bytes, str])


@dataclass(slots=True)
class ClusterSession:
    """One client session as the consensus module keeps it."""

    cluster_session_id: ClusterSessionId
    correlation_id: CorrelationId
    opened_log_position: int
    response_stream_id: int
    response_channel: str
    encoded_principal: bytes
    time_of_last_activity_ns: int
    state: SessionState = SessionState.INIT
    is_closed_by_service: bool = False
    """The service has closed it, on every member at the same position. That is settled: no other cause undoes it."""
    is_close_appended: bool = False
    """Leader: its SessionCloseEvent is in the log, and not delivered yet."""
    address: str = NO_ADDRESS
    """Where its client came from, on the member that opened it as leader: the log does not hold it."""
    client_info: str = ""
    """How its client calls itself, on the member that opened it as leader."""
    client_version: int = 0
    """The version of its client's protocol, on the member that opened it as leader; 0: not given."""
    proof_id: str = field(init=False)
    """The proof that its client gave of its principal; empty: the authenticator has no name for it."""
    secret_digest: bytes | None = field(init=False)
    """Digest of the secret of the session's client; None: it has not given one."""
    needs_proof: bool = field(init=False)
    """True if the secret counts only together with a proof of the principal, given to an authenticator."""
    token_digest: bytes | None = field(init=False)
    """Digest of what shows who may take the session over: the secret, and a principal that has to be shown with it;
    None: nobody may."""

    def __post_init__(self) -> None:
        self.proof_id = channel_proof(self.response_channel)
        self.secret_digest = digest = channel_digest(self.response_channel)
        is_certified = self.proof_id == CERTIFICATE_PROOF
        self.needs_proof = (
            bool(self.encoded_principal) and not is_certified and channel_needs_proof(self.response_channel)
        )
        if digest is not None and self.needs_proof:
            self.token_digest = proven_digest(digest, self.encoded_principal)
        else:
            self.token_digest = digest and bound_digest(digest, self.encoded_principal if is_certified else b"")

    @property
    def standing(self) -> tuple[bytes, str]:
        """Who its client is, and the proof of that: what its right to a session hangs on."""
        return self.encoded_principal, self.proof_id


class SessionManager:
    """Every session of the cluster, and which ingress connection each one uses here."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self.sessions: dict[ClusterSessionId, ClusterSession] = {}
        self._connections: dict[ClusterSessionId, int] = {}
        self._sessions_by_connection: dict[int, dict[ClusterSessionId, None]] = {}
        self._sessions_by_secret: dict[bytes, dict[ClusterSessionId, None]] = {}
        """Those whose client has a secret, by what the log holds of it."""
        self._sessions_by_channel: dict[str, dict[ClusterSessionId, None]] = {}
        self._sessions_by_standing: dict[tuple[bytes, str], dict[ClusterSessionId, None]] = {}
        self._client_counts = Counter[bytes | str]()
        """How many sessions each principal has, and each address of clients without one."""
        self._leads = False
        """Whether connections are bound here: from the beginning of a term that this member leads to its end."""
        self._awaiting_open: dict[ClusterSessionId, int] = {}
        """Leader: the connections of clients whose SessionOpenEvent is appended and not delivered yet."""
        self._opening_counts = Counter[int]()
        """Of these, how many each connection has."""
        self.claims = SessionClaims()
        self.pending = PendingSessions(
            ctx,
            self._open,
            held_count=self._held_count,
            opening_count=self._opening_count,
            client_count=self._client_counts.__getitem__,
        )
        self.proofs = SessionProofs(
            ctx, take_id=self.pending.take_id, on_proven=self._on_proven, on_failed=self._on_proof_failed
        )
        self._checks: list[tuple[int, ClusterSessionId]] = []
        """Leader: a heap of when each session is looked at for its silence, never later than it may be closed."""
        self._to_close: dict[ClusterSessionId, None] = {}
        """Sessions that are CLOSING, whose close may not be appended yet."""
        self._ended: dict[ClusterSessionId, tuple[bytes | None, str]] = {}
        """Leader: the newest sessions that nobody in them wanted closed, with their digests and the reasons: a client
        that comes later, as after a restart of all members, is told why."""
        self._to_review: dict[tuple[bytes, str], None] = {}
        """Leader: whom the authenticator is yet to be asked about in this round."""
        self._review_at_ns = 0
        self.is_unreviewed = False
        """Leader: whether the authenticator is yet to be asked about all sessions that an earlier leader had."""
        self._to_welcome: dict[ClusterSessionId, int] = {}
        """Leader: sessions whose clients have not been told yet that it leads, and on which connection they are."""
        self._to_tell: dict[ClusterSessionId, None] = {}
        """Leader: sessions whose clients have not been told yet where the members are now."""
        self._next_session_id = 1
        self._next_committed_session_id = 1
        config = ctx.config
        self._limits = SessionLimits(
            max_message_length=max_message_length(config.term_length_bytes),
            refused=config.refused_ingress,
            group_index=config.group.index,
            group_count=config.group.count,
            session_timeout_ms=min(config.session_timeout_ns // 1_000_000, _TIMEOUT_MAX_MS),
        )

    def __repr__(self) -> str:
        return f"<SessionManager sessions={len(self.sessions)} next={self._next_session_id}>"

    # --- every member, in log order

    def on_replay_session_open(self, event: SessionOpenEvent, end_position: int) -> None:
        """A SessionOpenEvent is delivered: the session exists on this member from here on."""
        session_id = ClusterSessionId(event.cluster_session_id)
        self._next_committed_session_id = max(self._next_committed_session_id, session_id + 1)
        self._next_session_id = max(self._next_session_id, session_id + 1)
        if session_id not in self.sessions:
            self._add(event, end_position)
        connection_id = self._awaiting_open.pop(session_id, None)
        if connection_id is not None:
            self._opening_counts[connection_id] -= 1
            self._ctx.emit(fx.SendToClient(connection_id, self._limits))
            detail = self._ctx.ingress_endpoints
            answer(self._ctx, connection_id, event.correlation_id, EventCode.OK, session_id=session_id, detail=detail)
            session = self.sessions[session_id]
            if self._holds_same(connection_id, session):
                enter(session, SessionState.CLOSING)
                self._to_close[session_id] = None
            else:
                self._open_ingress(connection_id, session_id)
            return
        session = self.sessions[session_id]
        holder_id = self.claims.holder_of(session.token_digest)
        if holder_id is None or session.is_close_appended or self._holds_same(holder_id, session):
            return
        if self._leads:
            self._welcome(holder_id, session_id)
        else:
            self.bind(holder_id, session_id)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A SessionCloseEvent is delivered: the session is gone on this member."""
        session_id = ClusterSessionId(event.cluster_session_id)
        session = self._remove(session_id)
        self._to_close.pop(session_id, None)
        if session is not None:
            enter(session, SessionState.CLOSED)
        connection_id = self._unbind(session_id)
        if connection_id is not None:
            self._ctx.emit(fx.UnbindIngress(connection_id, session_id))

    def on_service_close(self, session_id: ClusterSessionId) -> None:
        """The service closes a session, on every member at the same position; the leader appends the close."""
        session = self.sessions.get(session_id)
        if session is not None:
            # Also when a close for another reason is appended: that one may never commit, this is settled.
            enter(session, SessionState.CLOSING)
            session.is_closed_by_service = True
            self._to_close[session_id] = None

    def roll_back(self) -> None:
        """Undo what was appended here as leader and may never commit; clients that wait are sent to ask again."""
        self._leads = False
        self._ended.clear()
        self._to_welcome.clear()
        self._to_tell.clear()
        commit_position = self._ctx.commit_position
        for session_id, connection_id in self._awaiting_open.items():
            redirect(self._ctx, connection_id, self.sessions[session_id].correlation_id)
        self._awaiting_open.clear()
        self._opening_counts.clear()
        self.pending.roll_back()
        for session in [*self.sessions.values()]:
            if session.opened_log_position > commit_position:
                self._remove(session.cluster_session_id)
                enter(session, SessionState.CLOSED)
                continue
            session.is_close_appended = False
            if session.state is SessionState.CLOSING and not session.is_closed_by_service:
                enter(session, SessionState.OPEN)
        self._next_session_id = self._next_committed_session_id

    def connection_of(self, session_id: ClusterSessionId) -> int | None:
        """Return the connection on which a client holds a session here; None without one."""
        return self._connections.get(session_id)

    @property
    def next_committed_session_id(self) -> int:
        """The id after that of the newest session whose opening was delivered."""
        return self._next_committed_session_id

    def restore(self, sessions: Iterable[ClusterSession], *, next_session_id: int) -> None:
        """Take over the sessions of a snapshot."""
        self.sessions.clear()
        self._sessions_by_secret.clear()
        self._sessions_by_channel.clear()
        self._sessions_by_standing.clear()
        self._client_counts.clear()
        for session in sessions:
            self._keep(session)
        self._next_session_id = self._next_committed_session_id = next_session_id

    # --- connections, on every member

    def redirect_connect(self, event: ClientConnect) -> None:
        """Not the leader: tell the client who is, or that nobody is yet (leader_member_id -1)."""
        redirect(self._ctx, event.connection_id, event.request.correlation_id)

    def redirect_challenge_response(self, event: ClientChallengeResponse) -> None:
        """A session's secret is kept wherever it is shown, and so is the proof of its principal.

        An answer to the challenge of an opening has to go to the leader.
        """
        if event.session_id >= 0:
            self.claims.add(event.connection_id, event.encoded_credentials, event.certified_principal, event.address)
        elif not self.proofs.on_challenge_response(event.connection_id, event.session_id, event.encoded_credentials):
            redirect(self._ctx, event.connection_id, event.correlation_id)

    def on_follower_keep_alive(self, event: ClientKeepAlive) -> None:
        """A client says, not to a leader, which session is its: to be known should this member lead next.

        One of an older term is told where the members are. Its leader may have become a follower, on a connection that
        stands, and the new one a member that it has not heard of. That this one leads only itself can say: before it
        takes input, what it is sent would be lost.
        """
        connection_id, session_id = event.connection_id, event.cluster_session_id
        self._bind_if_held(event)
        ctx, leader_id = self._ctx, self._ctx.leader_member_id
        is_older = event.leadership_term_id < ctx.leadership_term_id
        if not is_older or leader_id is None or leader_id == ctx.config.member_id:
            return
        if self._connections.get(session_id) == connection_id and session_id in self.sessions:
            redirect(ctx, connection_id, CorrelationId(NULL_VALUE), session_id=session_id)

    def _bind_if_held(self, event: ClientKeepAlive) -> None:
        connection_id, session_id = event.connection_id, event.cluster_session_id
        session = self.sessions.get(session_id)
        if session is None:
            return  # one that is opened later is bound to the connection that has shown its secret
        if self._is_held_by(connection_id, session):
            self.bind(connection_id, session_id)
            for other_id in self._others_of_client(connection_id, session):
                self.bind(connection_id, other_id)
            self._ask_other_principals(event, session)
        elif not self._has_to_prove(event, session):
            self._count_refusal(connection_id, session)

    def _has_to_prove(self, event: ClientKeepAlive, session: ClusterSession, *, is_repeated: bool = True) -> bool:
        """Ask a client that has shown the secret for the proof of the principal; False if it cannot be asked."""
        connection_id = event.connection_id
        if not session.needs_proof or not self.claims.shows(connection_id, session.secret_digest):
            return False
        address = self.claims.address_of(connection_id) or NO_ADDRESS
        event = ClientKeepAlive(connection_id, event.leadership_term_id, session.cluster_session_id)
        principal, correlation_id = session.encoded_principal, session.correlation_id
        return self.proofs.ask(event, principal, correlation_id, address, is_repeated=is_repeated)

    def _ask_other_principals(self, event: ClientKeepAlive, session: ClusterSession) -> None:
        """Ask a shared connection for the principals of its other sessions, too: one keep-alive speaks for all."""
        for other_id in self._sessions_by_secret.get(session.secret_digest or b"", ()):
            other = self.sessions[other_id]
            if other.encoded_principal != session.encoded_principal and not self._is_held_by(
                event.connection_id, other
            ):
                self._has_to_prove(event, other, is_repeated=False)

    def _on_proven(self, event: ClientKeepAlive, encoded_principal: bytes) -> None:
        """A connection has proven a principal: what it has said before counts now."""
        self.claims.add_principal(event.connection_id, encoded_principal)
        if self._leads:
            self.on_keep_alive(event)
        else:
            self._bind_if_held(event)

    def _on_proof_failed(self, event: ClientKeepAlive) -> None:
        session = self.sessions.get(event.cluster_session_id)
        if session is None:
            return
        if self._leads:
            self._refuse(event.connection_id, session)
        else:
            self._count_refusal(event.connection_id, session)

    def bind(self, connection_id: int, session_id: ClusterSessionId) -> None:
        """Remember that a client holds this session on this connection, which has shown that it does."""
        previous = self._connections.get(session_id)
        if previous == connection_id:
            return
        if previous is not None:
            self._unbind(session_id)
            self._ctx.emit(fx.UnbindIngress(previous, session_id))
        self._connections[session_id] = connection_id
        self._sessions_by_connection.setdefault(connection_id, {})[session_id] = None

    def _unbind(self, session_id: ClusterSessionId) -> int | None:
        """Forget on which connection a session was; return its number."""
        connection_id = self._connections.pop(session_id, None)
        if connection_id is not None:
            held = self._sessions_by_connection[connection_id]
            del held[session_id]
            if not held:
                del self._sessions_by_connection[connection_id]
        return connection_id

    def principal_on(self, connection_id: int, session_id: ClusterSessionId) -> bytes | None:
        """The principal of this session on this connection; None if it is not open here, or not of this connection."""
        session = self.session_on(connection_id, session_id)
        return None if session is None else session.encoded_principal

    def on_disconnected(self, event: ClientDisconnected) -> None:
        """A connection is gone; its sessions wait for the client until they time out."""
        connection_id = event.connection_id
        self.claims.forget(connection_id)
        self.pending.on_disconnected(connection_id)
        self.proofs.on_disconnected(connection_id)
        for session_id in self._sessions_by_connection.pop(connection_id, ()):
            del self._connections[session_id]
        for waiting_id in [key for key, value in self._awaiting_open.items() if value == connection_id]:
            del self._awaiting_open[waiting_id]
        del self._opening_counts[connection_id]

    # --- the leader

    def on_connect(self, event: ClientConnect, publisher: LogPublisher) -> None:
        """A client wants a session."""
        self.pending.on_connect(event, publisher, open_count=len(self.sessions))

    def _open(self, pending: PendingSession, publisher: LogPublisher) -> None:
        """Append the opening of a session. The client is answered when it is delivered.

        Not when it is appended: an open that never commits gives its id back, and the client that was told of it would
        take the session of the client that gets the id next.
        """
        ctx, request = self._ctx, pending.request
        session_id = ClusterSessionId(self._next_session_id)
        self._next_session_id += 1
        event = SessionOpenEvent(
            leadership_term_id=ctx.leadership_term_id,
            correlation_id=request.correlation_id,
            cluster_session_id=session_id,
            timestamp=ctx.stamp(),
            response_stream_id=request.response_stream_id,
            response_channel=with_proof(request.response_channel, pending.proof_id),
            encoded_principal=pending.encoded_principal,
        )
        session = self._add(event, publisher.append_message(event.encode()), address=pending.address)
        session.client_info, session.client_version = request.client_info, request.version
        heappush(self._checks, (ctx.now_ns + ctx.config.session_timeout_ns, session_id))
        enter(pending, SessionState.OPEN)
        self._awaiting_open[session_id] = pending.connection_id
        self._opening_counts[pending.connection_id] += 1
        ctx.emit(fx.SessionChanged("session.opened", session_id, request.client_info or "client connected"))

    def on_keep_alive(self, event: ClientKeepAlive) -> None:
        """A client says it is alive: link its connection, and tell it about a newer term.

        A client that knows a newer term than this leader is not its business: the session is of another history.
        """
        connection_id, session_id = event.connection_id, event.cluster_session_id
        leadership_term_id = event.leadership_term_id
        if leadership_term_id > self._ctx.leadership_term_id:
            return
        session = self.sessions.get(session_id)
        if session is None or session.state is not SessionState.OPEN:
            self.on_stray(connection_id, session_id, leadership_term_id)
            return
        if not self._is_held_by(connection_id, session):
            if not self._has_to_prove(event, session):
                self._refuse(connection_id, session)
            return
        session.time_of_last_activity_ns = self._ctx.now_ns
        if self._lacks_welcome(connection_id, session_id, leadership_term_id):
            self._welcome(connection_id, session_id)
            for other_id in self._others_of_client(connection_id, session):
                self._to_welcome[other_id] = connection_id
            self._ask_other_principals(event, session)
            self.welcome_slice()

    def is_known(self, connection_id: int, session_id: ClusterSessionId, leadership_term_id: int) -> bool:
        """Whether a keep-alive would change nothing: this connection holds the session, and knows this term."""
        is_current = leadership_term_id == self._ctx.leadership_term_id and session_id not in self._to_welcome
        return is_current and self.session_on(connection_id, session_id) is not None

    def on_stray(self, connection_id: int, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """A message that cannot be taken gets an answer: the new term, or that the session is closed.

        But not from a leader that was replaced and does not know it yet.
        """
        if leadership_term_id > self._ctx.leadership_term_id:
            return
        session = self.sessions.get(session_id)
        if session is None:
            detail = self._why_ended(connection_id, session_id) or f"unknown session: cluster_session_id={session_id}"
            self._tell_closed(connection_id, session_id, detail)
        elif not self._is_held_by(connection_id, session):
            claim = ClientKeepAlive(connection_id, TermId(leadership_term_id), session_id)
            if not self._has_to_prove(claim, session, is_repeated=False):
                self._refuse(connection_id, session)
        elif session.state is not SessionState.OPEN:
            detail = self._why_ended(connection_id, session_id) or "session is closing"
            self._tell_closed(connection_id, session_id, detail)
        elif self._lacks_welcome(connection_id, session_id, leadership_term_id):
            self._welcome(connection_id, session_id)

    def _why_ended(self, connection_id: int, session_id: ClusterSessionId) -> str | None:
        """Return why this leader has ended a session, for who shows its secret; None for others, or if it has not."""
        digest, reason = self._ended.get(session_id, (None, None))
        return reason if self.claims.shows(connection_id, digest) else None

    def _lacks_welcome(self, connection_id: int, session_id: ClusterSessionId, leadership_term_id: int) -> bool:
        """Whether a client that means this term, or an older one, is yet to be told of it on this connection."""
        is_older = leadership_term_id < self._ctx.leadership_term_id or session_id in self._to_welcome
        return is_older or self._connections.get(session_id) != connection_id

    def on_close_request(self, event: ClientClose, publisher: LogPublisher) -> None:
        """A client asks for its session to be closed."""
        session = self.sessions.get(event.cluster_session_id)
        if session is None or event.leadership_term_id != self._ctx.leadership_term_id:
            self.on_stray(event.connection_id, event.cluster_session_id, event.leadership_term_id)
        elif not self._is_held_by(event.connection_id, session):
            if session.state is SessionState.OPEN:
                self.on_stray(event.connection_id, event.cluster_session_id, event.leadership_term_id)
        elif not session.is_close_appended:
            self.close(session, CloseReason.CLIENT_ACTION, publisher, "CLIENT_ACTION")

    def on_lead(self) -> None:
        """This member leads now: give every session its time again, and begin to tell every client that is connected.

        A slice at a time: to tell a thousand of them at once stopped the loop for a quarter of a second, in which
        nothing came in of those that had been told first.
        """
        self._leads = True
        self.is_unreviewed = True
        self.proofs.forgive()
        self._to_review.clear()
        self.renew_activity()
        due_ns = self._ctx.now_ns + self._ctx.config.session_timeout_ns
        self._checks = [(due_ns, session_id) for session_id in sorted(self.sessions)]
        self._to_close = {key: None for key, one in self.sessions.items() if one.state is SessionState.CLOSING}
        self._to_welcome = {
            session_id: connection_id
            for session_id, connection_id in self._connections.items()
            if session_id in self.sessions
        }
        self.welcome_slice()

    @property
    def is_welcoming(self) -> bool:
        """Whether there are clients that have not been told yet that this member leads, or where the members are."""
        return bool(self._to_welcome or self._to_tell)

    def welcome_slice(self) -> None:
        """Tell the next clients; one that has gone meanwhile, or whose session has, is passed over."""
        for session_id in [*islice(self._to_tell, WELCOME_SLICE)]:
            del self._to_tell[session_id]
            told_id = self._connections.get(session_id)
            if told_id is not None and session_id not in self._to_welcome:
                self._ctx.emit(fx.SendToClient(told_id, self._new_leader_event(session_id)))
        for session_id in [*islice(self._to_welcome, WELCOME_SLICE)]:
            connection_id = self._to_welcome.pop(session_id)
            session = self.sessions.get(session_id)
            if session is not None and session.state is SessionState.OPEN and self._is_held_by(connection_id, session):
                self._welcome(connection_id, session_id)

    def renew_activity(self) -> None:
        """Restart the timeout of every session."""
        for session in self.sessions.values():
            session.time_of_last_activity_ns = self._ctx.now_ns

    def excuse(self, duration_ns: int) -> None:
        """This member stood still for so long, and heard nobody: that was no silence of its clients."""
        for session in self.sessions.values():
            session.time_of_last_activity_ns += duration_ns
        self.pending.excuse(duration_ns)

    def session_on(self, connection_id: int, session_id: ClusterSessionId) -> ClusterSession | None:
        """This session, if it is open and its client has shown to hold it on this connection."""
        session = self.sessions.get(session_id)
        is_bound = session is not None and self._connections.get(session_id) == connection_id
        return session if session is not None and is_bound and session.state is SessionState.OPEN else None

    def is_any_on(self, connection_id: int) -> bool:
        """Whether the client of a connection has shown to hold an open session."""
        return any(
            self.session_on(connection_id, session_id) is not None
            for session_id in self._sessions_by_connection.get(connection_id, ())
        )

    def _held_count(self, connection_id: int) -> int:
        """How many sessions a connection holds."""
        return len(self._sessions_by_connection.get(connection_id, ()))

    def _opening_count(self, connection_id: int) -> int:
        """How many sessions of a connection are appended and not delivered yet."""
        return self._opening_counts[connection_id]

    def answer_admin(
        self,
        session_id: ClusterSessionId,
        correlation_id: CorrelationId,
        code: AdminResponseCode,
        message: str,
        *,
        payload: bytes = b"",
        request_type: AdminRequestType | None = AdminRequestType.SNAPSHOT,
    ) -> None:
        """Answer an admin request, wherever its client is now; one that is gone asks again."""
        connection_id = self._connections.get(session_id)
        if connection_id is not None:
            response = AdminResponse(
                cluster_session_id=session_id,
                correlation_id=correlation_id,
                request_type=request_type,
                response_code=code,
                message=message,
                payload=payload,
            )
            self._ctx.emit(fx.SendToClient(connection_id, response))

    def review(self, publisher: LogPublisher) -> None:
        """Close the sessions of those whom the authenticator does not admit any more.

        It is asked once about all sessions of one principal and one proof.
        """
        if not self._to_review:
            self._to_review = dict.fromkeys(self._sessions_by_standing)
        count = len(self._to_review) if self.is_unreviewed else REVIEW_SLICE
        still_admits = getattr(self._ctx.authenticator, "still_admits", lambda *standing: True)
        for standing in [*islice(self._to_review, count)]:
            del self._to_review[standing]
            principal, proof_id = standing
            if proof_id != CERTIFICATE_PROOF and not still_admits(principal, proof_id):
                self._revoke(standing, publisher)
        self.is_unreviewed = False
        if not self._to_review:
            self._review_at_ns = self._ctx.now_ns + REVIEW_INTERVAL_NS

    def _revoke(self, standing: tuple[bytes, str], publisher: LogPublisher) -> None:
        """Close the sessions of a principal, and the connections that have no others."""
        shown = standing[0][:SHOWN_BYTES].decode(errors="replace")
        reason = f"principal={shown!r} may have no session any more: it was removed, or its secret was replaced"
        sessions = [self.sessions[each] for each in self._sessions_by_standing.get(standing, ())]
        closed = self.close_all(sessions, publisher, reason, ends_connections=True)
        if closed:
            ids = tuple(session.cluster_session_id for session in closed)
            addresses = tuple(sorted({session.address for session in closed}))
            self._ctx.emit(fx.SessionsRevoked(standing[0], ids, addresses, reason))

    def address_of(self, session: ClusterSession) -> str:
        """Return where the client of a session is connected from, or was when it opened it here; `-` if unknown."""
        return self.claims.address_of(self._connections.get(session.cluster_session_id)) or session.address

    def close_selected(self, selection: SessionSelection, publisher: LogPublisher) -> list[ClusterSession]:
        """Close the sessions that an operator has selected; return those that were open."""
        found = [*self.sessions.values()]
        if selection.cluster_session_id is not None:
            found = [each for each in found if each.cluster_session_id == selection.cluster_session_id]
        elif selection.encoded_principal is not None:
            found = [each for each in found if each.encoded_principal == selection.encoded_principal]
        else:
            found = [each for each in found if self.address_of(each) == selection.address]
        return self.close_all(found, publisher, "closed by an operator")

    def close_all(
        self,
        sessions: Iterable[ClusterSession],
        publisher: LogPublisher,
        detail: str,
        *,
        ends_connections: bool = False,
    ) -> list[ClusterSession]:
        """Close sessions that neither their clients nor the service want closed; return those that were open.

        In the log this is a timeout: of the reasons that Aeron knows, it is the one that says nothing of either. One
        whose opening is not delivered yet is passed over: its client is about to be told that it is open.
        """
        open_ones = [
            session
            for session in sessions
            if session.state is SessionState.OPEN and session.cluster_session_id not in self._awaiting_open
        ]
        left = Counter(self._connections.get(session.cluster_session_id) for session in open_ones)
        ending = {
            connection_id
            for connection_id, count in left.items()
            if ends_connections and connection_id is not None and count == self.pending.count_on(connection_id)
        }
        for session in open_ones:
            connection_id = self._connections.get(session.cluster_session_id)
            left[connection_id] -= 1
            is_last = connection_id in ending and not left[connection_id]
            self._ended[session.cluster_session_id] = session.secret_digest, detail
            self.close(session, CloseReason.TIMEOUT, publisher, detail, ends_connection=is_last)
        for session_id in [*self._ended][:-_ENDED_LIMIT]:
            del self._ended[session_id]
        return open_ones

    def close(
        self,
        session: ClusterSession,
        reason: CloseReason,
        publisher: LogPublisher,
        detail: str,
        *,
        ends_connection: bool = False,
    ) -> None:
        """Append the close of a session and tell its client; then its connection may end, too."""
        ctx = self._ctx
        enter(session, SessionState.CLOSING)
        session.is_close_appended = True
        event = SessionCloseEvent(
            leadership_term_id=ctx.leadership_term_id,
            cluster_session_id=session.cluster_session_id,
            timestamp=ctx.stamp(),
            close_reason=reason,
        )
        publisher.append_message(event.encode())
        ctx.emit(fx.SessionChanged("session.closed", session.cluster_session_id, detail))
        connection_id = self._connections.get(session.cluster_session_id)
        if connection_id is not None:
            ctx.emit(fx.UnbindIngress(connection_id, session.cluster_session_id))
            answer(
                ctx,
                connection_id,
                session.correlation_id,
                EventCode.CLOSED,
                session_id=session.cluster_session_id,
                detail=detail,
                close_after=ends_connection,
            )

    def poll(self, publisher: LogPublisher, last_activity_ns: Callable[[int], int | None]) -> None:
        """Close sessions that the service wants closed, and those silent for longer than the session timeout.

        And ask about those that are pending. A session that is heard of is looked at once in a session timeout: with
        10,000 of them, looking at all each time took a tenth of the leader's processor.

        `last_activity_ns` tells when a connection last brought a session message: the hot path keeps that per
        connection.
        """
        self.pending.poll(publisher)
        self.proofs.poll()
        if self._ctx.now_ns >= self._review_at_ns:
            self.review(publisher)
        to_close, self._to_close = self._to_close, {}
        for session_id in to_close:
            session = self.sessions.get(session_id)
            if session is None or session.is_close_appended:
                continue
            if session.is_closed_by_service:
                self.close(session, CloseReason.SERVICE_ACTION, publisher, "closed by the service")
            else:
                self.close(session, CloseReason.CLIENT_ACTION, publisher, "its client has another session")
        checks, now_ns = self._checks, self._ctx.now_ns
        while checks and checks[0][0] < now_ns:
            self._check_silence(heappop(checks)[1], publisher, last_activity_ns)

    def _check_silence(
        self, session_id: ClusterSessionId, publisher: LogPublisher, last_activity_ns: Callable[[int], int | None]
    ) -> None:
        """Close a session that was silent for too long; look again at one that was not when it may be next."""
        session = self.sessions.get(session_id)
        if session is None or session.state is not SessionState.OPEN:
            return
        connection_id = self._connections.get(session_id)
        active_ns = None if connection_id is None else last_activity_ns(connection_id)
        if active_ns is not None and active_ns > session.time_of_last_activity_ns:
            session.time_of_last_activity_ns = active_ns
        due_ns = session.time_of_last_activity_ns + self._ctx.config.session_timeout_ns
        if due_ns < self._ctx.now_ns:
            self.close(session, CloseReason.TIMEOUT, publisher, "TIMEOUT")
        else:
            heappush(self._checks, (due_ns, session_id))

    def tell_members(self) -> None:
        """Leader: begin to tell every client that is connected where the members are now."""
        self._to_tell = dict.fromkeys(self._connections)

    def _new_leader_event(self, session_id: ClusterSessionId) -> NewLeaderEvent:
        ctx = self._ctx
        return NewLeaderEvent(
            leadership_term_id=ctx.leadership_term_id,
            cluster_session_id=session_id,
            leader_member_id=ctx.config.member_id,
            ingress_endpoints=ctx.ingress_endpoints,
        )

    def _welcome(self, connection_id: int, session_id: ClusterSessionId) -> None:
        """Link a connection to a session that was opened under another leader, or on another connection."""
        self._to_welcome.pop(session_id, None)
        self._ctx.emit(fx.SendToClient(connection_id, self._new_leader_event(session_id)))
        self._open_ingress(connection_id, session_id)

    def _open_ingress(self, connection_id: int, session_id: ClusterSessionId) -> None:
        self.bind(connection_id, session_id)
        self._ctx.emit(fx.BindIngress(connection_id, session_id, self._ctx.leadership_term_id))

    def _add(self, event: SessionOpenEvent, end_position: int, *, address: str = NO_ADDRESS) -> ClusterSession:
        session_id = ClusterSessionId(event.cluster_session_id)
        session = ClusterSession(
            cluster_session_id=session_id,
            correlation_id=event.correlation_id,
            opened_log_position=end_position,
            response_stream_id=event.response_stream_id,
            response_channel=event.response_channel,
            encoded_principal=event.encoded_principal,
            time_of_last_activity_ns=self._ctx.now_ns,
            address=address,
        )
        self._keep(session)
        enter(session, SessionState.OPEN)
        return session

    def _keep(self, session: ClusterSession) -> None:
        session_id = session.cluster_session_id
        self._remove(session_id)
        self.sessions[session_id] = session
        self._sessions_by_channel.setdefault(session.response_channel, {})[session_id] = None
        self._sessions_by_standing.setdefault(session.standing, {})[session_id] = None
        holder = holder_of(session.encoded_principal, session.address)
        if holder is not None:
            self._client_counts[holder] += 1
        if session.secret_digest is not None:
            self._sessions_by_secret.setdefault(session.secret_digest, {})[session_id] = None

    def _remove(self, session_id: ClusterSessionId) -> ClusterSession | None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            _drop(self._sessions_by_channel, session.response_channel, session_id)
            _drop(self._sessions_by_standing, session.standing, session_id)
            holder = holder_of(session.encoded_principal, session.address)
            if holder is not None:
                self._client_counts[holder] -= 1
                if not self._client_counts[holder]:
                    del self._client_counts[holder]
            if session.secret_digest is not None:
                _drop(self._sessions_by_secret, session.secret_digest, session_id)
        return session

    def _others_of_client(self, connection_id: int, session: ClusterSession) -> list[ClusterSessionId]:
        """The open sessions of the same secret, shown on this connection, that are not known to be on it.

        Not a second one that the client asked for and did not take: that ends by its timeout.
        """
        digest = session.secret_digest
        if digest is None or not self.claims.shows(connection_id, digest):
            return []
        return [
            other_id
            for other_id in self._sessions_by_secret[digest]
            if self.claims.fits(connection_id, self.sessions[other_id].token_digest)
            and self._connections.get(other_id) != connection_id
            and (other := self.sessions[other_id]).state is SessionState.OPEN
            and not self._holds_same(connection_id, other)
        ]

    def _holds_same(self, connection_id: int, session: ClusterSession) -> bool:
        """Whether a connection holds an open session of the same channel: its client asked twice, and took the first.

        Were the connection given to the second, what the client has sent in the first would be lost.
        """
        channel = session.response_channel
        held = self._sessions_by_connection.get(connection_id, {})
        for other_id in min(self._sessions_by_channel[channel], held, key=len):
            other = self.session_on(connection_id, other_id)
            if other is not None and other is not session and other.response_channel == channel:
                return True
        return False

    def _is_held_by(self, connection_id: int, session: ClusterSession) -> bool:
        """Whether this connection has opened the session here, or has shown its secret."""
        session_id = session.cluster_session_id
        return self._connections.get(session_id) == connection_id or self.claims.fits(
            connection_id, session.token_digest
        )

    def _refuse(self, connection_id: int, session: ClusterSession) -> None:
        """Tell a client that names a session and cannot show its secret; nothing changes for the one who holds it."""
        self._count_refusal(connection_id, session)
        answer(
            self._ctx,
            connection_id,
            CorrelationId(NULL_VALUE),
            EventCode.AUTHENTICATION_REJECTED,
            session_id=session.cluster_session_id,
            detail=f"wrong session token: cluster_session_id={session.cluster_session_id}",
        )

    def _count_refusal(self, connection_id: int, session: ClusterSession) -> None:
        if self.claims.refuse(connection_id):
            detail = f"wrong session token: connection_id={connection_id}"
            self._ctx.emit(fx.SessionChanged("session.token_refused", session.cluster_session_id, detail))

    def _tell_closed(self, connection_id: int, session_id: ClusterSessionId, detail: str) -> None:
        answer(
            self._ctx,
            connection_id,
            CorrelationId(NULL_VALUE),
            EventCode.CLOSED,
            session_id=session_id,
            detail=detail,
        )


def _drop(index: dict[_Key, dict[ClusterSessionId, None]], key: _Key, session_id: ClusterSessionId) -> None:
    sessions = index[key]
    del sessions[session_id]
    if not sessions:
        del index[key]
