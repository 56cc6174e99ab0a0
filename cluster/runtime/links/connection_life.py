"""The life of one client's connection: who may stay, and how it ends.

A connection on which no session is open has little time, and may send little: a setup frame, then single frames of
`UNOPENED_FRAME_LIMIT` bytes at most, so what a stranger's frame says of its length is not believed. A client's
connections to followers count as its session's, for the client shows its token there, too.

A connection may carry many sessions, see `session_ids`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from ....service_api.errors import invariant
from ....service_api.net.connection_gate import AcceptedConnection
from ....service_api.types import NULL_VALUE, ClusterSessionId, CorrelationId
from ....service_api.wire.client_end import encode_client_end
from ....service_api.wire.message import peek_header
from ....service_api.wire.session import (
    NULL_CORRELATION_ID,
    KeepAliveAnswer,
    SessionConnectRequest,
)
from ....service_api.wire.session_frame import ingress_prefixes
from .connection_state import LEGAL_TRANSITIONS, ConnectionState
from .egress_pipe import MAX_FRAME_LENGTH, EgressPipe
from .egress_tracker import EgressTracker
from .farewell import LINGER_S, Farewell, FarewellHub
from .ingress_owner import IngressOwner

UNOPENED_FRAME_LIMIT: Final = 16 << 10
"""The longest frame before a session is open: four times what credentials may have."""
_LINGER_LIMIT_BYTES: Final = 1 << 20
"""With more in its transport a connection that is cut off is dropped at once: this memory is wanted."""

WINDOW: Final = 1
"""A reason not to read: the ingress window is full, or the leader holds."""
CHOKED: Final = 2
"""A reason not to read: the client does not read its egress."""

logger = structlog.get_logger()


class ConnectionHub(FarewellHub, Protocol):
    """The ingress of a member, as the lives of its connections see it."""

    owner: IngressOwner
    session_open_timeout_s: float
    find_cluster_id: Callable[[], int]
    """The source of the id of this member's cluster: 0 while that is not known."""
    whole_cluster_id: int

    @property
    def egress(self) -> EgressTracker:
        """The tracker of egress that waits for clients."""

    def forget(self, connection_id: int) -> None:
        """Tell the core that a connection is gone, once."""

    def on_window_filled(self, connection_id: int) -> None:
        """Stop reading; this connection is read last when reading goes on."""


class Incoming(Protocol):
    """The incoming bytes of a connection, as its life sees them."""

    sole_prefix: bytes
    frame_limit: int

    def hold(self, reason: int) -> None:
        """Stop reading for a reason."""

    def resume(self, reason: int) -> None:
        """Read again, if no other reason is left."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Take what is gathered, and end the life."""


class ConnectionLife:
    """The state of one client's connection, its sessions and its end."""

    __slots__ = (
        "_incoming",
        "accepted",
        "asks_for_answers",
        "connection_id",
        "egress",
        "ingress",
        "prefixes",
        "session_ids",
        "state",
    )

    def __init__(self, ingress: ConnectionHub, accepted: AcceptedConnection, incoming: Incoming) -> None:
        self.state = ConnectionState.ACCEPTED
        self.connection_id = 0
        self.asks_for_answers = False
        """Whether its client is one of ours that wants keep-alives answered: nobody else gets an answer."""
        self.ingress: Final = ingress
        self.accepted: Final = accepted
        accepted.is_needed = self.holds_session
        accepted.end = self._end_now
        self._incoming = incoming
        self.session_ids: Final[dict[ClusterSessionId, int]] = {}
        """The sessions whose messages are taken on it, and the term of each binding."""
        self.prefixes: Final[dict[bytes, ClusterSessionId]] = {}
        """The beginnings of the messages and of the requests of its sessions, each with its session."""
        self.egress: Final = EgressPipe(self, ingress.egress, self.session_ids)

    def __repr__(self) -> str:
        return f"<ConnectionLife id={self.connection_id} {self.state.name} sessions={len(self.session_ids)}>"

    @property
    def session_id(self) -> ClusterSessionId | None:
        """The session on it, for log lines; the first of many."""
        return next(iter(self.session_ids), None)

    def holds_session(self) -> bool:
        """Return whether its client has a session here, as the gate or the core knows."""
        return self.accepted.is_admitted or self.ingress.owner.holds_session(self.connection_id)

    def has_shown_session(self) -> bool:
        """Return whether its client has a session here; a claim of this pass of the loop counts, too."""
        if self.state is ConnectionState.CLAIMED and not self.holds_session():
            self.ingress.owner.take_soon()
        return self.holds_session()

    # --- what its client shows

    def set_up(self) -> None:
        """Give the client time to open a session: its setup frame has come."""
        if self.state is not ConnectionState.ENDING:
            self._enter(ConnectionState.SET_UP)
        self.accepted.expect("session", self.ingress.session_open_timeout_s)

    def answer_keep_alive(self, correlation_id: CorrelationId = NULL_CORRELATION_ID) -> None:
        """Tell a client that this process runs, and whether it leads; one that never asked is told nothing."""
        if self.asks_for_answers and self.state is not ConnectionState.ENDING:
            is_leader = self.ingress.owner.publisher is not None
            self.egress.send(KeepAliveAnswer(correlation_id=correlation_id, is_leader=int(is_leader)))

    def claim(self) -> None:
        """Believe in long frames: the client has shown something for a session."""
        if self.state is ConnectionState.SET_UP:
            self._enter(ConnectionState.CLAIMED)

    # --- what the core decides

    def bind(self, session_id: ClusterSessionId, leadership_term_id: int) -> None:
        """Accept messages of this session and term."""
        self._unbind(session_id)
        self.accepted.admit()
        if self.state is not ConnectionState.ENDING:
            self._enter(ConnectionState.OPEN)
        self.session_ids[session_id] = leadership_term_id
        for prefix in ingress_prefixes(leadership_term_id, session_id):
            self.prefixes[prefix] = session_id
        self._find_sole_prefix()

    def unbind(self) -> None:
        """Stop taking session messages."""
        self.session_ids.clear()
        self.prefixes.clear()
        self._incoming.sole_prefix = b""

    def release(self, session_id: ClusterSessionId) -> None:
        """Unbind a session that has ended, or is on another connection; after the last, what waits is freed soon."""
        self._unbind(session_id)
        if self.egress.waiting is not None and not self.session_ids:
            asyncio.get_running_loop().call_later(LINGER_S, self.egress.abort_if_waiting)

    def _unbind(self, session_id: ClusterSessionId) -> None:
        leadership_term_id = self.session_ids.pop(session_id, None)
        if leadership_term_id is not None:
            for prefix in ingress_prefixes(leadership_term_id, session_id):
                del self.prefixes[prefix]
            self._find_sole_prefix()

    def _find_sole_prefix(self) -> None:
        self._incoming.sole_prefix = next(iter(self.prefixes)) if len(self.session_ids) == 1 else b""

    # --- its end

    def close(self) -> None:
        """Close once everything is written, which may not take long."""
        egress = self.egress
        egress.flush()
        transport = egress.transport
        if transport is None or self.state is ConnectionState.ENDING:
            return
        self._enter(ConnectionState.ENDING)
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(LINGER_S, egress.abort)
        if egress.waiting is None:
            transport.close()

    def refuse(self, reason: str) -> None:
        """End a connection whose client has gone too far, with one line that says why."""
        self._log_refused(reason)
        self.end_with(reason)

    def refuse_bytes(self, reason: str) -> None:
        """Drop a connection whose bytes make no sense; what is gathered of it came after them."""
        self._log_refused(reason)
        self.egress.abort()
        self._enter(ConnectionState.ENDING)
        self.ingress.forget(self.connection_id)

    def refuse_asker(self, kind: str, reason: str, encoded: bytes) -> None:
        """End the connection of a client that can have no session here, for what it means or shows.

        A request for a session is answered, which ends the client's search; without one it would try elsewhere.
        """
        _, template_id, schema_id, _ = peek_header(encoded)
        is_request = (template_id, schema_id) == (SessionConnectRequest.TEMPLATE_ID, SessionConnectRequest.SCHEMA_ID)
        if is_request and self.egress.transport is not None:
            request = SessionConnectRequest.decode(encoded)
            self.egress.transport.write(self._encode_end(reason, request.correlation_id))
        self.accepted.refuse(kind, reason)

    def choke(self, is_choked: bool) -> None:
        """Do not read a client that does not read its egress; or read it again."""
        if is_choked:
            self._incoming.hold(CHOKED)
        else:
            self._incoming.resume(CHOKED)

    def cut_off(self, reason: str, waiting_bytes: int) -> None:
        """End the connection of a client that does not read; the last that it gets says why. Its session stays."""
        logger.warning(
            "egress.dropped",
            connection_id=self.connection_id,
            session_id=self.session_id,
            waiting_bytes=waiting_bytes,
            reason=reason,
        )
        self.end_with(f"{reason}; connect again, and read what you are sent")

    def end_with(self, reason: str) -> None:
        """End the connection with a message that says why, which the client has a while to read."""
        egress = self.egress
        egress.flush()
        egress.waiting = None
        self._enter(ConnectionState.ENDING)
        message = self._encode_end(reason)
        self.ingress.forget(self.connection_id)
        transport, egress.transport = egress.transport, None
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() > _LINGER_LIMIT_BYTES:
            transport.abort()
            return
        transport.set_protocol(Farewell(transport, self.ingress, self._incoming.connection_lost))
        transport.write(message)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def lost(self) -> None:
        """End: the connection is gone. A lost transport of TLS may say that it is not closing."""
        self.egress.transport = None
        self.accepted.leave()
        self.ingress.forget(self.connection_id)
        self._enter(ConnectionState.CLOSED)

    def _end_now(self, reason: str) -> None:
        """Free the descriptor at once; a client that has said what it is gets a message, if its socket takes it."""
        egress, is_set_up = self.egress, self.state is not ConnectionState.ACCEPTED
        transport, egress.transport = egress.transport, None
        egress.waiting = None
        self._enter(ConnectionState.ENDING)
        message = self._encode_end(reason)
        self.ingress.forget(self.connection_id)
        if transport is None:
            return
        if is_set_up and not transport.is_closing() and not transport.get_write_buffer_size():
            transport.write(message)
            transport.close()
        else:
            transport.abort()

    def _encode_end(self, reason: str, correlation_id: int = NULL_VALUE) -> bytes:
        session_id = NULL_VALUE if self.session_id is None else self.session_id
        return encode_client_end(reason, cluster_session_id=session_id, correlation_id=correlation_id)

    def _log_refused(self, reason: str) -> None:
        ids = {"connection_id": self.connection_id, "session_id": self.session_id}
        self.accepted.log_ended("ingress.refused", reason, **ids)

    def _enter(self, new: ConnectionState) -> None:
        """Change the state: the one door. To enter the present state changes nothing."""
        old = self.state
        if new is old:
            return
        invariant(new in LEGAL_TRANSITIONS[old], "a legal transition of a connection", old=old.name, new=new.name)
        self.state = new
        if new is ConnectionState.CLAIMED or new is ConnectionState.OPEN:
            self._incoming.frame_limit = MAX_FRAME_LENGTH
