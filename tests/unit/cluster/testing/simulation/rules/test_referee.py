"""Rules of the referee that no plant breaks are shown a cluster that does; whom a rule excuses is excused.

`tests/simulation/test_plants.py` has the others.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.cluster.testing.simulation.small_cluster import Counter, SmallCluster, running_cluster, small_cluster
from tests.unit.cluster.testing.simulation.small_world import SECOND
from trimaran.cluster.messages.consensus import AppendPosition, RequestVote, Vote
from trimaran.cluster.testing.simulation.cluster import DIRECTORY, Member
from trimaran.cluster.testing.simulation.kept_log import KeptLog
from trimaran.cluster.testing.simulation.rules.referee import Referee
from trimaran.cluster.testing.simulation.services.relay import Relay
from trimaran.cluster.testing.simulation.world.expect import RuleBroken, expect
from trimaran.service_api import ClientSession
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.types import TermId


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    with running_cluster() as made:
        yield made


def told(rule: str, facts: str = "") -> pytest.RaisesExc[RuleBroken]:
    """Expect that the referee reports a rule, by its name, and these facts after it."""
    return pytest.raises(RuleBroken, match=f"^{re.escape(rule)}{facts}")


def claim(small: SmallCluster, member: Member, position: int, *, afresh: bool = False) -> None:
    """Let a member call a position committed, and the referee look; afresh: as a process that has claimed nothing."""
    assert member.node is not None
    if afresh:
        small.cluster.on_node(member)
    member.node.module.ctx.commit_position = position
    look(small, member)


def look(small: SmallCluster, member: Member) -> None:
    """Let the referee look as it does after everything that a member does."""
    loop = member.machine.loop
    assert loop is not None
    assert loop.observer is not None
    loop.observer()


def damage(member: Member, position: int, *, length: int = 1) -> None:
    """Change the log of a member on its disk."""
    assert member.node is not None
    path = DIRECTORY / "archive" / f"{member.node.module.ctx.log_recording_id}-0.rec"
    data = member.machine.disk.durable_read(path, length, position)
    assert len(data) == length
    member.machine.disk.damage(path, position, bytes(byte ^ 1 for byte in data))


def vote(member: Member, candidate: Member, term_id: int) -> Vote:
    return Vote(
        candidate_term_id=TermId(term_id),
        log_leadership_term_id=TermId(0),
        log_position=0,
        candidate_member_id=candidate.member_id,
        follower_member_id=member.member_id,
        vote=True,
    )


def append_position(member: Member, position: int, *, term_id: int = 0) -> AppendPosition:
    return AppendPosition(
        leadership_term_id=TermId(term_id), log_position=position, follower_member_id=member.member_id
    )


# --- nothing is wrong


def test_a_healthy_cluster_breaks_no_rule(small: SmallCluster) -> None:
    referee = small.referee
    small.cluster.kill(small.leader.member_id)
    small.wait(lambda: small.cluster.leader() is not None)
    small.send(20, length=3_000)
    for member in small.cluster.members.values():
        small.cluster.start(member.member_id)
    small.cluster.run_for(SECOND)
    small.wait(small.is_at_rest)

    referee.expect_equal([*small.cluster.members.values()])

    assert small.cluster.unhandled == []
    assert len(referee.leaders) == referee.counts.elections == 2
    assert referee.counts.by_kind["message"] == 40
    assert referee.counts.by_kind["term"] == 2
    assert referee.counts.votes >= 4
    assert referee.counts.committed_bytes == len(referee.committed) > 40 * 32
    assert referee.counts.delivered_entries == len(referee.services.delivered)
    assert max(referee.services.delivered) <= len(referee.committed)
    assert all(referee.is_sound(member) for member in small.cluster.members.values())


def test_a_broken_rule_tells_its_facts() -> None:
    expect(1, "nothing", a=1)
    with told("a rule", r": member=1 what='x'$") as raised:
        expect([], "a rule", member=1, what="x")
    assert raised.value.rule == "a rule"


# --- what is committed


def test_a_member_whose_disk_was_damaged_on_purpose_is_excused_for_what_it_has(small: SmallCluster) -> None:
    damage(small.follower, 200)
    small.referee.damaged[small.follower.member_id] = None

    claim(small, small.follower, len(small.referee.committed), afresh=True)


def test_a_member_that_commits_what_it_does_not_have_is_told(small: SmallCluster) -> None:
    beyond = len(small.referee.committed) + small.leader.config.segment_length_bytes

    with told("what is committed is durable where it is called committed"):
        claim(small, small.leader, beyond)


def test_a_member_that_stops_while_its_log_is_purged_may_know_less_than_its_disk(small: SmallCluster) -> None:
    """Seed 21000924: the recording went on to the end of a batch, and the core was told nothing any more."""
    follower = small.follower
    assert follower.node is not None
    view = small.referee._views[follower.member_id]
    view.append_position = follower.node.module.ctx.append_position = len(small.referee.committed) - 32
    view.log_start_position = -1

    look(small, follower)

    assert view.log_start_position == 0


def test_a_member_that_purges_what_it_held_is_told(small: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with bytes gone from the disk, from a log that begins above 0 and after a snapshot."""
    follower = small.follower
    assert follower.node is not None
    kept = (follower.machine.disk, follower.node, 0), KeptLog(0, 64)
    small.referee.disks.kept_logs[follower.member_id] = kept
    monkeypatch.setattr(
        "trimaran.cluster.testing.simulation.rules.referee.complete_snapshot_positions", lambda disk: [96]
    )
    view = small.referee._views[follower.member_id]
    view.append_position = follower.node.module.ctx.append_position = 128
    view.log_start_position = -1
    damage(follower, 256)

    with told("what is committed and was held stays on that disk"):
        look(small, follower)


def test_a_member_that_starts_without_what_it_held_is_told_unless_its_disk_is_another(small: SmallCluster) -> None:
    follower = small.follower
    for is_wiped in (True, False):
        small.cluster.kill(follower.member_id)
        if is_wiped:
            small.cluster.wipe(follower.member_id)
            small.cluster.start(follower.member_id)
            small.wait(small.is_at_rest)
    small.cluster.start(follower.member_id)
    small.wait(small.is_at_rest)

    assert follower.node is not None
    follower.node.module.ctx.append_position = 0
    small.cluster.on_node(follower)
    with told("what is committed and was held stays on that disk"):
        look(small, follower)


# --- leaders


def test_two_leaders_of_one_term_are_told(small: SmallCluster) -> None:
    with told("one leader per term", ": term=0"):
        small.referee._on_leader(small.follower)


@pytest.mark.parametrize("is_emptied", [True, False])
def test_a_leader_that_lacks_what_was_committed_is_told_also_when_its_disk_was_emptied(
    small: SmallCluster, monkeypatch: pytest.MonkeyPatch, is_emptied: bool
) -> None:
    """A flipped bit is no lack; what a member has on a disk that was emptied is whole, as far as it goes."""
    referee, follower = small.referee, small.follower
    assert follower.node is not None
    follower.machine.disk.damage(Path(DIRECTORY / "archive/0-0.rec"), 40, b"?")
    referee.damaged[follower.member_id] = None
    if is_emptied:
        referee.emptied[follower.member_id] = None
    follower.node.module.ctx.leadership_term_id = TermId(9)
    monkeypatch.setattr(referee, "_voted_for", lambda member_id, term_id: follower.member_id)

    with told("a leader has everything") if is_emptied else nullcontext():
        referee._on_leader(follower)


def test_a_leader_that_comes_late_need_not_have_what_a_later_term_committed(small: SmallCluster) -> None:
    """Found by seed 112110101: it won term 10, stood still, and went on when term 11 had long committed more."""
    small.referee.committed += b"more"
    small.referee._committed_in[99] = len(small.referee.committed)

    small.referee._on_leader(small.leader)


# --- what members say


def say(small: SmallCluster, member: Member, message: RequestVote | Vote | AppendPosition) -> None:
    """Let a member send a message on one of its connections to another's consensus port."""
    for transport in small.cluster.network.transports:
        port = Endpoint.parse(small.leader.config.me.consensus).port
        if transport.address[0] == member.machine.address and transport.peer_address[1] == port:
            transport.write(bytes(32) + message.encode())
            return
    raise AssertionError("not connected")


@pytest.mark.parametrize("stood", [True, False])
def test_a_vote_that_was_lost_with_a_disk_counts_unless_it_was_for_a_candidacy_that_ended_with_it(
    small: SmallCluster, stood: bool
) -> None:
    follower, leader, other = small.followers[0], small.leader, small.followers[1]
    small.referee._votes.clear()
    say(small, follower, vote(follower, follower if stood else leader, 0))
    look(small, follower)
    voted, _ = small.referee._votes[follower.member_id, 0]
    small.referee._votes[follower.member_id, 0] = voted, object()

    say(small, follower, vote(follower, other, 0))
    if stood:
        look(small, follower)
    else:
        with told("one vote per term"):
            look(small, follower)


# --- what services are given


def test_a_service_whose_state_depends_on_its_member_is_found_in_a_run() -> None:
    class Fickle(Counter):
        made_count = 0

        def __init__(self) -> None:
            super().__init__()
            Fickle.made_count += 1
            self._number = Fickle.made_count

        def state_hash(self) -> bytes:
            return super().state_hash() + bytes([self._number])

    with small_cluster(make_service=Fickle) as small:
        small.start()
        with told("every service is given the same, and becomes the same"):
            small.send(1)


def test_a_service_that_raises_is_found_in_a_run() -> None:
    class Failing(Counter):
        def on_session_message(self, session: ClientSession, timestamp: int, payload: memoryview) -> None:
            raise ValueError("as expected")

    with small_cluster(make_service=Failing) as small:
        small.start()
        with told("no callback of a service raises", r": .*as expected.*test_referee\.py"):
            small.send(1)


def test_a_second_service_that_becomes_another_is_told(small: SmallCluster) -> None:
    small.referee.services.on_further(
        small.leader, Relay(), 64, ("message", 1, "state"), small.referee.services.relayed
    )

    small.referee.services.on_further(
        small.follower, Relay(), 64, ("message", 1, "another state"), small.referee.services.relayed
    )

    with told("every service is given the same, and becomes the same"):
        look(small, small.follower)


def test_a_service_that_loads_another_state_is_told(small: SmallCluster) -> None:
    small.referee.services.on_loaded(
        small.follower, len(small.referee.committed), b"another state", small.referee.services.delivered
    )

    with told("a service loaded from a snapshot is what every service was at that position"):
        look(small, small.follower)


def test_a_snapshot_of_what_is_not_committed_is_told(small: SmallCluster) -> None:
    small.referee.services.on_loaded(
        small.follower, len(small.referee.committed) + 32, b"", small.referee.services.delivered
    )

    with told("a snapshot holds only what is committed"):
        look(small, small.follower)


# --- the end of a run


def test_members_that_have_not_committed_everything_are_told(small: SmallCluster) -> None:
    members = [*small.cluster.members.values()]
    small.referee.expect_equal(members)
    small.referee.committed += b"more"

    with told("members at rest have committed everything"):
        small.referee.expect_equal(members)


def rules() -> set[str]:
    """Every rule that the referee may tell of, from its source."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(Referee))) if isinstance(node, ast.Call)]
    names = {("expect", 1), ("RuleBroken", 0)}
    return {
        str(argument.value)
        for call in calls
        for name, index in names
        if isinstance(call.func, ast.Name)
        and call.func.id == name
        and isinstance(argument := call.args[index], ast.Constant)
    }
