"""The agent that takes a member's turns, as every room sees it, and how a member ends."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from ...core.consensus_module import ConsensusModule


class NodeEnd(Enum):
    """Why a node has ended in order."""

    STOPPED = "stopped"
    SNAPSHOT_INSTALLED = "snapshot installed"
    """Its files hold another member's snapshot now."""
    ENTRY_SKIPPED = "entry skipped"
    """An entry is to be skipped that it has delivered, or holds before."""
    LOG_DIFFERED = "log differed"
    """A range of its log was not that of others: it was mended, or the member is to hold before it, or no more."""
    ENTRY_HELD = "entry held"
    """Its service failed for the second time at one entry, before which it is to stand still."""

    @property
    def is_restart(self) -> bool:
        """True if the node is opened again in the same process, with a service that knows nothing."""
        return self is not NodeEnd.STOPPED


class AgentDoor(Protocol):
    """The consensus module's agent, as the parts below it see it."""

    def post(self, event: object) -> None:
        """Hand a message or an event to the core."""

    def terminate(self, error: BaseException | None) -> None:
        """Stop this member: in order, or because of an error that it cannot live with."""

    def restart(self, end: NodeEnd) -> None:
        """Stop this member, to be opened again in this process."""


class ModuleAgent(AgentDoor, Protocol):
    """The agent with the consensus module that it drives, for those who make the parts."""

    @property
    def module(self) -> ConsensusModule:
        """The consensus module."""
