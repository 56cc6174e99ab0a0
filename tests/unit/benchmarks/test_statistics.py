"""What figures are made of: latencies by time, causes of slow moments, the age of a backup, gaps, processor time."""

from __future__ import annotations

import json
from array import array
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from trimaran.benchmarks.backups.following import Sampled
from trimaran.benchmarks.load.arrivals import ArrivalPiece, Burst, arrival_pieces, messages_in
from trimaran.benchmarks.load.echo import SEQUENCE, Phase
from trimaran.benchmarks.load.failover import FailoverLoad
from trimaran.benchmarks.load.slow_moments import latencies_within, slow_moments
from trimaran.benchmarks.machine.schedule import ProcessorTimes
from trimaran.benchmarks.rig.member_log import RigMemberLog
from trimaran.benchmarks.rig.meter import Usage, usage_report
from trimaran.benchmarks.scenarios.failover import steps_before_reply
from trimaran.benchmarks.scenarios.opening import Case, _Reading
from trimaran.benchmarks.scenarios.snapshots import longest_gap
from trimaran.benchmarks.scenarios.stops import longest_ms
from trimaran.benchmarks.scenarios.stream import summarize
from trimaran.benchmarks.scenarios.stream_query import write_batch
from trimaran.benchmarks.services.turns import TURN_EVENT
from trimaran.benchmarks.statistics.histogram import Histogram
from trimaran.benchmarks.statistics.report import percentile_curve, print_figures
from trimaran.benchmarks.tails.moments import HOST, INSIDE, LATE, OTHERS, SHARED, Sample, cause_of, judge_moments
from trimaran.benchmarks.tails.open_loop import summary
from trimaran.benchmarks.tails.watching import counted_between

MS = 1_000_000


def test_a_curve_of_percentiles_ends_where_one_latency_is_left() -> None:
    histogram = Histogram()
    histogram.record_all(range(0, 1000_000, 1000))

    curve = percentile_curve(histogram)

    assert list(curve)[:6] == ["0", "25", "50", "62.5", "75", "81.25"]
    assert curve["50"] == pytest.approx(500, rel=0.01)
    assert list(curve.values()) == sorted(curve.values())
    assert curve["100"] == 999.0


def test_a_figure_that_was_not_counted_is_left_out_where_a_report_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An echo at file sync level 0 has no messages per sync."""
    print_figures({"scenario": "echo", "parameters": {}, "messages": 7, "messages_per_sync": None})

    printed = capsys.readouterr().out
    assert "7" in printed
    assert "messages_per_sync" not in printed


def test_the_longest_turn_of_a_cause_is_one_that_ended_in_its_time(tmp_path: Path) -> None:
    path = tmp_path / "member-0.log"
    turns = ((0, 40_000), (10, 7_300), (20, 3_000), (50, 50_000))
    path.write_text(
        "".join(
            json.dumps({"event": TURN_EVENT, "busy_us": busy_us, "timestamp": f"2026-11-30T12:00:{at_s:02}+00:00"})
            + "\n"
            for at_s, busy_us in turns
        )
    )
    begin_s = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC).timestamp()

    assert longest_ms(RigMemberLog(path), begin_s, begin_s + 30) == 7.3
    assert longest_ms(RigMemberLog(path), begin_s + 20, begin_s + 30) == 0


def test_usage_is_a_difference_and_what_is_unknown_stays_unknown() -> None:
    used = Usage(1.25, 0.75, 12_288, 7) - Usage(1.0, 0.5, 4096, None)

    assert used == Usage(0.25, 0.25, 8192, None)
    assert usage_report({"member-0": used}, 50_000)["cpu_seconds_per_100k"] == {"member-0": 1.0}


def test_processors_are_busy_idle_or_stolen(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_text("cpu  10 1 2 100 4 1 2 5 3 0\ncpu0 1 2 3\n")
    before = ProcessorTimes.read(path)
    path.write_text("cpu  20 1 7 160 9 1 2 25 3 0\n")

    passed = ProcessorTimes.read(path) - before

    assert [passed.total_ns, passed.busy_ns, passed.stolen_ns] == [1_000 * MS, 150 * MS, 200 * MS]
    path.write_text("cpu none\n")
    assert ProcessorTimes.read(path) == ProcessorTimes()


def test_bursts_raise_the_rate_while_they_last() -> None:
    bursts = (Burst(1.0, 0.5, 4.0), Burst(3.0, 1.0, 2.0))
    count = messages_in(100.0, bursts, 6.0)

    assert count == 600 + 150 + 100
    assert [*arrival_pieces(100.0, bursts, count)] == [
        ArrivalPiece(100.0, 100),
        ArrivalPiece(400.0, 200),
        ArrivalPiece(100.0, 150),
        ArrivalPiece(200.0, 200),
        ArrivalPiece(100.0, 200),
    ]
    assert [*arrival_pieces(100.0, bursts, 80)] == [ArrivalPiece(100.0, 80)]


def phase_of(*messages: tuple[int, int, int]) -> Phase:
    """Return a phase with when each message was due, its latency and its lag, in milliseconds."""
    return Phase(
        0,
        len(messages),
        sent_at_ns=array("q", (due * MS for due, _, _ in messages)),
        replied_at_ns=array("q", ((due + latency) * MS for due, latency, _ in messages)),
        send_lags_ns=array("q", (lag * MS for _, _, lag in messages)),
    )


def test_slow_messages_that_are_close_are_one_moment() -> None:
    phase = phase_of((0, 1, 0), (10, 6, 0), (15, 1, 0), (29, 9, 4), (60, 7, 1), (70, 4, 0))

    first, second = slow_moments(phase, 5 * MS)

    assert first == {"begin_ns": 10 * MS, "end_ns": 38 * MS, "count": 2, "max_ns": 9 * MS, "lag_ns": 4 * MS}
    assert second["begin_ns"] == 60 * MS


def test_a_message_belongs_to_the_time_at_which_it_was_due() -> None:
    phase = phase_of((0, 1, 0), (10, 50, 0), (20, 2, 0), (30, 3, 0))

    found = latencies_within(phase, {"all": [(0, 31 * MS)], "two": [(10 * MS, 20 * MS), (30 * MS, 40 * MS)]})

    assert {name: Histogram.from_json(histogram).count for name, histogram in found.items()} == {"all": 4, "two": 2}


@pytest.mark.parametrize(
    ("moment", "cause"),
    [
        ({"max_ms": 10.0, "lag_ms": 5.0, "stolen_percent": 50.0}, LATE),
        ({"max_ms": 10.0, "lag_ms": 4.0, "stolen_percent": 5.0, "others_percent": 50.0}, HOST),
        ({"max_ms": 10.0, "lag_ms": 4.0, "others_percent": 20.0, "waited_percent": {"client-0": 90.0}}, OTHERS),
        ({"max_ms": 10.0, "lag_ms": 4.0, "waited_percent": {"member-0": 1.0, "client-0": 40.0}}, SHARED),
        ({"max_ms": 10.0, "lag_ms": 4.0, "waited_percent": {"member-0": 39.0}}, INSIDE),
    ],
)
def test_the_first_cause_that_is_large_enough_is_taken(moment: dict[str, object], cause: str) -> None:
    assert cause_of(moment) == cause


def test_moments_are_counted_by_cause() -> None:
    samples = [
        Sample(at_ms * MS, ProcessorTimes(2 * at_ms * MS, 0, stolen * MS), {"member-0": 0}, {"member-0": 0})
        for at_ms, stolen in ((0, 0), (100, 0), (200, 100))
    ]
    moments = [
        {"begin_ns": 10 * MS, "end_ns": 30 * MS, "count": 5, "max_ns": 9 * MS, "lag_ns": 8 * MS},
        {"begin_ns": 110 * MS, "end_ns": 140 * MS, "count": 7, "max_ns": 20 * MS, "lag_ns": 0},
    ]

    judged = judge_moments(moments, samples, 0)

    assert judged["causes"] == {LATE: {"count": 1, "total_ms": 20.0}, HOST: {"count": 1, "total_ms": 30.0}}


def test_a_summary_is_the_median_of_the_runs_and_their_spread() -> None:
    names = ("p50_us", "p99_us", "p999_us", "max_us")

    found = summary([dict.fromkeys(names, value) for value in (4_000.0, 90_000.0, 6_000.0)])

    assert found["median"]["p99_us"] == 6_000.0
    assert (found["least"]["max_us"], found["most"]["max_us"]) == (4_000.0, 90_000.0)
    assert [goal["reached"] for goal in found["goals"]] == [False, True, True]


def test_only_what_a_member_counted_meanwhile_is_told() -> None:
    def page(*counts: tuple[str, str, int]) -> str:
        lines = [f'a_seconds_bucket{{le="{bound}",stage="{stage}"}} {count}' for stage, bound, count in counts]
        return "\n".join(["# TYPE a_seconds histogram", *lines, ""])

    before = page(("sync", "0.001", 5), ("sync", "0.002", 6), ("sync", "+Inf", 6), ("append", "+Inf", 1))
    after = page(("sync", "0.001", 205), ("sync", "0.002", 207), ("sync", "+Inf", 207), ("append", "+Inf", 1))

    assert counted_between(before, after, "a_seconds", "stage") == {
        "sync": {"count": 201, "p99_ms": 1.0, "longest_ms": 2.0}
    }


@pytest.mark.parametrize(
    ("position", "age_s"),
    [
        (300, 0.0),  # it has everything
        (299, 1.0),  # the newest message was not committed a second ago
        (150, 2.0),
        (100, 2.0),  # at 11 s that was all there was
        (50, 3.0),  # older than what was seen: at least as old as the first sample
    ],
)
def test_a_backup_is_as_old_as_the_time_since_no_more_was_committed(position: int, age_s: float) -> None:
    sampled = Sampled(times=[10.0, 11.0, 12.0, 13.0], commit_positions=[100, 100, 200, 300])

    assert sampled.age_of(position) == age_s


@pytest.mark.parametrize(("times", "expected"), [([], 100), ([110, 120, 190], 70), ([90, 150, 210], 50)])
def test_the_longest_gap_counts_the_ends_of_what_is_looked_at(times: list[int], expected: int) -> None:
    assert longest_gap(times, 100, 200) == expected


def test_processor_time_is_given_by_session_for_leader_followers_and_client() -> None:
    before = _Reading(0.0, 1.0, {"member-0": 1.0, "member-1": 2.0, "member-2": 3.0})
    after = _Reading(9.0, 1.5, {"member-0": 1.1, "member-1": 2.4, "member-2": 3.3})

    assert after.since(before, 1, 1_000) == {"leader_us": 400.0, "follower_us": 200.0, "client_us": 500.0}
    assert [Case(10_000, share, False).process_count for share in (False, True)] == [2, 1]


def test_only_a_message_offered_after_the_fault_and_committed_by_a_later_leader_ends_a_fail_over() -> None:
    old_term, new_term = 3, 4
    load = FailoverLoad(rate_per_s=100)
    load._sent = 5
    expected = load.expect_next_leader(old_term)

    for sequence, term_id in ((3, old_term), (4, new_term), (5, old_term)):
        load.on_message(0, term_id, memoryview(SEQUENCE.pack(sequence)))
    assert not expected.replied.is_set()
    load.on_new_leader(new_term, 1)
    load.on_message(0, new_term, memoryview(SEQUENCE.pack(7)))

    assert expected.replied.is_set()
    assert expected.leadership_term_id == new_term
    assert 0 < expected.told_ns <= expected.replied_ns


def test_what_the_new_leader_does_after_the_first_reply_is_no_step_to_it(tmp_path: Path) -> None:
    """A loaded machine can elect once more before the member's log is read."""
    log = RigMemberLog(tmp_path / "member-1.log")
    states = [(10, "CANVASS"), (40, "CANDIDATE_BALLOT"), (60, "LEADER_READY"), (90, "CANVASS")]
    at = {ms: datetime.fromtimestamp(1_000 + ms / 1_000, UTC).isoformat() for ms, _ in states}
    lines = [{"event": "election.state_changed", "new": state, "timestamp": at[ms]} for ms, state in states]
    log.path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    steps = steps_before_reply(log, 1_000 * 10**9, 70.0)

    assert steps == {"CANVASS": 10.0, "CANDIDATE_BALLOT": 40.0, "LEADER_READY": 60.0}


def batch_table(*rows: tuple[int, int, int | None]) -> pa.Table:
    positions, lengths, times = zip(*rows, strict=True)
    timestamps = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"position": positions, "frame_length": lengths, "timestamp": timestamps})


def test_a_batch_of_a_stream_is_the_same_file_whoever_writes_it_again(tmp_path: Path) -> None:
    table = batch_table((64, 33, 1), (128, 32, 2), (160, 100, None))

    for batch in (table, table, table.slice(3)):
        write_batch(batch, 4, tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == [f"{64:019d}-{160:019d}.parquet"]


def test_messages_of_a_stream_count_that_the_leader_took_while_it_was_measured(tmp_path: Path) -> None:
    names = []
    for first, times in ((0, [1_000, 2_000]), (64, [3_000, 5_000]), (128, [6_000, None])):
        write_batch(batch_table((first, 32, times[0]), (first + 32, 32, times[1])), 0, tmp_path)
        names.append(f"{first:019d}-{first + 32:019d}.parquet")
    batches = [{"file": name, "sunk_ns": (i + 1) * 10_000_000} for i, name in enumerate(names)]

    report = summarize(batches, tmp_path, started_ns=2_000_000, ended_ns=6_000_000)

    assert (report["messages"], report["batches"]) == (3, 2)
    assert report["sink_max_us"] == pytest.approx(17_000, rel=0.02)
    assert report["batch_interval_median_us"] == 10_000
