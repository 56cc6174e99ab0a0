"""A member whose log says nothing of the members goes by what it remembers, until its log says more."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest

from tests.facts import has_facts
from tests.unit.cluster.cli.shared.test_inspection import members_view
from tests.unit.cluster.core.rosters import configured
from trimaran.archive.disk.memory_file_system import MemoryFileSystem
from trimaran.cluster.core.vocabulary.configuration import Configuration
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.cluster.documents.inspection import MembersView
from trimaran.cluster.runtime.files.members_file import MembersFile
from trimaran.cluster.runtime.repair import joining
from trimaran.cluster.runtime.repair.joining import find_cluster, settle_roster
from trimaran.cluster.settings.config import NodeConfig, parse_members
from trimaran.cluster.testing.simulation.world.network import Network
from trimaran.cluster.testing.simulation.world.scheduler import Scheduler
from trimaran.service_api import ConfigurationError
from trimaran.service_api.net.transport import NetworkStack
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


def join_as(member_id: int, at: int, *, found: Configuration) -> Configuration:
    """Join as a process with an id at the endpoints of another one, and be told the members."""
    config = NodeConfig(
        member_id=member_id,
        members=parse_members(f"{member_id}=host{at}:9000"),
        join="0=host0:9000",
        directory=Path("/member"),
        service="a:B",
    )
    return asyncio.run(find_cluster(config, cast("NetworkStack", found)))


@pytest.fixture
def _told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members answer with the configuration that the test passes in the place of a network."""

    async def ask(seeds: object, config: object, network: object) -> tuple[list[MembersView], list[str]]:
        assert isinstance(network, Configuration)
        (row,) = members_view(0).members
        rows = [
            row.model_copy(
                update=dict(zip(("ingress", "consensus", "log", "catchup", "archive"), one.endpoints, strict=True))
                | {"member_id": one.member_id, "kind": one.kind.value}
            )
            for one in network.members
        ]
        view = members_view(0).model_copy(
            update={"members": rows, "high_member_id": network.high_member_id, "configuration_position": 64}
        )
        return [view], []

    monkeypatch.setattr(joining, "_ask", ask)


@pytest.mark.usefixtures("_told")
def test_process_without_a_log_is_never_advised_to_move_the_member_that_has_its_id() -> None:
    """An addition of it was refused, and the id went to another process: a move would give that one's id to this."""
    assert join_as(3, 3, found=of(0, 1, 2, 3)).find(MemberId(3)) is not None

    with pytest.raises(ConfigurationError) as refused:
        join_as(3, 8, found=of(0, 1, 2, 3))

    assert has_facts(str(refused.value), "member 3", "host3:9000", "host8:9000", "trimaran member replace")
    assert "member move" not in str(refused.value)


@pytest.mark.usefixtures("_told")
def test_process_where_the_cluster_dials_a_member_of_another_id_says_so_at_once() -> None:
    """It would wait for ever, and `trimaran member replace` for it."""
    with pytest.raises(ConfigurationError) as refused:
        join_as(9, 3, found=of(0, 1, 2, 3))

    assert has_facts(str(refused.value), "member 3", "member_id=9", "--member-id 3")
