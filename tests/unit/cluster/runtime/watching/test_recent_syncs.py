"""What is known of the newest syncs: slow ones are told, seldom; old ones count no more."""

from __future__ import annotations

from pathlib import Path

from trimaran.cluster.runtime.watching.recent_syncs import RECENT_LIMIT, RecentSyncs, SlowSync, SyncSummary

MS = 1_000_000
S = 1_000 * MS
LOG = Path("0-0.rec")


def synced(recent: RecentSyncs, *durations_ms: float, end_ns: int = S) -> RecentSyncs:
    """Let syncs of the log end at one moment."""
    for duration_ms in durations_ms:
        duration_ns = int(duration_ms * MS)
        recent.begin(7, LOG, end_ns - duration_ns)
        recent.end(7, LOG, end_ns - duration_ns, duration_ns)
    return recent


def test_quick_syncs_are_described_and_not_told() -> None:
    recent = synced(RecentSyncs(100 * MS), *range(1, 100))

    assert recent.describe(S) == SyncSummary(count=99, slow_count=0, p99_ns=99 * MS, max_ns=99 * MS)
    assert recent.find_typical_ns(S) == 50 * MS
    assert recent.take_slow(S) is None


def test_one_slow_sync_in_a_hundred_is_the_99th_percentile_of_101() -> None:
    described = synced(RecentSyncs(100 * MS), *[1] * 99, 200, 200).describe(S)

    assert described is not None
    assert (described.p99_ns, described.slow_count) == (200 * MS, 2)


def test_a_disk_that_is_always_slow_is_told_every_ten_seconds_with_its_longest_sync() -> None:
    recent, told = RecentSyncs(100 * MS), []

    for tenth in range(1, 250):
        now_ns = tenth * S // 10
        synced(recent, 100 + tenth, end_ns=now_ns)
        told.append((tenth, recent.take_slow(now_ns)))

    assert [each for each in told if each[1] is not None] == [
        (1, (SlowSync(LOG, 101 * MS), 1)),
        (101, (SlowSync(LOG, 201 * MS), 100)),
        (201, (SlowSync(LOG, 301 * MS), 100)),
    ]


def test_a_sync_that_does_not_end_is_told_while_it_runs() -> None:
    recent = RecentSyncs(100 * MS)
    recent.begin(7, LOG, 0)

    assert recent.take_slow(99 * MS) is None
    assert recent.describe(99 * MS) is None
    assert recent.take_slow(3 * S) == (SlowSync(LOG, 3 * S, is_running=True), 1)
    assert recent.describe(3 * S) == SyncSummary(count=1, slow_count=1, p99_ns=3 * S, max_ns=3 * S)


def test_what_was_a_minute_ago_counts_no_more() -> None:
    recent = synced(RecentSyncs(100 * MS), *[200] * 5, end_ns=S)

    assert recent.find_typical_ns(11 * S) == 200 * MS
    assert recent.find_typical_ns(11 * S + 1) is None
    assert recent.describe(61 * S) is not None
    assert recent.describe(61 * S + 1) is None


def test_few_syncs_have_no_typical_duration() -> None:
    assert synced(RecentSyncs(100 * MS), *[200] * 4).find_typical_ns(S) is None


def test_no_more_than_the_newest_are_kept() -> None:
    recent = synced(RecentSyncs(100 * MS), 500, *[1] * RECENT_LIMIT)

    assert recent.describe(S) == SyncSummary(count=RECENT_LIMIT, slow_count=0, p99_ns=MS, max_ns=MS)
