"""The registers service on its own, and against the model that is its oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from tests.unit.cluster.testing.simulation.in_memory import InMemoryCluster, InMemorySession
from trimaran.cluster.testing.simulation.clients.history import ClientOperation
from trimaran.cluster.testing.simulation.clients.register_model import RegisterModel
from trimaran.cluster.testing.simulation.clients.register_operations import (
    APPEND,
    CLOSE,
    COMPARE_AND_SET,
    GET,
    PUT,
    WRITE_LATER,
    RegisterOutcome,
    Swap,
    Values,
)
from trimaran.cluster.testing.simulation.services.registers import (
    Answer,
    AnswerStatus,
    Registers,
    Request,
    RequestKind,
    Write,
)
from trimaran.service_api import CloseReason
from trimaran.service_api.types import ClusterSessionId


@dataclass(slots=True)
class FakeCluster(InMemoryCluster):
    """What a service sees of its member, under a test's control."""

    timers: dict[int, int] = field(default_factory=dict)

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        self.timers[correlation_id] = deadline

    def cancel_timer(self, correlation_id: int) -> bool:
        return self.timers.pop(correlation_id, None) is not None

    def close_client_session(self, session_id: ClusterSessionId) -> bool:
        raise AssertionError(session_id)

    def offer(self, payload: bytes | bytearray | memoryview) -> None:
        raise AssertionError(payload)

    def publish(self, topic: str, payload: bytes | bytearray | memoryview) -> None:
        raise AssertionError(topic)


class Log:
    """Hands entries to a service as a log would: each 32 bytes and 1 ms after the one before."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.service = Registers()
        self.service.cluster = self.cluster

    def open(self, session_id: int = 1) -> InMemorySession:
        session = InMemorySession(ClusterSessionId(session_id))
        self.next_entry()
        self.service.on_session_open(session, self.cluster.time)
        return session

    def message(self, session: InMemorySession, payload: bytes) -> Answer | None:
        """Deliver a message; give the answer to it, if there is one."""
        count = len(session.replies)
        self.next_entry()
        self.service.on_session_message(session, self.cluster.time, memoryview(payload))
        return Answer.decode(session.replies[-1]) if len(session.replies) > count else None

    def ask(
        self,
        session: InMemorySession,
        kind: RequestKind,
        sequence: int,
        argument: int = 0,
        *,
        key: int = 0,
        expected: int = 0,
        delay_ms: int = 0,
    ) -> Answer:
        request = Request(kind, key, sequence, int(session.id), argument, expected, delay_ms)
        answer = self.message(session, request.encode())
        assert answer is not None
        return answer

    def fire(self, correlation_id: int, *, at: int | None = None) -> None:
        self.next_entry()
        self.cluster.time = self.cluster.time if at is None else at
        self.service.on_timer_event(correlation_id, self.cluster.time)

    def close(self, session: InMemorySession) -> None:
        self.next_entry()
        self.service.on_session_close(session, self.cluster.time, CloseReason.TIMEOUT)

    def next_entry(self) -> None:
        self.cluster.log_position += 32
        self.cluster.time += 1


def test_timers_that_fire_twice_or_early_are_faults() -> None:
    log = Log()
    session = log.open()
    log.ask(session, RequestKind.WRITE_LATER, 1, 70, delay_ms=50)

    log.fire(70, at=51)
    log.fire(70)

    assert log.service.faults == [
        "correlation_id=70 fired at 51, early: deadline=52",
        "correlation_id=70 a timer fired that was not set, or for the second time",
    ]


def test_entries_out_of_place_are_faults() -> None:
    log = Log()
    session = log.open()
    log.cluster.log_position = 0
    log.cluster.time = 0

    log.message(session, Request(RequestKind.GET, 0, 1, 1).encode())
    log.cluster.log_position -= 32
    log.close(session)
    log.close(session)
    log.message(session, b"")

    assert log.service.faults == [
        "message: log_position=32 after 32",
        "close: log_position=32 after 32",
        "session_id=1 was closed and is not open",
        "session_id=1 a message that is no request: length=0",
    ]


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\xff" * 40])
def test_a_message_that_is_no_request_is_a_fault(payload: bytes) -> None:
    log = Log()
    session = log.open()

    assert log.message(session, payload) is None
    assert log.service.faults == [f"session_id=1 a message that is no request: length={len(payload)}"]


@pytest.mark.parametrize("change", ["payload", "padding", "position", "timestamp", "session", "state"])
def test_any_difference_changes_the_hash(change: str) -> None:
    hashes = []
    for is_changed in (False, True):
        log = Log()
        session = log.open()
        other = log.open(2)
        argument, padding_length = 70, 0
        if is_changed:
            match change:
                case "payload":
                    argument = 71
                case "padding":
                    padding_length = 1
                case "position":
                    log.cluster.log_position += 32
                case "timestamp":
                    log.cluster.time += 1
                case "session":
                    session = other
                case "state":
                    log.service.registers[0] = (Write(9, 32),)
        request = Request(RequestKind.PUT, 0, 1, 1, argument).encode(padding_length=padding_length)
        log.message(session, request)
        hashes.append(log.service.state_hash())

    assert hashes[0] != hashes[1]


@pytest.mark.parametrize("seed", range(10))
def test_the_service_answers_as_the_model_says(seed: int) -> None:
    """The model is written without the service's code."""
    random = Random(seed)
    log = Log()
    session = log.open()
    model, states = RegisterModel(), dict[int, Values]()
    kinds = {
        RequestKind.GET: GET,
        RequestKind.PUT: PUT,
        RequestKind.APPEND: APPEND,
        RequestKind.COMPARE_AND_SET: COMPARE_AND_SET,
        RequestKind.WRITE_LATER: WRITE_LATER,
        RequestKind.CLOSE: CLOSE,
    }
    for sequence in range(1, 300):
        kind = random.choice([each for each in RequestKind if each is not RequestKind.CLOSE])
        key = random.randrange(3)
        state = states.get(key, model.initial_state())
        expected = random.choice((0, state[-1] if state else 1))
        answer = log.ask(session, kind, sequence, sequence, key=key, expected=expected, delay_ms=10**6)

        argument = Swap(expected, sequence) if kind is RequestKind.COMPARE_AND_SET else sequence
        states[key], outcome = model.apply(state, ClientOperation(sequence, 1, key, kinds[kind], argument, 0))

        seen = RegisterOutcome(answer.status is AnswerStatus.OK, tuple(write.value for write in answer.writes))
        assert outcome == seen
