"""What a person sees: 100 columns, nothing cut that matters, colour in a terminal only."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.facts import has_facts
from tests.places import ROOT
from tests.unit.cluster.cli.answers import answered, failed, member_status
from trimaran.archive.tool.output import format_duration
from trimaran.cluster.cli.shared.cluster_report import ClusterReport, make_report
from trimaran.cluster.cli.shared.cluster_table import describe_election, status_table
from trimaran.cluster.documents.query import Outcome
from trimaran.service_api.documents.member_status import (
    DifferingMember,
    ElectionStatus,
    SnapshotFetchStatus,
    StandbyStatus,
    SyncStatus,
)


def syncs(*, p99_s: float) -> SyncStatus:
    return SyncStatus(count=300, slow_count=0, slow_s=0.1, p99_s=p99_s, max_s=p99_s)


README = ROOT / "README.md"

REPORT = make_report(
    [
        failed(0, Outcome.REFUSED, "no process listens on 127.0.0.1:9001"),
        answered(member_status(1, state="LEADER", append=123_456).model_copy(update={"syncs": syncs(p99_s=0.205)})),
        answered(member_status(2, append=123_392).model_copy(update={"syncs": syncs(p99_s=0.000_21)})),
    ],
    asked_at_ms=0,
)

EXPECTED = """\
leader 1 in term 3, 2 of 3 members, commit 123,456
cluster 3f9a0c12d45e77b1

member  role      state     term   append   commit  delivered  lag
     0  -         refused      -        -        -          -    -
     1  LEADER    LEADER       3  123,456  123,456    123,456    0
     2  FOLLOWER  FOLLOWER     3  123,392  123,392    123,392   64

member   pid    up  version  sessions  clients  sync p99  last election, or why there is no answer
     0     -     -  -               -        -         -  no process listens on 127.0.0.1:9001
     1  4712  12 s  0.1.0           7        6  205.0 ms  3.2 s ago, took 41 ms: link to leader 0
                                                          closed
     2  4713  12 s  0.1.0           7        6    0.2 ms  3.2 s ago, took 41 ms: link to leader 0
                                                          closed
"""


def drawn(report: ClusterReport, *, width: int = 100, is_terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=is_terminal,
        color_system="standard" if is_terminal else None,
        highlight=False,
    )
    console.print(status_table(report))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def without_trailing_blanks(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def test_the_table_is_a_verdict_and_two_lines_a_member() -> None:
    assert without_trailing_blanks(drawn(REPORT)) == EXPECTED


@pytest.mark.parametrize(
    ("copied", "length", "shown"), [(0, 0, "snapshot of 1: asks"), (30, 200, "snapshot of 1: 15 %")]
)
def test_a_member_that_gets_a_snapshot_shows_how_far_it_has_come(copied: int, length: int, shown: str) -> None:
    fetch = SnapshotFetchStatus(leader_member_id=1, log_position=4096, copied_bytes=copied, length_bytes=length)
    status = member_status(2, state="CANVASS").model_copy(update={"snapshot_fetch": fetch})

    table = drawn(make_report([answered(status)], asked_at_ms=0), width=140)

    assert f"CANVASS {shown}" in table


def test_standbys_are_shown_with_whom_they_follow_and_the_age_of_their_snapshot_and_who_has_it() -> None:
    standbys = [
        StandbyStatus(member_id=3, snapshot_position=4_096, snapshot_age_s=125, is_copying=False),
        StandbyStatus(member_id=4, snapshot_position=None, snapshot_age_s=None, is_copying=False),
    ]
    leader = member_status(1, state="LEADER").model_copy(update={"standbys": standbys, "snapshot_position": 4_096})
    old = member_status(2).model_copy(update={"snapshot_position": 2_048})
    second = member_status(4).model_copy(update={"log_source_id": 3})

    shown = drawn(make_report([answered(leader), answered(old), answered(second)], asked_at_ms=0))

    assert [line.split() for line in shown.splitlines()[-3:]] == [
        ["standby", "follows", "snapshot", "age", "members", "that", "have", "it"],
        ["3", "-", "4,096", "2", "min", "5", "s", "1"],
        ["4", "3", "-", "-", "-"],
    ]


def test_a_member_that_does_not_hear_another_shows_what_differs() -> None:
    other = DifferingMember(member_id=2, detail="service_count=1 here, 2 at member 2")
    status = member_status(0).model_copy(update={"differing_members": [other]})

    table = drawn(make_report([answered(status)], asked_at_ms=0), width=160)

    assert has_facts(table, "member 2: service_count=1", "2")


def test_the_readme_shows_these_columns() -> None:
    """Its sample is a real one; it must not stay behind when the table changes."""
    headings = [line for line in EXPECTED.splitlines() if line.startswith("member")]
    readme = [line.split() for line in README.read_text().splitlines() if line.startswith("member  ")]

    assert [heading.split() for heading in headings] == readme


def test_colour_is_for_terminals() -> None:
    assert "\x1b" not in drawn(REPORT)
    assert "\x1b[" in drawn(REPORT, is_terminal=True)


def test_long_logs_and_long_states_fit_into_100_columns() -> None:
    """Numbers are never cut; a long state is folded."""
    position = 987_654_321_024
    follower = member_status(2, state="FOLLOWER_LOG_REPLICATION", term=12_345, append=0)
    leader = member_status(1, state="LEADER", term=12_345, append=position)

    text = drawn(make_report([answered(leader), answered(follower)], asked_at_ms=0))

    assert text.count(f"{position:,}") == 1 + 3 + 1
    assert "12,345" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    assert "…" not in text


def test_markup_in_a_members_text_is_text() -> None:
    election = ElectionStatus(
        reason="[bold]x[/bold]", reason_kind="activity_failed", age_s=1, duration_s=None, leadership_term_id=None
    )

    assert "[bold]x[/bold]" in drawn(make_report([answered(member_status(1, election=election))], asked_at_ms=0))


def test_an_election_that_goes_on_says_for_how_long() -> None:
    running = ElectionStatus(
        reason="node started", reason_kind="node_started", age_s=7.04, duration_s=None, leadership_term_id=None
    )

    barred = running.model_copy(update={"refusal": "no voter: members=0"})

    assert has_facts(describe_election(running), "7.0 s", "node started")
    assert has_facts(describe_election(barred), "node started", "members=0")


def test_a_member_before_its_first_election_says_so() -> None:
    starting = member_status(0, state="STARTING", leader=None, term=None, append=0, election=None)

    text = drawn(make_report([answered(starting)], asked_at_ms=0))

    assert "STARTING" in text
    assert "none yet" in text


@pytest.mark.parametrize(
    ("duration_s", "expected"),
    [
        (0, "0 ms"),
        (0.041, "41 ms"),
        (0.9996, "1000 ms"),
        (3.25, "3.2 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (310, "5 min 10 s"),
        (3_600, "1 h"),
        (7_380, "2 h 3 min"),
        (183_600, "2 d 3 h"),
        (172_800, "2 d"),
    ],
)
def test_durations_have_their_two_largest_units(duration_s: float, expected: str) -> None:
    assert format_duration(duration_s) == expected
