"""Why: every start of an election, every refusal and every change of state says so, to programs and to people."""

from __future__ import annotations

import re
import string

import pytest

from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.election.election import LastElection
from trimaran.cluster.core.vocabulary.reason import Reason, ReasonKind
from trimaran.service_api.types import MemberId


def test_reason_is_a_kind_its_facts_and_a_sentence() -> None:
    reason = Reason(ReasonKind.VOTED, member_id=2)

    assert (reason.name, str(reason)) == ("voted", "voted for member 2")
    assert reason == Reason(ReasonKind.VOTED, member_id=2)
    assert reason != Reason(ReasonKind.VOTED, member_id=1)
    assert repr(reason) == "<Reason VOTED: voted for member 2>"


@pytest.mark.parametrize("kind", ReasonKind, ids=lambda kind: kind.name)
def test_every_kind_has_a_sentence_of_its_own(kind: ReasonKind) -> None:
    """Two kinds with one sentence would be one kind: an enum makes the second a second name of the first."""
    facts = {name: 7 for _, name, _, _ in string.Formatter().parse(kind.value) if name is not None}

    assert "{" not in str(Reason(kind, **facts))
    assert ReasonKind[kind.name] is kind
    assert len(ReasonKind.__members__) == len(ReasonKind)


def test_second_candidate_of_a_term_is_refused_with_the_reason() -> None:
    solo = Solo(terms=[(0, 0, 64)])
    solo.feed(solo.request_vote(1, 1, 0, 64))

    effects = solo.feed(solo.request_vote(2, 1, 0, 64))

    reason = Reason(ReasonKind.VOTED_IN_TERM, candidate_term_id=1)
    assert of(effects, fx.VoteRefused) == [fx.VoteRefused(MemberId(2), 1, reason)]


def test_candidate_with_an_older_log_is_refused_with_the_reason() -> None:
    solo = Solo(terms=[(0, 0, 64)])

    (refused,) = of(solo.feed(solo.request_vote(2, 5, 0, 32)), fx.VoteRefused)

    assert re.search("newer.* term 0 at 64.* term 0 at 32", str(refused.reason))


def test_last_election_is_kept_for_the_status_page() -> None:
    """Its reason, when it began, when it was over and which term came of it."""
    solo = Solo(terms=[(0, 0, 64)], is_started=False)
    began_ns = solo.now_ns
    solo.start()
    started = solo.module.last_election
    assert started == LastElection(Reason(ReasonKind.NODE_STARTED), began_ns)

    solo.now_ns += 5 * MS
    solo.follow()
    assert started == LastElection(Reason(ReasonKind.NODE_STARTED), began_ns, began_ns + 5 * MS, 1)

    solo.now_ns += 5 * MS
    solo.feed(ev.LogImageClosed(77, "connection reset"))
    reason = Reason(ReasonKind.LOG_LINK_CLOSED, detail="connection reset")
    assert solo.module.last_election == LastElection(reason, began_ns + 10 * MS)
