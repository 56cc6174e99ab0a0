"""What lets a core be trusted: it does nothing but answer, the same way every time, and says when to ask again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.election_state import LEGAL_TRANSITIONS
from trimaran.service_api import InvariantViolation
from trimaran.service_api.types import MemberId

TERMS = [(0, 0, 64), (1, 64, 640)]

Choice = tuple[str, int, int, int]

choices: st.SearchStrategy[list[Choice]] = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "canvass",
                "request_vote",
                "vote",
                "new_term",
                "append",
                "commit",
                "link",
                "image closed",
                "joined",
                "replayed",
                "stopped",
                "failed",
                "recorded",
                "wait",
            ]
        ),
        st.integers(1, 2),
        st.integers(0, 4),
        st.sampled_from([0, 64, 320, 640, 1024]),
    ),
    max_size=40,
)


def event_of(solo: Solo, choice: Choice) -> object:
    """Turn a choice into what may happen to a member."""
    kind, member_id, term_id, position = choice
    makers: dict[str, Callable[[], object]] = {
        "canvass": lambda: solo.canvass(member_id, term_id, position),
        "request_vote": lambda: solo.request_vote(member_id, term_id, min(term_id, 1), position),
        "vote": lambda: solo.vote(member_id, vote=position > 0),
        "new_term": lambda: solo.new_term(member_id, term_id + 1, 640, commit=min(position, 640)),
        "append": lambda: solo.append_position(member_id, position),
        "commit": lambda: solo.commit(member_id, min(position, 640), term_id=term_id),
        "link": lambda: ev.LinkChanged(MemberId(member_id), is_up=position > 0),
        "image closed": lambda: ev.LogImageClosed(77, "closed"),
        "joined": lambda: ev.LogJoined(77),
        "replayed": lambda: ev.ReplayDone(solo.ctx.commit_position, position),
        "stopped": lambda: ev.LogStopped(solo.ctx.append_position),
        "failed": lambda: ev.ActivityFailed("planted"),
        "recorded": lambda: ev.Recorded(max(solo.ctx.append_position, solo.ctx.log_buffer.append_position)),
    }
    return makers[kind]()


def play(solo: Solo, choices: list[Choice]) -> list[fx.Effect]:
    """Let things happen; the window keeps up with what others say is recorded."""
    effects: list[fx.Effect] = []
    for choice in choices:
        if choice[0] == "wait":
            effects += solo.wait((1 + choice[3]) * MS // 4)
        else:
            effects += solo.feed(event_of(solo, choice))
    return effects


@settings(max_examples=150)
@given(choices)
def test_same_inputs_give_the_same_effects(choices: list[Choice]) -> None:
    """No clock, no chance, no order of sets: a run can be replayed."""
    assert play(Solo(terms=TERMS), choices) == play(Solo(terms=TERMS), choices)


@settings(max_examples=150)
@given(choices)
def test_whatever_happens_the_core_keeps_its_promises(choices: list[Choice]) -> None:
    """Legal transitions only, terms and commits that never fall, one vote a term: for any input in any order."""
    solo = Solo(terms=TERMS)
    voted: dict[int, int] = {}
    commit = candidate = 0
    for choice in choices:
        try:
            effects = play(solo, [choice])
        except InvariantViolation:
            return  # what came contradicts itself; the node stops
        for changed in of(effects, fx.StateChanged):
            assert changed.new in LEGAL_TRANSITIONS[changed.old]
        for persisted in of(effects, fx.PersistCandidateTerm):
            assert persisted.candidate_term_id > candidate
            candidate = persisted.candidate_term_id
        for effect in of(effects, fx.SendToMember):
            vote = effect.message
            if getattr(vote, "vote", None) is True and vote.follower_member_id == 0:  # type: ignore[attr-defined]
                assert voted.setdefault(vote.candidate_term_id, effect.member_id) == effect.member_id  # type: ignore[attr-defined]
        for advanced in of(effects, fx.CommitAdvanced):
            assert advanced.position >= commit
            commit = advanced.position
        assert solo.ctx.commit_position <= solo.ctx.append_position


@settings(max_examples=100)
@given(choices)
def test_nothing_is_due_before_the_deadline_that_was_named(choices: list[Choice]) -> None:
    """`next_deadline_ns`: an agent may sleep until then."""
    solo = Solo(terms=TERMS)
    try:
        play(solo, choices)
    except InvariantViolation:
        return
    deadline_ns = solo.module.next_deadline_ns()
    if deadline_ns - solo.now_ns <= MS // 100:
        return

    solo.now_ns = deadline_ns - MS // 100
    solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)

    assert solo.take() == []


@settings(max_examples=100)
@given(choices)
def test_a_passed_deadline_is_acted_on_or_named_anew(choices: list[Choice]) -> None:
    """Or the agent would poll without end."""
    solo = Solo(terms=TERMS)
    try:
        play(solo, choices)
        for _ in range(50):
            solo.now_ns = max(solo.now_ns, min(solo.module.next_deadline_ns(), 1 << 61))
            before = solo.now_ns
            solo.module.poll(now_ns=solo.now_ns, timestamp=solo.timestamp)
            effects = solo.take()
            assert effects or solo.module.next_deadline_ns() > before
    except InvariantViolation:
        return


def test_effects_are_handed_over_once() -> None:
    solo = Solo()
    solo.module.poll(now_ns=solo.now_ns + 20 * MS, timestamp=0)

    assert solo.module.take_effects() != []
    assert solo.module.take_effects() == []


def test_unknown_event_is_the_callers_bug() -> None:
    with pytest.raises(KeyError):
        Solo().feed(object())


def test_core_says_what_it_is_doing() -> None:
    """STYLE 23: the representation is part of the design."""
    solo = Solo(terms=TERMS)
    assert repr(solo.module) == "<ConsensusModule member=0 FOLLOWER <Election member=0 CANVASS term=1 append=640>>"

    solo.follow()
    assert repr(solo.module) == "<ConsensusModule member=0 FOLLOWER <FollowerTerm term=2 append=640 commit=0>>"

    leader = Solo(terms=TERMS).lead()
    assert repr(leader.module) == "<ConsensusModule member=0 LEADER <LeaderTerm term=2 append=640 commit=640>>"
    assert repr(leader.module.sessions) == "<SessionManager sessions=0 next=1>"
    assert repr(leader.module.timers) == "<TimerService timers=0 fired=0>"
    assert repr(leader.ctx.log_buffer) == "<LogBuffer base=640 append=736 chunks=1>"
