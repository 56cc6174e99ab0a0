"""The key-value store, one service by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.service_api.ready_made.calling import call_as
from trimaran.client.typed import EventReader
from trimaran.cluster.testing import TypedHarness
from trimaran.cluster.testing.harness import START_TIME
from trimaran.service_api.ready_made.kv import (
    CompactedError,
    DeleteKey,
    DeleteKeys,
    EndWatch,
    KvChange,
    KvChanges,
    KvConflictError,
    KvEntry,
    KvError,
    KvOperation,
    KvResult,
    KvService,
    ListKeys,
    PutKey,
    ReadChanges,
    ReadKey,
    RunTransaction,
    WatchKeys,
    delete_key,
    delete_prefix,
    get_key,
    key_range,
    put_key,
    when_exists,
    when_missing,
    when_revision,
    when_value,
    when_version,
)
from trimaran.service_api.ready_made.kv.service import HISTORY_BATCH
from trimaran.service_api.ready_made.sorted_keys import SortedKeys


class ShortHistory(KvService):
    history_limit = 3
    ttl_limit = 2
    share_divisor = 1
    watch_limit = 1
    store_limit_bytes = 100


@pytest.fixture
def kv() -> TypedHarness[KvService]:
    return TypedHarness(KvService)


@pytest.fixture
def small() -> TypedHarness[ShortHistory]:
    return TypedHarness(ShortHistory)


def keys(kv: TypedHarness[Any], begin: bytes = b"", end: bytes = b"") -> list[bytes]:
    return [entry.key for entry in kv.ask(ListKeys(begin, end, 1_000)).entries]


def test_each_change_has_a_revision_and_each_key_its_own(kv: TypedHarness[KvService]) -> None:
    assert kv.call(PutKey(b"a", b"1")) == 1
    assert kv.call(PutKey(b"b", b"")) == 2
    assert kv.call(PutKey(b"a", b"2")) == 3
    assert kv.ask(ReadKey(b"a")) == KvEntry(b"a", b"2", 1, 3, 2)
    assert kv.ask(ReadKey(b"b")) == KvEntry(b"b", b"", 2, 2, 1)

    assert kv.call(DeleteKey(b"a")) is True
    assert kv.call(DeleteKey(b"a")) is False
    assert kv.ask(ReadKey(b"a")) is None
    assert kv.call(PutKey(b"a", b"3")) == 5
    assert kv.ask(ReadKey(b"a")) == KvEntry(b"a", b"3", 5, 5, 1)


def test_a_write_with_an_expected_revision_writes_only_if_it_is_so(kv: TypedHarness[KvService]) -> None:
    assert kv.call(PutKey(b"a", b"1", expected_revision=0)) == 1
    for message in (PutKey(b"a", b"2", expected_revision=0), DeleteKey(b"a", expected_revision=2)):
        with pytest.raises(KvConflictError) as refused:
            kv.call(message)
        assert refused.value.mod_revision == 1
    assert kv.call(PutKey(b"a", b"2", expected_revision=1)) == 2
    assert kv.call(DeleteKey(b"a", expected_revision=2)) is True


def test_ranges_are_in_the_order_of_bytes_and_in_pages(kv: TypedHarness[KvService]) -> None:
    for key in (b"b/2", b"a", b"b/\xff", b"b", b"b/1", b"c", b"b0"):
        kv.call(PutKey(key, key))

    assert keys(kv) == [b"a", b"b", b"b/1", b"b/2", b"b/\xff", b"b0", b"c"]
    assert keys(kv, *key_range("b/")) == [b"b/1", b"b/2", b"b/\xff"]
    first = kv.ask(ListKeys(*key_range("b/"), limit=2))
    assert first.next_begin is not None
    rest = kv.ask(ListKeys(first.next_begin, key_range("b/")[1], limit=2))
    assert [entry.key for entry in first.entries + rest.entries] == [b"b/1", b"b/2", b"b/\xff"]
    assert rest.next_begin is None
    assert kv.call(DeleteKeys(*key_range("b"))) == 5
    assert keys(kv) == [b"a", b"c"]
    assert key_range(b"\xff\xff") == (b"\xff\xff", b"")


def test_a_transaction_does_one_branch(kv: TypedHarness[KvService]) -> None:
    kv.call(PutKey(b"a", b"1"))

    done = kv.call(
        RunTransaction(
            [when_value("a", "1"), when_version("a", 2, "<"), when_revision("a", 1), when_missing("b")],
            [put_key("a", "2"), get_key("a"), delete_key("none"), put_key("a/1", "x"), delete_prefix("a")],
            [],
        )
    )
    refused = kv.call(RunTransaction([when_exists("a")], [], [get_key("a"), put_key("c", "3")]))

    assert done.is_success
    assert done.revision == 5
    assert done.results == [
        KvResult(count=1),
        KvResult(KvEntry(b"a", b"2", 1, 2, 2)),
        KvResult(),
        KvResult(count=1),
        KvResult(count=2),
    ]
    assert not refused.is_success
    assert refused.results == [KvResult(), KvResult(count=1)]
    assert keys(kv) == [b"c"]


def test_a_transaction_that_is_refused_midway_changes_nothing(kv: TypedHarness[KvService]) -> None:
    kv.call(PutKey(b"a", b"1", ttl_s=5.0))
    kv.call(WatchKeys(1, b"", b""))
    kv.call(RunTransaction([], [], []))
    before, sent = kv.service.state_hash(), len(kv.egress)

    with pytest.raises(KvError, match="value has 1048577 bytes"):
        kv.call(
            RunTransaction(
                [],
                [delete_key("a"), put_key("b", "2", ttl_s=1), put_key("a", "3"), put_key("c", bytes((1 << 20) + 1))],
                [],
            )
        )

    assert kv.service.state_hash() == before
    assert keys(kv) == [b"a"]
    assert len(kv.egress) == sent
    kv.advance(6)
    assert keys(kv) == []


def test_a_key_is_deleted_when_its_ttl_has_passed(kv: TypedHarness[KvService]) -> None:
    kv.call(PutKey(b"a", b"1", ttl_s=10.0))
    kv.call(PutKey(b"b", b"1", ttl_s=10.0))
    kv.call(PutKey(b"c", b"1", ttl_s=10.0))
    kv.advance(5)
    kv.call(PutKey(b"b", b"2", ttl_s=10.0))
    kv.call(PutKey(b"c", b"2"))
    kv.restart()
    kv.call(WatchKeys(1, b"", b""))
    kv.advance(6)

    assert keys(kv) == [b"b", b"c"]
    assert [event.changes for event in kv.events(KvChanges)] == [[KvChange(6, b"a", None, 0, 0, is_expired=True)]]
    kv.advance(5)
    assert keys(kv) == [b"c"]
    assert kv.timers == {}
    assert kv.service.expiry_timers == {}


def test_a_key_that_gets_a_later_ttl_keeps_its_timer_and_one_that_gets_an_earlier_ttl_does_not(
    kv: TypedHarness[KvService],
) -> None:
    kv.call(PutKey(b"a", b"1", ttl_s=10.0))
    first = dict(kv.timers)
    kv.advance(5)
    kv.call(PutKey(b"a", b"2", ttl_s=10.0))
    later = dict(kv.timers)
    kv.advance(6)
    again, alive = dict(kv.timers), keys(kv)
    kv.call(PutKey(b"a", b"3", ttl_s=0.5))
    earlier = dict(kv.timers)
    kv.advance(1)

    assert later == first
    assert (list(again.values()), alive) == ([START_TIME + 15_000], [b"a"])
    assert list(earlier.values()) == [START_TIME + 11_500]
    assert (keys(kv), kv.timers, dict(kv.service.timers)) == ([], {}, {})


def test_a_watch_is_pushed_the_changes_of_its_range(kv: TypedHarness[KvService]) -> None:
    kv.call(PutKey(b"a/1", b"1"))
    started = kv.call(WatchKeys(7, *key_range("a/")))
    kv.call(PutKey(b"b", b"2"))
    kv.call(RunTransaction([], [put_key("a/2", "3"), put_key("b", "4"), delete_prefix("a/")], []))
    kv.call(PutKey(b"a/3", b"5"))
    assert kv.call(EndWatch(7)) is True
    assert kv.call(EndWatch(7)) is False
    kv.call(PutKey(b"a/3", b"6"))

    first, second = kv.events(KvChanges)
    assert (started.revision, started.oldest_revision) == (1, 1)
    assert first == KvChanges(
        {7: 1},
        [
            KvChange(3, b"a/2", b"3", 3, 1),
            KvChange(5, b"a/1", None, 0, 0),
            KvChange(6, b"a/2", None, 0, 0),
        ],
    )
    assert (second.watches, [change.revision for change in second.changes]) == ({7: 6}, [7])


def test_a_session_is_sent_a_change_once_for_all_its_watches(kv: TypedHarness[KvService]) -> None:
    """A client that holds its share of the watches costs each put one event, not one for each watch."""
    kv.call(WatchKeys(1, b"", b""))
    kv.call(WatchKeys(2, *key_range("a")))
    kv.call(WatchKeys(3, *key_range("b")))
    kv.call(PutKey(b"a", b""))
    kv.call(RunTransaction([], [put_key("b", ""), put_key("a", "")], []))

    pushed = [(event.watches, [change.revision for change in event.changes]) for event in kv.events(KvChanges)]

    assert pushed == [({1: 0, 2: 0}, [1]), ({1: 1}, [2, 3]), ({2: 1}, [3]), ({3: 0}, [2])]


def test_sessions_that_watch_the_same_are_each_sent_what_they_watch(kv: TypedHarness[KvService]) -> None:
    first, second = kv.open_session(), kv.open_session()
    for session, begin in ((first, b"a"), (second, b"a"), (kv.client, b"b")):
        call_as(kv, session, WatchKeys(1, *key_range(begin)))
    for key in (b"a", b"b", b"a"):
        kv.call(PutKey(key, b""))

    read = EventReader((KvChanges,)).read
    of_first, of_second = ([read(payload) for payload in session.egress] for session in (first, second))
    assert of_first == of_second
    assert of_first == [
        KvChanges({1: 0}, [KvChange(1, b"a", b"", 1, 1)]),
        KvChanges({1: 1}, [KvChange(3, b"a", b"", 1, 2)]),
    ]
    assert kv.events(KvChanges) == [KvChanges({1: 0}, [KvChange(2, b"b", b"", 2, 1)])]


def put_numbers(kv: TypedHarness[Any], numbers: range, *, size_bytes: int = 0) -> None:
    for number in numbers:
        kv.call(PutKey(b"ab"[number % 2 :][:1], b"%d" % number + bytes(size_bytes)))


def oldest_change(kv: TypedHarness[Any]) -> int:
    with pytest.raises(CompactedError) as refused:
        kv.ask(ReadChanges(b"", b"", -1))
    return refused.value.oldest_revision


def test_the_history_gives_what_was_changed_and_says_when_it_is_compacted(small: TypedHarness[ShortHistory]) -> None:
    put_numbers(small, range(HISTORY_BATCH + 3))
    small.restart()

    last = HISTORY_BATCH + 3
    page = small.ask(ReadChanges(*key_range("a"), after_revision=last - 3))
    assert [(change.revision, change.value) for change in page.changes] == [(257, b"256"), (259, b"258")]
    assert small.ask(ReadChanges(b"", b"", last - 3, limit=1)).through_revision == last - 2
    assert small.ask(ReadChanges(b"", b"", last + 9)).changes == []
    with pytest.raises(CompactedError) as refused:
        small.ask(ReadChanges(b"", b"", last - 4))
    assert (refused.value.oldest_revision, refused.value.revision) == (last - 2, last)


def test_the_history_is_shortened_to_its_limit_by_a_batch_at_a_time(small: TypedHarness[ShortHistory]) -> None:
    put_numbers(small, range(HISTORY_BATCH + 2))
    before = oldest_change(small)
    small.call(PutKey(b"a", b""))
    shortened = oldest_change(small)
    small.call(PutKey(b"a", b""))

    assert (before, shortened, oldest_change(small)) == (1, HISTORY_BATCH + 1, HISTORY_BATCH + 1)
    kept = small.service.history.values()
    assert small.service.history_bytes == sum(len(key) + len(value or b"") for key, value, *_ in kept)


def test_the_history_never_has_more_bytes_than_its_limit_and_keeps_the_newest_change() -> None:
    class FewBytes(KvService):
        history_limit_bytes = 1_600

    kv = TypedHarness(FewBytes)
    put_numbers(kv, range(100, 116), size_bytes=96)
    full = oldest_change(kv)
    put_numbers(kv, range(116, 117), size_bytes=96)
    shortened = (kv.service.history_bytes, oldest_change(kv))
    kv.call(PutKey(b"a", bytes(2_000)))

    assert (full, shortened) == (1, (1_500, 3))
    assert (kv.service.history_bytes, oldest_change(kv)) == (2_001, 18)


def test_a_member_that_began_with_a_snapshot_has_the_history_of_one_that_ran_on() -> None:
    """When the history is shortened is decided by the state alone, not by how long the process has run."""
    ran, snapshots = TypedHarness(ShortHistory), TypedHarness(ShortHistory)
    for count in (30, 97, 128, 3, 128, 128, 5):
        for kv in (ran, snapshots):
            kv.call(RunTransaction([], [put_key("a", str(number)) for number in range(count)], []))
            kv.call(DeleteKey(b"a"))
        snapshots.restart()

    assert oldest_change(ran) > 1
    assert ran.service.state_hash() == snapshots.service.state_hash()
    assert ran.snapshot() == snapshots.snapshot()


def test_a_command_that_changes_more_than_the_history_keeps_is_pushed_whole() -> None:
    class VeryShort(KvService):
        history_limit = 3

    kv = TypedHarness(VeryShort)
    for first in range(0, 300, 100):
        kv.call(RunTransaction([], [put_key(b"%03d" % number, b"") for number in range(first, first + 100)], []))
    kv.call(WatchKeys(1, b"", b""))

    assert kv.call(DeleteKeys(b"", b"")) == 300

    pushed = [change.revision for event in kv.events(KvChanges) for change in event.changes]
    assert pushed == list(range(301, 601))
    assert oldest_change(kv) == 598


def test_limits_are_said(small: TypedHarness[ShortHistory]) -> None:
    small.call(PutKey(b"a", b"1", ttl_s=1.0))
    small.call(PutKey(b"b", b"1", ttl_s=1.0))
    small.call(PutKey(b"b", b"1", ttl_s=1.0))
    with pytest.raises(KvError, match=r"TTL: 2,.* 2"):
        small.call(PutKey(b"c", b"1", ttl_s=1.0))
    with pytest.raises(KvError, match=r"store.* 105 bytes.* 100"):
        small.call(PutKey(b"c", bytes(100)))
    small.call(WatchKeys(1, b"", b""))
    with pytest.raises(KvError, match=r"watches=1.* 1"):
        small.call(WatchKeys(2, b"", b""))


@pytest.mark.parametrize(
    "message",
    [
        PutKey(b"", b""),
        PutKey(b"k" * 1_025, b""),
        PutKey(b"k", b"", ttl_s=0.0),
        PutKey(b"k", b"", ttl_s=float("nan")),
        DeleteKey(b""),
        DeleteKeys(b"b", b"a"),
        DeleteKeys(b"k" * 2_000, b""),
        WatchKeys(-1, b"", b""),
        RunTransaction([], [get_key("k")] * 129, []),
        RunTransaction([when_exists("")], [], []),
        RunTransaction([], [delete_key("")], []),
    ],
)
def test_what_is_wrong_about_a_command_is_named(kv: TypedHarness[KvService], message: PutKey) -> None:
    with pytest.raises(KvError, match="expected"):
        kv.call(message)
    assert kv.service.revision == 0


def test_a_transaction_is_bounded_in_bytes(kv: TypedHarness[KvService]) -> None:
    kv.call(PutKey(b"k", bytes(1 << 20)))
    reads: list[KvOperation] = [get_key("k")] * 5
    with pytest.raises(KvError, match=r"transaction has 4[0-9]{6} bytes, expected at most 4194304"):
        kv.call(RunTransaction([], reads, []))


def test_a_range_of_too_many_keys_is_not_deleted(kv: TypedHarness[KvService]) -> None:
    for number in range(1_001):
        kv.call(PutKey(b"%04d" % number, b""))
    with pytest.raises(KvError, match="more than 1000 keys"):
        kv.call(DeleteKeys(b"", b""))
    assert kv.call(DeleteKeys(b"0001", b"")) == 1_000
    assert keys(kv) == [b"0000"]


def test_sorted_keys_stay_sorted_when_lists_split_and_empty() -> None:
    names = [b"%05d" % (number * 7_919 % 5_003) for number in range(5_003)]
    ordered = SortedKeys(names[:1_000])
    for name in names[1_000:]:
        ordered.add(name)
    assert list(ordered.between(b"", b"")) == sorted(names)
    assert list(ordered.between(b"00099x", b"00102")) == [b"00100", b"00101"]
    for name in names[:4_000]:
        ordered.remove(name)
    assert list(ordered.between(b"", b"")) == sorted(names[4_000:])
    for name in names[4_000:]:
        ordered.remove(name)
    assert list(ordered.between(b"", b"")) == []
