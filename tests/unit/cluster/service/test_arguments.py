"""What a service passes to its cluster is refused where it enters, by name, and nothing of it stays."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from tests.unit.cluster.service.test_client_session import FakeOutlet
from tests.unit.cluster.service.test_service_agent import replies
from trimaran.service_api import ClientSession, Cluster, LocalProtocolError

Call = Callable[[Cluster, ClientSession], object]


class TimerId(IntEnum):
    LOCK = 7


def called(call: Call) -> tuple[object, FakeOutlet]:
    """Make a call in a callback, between two offers; what it raised or returned, and what went out."""
    rig, outlet, found = Rig(), FakeOutlet(), list[object]()

    def on_message(session: ClientSession, payload: bytes) -> None:
        session.offer(b"before")
        try:
            found.append(call(rig.agent.views[0], session))
        except LocalProtocolError as error:
            found.append(error)
        session.offer(b"after")

    rig.service.on_message = on_message
    rig.open()
    rig.agent.connect_egress(SESSION, outlet, TERM)
    rig.message(b"go")
    rig.deliver()
    return found[0], outlet


WRONG: list[tuple[Any, str]] = [
    (1.5, "1.5 type=float"),
    (True, "True expected an int, not a bool"),
    ("7", "'7' type=str"),
    (None, "None type=NoneType"),
]


@pytest.mark.parametrize(("value", "said"), WRONG, ids=repr)
@pytest.mark.parametrize("name", ["correlation_id", "deadline", "session_id"])
def test_numbers_that_no_log_can_hold_are_refused(name: str, value: Any, said: str) -> None:
    """A deadline of half a millisecond was accepted, and ended every member at the next snapshot."""
    calls: dict[str, Call] = {
        "correlation_id": lambda cluster, session: cluster.schedule_timer(value, 10),
        "deadline": lambda cluster, session: cluster.schedule_timer(1, value),
        "session_id": lambda cluster, session: cluster.close_client_session(value),
    }

    error, outlet = called(calls[name])

    assert isinstance(error, LocalProtocolError)
    assert str(error).startswith(f"{name}={said}")
    assert replies(outlet) == [(TERM, b"before"), (TERM, b"after")]


@pytest.mark.parametrize(("value", "said"), WRONG, ids=repr)
def test_the_id_of_a_timer_to_cancel_is_refused_as_well(value: Any, said: str) -> None:
    error, _ = called(lambda cluster, session: cluster.cancel_timer(value))

    assert str(error).startswith(f"correlation_id={said}")


def test_numbers_of_an_enumeration_are_numbers() -> None:
    rig_timer, _ = called(lambda cluster, session: cluster.schedule_timer(TimerId.LOCK, 10))

    assert rig_timer is None


@pytest.mark.parametrize("payload", ["text", None, 5, [1, 2], array("q", [1])], ids=repr)
def test_what_is_no_payload_leaves_no_half_message_behind(payload: Any) -> None:
    """The header of such a message went out, and the client could read nothing after it."""
    to_session, outlet = called(lambda cluster, session: session.offer(payload))
    to_log, _ = called(lambda cluster, session: cluster.offer(payload))

    assert str(to_session) == str(to_log)
    assert f"type={type(payload).__name__} expected bytes, bytearray or memoryview" in str(to_log)
    assert replies(outlet) == [(TERM, b"before"), (TERM, b"after")]


@pytest.mark.parametrize(
    "payload",
    [memoryview(array("I", [1, 2])), memoryview(b"123456")[::2], memoryview(bytes(6)).cast("B", (2, 3))],
    ids=["items of four bytes", "not contiguous", "two dimensions"],
)
def test_a_view_is_sent_as_the_bytes_that_it_shows(payload: memoryview) -> None:
    """Its number of items was taken for its length, and the client could read nothing after it."""
    _, outlet = called(lambda cluster, session: session.offer(payload))

    assert replies(outlet) == [(TERM, b"before"), (TERM, payload.tobytes()), (TERM, b"after")]
