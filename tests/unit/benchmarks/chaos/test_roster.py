"""How a campaign changes members: the plan, how a change is seen to be done, and what must hold of who was removed."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from trimaran.benchmarks.chaos.checks import check_group, check_removed
from trimaran.benchmarks.chaos.cluster import PLACE_COUNT, for_group_0
from trimaran.benchmarks.chaos.journal import JournalEntry, merge_journals
from trimaran.benchmarks.chaos.roster import draw_changes, shows_change
from trimaran.benchmarks.chaos.schedule import ROSTER_CHANGES, ChaosFault
from trimaran.benchmarks.chaos.service import HEAD
from trimaran.cluster.core.vocabulary.member_change import MemberChangeKind
from trimaran.cluster.documents.inspection import MembersView, MemberView
from trimaran.service_api.groups.group import Group


def _entry(position: int, client: int = 1) -> JournalEntry:
    return JournalEntry(position, 0, 1, 2, 3, 1, HEAD.pack(client, position))


def _view(*members: tuple[int, str], high_id: int = 2, configured: int = 100, committed: int = 200) -> MembersView:
    rows: list[dict[str, Any]] = [{"member_id": member_id, "kind": kind} for member_id, kind in members]
    view: dict[str, Any] = {"configuration_position": configured, "commit_position": committed}
    found = [MemberView.model_construct(**row) for row in rows]
    return MembersView.model_construct(members=found, high_member_id=high_id, **view)


@pytest.mark.parametrize("seed", range(20))
def test_there_are_never_fewer_members_than_at_first_and_one_more_at_most(seed: int) -> None:
    changes = draw_changes(f"{seed}", seconds=120, place_count=PLACE_COUNT)

    steps = {ChaosFault.ADD_MEMBER: 1, ChaosFault.REMOVE_MEMBER: -1, ChaosFault.REPLACE_MEMBER: 0}
    assert {*accumulate(steps[change.kind] for change in changes)} == {0, 1}
    assert sum(change.kind is not ChaosFault.REMOVE_MEMBER for change in changes) == PLACE_COUNT


def test_changes_follow_from_the_seed_and_come_in_order() -> None:
    changes = draw_changes("7 0", seconds=60, place_count=PLACE_COUNT)

    assert changes == draw_changes("7 0", seconds=60, place_count=PLACE_COUNT)
    assert {change.kind for change in changes} == {*ROSTER_CHANGES}
    assert [change.at_s for change in changes] == sorted(change.at_s for change in changes)


def test_a_change_is_done_when_the_members_that_show_it_are_committed() -> None:
    before, learner = _view((0, "voter"), (2, "voter")), _view((0, "voter"), (3, "learner"), high_id=3)
    open_change = _view((0, "voter"), (3, "learner"), high_id=3, configured=300)

    assert not shows_change(before, MemberChangeKind.ADD, 3)
    assert shows_change(learner, MemberChangeKind.ADD, 3)
    assert not shows_change(open_change, MemberChangeKind.ADD, 3)
    assert not shows_change(learner, MemberChangeKind.PROMOTE, 3)
    assert shows_change(learner, MemberChangeKind.REMOVE, 2)


def test_a_member_that_does_not_know_of_a_new_one_does_not_show_its_removal() -> None:
    assert not shows_change(_view((0, "voter")), MemberChangeKind.REMOVE, 3)


def test_what_a_removed_member_was_given_alone_is_found(tmp_path: Path) -> None:
    journals = {0: [_entry(32), _entry(64)], 1: [_entry(32), _entry(96)]}

    assert check_removed({1: (tmp_path / "gone", 96)}, tmp_path, {**journals, 1: journals[1][:1]}) == []
    assert "96" in check_removed({1: (tmp_path / "gone", 96)}, tmp_path, journals)[0]


def test_a_message_of_another_group_is_found() -> None:
    journal = merge_journals([(0, [_entry(32, client=1), _entry(64, client=1001)])])

    assert len(check_group(journal, range(1_000))) == 1
    assert check_group(journal, range(2_000)) == []


def test_members_of_a_group_are_written_with_the_ports_of_group_0() -> None:
    assert for_group_0("0,127.0.0.1:10100,127.0.0.1:40321", Group(1, 2)) == "0,127.0.0.1:10000,127.0.0.1:40221"
    assert for_group_0("0=127.0.0.1:10000", Group(0, 2)) == "0=127.0.0.1:10000"
