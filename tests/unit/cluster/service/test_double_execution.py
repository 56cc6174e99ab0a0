"""Double execution: what a second instance of a service does otherwise stops the member, with what differs."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from tests.facts import has_facts
from trimaran import (
    ClientSession,
    Cluster,
    ClusteredService,
    ConfigurationError,
    ServiceDivergedError,
    SnapshotImage,
    SnapshotPublication,
)
from trimaran.client import RequestIndeterminateError
from trimaran.cluster.testing import MemoryCluster, ServiceHarness, TypedHarness
from trimaran.service_api.typed import Command, Context, Event, TypedService, handles, state
from trimaran.service_api.types import ClusterSessionId

from ..testing.counting import Counter


class Hashed(Counter):
    """Shows its state."""

    def state_hash(self) -> object:
        return {"total": self.total, "later": self.later}


class ById(Hashed):
    """Counts with an address."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        super().on_request(session, timestamp, payload)
        self.total += id(self)
        return b"done"


class ByHash(Hashed):
    """Answers with the hash of an object that has no value."""

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        return b"%d" % hash(self)


class ByRandom(Counter):
    """Sends a number that nothing decides."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        session.offer(b"%d" % random.getrandbits(64))


class ByClass(Counter):
    """Keeps what it has seen in an attribute of the class."""

    seen: ClassVar[list[bytes]] = []

    def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
        self.seen.append(bytes(payload))
        if len(self.seen) % 2 == 0:
            self.cluster.schedule_timer(len(self.seen), timestamp + 1)
        return b""


class Forgetful(Hashed):
    """Its snapshot lacks a field."""

    async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
        await snapshot.offer(b"%d 0" % self.total)


class SilentlyForgetful(Counter):
    """The same, and nothing shows the state but what it does."""

    async def on_start(self, cluster: Cluster, snapshot: SnapshotImage | None) -> None:
        await super().on_start(cluster, snapshot)
        self.later = 0


class Raising(Counter):
    """Raises on one instance only."""

    instances: ClassVar[list[int]] = []

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        if not self.instances:
            self.instances.append(1)
            raise ValueError("not this time")


class OutOfMemory(Counter):
    """Meets what other members need not."""

    def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
        raise MemoryError


def doubled(service: type[ClusteredService]) -> ServiceHarness[ClusteredService]:
    return ServiceHarness(service, double_execution=True, strict=False)


def test_equal_instances_run_as_one() -> None:
    harness = ServiceHarness(Hashed, double_execution=True)
    other = harness.open_session()

    harness.offer(b"5")
    harness.offer(b"tell 2")
    harness.offer(b"later 4")
    harness.advance(10)
    harness.restart()
    other.offer(b"bye")
    harness.request(b"1")

    assert harness.service.total == 12
    assert harness.egress == [b"5", b"5", b"7"]
    assert harness.offered == [b"2"]
    assert other.close_reason is not None


def test_an_address_in_the_state_is_named_by_field() -> None:
    harness = doubled(ById)

    with pytest.raises(ServiceDivergedError) as failed:
        harness.request(b"5")

    told = str(failed.value)
    assert "log_position=192 on_request(session=1, " in told
    assert "b'5'" in told
    assert "state: ['total']: expected=" in told
    assert "`trimaran check tests.unit.cluster.service.test_double_execution:ById`" in told


def test_another_reply_shows_both() -> None:
    with pytest.raises(ServiceDivergedError, match=r"on_request\(.*\) reply: expected=b'-?\d+' actual=b'-?\d+'\."):
        doubled(ByHash).request(b"5")


def test_the_text_of_an_object_shows_its_address() -> None:
    class Order:
        """Has no `__repr__`."""

    class ByText(Counter):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            self.order = Order()
            return str(self.order).encode()

    with pytest.raises(ServiceDivergedError, match=r"reply: from byte \d+ on: expected=b"):
        doubled(ByText).request(b"5")


def test_another_egress_shows_both() -> None:
    expected = r"on_session_message\(.*\) call 1: session.offer\(1\): expected=b'\d+' actual=b'\d+'\."

    with pytest.raises(ServiceDivergedError, match=expected):
        doubled(ByRandom).offer(b"5")


def test_an_attribute_of_the_class_is_shared_by_both() -> None:
    ByClass.seen.clear()

    with pytest.raises(
        ServiceDivergedError, match=r"call 1: expected=none actual=schedule_timer\(2, 1700000000001\)\."
    ):
        doubled(ByClass).request(b"5")


def test_a_field_that_the_snapshot_forgets_is_found_at_the_snapshot() -> None:
    harness = doubled(Forgetful)
    harness.offer(b"later 3")

    with pytest.raises(ServiceDivergedError, match=r"on_start\(\) state: \['later'\]: expected=3 actual=0") as failed:
        harness.snapshot()

    assert has_facts(str(failed.value), "log_position=192", "on_take_snapshot write")


def test_a_field_that_only_outputs_show_is_found_at_the_next_snapshot() -> None:
    harness = doubled(SilentlyForgetful)
    harness.offer(b"later 3")

    with pytest.raises(ServiceDivergedError, match=r"on_start\(\) message 1 .*expected=b'0 3' actual="):
        harness.snapshot()


def test_a_field_that_nothing_shows_is_found_by_the_first_entry_that_does() -> None:
    class Hidden(Counter):
        """Counts what it has answered, in no snapshot."""

        answered = 0

        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            self.answered += 1
            return b"%d" % self.answered

    harness = doubled(Hidden)
    harness.request(b"1")
    harness.snapshot()

    with pytest.raises(ServiceDivergedError, match=r"reply: expected=b'2' actual=b'1'.*snapshot"):
        harness.request(b"1")


def test_a_snapshot_that_cannot_be_loaded_is_found_when_it_is_taken() -> None:
    class Unloadable(Counter):
        async def on_take_snapshot(self, snapshot: SnapshotPublication) -> None:
            await snapshot.offer(b"seven")

    with pytest.raises(ServiceDivergedError, match=r"on_start\(\) error: expected=none actual=ValueError") as failed:
        doubled(Unloadable).snapshot()

    assert "on_take_snapshot write" in str(failed.value)


def test_an_error_of_one_instance_is_a_difference() -> None:
    Raising.instances.clear()

    with pytest.raises(ServiceDivergedError, match="error: expected=ValueError actual=none"):
        doubled(Raising).offer(b"5")


def test_an_error_of_both_is_an_answer() -> None:
    harness = doubled(Counter)

    with pytest.raises(ValueError, match="invalid literal"):
        harness.offer(b"x")
    harness.offer(b"5")

    assert harness.egress == [b"5"]


def test_what_a_member_alone_has_met_is_no_difference() -> None:
    with pytest.raises(MemoryError):
        doubled(OutOfMemory).offer(b"5")


def test_random_numbers_and_uuids_of_the_cluster_are_the_same() -> None:
    class Drawing(Counter):
        def on_request(self, session: ClientSession, timestamp: int, payload: memoryview) -> bytes:
            return f"{self.cluster.random.random()} {self.cluster.uuid()} {self.cluster.random.random()}".encode()

    harness = doubled(Drawing)

    assert harness.request(b"") != harness.request(b"")


def test_the_second_instance_sees_timers_and_sessions_as_the_first_did() -> None:
    class Asking(Counter):
        answers: tuple[bool, ...] = ()

        def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
            cluster = self.cluster
            cluster.schedule_timer(1, timestamp + 9)
            self.answers += cluster.cancel_timer(1), cluster.cancel_timer(1), session.is_closing
            self.answers += cluster.close_client_session(session.id), session.is_closing, session.offer(b"late")
            self.answers += (
                cluster.close_client_session(ClusterSessionId(9)),
                cluster.client_sessions[session.id] is session,
            )

        def state_hash(self) -> object:
            return self.answers

    harness = doubled(Asking)
    harness.offer(b"")

    assert harness.service.state_hash() == (True, False, False, True, True, False, False, True)


class Put(Command[int]):
    key: str
    amount: int


class Told(Event):
    text: str
    amount: int


class Typed(TypedService):
    amounts: dict[str, int] = state()

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> int:
        self.amounts[message.key] = self.amounts.get(message.key, 0) + message.amount
        if message.amount > 9:
            self.amounts[message.key] += id(ctx) % 1_000_003
        return message.amount


def test_a_typed_service_names_the_message_and_the_field() -> None:
    harness = TypedHarness(Typed, double_execution=True)
    harness.call(Put(key="a", amount=1))
    harness.restart()

    with pytest.raises(ServiceDivergedError) as failed:
        harness.call(Put(key="b", amount=10))

    told = str(failed.value)
    assert has_facts(told, "Put(key='b', amount=10))", "amounts['b']: expected=")
    assert f"test_double_execution.py:{Typed.put.__code__.co_firstlineno})" in told


class TypedAnswers(Typed):
    """Says what differs, in an answer and in an event."""

    events = (Told,)

    @handles(Put)
    def put(self, ctx: Context, message: Put) -> int:
        if message.key == "event":
            ctx.send(Told("x", id(self) % 1_000_003))
        return id(self) % 1_000_003 if message.key == "answer" else 0


@pytest.mark.parametrize(
    ("key", "facts"),
    [("answer", ("reply: expected=", "actual=")), ("event", ("session.offer(1): Told.amount: expected=",))],
)
def test_answers_and_events_that_differ_are_shown_by_name_and_field(key: str, facts: tuple[str, ...]) -> None:
    harness = TypedHarness(TypedAnswers, double_execution=True)

    with pytest.raises(ServiceDivergedError) as failed:
        harness.call(Put(key=key, amount=1))

    assert has_facts(str(failed.value), *facts)
    assert "\\x" not in str(failed.value)


# --- on members


def test_members_stop_before_they_answer() -> None:
    cluster = MemoryCluster(ById, members=1, double_execution=True, strict=False)
    client = cluster.run(cluster.connect())

    with pytest.raises(RequestIndeterminateError):
        cluster.run(client.request(b"5"))

    assert isinstance(cluster.stopped.pop(0), ServiceDivergedError)
    cluster.close()


def test_members_of_equal_instances_answer_and_come_back() -> None:
    with MemoryCluster(lambda: Hashed(), double_execution=True) as cluster:
        client = cluster.run(cluster.connect())
        assert cluster.run(client.request(b"5")) == b"5"
        cluster.run(cluster.snapshot())
        assert cluster.run(client.request(b"tell 2")) == b"5"
        cluster.run(cluster.restart())

        assert cluster.run(client.request(b"1")) == b"8"
        cluster.run(cluster.assert_identical())


def test_several_services_are_doubled_each() -> None:
    with MemoryCluster([Hashed, ById], members=1, double_execution=True, strict=False) as cluster:
        client = cluster.run(cluster.connect())
        with pytest.raises(RequestIndeterminateError):
            cluster.run(client.request(b"5"))
        assert has_facts(str(cluster.stopped.pop(0)), "two instances", "ById")


def test_a_member_stops_at_the_snapshot_that_forgets() -> None:
    cluster = MemoryCluster(Forgetful, members=1, double_execution=True)
    client = cluster.run(cluster.connect())
    cluster.run(client.request(b"later 3"))

    cluster.run(cluster.snapshot())  # of those that still run

    assert "state: ['later']: expected=3 actual=0" in str(cluster.stopped.pop(0))
    cluster.close()


def test_a_service_that_cannot_be_made_again_is_refused() -> None:
    made: list[int] = []

    def make_once(*number: int) -> Counter:
        made.append(1)
        return Counter() if len(made) == 1 else Counter(*number, 1)  # type: ignore[call-arg]

    with pytest.raises(ConfigurationError, match="two instances"):
        ServiceHarness(make_once, double_execution=True)
