"""Members of different groups do not hear each other, and say why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.cluster.core.solo import Solo
from trimaran.cluster.core.peers.member_settings import difference, settings_of
from trimaran.cluster.messages.settings import MemberSettings
from trimaran.service_api.groups import ONLY_GROUP, Group


def settings(group: Group, member_id: int = 0) -> MemberSettings:
    """What a member of a group tells the others."""
    ctx = Solo().ctx
    ctx.config = replace(ctx.config, group=group)
    return MemberSettings.decode(settings_of(ctx).model_copy(update={"member_id": member_id}).encode())


def test_members_of_one_group_hear_each_other() -> None:
    """Also those of a cluster without groups."""
    assert difference(settings(Group(1, 4)), settings(Group(1, 4), 1)) is None
    assert difference(settings(ONLY_GROUP), settings(ONLY_GROUP, 1)) is None


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Group(0, 4), "another group: group 1 of 4 here, group 0 of 4 at member 1"),
        (Group(1, 2), "another group: group 1 of 4 here, group 1 of 2 at member 1"),
        (ONLY_GROUP, "another group: group 1 of 4 here, group 0 of 1 at member 1"),
    ],
)
def test_a_member_of_another_group_is_not_heard(other: Group, said: str) -> None:
    """It cannot vote here, nor be counted, nor lead."""
    assert difference(settings(Group(1, 4)), settings(other, 1)) == said


def test_an_older_member_knows_no_groups_and_a_group_that_there_is_not_is_said_as_it_came() -> None:
    """Nothing that a member says may stop this one."""
    older = settings(ONLY_GROUP, 1).model_copy(update={"group_index": None, "group_count": None})
    forged = settings(ONLY_GROUP, 1).model_copy(update={"group_index": 7, "group_count": -5})

    assert difference(settings(ONLY_GROUP), older) is None
    assert difference(settings(ONLY_GROUP), forged) == "another group: group 0 of 1 here, group 7 of -5 at member 1"
