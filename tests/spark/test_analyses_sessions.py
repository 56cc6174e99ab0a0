"""Sessions, timers and rhythm of a log, held against the truth beside the Aeron samples."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.engines import AnalysisEngine, rows_where
from tests.spark.log_truth import Entry, LogTruth, rows
from tests.spark.recorded_cluster import RecordedCluster
from tests.unit.archive.spark.written_logs import Entry as log_entry  # noqa: N813
from tests.unit.archive.spark.written_logs import write_log
from trimaran.archive.spark.analyses import bursts, gaps, session_lives, session_traffic, timers
from trimaran.service_api.errors import ConfigurationError

SINGLE = "single-node-node0"
CHECKSUMMED = "checksummed-node0"
SECOND_US = 1_000_000
HEADER_LENGTH = 32
"""Of a session message before the application's bytes."""

Session = tuple[int | None, int | None]


def by_session(truth: LogTruth) -> dict[Session, list[Entry]]:
    sent: dict[Session, list[Entry]] = defaultdict(list)
    for entry in truth.of("SessionMessageHeader"):
        sent[entry.session].append(entry)
    return sent


def key_of(row: dict[str, Any]) -> Session:
    return row["cluster_session_id"], row["service_id"]


@pytest.mark.parametrize("name", [SINGLE, CHECKSUMMED])
def test_the_traffic_of_each_session_is_that_of_the_truth(name: str, sample_log: Callable[[str], DataFrame]) -> None:
    """Fragmented messages count whole; what services offered stands apart from clients' sessions."""
    truth = LogTruth(name)
    sent = by_session(truth)

    found = {key_of(row): row for row in rows(session_traffic(sample_log(name), interval=None))}

    assert found.keys() == sent.keys()
    assert any(service_id is not None for _, service_id in found)
    for session, entries in sent.items():
        row, times = found[session], [truth.time(entry) for entry in entries]
        waits = sorted(later - earlier for earlier, later in pairwise(times))
        assert row["messages"] == len(entries)
        assert row["application_bytes"] == sum(entry.message["length"] - HEADER_LENGTH for entry in entries)
        assert (row["from_timestamp"], row["to_timestamp"]) == (times[0], times[-1])
        assert row["gap_us_max"] == (waits[-1] if waits else None)
        if waits:
            assert row["gap_us_p50"] == waits[max(0, -(-len(waits) // 2) - 1)]
        if times[-1] > times[0]:
            assert row["messages_per_s"] == pytest.approx(len(entries) / (times[-1] - times[0]) * SECOND_US)


def test_the_header_of_a_request_is_not_counted_as_payload(engine: AnalysisEngine, tmp_path: Path) -> None:
    """A request's header is 16 bytes longer than a message's, also where the request needs several frames."""
    write_log(tmp_path, [log_entry(bytes(10)), *(log_entry(bytes(n), request_sequence=n) for n in (0, 100, 8000))])
    columns = "recording_id,position,frame_length,flags,type,term_id,template_id,block_length,leadership_term_id"
    log = engine.read_log(tmp_path, columns=f"{columns},cluster_session_id,correlation_id,timestamp")

    (row,) = rows(session_traffic(log, interval=None))

    assert (row["messages"], row["application_bytes"]) == (4, 8110)


def test_traffic_by_second_adds_up(sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    expected = Counter(
        (entry.session, truth.time(entry) // SECOND_US * SECOND_US) for entry in truth.of("SessionMessageHeader")
    )

    found = rows(session_traffic(sample_log(SINGLE)))

    assert {(key_of(row), row["from_timestamp"]): row["messages"] for row in found} == expected
    assert {row["to_timestamp"] - row["from_timestamp"] for row in found} == {SECOND_US}


@pytest.mark.parametrize("interval", ["", "second", "1 second'", "0.5 seconds", "1 second) FROM log --"])
def test_what_is_no_length_of_time_is_refused(interval: str, sample_log: Callable[[str], DataFrame]) -> None:
    with pytest.raises(ConfigurationError, match="interval="):
        session_traffic(sample_log(SINGLE), interval=interval)


def expected_lives(truth: LogTruth) -> dict[int, dict[str, Any]]:
    lives: dict[int, dict[str, Any]] = {}
    times: dict[int, list[int]] = defaultdict(list)
    for entry in truth.entries:
        fields = entry.fields
        session_id = fields.get("clusterSessionId", -1)
        if session_id < 0:
            continue
        times[session_id].append(truth.time(entry))
        if entry.name == "SessionOpenEvent":
            lives[session_id] = {
                "correlation_id": fields["correlationId"],
                "opened_position": entry.position,
                "opened_timestamp": truth.time(entry),
                "response_stream_id": fields["responseStreamId"],
                "response_channel": fields["responseChannel"],
                "encoded_principal": bytes.fromhex(fields["encodedPrincipal"]),
                "closed_position": None,
                "close_reason": None,
                "state": "open",
                "messages": 0,
                "application_bytes": 0,
                "lifetime_us": truth.time(truth.entries[-1]) - truth.time(entry),
            }
        elif entry.name == "SessionCloseEvent":
            life = lives[session_id]
            life["closed_position"] = entry.position
            life["close_reason"] = fields["closeReason"]
            life["state"] = "timed out" if fields["closeReason"] == "TIMEOUT" else "closed"
            life["lifetime_us"] = truth.time(entry) - life["opened_timestamp"]
        else:
            lives[session_id]["messages"] += 1
            lives[session_id]["application_bytes"] += entry.message["length"] - HEADER_LENGTH
    for session_id, life in lives.items():
        waits = [later - earlier for earlier, later in pairwise(times[session_id])]
        life["longest_idle_us"] = max(waits, default=None)
    return lives


def test_the_lives_of_sessions_are_those_of_the_truth(sample_log: Callable[[str], DataFrame]) -> None:
    expected = expected_lives(LogTruth(SINGLE))

    found = {row["cluster_session_id"]: row for row in rows(session_lives(sample_log(SINGLE)))}

    assert {life["state"] for life in expected.values()} == {"open", "closed", "timed out"}
    for row in found.values():
        for unchecked in ("recording_id", "cluster_session_id", "closed_timestamp"):
            row.pop(unchecked)
    assert found == expected


def test_a_session_that_was_opened_before_the_log_begins_has_no_opening(
    sample_log: Callable[[str], DataFrame],
) -> None:
    log = rows_where(sample_log(SINGLE), "position > 448000")

    found = {row["cluster_session_id"]: row for row in rows(session_lives(log))}

    assert found[1]["opened_position"] is None
    assert found[1]["lifetime_us"] is None
    assert found[1]["state"] == "open"
    assert found[4]["close_reason"] == "SERVICE_ACTION"


@pytest.mark.slow
def test_the_sessions_of_a_cluster_of_ours_end_as_they_did(
    recorded_cluster: RecordedCluster, recorded_log: Callable[[int], DataFrame]
) -> None:
    lives = {row["cluster_session_id"]: row for row in rows(session_lives(recorded_log(0)))}

    assert {session_id: life["close_reason"] for session_id, life in lives.items()} == {
        recorded_cluster.session_id: "CLIENT_ACTION",
        recorded_cluster.closed_session_id: "SERVICE_ACTION",
        recorded_cluster.silent_session_id: "TIMEOUT",
    }
    assert lives[recorded_cluster.silent_session_id]["messages"] == 0


def test_the_timers_that_fired_are_those_of_the_truth(sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    last: dict[int, int] = {}
    expected = []
    for entry in truth.of("TimerEvent"):
        timer, time = entry.fields["correlationId"], truth.time(entry)
        since = time - last[timer] if timer in last else None
        expected.append((entry.position, timer, time, since))
        last[timer] = time

    found = rows(timers(sample_log(SINGLE)))

    assert [(r["position"], r["correlation_id"], r["fired_timestamp"], r["since_last_us"]) for r in found] == expected
    assert any(since is not None for *_, since in expected)


@pytest.mark.parametrize("engine", ["spark"], indirect=True)  # the report has no schedules
def test_timers_that_were_scheduled_are_fired_cancelled_moved_or_waiting(
    spark: SparkSession, sample_log: Callable[[str], DataFrame]
) -> None:
    """Timer 7 of the sample fires many times: each time it is set again at the end of the entry that fired it."""
    truth = LogTruth(SINGLE)
    fired = [entry for entry in truth.of("TimerEvent") if entry.fields["correlationId"] == 7][:2]
    ends = [entry.end_position for entry in fired]
    deadlines = [entry.fields["timestamp"] - 3 for entry in fired]
    set_at = truth.entries[3].end_position
    scheduled = spark.createDataFrame(
        [
            ("timer_scheduled", 7, set_at, deadlines[0]),
            ("timer_scheduled", 7, ends[0], deadlines[1]),
            ("timer_scheduled", 1000, set_at, 1),
            ("timer_cancelled", 1000, ends[0], None),
            ("timer_scheduled", 1001, set_at, 1),
            ("timer_scheduled", 1001, ends[0], 2),
            ("message", None, set_at, None),
        ],
        "kind string, correlation_id long, position long, deadline long",
    )

    found = rows(timers(sample_log(SINGLE), scheduled))

    named = {(r["correlation_id"], r["scheduled_position"]): r for r in found if r["scheduled_position"] is not None}
    assert {key: (r["state"], r["ended_position"], r["late_us"]) for key, r in named.items()} == {
        (7, set_at): ("fired", fired[0].position, 3000),
        (7, ends[0]): ("fired", fired[1].position, 3000),
        (1000, set_at): ("cancelled", ends[0], None),
        (1001, set_at): ("moved", ends[0], None),
        (1001, ends[0]): ("waiting", None, None),
    }
    assert named[7, set_at]["deadline"] == deadlines[0] * 1000
    unknown = [r for r in found if r["scheduled_position"] is None]
    assert len(unknown) == len(truth.of("TimerEvent")) - 2
    assert {r["state"] for r in unknown} == {"fired"}
    with pytest.raises(ConfigurationError, match="time_unit='hours' expected"):
        timers(sample_log(SINGLE), scheduled, time_unit="hours")


def test_the_busiest_seconds_are_those_of_the_truth(sample_log: Callable[[str], DataFrame]) -> None:
    truth = LogTruth(SINGLE)
    seconds = Counter(truth.time(entry) // SECOND_US * SECOND_US for entry in truth.entries)
    mean = sum(seconds.values()) / len(seconds)

    found = rows(bursts(sample_log(SINGLE), limit=3))

    assert [(row["from_timestamp"], row["messages"]) for row in found] == seconds.most_common(3)
    assert [row["times_mean"] for row in found] == [pytest.approx(count / mean) for _, count in seconds.most_common(3)]
    assert found[-1]["messages_per_s"] == found[-1]["messages"]


@pytest.mark.parametrize("longer_than_us", [SECOND_US, 20_000])
def test_the_silent_stretches_are_those_of_the_truth(
    longer_than_us: int, sample_log: Callable[[str], DataFrame]
) -> None:
    truth = LogTruth("three-node-failover-node0")
    expected = {
        entry.position: truth.time(entry) - truth.time(before)
        for before, entry in pairwise(truth.entries)
        if truth.time(entry) - truth.time(before) > longer_than_us
    }

    found = rows(gaps(sample_log("three-node-failover-node0"), longer_than_us=longer_than_us))

    assert {row["to_position"]: row["gap_us"] for row in found} == expected
    assert [row["gap_us"] for row in found] == sorted(expected.values(), reverse=True)
    elections = {entry.position for entry in truth.of("NewLeadershipTermEvent")}
    assert {row["to_position"] for row in found if row["over_terms"]} == elections - {0}
