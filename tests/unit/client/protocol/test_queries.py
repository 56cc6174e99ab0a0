"""Which member a query is asked of, when it is asked again, and what comes of it."""

from __future__ import annotations

import pytest

from tests.unit.client.dialogue import ENDPOINTS, ENDPOINTS_TEXT, MS, Dialogue
from tests.unit.client.fake_member import egress_frames, new_leader_event
from trimaran.client.config import ClientConfig
from trimaran.client.errors import QueryRefusedError
from trimaran.client.protocol.queries import PendingQuery, QueryOptions, QueryResult
from trimaran.service_api.errors import (
    BackPressureError,
    ClusterError,
    ClusterTimeoutError,
    LocalProtocolError,
    SessionClosedError,
)
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId
from trimaran.service_api.wire.message import Message
from trimaran.service_api.wire.queries import QueryCode, QueryRequest, QueryResponse

STALE = QueryOptions(max_staleness_ns=1_000 * MS)


class Asking:
    """A session that is open on member 0, and what came of its queries."""

    def __init__(self, config: ClientConfig | None = None) -> None:
        self.dialogue = Dialogue(config=config)
        self.dialogue.open()
        self.outcomes: list[QueryResult | ClusterError] = []

    def ask(self, options: QueryOptions | None = None, payload: bytes = b"x") -> PendingQuery:
        tracker = self.dialogue.protocol.queries
        return tracker.begin(payload, options or QueryOptions(), self.outcomes.append, self.dialogue.now_ns)

    def sent(self, member_id: int) -> list[int]:
        """Take the correlation ids of the queries that a member got."""
        return [m.correlation_id for m in self.dialogue.sent(member_id) if isinstance(m, QueryRequest)]

    def asked(self) -> list[int]:
        """Take the members that got a query."""
        return [member_id for member_id in ENDPOINTS for _ in self.sent(member_id)]

    def answer(self, member_id: int, code: QueryCode = QueryCode.OK, *, correlation_id: int = 1) -> None:
        self.dialogue.say(member_id, response(member_id, code, correlation_id=correlation_id))


def response(member_id: int, code: QueryCode, *, correlation_id: int = 1, session_id: int = 7) -> Message:
    return QueryResponse(
        correlation_id=CorrelationId(correlation_id),
        cluster_session_id=ClusterSessionId(session_id),
        member_id=MemberId(member_id),
        code=code,
        log_position=640,
        staleness_ns=30 * MS,
        detail="" if code is QueryCode.OK else "because",
        payload=b"answer",
    )


def test_linearizable_query_goes_to_the_leader() -> None:
    asking = Asking()

    asking.ask()
    asked = asking.asked()
    asking.answer(0)

    assert asked == [0]
    assert asking.outcomes == [QueryResult(b"answer", 640, 0.03, MemberId(0))]


def test_answers_come_many_in_a_read_among_others_and_cut_anywhere() -> None:
    """Between them are a refusal, one for another session, one in fragments, and one that nobody waits for any more."""
    asking = Asking()
    queries = [asking.ask() for _ in range(6)]
    asking.dialogue.protocol.queries.forget(queries[4])
    long = QueryResponse(
        correlation_id=CorrelationId(3),
        cluster_session_id=ClusterSessionId(7),
        member_id=MemberId(0),
        code=QueryCode.OK,
        log_position=672,
        staleness_ns=0,
        payload=bytes(100_000),
    )
    said = [
        response(0, QueryCode.OK, correlation_id=1),
        response(0, QueryCode.OK, correlation_id=2, session_id=8),
        response(0, QueryCode.SERVICE_FAILED, correlation_id=2),
        long,
        response(0, QueryCode.OK, correlation_id=4),
        response(0, QueryCode.OK, correlation_id=5),
        response(0, QueryCode.OK, correlation_id=6),
    ]
    data = b"".join(egress_frames(each.encode()) for each in said)

    carry = b""
    for begin in range(0, len(data), 1_000):
        carry += data[begin : begin + 1_000]
        carry = carry[asking.dialogue.feed(0, carry) :]

    answer = QueryResult(b"answer", 640, 0.03, MemberId(0))
    first, failed, whole, *rest = asking.outcomes
    assert (first, rest) == (answer, [answer, answer])
    assert isinstance(failed, QueryRefusedError)
    assert whole == QueryResult(bytes(100_000), 672, 0.0, MemberId(0))
    assert carry == b""


@pytest.mark.parametrize(
    ("options", "is_member_1_down", "facts"),
    [
        (QueryOptions(limit_s=5), False, "member 0: asked"),
        (QueryOptions(max_staleness_ns=1, read_from=1, limit_s=5), False, "member 1: "),
        (QueryOptions(max_staleness_ns=1, read_from=1, limit_s=5), True, "member 1: reset"),
        (QueryOptions(max_staleness_ns=1, read_from=9, limit_s=5), False, "member 9: not a member"),
    ],
)
def test_a_query_ends_with_its_time_and_says_who_was_asked(
    options: QueryOptions, is_member_1_down: bool, facts: str
) -> None:
    asking = Asking()
    if is_member_1_down:
        asking.dialogue.down(1, "reset")

    asking.ask(options)
    asking.dialogue.wait(4_999 * MS)
    assert asking.outcomes == []
    asking.dialogue.wait(1 * MS)

    (error,) = asking.outcomes
    assert isinstance(error, ClusterTimeoutError)
    assert "timeout_s=5" in str(error)
    assert facts in str(error)


def test_answer_to_another_session_or_query_is_nobodys() -> None:
    asking = Asking()
    asking.ask()

    asking.answer(0, correlation_id=2)
    asking.dialogue.say(0, response(0, QueryCode.OK, session_id=8))

    assert asking.outcomes == []


def test_linearizable_query_is_asked_again_of_the_next_leader() -> None:
    """The old one may stand still, and never answer."""
    asking = Asking()
    asking.ask()
    asking.asked()

    asking.dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))
    asked = asking.asked()
    asking.answer(2)

    assert asked == [2]
    assert len(asking.outcomes) == 1


def test_linearizable_query_without_a_leader_waits_for_one() -> None:
    asking = Asking()
    asking.dialogue.down(0)
    asking.ask()
    before = asking.asked()

    asking.dialogue.say(1, new_leader_event(term=1, leader=1, endpoints=ENDPOINTS_TEXT))

    assert (before, asking.asked()) == ([], [1])


def test_leader_that_is_none_any_more_is_asked_again_after_a_pause() -> None:
    asking = Asking()
    asking.ask()
    asking.asked()

    asking.answer(0, QueryCode.NOT_LEADER)
    at_once = asking.asked()
    asking.dialogue.wait(10 * MS)

    assert (at_once, asking.asked(), asking.outcomes) == ([], [0], [])


def test_stale_queries_go_to_the_members_in_turn() -> None:
    asking = Asking()

    for _ in range(6):
        asking.ask(STALE)

    assert asking.asked() == [0, 0, 1, 1, 2, 2]


def test_stale_query_that_is_refused_is_asked_of_another_member_at_once() -> None:
    asking = Asking()
    query = asking.ask(STALE)
    (first,) = asking.asked()

    asking.answer(first, QueryCode.TOO_STALE)
    (second,) = asking.asked()
    asking.answer(second, QueryCode.BUSY)
    (third,) = asking.asked()
    asking.answer(third, QueryCode.TOO_STALE)
    nobody = asking.asked()
    asking.dialogue.wait(40 * MS)

    assert {first, second, third} == {0, 1, 2}
    assert (nobody, len(asking.asked())) == ([], 1)
    assert query.refusals is not None
    assert query.refusals[MemberId(second)] == "BUSY: because"


def test_stale_query_that_is_not_answered_is_asked_of_another_member() -> None:
    asking = Asking(ClientConfig(endpoints=tuple(ENDPOINTS.values()), attempt_timeout_s=0.2))
    asking.ask(STALE)
    (first,) = asking.asked()

    asking.dialogue.wait(200 * MS)
    (second,) = asking.asked()
    asking.answer(first)

    assert first != second
    assert len(asking.outcomes) == 1


def test_refusal_of_a_member_that_is_not_waited_for_any_more_changes_nothing() -> None:
    asking = Asking(ClientConfig(endpoints=tuple(ENDPOINTS.values()), attempt_timeout_s=0.2))
    asking.ask(STALE)
    (first,) = asking.asked()
    asking.dialogue.wait(200 * MS)
    asking.asked()

    asking.answer(first, QueryCode.TIMED_OUT)

    assert asking.asked() == []


def test_query_for_one_member_is_asked_of_no_other() -> None:
    asking = Asking()
    options = QueryOptions(max_staleness_ns=0, read_from=2)
    asking.ask(options)
    first = asking.asked()

    asking.answer(2, QueryCode.TOO_STALE)
    asking.dialogue.wait(10 * MS)

    assert (first, asking.asked()) == ([2], [2])


def test_connection_that_is_lost_is_not_waited_for() -> None:
    asking = Asking()
    asking.ask(QueryOptions(max_staleness_ns=0, read_from=2))
    asking.asked()

    asking.dialogue.down(2)
    asking.dialogue.wait(1_000 * MS)
    asking.dialogue.up(2)

    assert asking.sent(2) == [1]


@pytest.mark.parametrize("code", [QueryCode.SERVICE_FAILED, QueryCode.NOT_AUTHORISED])
def test_refusal_for_good_ends_the_query(code: QueryCode) -> None:
    asking = Asking()
    asking.ask()

    asking.answer(0, code)

    (outcome,) = asking.outcomes
    assert isinstance(outcome, QueryRefusedError)
    assert (outcome.code, outcome.detail, outcome.member_id) == (code.name, "because", 0)


def test_end_of_the_session_ends_its_queries() -> None:
    asking = Asking()
    asking.ask()

    asking.dialogue.protocol.abort()

    assert [type(outcome) for outcome in asking.outcomes] == [SessionClosedError]


def test_forgotten_query_is_not_asked_again() -> None:
    asking = Asking()
    asking.dialogue.protocol.queries.forget(asking.ask())
    asking.asked()

    asking.dialogue.say(2, new_leader_event(term=1, leader=2, endpoints=ENDPOINTS_TEXT))

    assert asking.asked() == []


def test_long_query_is_refused_and_a_rather_long_one_fragmented() -> None:
    asking = Asking()

    with pytest.raises(LocalProtocolError, match="payload too long"):
        asking.ask(payload=bytes(8 << 20))
    asking.ask(payload=bytes(200_000))

    assert asking.asked() == [0]


def test_full_window_is_waited_for() -> None:
    asking = Asking(ClientConfig(endpoints=tuple(ENDPOINTS.values()), outgoing_window_bytes=100))
    asking.ask(payload=bytes(200))

    asking.ask()
    before = asking.asked()
    asking.dialogue.wait(1 * MS)

    assert (before, asking.asked()) == ([0], [0])


def test_too_many_queries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.client.protocol.queries.QUERY_LIMIT", 1)
    asking = Asking()
    asking.ask()

    with pytest.raises(BackPressureError, match="many queries"):
        asking.ask()
