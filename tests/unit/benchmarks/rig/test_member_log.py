"""A member's printed events, whole lines only, from where its run began."""

from __future__ import annotations

import json
from pathlib import Path

from trimaran.benchmarks.rig.member_log import Leadership, RigMemberLog

STARTED: dict[str, object] = {"event": "election.started", "reason": "node started"}
CLOSED: dict[str, object] = {"event": "election.closed", "leadership_term_id": 3, "leader_member_id": 1}


def write(path: Path, *events: dict[str, object], tail: str = "") -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(event) + "\n" for event in events) + tail)


def test_a_member_that_elects_has_no_leader_and_then_the_one_of_the_last_election(tmp_path: Path) -> None:
    log = RigMemberLog(tmp_path / "log")
    write(log.path, STARTED)
    assert log.leadership() is None

    write(log.path, CLOSED)

    assert log.leadership() == Leadership(leadership_term_id=3, leader_member_id=1)
    write(log.path, STARTED)
    assert log.leadership() is None


def test_what_an_earlier_run_printed_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert RigMemberLog.at_end(path).path == path
    write(path, STARTED, CLOSED)

    log = RigMemberLog.at_end(path)
    write(path, STARTED)

    assert log.events() == [STARTED]
    assert log.leadership() is None


def test_events_are_found_by_name_and_facts_and_half_a_line_waits(tmp_path: Path) -> None:
    log = RigMemberLog(tmp_path / "log")
    write(log.path, STARTED, CLOSED, tail='trimaran: a reason\n{"event": "election.st')

    assert log.events("election.closed", leader_member_id=1) == [CLOSED]
    assert log.events("election.closed", leader_member_id=2) == []
    assert log.events() == [STARTED, CLOSED]
    assert log.other_lines() == ["trimaran: a reason"]
