"""How keys go to groups."""

from __future__ import annotations

import subprocess
import sys
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.facts import has_facts
from trimaran.service_api.errors import ConfigurationError, LocalProtocolError
from trimaran.service_api.groups import (
    GROUP_COUNT_MAX,
    ONLY_GROUP,
    SLOT_COUNT,
    CrossGroupError,
    Group,
    GroupKey,
    GroupTable,
    WrongGroupError,
    slot_of,
)

KEYS = st.one_of(st.binary(), st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**63), 2**63 - 1))
COUNTS = st.integers(1, GROUP_COUNT_MAX)

GOLDEN: dict[GroupKey, tuple[int, int, int]] = {
    b"": (0, 0, 0),
    b"123456789": (0xCBF43926 & 0xFFF, 1, 32),
    "account-17": (1174, 0, 16),
    "Gruß": (2992, 1, 41),
    0: (3945, 1, 54),
    1: (4087, 1, 56),
    -1: (3868, 1, 53),
    2**63 - 1: (3132, 1, 43),
}
"""Slot, group of 2, group of 57. They must never change: keys are in the logs of clusters."""


def test_the_hash_is_what_it_always_was() -> None:
    """The CRC's own check value is among them: the published one of CRC-32."""
    found = {key: (slot_of(key), GroupTable(2).group_of(key), GroupTable(57).group_of(key)) for key in GOLDEN}

    assert found == GOLDEN


def test_the_hash_is_the_same_in_a_process_with_other_hash_seeds() -> None:
    """Python's own hash is not."""
    code = "from trimaran.service_api.groups import slot_of; print(slot_of('account-17'))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    }

    assert found == {f"{GOLDEN['account-17'][0]}\n"}


@given(KEYS, COUNTS)
def test_every_key_has_one_group_and_it_owns_the_key(key: GroupKey, count: int) -> None:
    """What routes and what checks agree."""
    index = GroupTable(count).group_of(key)

    owners = [i for i in range(count) if Group(i, count).owns(key)]

    assert owners == [index]


@given(COUNTS)
def test_slots_are_shared_out_in_ranges_that_differ_by_one(count: int) -> None:
    """No group has much more than another, and every slot has its group."""
    ranges = [GroupTable(count).slots_of(i) for i in range(count)]

    assert [slot for each in ranges for slot in each] == list(range(SLOT_COUNT))
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


@given(KEYS, COUNTS)
def test_the_group_of_a_key_has_its_slot(key: GroupKey, count: int) -> None:
    """Both ways to say it agree."""
    table = GroupTable(count)

    assert slot_of(key) in table.slots_of(table.group_of(key))


def test_text_stands_for_its_bytes_and_views_for_theirs() -> None:
    """A client in another language hashes bytes."""
    assert slot_of("Gruß") == slot_of("Gruß".encode()) == slot_of(bytearray("Gruß".encode()))
    assert slot_of(memoryview(b"xabcx")[1:4]) == slot_of(b"abc")
    assert slot_of(258) == slot_of(b"\2\1\0\0\0\0\0\0") == crc32(b"\2\1\0\0\0\0\0\0") % SLOT_COUNT
    assert slot_of(7) != slot_of("7")


def test_consecutive_keys_are_spread() -> None:
    """People number their accounts: no group may have twice its share."""
    for keys in (range(4_000), [f"account-{i}" for i in range(4_000)], [f"{i:08d}" for i in range(4_000)]):
        counts = [0] * 8
        for key in keys:
            counts[GroupTable(8).group_of(key)] += 1

        assert max(counts) < 2 * 500
        assert min(counts) > 500 / 2


@pytest.mark.parametrize("key", [None, 1.5, True, ("a",), 2**63, -(2**63) - 1, "\ud800"])
def test_what_is_no_key_is_refused_by_name(key: object) -> None:
    """A float or None is a slip of the caller's."""
    with pytest.raises(LocalProtocolError, match=r"key=.*expected"):
        slot_of(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1, GROUP_COUNT_MAX + 1])
def test_a_number_of_groups_out_of_bounds_is_refused(count: int) -> None:
    """It names the number and the bounds."""
    with pytest.raises(ConfigurationError, match=f"groups={count} expected 1 to {GROUP_COUNT_MAX}"):
        GroupTable(count)


def test_keys_of_one_group_go_together_and_others_are_refused_by_name() -> None:
    """That is the protocol of requests across groups: there are none."""
    table = GroupTable(4)
    keys = [f"k{i}" for i in range(100)]
    here = [key for key in keys if table.group_of(key) == 2]
    elsewhere = next(key for key in keys if table.group_of(key) == 3)

    assert table.common_group(here) == 2
    with pytest.raises(CrossGroupError) as refused:
        table.common_group([*here, elsewhere])
    assert has_facts(str(refused.value), f"key={here[0]!r}", "group 2", f"key={elsewhere!r}", "group 3", "4")
    with pytest.raises(LocalProtocolError, match="one key"):
        table.common_group([])


def test_a_service_refuses_a_key_of_another_group() -> None:
    """The error names the key and its owner."""
    owner = GroupTable(4).group_of("account-17")
    other = Group((owner + 1) % 4, 4)

    Group(owner, 4).check_key("account-17")
    with pytest.raises(WrongGroupError, match=rf"key='account-17'.*group {owner},.* {other}"):
        other.check_key("account-17")


def test_the_only_group_owns_every_key() -> None:
    """So a service may check keys wherever it runs."""
    for key in GOLDEN:
        ONLY_GROUP.check_key(key)


def test_a_group_is_written_as_index_and_count() -> None:
    """The text of nothing is a cluster without groups."""
    assert Group.parse("3/4") == Group(3, 4)
    assert Group.parse(Group(63, 64).to_text()) == Group(63, 64)
    assert Group.parse("") == ONLY_GROUP


@pytest.mark.parametrize("text", ["1", "4/4", "-1/4", "1/0", "a/b", "0/65", "1/4 ", "99999999999/4"])
def test_a_text_that_names_no_group_is_refused(text: str) -> None:
    """Bad input names the value."""
    with pytest.raises(ConfigurationError, match="group"):
        Group.parse(text)
