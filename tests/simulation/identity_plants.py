"""Planted bugs and directed scenarios of callers that claim more than they have shown: another member, an operator."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from trimaran.cluster.core.member_settings import settings_of
from trimaran.cluster.documents.operations import Operation, run_operation
from trimaran.cluster.messages.consensus import AppendPosition
from trimaran.cluster.runtime.links import member_links
from trimaran.cluster.simulation.cluster import Member
from trimaran.service_api import ClusterError
from trimaran.service_api.access.permissions import Permission
from trimaran.service_api.connection_gate import AcceptedConnection
from trimaran.service_api.endpoint import Endpoint
from trimaran.service_api.identity import Caller, CallerRole, Proof
from trimaran.service_api.transport import Purpose
from trimaran.service_api.types import CONSENSUS_STREAM_ID, MemberId, TermId
from trimaran.service_api.wire.frame import encode_frame
from trimaran.service_api.wire.link_frames import SetupFrame
from trimaran.service_api.wire.message import Message

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


def _believe_setup_frames(planting: Planting) -> None:
    """The member id of a setup frame is not held against the certificate."""

    def expect_speaker(accepted: AcceptedConnection, setup: SetupFrame) -> None:
        if accepted.caller.member_id != setup.member_id:
            planting.ran()

    planting.replace(member_links, "expect_speaker", expect_speaker)


def _check_no_permission(planting: Planting) -> None:
    """A caller is known, and the table of permissions is not asked about it."""
    may = AcceptedConnection.may

    def may_everything(self: AcceptedConnection, permission: Permission) -> bool:
        if not may(self, permission):
            planting.ran()
        return True

    planting.replace(AcceptedConnection, "may", may_everything)


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
)
