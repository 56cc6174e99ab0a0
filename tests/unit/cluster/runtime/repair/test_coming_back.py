"""When the others can do without a member: each answer that is not enough."""

from __future__ import annotations

import pytest

from tests.unit.cluster.cli.answers import member_status
from trimaran.cluster.runtime.repair.coming_back import find_leader_without
from trimaran.service_api.documents.member_status import MemberStatus
from trimaran.service_api.types import MemberId

ME = MemberId(2)
LEADER = member_status(0, state="LEADER", leader=0, term=5, members="0 1 2")
FOLLOWER = member_status(1, state="FOLLOWER", leader=0, term=5, members="0 1 2")


@pytest.mark.parametrize("candidate_term_id", [-1, 4, 5])
def test_a_majority_without_the_member_in_a_term_no_older_than_its_vote_is_enough(candidate_term_id: int) -> None:
    assert find_leader_without(ME, [FOLLOWER, LEADER], candidate_term_id=candidate_term_id) == (0, "")


@pytest.mark.parametrize(
    ("answers", "candidate_term_id", "why"),
    [
        ([], 5, "no other member"),
        ([FOLLOWER], 5, "no other member"),
        ([LEADER], 5, "in_term=[0] voters=[0, 1, 2]"),
        ([LEADER, member_status(1, state="FOLLOWER", leader=0, term=4)], 5, "no majority"),
        ([LEADER, member_status(1, state="FOLLOWER_CATCHUP", leader=0, term=5)], 5, "no majority"),
        ([LEADER, member_status(2, state="FOLLOWER", leader=0, term=5)], 5, "no majority"),
        ([LEADER, FOLLOWER], 6, "candidate_term_id=6"),
        ([member_status(0, state="LEADER", leader=0, term=5, members="0 1:learner 2 3"), FOLLOWER], 5, "in_term=[0]"),
        ([member_status(0, state="LEADER", leader=0, term=5), FOLLOWER], 5, "no majority"),
    ],
)
def test_less_is_not_enough(answers: list[MemberStatus], candidate_term_id: int, why: str) -> None:
    leader_member_id, said = find_leader_without(ME, answers, candidate_term_id=candidate_term_id)

    assert leader_member_id is None
    assert why in said
