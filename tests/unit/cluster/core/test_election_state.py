"""The table of legal transitions: what it allows, and that nothing else happens."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core.election import election as election_module
from trimaran.cluster.core.election_state import (
    BALLOT_STATES,
    FOLLOWER_STATES,
    LEADER_STATES,
    LEGAL_TRANSITIONS,
    ElectionState,
)
from trimaran.cluster.core.reason import Reason, ReasonKind
from trimaran.service_api import InvariantViolation

S = ElectionState


def test_there_are_eighteen_states_with_the_codes_of_the_original() -> None:
    """Source: aeron.md §2.0, state codes."""
    assert [state.name for state in S] == [
        "INIT",
        "CANVASS",
        "NOMINATE",
        "CANDIDATE_BALLOT",
        "FOLLOWER_BALLOT",
        "LEADER_LOG_REPLICATION",
        "LEADER_REPLAY",
        "LEADER_INIT",
        "LEADER_READY",
        "FOLLOWER_LOG_REPLICATION",
        "FOLLOWER_REPLAY",
        "FOLLOWER_CATCHUP_INIT",
        "FOLLOWER_CATCHUP_AWAIT",
        "FOLLOWER_CATCHUP",
        "FOLLOWER_LOG_INIT",
        "FOLLOWER_LOG_AWAIT",
        "FOLLOWER_READY",
        "CLOSED",
    ]
    assert [*S] == [*range(18)]


def test_every_state_has_a_way_in_and_a_way_to_the_end() -> None:
    """No state is unreachable from INIT and none is a trap."""
    for state in S:
        assert S.CLOSED in closure(state), state
        assert state in closure(S.INIT), state


def closure(state: ElectionState) -> set[ElectionState]:
    seen, waiting = {state}, [state]
    while waiting:
        for following in LEGAL_TRANSITIONS[waiting.pop()] - seen:
            seen.add(following)
            waiting.append(following)
    return seen


def test_every_state_but_the_last_can_be_given_up() -> None:
    """Anything that goes wrong leads back to INIT; CLOSED ends the object."""
    assert {state for state in S if S.INIT in LEGAL_TRANSITIONS[state]} == set(S) - {S.INIT, S.CLOSED}
    assert LEGAL_TRANSITIONS[S.CLOSED] == frozenset()


def test_every_state_belongs_to_one_column() -> None:
    """INIT and CLOSED are the ends; the columns share no state."""
    columns = [BALLOT_STATES, LEADER_STATES, FOLLOWER_STATES, {S.INIT, S.CLOSED}]

    assert sorted(state for column in columns for state in column) == [*S]


@pytest.mark.parametrize("state", S)
def test_every_state_has_its_own_way_in(state: ElectionState) -> None:
    """STYLE 7: one method per state, found by its name."""
    assert election_module._ENTER[state].__name__ == f"_enter_{state.name.lower()}"


def test_an_illegal_transition_stops_the_node() -> None:
    """STYLE 7: the one door asserts the table."""
    solo = Solo()
    assert solo.module.election is not None

    with pytest.raises(InvariantViolation, match="old=CANVASS new=LEADER_READY reason=a bug"):
        solo.module.election._enter(S.LEADER_READY, Reason(ReasonKind.ACTIVITY_FAILED, detail="a bug"))
