"""Client sessions, the same list on every member, and the connections they use.

A session begins and ends in the log. The leader acts when it appends (it must answer the client); every member, the
leader too, settles when the entry is delivered. What a leader appended and did not deliver is undone when it loses
its place: an open that may never commit is forgotten, a close that may never commit is taken back, and ids are given
again from the last committed one (aeron.md §3.12, §10 hazard 13).

A session outlives its connection. Clients keep a connection to every member and say on each, with keep-alives, which
session is theirs; so whoever leads next knows at once where each client is.

Source: seed 004; aeron.md §3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from service_api import CloseReason
from service_api.types import NULL_SESSION_ID, NULL_VALUE, ClusterSessionId, CorrelationId, MemberId
from service_api.wire.session import EventCode, NewLeaderEvent, SessionConnectRequest, SessionEvent

from ..messages.log import SessionCloseEvent, SessionOpenEvent
from . import effects as fx
from .context import ConsensusContext
from .log_publisher import LogPublisher

PROTOCOL_MAJOR_VERSION = 0
"""The client protocol's major version; others are refused. Source: aeron.md §3.5."""

PROTOCOL_VERSION = (PROTOCOL_MAJOR_VERSION << 16) | (1 << 8)


class SessionState(Enum):
    """Where a session stands. Source: aeron.md §3.5; the states of authentication come with authenticators."""

    OPEN = "open"
    CLOSING = "closing"


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
    state: SessionState = SessionState.OPEN
    close_reason: CloseReason | None = None
    is_close_appended: bool = False
    """Leader: its SessionCloseEvent is in the log, and not delivered yet."""


class SessionManager:
    """Every session of the cluster, and which ingress connection each one uses here."""

    def __init__(self, ctx: ConsensusContext) -> None:
        self._ctx = ctx
        self.sessions: dict[ClusterSessionId, ClusterSession] = {}
        self._connections: dict[ClusterSessionId, int] = {}
        self._sessions_by_connection: dict[int, ClusterSessionId] = {}
        self._awaiting_open: dict[ClusterSessionId, int] = {}
        """Leader: the connections of clients whose SessionOpenEvent is appended and not delivered yet."""
        self._next_session_id = 1
        self._next_committed_session_id = 1

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
            detail = self._ctx.config.ingress_endpoints
            self._answer(connection_id, event.correlation_id, EventCode.OK, session_id=session_id, detail=detail)
            self._open_ingress(connection_id, session_id)

    def on_replay_session_close(self, event: SessionCloseEvent) -> None:
        """A SessionCloseEvent is delivered: the session is gone on this member."""
        self.sessions.pop(ClusterSessionId(event.cluster_session_id), None)
        connection_id = self._connections.pop(ClusterSessionId(event.cluster_session_id), None)
        if connection_id is not None:
            self._sessions_by_connection.pop(connection_id, None)
            self._ctx.emit(fx.UnbindIngress(connection_id))

    def on_service_close(self, session_id: ClusterSessionId) -> None:
        """The service closes a session, on every member at the same position; whoever leads appends the close."""
        session = self.sessions.get(session_id)
        if session is not None:
            # Also when a close for another reason is appended: that one may never commit, this is settled.
            session.state = SessionState.CLOSING
            session.close_reason = CloseReason.SERVICE_ACTION

    def roll_back(self) -> None:
        """Undo what was appended here as leader and may never commit; clients that wait are sent to ask again."""
        commit_position = self._ctx.commit_position
        for session_id, connection_id in self._awaiting_open.items():
            correlation_id = self.sessions[session_id].correlation_id
            self._answer(connection_id, correlation_id, EventCode.REDIRECT, detail=self._ctx.config.ingress_endpoints)
        self._awaiting_open.clear()
        for session in [*self.sessions.values()]:
            if session.opened_log_position > commit_position:
                del self.sessions[session.cluster_session_id]
                continue
            session.is_close_appended = False
            if session.close_reason is not CloseReason.SERVICE_ACTION:
                session.state = SessionState.OPEN
                session.close_reason = None
        self._next_session_id = self._next_committed_session_id

    def connection_of(self, session_id: ClusterSessionId) -> int | None:
        """Give the connection on which a client holds a session here; None without one."""
        return self._connections.get(session_id)

    @property
    def next_committed_session_id(self) -> int:
        """The id after that of the newest session whose opening was delivered."""
        return self._next_committed_session_id

    def restore(self, sessions: Iterable[ClusterSession], *, next_session_id: int) -> None:
        """Take over the sessions of a snapshot."""
        self.sessions = {session.cluster_session_id: session for session in sessions}
        self._next_session_id = self._next_committed_session_id = next_session_id

    # --- connections, on every member

    def on_redirect(self, connection_id: int, request: SessionConnectRequest) -> None:
        """Not the leader: tell the client who is, or that nobody is yet (leader_member_id -1)."""
        self._answer(
            connection_id,
            request.correlation_id,
            EventCode.REDIRECT,
            detail=self._ctx.config.ingress_endpoints,
        )

    def bind(self, connection_id: int, session_id: ClusterSessionId) -> None:
        """Remember that a client holds this session on this connection."""
        previous = self._connections.get(session_id)
        if previous is not None and previous != connection_id:
            self._sessions_by_connection.pop(previous, None)
            self._ctx.emit(fx.UnbindIngress(previous))
        held = self._sessions_by_connection.get(connection_id)
        if held is not None and held != session_id:
            self._connections.pop(held, None)
        self._connections[session_id] = connection_id
        self._sessions_by_connection[connection_id] = session_id

    def principal_on(self, connection_id: int, session_id: ClusterSessionId) -> bytes | None:
        """Who holds this session on this connection; None if it is not open here, or not of this connection."""
        session = self.sessions.get(session_id)
        is_bound = self._sessions_by_connection.get(connection_id) == session_id
        if session is None or not is_bound or session.state is not SessionState.OPEN:
            return None
        return session.encoded_principal

    def on_disconnected(self, connection_id: int) -> None:
        """A connection is gone; its session waits for the client until it times out."""
        session_id = self._sessions_by_connection.pop(connection_id, None)
        if session_id is not None:
            del self._connections[session_id]
        for waiting_id in [key for key, value in self._awaiting_open.items() if value == connection_id]:
            del self._awaiting_open[waiting_id]

    # --- the leader

    def on_connect(self, connection_id: int, request: SessionConnectRequest, publisher: LogPublisher) -> None:
        """Open a session, or say why not. The answer goes out when the open is delivered.

        Not when it is appended: an open that never commits gives its id back, and the client that was told of it would
        take the session of the client that gets the id next.
        """
        ctx = self._ctx
        major = request.version >> 16
        if major != PROTOCOL_MAJOR_VERSION:
            detail = f"invalid client version: major={major} expected={PROTOCOL_MAJOR_VERSION}"
            self._answer(connection_id, request.correlation_id, EventCode.ERROR, detail=detail, close_after=True)
            return
        if len(self.sessions) >= ctx.config.session_limit:
            detail = f"concurrent session limit: sessions={len(self.sessions)} limit={ctx.config.session_limit}"
            self._answer(connection_id, request.correlation_id, EventCode.ERROR, detail=detail, close_after=True)
            return
        session_id = ClusterSessionId(self._next_session_id)
        self._next_session_id += 1
        event = SessionOpenEvent(
            leadership_term_id=ctx.leadership_term_id,
            correlation_id=request.correlation_id,
            cluster_session_id=session_id,
            timestamp=ctx.stamp(),
            response_stream_id=request.response_stream_id,
            response_channel=request.response_channel,
            encoded_principal=b"",
        )
        self._add(event, publisher.append_message(event.encode()))
        self._awaiting_open[session_id] = connection_id
        ctx.emit(fx.SessionChanged("session.opened", session_id, request.client_info or "client connected"))

    def on_keep_alive(self, connection_id: int, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """A client says it is alive: link its connection, and tell it about a newer term.

        A client that knows a newer term than this leader is not its business: the session is of another history.
        """
        if leadership_term_id > self._ctx.leadership_term_id:
            return
        session = self.sessions.get(session_id)
        if session is None or session.state is not SessionState.OPEN:
            self.on_stray(connection_id, session_id, leadership_term_id)
            return
        session.time_of_last_activity_ns = self._ctx.now_ns
        if self._connections.get(session_id) != connection_id or leadership_term_id < self._ctx.leadership_term_id:
            self._welcome(connection_id, session_id)

    def on_stray(self, connection_id: int, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """A message that cannot be taken gets an answer: the new term, or that the session is closed.

        But not from a leader that was replaced and does not know it yet.
        """
        if leadership_term_id > self._ctx.leadership_term_id:
            return
        session = self.sessions.get(session_id)
        if session is not None and session.state is SessionState.OPEN:
            if leadership_term_id < self._ctx.leadership_term_id or self._connections.get(session_id) != connection_id:
                self._welcome(connection_id, session_id)
            return
        self._answer(
            connection_id,
            CorrelationId(NULL_VALUE),
            EventCode.CLOSED,
            session_id=session_id,
            detail=f"unknown session: cluster_session_id={session_id}" if session is None else "session is closing",
        )

    def on_lead(self) -> None:
        """This member leads now: give every session its time again, and tell every client that is connected."""
        for session_id, session in self.sessions.items():
            session.time_of_last_activity_ns = self._ctx.now_ns
            connection_id = self._connections.get(session_id)
            if connection_id is not None and session.state is SessionState.OPEN:
                self._welcome(connection_id, session_id)

    def close(self, session: ClusterSession, reason: CloseReason, publisher: LogPublisher, detail: str) -> None:
        """Append the close of a session and tell its client."""
        ctx = self._ctx
        session.state = SessionState.CLOSING
        session.close_reason = reason
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
            ctx.emit(fx.UnbindIngress(connection_id))
            self._answer(
                connection_id,
                session.correlation_id,
                EventCode.CLOSED,
                session_id=session.cluster_session_id,
                detail=detail,
            )

    def poll(self, publisher: LogPublisher, last_activity_ns: Callable[[int], int | None]) -> None:
        """Close sessions that the service wants closed, and those silent for longer than the session timeout.

        `last_activity_ns` tells when a connection last brought a session message: the hot path keeps that per
        connection.
        """
        ctx = self._ctx
        for session in [*self.sessions.values()]:
            if session.is_close_appended:
                continue
            if session.state is SessionState.CLOSING:
                self.close(session, CloseReason.SERVICE_ACTION, publisher, "closed by the service")
                continue
            connection_id = self._connections.get(session.cluster_session_id)
            active_ns = None if connection_id is None else last_activity_ns(connection_id)
            if active_ns is not None and active_ns > session.time_of_last_activity_ns:
                session.time_of_last_activity_ns = active_ns
            if ctx.now_ns - session.time_of_last_activity_ns > ctx.config.session_timeout_ns:
                self.close(session, CloseReason.TIMEOUT, publisher, "TIMEOUT")

    def _welcome(self, connection_id: int, session_id: ClusterSessionId) -> None:
        """Link a connection to a session that was opened under another leader, or on another connection."""
        ctx = self._ctx
        ctx.emit(
            fx.SendToClient(
                connection_id,
                NewLeaderEvent(
                    leadership_term_id=ctx.leadership_term_id,
                    cluster_session_id=session_id,
                    leader_member_id=ctx.config.member_id,
                    ingress_endpoints=ctx.config.ingress_endpoints,
                ),
            )
        )
        self._open_ingress(connection_id, session_id)

    def _open_ingress(self, connection_id: int, session_id: ClusterSessionId) -> None:
        self.bind(connection_id, session_id)
        self._ctx.emit(fx.BindIngress(connection_id, session_id, self._ctx.leadership_term_id))

    def _add(self, event: SessionOpenEvent, end_position: int) -> None:
        session_id = ClusterSessionId(event.cluster_session_id)
        self.sessions[session_id] = ClusterSession(
            cluster_session_id=session_id,
            correlation_id=event.correlation_id,
            opened_log_position=end_position,
            response_stream_id=event.response_stream_id,
            response_channel=event.response_channel,
            encoded_principal=event.encoded_principal,
            time_of_last_activity_ns=self._ctx.now_ns,
        )

    def _answer(
        self,
        connection_id: int,
        correlation_id: CorrelationId,
        code: EventCode,
        *,
        session_id: ClusterSessionId = NULL_SESSION_ID,
        detail: str,
        close_after: bool = False,
    ) -> None:
        ctx = self._ctx
        leader = MemberId(NULL_VALUE) if ctx.leader_member_id is None else ctx.leader_member_id
        event = SessionEvent(
            cluster_session_id=session_id,
            correlation_id=correlation_id,
            leadership_term_id=ctx.leadership_term_id,
            leader_member_id=leader,
            code=code,
            version=PROTOCOL_VERSION,
            leader_heartbeat_timeout_ns=ctx.config.leader_heartbeat_timeout_ns,
            detail=detail,
        )
        ctx.emit(fx.SendToClient(connection_id, event, close_after))
