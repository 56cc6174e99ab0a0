"""Which group a key belongs to, and one group as a value.

The 4,096 slots go to the groups in contiguous ranges that differ by one slot at most: slot s belongs to the group
s * count // 4096. The number of groups is fixed when the cluster forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigurationError, LocalProtocolError
from .key_hash import SLOT_COUNT, GroupKey, slot_of

GROUP_COUNT_MAX: Final = 64
"""A cluster has no more groups: each is a process on every machine, with ports of its own."""

_GROUP_TEXT: Final = re.compile(r"(\d{1,9})/(\d{1,9})")


class CrossGroupError(LocalProtocolError):
    """A request names keys of different groups: no log orders them, so the cluster cannot run it as one."""


class WrongGroupError(LocalProtocolError):
    """A message about a key came to a group that does not own the key: its sender did not route by the key."""


@dataclass(slots=True, frozen=True)
class GroupTable:
    """Takes keys to groups. The number of groups is all there is to it.

    Raises:
        ConfigurationError: the number is none that a cluster can have.
    """

    group_count: int

    def __post_init__(self) -> None:
        check_group_count(self.group_count)

    def group_of(self, key: GroupKey) -> int:
        """Return the index of the group that owns a key.

        Raises:
            LocalProtocolError: it is no key; see `GroupKey`.
        """
        return _owner_of(key, self.group_count)

    def slots_of(self, group_index: int) -> range:
        """Return the slots of a group.

        Raises:
            ConfigurationError: there is no such group.
        """
        Group(group_index, self.group_count)
        count = self.group_count
        return range(-(-group_index * SLOT_COUNT // count), -(-(group_index + 1) * SLOT_COUNT // count))

    def common_group(self, keys: Iterable[GroupKey]) -> int:
        """Return the index of the group that owns all these keys.

        Raises:
            CrossGroupError: they are of different groups; names two keys and their groups.
            LocalProtocolError: one is no key, or there is none at all.
        """
        first: GroupKey | None = None
        found = -1
        for key in keys:
            group_index = self.group_of(key)
            if first is None:
                first, found = key, group_index
            elif group_index != found:
                raise CrossGroupError(
                    f"keys of different groups: key={first!r} belongs to group {found}, key={key!r} to group "
                    f"{group_index}, of {self.group_count}: nothing orders messages of two groups; send one message "
                    "to each, or give what belongs together one key"
                )
        if first is None:
            raise LocalProtocolError("keys=[]: expected one key at least")
        return found


@dataclass(slots=True, frozen=True)
class Group:
    """One of the groups of a cluster: its index, from 0 on, and how many there are. A cluster without groups is one.

    Raises:
        ConfigurationError: there is no such group.
    """

    index: int
    count: int

    def __post_init__(self) -> None:
        check_group_count(self.count)
        if not 0 <= self.index < self.count:
            raise ConfigurationError(f"group={self.index} expected 0 to {self.count - 1}, of groups={self.count}")

    def __str__(self) -> str:
        return f"group {self.index} of {self.count}"

    def owns(self, key: GroupKey) -> bool:
        """Whether a key belongs to this group.

        Raises:
            LocalProtocolError: it is no key; see `GroupKey`.
        """
        return _owner_of(key, self.count) == self.index

    def check_key(self, key: GroupKey) -> None:
        """Refuse a key of another group: a service calls it before it acts on a key.

        Raises:
            WrongGroupError: names the key, and the group that owns it.
            LocalProtocolError: it is no key; see `GroupKey`.
        """
        owner = _owner_of(key, self.count)
        if owner != self.index:
            raise WrongGroupError(f"key={key!r} belongs to group {owner}, this is {self}: route messages by their key")

    def to_text(self) -> str:
        """Write it as `index/count`."""
        return f"{self.index}/{self.count}"

    @property
    def label(self) -> str:
        """As `to_text`, and empty for the only group: what documents say of a cluster without groups."""
        return "" if self.count == 1 else self.to_text()

    @classmethod
    def parse(cls, text: str) -> Group:
        """Read `index/count`; the empty text is the only group of a cluster without groups.

        Raises:
            ConfigurationError: it is not of that form, or there is no such group.
        """
        if not text:
            return ONLY_GROUP
        match = _GROUP_TEXT.fullmatch(text)
        if match is None:
            raise ConfigurationError(f"group={text!r}: expected INDEX/COUNT, such as 0/4")
        return cls(int(match[1]), int(match[2]))


def _owner_of(key: GroupKey, group_count: int) -> int:
    return slot_of(key) * group_count // SLOT_COUNT


def check_group_count(count: int) -> None:
    """Refuse a number of groups that no cluster has.

    Raises:
        ConfigurationError: names it.
    """
    if not 1 <= count <= GROUP_COUNT_MAX:
        raise ConfigurationError(f"groups={count} expected 1 to {GROUP_COUNT_MAX}")


ONLY_GROUP: Final = Group(0, 1)
"""The group of a cluster without groups."""
