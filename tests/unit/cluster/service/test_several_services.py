"""What a container does for its services: messages of services, several services, and what is legal when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import structlog

from tests.unit.cluster.service.log_writer import SESSION, RecordingService, Rig
from trimaran.cluster.service.agent import ClusteredServiceAgent
from trimaran.cluster.service.bounded_log_adapter import BoundedLogAdapter
from trimaran.cluster.service.client_session import ContainerClientSession
from trimaran.service_api import Cluster, LocalProtocolError, Role, SnapshotPublication
from trimaran.service_api.session import ClientSession
from trimaran.service_api.types import ClusterSessionId, MemberId, TimeUnit

BASE = -(1 << 63)


class SeveralRig(Rig):
    """A container with several services."""

    def __init__(self, *services: RecordingService) -> None:
        super().__init__()
        self.services = services
        self.agent = ClusteredServiceAgent(
            self.services, self.requests, member_id=MemberId(0), time_unit=TimeUnit.MILLIS, max_payload_length=8160
        )
        self.adapter = BoundedLogAdapter(self.log_buffer, self.reader, self.agent, self.requests)

    def cluster(self, service_id: int) -> Cluster:
        return self.agent.views[service_id]


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def two() -> SeveralRig:
    return SeveralRig(RecordingService(), RecordingService())


# --- messages of services


@pytest.mark.parametrize("length", [0, 5, 3000])
def test_message_of_a_service_goes_to_the_module_and_then_to_the_service(rig: Rig, length: int) -> None:
    """Whole or in fragments; with the id that the module gives."""
    rig.requests.offered_by = 0
    rig.message(b"x" * length, session_id=BASE + 1, timestamp=123)

    rig.deliver()

    assert rig.requests.told == [("service message", BASE + 1, b"x" * length)]
    assert rig.service.calls == [("service message", 0, 123, b"x" * length)]
    assert (rig.agent.time, rig.agent.log_position) == (123, rig.log_buffer.append_position)


def test_messages_of_services_and_clients_are_delivered_in_the_order_of_the_log(rig: Rig) -> None:
    rig.open()
    for number in range(6):
        rig.message(b"%d" % number, session_id=SESSION if number % 2 else BASE + 1 + number)
    rig.one_chunk()

    rig.deliver()

    assert [call[3] for call in rig.service.calls[1:]] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [call[0] for call in rig.service.calls[1:3]] == ["service message", "message"]


def test_message_that_the_module_withholds_reaches_no_service(rig: Rig) -> None:
    rig.requests.offered_by = None
    rig.message(b"again", session_id=BASE + 1)

    rig.deliver()

    assert rig.service.calls == []


def test_offers_go_to_the_module_in_order_and_belong_to_it(rig: Rig) -> None:
    source = bytearray(b"one")

    def offer(session: ClientSession, payload: bytes) -> None:
        rig.agent.views[0].offer(source)
        source[:] = b"two"
        rig.agent.views[0].offer(memoryview(source))

    rig.service.on_message = offer
    rig.open()
    rig.message(b"go")
    rig.deliver()

    assert rig.requests.told[1:] == [("offer", 0, b"one"), ("offer", 0, b"two")]


def test_payload_longer_than_the_log_takes_is_refused(rig: Rig) -> None:
    refused: list[str] = []

    def offer(session: ClientSession, payload: bytes) -> None:
        with pytest.raises(LocalProtocolError) as error:
            rig.agent.views[0].offer(bytes(8161))
        refused.append(str(error.value))

    rig.service.on_message = offer
    rig.open()
    rig.message(b"go")
    rig.deliver()

    assert refused == ["payload too long: length=8161 limit=8160"]


# --- several services


def test_every_service_is_given_every_entry_by_service_id(two: SeveralRig) -> None:
    order: list[int] = []
    for service_id, service in enumerate(two.services):
        service.on_message = lambda session, payload, service_id=service_id: order.append(service_id)  # type: ignore[misc]
    two.term()
    two.open()
    two.message(b"short")
    two.message(b"x" * 3000)
    two.message(b"from a service", session_id=BASE + 1)
    two.close()

    two.deliver()

    assert two.services[0].calls == two.services[1].calls
    kinds = ["term", "open", "message", "message", "service message", "close"]
    assert [call[0] for call in two.services[0].calls] == kinds
    assert order == [0, 1, 0, 1]


def test_what_one_service_raises_keeps_nothing_from_the_others(two: SeveralRig) -> None:
    def fail(*_: object) -> None:
        raise ValueError("service bug")

    for name in ("on_session_open", "on_service_message", "on_session_close"):
        setattr(two.services[0], name, fail)
    two.services[0].on_message = fail
    two.open()
    two.message(b"short")
    two.message(b"x" * 3000)
    two.message(b"from a service", session_id=BASE + 1)
    two.close()

    two.deliver()

    assert [call[0] for call in two.services[1].calls] == ["open", "message", "message", "service message", "close"]
    assert two.agent.error_count == 5


class Answering(RecordingService):
    """Answers requests with its name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.given: list[bytes] = []

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.given.append(bytes(payload))
        if bytes(payload) == b"fail":
            raise ValueError(self.name)
        return self.name.encode()


class Queried(RecordingService):
    """Answers queries."""

    def on_query(self, payload: memoryview) -> bytes:
        return b"third"


def test_a_request_goes_to_the_one_service_that_takes_requests_and_a_query_to_the_first_that_takes_queries() -> None:
    second = Answering("second")
    three = SeveralRig(RecordingService(), second, Queried())
    session = ContainerClientSession(SESSION, b"", three.agent.egress, max_payload_length=100)

    three.agent.enter_messages()
    for sequence, payload in enumerate((b"go", b"fail"), 1):
        three.agent.requests.on_request(session, 5, sequence, 0, memoryview(payload))
    three.agent.leave_messages()

    assert second.given == [b"go", b"fail"]
    kept = three.agent.requests.sessions[SESSION].kept
    assert [reply for _, reply in kept] == [b"second", b"ValueError: second"]
    assert three.agent.error_count == 1
    assert three.agent.query(memoryview(b"")) == b"third"


def test_each_of_two_services_is_given_a_request_and_the_first_answers_which_the_start_says() -> None:
    """The second one's reply was dropped without a word. Without the request its state would not be the log's."""
    second, third = Answering("second"), Answering("third")
    with structlog.testing.capture_logs() as logged:
        three = SeveralRig(RecordingService(), second, third)
    session = ContainerClientSession(SESSION, b"", three.agent.egress, max_payload_length=100)

    three.agent.enter_messages()
    three.agent.requests.on_request(session, 5, 1, 0, memoryview(b"go"))
    three.agent.requests.on_request(session, 5, 2, 0, memoryview(b"fail"))
    three.agent.leave_messages()

    assert second.given == third.given == [b"go", b"fail"]
    assert [reply for _, reply in three.agent.requests.sessions[SESSION].kept] == [b"second", b"ValueError: second"]
    assert three.agent.error_count == 2
    (warning,) = (line for line in logged if line["event"] == "services.answers_dropped")
    assert (warning["answering"][:2], [name[:2] for name in warning["silent"]]) == ("1 ", ["2 "])


def test_services_that_take_no_requests_and_queries_say_so(two: SeveralRig) -> None:
    assert not two.agent.service.takes_requests
    with pytest.raises(LocalProtocolError, match="no on_query"):
        two.agent.query(memoryview(b""))


def test_sessions_are_shared_so_a_close_of_one_service_is_seen_by_the_others(two: SeveralRig) -> None:
    two.services[0].on_message = lambda session, payload: session.close()
    offered: list[bool] = []
    two.services[1].on_message = lambda session, payload: offered.append(session.offer(b"late"))
    two.open()
    two.message(b"go")

    two.deliver()

    assert offered == [False]
    assert two.requests.told[1:] == [("close session", SESSION)]


def test_timer_ids_of_several_services_do_not_meet(two: SeveralRig) -> None:
    """The log has room for one number: the service's id is its highest byte. Source: aeron.md §3.9."""

    def work(service_id: int) -> Callable[[ClientSession, bytes], None]:
        def on_message(session: ClientSession, payload: bytes) -> None:
            two.cluster(service_id).schedule_timer(7, 500)
            assert two.cluster(service_id).cancel_timer(8)

        return on_message

    for service_id, service in enumerate(two.services):
        service.on_message = work(service_id)
    two.open()
    two.message(b"go")
    two.deliver()

    in_log = [7, 1 << 56 | 7]
    assert two.requests.told[1:] == [
        ("schedule", in_log[0], 500),
        ("cancel", 8),
        ("schedule", in_log[1], 500),
        ("cancel", 1 << 56 | 8),
    ]
    for correlation_id in in_log:
        two.timer(correlation_id, timestamp=501)
    two.deliver()
    assert [service.calls[-1] for service in two.services] == [("timer", 7, 501)] * 2
    assert [len(service.calls) for service in two.services] == [3, 3]


def test_services_that_share_timer_ids_are_all_told(two: SeveralRig) -> None:
    """As the services of an Aeron node do: an id in the log is the same to each. Source: aeron.md §3.9."""
    two.agent = ClusteredServiceAgent(
        two.services,
        two.requests,
        member_id=MemberId(0),
        time_unit=TimeUnit.MILLIS,
        max_payload_length=8160,
        shared_timer_ids=True,
    )
    two.adapter = BoundedLogAdapter(two.log_buffer, two.reader, two.agent, two.requests)
    two.services[1].on_message = lambda session, payload: two.cluster(1).schedule_timer(-7, 500)
    two.open()
    two.message(b"go")
    two.timer(-7, timestamp=501)

    two.deliver()

    assert two.requests.told[1:] == [("schedule", -7, 500), ("fired", -7)]
    assert [service.calls[-1] for service in two.services] == [("timer", -7, 501)] * 2


@pytest.mark.parametrize("correlation_id", [-1, 1 << 56])
def test_timer_id_that_does_not_fit_beside_a_service_id_is_refused(two: SeveralRig, correlation_id: int) -> None:
    two.agent.enter_messages()

    with pytest.raises(LocalProtocolError, match=rf"correlation_id={correlation_id} expected=0..{(1 << 56) - 1} "):
        two.cluster(0).schedule_timer(correlation_id, 5)
    with pytest.raises(LocalProtocolError, match="2 services"):
        two.cluster(1).cancel_timer(correlation_id)


def test_one_service_has_every_64_bit_timer_id_for_itself(rig: Rig) -> None:
    """What is longer, no log entry can hold: every leader would stop at it, one after another."""
    rig.agent.enter_messages()
    cluster = rig.agent.views[0]
    for correlation_id in (-(1 << 63), (1 << 63) - 1):
        cluster.schedule_timer(correlation_id, (1 << 63) - 1)

    for correlation_id in (-(1 << 63) - 1, 1 << 63):
        with pytest.raises(LocalProtocolError, match=rf"timer id.*correlation_id={correlation_id}"):
            cluster.schedule_timer(correlation_id, 5)
    with pytest.raises(LocalProtocolError, match=f"deadline={1 << 63}"):
        cluster.schedule_timer(1, 1 << 63)

    assert len(rig.requests.told) == 2


def test_timer_of_a_service_that_is_not_there_is_dropped(two: SeveralRig) -> None:
    two.timer(5 << 56 | 1)

    two.deliver()

    assert [service.calls for service in two.services] == [[], []]


async def test_each_service_starts_with_its_own_view(two: SeveralRig) -> None:
    await two.agent.start()

    assert [service.cluster for service in two.services] == [two.cluster(0), two.cluster(1)]


# --- what is legal when

CALLS: dict[str, Callable[[Cluster, ClientSession], object]] = {
    "schedule_timer": lambda cluster, session: cluster.schedule_timer(1, 2),
    "cancel_timer": lambda cluster, session: cluster.cancel_timer(1),
    "offer": lambda cluster, session: cluster.offer(b"x"),
    "close_client_session": lambda cluster, session: cluster.close_client_session(SESSION),
    "session.offer": lambda cluster, session: session.offer(b"x"),
    "session.close": lambda cluster, session: session.close(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_call_is_refused_outside_log_ordered_callbacks(call: str) -> None:
    """on_start, on_role_change, on_query, on_take_snapshot, on_terminate: members would differ. Aeron.md §4.2."""
    refused: list[str] = []

    def make() -> None:
        with pytest.raises(LocalProtocolError, match="log-ordered") as error:
            CALLS[call](own.agent.views[0], own.agent.client_sessions[SESSION])
        refused.append(str(error.value).split()[0])

    class Curious(RecordingService):
        def on_start(self, cluster: Cluster, snapshot: object) -> None:
            make()

        def on_role_change(self, role: Role) -> None:
            make()

        def on_query(self, payload: memoryview) -> bytes:
            make()
            return b""

        async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
            make()

        def on_terminate(self, cluster: Cluster) -> None:
            make()

    own = SeveralRig(Curious())
    own.open()
    own.deliver()
    told_count = len(own.requests.told)

    await own.agent.start()
    own.agent.on_term_begun(Role.LEADER, 0)
    own.agent.query(memoryview(b""))
    await own.agent.take_snapshot(0, None)  # type: ignore[arg-type]  # this service writes nothing
    own.agent.terminate()

    assert refused == [call] * 5
    assert own.agent.error_count == 0
    assert len(own.requests.told) == told_count


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "callback",
    ["on_session_open", "on_session_close", "on_timer_event", "on_service_message", "on_new_leadership_term_event"],
)
def test_call_is_legal_in_every_log_ordered_callback(rig: Rig, callback: str, call: str) -> None:
    done: list[str] = []
    rig.open(SESSION + 1)
    rig.deliver()
    session = rig.agent.client_sessions[ClusterSessionId(SESSION + 1)]

    def make(*_: object, **__: object) -> None:
        CALLS[call](rig.agent.views[0], session)
        done.append(call)

    setattr(rig.service, callback, make)
    rig.open()
    rig.term()
    rig.timer(1)
    rig.message(b"x", session_id=BASE + 1)
    rig.close()
    rig.deliver()

    assert done == [call]
    assert rig.agent.error_count == 0


def test_service_may_close_a_session_by_its_id(rig: Rig) -> None:
    answers: list[bool] = []

    def close(session: ClientSession, payload: bytes) -> None:
        answers.append(rig.agent.views[0].close_client_session(ClusterSessionId(99)))
        answers.append(rig.agent.views[0].close_client_session(SESSION))
        answers.append(rig.agent.views[0].close_client_session(SESSION))

    rig.service.on_message = close
    rig.open()
    rig.message(b"go")
    rig.deliver()

    assert answers == [False, True, True]
    assert rig.requests.told[1:] == [("close session", SESSION)]
