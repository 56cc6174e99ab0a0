"""Where digests are made and what is in them: the same on every member, however it delivers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, RecordingService, Rig
from trimaran.cluster.messages.digests import FIELD_LIMIT, DigestKind
from trimaran.cluster.service.digests import (
    DENSE_BYTES,
    DIGEST_BYTES,
    PERIOD_BYTES,
    WINDOW_BYTES,
    MessageDigest,
    canonical_bytes,
    digest_of,
    digest_state,
)
from trimaran.service_api import ClientSession, LocalProtocolError
from trimaran.service_api.state_digest import DigestedField, StateDigest
from trimaran.service_api.types import ClusterSessionId

LENGTHS = [0, 7, 32, 200, 1_400, 5_000]


class HashedService(RecordingService):
    """Has a `state_hash`."""

    def __init__(self, cost: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self.cost = cost
        self.asked_at: list[int] = []

    def state_hash(self) -> object:
        self.cost()
        return len(self.calls)


class Outlet:
    """The connection of a client to a leader."""

    def write(self, data: bytes | bytearray) -> None:
        """Drop."""


def write_log(rig: Rig, seed: int, count: int = 400) -> list[int]:
    random = Random(seed)
    rig.term()
    rig.open()
    return [rig.message(random.randbytes(random.choice(LENGTHS[:4] if i % 50 else LENGTHS))) for i in range(count)]


def hashed(rig: Rig, cost: Callable[[], None] = lambda: None) -> HashedService:
    """Put a service with a `state_hash` into a rig that was just made."""
    service = HashedService(cost)
    rig.service = service
    rig.agent.services = (service,)
    rig.agent.service = service
    rig.digests.__init__(  # type: ignore[misc]  # as if it had been made with it
        [service],
        rig.agent.egress,
        lambda kind, service_id, position, digest, value: rig.told_digests.append((kind, service_id, position, digest)),
        lambda service_id, position, fields: rig.told_fields.append((position, fields)),
        monotonic_ns=lambda: rig.now_ns,
    )
    rig.digests.start_from(0)
    return service


@pytest.mark.parametrize("seed", range(5))
def test_members_make_the_same_digests_however_they_deliver(seed: int) -> None:
    """A leader with its client connected, a follower, a member that replays from its archive, one in small pieces."""
    told = []
    for way in ("leader", "window", "one chunk", "archive", "piecemeal"):
        rig = Rig(term_length_bytes=1 << 20)
        service = hashed(rig)
        service.on_message = lambda session, payload: session.offer(payload)
        if way == "leader":
            rig.agent.connect_egress(SESSION, Outlet(), TERM)
        ends = write_log(rig, seed)
        if way == "one chunk":
            rig.one_chunk()
        elif way == "archive":
            rig.to_archive(ends[-1])
        elif way == "piecemeal":
            for end in ends[::7]:
                rig.deliver(end)
        rig.deliver()
        told.append(rig.told_digests)

    first, *others = told
    assert {kind for kind, *_ in first} == {DigestKind.STATE, DigestKind.OUTPUTS}
    assert len(first) > 10
    assert others == [first] * 4


@pytest.mark.parametrize("what", ["message", "reply", "timer", "cancel", "offer", "close"])
def test_a_different_output_gives_another_digest(what: str) -> None:
    told = []
    for number in (0, 0, 1):
        rig = Rig()
        rig.digests.start_from(0)
        cluster = rig.agent.views[0]

        def act(session: ClientSession, payload: bytes, number: int = number, cluster: Any = cluster) -> None:
            if what == "message":
                session.offer(b"%d" % number)
            elif what == "reply":
                session.offer_reply(1, number, b"")  # type: ignore[attr-defined]  # as the runner of requests does
            elif what == "timer":
                cluster.schedule_timer(1, number)
            elif what == "cancel":
                cluster.cancel_timer(number)
            elif what == "offer":
                cluster.offer(b"%d" % number)
            elif number:
                session.close()

        rig.service.on_message = act
        rig.open()
        rig.message(b"once")
        rig.message(bytes(WINDOW_BYTES))
        rig.deliver()
        told.append(rig.told_digests)

    assert told[0] == told[1]
    assert [each[:3] for each in told[0]] == [each[:3] for each in told[2]]
    assert told[0] != told[2]


def test_windows_are_dense_behind_a_cut_and_rare_after_that() -> None:
    rig = Rig(term_length_bytes=4 << 20)
    rig.digests.start_from(0)
    rig.open()
    end = 0
    while end < 4 * PERIOD_BYTES:
        end = rig.message(bytes(32))
    cut = rig.term()
    while end < 5 * PERIOD_BYTES:
        end = rig.message(bytes(32))

    rig.deliver()

    places = [position for _, _, position, _ in rig.told_digests if isinstance(position, int)]
    dense = [place for place in places if place <= DENSE_BYTES + 96]
    assert len(dense) == DENSE_BYTES // WINDOW_BYTES
    rare = [place for place in places if DENSE_BYTES + 96 < place < 4 * PERIOD_BYTES]
    assert [place // PERIOD_BYTES for place in rare] == [1, 2, 3]
    assert all(0 <= place % PERIOD_BYTES - WINDOW_BYTES < 96 for place in rare)
    assert cut in places
    assert len([place for place in places if place > cut]) >= DENSE_BYTES // WINDOW_BYTES


def test_a_member_that_starts_from_a_snapshot_makes_the_digests_that_others_made() -> None:
    log = Rig(term_length_bytes=1 << 20)
    hashed(log)
    write_log(log, 1, count=30)
    action = log.action()
    ends = [log.message(bytes(200)) for _ in range(300)]
    log.deliver()
    started = Rig(term_length_bytes=1 << 20)
    service = hashed(started)
    service.calls = log.service.calls[: -len(ends)]
    started.log_buffer.append(b"".join(log.log_buffer.chunks_from(0)))
    started.agent._add_session(ClusterSessionId(SESSION), b"")
    started.adapter.start_from(action)
    started.told_digests.clear()
    started.digests.start_from(action)

    started.deliver()

    expected = [each for each in log.told_digests if isinstance(each[2], int) and each[2] >= action]
    assert started.told_digests == [each for each in expected if each[:1] != (2,) or each[2] != action]


def test_a_state_hash_that_takes_long_is_asked_more_rarely_and_at_places_that_others_ask_at_too() -> None:
    asked = []
    for cost_ns in (0, 5_000_000):
        rig = Rig(term_length_bytes=16 << 20)

        def spend(rig: Rig = rig, cost_ns: int = cost_ns) -> None:
            rig.now_ns += cost_ns

        hashed(rig, spend)
        rig.service.on_message = lambda session, payload, rig=rig: setattr(rig, "now_ns", rig.now_ns + 1_000)  # type: ignore[misc]  # a default
        rig.open()
        end = 0
        while end < 20 * PERIOD_BYTES:
            end = rig.message(bytes(1_000))
        rig.deliver()
        asked.append({each[2:] for each in rig.told_digests if each[0] == DigestKind.STATE})

    cheap, costly = asked
    assert 0 < len(costly) < len(cheap) / 3
    assert costly <= cheap


def test_a_state_hash_that_holds_the_loop_twice_in_a_row_is_asked_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    costs_ms = [0, 150, 0, 150, 200, 1, 1, 1]
    spent_ms: list[int] = []
    rig = Rig(term_length_bytes=16 << 20)

    def spend() -> None:
        spent_ms.append(costs_ms[len(spent_ms)])
        rig.now_ns += spent_ms[-1] * 1_000_000

    hashed(rig, spend)
    rig.service.on_message = lambda session, payload: setattr(rig, "now_ns", rig.now_ns + 10**12)
    for _ in range(20):
        rig.term()
    rig.deliver()

    assert spent_ms == costs_ms[:5]
    assert capsys.readouterr().out.count("service.state_hash_too_long") == 1


class DigestInPieces:
    """Takes 3 ms for each of some pieces."""

    def __init__(self, rig: Rig, value: int, piece_count: int) -> None:
        self.rig, self.left_count, self.is_closed = rig, piece_count, False
        self.fields = {"calls": DigestedField(digest_of(value), value, 1)}

    def advance(self, is_late: Callable[[], bool]) -> bool:
        while self.left_count:
            self.left_count -= 1
            self.rig.now_ns += 3_000_000
            if is_late():
                return False
        return True

    def close(self) -> None:
        self.is_closed = True


def digesting_in_pieces(rig: Rig, piece_count: int, *, message_ns: int = 1_000_000) -> list[DigestInPieces]:
    """Have the service of a rig digest itself in pieces; returns the digests that were begun."""
    service, begun = hashed(rig), list[DigestInPieces]()

    def begin_digest() -> StateDigest:
        begun.append(DigestInPieces(rig, len(service.calls), piece_count))
        return begun[-1]

    service.begin_digest = begin_digest  # type: ignore[method-assign]
    service.on_message = lambda session, payload: setattr(rig, "now_ns", rig.now_ns + message_ns)
    return begun


def deliver(rig: Rig, payload: bytes) -> None:
    """Deliver one message, and go on with digests as a member does between deliveries."""
    if rig.adapter.has_pending_digests:
        rig.adapter.advance_digests()
    rig.deliver(rig.message(payload))


def states_of(rig: Rig) -> list[tuple[object, object]]:
    """Return the positions and digests of the states that were told."""
    return [(each[2], each[3]) for each in rig.told_digests if each[0] == DigestKind.STATE]


def test_a_digest_in_pieces_is_told_later_and_of_its_position() -> None:
    told, counts = [], []
    for piece_count in (0, 5):
        rig = Rig(term_length_bytes=1 << 20)
        begun = digesting_in_pieces(rig, piece_count)
        rig.open()
        for _ in range(600):
            deliver(rig, bytes(200))
        told.append(states_of(rig))
        counts.append(len(begun))

    at_once, later = told
    assert counts[0] == len(at_once)
    assert 1 < len(later) < len(at_once)
    assert set(later) < set(at_once)


def test_a_later_piece_is_as_long_as_the_pause_before_allows() -> None:
    rig = Rig(term_length_bytes=1 << 20)
    begun = digesting_in_pieces(rig, 100)
    rig.open()
    deliver(rig, bytes(WINDOW_BYTES))

    taken = []
    for pause_ms in (0, 32, 64, 96, 10_000):
        left_count = begun[0].left_count
        rig.now_ns += pause_ms * 1_000_000
        rig.adapter.advance_digests()
        taken.append(left_count - begun[0].left_count)

    assert taken == [1, 1, 2, 2, 3]  # of 3 ms each: 2, 2, 4, 6 and 8 ms are allowed


def test_a_cut_takes_the_place_of_a_digest_in_the_making() -> None:
    rig = Rig(term_length_bytes=1 << 20)
    begun = digesting_in_pieces(rig, 3)
    rig.open()
    deliver(rig, bytes(WINDOW_BYTES))
    cut = rig.term()
    rig.deliver()
    rig.now_ns += 10**9
    for _ in range(3):
        rig.now_ns += 10**9
        deliver(rig, b"")

    assert [each.is_closed for each in begun[:2]] == [True, False]
    assert [position for position, _ in states_of(rig)] == [cut]


def test_a_digest_that_fails_in_a_later_piece_is_told_once_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig(term_length_bytes=1 << 20)
    begun = digesting_in_pieces(rig, 3, message_ns=10**9)
    rig.open()
    deliver(rig, bytes(WINDOW_BYTES))
    begun[0].advance = lambda is_late: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    for _ in range(60):
        deliver(rig, bytes(200))

    assert len(begun) == 1
    assert capsys.readouterr().out.count("service.state_hash_failed") == 1
    assert not states_of(rig)


def test_a_state_hash_that_cannot_be_digested_is_told_once_and_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    rig = Rig()
    service = hashed(rig)
    service.state_hash = lambda: object()  # type: ignore[method-assign]
    write_log(rig, 1)

    rig.deliver()

    assert capsys.readouterr().out.count("state_hash gave type=object") >= 1
    assert all(kind == DigestKind.OUTPUTS for kind, *_ in rig.told_digests)


def test_offers_outside_callbacks_are_refused_within_a_window_too() -> None:
    rig = Rig()
    rig.digests.start_from(0)
    rig.open()
    rig.message(b"one")
    rig.deliver()

    with pytest.raises(LocalProtocolError, match="log-ordered"):
        rig.agent.sessions[SESSION].offer(b"stray")


@dataclass
class Account:
    name: str
    tags: set[str]


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (b"ab", b"ba"),
        ("1", 1),
        (True, 1),
        ([1, 23], [12, 3]),
        ({"a": 1}, {"a": 2}),
        ({"a", "b"}, {"a"}),
        (Account("a", {"x", "y"}), Account("a", {"x"})),
        (None, 0),
    ],
)
def test_values_that_differ_have_different_digests(value: object, other: object) -> None:
    assert digest_of(value) != digest_of(other)


@pytest.mark.parametrize(
    "others",
    [
        [b"ab", b"c", b"d"],
        [b"abc", b""],
        [b"", b"abc"],
        [b"c", b"ab"],
        [b"ab"],
        [b"ab", b"d"],
        [b"ab", b"c\0"],
        [b"abc"],
    ],
)
def test_other_messages_or_the_same_ones_cut_otherwise_have_another_digest(others: list[bytes]) -> None:
    assert digest_of_messages(others) != digest_of_messages([b"ab", b"c"]) == digest_of_messages([b"ab", b"c"])


def test_a_digest_of_messages_depends_on_every_bit() -> None:
    message = bytes(range(256)) * 4
    changed = [message[:at] + bytes([message[at] ^ 1 << at % 8]) + message[at + 1 :] for at in range(len(message))]

    assert len({digest_of_messages([each]) for each in [message, *changed]}) == 1 + len(message)


def digest_of_messages(messages: list[bytes]) -> bytes:
    digest = MessageDigest()
    for message in messages:
        digest.update(message)
    assert len(digest.digest()) == DIGEST_BYTES
    return digest.digest()


def test_the_order_of_sets_and_dicts_does_not_count() -> None:
    words = [f"word {number}" for number in range(100)]

    assert canonical_bytes(set(words)) == canonical_bytes(frozenset(reversed(words)))
    assert canonical_bytes(dict.fromkeys(words, 1)) == canonical_bytes(dict.fromkeys(reversed(words), 1))


def test_values_are_shown_where_they_are_short() -> None:
    assert digest_state((20, b"19"), {})[1] == "(20, b'19')"
    assert digest_state(b"\x01\xff", {})[1] == "01ff"
    assert digest_state("x" * 1_000, {})[1] == ""


class Body(bytes):
    def __repr__(self) -> str:
        raise AssertionError("a large state is written out as text")


def test_a_large_state_is_not_written_out_as_text_to_see_that_it_is_too_long() -> None:
    """60 MB of queued messages held the loop for 2.1 s, of which 1.7 s were this."""
    value = {"messages": [Body(2_000)], "total": 5}

    assert digest_state(value, {})[1] == ""
    assert digests_by_field(value) == {"messages": (0, ""), "total": (0, "5")}


@dataclass
class State:
    total: int
    owner: str


def digests_by_field(value: object, types: dict[str, bytes] | None = None) -> dict[str, tuple[int, str]]:
    return {each.name: (each.type_digest, each.value) for each in digest_state(value, types or {})[2]}


def test_the_fields_of_a_state_are_those_of_a_dict_or_dataclass_and_else_it_is_one_field() -> None:
    named = digests_by_field({"total": 5, "names": ["a"]}, {"total": bytes([7])})
    assert named == {"total": (7, "5"), "names": (0, "['a']")}
    assert digests_by_field(State(5, "a")) == {"total": (0, "5"), "owner": (0, "'a'")}
    assert digests_by_field(5) == {"state_hash": (0, "5")}
    assert digests_by_field({1: 2}) == {"state_hash": (0, "{1: 2}")}
    assert [*digests_by_field({str(number): 0 for number in range(FIELD_LIMIT + 1)})] == ["state_hash"]


@pytest.mark.parametrize("value", [5, {"b": {2, 1}, "a": None}, {1: "x"}, State(5, "a"), [1, (2,)], b"x"])
def test_the_digest_of_a_state_does_not_depend_on_its_fields(value: object) -> None:
    """Members of the version before compare it."""
    digest, _, digests = digest_state(value, {})

    assert digest == digest_of(value) == blake2b(canonical_bytes(value), digest_size=DIGEST_BYTES).digest()
    assert len({each.digest for each in digests}) == len(digests)


def test_a_service_gives_its_fields_wherever_it_gives_its_digest() -> None:
    rig = Rig()
    hashed(rig)
    ends = write_log(rig, 1)

    rig.deliver(ends[-1])

    states = [position for kind, _, position, _ in rig.told_digests if kind == DigestKind.STATE]
    assert [position for position, _ in rig.told_fields] == states
    assert {each.name for _, found in rig.told_fields for each in found} == {"state_hash"}
