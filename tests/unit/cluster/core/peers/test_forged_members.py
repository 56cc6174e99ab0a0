"""What a member inside the cluster may say: forged, repeated, reordered. The others refuse or handle it, and go on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.unit.cluster.core.forged import KINDS, OTHERS, PHASES, WAITS_NS, Victim
from tests.unit.cluster.core.node import MS
from tests.unit.cluster.core.solo import S, Solo, of
from trimaran.cluster.core import effects as fx
from trimaran.cluster.core import events as ev
from trimaran.cluster.core.digests import digest_comparison
from trimaran.cluster.messages.consensus import CatchupPosition, StopCatchup, TerminationPosition
from trimaran.cluster.messages.digests import ServiceDigest
from trimaran.cluster.messages.reads import LeadershipProbe
from trimaran.service_api.types import MemberId, TermId

ONE, TWO = OTHERS
SENDERS = st.sampled_from(OTHERS)


class ForgedMembers(RuleBasedStateMachine):
    """Two members that say anything to a third; `Victim` checks it after each step."""

    victim: Victim

    @initialize(phase=st.sampled_from([*PHASES]))
    def begin(self, phase: str) -> None:
        self.victim = Victim(phase)

    @rule(kind=st.sampled_from(KINDS), sender=SENDERS, choices=st.lists(st.integers(0, 63), min_size=16, max_size=16))
    def say(self, kind: Any, sender: MemberId, choices: list[int]) -> None:
        source = iter(choices)
        self.victim.say(sender, self.victim.forge(kind, sender, lambda count: next(source, 0) % count))

    @rule(index=st.integers(0, 63))
    def say_again(self, index: int) -> None:
        said = self.victim.said
        if said:
            self.victim.feed(said[index % len(said)])

    @rule(duration_ns=st.sampled_from(WAITS_NS))
    def wait(self, duration_ns: int) -> None:
        self.victim.wait(duration_ns)

    @rule()
    def record(self) -> None:
        self.victim.record()

    @rule()
    def join(self) -> None:
        self.victim.join()

    @rule(member_id=SENDERS, is_up=st.booleans())
    def change_link(self, member_id: MemberId, is_up: bool) -> None:
        self.victim.feed(ev.LinkChanged(member_id, is_up=is_up))


ForgedMembers.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestForgedMembers = ForgedMembers.TestCase


@pytest.mark.parametrize("phase", PHASES)
def test_no_message_of_any_kind_ends_a_member_or_reaches_its_files(phase: str) -> None:
    """Each kind has its turn: several of it, with any numbers, and time between them."""
    chance = Random(phase)
    for kind in KINDS:
        for _ in range(6):
            victim = Victim(phase)
            for _ in range(4):
                sender = chance.choice(OTHERS)
                victim.say(sender, victim.forge(kind, sender, chance.randrange))
                victim.wait(chance.choice(WAITS_NS))


# --- two leaders in one term


def refusals(effects: list[fx.Effect]) -> list[str]:
    return [refused.message for refused in of(effects, fx.MessageRefused)]


def test_follower_hears_no_second_leader_of_its_term() -> None:
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    term_id = solo.ctx.leadership_term_id

    effects = solo.feed(
        solo.new_term(2, term_id, 640),
        solo.commit(2, 640),
        LeadershipProbe(leadership_term_id=term_id, probe_id=1, leader_member_id=TWO),
    )

    assert refusals(effects) == ["NewLeadershipTerm", "CommitPosition", "LeadershipProbe"]
    assert "which leads leadership_term_id=1" in of(effects, fx.MessageRefused)[0].fault
    assert solo.ctx.leader_member_id == ONE


def test_leader_hears_no_second_leader_of_its_term() -> None:
    solo = Solo(terms=[(0, 0, 640)]).lead()

    effects = solo.feed(solo.new_term(2, solo.ctx.leadership_term_id, 640), solo.commit(2, 640))

    assert refusals(effects) == ["NewLeadershipTerm", "CommitPosition"]
    assert solo.module.leader is not None


def test_member_that_has_lost_its_leader_follows_no_other_one_into_the_same_term() -> None:
    """A member that had lost its leader followed a second one into the same term."""
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    term_id = solo.ctx.leadership_term_id
    solo.feed(ev.LinkChanged(ONE, is_up=False), ev.LogStopped(640))
    assert solo.is_in(S.CANVASS)

    effects = solo.feed(solo.new_term(2, term_id, 640))

    assert refusals(effects) == ["NewLeadershipTerm"]
    assert solo.is_in(S.CANVASS)


def test_leader_that_comes_back_into_its_term_is_heard() -> None:
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    term_id = solo.ctx.leadership_term_id
    solo.feed(ev.LinkChanged(ONE, is_up=False), ev.LogStopped(640))

    effects = solo.feed(solo.new_term(1, term_id, 640))

    assert refusals(effects) == []
    assert solo.ctx.leader_member_id == ONE


# --- what only a leader says


def terminate(solo: Solo, member_id: MemberId, position: int) -> ev.LeaderSaid:
    message = TerminationPosition(leadership_term_id=solo.ctx.leadership_term_id, log_position=position)
    return ev.LeaderSaid(member_id, message)


def test_only_the_leader_ends_a_cluster() -> None:
    """Any member could stop any follower: TerminationPosition names no sender."""
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    solo.feed(solo.commit(1, 640))

    effects = solo.feed(terminate(solo, TWO, 640), ev.DeliveredTo(640))

    assert refusals(effects) == ["TerminationPosition"]
    assert of(solo.effects, fx.Terminate) == []
    solo.feed(terminate(solo, ONE, 640), ev.DeliveredTo(640))
    assert len(of(solo.effects, fx.Terminate)) == 1


@pytest.mark.parametrize("position", [0, 608, 641, 1 << 62])
def test_cluster_ends_where_an_entry_of_the_term_can(position: int) -> None:
    """A termination below the base of the term ended the member with a broken invariant."""
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)

    effects = solo.feed(terminate(solo, ONE, position), ev.DeliveredTo(position))

    assert refusals(effects) == ["TerminationPosition"]
    assert of(solo.effects, fx.Terminate) == []


def test_only_the_leader_ends_a_catchup() -> None:
    """Any member could end another's catch-up too early: StopCatchup names no sender."""
    solo = Solo(terms=[(0, 0, 640)])
    solo.feed(solo.new_term(1, 1, 640, log_position=1280), ev.ReplayDone(0, 0), ev.CatchupImageAvailable(77))
    assert solo.is_in(S.FOLLOWER_CATCHUP)
    stop = StopCatchup(leadership_term_id=TermId(1), follower_member_id=MemberId(0))

    assert refusals(solo.feed(ev.LeaderSaid(TWO, stop))) == ["StopCatchup"]
    assert solo.is_in(S.FOLLOWER_CATCHUP)
    assert refusals(solo.feed(ev.LeaderSaid(ONE, stop))) == []
    assert not solo.is_in(S.FOLLOWER_CATCHUP)


def test_what_an_earlier_leader_said_late_is_no_fault() -> None:
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    late = TerminationPosition(leadership_term_id=TermId(0), log_position=640)

    assert refusals(solo.feed(ev.LeaderSaid(TWO, late))) == []


@pytest.mark.parametrize("endpoint", ["192.0.2.1:9003", "localhost:22", "", "x" * 300])
def test_follower_cannot_say_where_the_log_is_sent(endpoint: str) -> None:
    """A follower could have the leader send its log to any endpoint."""
    solo = Solo(terms=[(0, 0, 640)]).lead()
    request = CatchupPosition(
        leadership_term_id=solo.ctx.leadership_term_id,
        log_position=640,
        follower_member_id=TWO,
        catchup_endpoint=endpoint,
    )

    assert solo.feed(request) == [fx.StartCatchupReplay(TWO, 640, solo.ctx.log_session_id)]


# --- digests


def digest_of(member_id: MemberId, position: int, digest: bytes) -> ServiceDigest:
    return ServiceDigest(member_id=member_id, kind=0, service_id=0, code_digest=0, log_position=position, digest=digest)


def test_member_cannot_push_out_the_digests_that_the_others_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests at positions that nobody reaches took all the room: nothing was compared any more."""
    monkeypatch.setattr(digest_comparison, "_POSITION_LIMIT", 30)
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)
    for count in range(100):
        solo.feed(digest_of(TWO, (1 << 60) + 32 * count, b"forged"))

    solo.module.digests.on_replay_digest(0, 0, 320, b"mine", "")
    solo.feed(digest_of(ONE, 320, b"mine"))

    assert solo.module.digests.compared_count == 1


@pytest.mark.parametrize("position", [-1, -32, 33, 1 << 62])
def test_digest_of_no_place_in_a_log_is_refused(position: int) -> None:
    solo = Solo(terms=[(0, 0, 640)]).follow(leader_id=1)

    assert refusals(solo.feed(digest_of(TWO, position, b"x"))) == ["ServiceDigest"]


def test_victim_is_checked_at_every_step() -> None:
    victim = Victim("follower")
    victim.solo.feed(victim.solo.commit(1, 640))
    victim.wait(15 * MS)
    assert victim.solo.ctx.commit_position == 640

    victim.solo.ctx.commit_position = 320
    with pytest.raises(AssertionError, match="commit position"):
        victim.wait(0)
