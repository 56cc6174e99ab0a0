"""What a callback that raises means: an answer, or the end of this member; and how deep it may recurse."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from tests.unit.cluster.service.test_client_session import FakeOutlet
from trimaran.cluster.service.failures import FixedHeadroom, foreign_cause
from trimaran.service_api import InvariantViolation, LocalProtocolError, ServiceFailedError
from trimaran.service_api.session import ClientSession

ANSWERS = [
    ValueError("42"),
    KeyError("no such account"),
    AssertionError("not the owner"),
    PermissionError("not your account"),
    FileNotFoundError("no such document"),
    LocalProtocolError("payload too long"),
    RecursionError("maximum recursion depth exceeded"),
    StopIteration(),
    ExceptionGroup("two", [ValueError("1"), KeyError("2")]),
    SystemExit(3),
    BaseExceptionGroup("two", [ValueError("1"), SystemExit()]),
]
FOREIGN = [
    MemoryError(),
    OSError(28, "No space left on device"),
    PermissionError(13, "Permission denied"),
    ConnectionRefusedError(111, "Connection refused"),
    TimeoutError("timed out"),
    OSError("urlopen error"),
    InvariantViolation("invariant broken"),
    KeyboardInterrupt(),
    GeneratorExit(),
    asyncio.CancelledError(),
    ExceptionGroup("two", [ValueError("1"), MemoryError()]),
    BaseExceptionGroup("two", [ValueError("1"), KeyboardInterrupt()]),
]


@pytest.mark.parametrize("error", ANSWERS, ids=repr)
def test_what_state_and_message_explain_is_an_answer(error: BaseException) -> None:
    assert foreign_cause(error) is None


@pytest.mark.parametrize("error", FOREIGN, ids=repr)
def test_what_this_member_alone_has_met_is_no_answer(error: BaseException) -> None:
    assert foreign_cause(error) is not None


def test_an_exit_that_a_signal_brought_is_no_answer() -> None:
    """A library may have set a handler that ends the process; the other members have got no signal."""

    def leave(number: int, frame: object) -> None:
        sys.exit(3)

    before = signal.signal(signal.SIGUSR1, leave)
    try:
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGUSR1)

        assert foreign_cause(caught.value) is caught.value
    finally:
        signal.signal(signal.SIGUSR1, before)


def raised_for(cause: BaseException, *, explicit: bool) -> BaseException:
    try:
        try:
            raise cause
        except BaseException as error:
            if explicit:
                raise ValueError("the account cannot be read") from error
            raise ValueError("the account cannot be read")  # noqa: B904  # its context is the point
    except ValueError as error:
        return error


@pytest.mark.parametrize("explicit", [True, False])
def test_an_error_raised_for_a_lack_of_memory_is_no_answer(explicit: bool) -> None:
    cause = MemoryError()

    assert foreign_cause(raised_for(cause, explicit=explicit)) is cause
    assert foreign_cause(raised_for(KeyError("a"), explicit=explicit)) is None


def test_a_chain_that_ends_in_itself_has_an_end() -> None:
    error, other = ValueError("a"), ValueError("b")
    error.__context__, other.__context__ = other, error

    assert foreign_cause(error) is None


def failing(error: BaseException) -> Callable[[ClientSession, bytes], None]:
    def on_message(session: ClientSession, payload: bytes) -> None:
        session.offer(payload)
        if payload == b"bad":
            raise error

    return on_message


@pytest.mark.parametrize("error", [MemoryError(), GeneratorExit(), KeyboardInterrupt(), OSError(5, "I/O")], ids=repr)
@pytest.mark.parametrize("length", [0, 3_000], ids=["whole", "in fragments"])
def test_a_member_stops_before_it_answers_anything_of_that_turn(error: BaseException, length: int) -> None:
    rig, outlet = Rig(), FakeOutlet()

    def on_message(session: ClientSession, payload: bytes) -> None:
        session.offer(payload)
        if payload.startswith(b"bad"):
            raise error

    rig.service.on_message = on_message
    rig.open()
    rig.agent.connect_egress(SESSION, outlet, TERM)
    rig.message(b"good")
    end = rig.message(b"bad" + bytes(length))
    rig.message(b"never")

    with pytest.raises(ServiceFailedError) as caught:
        rig.deliver()

    assert f"on_session_message of {rig.service!r}" in str(caught.value)
    assert f"log_position={end} error={error!r}" in str(caught.value)
    assert caught.value.__cause__ is error
    assert outlet.writes == []
    assert rig.adapter.position < end
    assert rig.agent.error_count == 0


def test_the_recursion_limit_is_what_it_was_when_callbacks_are_over() -> None:
    before = sys.getrecursionlimit()
    rig = Rig()
    rig.service.on_message = failing(MemoryError())
    rig.open()
    rig.message(b"bad")

    with pytest.raises(ServiceFailedError):
        rig.deliver()

    assert sys.getrecursionlimit() == before


def depth_that_fits(headroom: FixedHeadroom) -> int:
    """How deep a list may be nested for `json.loads`."""
    headroom.enter()
    try:
        for depth in range(1, 2_000):
            try:
                json.loads("[" * depth + "]" * depth)
            except RecursionError:
                return depth - 1
    finally:
        headroom.leave()
    raise AssertionError("no limit")


def called_from(depth: int, function: Callable[[], int]) -> int:
    return function() if depth == 0 else called_from(depth - 1, function)


@pytest.mark.parametrize("depth", [0, 1, 7, 300])
def test_callbacks_have_the_same_headroom_from_whatever_depth_they_are_called(depth: int) -> None:
    expected = depth_that_fits(FixedHeadroom())

    assert called_from(depth, lambda: depth_that_fits(FixedHeadroom()) - 0) == expected


@pytest.mark.parametrize("depth", [0, 40])
def test_members_that_deliver_from_different_depths_give_the_same_answers(depth: int) -> None:
    """Lists nested from 900 to 999 deep were taken by some members and refused by others."""

    def taken(from_depth: int) -> list[int]:
        rig, found = Rig(), list[int]()

        def on_message(session: ClientSession, payload: bytes) -> None:
            json.loads(payload)
            found.append(len(payload) // 2)

        rig.service.on_message = on_message
        rig.open()
        for nested in range(900, 1_000, 4):
            rig.message(b"[" * nested + b"]" * nested)

        def deliver() -> int:
            rig.deliver()
            return len(found)

        called_from(from_depth, deliver)
        return found

    at_the_top = taken(0)

    assert 900 in at_the_top
    assert taken(depth) == at_the_top
