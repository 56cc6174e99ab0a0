"""The table of legal transitions: what it allows, and that nothing else happens."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core.election.election import Election, InitPhase
from trimaran.cluster.core.election.follower_phase import FollowerPhase
from trimaran.cluster.core.election.phases import PHASES
from trimaran.cluster.core.vocabulary.election_state import (
    BALLOT_STATES,
    FOLLOWER_STATES,
    LEADER_STATES,
    LEGAL_TRANSITIONS,
    ElectionState,
)
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
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


def test_every_state_has_its_own_way_in() -> None:
    """STYLE 7: each state belongs to one phase, which has one method per state, found by its name."""
    election = Election(Solo(is_started=False).ctx, PHASES, is_node_startup=True, why=Reason(ReasonKind.NODE_STARTED))
    phases = [make(election) for make in {InitPhase, *PHASES.values()}]
    phases.append(FollowerPhase(election, Solo().new_term(1, 1, 0)))

    ways = [(state, enter.__name__) for phase in phases for state, (enter, _) in phase.states.items()]

    assert sorted(ways) == [(state, f"_enter_{state.name.lower()}") for state in S if state is not S.CLOSED]


def test_a_phase_begins_with_one_of_its_states() -> None:
    election = Election(Solo(is_started=False).ctx, PHASES, is_node_startup=True, why=Reason(ReasonKind.NODE_STARTED))

    assert [state for state, make in PHASES.items() if state not in make(election).states] == []


def test_an_illegal_transition_stops_the_node() -> None:
    """STYLE 7: the one door asserts the table."""
    solo = Solo()
    assert solo.module.election is not None

    with pytest.raises(InvariantViolation, match="old=CANVASS new=LEADER_READY reason=a bug"):
        solo.module.election.enter(S.LEADER_READY, Reason(ReasonKind.ACTIVITY_FAILED, detail="a bug"))
