"""The gate: who makes room, who has how long, and who is counted, on virtual time."""

from __future__ import annotations

import errno
import os
import resource
from typing import Any

import pytest

from tests.unit.cluster.runtime.fake_gate import FakeTime, let_in
from trimaran.service_api.net.connection_gate import (
    OWN_LINE_LIMIT,
    AcceptedConnection,
    ConnectionGate,
    GateLimits,
    address_of,
)
from trimaran.service_api.net.descriptors import DescriptorBudget, raise_descriptor_limit
from trimaran.service_api.net.transport import Purpose

SETUP_TIMEOUT_S = 5.0


class Rig:
    """A gate with few places, and what it logged and ended."""

    def __init__(self, *, limit: int = 4, address_limit: int = 4, descriptors: DescriptorBudget | None = None) -> None:
        self.time = FakeTime()
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.ended: list[tuple[str, str]] = []
        limits = GateLimits(connection_limit=limit, address_limit=address_limit, setup_timeout_s=SETUP_TIMEOUT_S)
        self.gate = ConnectionGate(
            {Purpose.INGRESS: limits},
            descriptors=descriptors,
            warn=lambda event, **fields: self.lines.append((event, fields)),
            call_later=self.time.call_later,
        )

    def enter(self, name: str, host: str = "10.0.0.1", purpose: Purpose = Purpose.INGRESS) -> AcceptedConnection | None:
        accepted = self.gate.enter(purpose, (host, 1))
        if accepted is not None:
            accepted.end = lambda reason: self.ended.append((name, reason))
        return accepted

    @property
    def ended_names(self) -> list[str]:
        return [name for name, _ in self.ended]


def test_connection_that_says_nothing_is_ended_at_its_deadline() -> None:
    """Issue 20 §3: silent connections were never dropped. Planted: the deadline of the setup frame is ignored."""
    rig = Rig()
    rig.enter("silent")

    rig.time.advance(SETUP_TIMEOUT_S)

    assert rig.ended == [("silent", "no setup frame within 5 s")]
    assert rig.gate.count(Purpose.INGRESS) == 0


def test_connection_that_goes_on_has_the_next_deadline_and_one_that_is_admitted_none() -> None:
    rig = Rig()
    slow, known = rig.enter("slow"), rig.enter("known")
    assert slow is not None
    assert known is not None
    slow.expect("session", 30)
    known.admit()

    rig.time.advance(29)
    before = rig.ended_names
    rig.time.advance(1)

    assert before == []
    assert rig.ended == [("slow", "no session within 30 s")]
    assert rig.gate.count(Purpose.INGRESS) == 1


def test_warm_connection_is_not_ended_while_its_session_is_open_and_is_some_time_after() -> None:
    """A client keeps one to every member; a follower binds nothing on it, but has the session in its log."""
    rig = Rig()
    warm = rig.enter("warm")
    assert warm is not None
    is_open = True
    warm.is_needed = lambda: is_open

    rig.time.advance(100)
    rig.gate.look(30)
    while_open = rig.ended_names
    is_open = False
    rig.gate.look(30)
    rig.time.advance(30)

    assert while_open == []
    assert rig.ended_names == ["warm"]


def test_peer_that_nobody_reads_is_not_ended_for_its_silence() -> None:
    """A leader that is suspended, or whose window is full, reads no client."""
    rig = Rig()
    waiting = rig.enter("waiting")
    assert waiting is not None
    is_excused = True
    waiting.is_excused = lambda: is_excused

    rig.time.advance(12)
    excused = rig.ended_names
    is_excused = False
    rig.time.advance(5)

    assert excused == []
    assert rig.ended_names == ["waiting"]


def test_oldest_without_a_session_makes_room_and_nobody_with_one() -> None:
    rig = Rig(limit=3)
    first, *_ = rig.enter("first"), rig.enter("second"), rig.enter("third")
    assert first is not None
    first.admit()

    rig.enter("fourth")

    assert rig.ended_names == ["second"]
    assert rig.gate.count(Purpose.INGRESS) == 3


def test_newcomer_is_refused_where_everybody_is_known() -> None:
    rig = Rig(limit=2)
    for name in ("one", "two"):
        accepted = rig.enter(name)
        assert accepted is not None
        accepted.admit()

    assert rig.enter("three") is None
    assert rig.ended == []
    assert rig.gate.refused_counts == {("ingress", "limit"): 1}


def test_address_with_more_than_its_share_makes_room_for_its_own_newcomers() -> None:
    """Else a flood from one address would push out what others have just begun."""
    rig = Rig(limit=4, address_limit=100)
    rig.enter("honest", "10.0.0.2")
    for index in range(8):
        rig.enter(f"flood {index}", "10.0.0.1")

    assert "honest" not in rig.ended_names
    assert rig.gate.count(Purpose.INGRESS) == 4


def test_one_address_has_its_limit() -> None:
    rig = Rig(limit=100, address_limit=2)
    for index in range(3):
        rig.enter(f"flood {index}", "10.0.0.1")
    rig.enter("honest", "10.0.0.2")

    assert rig.ended_names == ["flood 0"]


def test_the_first_refusal_is_logged_and_then_their_number() -> None:
    """A flood must not fill the log either."""
    rig = Rig(limit=1)
    for index in range(100):
        rig.enter(f"flood {index}")
    at_once = [event for event, _ in rig.lines]

    rig.time.advance(10)

    assert at_once == ["connection.refused"]
    assert [fields["count"] for event, fields in rig.lines if event == "connections.refused"] == [98]


def test_refusals_that_go_on_have_one_line_in_an_interval_and_after_a_quiet_one_the_first_is_news_again() -> None:
    rig = Rig(limit=1)
    for second in range(30):
        for index in range(5):
            rig.enter(f"flood {second} {index}")
        rig.time.advance(1)
    rig.time.advance(20)
    rig.enter("another")

    told = [(event, fields.get("count")) for event, fields in rig.lines]
    assert told == [
        ("connection.refused", None),
        *[("connections.refused", count) for count in (48, 50, 50)],
        ("connection.refused", None),
    ]


def test_connection_that_is_ended_before_its_transport_is_made_is_ended_then() -> None:
    class Transport:
        is_aborted = False

        def abort(self) -> None:
            self.is_aborted = True

    gate, transport = ConnectionGate(call_later=FakeTime().call_later), Transport()
    accepted = let_in(gate, Purpose.INGRESS)

    accepted.refuse("evicted", "for a test")
    accepted.attach(transport)  # type: ignore[arg-type]

    assert transport.is_aborted
    assert gate.count(Purpose.INGRESS) == 0


def test_without_descriptors_a_client_goes_for_a_member() -> None:
    """Issue 20 §3: with all used up by idle clients a restarted follower could not rejoin."""
    rig = Rig(descriptors=DescriptorBudget(100, reserved=20))
    rig.enter("idle")
    known = rig.enter("with a session")
    assert known is not None
    known.admit()

    may_member, ended_first = rig.gate.on_out_of_descriptors(Purpose.CONSENSUS), rig.ended_names
    may_operator = rig.gate.on_out_of_descriptors(Purpose.ARCHIVE)
    may_client = rig.gate.on_out_of_descriptors(Purpose.INGRESS)
    rig.gate.close()

    assert (may_member, may_operator, may_client) == (True, True, False)
    assert ended_first == ["idle"]
    assert rig.ended_names == ["idle", "with a session"]


def test_without_descriptors_an_archive_by_itself_refuses_and_makes_room() -> None:
    """Nothing may be accepted for ever, or the loop would turn without end."""
    rig = Rig(descriptors=DescriptorBudget(100, reserved=0))
    rig.enter("silent", purpose=Purpose.ARCHIVE)

    may_have_it = rig.gate.on_out_of_descriptors(Purpose.ARCHIVE)
    rig.gate.close()

    assert not may_have_it
    assert rig.ended_names == ["silent"]


def test_clients_never_have_the_descriptors_of_members_and_operators() -> None:
    enough, few = DescriptorBudget(1_000, reserved=300), DescriptorBudget(100, reserved=300)

    assert (enough.client_limit, few.client_limit) == (700, 50)
    enough.close()
    few.close()


def test_spare_descriptors_are_there_when_all_others_are_in_use() -> None:
    budget = DescriptorBudget(100, reserved=20)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    others: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (budget.used_count + 8, hard))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            others.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(soft))
        budget.release_spare()
        others.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in others:
            os.close(descriptor)
        budget.close()


def test_limit_of_open_files_is_raised_as_far_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert raise_descriptor_limit() == min(hard, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        (("10.0.0.1", 5), "10.0.0.1"),
        (("::ffff:10.0.0.1", 5, 0, 0), "10.0.0.1"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 0), "fe80::/64"),
        ("", "-"),
        (None, "-"),
    ],
)
def test_an_address_is_what_one_machine_can_have_for_itself(peer: object, expected: str) -> None:
    assert address_of(peer) == expected


def test_flood_of_bytes_that_make_no_sense_has_few_lines_and_their_number() -> None:
    """Planted: a line for each; a stranger who connects a thousand times a second fills the log."""
    rig = Rig(limit=100, address_limit=100)
    for number in range(OWN_LINE_LIMIT + 5):
        accepted = rig.enter(str(number))
        assert accepted is not None
        accepted.log_ended("ingress.refused", f"frame {number}", connection_id=number)
        accepted.leave()

    assert [fields["connection_id"] for _, fields in rig.lines] == [*range(OWN_LINE_LIMIT)]
    rig.lines.clear()
    rig.time.advance(10.0)

    assert rig.lines == [
        ("connections.refused", {"endpoint": "ingress", "kind": "ingress.refused", "count": 5, "seconds": 10.0})
    ]
    later = let_in(rig.gate, Purpose.INGRESS)
    later.log_ended("ingress.refused", "frame")
    later.leave()
    assert rig.lines[1:] == [("ingress.refused", {"address": "127.0.0.1", "reason": "frame"})]
    rig.time.advance(20.0)
    assert len(rig.lines) == 2
