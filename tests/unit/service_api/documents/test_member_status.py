"""Who leads, by what the members answer."""

from __future__ import annotations

import pytest

from tests.unit.cluster.cli.answers import member_status
from trimaran.service_api.documents.member_status import find_leader, leads


@pytest.mark.parametrize(
    "state", ["STARTING", "CANVASS", "CANDIDATE_BALLOT", "LEADER_LOG_REPLICATION", "LEADER_REPLAY", "LEADER_READY"]
)
def test_a_member_in_an_election_does_not_lead_whatever_its_role(state: str) -> None:
    status = member_status(1, state=state)

    assert not leads(status)
    assert find_leader([status]) is None


def test_the_leader_of_the_highest_term_leads() -> None:
    cut_off, leader, follower = (
        member_status(0, state="LEADER", term=3),
        member_status(1, state="LEADER", term=4),
        member_status(2, term=5),
    )

    assert find_leader([cut_off, leader, follower]) is leader
    assert find_leader([follower]) is None
    assert find_leader([]) is None
