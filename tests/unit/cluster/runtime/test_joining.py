"""A member whose log says nothing of the members goes by what it remembers, until its log says more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

from tests.unit.cluster.core.rosters import configured
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.membership.configuration import Configuration
from trimaran.cluster.core.membership.roster import Roster
from trimaran.cluster.runtime.files.members_file import MembersFile
from trimaran.cluster.runtime.joining import settle_roster
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.cluster.simulation.world.network import Network
from trimaran.cluster.simulation.world.scheduler import Scheduler
from trimaran.service_api.types import MemberId


def of(*ids: int, at: int = 0) -> Configuration:
    """Voters of these ids."""
    return Configuration(members=tuple(map(configured, ids)), high_member_id=max(ids), log_position=at)


def settled(remembered: Configuration) -> Roster:
    """Member 3, which joins with an empty log, and a file of members."""
    config = NodeConfig(
        member_id=3,
        members=parse_members("3=host3:9000"),
        join="0=host0:9000",
        directory=Path("/member"),
        service="a:B",
    )
    file = MembersFile(Path("/member/members"), remembered, MemoryFileSystem())
    roster = Roster(MemberId(3), of(3))
    asyncio.run(settle_roster(config, Network(Scheduler(), Random(1)), file, roster))
    return roster


def test_members_that_are_remembered_count_and_are_dialled_while_the_log_is_empty() -> None:
    roster = settled(of(0, 1, 2, 3, at=6_400))

    assert roster.current.voter_ids == {0, 1, 2, 3}
    assert [*roster.addresses] == [0, 1, 2, 3]


def test_the_log_of_a_member_that_joins_says_who_the_members_were_there() -> None:
    """Else a snapshot that it takes there names members that came later, and differs from all others."""
    roster = settled(of(0, 1, 2, 3, at=6_400))

    roster.history.append(of(0, 1, 2, at=320))
    roster.refresh()

    assert roster.history.committed(640) == of(0, 1, 2, at=320)
    assert roster.current.voter_ids == {0, 1, 2}
    assert roster.latest == replace(of(0, 1, 2, 3), log_position=6_400)
    assert [*roster.addresses] == [0, 1, 2, 3]
