"""Delivery past an entry that is skipped, and before one at which the service fails."""

from __future__ import annotations

import pytest

from tests.unit.cluster.service.log_writer import SESSION, TERM, Rig
from trimaran.cluster.core.vocabulary.held_entry import HeldEntry
from trimaran.cluster.service.skipped_entries import decode_entry_skip, find_entry_skips
from trimaran.service_api.wire.log.messages import (
    CLUSTER_ACTION_FLAGS_ENTRY_SKIP,
    LOG_MESSAGES,
    ClusterActionRequest,
    EntrySkip,
)
from trimaran.service_api.wire.message import decode_message


def append_skip(rig: Rig, skipped_position: int, *, timestamp: int = 100) -> int:
    return rig.publisher.append_positioned(make_skip(skipped_position, timestamp=timestamp))


def make_skip(skipped_position: int, *, log_position: int = 0, timestamp: int = 100) -> EntrySkip:
    return EntrySkip(
        leadership_term_id=TERM,
        log_position=log_position,
        timestamp=timestamp,
        action=None,
        flags=CLUSTER_ACTION_FLAGS_ENTRY_SKIP,
        skipped_log_position=skipped_position,
    )


def held(position: int) -> HeldEntry:
    return HeldEntry(position, "on_session_message", "MemoryError()")


def learn(rig: Rig) -> list[EntrySkip]:
    learned: list[EntrySkip] = []
    rig.adapter.on_skip = learned.append
    return learned


def test_readers_that_do_not_know_it_find_a_cluster_action_that_asks_for_nothing() -> None:
    message = decode_message(make_skip(96).encode(), registry=LOG_MESSAGES)

    assert type(message) is ClusterActionRequest
    assert (message.action, message.flags) == (None, CLUSTER_ACTION_FLAGS_ENTRY_SKIP)


def test_a_cluster_action_is_no_skip() -> None:
    assert decode_entry_skip(make_skip(96).encode()) == make_skip(96)
    plain = ClusterActionRequest(leadership_term_id=TERM, log_position=0, timestamp=1, action=None, flags=None)
    assert decode_entry_skip(plain.encode()) is None


@pytest.mark.parametrize("length", [5, 2_000], ids=["one frame", "fragments"])
@pytest.mark.parametrize("is_one_chunk", [True, False])
def test_no_service_is_given_an_entry_that_is_skipped(length: int, is_one_chunk: bool) -> None:
    rig = Rig()
    rig.open()
    for index in range(100):
        rig.message(b"before %d" % index)
    skipped = rig.message(b"x" * length)
    rig.message(b"after")
    append_skip(rig, skipped)
    if is_one_chunk:
        rig.one_chunk()
    rig.adapter.know_skips([skipped])

    rig.deliver()

    assert rig.service.payloads == [b"before %d" % index for index in range(100)] + [b"after"]
    assert rig.adapter.position == rig.log_buffer.append_position


def test_what_else_belongs_to_a_skipped_entry_is_done() -> None:
    """Sessions and timers are the same on every member, whether their services are told or not."""
    rig = Rig()
    opened = rig.open()
    fired = rig.timer(7)
    rig.message(b"a session that was never told of")
    rig.adapter.know_skips([opened, fired])

    rig.deliver()

    assert rig.requests.told == [("opened", SESSION, opened), ("fired", 7)]
    assert [call[0] for call in rig.service.calls] == ["message"]


def test_delivery_holds_before_an_entry_and_looks_for_one_that_has_it_skipped() -> None:
    rig = Rig()
    rig.open()
    before = rig.message(b"before")
    failing = rig.message(b"failing")
    rig.message(b"after", timestamp=900)
    rig.adapter.know_skips([], held=held(failing))
    learned = learn(rig)

    rig.deliver()

    assert rig.service.payloads == [b"before"]
    assert (rig.adapter.position, rig.adapter.is_held) == (before, True)
    assert rig.adapter.reached_position == rig.log_buffer.append_position
    assert rig.adapter.newest_timestamp == 900  # a leader that holds never stamps below it
    assert learned == []

    append_skip(rig, before)  # another one
    append_skip(rig, failing)
    committed = rig.log_buffer.append_position
    rig.message(b"a message that holds the bytes of one: " + make_skip(failing, log_position=1 << 20).encode())
    rig.deliver()

    assert [(skip.skipped_log_position, skip.log_position) for skip in learned] == [(failing, committed)]
    assert rig.service.payloads == [b"before"]


def test_nothing_is_learned_from_what_is_not_committed() -> None:
    rig = Rig()
    rig.open()
    failing = rig.message(b"failing")
    end = rig.message(b"after")
    append_skip(rig, failing)
    rig.adapter.know_skips([], held=held(failing))
    learned = learn(rig)

    rig.deliver(end)

    assert (rig.adapter.reached_position, learned) == (end, [])


def test_a_member_that_had_delivered_a_skipped_entry_stands_still_at_the_skip() -> None:
    rig = Rig()
    rig.open()
    delivered = rig.message(b"delivered")
    append_skip(rig, delivered)
    rig.message(b"after")
    rig.requests.knows_skips = False
    learned = learn(rig)

    rig.deliver()

    assert [skip.skipped_log_position for skip in learned] == [delivered]
    assert rig.service.payloads == [b"delivered"]


def test_a_position_where_no_entry_ends_is_passed_by() -> None:
    rig = Rig()
    rig.open()
    first = rig.message(b"12345")
    rig.message(b"second")
    rig.adapter.know_skips([first - 32], held=held(first + 32))

    rig.deliver()

    assert rig.service.payloads == [b"12345", b"second"]


def test_a_skip_in_a_payload_or_at_another_place_is_none() -> None:
    rig = Rig()
    rig.open()
    rig.message(make_skip(96, log_position=96).encode())
    position = append_skip(rig, 96)
    frames = b"".join(rig.log_buffer.chunks_from(0))
    found: list[int] = []

    find_entry_skips(frames, 0, lambda skip: found.append(skip.log_position))
    find_entry_skips(frames, 4096, lambda skip: found.append(skip.log_position))

    assert found == [position]
