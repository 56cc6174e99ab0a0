"""Puts together what a member keeps on its disk, once it is open."""

from __future__ import annotations

from dataclasses import dataclass

from ....archive import Archive, Recording
from ...core.context import ConsensusContext
from ..ground.agent_door import ModuleAgent
from ..ground.room import Room
from ..ground.wiring import Ground
from .cluster_identity import ClusterIdentity, ClusterIds
from .copy_notes import CopyNotes
from .member_files import MemberFiles


@dataclass(slots=True, frozen=True)
class Files(Room):
    """The files of one member, and what keeps them up to date."""

    ground: Ground
    member: MemberFiles
    archive: Archive
    log: Recording
    """The recording of the log, as it was when the member was opened."""
    identity: ClusterIdentity
    copy_notes: CopyNotes
    ctx: ConsensusContext

    @property
    def log_start_position(self) -> int:
        """Where the log begins that is still here."""
        return self.archive.descriptor(self.ctx.log_recording_id).start_position

    def look(self) -> None:
        """Show in the mark file that this process is alive, and note what has changed."""
        self.member.mark.update_activity(self.ground.host.clock.epoch_time())
        self.identity.look()
        self.copy_notes.look()


def make_files(
    ground: Ground, agent: ModuleAgent, member: MemberFiles, archive: Archive, log: Recording, ids: ClusterIds
) -> Files:
    """Make what writes the files of a running member; `ids` are the cluster ids that the members announce."""
    module = agent.module
    identity = ClusterIdentity(member.cluster_id, module, archive, ids, on_failed=agent.terminate)
    copy_notes = CopyNotes(
        module.ctx, member.log_copies, network=ground.host.network, tasks=ground.tasks, on_failed=agent.terminate
    )
    return Files(ground, member, archive, log, identity, copy_notes, module.ctx)
