"""A member that is reluctant to lead: a willing one with an equal log wins, and without one it leads all the same."""

from __future__ import annotations

import pytest

from tests.unit.cluster.core.harness import Cluster
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, of, path
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.vocabulary.reason import ReasonKind
from trimaran.cluster.core.vocabulary.reluctance import Reluctance
from trimaran.service_api.types import MemberId

ELECTION_TIMEOUT = 50 * MS
HELD = ev.ReluctanceChanged(Reluctance.SERVICE_HELD, "holds before position=640")
CLOCK_OFF = ev.ReluctanceChanged(Reluctance.CLOCK_OFF, "3,600 s ahead")


def reluctant(event: ev.ReluctanceChanged = CLOCK_OFF, **facts: object) -> Solo:
    """Member 0, which has a log and would rather not lead."""
    solo = Solo(terms=[(0, 0, 640)], **facts)  # type: ignore[arg-type]  # passed on
    solo.feed(event)
    return solo


def canvass_all(solo: Solo, position: int = 640) -> None:
    """Both others say that their logs end here."""
    solo.feed(solo.canvass(1, 0, position), solo.canvass(2, 0, position))


# --- one member


def test_reluctant_member_leaves_a_canvass_to_a_willing_one() -> None:
    solo = reluctant()

    canvass_all(solo)

    assert solo.is_in(S.CANVASS)
    (refused,) = of(solo.effects, fx.NominationRefused)
    assert refused.reason.kind is ReasonKind.RELUCTANT
    assert "clock_off" in str(refused.reason)
    assert "1, 2" in str(refused.reason)


def test_reluctant_member_stands_when_no_willing_one_has_won_in_the_time_of_two_ballots() -> None:
    solo = reluctant()
    canvass_all(solo)

    solo.wait(2 * ELECTION_TIMEOUT - 1)
    canvass_all(solo)
    assert solo.is_in(S.CANVASS)
    solo.wait(2 * ELECTION_TIMEOUT)

    assert "NOMINATE" in path(solo.effects)


def test_time_that_a_reluctant_member_leaves_is_not_given_again_after_a_ballot() -> None:
    """1. It holds back, and votes for a willing member. 2. That ballot leads to nothing. 3. It stands at once."""
    solo = reluctant()
    canvass_all(solo)
    solo.wait(2 * ELECTION_TIMEOUT - MS)
    solo.feed(solo.request_vote(1, 1, 0, 640))
    assert solo.is_in(S.FOLLOWER_BALLOT)
    solo.wait(2 * ELECTION_TIMEOUT)
    assert solo.is_in(S.CANVASS)

    canvass_all(solo)

    assert solo.is_in(S.NOMINATE)


def test_reluctant_member_that_alone_has_the_newest_log_waits_for_the_end_of_the_canvass_too() -> None:
    """The others' canvass has to be over before they may stand without this member."""
    solo = reluctant()
    canvass_all(solo, position=320)

    solo.wait(200 * MS)
    canvass_all(solo, position=320)

    assert solo.is_in(S.CANVASS)


def test_member_that_is_willing_again_stands_at_once() -> None:
    solo = reluctant()
    canvass_all(solo)

    solo.feed(ev.ReluctanceChanged(Reluctance.CLOCK_OFF, None))
    canvass_all(solo)

    assert solo.is_in(S.NOMINATE)
    assert of(solo.effects, fx.ReluctanceNoted)[-1] == fx.ReluctanceNoted(Reluctance.CLOCK_OFF, None)


@pytest.mark.parametrize("what", ["reluctant", "no voter", "unreachable"])
def test_reluctant_member_stands_at_once_where_no_willing_one_can(what: str) -> None:
    solo = reluctant()
    for member in solo.ctx.others:
        member.reluctance = Reluctance.SERVICE_HELD.value if what == "reluctant" else 0
    if what == "no voter":
        solo.feed(solo.canvass(1, 0, 640), solo.canvass(2, 0, 640, term_id=-1))
        solo.ctx.members[MemberId(1)].reluctance = Reluctance.SERVICE_HELD.value
    elif what == "unreachable":
        solo.wait(700 * MS)
        solo.feed(ev.LinkChanged(MemberId(2), is_up=False), ev.LinkChanged(MemberId(1), is_up=False))
        solo.feed(solo.canvass(1, 0, 640))
    canvass_all(solo) if what == "reluctant" else solo.wait(20 * MS)

    assert "NOMINATE" in path(solo.effects)


def test_only_member_leads_however_reluctant() -> None:
    solo = Solo(member_count=1, terms=[(4, 0, 640)], is_started=False)
    solo.ctx.note_reluctance(Reluctance.SERVICE_HELD, "holds")

    solo.start()

    assert path(solo.effects) == ["LEADER_LOG_REPLICATION", "LEADER_REPLAY"]


# --- a leader


def test_leader_whose_clock_is_off_goes_on_and_says_so() -> None:
    solo = Solo(terms=[(0, 0, 640)]).lead()
    solo.feed(solo.append_position(1, 640))

    effects = solo.feed(CLOCK_OFF)

    assert solo.module.leader is not None
    assert of(effects, fx.ReluctanceNoted) == [fx.ReluctanceNoted(Reluctance.CLOCK_OFF, "3,600 s ahead")]


def test_leader_whose_service_holds_gives_up_its_term_where_another_can_lead() -> None:
    solo = Solo(terms=[(0, 0, 640)]).lead()
    solo.feed(solo.append_position(1, 640))

    effects = solo.feed(HELD)

    assert solo.module.election is not None
    (started,) = of(effects, fx.ElectionStarted)
    assert started.reason.kind is ReasonKind.LEADER_RELUCTANT


def test_leader_whose_service_holds_goes_on_where_every_other_member_is_reluctant_too() -> None:
    solo = Solo(terms=[(0, 0, 640)]).lead()
    solo.feed(solo.append_position(1, 640))
    for member in solo.ctx.others:
        member.reluctance = Reluctance.SERVICE_HELD.value

    solo.feed(HELD)

    assert solo.module.leader is not None


# --- whole clusters


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reluctant_id", range(3))
def test_willing_member_with_an_equal_log_wins(seed: int, reluctant_id: int) -> None:
    cluster = Cluster(seed)
    cluster.start()
    cluster.nodes[MemberId(reluctant_id)].post(CLOCK_OFF)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)

    leader = cluster.leader()
    assert leader is not None
    assert leader.member_id != reluctant_id
    cluster.settle()


@pytest.mark.parametrize("seed", range(3))
def test_cluster_of_reluctant_members_elects_a_leader(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.start()
    for node in cluster.nodes.values():
        node.post(CLOCK_OFF)

    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.settle()


@pytest.mark.parametrize("seed", range(3))
def test_leader_that_holds_is_followed_by_a_willing_one(seed: int) -> None:
    cluster = Cluster(seed)
    cluster.start()
    assert cluster.run_until(lambda: cluster.leader() is not None, limit_ns=5_000 * MS)
    cluster.run(200 * MS)
    held = cluster.leader()
    assert held is not None

    held.post(HELD)

    assert cluster.run_until(lambda: cluster.leader() not in (None, held), limit_ns=5_000 * MS)
    cluster.settle()
