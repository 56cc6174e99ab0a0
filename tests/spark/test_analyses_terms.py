"""Terms, leaders and elections: held against the truth of the Aeron samples, and a cluster that lost its leader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.spark.engines import ENGINES, AnalysisEngine, rows_where, with_changed, without
from tests.spark.log_truth import LogTruth, rows
from tests.spark.recorded_cluster import RecordedCluster
from trimaran.archive.spark.analyses import (
    election_states,
    elections,
    leaders,
    member_elections,
    refusals,
    term_timeline,
)
from trimaran.service_api.errors import ConfigurationError

UNITS = {"MILLIS": "ms", "MICROS": "us", "NANOS": "ns"}


def expected_terms(truth: LogTruth) -> list[dict[str, Any]]:
    """The timeline, by going through the messages in order."""
    terms: list[dict[str, Any]] = []
    for entry in truth.entries:
        fields = entry.fields
        if entry.name == "NewLeadershipTermEvent":
            version = fields["appVersion"]
            terms.append(
                {
                    "recording_id": 0,
                    "leadership_term_id": fields["leadershipTermId"],
                    "leader_member_id": fields["leaderMemberId"],
                    "start_position": entry.position,
                    "first_timestamp": truth.time(entry),
                    "hand_over_us": None,
                    "frames": 0,
                    "messages": 0,
                    "payload_bytes": 0,
                    "time_unit": UNITS[fields["timeUnit"]],
                    "app_version": f"{version >> 16}.{version >> 8 & 255}.{version & 255}",
                    "log_session_id": fields["logSessionId"],
                }
            )
            if len(terms) > 1:
                terms[-2]["hand_over_us"] = truth.time(entry) - terms[-2]["last_timestamp"]
        term = terms[-1]
        term["messages"] += 1
        term["frames"] += len(entry.frames)
        term["payload_bytes"] += entry.payload_bytes
        term["last_timestamp"] = truth.time(entry)
        term["stop_position"] = entry.end_position
        term["length_bytes"] = entry.end_position - term["start_position"]
    return terms


@pytest.mark.parametrize("name", ["three-node-failover-node0", "checksummed-node0", "torn-node0"])
def test_the_timeline_of_terms_is_that_of_the_truth(name: str, sample_log: Callable[[str], DataFrame]) -> None:
    expected = expected_terms(LogTruth(name))

    assert rows(term_timeline(sample_log(name))) == expected


def test_the_leaders_of_the_failover_sample_are_0_2_and_1_with_dead_time_in_between(
    sample_log: Callable[[str], DataFrame],
) -> None:
    terms = expected_terms(LogTruth("three-node-failover-node0"))

    bars = rows(leaders(sample_log("three-node-failover-node0")))

    assert [bar["leader_member_id"] for bar in bars] == [0, None, 2, None, 1]
    assert [bar["is_led"] for bar in bars] == [True, False, True, False, True]
    assert [bar["duration_us"] for bar in bars if not bar["is_led"]] == [t["hand_over_us"] for t in terms[:-1]]
    assert [bar["to_timestamp"] for bar in bars[:-1]] == [bar["from_timestamp"] for bar in bars[1:]]
    assert bars[0]["from_timestamp"] == terms[0]["first_timestamp"]
    assert bars[-1]["to_timestamp"] == terms[-1]["last_timestamp"]


def test_a_log_without_its_beginning_has_a_first_term_without_a_leader(sample_log: Callable[[str], DataFrame]) -> None:
    """A purge moves the start of a log after the first entry of its term."""
    expected = expected_terms(LogTruth("three-node-failover-node0"))

    timeline = rows(term_timeline(rows_where(sample_log("three-node-failover-node0"), "position >= 65536")))

    assert [term["leader_member_id"] for term in timeline] == [None, 2, 1]
    assert timeline[0]["start_position"] == 65536
    assert timeline[1:] == expected[1:]


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_leadership_events_may_come_from_a_second_dataframe(sample_log: Callable[[str], DataFrame]) -> None:
    log = sample_log("three-node-failover-node0")

    timeline = rows(term_timeline(without(log, "payload"), events=log))

    assert [term["leader_member_id"] for term in timeline] == [0, 2, 1]
    with pytest.raises(ConfigurationError, match=r"new_terms.*missing=payload"):
        term_timeline(without(log, "payload"))


def test_the_elections_of_a_log_say_who_led_before_and_after(sample_log: Callable[[str], DataFrame]) -> None:
    terms = expected_terms(LogTruth("three-node-failover-node0"))

    changes = rows(elections(sample_log("three-node-failover-node0")))

    assert [(c["leader_before"], c["leader_after"]) for c in changes] == [(None, 0), (0, 2), (2, 1)]
    assert [c["position"] for c in changes] == [term["start_position"] for term in terms]
    assert [c["gap_us"] for c in changes] == [None, *(term["hand_over_us"] for term in terms[:-1])]
    assert [c["skipped_terms"] for c in changes] == [None, 0, 0]


@pytest.mark.slow
def test_the_elections_of_a_cluster_that_lost_its_leader_have_reasons(
    engine: AnalysisEngine, recorded_cluster: RecordedCluster, recorded_log: Callable[[int], DataFrame]
) -> None:
    first, second = recorded_cluster.first, recorded_cluster.second
    node_logs = engine.read_node_logs(recorded_cluster.node_logs)

    changes = rows(elections(recorded_log(second.leader_member_id), node_logs))

    by_term = {change["leadership_term_id"]: change for change in changes}
    fail_over = by_term[second.leadership_term_id]
    assert by_term[first.leadership_term_id]["start_reason"] == "node_started"
    assert (fail_over["leader_before"], fail_over["leader_after"]) == (first.leader_member_id, second.leader_member_id)
    assert fail_over["start_reason"] in ("log_link_closed", "leader_link_closed")
    assert fail_over["ballots"] >= 1
    assert {m["member_id"] for m in fail_over["members"]} == {0, 1, 2} - {first.leader_member_id}
    assert fail_over["election_us"] > 0
    (leader,) = (m for m in fail_over["members"] if m["member_id"] == second.leader_member_id)
    assert leader["states"][0] == "INIT"
    assert leader["states"][-2:] == ["LEADER_READY", "CLOSED"]


@pytest.mark.slow
def test_the_states_of_a_members_elections_are_those_that_it_logged(
    engine: AnalysisEngine, recorded_cluster: RecordedCluster
) -> None:
    """Against the lines of the log, read by Python."""
    member_id = recorded_cluster.first.leader_member_id
    lines = recorded_cluster.node_logs[member_id].read_text().splitlines()
    told = [event for event in map(json.loads, lines) if event["event"].startswith("election.")]
    changes = [event for event in told if event["event"] == "election.state_changed"]
    node_logs = engine.read_node_logs(recorded_cluster.node_logs)

    runs = [run for run in rows(member_elections(node_logs)) if run["member_id"] == member_id]
    states = [state for state in rows(election_states(node_logs)) if state["member_id"] == member_id]

    started = [event["reason"] for event in told if event["event"] == "election.started"]
    assert [run["reason"] for run in runs] == started
    assert [state for run in runs for state in run["states"] if state != "INIT"] == [c["new"] for c in changes]
    expected = [(c["new"], c["reason"], c["append_position"]) for c in changes if c["new"] != "CLOSED"]
    assert [(s["state"], s["reason"], s["append_position"]) for s in states if s["state"] != "INIT"] == expected
    closed = [run for run in runs if run["leadership_term_id"] is not None]
    assert [run["leader_member_id"] for run in closed][:2] == [
        recorded_cluster.first.leader_member_id,
        recorded_cluster.second.leader_member_id,
    ]
    for run in closed:
        mine = [s["duration_us"] for s in states if s["election_number"] == run["election_number"]]
        # An election begins a line before its first state, which may be long on a busy machine.
        assert 0.8 * run["duration_us"] - 10_000 < sum(mine) < run["duration_us"] + 10_000


def _line(member_id: int, at: str, event: str, **fields: object) -> str:
    return json.dumps({**fields, "event": event, "member_id": member_id, "timestamp": f"2026-11-21T10:00:{at}Z"})


def test_refusals_are_told_with_the_election_that_they_came_in(engine: AnalysisEngine, tmp_path: Path) -> None:
    """Two ballots: the first one fails on a vote that was refused, so one term is skipped."""
    refused = {
        "candidate_member_id": 0,
        "candidate_term_id": 3,
        "reason": "own_log_newer",
        "detail": "own log is newer",
    }
    log_0 = [
        "not an event",
        _line(0, "00.1", "election.started", reason="leader_heartbeat_timeout", detail="no heartbeat"),
        _line(0, "00.2", "election.state_changed", old="INIT", new="CANVASS", reason="log_stopped"),
        _line(0, "00.3", "election.state_changed", old="CANVASS", new="CANDIDATE_BALLOT", reason="nomination"),
        _line(0, "00.5", "election.state_changed", old="CANDIDATE_BALLOT", new="CANVASS", reason="ballot_not_won"),
        _line(0, "01.0", "election.state_changed", old="CANVASS", new="CLOSED", reason="following"),
        _line(0, "01.0", "election.closed", leadership_term_id=4, leader_member_id=1, log_position=64),
    ]
    log_1 = [
        _line(1, "00.2", "election.started", reason="log_link_closed", detail="connection closed"),
        _line(1, "00.4", "vote.refused", **refused),
        _line(1, "00.8", "election.state_changed", old="INIT", new="CANDIDATE_BALLOT", reason="nomination"),
        _line(1, "00.9", "election.closed", leadership_term_id=4, leader_member_id=1, log_position=64),
        '{"event": "aeron_sample.started", "messages": 0}',
    ]
    for name, lines in (("a.log", log_0), ("b.log", log_1)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    node_logs = engine.read_node_logs([tmp_path / "a.log", tmp_path / "b.log"])

    found = rows(refusals(node_logs))
    runs = rows(member_elections(node_logs))

    assert [(r["member_id"], r["refused_member_id"], r["refused_term_id"], r["reason"]) for r in found] == [
        (1, 0, 3, "own_log_newer")
    ]
    assert found[0]["leadership_term_id"] == 4
    assert [(r["member_id"], r["ballots"], r["duration_us"]) for r in runs] == [(0, 1, 900_000), (1, 1, 700_000)]
    assert runs[0]["states"] == ["INIT", "CANVASS", "CANDIDATE_BALLOT", "CANVASS", "CLOSED"]


def test_terms_that_nothing_came_of_are_counted(sample_log: Callable[[str], DataFrame]) -> None:
    log = sample_log("three-node-failover-node0")
    skipped = with_changed(log, leadership_term_id="if(leadership_term_id = 2, 5, leadership_term_id)")

    assert [change["skipped_terms"] for change in rows(elections(skipped))] == [None, 0, 3]
