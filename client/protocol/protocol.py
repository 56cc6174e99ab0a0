"""The client's side of the session protocol, without a socket, a clock or a loop.

    CONNECTING ──► OPEN ◄──► AWAIT_NEW_LEADER             its leader's connection is gone, no other is known
        │           │ ▲ └──► AWAIT_NEW_LEADER_CONNECTION  a leader is known, its connection is not up yet
        │           ▼ └──────┘
        └──────► CLOSING ──► CLOSED

Inputs are methods that take the time: `start`, `on_connected`, `on_disconnected`, `receive_data`, `poll`,
`close`. Outputs are the effects of `take_effects`, the bytes of `data_to_send`, the calls on the listener and
the state.

A session outlives its leader. The protocol keeps a connection to every member and sends a keep-alive on each,
which tells that member whose connection it is; so the member that becomes leader can tell the client at once.
It follows a `NewLeaderEvent` only to a higher term than it knows, and drops egress of lower terms: news may
arrive out of order, because they come on different connections. One of the same term, from the leader whose
connection was lost, says that it leads still.

What was offered to a leader that went away may be lost, or not: only the application can tell, with its own
numbers. The listener's `on_new_leader` says when to resend. Requests need none of that: see `requests`.

Source: Aeron `AeronCluster`, its `State` and `EgressPoller`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...service_api.errors import (
    BackPressureError,
    ClusterError,
    ClusterTimeoutError,
    LocalProtocolError,
    SessionClosedError,
    invariant,
)
from ...service_api.types import (
    EGRESS_STREAM_ID,
    NULL_VALUE,
    CorrelationId,
    MemberId,
    TermId,
)
from ...service_api.wire.client_end import WRONG_PORT_ID
from ...service_api.wire.frame import ReadableBuffer
from ...service_api.wire.message import peek_header
from ...service_api.wire.queries import QueryResponse
from ...service_api.wire.request import REQUEST_HEADER_LENGTH
from ...service_api.wire.session import (
    REFUSES_MESSAGES,
    REFUSES_REQUESTS,
    SESSION_HEADER_LENGTH,
    AdminResponse,
    Challenge,
    EventCode,
    KeepAliveAnswer,
    NewLeaderEvent,
    SessionConnectRequest,
    SessionEvent,
    SessionLimits,
    refusal_of_requests,
)
from ..config import FOR_EVER_S, ClientConfig, to_ns
from ..connection_events import LeaderLost, NewLeader, SessionClosed, SessionOpened
from ..egress import EgressListener
from ..errors import ConnectRejectedError, ConnectTimeoutError, IndeterminateError, RejectedError
from .admin import AdminTracker, AdminWish, OnDone
from .client_state import (
    LEGAL_TRANSITIONS,
    LIVE_STATES,
    ClientState,
    SessionTimes,
    keep_alive_interval_ns,
    known_heartbeat_timeout_ns,
    new_leader_timeout_ns,
)
from .drain import DrainTarget, OfferTracker
from .effects import Effect
from .egress_adapter import ClientSessionState, EgressAdapter
from .ingress_publisher import IngressPublisher
from .keep_alives import LEAST_SILENCE_NS
from .leader_search import LeaderSearch, member_endpoints
from .member_link import ClientLinks, MemberLink
from .neighbours import Neighbours
from .queries import QueryTracker
from .requests import RequestWindow
from .session_identity import SessionIdentity, SessionShare, close_request_of, keep_alive_of

PROTOCOL_VERSION: Final = 0 << 16 | 1 << 8
"""Semantic version 0.1.0 of the session protocol; members refuse another major version."""

CLOSED_BY_CLIENT: Final = "closed by this client"

_NEVER_NS: Final = 1 << 62

_NOT_TAKEN: Final = -1
"""The limit of what the service has no callback for: every payload is longer."""


class ClientProtocol:
    """The state machine of one cluster session; see the module's text."""

    def __init__(
        self,
        config: ClientConfig,
        listener: EgressListener,
        *,
        random: Callable[[], float],
        share: SessionShare | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        """With a `share` the session is one of many on a connection, which shows for all whose they are, and lives."""
        self.config = config
        self._share = share
        self.session = ClientSessionState()
        self.state = ClientState.CONNECTING
        self.leader_member_id = NULL_VALUE
        self.close_reason = ""
        self.close_error: ClusterError | None = None
        """Why the session ended, where neither the application nor the cluster closed it."""
        self._said_at_end = ""
        """The last words of a member that has ended a connection, since the session was open with a leader."""
        self.is_close_confirmed = False
        """Whether the cluster has said that the session is closed."""
        self.is_changed = False
        """Set by received control messages; the shell clears it when it has looked."""
        self.is_reading = True
        """False while the shell leaves what members send in the sockets: then silence says nothing."""
        self.alive_until_ns = _NEVER_NS
        """Until when the cluster certainly keeps the session; far away where the leader answers no keep-alives."""
        self._session_timeout_ns = _NEVER_NS
        self._listener = listener
        self._neighbours = Neighbours() if neighbours is None else neighbours
        # What sessions share is dialled once for all of them.
        self._links = ClientLinks(config, random=random, neighbours=self._neighbours if share is None else None)
        self.events = self._links.events
        """What happened to the connections and the session."""
        self.outgoing: Final = self._links.outgoing
        self._offers = OfferTracker()
        self._identity = SessionIdentity(config, share)
        self.queries = QueryTracker(config, self.session, self._links, leader_link=self._leader_link)
        self.requests = RequestWindow(config)
        self.admin = AdminTracker(self.session)
        self._search = LeaderSearch(config, self._links, random=random)
        first = int(random() * 2**52) if share is None else share.first_correlation_id
        self._correlation_ids = range(first, first)
        """Of every connect request sent, in order; any of them may still be answered."""
        self._times = SessionTimes()
        self._payload_limit = config.max_payload_length_bytes
        self.request_limit, self._refused = config.max_request_length_bytes, 0
        """Bytes of the longest request that can be made just now; `check_request` tells why a longer one cannot."""
        self._window_bytes = config.outgoing_window_bytes
        self.keep_alive_interval_ns = keep_alive_interval_ns(config)
        """How often the leader is to hear from the session, or from the connection that it shares."""
        self._sending: IngressPublisher | None = None
        """The leader's, exactly while the session is OPEN."""

    def __repr__(self) -> str:
        session = self.session
        return (
            f"<ClientProtocol {self.state.name} session={session.cluster_session_id}"
            f" term={session.leadership_term_id} leader={self.leader_member_id}>"
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Where the members listen, as far as is known."""
        return tuple(link.endpoint for link in self._links)

    def on_dial_due(self, call: Callable[[], None]) -> None:
        """Have a function called when `next_deadline_ns` is earlier, though nothing was put in."""
        self._links.on_hurry = call

    # Inputs

    def start(self, now_ns: int) -> None:
        """Begin to look for the leader at the endpoints given."""
        self._times.connect_by_ns = now_ns + to_ns(self.config.connect_timeout_s)
        leader = self._links.begin(now_ns, leader_endpoint=self._neighbours.leader_of(self.config.endpoints))
        if leader is not None:
            self._search.expect(leader, now_ns)

    def on_connected(self, connection_id: int, now_ns: int) -> None:
        """Take a new connection into use."""
        self._times.now_ns = now_ns
        link = self._links.of_connection(connection_id)
        if link is None:
            return
        publisher = IngressPublisher(self.config.mtu_length_bytes)
        if self._share is None:
            publisher.setup(self.config.known_cluster_id)
        adapter = EgressAdapter(
            self.session,
            self._listener,
            on_control=lambda message: self._on_control(link, message),
            on_answer=self.requests.on_answer,
            on_replies=self.requests.on_replies,
            on_query_answer=self.queries.on_answer,
            mtu_length_bytes=self.config.mtu_length_bytes,
            max_message_length_bytes=self.config.max_message_length_bytes,
        )
        self._links.on_up(link, publisher, adapter, now_ns)
        if self.state is ClientState.CONNECTING:
            self._poll_connecting(now_ns)
        elif self.state in LIVE_STATES:
            # Even the known leader's member says first, in answer to this keep-alive, that it still leads: its
            # process may have been started again.
            self._bind(link, publisher)
            self.queries.look(now_ns)

    def on_disconnected(self, connection_id: int, now_ns: int, reason: str) -> None:
        """Note that a dial failed or a connection is gone."""
        self._times.now_ns = now_ns
        link = self._links.of_connection(connection_id)
        if link is None:
            return
        reason = link.closing_reason or reason
        self._links.on_down(connection_id, now_ns, reason)
        if self.state is ClientState.CONNECTING:
            self._poll_connecting(now_ns)
        elif link.member_id != self.leader_member_id:
            return
        elif self.state is ClientState.CLOSING:
            self._finish(CLOSED_BY_CLIENT)
        elif self.state is ClientState.OPEN:
            self._await_leader(ClientState.AWAIT_NEW_LEADER, reason)
        self.queries.look(now_ns)

    def receive_data(self, connection_id: int, data: memoryview, now_ns: int) -> int:
        """Handle the whole frames at the beginning of `data`; give how many bytes they took.

        Raises:
            RemoteProtocolError: the peer's bytes make no sense; close the connection and say
            `on_disconnected`.
            Exception: whatever the listener raised. `consumed_bytes` says where to go on: its message counts.
        """
        self._times.now_ns = now_ns
        link = self._links.of_connection(connection_id)
        if link is None or link.adapter is None:
            return len(data)
        adapter = link.adapter
        link.failure_count = link.watch.unanswered_count = 0
        adapter.receive(data)
        return adapter.consumed_bytes

    def consumed_bytes(self, connection_id: int) -> int | None:
        """How far the last `receive_data` came; None when the connection was given up meanwhile."""
        link = self._links.of_connection(connection_id)
        return None if link is None or link.adapter is None else link.adapter.consumed_bytes

    def poll(self, now_ns: int) -> None:
        """Do what time made due."""
        self._times.now_ns = now_ns
        if self.state is ClientState.CLOSED:
            return
        self._links.poll(now_ns)
        self.requests.poll(now_ns)
        if self.state is ClientState.CONNECTING:
            self._poll_connecting(now_ns)
        elif self.state is not ClientState.CLOSING:
            self._poll_live(now_ns)
        elif now_ns >= self._times.close_by_ns:
            self._finish(CLOSED_BY_CLIENT)
        if now_ns >= self.queries.deadline_ns:
            self.queries.look(now_ns)

    def offer(self, payload: ReadableBuffer) -> bool:
        """Append a message for the leader; False when there is no room, or no leader, just now.

        Raises:
            LocalProtocolError: the payload is too long.
            RejectedError: the service takes no messages.
            SessionClosedError: for good.
        """
        sending = self._sending
        if sending is None or len(payload) > self._payload_limit:
            return self._refuse(payload)
        if len(sending.outgoing) >= self._window_bytes:
            return False
        sending.offer(payload)
        return True

    def check_request(self, payload: bytes) -> None:
        """Refuse a request that cannot be made.

        Raises:
            LocalProtocolError: the payload is too long.
            RejectedError: the cluster takes no requests.
            SessionClosedError: for good.
        """
        if self._sending is None and self.can_ask_leader():
            raise self.closed_error()
        if self.request_limit == _NOT_TAKEN:
            raise RejectedError(refusal_of_requests(self._refused))
        if len(payload) > self.request_limit:
            raise LocalProtocolError(f"payload too long: length={len(payload)} limit={self.request_limit}")

    def doubt(self, now_ns: int) -> None:
        """Hold requests back until the leader says that the session is open: this process stood still for long.

        The session may have ended meanwhile. A request that was never sent is certainly not applied.
        """
        leader = self._leader_link()
        if leader is not None and not self.requests.is_held:
            self.requests.is_held = True
            leader.ask(keep_alive_of(self.session, now_ns), now_ns)

    def request_admin(self, wish: AdminWish, on_done: OnDone) -> int | None:
        """Make an admin request of the leader; gives its number, None if there is no leader just now.

        Raises:
            SessionClosedError: for good.
            BackPressureError: too many are under way.
        """
        if self.state is ClientState.CLOSING or self.state is ClientState.CLOSED:
            raise self.closed_error()
        return None if self._sending is None else self.admin.begin(self._sending, wish, on_done)

    def can_ask_leader(self) -> bool:
        """Whether asking makes sense: there is a leader, or there never will be one again."""
        return self._sending is not None or self.state in (ClientState.CLOSING, ClientState.CLOSED)

    @property
    def is_waiting(self) -> bool:
        """Whether `offer` would answer False."""
        sending = self._sending
        return not self.can_ask_leader() if sending is None else len(sending.outgoing) >= self._window_bytes

    def begin_drain(self) -> DrainTarget | None:
        """Return how far the leader's connection has to come; None when there is nothing to send.

        Raises:
            IndeterminateError: what was offered since the last drain may be lost already.
            SessionClosedError: for good.
        """
        if self.state is ClientState.CLOSING or self.state is ClientState.CLOSED:
            raise self.closed_error()
        self._raise_if_indeterminate(None)
        leader = self._links.of_member(self.leader_member_id)
        if self._sending is None or leader is None or leader.connection_id is None:
            return None
        return self._offers.target(leader.connection_id, self._sending)

    def is_drained(self, target: DrainTarget, unsent_bytes: int) -> bool:
        """Whether waiting is over. `unsent_bytes` were handed to the connection and are not on their way."""
        return self._sending is not target.publisher or target.publisher.taken_bytes - unsent_bytes >= target.end_bytes

    def end_drain(self, target: DrainTarget) -> None:
        """End a drain with its outcome: everything was sent, or an error.

        Raises:
            IndeterminateError: the leader was lost or replaced meanwhile.
            SessionClosedError: the session ended meanwhile.
        """
        if self.state is ClientState.CLOSING or self.state is ClientState.CLOSED:
            raise self.closed_error()
        self._raise_if_indeterminate(target.indeterminate_count)
        self._offers.settle(target)

    def close(self, now_ns: int) -> None:
        """Ask the leader to close the session; without one, just end."""
        if self.state not in LIVE_STATES and self.state is not ClientState.CONNECTING:
            return
        sending = self._sending
        if sending is None:
            self._finish(CLOSED_BY_CLIENT)
            return
        self._times.close_by_ns = now_ns + to_ns(self.config.close_timeout_s)
        self.requests.end_unsent(CLOSED_BY_CLIENT)
        sending.publish(close_request_of(self.session.cluster_session_id, self.session.leadership_term_id))
        self._enter(ClientState.CLOSING)

    def abort(self) -> None:
        """End at once, without a word to the cluster."""
        if self.state is not ClientState.CLOSED:
            self._finish(CLOSED_BY_CLIENT)

    # Outputs

    def take_effects(self) -> list[Effect]:
        """Hand over what the shell is to do, in order."""
        effects = self._links.effects
        if effects:
            self._links.effects = []
        return effects

    def data_to_send(self, connection_id: int) -> bytearray | None:
        """Hand over the bytes that wait for a connection; None when there are none."""
        link = self._links.of_connection(connection_id)
        if link is None or link.publisher is None or not link.publisher.outgoing:
            return None
        return link.publisher.take()

    def has_unsent(self, connection_id: int) -> bool:
        """Whether more can be sent on a connection than it was given."""
        link = self._links.of_connection(connection_id)
        publisher = None if link is None else link.publisher
        return self.requests.has_unsent or bool(publisher and publisher.outgoing)

    def next_deadline_ns(self) -> int | None:
        """When to `poll` at the latest, if nothing else happens before."""
        times = self._times
        if self.state is ClientState.CLOSED:
            return None
        if self.state is ClientState.CLOSING:
            return min(times.close_by_ns, self.queries.deadline_ns)
        deadline_ns = min(self.requests.deadline_ns, self.queries.deadline_ns)
        dial_ns = self._links.next_deadline_ns()
        if self.state is ClientState.CONNECTING:
            search_ns = self._search.next_deadline_ns(times.now_ns)
            deadline_ns = min(deadline_ns, times.connect_by_ns)
            if search_ns is not None and search_ns < deadline_ns:
                deadline_ns = search_ns
        else:
            deadline_ns = min(deadline_ns, times.keep_alive_at_ns)
            if self.state is not ClientState.OPEN:
                deadline_ns = min(deadline_ns, times.new_leader_by_ns)
        return deadline_ns if dial_ns is None else min(deadline_ns, dial_ns)

    def closed_error(self) -> ClusterError:
        """Build the error for a use after the end."""
        error = SessionClosedError(self.close_reason or CLOSED_BY_CLIENT)
        error.__cause__ = self.close_error
        return error

    # Connecting

    def _poll_connecting(self, now_ns: int) -> None:
        if now_ns >= self._times.connect_by_ns:
            tried = {link.endpoint: link.outcome for link in self._links}
            error = ConnectTimeoutError(self.config.connect_timeout_s, tried)
            self._finish("connect timed out", error)
            return
        if (link := self._search.poll(now_ns)) is None or link.publisher is None:
            return
        correlation_id = self._correlation_ids.stop
        self._correlation_ids = range(self._correlation_ids.start, correlation_id + 1)
        request = SessionConnectRequest(
            correlation_id=CorrelationId(correlation_id),
            response_stream_id=EGRESS_STREAM_ID,
            version=PROTOCOL_VERSION,
            response_channel=self._identity.response_channel,
            encoded_credentials=self._identity.encoded_credentials(),
            client_info=self.config.client_info,
        )
        link.publisher.publish(request.encode())
        self._search.on_asked(link, now_ns)

    def _on_connect_answer(self, link: MemberLink, event: SessionEvent) -> None:
        match event.code:
            case EventCode.OK:
                self._open(link, event)
            case EventCode.REDIRECT:
                self._links.adopt(member_endpoints(event.detail), self._times.now_ns)
                leader = self._links.of_member(event.leader_member_id)
                self._search.on_redirect(link, leader, self._times.now_ns)
                self._poll_connecting(self._times.now_ns)
            case code:
                error = self._identity.rejection("UNKNOWN" if code is None else code.name, event.detail)
                self._finish("refused by the cluster", error)

    def _on_challenge(self, link: MemberLink, event: Challenge) -> None:
        is_connecting = self.state is ClientState.CONNECTING
        if not (is_connecting or self.state in LIVE_STATES) or event.correlation_id not in self._correlation_ids:
            self.session.foreign_egress_count += 1
            return
        try:
            response = self._identity.answer(event)
        except ConnectRejectedError as error:
            if is_connecting:
                self._finish("challenged", error)
            else:
                self._said_at_end = str(error)  # another member may not ask, and this one asks again
            return
        if link.publisher is not None:
            link.publisher.publish(response)
        if is_connecting:
            self._search.on_asked(link, self._times.now_ns)

    def _open(self, link: MemberLink, event: SessionEvent) -> None:
        """Begin the session on the member that answered OK."""
        invariant(link.publisher is not None, "an answer came on a connection that is down")
        assert link.publisher is not None
        endpoints = member_endpoints(event.detail)
        self.session.cluster_session_id = event.cluster_session_id
        self.session.leadership_term_id = event.leadership_term_id
        self._times.heartbeat_timeout_ns = known_heartbeat_timeout_ns(event.leader_heartbeat_timeout_ns)
        self._times.new_leader_timeout_ns = new_leader_timeout_ns(self.config, self._times.heartbeat_timeout_ns)
        self._plan_keep_alive(self._times.now_ns)
        self._follow(link, event.leader_member_id, endpoints)
        for other in self._links:
            if other.publisher is not None:
                self._bind(other, other.publisher)
        self._enter(ClientState.OPEN)
        self._send_through(link.publisher)
        opened = SessionOpened(event.cluster_session_id, event.leadership_term_id, event.leader_member_id)
        self.events.append(opened)
        self._listener.on_session_event(EventCode.OK, event.detail)

    # Open

    def _poll_live(self, now_ns: int) -> None:
        times = self._times
        if self.state is not ClientState.OPEN and now_ns >= times.new_leader_by_ns:
            timeout_ms = times.new_leader_timeout_ns // 1_000_000
            reason = f"no leader: state={self.state.name} leader_member_id={self.leader_member_id}"
            reason += f" new_leader_timeout_ms={timeout_ms}"
            reason += self._said_at_end and f"; a member has ended the connection: {self._said_at_end}"
            self._finish(reason, ClusterTimeoutError(reason))
        elif now_ns >= times.keep_alive_at_ns:
            self._plan_keep_alive(now_ns)
            leader = self._leader_link()
            if leader is not None and self._is_silent(leader, now_ns):
                self._give_up(leader)
            if now_ns >= self.alive_until_ns:
                self.doubt(now_ns)
            self._links.keep_alive(keep_alive_of(self.session, now_ns), self._sending, now_ns)

    def _is_silent(self, leader: MemberLink, now_ns: int) -> bool:
        if not self.is_reading:
            leader.watch.unanswered_count = 0
        return leader.watch.is_silent(now_ns, least_ns=self.silence_limit_ns)

    @property
    def silence_limit_ns(self) -> int:
        """How long a member that answers keep-alives may be silent at least."""
        return max(self._times.heartbeat_timeout_ns, LEAST_SILENCE_NS)

    def _give_up(self, leader: MemberLink) -> None:
        """Leave a leader whose process stands still, as if its connection were gone."""
        reason = f"no answer to keep-alives: member_id={leader.member_id} count={leader.watch.unanswered_count}"
        self._links.disconnect(leader, reason)
        self._await_leader(ClientState.AWAIT_NEW_LEADER, reason)
        self.queries.look(self._times.now_ns)

    def on_keep_alive_answer(self, connection_id: int, answer: KeepAliveAnswer, now_ns: int) -> None:
        """Take a member's word that its process runs, and whether it leads."""
        link = self._links.of_connection(connection_id)
        if link is None:
            return
        link.watch.is_answered_here = True
        if self.state is not ClientState.OPEN or link.member_id != self.leader_member_id:
            return
        if not answer.is_leader:
            self.is_changed = True
            self._await_leader(ClientState.AWAIT_NEW_LEADER, f"member {link.member_id} does not lead any more")
            self.queries.look(now_ns)
            return
        if answer.correlation_id >= 0:
            self.alive_until_ns = min(answer.correlation_id, now_ns) + self._session_timeout_ns
        elif not self.requests.is_held:  # sessions of clients that are not read do not end
            self.alive_until_ns = max(self.alive_until_ns, now_ns + self._session_timeout_ns)
        if self.requests.is_held and now_ns < self.alive_until_ns:
            self.is_changed = True
            self.requests.release()

    def _plan_keep_alive(self, now_ns: int) -> None:
        interval_ns = self.keep_alive_interval_ns if self._share is None else to_ns(FOR_EVER_S)
        self._times.keep_alive_at_ns = now_ns + interval_ns

    def want(self, endpoint: str, now_ns: int) -> None:
        """Take a connection into use that stands, and on which the session was spoken to."""
        if self.state in LIVE_STATES and not any(link.endpoint == endpoint for link in self._links):
            self._links.add(endpoint, now_ns)

    def give_up(self, reason: str) -> None:
        """End the session because its application does not do its part."""
        if self.state is not ClientState.CLOSED:
            self._finish(reason, BackPressureError(reason))

    def _on_control(self, link: MemberLink, message: bytes) -> None:
        """Handle a complete message that is not an application's."""
        _, template_id, schema_id, _ = peek_header(message, 0)
        if schema_id == QueryResponse.SCHEMA_ID and template_id == QueryResponse.TEMPLATE_ID:
            # An answer needs nothing of the shell; what is asked again has to be sent.
            self.is_changed |= self.queries.on_response(link, message, self._times.now_ns)
            return
        if schema_id == KeepAliveAnswer.SCHEMA_ID and template_id == KeepAliveAnswer.TEMPLATE_ID:
            if link.connection_id is not None:
                self.on_keep_alive_answer(link.connection_id, KeepAliveAnswer.decode(message), self._times.now_ns)
            return
        self.is_changed = True
        if schema_id == SessionEvent.SCHEMA_ID and template_id == SessionEvent.TEMPLATE_ID:
            self._on_session_event(link, SessionEvent.decode(message))
        elif schema_id == NewLeaderEvent.SCHEMA_ID and template_id == NewLeaderEvent.TEMPLATE_ID:
            self._on_new_leader(link, NewLeaderEvent.decode(message))
        elif schema_id == SessionLimits.SCHEMA_ID and template_id == SessionLimits.TEMPLATE_ID:
            limits = SessionLimits.decode(message)
            self.session.group = limits.group
            limit, self._refused = min(self.config.max_message_length_bytes, limits.max_message_length), limits.refused
            self._payload_limit = _NOT_TAKEN if limits.refused & REFUSES_MESSAGES else limit - SESSION_HEADER_LENGTH
            if self.state is not ClientState.CLOSING:
                is_refused = bool(limits.refused & REFUSES_REQUESTS)
                self.request_limit = _NOT_TAKEN if is_refused else limit - REQUEST_HEADER_LENGTH
            self.keep_alive_interval_ns = keep_alive_interval_ns(self.config, limits.session_timeout_ms)
            if limits.session_timeout_ms:
                self._session_timeout_ns = limits.session_timeout_ms * 1_000_000
        elif schema_id == Challenge.SCHEMA_ID and template_id == Challenge.TEMPLATE_ID:
            self._on_challenge(link, Challenge.decode(message))
        elif (
            schema_id != AdminResponse.SCHEMA_ID
            or template_id != AdminResponse.TEMPLATE_ID
            or not self.admin.on_response(AdminResponse.decode(message))
        ):
            self.session.foreign_egress_count += 1

    def _on_session_event(self, link: MemberLink, event: SessionEvent) -> None:
        is_answer = event.correlation_id in self._correlation_ids
        if event.code is EventCode.ERROR and event.correlation_id in (NULL_VALUE, WRONG_PORT_ID):
            link.closing_reason = self._said_at_end = event.detail
            if event.correlation_id == WRONG_PORT_ID:
                link.on_wrong_port(event.detail)
        if self.state is ClientState.CONNECTING:
            if is_answer:
                self._on_connect_answer(link, event)
            elif all(each.wrong_port for each in self._links):
                reasons = "; ".join(f"{each.endpoint}: {each.wrong_port}" for each in self._links)
                self._finish("no ingress", ConnectRejectedError("WRONG_PORT", reasons))
        elif self.state is ClientState.CLOSED:
            return
        elif event.cluster_session_id != self.session.cluster_session_id:
            self.session.foreign_egress_count += 1
            if is_answer and event.code is EventCode.OK and link.publisher is not None:
                # A member that we stopped waiting for opened a session too: it is nobody's.
                link.publisher.publish(close_request_of(event.cluster_session_id, self.session.leadership_term_id))
        elif event.code is EventCode.CLOSED or event.code is EventCode.AUTHENTICATION_REJECTED:
            # A follower or a deposed leader may not know what the cluster keeps: only the leader's word counts.
            is_newer = event.leadership_term_id > self.session.leadership_term_id
            if link.member_id != self.leader_member_id and not is_newer:
                self.session.stale_egress_count += 1
            elif self.state is ClientState.CLOSING:
                self._finish(CLOSED_BY_CLIENT, is_confirmed=True)
            elif event.code is EventCode.AUTHENTICATION_REJECTED:
                self._finish(event.detail, SessionClosedError(event.detail))
            else:
                self._finish(event.detail or "closed by the cluster", is_confirmed=True)
        elif event.code is EventCode.REDIRECT:
            if (
                event.leadership_term_id > self.session.leadership_term_id
            ):  # whom to dial; that it leads, it says itself
                self._links.adopt(member_endpoints(event.detail), self._times.now_ns)
                self._links.dial_spared(self._times.now_ns)
        elif event.code is not None and not is_answer:
            self._listener.on_session_event(event.code, event.detail)

    def _on_new_leader(self, link: MemberLink, event: NewLeaderEvent) -> None:
        if self.state not in LIVE_STATES or event.cluster_session_id != self.session.cluster_session_id:
            self.session.foreign_egress_count += 1
            return
        endpoints = member_endpoints(event.ingress_endpoints)
        if event.leadership_term_id == self.session.leadership_term_id:
            if link.member_id != self.leader_member_id or link.publisher is None:
                return
            self._follow(link, event.leader_member_id, endpoints)
            if self.state is not ClientState.OPEN:
                self._resume(link.publisher)
            else:  # it had not taken this connection for the session's before: requests may be lost
                self.requests.attach(link.publisher)
            return
        if event.leadership_term_id < self.session.leadership_term_id:
            return
        self.session.leadership_term_id = event.leadership_term_id
        leader = self._follow(link, event.leader_member_id, endpoints)
        for other in self._links:
            if other.publisher is not None:
                # What was shown on a connection counts in every term.
                self._bind(other, other.publisher, is_expected=other.is_proven)
        if leader.publisher is None:
            self._await_leader(
                ClientState.AWAIT_NEW_LEADER_CONNECTION,
                f"no connection to the new leader yet: leader_member_id={event.leader_member_id}",
            )
        else:
            self._resume(leader.publisher)

    def _follow(self, link: MemberLink, leader_member_id: MemberId, endpoints: dict[MemberId, str]) -> MemberLink:
        """Take over the member list that came on `link` and find the leader's link."""
        self.leader_member_id = leader_member_id
        if leader_member_id not in endpoints:
            # The one who speaks is the leader, whatever the list says.
            endpoints = {**endpoints, leader_member_id: link.endpoint}
        if link.member_id is None:
            # It was given under another name than the cluster uses; it keeps its connection, a second one goes.
            other = self._links.of_member(leader_member_id)
            if other is not None:
                other.member_id = None
            link.member_id = leader_member_id
        self._links.adopt(endpoints, self._times.now_ns)
        self._links.drop_others(endpoints)
        leader = self._links.of_member(leader_member_id)
        if leader is not None:
            self._neighbours.note_leader(self.config.endpoints, leader.endpoint, self._times.now_ns)
        invariant(leader is not None, "the leader has no link", leader_member_id=leader_member_id)
        assert leader is not None
        return leader

    def _bind(self, link: MemberLink, publisher: IngressPublisher, *, is_expected: bool = False) -> None:
        """Make a connection known to its member as one of this session, and show that it is; the answer shows that it
        answers keep-alives.

        A member that expects the session there has it on this connection already, and is not told again: it would be
        one more write and one more read of each session, just when all of a thousand have a new leader.
        """
        session = self.session
        publisher.bind(leadership_term_id=session.leadership_term_id, cluster_session_id=session.cluster_session_id)
        if self._share is not None:
            return
        if not link.is_proven:
            link.is_proven = True
            publisher.publish(self._identity.proof(session.cluster_session_id))
        if not is_expected:
            publisher.publish(keep_alive_of(session, self._times.now_ns))

    def _resume(self, publisher: IngressPublisher) -> None:
        """Send to the leader, from now on through this publisher."""
        self._said_at_end = ""
        self._leave_leader("the leader has changed")
        self._enter(ClientState.OPEN)
        self._send_through(publisher)
        self.events.append(NewLeader(TermId(self.session.leadership_term_id), MemberId(self.leader_member_id)))
        self.queries.look(self._times.now_ns)
        self.admin.on_new_leader(self.leader_member_id)
        self._listener.on_new_leader(self.session.leadership_term_id, self.leader_member_id)

    def _leader_link(self) -> MemberLink | None:
        """The path to the leader, while it stands."""
        return self._links.of_member(self.leader_member_id) if self._sending is not None else None

    def _send_through(self, publisher: IngressPublisher) -> None:
        """Use the leader's connection, unanswered requests first."""
        self._sending = publisher
        self.requests.attach(publisher)

    def _leave_leader(self, reason: str) -> None:
        """What this leader has not answered may be lost."""
        if self._sending is not None:
            self._offers.on_leader_left(self._sending, reason)
            self.admin.fail(IndeterminateError(reason), is_for_good=False)

    def _await_leader(self, state: ClientState, reason: str) -> None:
        leader = self._links.of_member(self.leader_member_id)
        if leader is not None and state is ClientState.AWAIT_NEW_LEADER:
            self._neighbours.forget_leader(self.config.endpoints, leader.endpoint)
        self._links.dial_spared(self._times.now_ns)
        self._leave_leader(f"lost the leader: {reason}")
        if self.state is ClientState.OPEN:
            self.events.append(LeaderLost(reason))
        if self.state is not ClientState.AWAIT_NEW_LEADER or state is not ClientState.AWAIT_NEW_LEADER:
            self._times.new_leader_by_ns = self._times.now_ns + self._times.new_leader_timeout_ns
        self._enter(state)

    # The end

    def _finish(self, reason: str, error: ClusterError | None = None, *, is_confirmed: bool = False) -> None:
        was_live = self.state in LIVE_STATES
        self.close_reason = reason
        self.close_error, self.is_close_confirmed = error, is_confirmed
        self._enter(ClientState.CLOSED)
        self.requests.end(reason)
        for link in self._links:
            self._links.disconnect(link, reason)
        self._links.end()
        self.events.append(SessionClosed(reason, is_confirmed))
        self.queries.fail(self.closed_error())
        self.admin.fail(IndeterminateError(reason), is_for_good=True)
        if was_live and (is_confirmed or error is not None):
            self._listener.on_session_event(EventCode.CLOSED, reason)

    def _raise_if_indeterminate(self, since_count: int | None) -> None:
        reason = self._offers.take_indeterminate_reason(since_count)
        if reason is not None:
            raise IndeterminateError(reason)

    def _refuse(self, payload: ReadableBuffer) -> bool:
        """Raise the error of an offer that can never succeed; return False when it may succeed later."""
        if self.state is ClientState.CLOSING or self.state is ClientState.CLOSED:
            raise self.closed_error()
        if self._payload_limit == _NOT_TAKEN:
            raise RejectedError("the service takes no messages: it has no on_session_message")
        if len(payload) > self._payload_limit:
            raise LocalProtocolError(f"payload too long: length={len(payload)} limit={self._payload_limit}")
        return False

    def _enter(self, new: ClientState) -> None:
        """Change the state: the one door."""
        invariant(new in LEGAL_TRANSITIONS[self.state], "illegal client state transition", old=self.state, new=new)
        self.state = new
        self.alive_until_ns = _NEVER_NS  # until the next leader has answered
        if new is ClientState.CLOSING or new is ClientState.CLOSED:
            self.request_limit = _NOT_TAKEN
        if new is not ClientState.OPEN:
            self._sending = None
            self.requests.detach()
