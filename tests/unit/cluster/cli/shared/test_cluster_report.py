"""One picture of what the members answered: who leads, whether a majority follows, how far each is behind."""

from __future__ import annotations

import json

import pytest

from tests.facts import has_facts
from tests.unit.cluster.cli.answers import answered, failed, member_status
from trimaran.cluster.cli.shared.cluster_report import (
    ClusterReport,
    MemberReport,
    find_members_elsewhere,
    make_report,
)
from trimaran.cluster.documents.query import Outcome

LEADER = member_status(1, state="LEADER", append=123_456)


def report_of(*answers: MemberReport) -> ClusterReport:
    return make_report(answers, asked_at_ms=1_700_000_000_000)


def test_a_leader_with_a_majority_in_its_term_is_a_quorum() -> None:
    report = report_of(failed(0), answered(LEADER), answered(member_status(2)))

    assert report.verdict == "leader 1 in term 3, 2 of 3 members, commit 123,456"
    assert report.has_quorum
    assert (report.leader_member_id, report.leadership_term_id, report.commit_position) == (1, 3, 123_456)
    assert (report.member_count, report.answered_count, report.in_term_count, report.quorum_count) == (3, 2, 2, 2)
    assert [member.outcome for member in report.members] == [Outcome.REFUSED, Outcome.ANSWERED, Outcome.ANSWERED]


def test_a_leader_alone_is_no_quorum() -> None:
    report = report_of(failed(0), answered(LEADER), failed(2, Outcome.TIMED_OUT, "no answer"))

    assert has_facts(report.verdict, "no quorum: leader 1", "term 3", "1 of 3", "123,456")
    assert not report.has_quorum
    assert report.leader_member_id == 1


def test_the_only_member_of_a_cluster_is_its_quorum() -> None:
    assert report_of(answered(LEADER)).has_quorum


def test_half_of_four_is_no_quorum() -> None:
    answers = [answered(LEADER), answered(member_status(2)), failed(3), failed(4)]

    assert not report_of(*answers).has_quorum


def test_a_leader_of_an_old_term_does_not_count() -> None:
    """It was cut off and does not know yet. Source: Raft paper §5.1."""
    old = answered(member_status(0, state="LEADER", leader=0, term=2, append=99_999))

    report = report_of(old, answered(LEADER), answered(member_status(2)))

    assert (report.leader_member_id, report.leadership_term_id, report.in_term_count) == (1, 3, 2)


def test_members_that_follow_another_term_make_no_quorum() -> None:
    """A leader that answers is not enough: the others are in an election, or with somebody who does not answer."""
    electing = answered(member_status(0, state="CANVASS", leader=None))
    elsewhere = answered(member_status(2, leader=0, term=4))

    report = report_of(electing, answered(LEADER), elsewhere)

    assert report.in_term_count == 1
    assert not report.has_quorum
    assert report.leadership_term_id == 4


def test_a_member_that_catches_up_in_the_leaders_term_counts() -> None:
    joining = answered(member_status(0, state="FOLLOWER_CATCHUP", append=100))

    assert report_of(joining, answered(LEADER), failed(2)).in_term_count == 2


def test_an_election_has_no_leader() -> None:
    candidate = member_status(0, state="CANDIDATE_BALLOT", leader=None)

    report = report_of(answered(candidate), failed(1), answered(member_status(2, state="CANVASS", leader=None)))

    assert has_facts(report.verdict, "no leader: 2 of 3", "123,456")
    assert report.leader_member_id is None
    assert not report.has_quorum


def test_when_nobody_answers_nothing_is_made_up() -> None:
    report = report_of(failed(0), failed(1))

    assert "0 of 2" in report.verdict
    assert (report.leadership_term_id, report.commit_position, report.answered_count) == (None, None, 0)


def test_members_before_their_first_term_have_no_term() -> None:
    starting = member_status(0, state="STARTING", leader=None, term=None, append=0, election=None)

    assert report_of(answered(starting)).leadership_term_id is None


def counts(report: ClusterReport) -> tuple[int, int, int, int]:
    return report.member_count, report.in_term_count, report.voters_in_term_count, report.quorum_count


def test_members_are_those_of_the_leaders_log_and_not_those_of_settings() -> None:
    """Settings only begin a cluster. Two of five are no majority, however few are asked."""
    leader = member_status(1, state="LEADER", members="1 2 3 4 5")

    report = report_of(failed(0), answered(leader), answered(member_status(2)))

    assert counts(report) == (5, 2, 2, 3)
    assert has_facts(report.verdict, "no quorum: leader 1", "term 3", "2 of 5", "123,456")
    assert [member.kind for member in report.members] == [None, "voter", "voter"]


def test_learner_is_a_member_without_a_vote() -> None:
    leader = member_status(1, state="LEADER", members="1 2 3 4:learner")

    report = report_of(answered(leader), failed(2), failed(3), answered(member_status(4)))

    assert counts(report) == (4, 2, 1, 2)
    assert not report.has_quorum
    assert report_of(answered(leader), answered(member_status(2)), failed(3), failed(4)).has_quorum


def test_removed_member_that_answers_counts_nowhere() -> None:
    leader = member_status(1, state="LEADER", members="1 2 3")

    report = report_of(answered(member_status(0)), answered(leader), failed(2), failed(3))

    assert counts(report) == (3, 1, 1, 2)
    assert not report.has_quorum


def test_without_a_leader_the_end_of_the_longest_log_is_told_and_not_where_a_snapshot_was_taken() -> None:
    """A member that has just started knows its log to be committed up to that only."""
    survivor = member_status(0, state="CANVASS", leader=None, append=640, commit=96)

    report = report_of(answered(survivor), answered(member_status(1, state="CANVASS", leader=None, append=0)))

    assert has_facts(report.verdict, "no leader: 2 of 2", "640")
    assert "96" not in report.verdict


def test_without_a_leader_the_newest_configuration_says_who_the_members_are() -> None:
    old = member_status(0, state="CANVASS", leader=None, members="0 1 2", configuration_position=320)
    new = member_status(1, state="CANVASS", leader=None, members="0 1 2 3", configuration_position=640)

    report = report_of(answered(old), answered(new), failed(2))

    assert has_facts(report.verdict, "no leader: 2 of 4", "123,456")


def test_members_that_were_not_asked_and_those_that_have_moved_are_found() -> None:
    leader = member_status(1, state="LEADER", members="1 2 3")
    moved = failed(2).model_copy(update={"endpoint": "127.0.0.1:7777"})

    assert find_members_elsewhere([failed(0), answered(leader), moved]) == {2: "127.0.0.1:9201", 3: "127.0.0.1:9301"}
    assert find_members_elsewhere([answered(leader), failed(2), failed(3)]) == {}
    assert find_members_elsewhere([failed(0), failed(1)]) == {}


def test_lag_is_counted_from_the_leader_and_never_negative() -> None:
    behind = answered(member_status(0, append=100_000, commit=90_000))
    asked_later = answered(member_status(2, append=123_488, commit=123_488))

    report = report_of(behind, answered(LEADER), asked_later, failed(3))

    assert [(m.append_lag_bytes, m.commit_lag_bytes) for m in report.members] == [
        (23_456, 33_456),
        (0, 0),
        (0, 0),
        (None, None),
    ]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_has_the_same_keys_whatever_happened(indent: int | None) -> None:
    """Scripts read it: keys are there also where there is nothing to say."""
    healthy = json.loads(report_of(answered(LEADER)).model_dump_json(indent=indent))
    down = json.loads(report_of(failed(0)).model_dump_json(indent=indent))

    assert healthy.keys() == down.keys() == set(ClusterReport.model_fields)
    assert healthy["members"][0].keys() == down["members"][0].keys() == set(MemberReport.model_fields)
    assert healthy["members"][0]["status"]["append_position"] == 123_456
    assert healthy["members"][0]["status"]["last_election"]["reason_kind"] == "leader_link_closed"
    assert down["members"][0]["status"] is None
    assert (down["members"][0]["outcome"], down["members"][0]["detail"]) == ("refused", "no process listens there")
