"""Queries: questions to the service's state that are in no log.

`QueryTracker` is sans-IO, and `asking.query` the coroutine around it. The tracker decides which member is asked, what a
refusal means, and when to ask again. A query changes nothing, so it may be asked as often as need be, until somebody
answers, it is given up, or its error is final. A linearizable query goes to the leader, and to the next leader when
that changes; one that may be stale goes to the members in turn, or to the one that was named. A member that has refused
is left alone for a while, a little longer each time; one that may be stale and is not answered for `attempt_timeout_s`
is asked elsewhere.

Bound: `QUERY_LIMIT` queries under way; more are refused with `BackPressureError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...service_api.errors import BackPressureError, ClusterError, ClusterTimeoutError, LocalProtocolError
from ...service_api.types import NULL_VALUE, MemberId
from ...service_api.wire.queries import RETRIABLE_QUERY_CODES, QueryCode, QueryResponse, write_query
from ..config import ClientConfig, to_ns
from ..errors import QueryRefusedError
from .egress_adapter import ClientSessionState
from .member_link import ClientLinks, MemberLink

QUERY_LIMIT: Final = 65_536

_NEVER_NS: Final = 1 << 62
_RETRY_MIN_NS: Final = 10_000_000
_RETRY_DOUBLINGS: Final = 5
_FULL_NS: Final = 1_000_000
_WAIT_AT_MEMBER_S: Final = 30.0
"""What a member is told to wait at most, when the caller waits longer."""

_OVERHEAD_BYTES: Final = 128


@dataclass(slots=True, frozen=True)
class QueryResult:
    """The answer to a query."""

    payload: bytes
    log_position: int
    """The answer is of the state after exactly this much of the log, in bytes.

    Given to a later query as `min_log_position`, no member answers that one from an older state.
    """
    staleness_s: float
    """0 of a linearizable query. Otherwise: all that was acknowledged to anybody this long before the query, or
    earlier, is in that state."""
    member_id: MemberId
    """Who answered."""


@dataclass(slots=True, frozen=True, kw_only=True)
class QueryOptions:
    """What a query asks for, apart from its payload."""

    max_staleness_ns: int | None = None
    min_log_position: int = 0
    read_from: int | None = None
    service_id: int = NULL_VALUE
    limit_s: float = _WAIT_AT_MEMBER_S
    """How long it is asked for, `math.inf` at the most."""


@dataclass(slots=True, eq=False)
class PendingQuery:
    """One query under way."""

    correlation_id: int
    payload: bytes
    options: QueryOptions
    on_done: Callable[[QueryResult | ClusterError], None]
    ends_ns: int
    """When its caller waits no longer."""
    asked_connection_id: int | None = None
    """Whose answer is awaited; None: nobody could be asked yet."""
    wake_ns: int = _NEVER_NS
    """When to look at it again, if nothing else happens before."""
    avoided: dict[int, int] | None = None
    """Connections not to be asked before a time; None: none was yet."""
    refusals: dict[MemberId, str] | None = None
    """The last thing that each member said; None: none has refused."""
    failure_count: int = 0

    def __repr__(self) -> str:
        return f"<PendingQuery {self.correlation_id} asked={self.asked_connection_id} refusals={self.refusals}>"

    def refuse(self, member_id: MemberId, reason: str) -> None:
        """Note what a member said instead of an answer."""
        self.refusals = {**(self.refusals or {}), member_id: reason}


class QueryTracker:
    """The queries of one session. `look` after anything that may have changed who can be asked."""

    def __init__(
        self,
        config: ClientConfig,
        session: ClientSessionState,
        links: ClientLinks,
        *,
        leader_link: Callable[[], MemberLink | None],
    ) -> None:
        self._session, self._links, self._leader_link = session, links, leader_link
        self._attempt_ns = int(config.attempt_timeout_s * 1e9)
        self._window_bytes = config.outgoing_window_bytes
        self._payload_limit = config.max_message_length_bytes - _OVERHEAD_BYTES
        self._queries: dict[int, PendingQuery] = {}
        self._next_correlation_id = 1
        self._turn = 0
        self.deadline_ns = _NEVER_NS
        """When to `look` at the latest."""

    def __repr__(self) -> str:
        return f"<QueryTracker queries={len(self._queries)}>"

    def begin(
        self, payload: bytes, options: QueryOptions, on_done: Callable[[QueryResult | ClusterError], None], now_ns: int
    ) -> PendingQuery:
        """Ask; `on_done` is called once, with a `ClusterTimeoutError` at the end of its time, unless it is forgotten.

        Raises:
            LocalProtocolError: the payload is too long.
            BackPressureError: too many are under way.
        """
        if len(payload) > self._payload_limit:
            raise LocalProtocolError(f"payload too long: length={len(payload)} limit={self._payload_limit}")
        if len(self._queries) >= QUERY_LIMIT:
            raise BackPressureError(f"too many queries are pending: limit={QUERY_LIMIT}")
        query = PendingQuery(self._next_correlation_id, payload, options, on_done, now_ns + to_ns(options.limit_s))
        self._next_correlation_id += 1
        self._queries[query.correlation_id] = query
        self._ask(query, now_ns)
        return query

    def forget(self, query: PendingQuery) -> None:
        """Forget a query: its caller no longer waits."""
        self._queries.pop(query.correlation_id, None)

    def fail(self, error: ClusterError) -> None:
        """The session has ended: no query will be answered."""
        queries, self._queries = self._queries, {}
        for query in queries.values():
            query.on_done(error)

    def on_answer(
        self, correlation_id: int, session_id: int, payload: bytes, position: int, staleness_ns: int, member_id: int
    ) -> None:
        """Take the answer of a member, of any."""
        if session_id == self._session.cluster_session_id:
            query = self._queries.pop(correlation_id, None)
            if query is not None:
                query.on_done(QueryResult(payload, position, staleness_ns / 1e9, MemberId(member_id)))

    def on_response(self, link: MemberLink, message: bytes, now_ns: int) -> bool:
        """A member answers. An answer counts from any member; a refusal counts of that one only.

        True if there is something to send, or to wait for.
        """
        response = QueryResponse.decode(message)
        query = self._queries.get(response.correlation_id)
        if query is None or response.cluster_session_id != self._session.cluster_session_id:
            return False
        if response.code is QueryCode.OK:
            self.on_answer(
                *(response.correlation_id, response.cluster_session_id, response.payload),
                *(response.log_position, response.staleness_ns, response.member_id),
            )
        elif response.code not in RETRIABLE_QUERY_CODES:
            del self._queries[query.correlation_id]
            name = "UNKNOWN" if response.code is None else response.code.name
            query.on_done(QueryRefusedError(name, response.detail, MemberId(response.member_id)))
        elif link.connection_id == query.asked_connection_id:
            assert response.code is not None
            query.refuse(MemberId(response.member_id), f"{response.code.name}: {response.detail}")
            self._avoid_asked(query, now_ns)
            self._ask(query, now_ns)
            return True
        return False

    def look(self, now_ns: int) -> None:
        """Ask what could not be asked, or was asked of a member that will not answer."""
        self.deadline_ns = _NEVER_NS
        leader = self._leader_link()
        for query in [*self._queries.values()]:
            if now_ns >= query.ends_ns:
                del self._queries[query.correlation_id]
                query.on_done(self._timeout_error(query))
            elif self._is_in_good_hands(query, leader, now_ns):
                self.deadline_ns = min(self.deadline_ns, query.wake_ns, query.ends_ns)
            else:
                self._ask(query, now_ns)

    def _is_in_good_hands(self, query: PendingQuery, leader: MemberLink | None, now_ns: int) -> bool:
        asked_id = query.asked_connection_id
        if asked_id is None:
            return False
        link = self._links.of_connection(asked_id)
        if link is None or link.publisher is None:
            query.asked_connection_id = None
            return False
        if query.options.max_staleness_ns is None:
            return leader is None or link is leader
        if now_ns >= query.wake_ns:
            if link.member_id is not None:
                query.refuse(link.member_id, "no answer")
            self._avoid_asked(query, now_ns)
            return False
        return True

    def _avoid_asked(self, query: PendingQuery, now_ns: int) -> None:
        """Leave the member that was asked alone for a while."""
        pause_ns = _RETRY_MIN_NS << min(query.failure_count, _RETRY_DOUBLINGS)
        query.failure_count += 1
        if query.asked_connection_id is not None:
            query.avoided = {**(query.avoided or {}), query.asked_connection_id: now_ns + pause_ns}
        query.asked_connection_id = None

    def _ask(self, query: PendingQuery, now_ns: int) -> None:
        """Send it to a member that may answer, or wait until there is one."""
        query.asked_connection_id = None
        query.wake_ns = _NEVER_NS
        link = self._choose(query, now_ns)
        if link is not None:
            assert link.publisher is not None
            assert link.connection_id is not None
            if len(link.publisher.outgoing) < self._window_bytes:
                link.publisher.publish(self._encode(query))
                query.asked_connection_id = link.connection_id
                if query.options.max_staleness_ns is not None:
                    query.wake_ns = now_ns + self._attempt_ns
            else:
                query.wake_ns = now_ns + _FULL_NS
        self.deadline_ns = min(self.deadline_ns, query.wake_ns, query.ends_ns)

    def _timeout_error(self, query: PendingQuery) -> ClusterTimeoutError:
        """Make the error of a query that nobody has answered: who was asked, and what each of them said instead."""
        read_from, asked_id = query.options.read_from, query.asked_connection_id
        asked = None if asked_id is None else self._links.of_connection(asked_id)
        said = {f"member {member_id}": refusal for member_id, refusal in (query.refusals or {}).items()}
        if asked is not None:
            said[f"member {asked.member_id}"] = "asked, no answer"
        if not said and read_from is not None:
            link = self._links.of_member(read_from)
            said[f"member {read_from}"] = "not a member of the cluster" if link is None else link.outcome
        elif not said:
            said["nobody was asked"] = (
                "no leader" if query.options.max_staleness_ns is None else "no connection to a member"
            )
        outcomes = "; ".join(f"{who}: {what}" for who, what in said.items())
        return ClusterTimeoutError(f"query not answered: timeout_s={query.options.limit_s:g} {outcomes}")

    def _choose(self, query: PendingQuery, now_ns: int) -> MemberLink | None:
        """Find a member to ask; without one, set when one that refused may be asked again."""
        options = query.options
        if options.max_staleness_ns is None:
            leader = self._leader_link()
            candidates = [] if leader is None else [leader]
        else:
            self._links.dial_spared(now_ns)
            candidates = [
                link
                for link in self._links
                if link.member_id is not None and options.read_from in (None, link.member_id)
            ]
            self._turn += 1
            turn = self._turn % max(1, len(candidates))
            candidates = candidates[turn:] + candidates[:turn]
        for link in candidates:
            if link.publisher is None or link.connection_id is None:
                continue
            avoided_until_ns = 0 if query.avoided is None else query.avoided.get(link.connection_id, 0)
            if avoided_until_ns <= now_ns:
                return link
            query.wake_ns = min(query.wake_ns, avoided_until_ns)
        return None

    def _encode(self, query: PendingQuery) -> bytes:
        session, options = self._session, query.options
        return write_query(
            query.correlation_id,
            session.cluster_session_id,
            session.leadership_term_id,
            options.service_id,
            options.max_staleness_ns,
            options.min_log_position,
            to_ns(min(options.limit_s, _WAIT_AT_MEMBER_S)),
            query.payload,
        )
