"""Makes the connections of a member to its clients and to other members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ....archive import Archive
from ....service_api.endpoint import Endpoint
from ....service_api.types import ClusterSessionId
from ...core.peers.member_settings import find_seeded, settings_of
from ..ground.agent_door import ModuleAgent
from ..ground.room import Room
from ..ground.wiring import Ground, naming
from .document_server import DocumentRow
from .ingress import Ingress
from .ingress_owner import IngressOwner
from .member_links import MemberLinks
from .session_traffic import SessionClient


class _Agent(ModuleAgent, IngressOwner, Protocol):
    """The agent, as members and clients need it."""


@dataclass(slots=True)
class Documents:
    """The documents that are answered at the consensus endpoint; the rooms above put them in before it listens."""

    rows: dict[int, DocumentRow] = field(default_factory=dict)
    make_status: Callable[[], bytes] = bytes


@dataclass(slots=True, frozen=True)
class Links(Room):
    """The connections of one member, but those that carry the log."""

    ground: Ground
    ingress: Ingress
    members: MemberLinks
    documents: Documents

    async def listen(self) -> None:
        """Listen for clients."""
        endpoint = self.ground.config.listening.ingress
        with naming("ingress", endpoint):
            await self.ingress.start(self.ground.host.network, Endpoint.parse(endpoint))

    async def listen_for_members(self) -> None:
        """Listen for members and for questions, and dial the members: the last step before the member takes part."""
        ground, network, gate = self.ground, self.ground.host.network, self.ground.gate
        endpoint = ground.config.listening.consensus
        with naming("consensus", endpoint):
            await self.members.start(network, Endpoint.parse(endpoint), ground.tasks, gate=gate)
        advertised = Endpoint.parse(ground.config.me.consensus)  # what commands dial
        await self.members.start_locally(network, ground.config.directory, advertised, ground.tasks, gate=gate)

    def look(self) -> None:
        """Look for clients that have left."""
        self.ingress.look()

    def close(self) -> None:
        """Drop every connection."""
        self.ingress.close()
        self.members.close()


def make_links(ground: Ground, agent: _Agent, archive: Archive) -> Links:
    """Make the connections of a member; their events go to its agent."""
    ctx, documents = agent.module.ctx, Documents()
    ingress = Ingress.of_config(agent, ctx, ground.config, gate=ground.gate, trim_memory=ground.host.trim_memory)
    ingress.traffic.find_client = partial(_find_client, agent)
    members = MemberLinks(
        settings_of(ctx),
        ctx.roster,
        post=agent.post,
        find_seeded=lambda: find_seeded(ctx, archive.descriptor(ctx.log_recording_id).start_position),
        make_status=lambda: documents.make_status(),
        documents=documents.rows,
        audit=ground.audit,
    )
    return Links(ground, ingress, members, documents)


def _find_client(agent: _Agent, session_id: ClusterSessionId) -> SessionClient | None:
    """Find what is known of the client of a session; None if the session is not open."""
    sessions = agent.module.sessions
    session = sessions.sessions.get(session_id)
    return None if session is None else SessionClient.of(session, sessions.address_of(session))
