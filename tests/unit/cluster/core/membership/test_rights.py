"""The rights of a member's certificate, by the configuration in the log, and who is believed about the members."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.unit.cluster.core.rosters import configured, roster
from trimaran.cluster.core.vocabulary.configuration import Configuration, MemberKind
from trimaran.cluster.core.vocabulary.roster import Roster
from trimaran.service_api.access.identity import Caller, CallerRole, Proof
from trimaran.service_api.types import MemberId

MEMBER, CONTACT, OUTSIDER = CallerRole.MEMBER, CallerRole.CONTACT, CallerRole.OUTSIDER
THREE: Final = MemberId(3)


def shown(member_id: int) -> Caller:
    return Caller(MEMBER, str(member_id), Proof.CERTIFICATE)


def role_of(roster: Roster, member_id: int) -> CallerRole:
    return roster.judge(shown(member_id)).role


def of(*member_ids: int, position: int, kind: MemberKind = MemberKind.VOTER) -> Configuration:
    """Voters, of which the last is of a kind."""
    members = [configured(each) for each in member_ids]
    members[-1] = replace(members[-1], kind=kind)
    return Configuration(members=tuple(members), high_member_id=max(3, *member_ids), log_position=position)


def enter(roster: Roster, configuration: Configuration, *, is_committed: bool = False) -> None:
    """An entry comes into the log."""
    roster.history.append(configuration)
    roster.refresh()
    if is_committed:
        roster.note_committed(configuration)
        for member_id in roster.leaving:
            roster.dismiss(member_id)


@pytest.mark.parametrize("kind", MemberKind)
def test_members_of_every_kind_have_rights_from_the_entry_on_that_adds_them(kind: MemberKind) -> None:
    three = roster(0, 3)
    assert (role_of(three, 2), role_of(three, 3)) == (MEMBER, OUTSIDER)

    enter(three, of(0, 1, 2, 3, position=64, kind=kind))

    assert role_of(three, 3) is MEMBER


def test_a_member_whose_removal_is_not_committed_is_heard_and_has_no_right() -> None:
    """It may be the leader, or lead again where the entry is cut off."""
    three = roster(0, 3)

    enter(three, of(0, 1, position=64))
    assert role_of(three, 2) is CONTACT
    three.history.truncate(32)
    three.refresh()

    assert role_of(three, 2) is MEMBER


def test_a_removed_member_is_an_outsider_for_good_once_that_is_committed() -> None:
    three = roster(0, 3)
    assert not three.judge(shown(7)).is_gone

    enter(three, of(0, 1, position=64))
    assert not three.judge(shown(2)).is_gone
    enter(three, of(0, 1, position=64), is_committed=True)
    three.note_committed(three.current)
    for member_id in three.leaving:
        three.dismiss(member_id)

    judged = three.judge(shown(2))
    assert (judged.role, judged.is_gone) == (OUTSIDER, True)
    assert "the members are 0, 1" in str(judged)


def test_hearsay_gives_nobody_a_right() -> None:
    three = roster(0, 3)

    assert three.hear(of(0, 1, 2, 3, position=64))

    assert role_of(three, 3) is CONTACT
    assert three.vouches_for(THREE)


def test_a_rumour_is_taken_only_by_a_member_that_is_cut_off() -> None:
    """A majority of the members that count has the next configuration, if there is one, and tells it."""
    three = roster(0, 3)
    rumour = of(0, 1, 2, 3, position=1 << 40)
    three.members[MemberId(1)].is_reachable = True

    three.hear_rumour(rumour)
    assert role_of(three, 3) is OUTSIDER
    three.members[MemberId(1)].is_reachable = False
    three.hear_rumour(rumour)

    assert role_of(three, 3) is CONTACT
    assert not three.vouches_for(THREE)


def test_a_rumour_moves_no_member_and_ends_with_what_a_member_says() -> None:
    three = roster(0, 3)
    elsewhere = replace(configured(1), endpoints=("evil:1", "evil:2", "evil:3", "evil:4", "evil:5"))
    rumour = of(0, 1, 2, 3, position=1 << 40)
    moved = tuple(elsewhere if each.member_id == 1 else each for each in rumour.members)

    three.hear_rumour(replace(rumour, members=moved))

    assert three.address_of(MemberId(1)) == configured(1)
    assert three.latest == three.current
    assert "evil" not in three.ingress_endpoints
    three.hear(three.current)
    assert role_of(three, 3) is OUTSIDER
    assert THREE not in three.members


def test_a_rumour_hides_nothing_that_is_known() -> None:
    """Else a member that was just added believes an older configuration, without it, and stops for good.

    Found by `trimaran sim --seeds 148`: a rumour took the place of what a member had said.
    """
    three = roster(0, 3)
    three.hear(known := of(0, 1, 2, 3, position=128))

    three.hear_rumour(of(0, 1, 2, 3, 4, position=256))
    assert three.latest == known
    assert role_of(three, 4) is CONTACT
    assert not three.hear(of(0, 1, 2, position=64))

    assert three.latest == known
    assert role_of(three, 4) is OUTSIDER
