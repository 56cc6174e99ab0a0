"""Which member a backup copies from, by what the members say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.cluster.cli.answers import member_status
from trimaran.cluster.operating.backup import choosing
from trimaran.cluster.operating.backup.choosing import BackupSource, FoundSource, find_source
from trimaran.cluster.settings.member_endpoints import parse_members
from trimaran.service_api import ClusterError
from trimaran.service_api.cluster_id import NULL_CLUSTER_ID
from trimaran.service_api.documents.member_status import ConfiguredMemberStatus, MemberStatus
from trimaran.service_api.net.transport import SOCKETS

MEMBERS = parse_members("0=a:9000,1=b:9000,2=c:9000")


def find(
    monkeypatch: pytest.MonkeyPatch,
    statuses: Mapping[int, Mapping[str, Any] | None],
    wanted: BackupSource = BackupSource.FOLLOWER,
    *,
    avoided: tuple[int, ...] = (),
    recorded_position: int = 0,
) -> FoundSource:
    """Choose among members that answer with these changes of a follower's status, or not at all."""
    by_endpoint = {member.consensus: statuses[member.member_id] for member in MEMBERS}

    async def answer(endpoint: str, *_: object, **__: object) -> MemberStatus:
        changes = by_endpoint[endpoint]
        if changes is None:
            raise ClusterError("refused: no process listens")
        return member_status(1).model_copy(update={"state": "FOLLOWER", "commit_position": 640, **changes})

    monkeypatch.setattr(choosing, "query_status", answer)
    return asyncio.run(
        find_source(
            MEMBERS,
            wanted,
            cluster_id=NULL_CLUSTER_ID,
            recorded_position=recorded_position,
            avoided=avoided,
            network=SOCKETS,
            timeout_s=1,
        )
    )


WITNESS: Mapping[str, Any] = {
    "members": [ConfiguredMemberStatus(member_id=1, kind="witness", consensus="b:9001")],
}
LEADER: Mapping[str, Any] = {"state": "LEADER", "commit_position": 960}


@pytest.mark.parametrize(
    ("wanted", "avoided", "expected"),
    [
        (BackupSource.FOLLOWER, (), 1),
        (BackupSource.FOLLOWER, (1,), 2),
        (BackupSource.FOLLOWER, (1, 2), 0),
        (BackupSource.LEADER, (), 0),
        (BackupSource.ANY, (), 0),
    ],
)
def test_the_kind_that_is_wanted_is_chosen_and_who_failed_comes_last(
    monkeypatch: pytest.MonkeyPatch, wanted: BackupSource, avoided: tuple[int, ...], expected: int
) -> None:
    found = find(monkeypatch, {0: LEADER, 1: {"commit_position": 800}, 2: {}}, wanted, avoided=avoided)

    assert (found.member.member_id, found.commit_position) == (expected, 960)


def test_leader_is_chosen_while_no_follower_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(monkeypatch, {0: LEADER, 1: None, 2: {"state": "CANVASS"}}).member.member_id == 0


def test_witness_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(monkeypatch, {0: LEADER, 1: WITNESS, 2: None}).member.member_id == 0


def test_member_that_has_less_than_the_backup_is_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(monkeypatch, {0: LEADER, 1: {}, 2: {}}, recorded_position=700).member.member_id == 0


def test_error_says_what_each_member_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterError, match=r"member 0: refused: .*; member 1: FOLLOWER witness commit_position=640; "):
        find(monkeypatch, {0: None, 1: WITNESS, 2: {"state": "CANVASS"}})
