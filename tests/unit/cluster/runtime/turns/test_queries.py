"""What a member does with queries: whom it answers, when, and what it says to the others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.waiting import passes
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.consensus_module import ConsensusModule
from trimaran.cluster.core.vocabulary.held_entry import HeldEntry
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.cluster.runtime.turns.queries import QueryHandler
from trimaran.service_api.authorisation import AllowAll, AuthorisationService, DenyAll
from trimaran.service_api.types import ClusterSessionId, CorrelationId, MemberId
from trimaran.service_api.wire.queries import AskedQuery, QueryCode, QueryResponse
from trimaran.service_api.wire.stream import FrameParser, MessageAssembler

MS = 1_000_000
CONNECTION = 7
SESSION = ClusterSessionId(11)
ELECTION = fx.ElectionStarted(Reason(ReasonKind.NODE_STARTED))


class FakeOutlet:
    """Implements `QueryOutlet`, and the connection that it belongs to: keeps the messages."""

    def __init__(self) -> None:
        self.egress = self
        self.write_count = 0
        self.responses: list[QueryResponse] = []
        self._parser, self._assembler = FrameParser(65504), MessageAssembler()

    def write(self, data: bytes | bytearray) -> None:
        self.write_count += 1
        for frame in self._parser.feed(bytes(data)):
            message = self._assembler.append(frame)
            if message is not None:
                self.responses.append(QueryResponse.decode(message))


@dataclass
class FakeSessions:
    open: dict[int, ClusterSessionId] = field(default_factory=lambda: {CONNECTION: SESSION})

    def principal_on(self, connection_id: int, session_id: ClusterSessionId) -> bytes | None:
        return b"someone" if self.open.get(connection_id) == session_id else None


@dataclass
class FakeConfig:
    member_id: int = 2
    service_count: int = 1


EXITS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, MemoryError)
}


@dataclass
class FakeContext:
    authorisation: AuthorisationService = field(default_factory=AllowAll)
    leader_member_id: MemberId | None = None
    config: FakeConfig = field(default_factory=FakeConfig)
    held: HeldEntry | None = None
    is_comparing: bool = False


@dataclass
class FakeModule:
    """The part of the consensus module that the desk looks at."""

    ctx: FakeContext = field(default_factory=FakeContext)
    sessions: FakeSessions = field(default_factory=FakeSessions)
    leader: object | None = None
    follower: object | None = None


class Rig:
    """A desk at a member whose delivery, clock and confirmations are the test's. It leads, unless told otherwise."""

    def __init__(self, *, leads: bool = True, follows: bool = False) -> None:
        self.module = FakeModule(leader=object() if leads else None, follower=object() if follows else None)
        self.outlet = FakeOutlet()
        self.position, self.is_paused = 640, False
        self.posted: list[object] = []
        self.asked: list[bytes] = []
        self.asked_services: list[int] = []
        self.now_ns = 1_000 * MS
        self.connections = {CONNECTION: self.outlet}
        self.desk = QueryHandler(
            cast(ConsensusModule, self.module),
            self,
            self,
            self.connections,
            post=self.posted.append,
            monotonic_ns=lambda: self.now_ns,
        )

    def query(self, payload: memoryview, service_id: int) -> bytes:
        self.asked_services.append(service_id)
        self.asked.append(bytes(payload))
        if bytes(payload) == b"fail":
            raise ValueError("no such key")
        if bytes(payload).decode() in EXITS:
            raise EXITS[bytes(payload).decode()]
        return b"answer to " + bytes(payload)

    def ask(
        self,
        correlation_id: int = 1,
        payload: bytes = b"x",
        *,
        max_staleness_ns: int | None = None,
        min_log_position: int = 0,
        timeout_ns: int = 10_000 * MS,
        service_id: int = 0,
        session_id: ClusterSessionId = SESSION,
    ) -> None:
        self.desk.on_query(
            CONNECTION,
            AskedQuery(
                correlation_id=CorrelationId(correlation_id),
                cluster_session_id=session_id,
                service_id=service_id,
                max_staleness_ns=max_staleness_ns,
                min_log_position=min_log_position,
                timeout_ns=timeout_ns,
                payload=payload,
            ),
        )

    def confirm(self, through: int = 1, log_position: int = 640, *, age_ns: int = 0) -> None:
        self.desk.on_confirmed(fx.ReadConfirmed(through, log_position, self.now_ns - age_ns))

    def codes(self) -> list[QueryCode | None]:
        return [response.code for response in self.outlet.responses]


async def test_all_that_come_in_one_pass_of_the_loop_ask_for_one_round() -> None:
    rig = Rig()

    for number in (1, 2, 3):
        rig.ask(number)
    before = list(rig.posted)
    await passes(3)

    assert (before, rig.posted) == ([], [ev.ReadsWanted(3)])
    assert rig.asked == []
    rig.desk.close()


async def test_query_is_answered_once_its_leader_is_confirmed() -> None:
    rig = Rig()
    rig.ask(5)
    await passes(3)

    rig.confirm(1)

    (response,) = rig.outlet.responses
    assert (response.code, response.correlation_id, response.payload) == (QueryCode.OK, 5, b"answer to x")
    assert (response.log_position, response.staleness_ns, response.member_id) == (640, 0, 2)
    rig.desk.close()


async def test_query_that_came_after_the_round_began_waits_for_the_next() -> None:
    rig = Rig()
    rig.ask(1)
    await passes(3)
    rig.ask(2)

    rig.confirm(1)
    first = rig.codes()
    rig.confirm(2)

    assert (len(first), len(rig.codes())) == (1, 2)
    rig.desk.close()


async def test_answer_waits_until_delivery_has_come_to_the_read_position() -> None:
    rig = Rig()
    rig.ask(1)
    rig.confirm(1, log_position=960)
    before = rig.codes()

    rig.position = 928
    rig.desk.serve()
    almost = rig.codes()
    rig.position = 1024
    rig.desk.serve()

    assert (before, almost) == ([], [])
    assert [response.log_position for response in rig.outlet.responses] == [1024]
    rig.desk.close()


async def test_service_is_not_asked_while_a_snapshot_is_taken() -> None:
    rig = Rig()
    rig.is_paused = True
    rig.ask(1)
    rig.confirm(1)
    before = list(rig.asked)

    rig.is_paused = False
    rig.desk.serve()

    assert (before, rig.asked) == ([], [b"x"])
    rig.desk.close()


async def test_answers_of_one_batch_go_out_in_few_writes_so_that_the_client_reads_meanwhile() -> None:
    rig = Rig()
    for number in range(1, 65):
        rig.ask(number)

    rig.confirm(64)
    at_once = (rig.outlet.write_count, len(rig.outlet.responses))
    await passes(3)

    assert (at_once, (rig.outlet.write_count, len(rig.outlet.responses))) == ((1, 32), (2, 64))
    assert [response.correlation_id for response in rig.outlet.responses] == [*range(1, 65)]
    rig.desk.close()


async def test_queries_that_wait_for_their_turn_are_refused_when_an_election_begins() -> None:
    """Nothing is answered as linearizable that was not answered before the leader lost its place."""
    rig = Rig()
    for number in range(1, 41):
        rig.ask(number)

    rig.confirm(40)
    rig.desk.on_election_started(ELECTION)
    await passes(3)

    codes = rig.codes()
    assert (codes[:32], codes[32:]) == ([QueryCode.OK] * 32, [QueryCode.NOT_LEADER] * 8)
    assert rig.desk.waiting_count == 0
    rig.desk.close()


async def test_slow_service_lets_the_loop_go_on_between_answers() -> None:
    rig = Rig()
    real = rig.query

    def slow(payload: memoryview, service_id: int) -> bytes:
        rig.now_ns += 4 * MS
        return real(payload, service_id)

    rig.query = slow  # type: ignore[method-assign]  # the same with a clock that goes on
    for number in range(1, 6):
        rig.ask(number)

    rig.confirm(5)
    at_once = len(rig.asked)
    await passes(8)

    assert (at_once, len(rig.asked)) == (2, 5)
    rig.desk.close()


async def test_error_of_the_service_is_the_answer_and_nothing_else_changes() -> None:
    rig = Rig()
    rig.ask(1, b"fail")
    rig.ask(2)

    rig.confirm(2)

    assert [(response.code, response.detail) for response in rig.outlet.responses] == [
        (QueryCode.SERVICE_FAILED, "no such key"),
        (QueryCode.OK, ""),
    ]
    rig.desk.close()


@pytest.mark.parametrize("kind", EXITS.values())
async def test_an_exit_in_a_query_is_a_failed_query_and_ends_nobody(kind: type[BaseException]) -> None:
    """It left the member alive and stuck, or ended the process with the status of success."""
    rig = Rig()
    rig.ask(1, kind.__name__.encode())
    rig.ask(2)

    rig.confirm(2)

    assert [(response.code, response.detail) for response in rig.outlet.responses] == [
        (QueryCode.SERVICE_FAILED, kind.__name__),
        (QueryCode.OK, ""),
    ]
    rig.desk.close()


async def test_a_member_that_holds_answers_no_query() -> None:
    """Its state is that of long ago."""
    rig = Rig()
    rig.module.ctx.held = HeldEntry(576, "on_request", "MemoryError()")

    rig.ask(1)

    (response,) = rig.outlet.responses
    assert response.code is QueryCode.NOT_LEADER
    assert "log_position=576" in response.detail
    rig.desk.close()


async def test_only_the_leader_takes_linearizable_queries() -> None:
    rig = Rig(leads=False, follows=True)

    rig.ask(1)

    assert rig.codes() == [QueryCode.NOT_LEADER]


async def test_query_without_an_open_session_is_refused() -> None:
    rig = Rig()

    rig.ask(1, session_id=ClusterSessionId(12))

    assert rig.codes() == [QueryCode.UNKNOWN_SESSION]


async def test_authorisation_service_may_say_no() -> None:
    rig = Rig()
    rig.module.ctx.authorisation = DenyAll()

    rig.ask(1)

    assert rig.codes() == [QueryCode.NOT_AUTHORISED]


async def test_the_service_that_the_query_names_is_asked() -> None:
    rig = Rig()
    rig.ask(1, service_id=3)

    rig.confirm(1)

    assert rig.asked_services == [3]
    rig.desk.close()


async def test_deposed_leader_answers_not_leader_to_all_that_wait() -> None:
    """Also to those whose position is confirmed, so that a client has one rule."""
    rig = Rig()
    rig.ask(1)
    rig.confirm(1, log_position=960)
    rig.ask(2)

    rig.desk.on_election_started(ELECTION)
    rig.confirm(2)

    assert rig.codes() == [QueryCode.NOT_LEADER, QueryCode.NOT_LEADER]
    assert rig.asked == []
    assert rig.desk.waiting_count == 0
    rig.desk.close()


async def test_stale_query_takes_what_was_confirmed_before_if_that_is_not_too_old() -> None:
    rig = Rig(leads=False, follows=True)
    rig.confirm(0, age_ns=30 * MS)

    rig.ask(1, max_staleness_ns=30 * MS)
    await passes(3)

    (response,) = rig.outlet.responses
    assert (response.code, response.staleness_ns, rig.posted) == (QueryCode.OK, 30 * MS, [])
    rig.desk.close()


async def test_stale_query_for_which_that_is_too_old_asks_anew_and_is_as_of_its_coming() -> None:
    rig = Rig(leads=False, follows=True)
    rig.confirm(0, age_ns=31 * MS)
    rig.ask(1, max_staleness_ns=30 * MS)
    await passes(3)

    rig.now_ns += 5 * MS
    rig.confirm(1, age_ns=4 * MS)

    assert rig.posted == [ev.ReadsWanted(1)]
    assert [response.staleness_ns for response in rig.outlet.responses] == [0]
    rig.desk.close()


async def test_stale_query_is_refused_where_no_leader_is_known_and_what_is_known_is_too_old() -> None:
    rig = Rig(leads=False)
    rig.confirm(0, age_ns=31 * MS)

    rig.ask(1, max_staleness_ns=30 * MS)
    rig.ask(2, max_staleness_ns=31 * MS)
    await passes(3)

    assert rig.codes() == [QueryCode.TOO_STALE, QueryCode.OK]
    rig.desk.close()


async def test_election_refuses_stale_queries_that_wait_for_the_leaders_word_and_no_others() -> None:
    rig = Rig(leads=False, follows=True)
    rig.confirm(0, log_position=960)
    rig.ask(1, max_staleness_ns=MS)
    rig.now_ns += 2 * MS
    rig.ask(2, max_staleness_ns=MS)

    rig.desk.on_election_started(ELECTION)
    rig.position = 960
    rig.desk.serve()

    assert [(response.correlation_id, response.code) for response in rig.outlet.responses] == [
        (2, QueryCode.TOO_STALE),
        (1, QueryCode.OK),
    ]
    rig.desk.close()


async def test_answer_is_never_of_a_state_below_the_position_that_the_client_has_seen() -> None:
    rig = Rig(leads=False, follows=True)
    rig.confirm(0, log_position=320)
    rig.ask(1, max_staleness_ns=MS, min_log_position=960)
    await passes(3)
    before = rig.codes()

    rig.position = 960
    rig.desk.serve()

    assert (before, rig.codes()) == ([], [QueryCode.OK])
    rig.desk.close()


async def test_too_many_queries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.turns.queries._CONNECTION_COUNT_LIMIT", 2)
    rig = Rig()

    for number in (1, 2, 3):
        rig.ask(number)
    rig.confirm(3)
    rig.ask(4)

    assert [(response.correlation_id, response.code) for response in rig.outlet.responses] == [
        (3, QueryCode.BUSY),
        (1, QueryCode.OK),
        (2, QueryCode.OK),
    ]
    assert rig.desk.waiting_count == 1
    rig.desk.close()


async def test_queries_of_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.cluster.runtime.turns.queries._BYTES_LIMIT", 100)
    rig = Rig()

    rig.ask(1, bytes(60))
    rig.ask(2, bytes(60))

    assert rig.codes() == [QueryCode.BUSY]
    rig.desk.close()


async def test_query_that_has_waited_for_as_long_as_it_may_is_refused() -> None:
    rig = Rig()
    rig.ask(1, timeout_ns=5 * MS)
    rig.ask(2, timeout_ns=5_000 * MS)
    rig.now_ns += 5 * MS

    rig.desk._on_sweep()
    rig.confirm(2)

    assert rig.codes() == [QueryCode.TIMED_OUT, QueryCode.OK]
    assert "no majority" in rig.outlet.responses[0].detail
    rig.desk.close()


async def test_nobody_is_asked_for_a_connection_that_is_gone() -> None:
    rig = Rig()
    rig.ask(1)
    del rig.connections[CONNECTION]

    rig.confirm(1)

    assert (rig.asked, rig.desk.waiting_count) == ([], 0)
    rig.desk.close()


async def test_long_answer_comes_in_fragments() -> None:
    rig = Rig()
    rig.query = lambda payload, service_id: bytes(200_000)  # type: ignore[method-assign]
    rig.ask(1)

    rig.confirm(1)

    assert len(rig.outlet.responses[0].payload) == 200_000
    rig.desk.close()
