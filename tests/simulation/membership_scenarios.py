"""Scenarios of members that do not know who the members are: by a log that they copy again, or cannot read.

And of a standby that follows another one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from trimaran.cluster.core.context import ConsensusContext
from trimaran.cluster.core.events import ActionRequested
from trimaran.cluster.core.vocabulary.configuration import MemberKind
from trimaran.cluster.core.vocabulary.control_toggle import ControlToggle
from trimaran.cluster.core.vocabulary.election_state import ElectionState
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.runtime.turns.agent import ConsensusModuleAgent
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.world.expect import expect

if TYPE_CHECKING:
    from .scenarios import Scene

_S = 1_000_000_000


def a_member_that_was_alone(scene: Scene) -> None:
    """1. A member forms a cluster alone, in a few terms; two others come in.

    2. It loses its disk and joins. What it copies first are the terms in which it was alone.
    3. Then all others stop: it must wait for them.
    """
    first = scene.start()
    scene.add_client()
    for _ in range(6):
        scene.cluster.kill(first.member_id)
        scene.cluster.start(first.member_id)
        scene.await_leader()
        scene.expect_service("clients are served", for_s=0.2, gap_s=5)
    others = _add_two(scene)
    scene.cluster.kill(first.member_id)
    scene.cluster.wipe(first.member_id)
    scene.referee.damaged[first.member_id] = scene.referee.emptied[first.member_id] = None
    scene.cluster.rejoin(first, scene.referee.membership.current.members)
    scene.await_leader()

    scene.cluster.start(first.member_id)
    scene.run_until(lambda: _is_alone(first), 20, "a member that lost its disk copies the log")
    for other in others:
        scene.cluster.kill(other.member_id)
    scene.run(10)
    for other in others:
        scene.cluster.start(other.member_id)
    scene.await_leader()
    scene.expect_service("a healed majority serves its clients", for_s=2, gap_s=10)


def members_that_cannot_read_who_they_are(scene: Scene) -> None:
    """Three become five. Two of the first have damaged logs, and are a majority of the three alone."""
    scene.start()
    scene.add_client()
    scene.expect_service("clients are served", for_s=0.5, gap_s=5)
    place = len(scene.referee.committed) - 200  # a start reads the first entry of each term, and this is none
    _add_two(scene)
    scene.add_flood("flood", 1_000)  # a start reads its last segment whole, and must have no fault there
    length = scene.settings.segment_length_bytes
    scene.run_until(lambda: len(scene.referee.committed) > length + (8 << 10), 30, "clients are served")
    scene.cluster.clients["flood"].kill()
    scene.run(1)
    members = [*scene.cluster.members.values()]
    for member in members:
        scene.cluster.kill(member.member_id)
    damaged, whole = members[:2], members[2:]
    for member in damaged:
        disk, path = member.machine.disk, member.config.directory / "archive" / "0-0.rec"
        disk.damage(path, place, b"\xff" * 64)
        scene.referee.damaged[member.member_id] = None
        scene.failures[member.member_id] = None

    for member in damaged:
        scene.cluster.start(member.member_id)
    scene.run(40)  # a start waits for members that may mend it, and goes on then
    expect(all(member.is_running for member in damaged), "members wait for others who know", cluster=scene.cluster)
    for member in whole:
        scene.cluster.start(member.member_id)
    scene.await_leader()
    scene.expect_service("a healed majority serves its clients", for_s=2, gap_s=10)


def a_standby_whose_source_stands_still(scene: Scene) -> None:
    """A standby follows another one, which stands still and closes no link: what is committed comes to it all the same.

    Not from there: it may wait for its source for a heartbeat timeout, and then takes the log from the leader.
    """
    scene.start()
    scene.add_client()
    source = _add_standby(scene, None)
    follower = _add_standby(scene, source)
    scene.run_until(lambda: _context(follower).is_relayed, 20, "a standby takes the log from its source")
    scene.cluster.pause(source.member_id)
    scene.run(0.1)
    committed = len(scene.referee.committed)
    scene.run(1)
    wanted = len(scene.referee.committed)
    expect(wanted > committed, "clients are served while a standby stands still", cluster=scene.cluster)
    rule = "a standby whose source sends nothing has what is committed"
    scene.run_until(lambda: _context(follower).commit_position >= wanted, 10, rule)


def _add_standby(scene: Scene, source: Member | None) -> Member:
    """Add a standby, which may be to follow another one; give it once it takes part in the term."""
    number = max(scene.cluster.members) + 1
    member = scene.cluster.add_member(number, scene.referee.membership.current.members, is_standby=True)
    scene.cluster.set_log_source(member, None if source is None else source.member_id)
    scene.cluster.start(number)
    add = MemberChange(MemberChangeKind.ADD_STANDBY, number, scene.cluster.endpoints_at(number, 0))
    change_members(scene, add, lambda kind: kind is not None)
    scene.run_until(
        lambda: member.node is not None and member.node.module.follower is not None, 20, "a standby takes part"
    )
    return member


def _context(member: Member) -> ConsensusContext:
    assert member.node is not None
    return member.node.module.ctx


def _is_alone(member: Member) -> bool:
    """Whether a member follows, and has of its log only what says that it is alone."""
    module = None if member.node is None else member.node.module
    election = None if module is None else module.election
    is_copying = election is not None and election.state is ElectionState.FOLLOWER_LOG_REPLICATION
    return module is not None and is_copying and module.ctx.roster.is_alone


def _add_two(scene: Scene) -> list[Member]:
    """Add two members, one after the other, and make them voters; gives them."""
    made = []
    for _ in range(2):
        current = scene.referee.membership.current
        number = max(scene.cluster.members) + 1
        member = scene.cluster.add_member(number, current.members)
        scene.cluster.start(number)
        add = MemberChange(MemberChangeKind.ADD, number, scene.cluster.endpoints_at(number, 0))
        change_members(scene, add, lambda kind: kind is not None)
        change_members(scene, MemberChange(MemberChangeKind.PROMOTE, number), lambda kind: kind is MemberKind.VOTER)
        made.append(member)
    return made


def change_members(scene: Scene, change: MemberChange, is_done: Callable[[MemberKind | None], bool]) -> None:
    """Order a change until the members are as it makes them."""

    def is_fulfilled() -> bool:
        found = None if change.member_id is None else scene.referee.membership.current.find(change.member_id)
        return is_done(None if found is None else found.kind)

    for _ in range(20):
        leader = scene.await_leader()
        assert leader.node is not None
        leader.machine.run_beside(partial(_order, leader.node.agent, change))
        if scene.cluster.run_until(is_fulfilled, limit_ns=_S):
            return
    expect(False, "members are changed", change=change, cluster=scene.cluster)


async def _order(agent: ConsensusModuleAgent, change: MemberChange) -> None:
    async for _ in agent.run_action(ActionRequested(0, ControlToggle.CHANGE_MEMBERS, change=change)):
        pass
