"""Planted bugs and directed scenarios of callers that claim more than they have shown, or show what does not count."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from trimaran.cluster.core.peers.member_settings import settings_of
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfiguredMember, MemberKind
from trimaran.cluster.core.vocabulary.member_change import MemberChange, MemberChangeKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.cluster.messages.consensus import AppendPosition
from trimaran.cluster.messages.settings import MembersNotice
from trimaran.cluster.runtime.links import inbound_greeting
from trimaran.cluster.testing.simulation.cluster import Member
from trimaran.cluster.testing.simulation.world.expect import expect
from trimaran.service_api import ClusterError
from trimaran.service_api.access.identity import Caller, CallerRole, Proof
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.access.rights import Holder, Rights
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.net.connection_gate import AcceptedConnection
from trimaran.service_api.net.transport import Purpose
from trimaran.service_api.types import CONSENSUS_STREAM_ID, MemberId, TermId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message

from .membership_scenarios import change_members
from .plant import Plant, Planting

if TYPE_CHECKING:
    from .scenarios import Scene

_INTERVAL_S: Final = 0.005
_ORDERS: Final = (Operation.SUSPEND, Operation.SHUTDOWN, Operation.ABORT)
"""What keeps a cluster from serving."""


def a_member_that_speaks_as_another(scene: Scene) -> None:
    """The leader is alone, and who has one follower's certificate says, as the other, that all is recorded there."""
    leader = scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    first, second = scene.followers()
    scene.cluster.network.identify("forger", Caller(CallerRole.MEMBER, str(second.member_id), Proof.CERTIFICATE))
    for follower in (first, second):
        scene.isolate(follower)
    scene.cluster.add_client("forger", lambda: _forge(scene, leader, MemberId(first.member_id)))
    scene.run(3)
    scene.cluster.network.unblock_all()
    scene.expect_service("clients are served once members hear each other again", for_s=2, gap_s=10)


async def _forge(scene: Scene, leader: Member, claimed: MemberId) -> None:
    """Claim to be a follower that has recorded everything, again and again."""
    endpoint = Endpoint.parse(leader.config.me.consensus)
    while leader.node is not None:
        ctx = leader.node.module.ctx
        transport, _ = await scene.cluster.network.dial(Purpose.CONSENSUS, endpoint, asyncio.Protocol)
        setup = SetupFrame(session_id=claimed, stream_id=CONSENSUS_STREAM_ID, member_id=claimed)
        settings = settings_of(ctx).model_copy(update={"member_id": claimed})
        transport.write(setup.encode() + _framed(settings))
        while not transport.is_closing() and leader.node is not None:
            position = AppendPosition(
                leadership_term_id=TermId(ctx.leadership_term_id),
                log_position=ctx.append_position,
                follower_member_id=claimed,
            )
            transport.write(_framed(position))
            await asyncio.sleep(_INTERVAL_S)
        await asyncio.sleep(_INTERVAL_S)


def _framed(message: Message) -> bytes:
    return encode_frame(message.encode(), stream_id=CONSENSUS_STREAM_ID)


def orders_of_who_may_not_give_them(scene: Scene) -> None:
    """A stranger, a client and an observer order the cluster to stand still and to stop, and it serves on."""
    leader = scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    for role in (None, CallerRole.CLIENT, CallerRole.OBSERVER):
        name = f"caller-{role}"
        if role is not None:
            scene.cluster.network.identify(name, Caller(role, "eve", Proof.CERTIFICATE))
        scene.cluster.add_client(name, lambda: _order(scene, leader))
    scene.expect_service("only operators and members keep a cluster from serving", for_s=3, gap_s=1)


async def _order(scene: Scene, leader: Member) -> None:
    """Order everything that keeps a cluster from serving, once."""
    for operation in _ORDERS:
        with contextlib.suppress(ClusterError):  # it is refused
            asking = run_operation(leader.config.me.consensus, operation, 1.0, network=scene.cluster.network)
            async for _ in asking:
                pass


def a_removed_member_that_asks_on(scene: Scene) -> None:
    """A holder of a removed member's certificate keeps a link open, and orders the cluster to stand still."""
    leader = scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    removed, other = scene.followers()
    scene.cluster.network.identify("thief", Caller(CallerRole.MEMBER, str(removed.member_id), Proof.CERTIFICATE))
    links: list[asyncio.Transport] = []
    scene.cluster.add_client("thief", lambda: _link(scene, [leader, other], removed.member_id, links))
    scene.run_until(lambda: len(links) == 2, 5, "a member's certificate opens links")
    remove = MemberChange(MemberChangeKind.REMOVE, removed.member_id)
    change_members(scene, remove, lambda kind: kind is None)
    over = "the links of a removed member end"
    scene.run_until(lambda: all(link.is_closing() for link in links), 10, over)
    scene.cluster.clients["thief"].kill()
    scene.cluster.add_client("thief", lambda: _order(scene, leader))
    scene.expect_service("only operators and members keep a cluster from serving", for_s=3, gap_s=1)


async def _link(scene: Scene, members: Sequence[Member], claimed: MemberId, links: list[asyncio.Transport]) -> None:
    """Open links as a member, and keep them."""
    for member in members:
        assert member.node is not None
        endpoint = Endpoint.parse(member.config.me.consensus)
        transport, _ = await scene.cluster.network.dial(Purpose.CONSENSUS, endpoint, asyncio.Protocol)
        setup = SetupFrame(session_id=claimed, stream_id=CONSENSUS_STREAM_ID, member_id=claimed)
        settings = settings_of(member.node.module.ctx).model_copy(update={"member_id": claimed})
        transport.write(setup.encode() + _framed(settings))
        links.append(transport)
    await asyncio.Event().wait()


def a_member_that_was_never_added(scene: Scene) -> None:
    """A process with a certificate of a member that was never added tells all members that the members are others."""
    leader = scene.start()
    scene.add_client()
    scene.run_until(lambda: scene.history.acknowledged_count >= 20, 10, "a cluster serves")
    forger = MemberId(9)
    scene.cluster.network.identify("forger", Caller(CallerRole.MEMBER, str(forger), Proof.CERTIFICATE))
    scene.cluster.add_client("forger", lambda: _say_members(scene, leader, forger))
    scene.expect_service("a cluster serves that is told of other members", for_s=3, gap_s=1)
    members = [*scene.cluster.members.values()]
    expect(all(member.is_running for member in members), "members go by their log", cluster=scene.cluster)


async def _say_members(scene: Scene, leader: Member, forger: MemberId) -> None:
    """Say to every member, again and again, that the forger is the only one."""
    assert leader.node is not None
    ctx = leader.node.module.ctx
    address = scene.cluster.endpoints_at(forger, 0)
    alone = Configuration.of_settings([ConfiguredMember(forger, MemberKind.VOTER, address)])
    notice = MembersNotice(member_id=forger, log_position=1 << 40, cluster_members=alone.encode_text())
    setup = SetupFrame(session_id=forger, stream_id=CONSENSUS_STREAM_ID, member_id=forger)
    settings = settings_of(ctx).model_copy(update={"member_id": forger})
    while True:
        for member in [*scene.cluster.members.values()]:
            endpoint = Endpoint.parse(member.config.me.consensus)
            with contextlib.suppress(OSError):
                transport, _ = await scene.cluster.network.dial(Purpose.CONSENSUS, endpoint, asyncio.Protocol)
                transport.write(setup.encode() + _framed(settings) + _framed(notice))
        await asyncio.sleep(20 * _INTERVAL_S)


def _believe_setup_frames(planting: Planting) -> None:
    """The member id of a setup frame is not held against the certificate."""

    def expect_speaker(accepted: AcceptedConnection, setup: SetupFrame) -> None:
        if accepted.caller.member_id != setup.member_id:
            planting.ran()

    planting.replace(inbound_greeting, "expect_speaker", expect_speaker)


def _check_no_permission(planting: Planting) -> None:
    """A caller is known, and the table of permissions is not asked about it."""
    may = AcceptedConnection.may

    def may_everything(self: AcceptedConnection, permission: Permission) -> bool:
        if not may(self, permission):
            planting.ran()
        return True

    planting.replace(AcceptedConnection, "may", may_everything)


def _keep_the_rights_of_who_is_removed(planting: Planting) -> None:
    """A member's certificate counts for as long as it is valid."""
    real = Roster.judge

    def judge(self: Roster, shown: Caller) -> Caller:
        if real(self, shown) != shown:
            planting.ran()
        return shown

    planting.replace(Roster, "judge", judge)


def _let_open_connections_be(planting: Planting) -> None:
    """Keep the rights that were given before they ended."""

    def review(self: Rights, holders: Iterable[Holder]) -> None:
        if any(holder.lost_permissions for holder in holders):
            planting.ran()

    planting.replace(Rights, "review", review)


def _believe_rumours(planting: Planting) -> None:
    """A member's certificate is enough to be believed who the members are."""
    real = Roster.vouches_for

    def vouches_for(self: Roster, member_id: MemberId) -> bool:
        if not real(self, member_id):
            planting.ran()
        return True

    planting.replace(Roster, "vouches_for", vouches_for)


PLANTS = (
    Plant(
        "setup-frame-believed",
        1,
        "a setup frame names the member that the certificate shows",
        _believe_setup_frames,
        scenario="member-as-another",
    ),
    Plant(
        "permission-not-checked",
        27,
        "a caller has what the table of permissions gives to its role",
        _check_no_permission,
        scenario="orders-of-others",
    ),
    Plant(
        "right-outlives-member",
        18,
        "what a member's certificate may do is decided with the members that the log names",
        _keep_the_rights_of_who_is_removed,
        scenario="removed-member-asks-on",
    ),
    Plant(
        "open-connection-kept",
        18,
        "a connection ends with the right that it was let in for",
        _let_open_connections_be,
        scenario="removed-member-asks-on",
    ),
    Plant(
        "rumour-believed",
        16,
        "who the members are is believed from a member alone",
        _believe_rumours,
        scenario="member-never-added",
    ),
)
