"""Who is there: the rooms of one member, from the ground up. What is wired to what is in each room's `wiring`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...archive import Archive, Recording
from ...service_api import ClusteredService
from ..runtime.answering.wiring import Answers, make_answers
from ..runtime.files.member_files import MemberFiles
from ..runtime.files.wiring import Files, make_files
from ..runtime.ground.room import Room
from ..runtime.ground.wiring import Ground
from ..runtime.links.wiring import Links, make_links
from ..runtime.repair.wiring import Repair, make_repair
from ..runtime.snapshots.recovery import Recovered
from ..runtime.snapshots.wiring import Snapshots, make_snapshots, restore_container
from ..runtime.turns.agent import ConsensusModuleAgent
from ..runtime.turns.wiring import AgentTurns, make_member_container, make_turns
from ..service.service_code import CodeGuard
from ..service.wiring import Container


@dataclass(slots=True, frozen=True)
class MemberParts:
    """The rooms of one member."""

    ground: Ground
    links: Links
    files: Files
    container: Container
    snapshots: Snapshots
    repair: Repair
    turns: AgentTurns
    answers: Answers

    @property
    def rooms(self) -> tuple[Room, ...]:
        """The rooms in the order in which they open; they close in the reverse one."""
        return self.ground, self.links, self.files, self.snapshots, self.repair, self.turns, self.answers


def make_parts(
    ground: Ground,
    agent: ConsensusModuleAgent,
    files: MemberFiles,
    archive: Archive,
    log: Recording,
    services: Sequence[ClusteredService],
    code: CodeGuard,
    recovered: Recovered | None,
    *,
    holds: bool,
) -> MemberParts:
    """Make the rooms of a member whose files are open, and whose consensus module knows the members."""
    links = make_links(ground, agent, archive)
    own_files = make_files(ground, agent, files, archive, log, links.members)
    container = make_member_container(ground, agent, own_files, services, code)
    if recovered is not None:
        restore_container(container, recovered)
    snapshots = make_snapshots(ground, agent, own_files, container, links)
    repair = make_repair(ground, agent, own_files)
    turns = make_turns(ground, agent, own_files, container, links, snapshots, repair, holds=holds)
    answers = make_answers(ground, own_files, container, links, snapshots, repair, turns)
    return MemberParts(ground, links, own_files, container, snapshots, repair, turns, answers)
