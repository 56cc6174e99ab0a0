"""What holds in a cluster with groups, beside what holds in each group.

- An entry about a key is in the log of the group that owns the key, and in no other.
- Each log says the same table from keys to groups, from its first configuration on, also after restarts and snapshots.
- A request runs in one group, once.

Which group owns a key the referee computes from the number of groups that the run was told, never from what a member
or a client knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from .....service_api.groups.group import Group, GroupTable
from .....service_api.groups.key_hash import GroupKey
from ....core.vocabulary.configuration import Configuration
from ..clients.history import History
from ..cluster import Member
from ..world.expect import expect

OWN_KEYS_RULE: Final = "an entry is in the log of the group that owns its key"
ONE_TABLE_RULE: Final = "every log says the same table of groups"
RUNS_ONCE_RULE: Final = "an acknowledged request ran once, in the group that owns its key"
REFUSAL_RULE: Final = "a group refuses what is meant for another one"

KeyOf = Callable[[bytes], GroupKey | None]
"""Returns the key that a message of a client is about; None: of none, or its sender is known to route badly."""


def no_key(payload: bytes) -> None:
    """No message is about a key."""


class GroupRules:
    """Watches one group."""

    def __init__(self, group: Group, key_of: KeyOf = no_key) -> None:
        self.group = group
        self._table = GroupTable(group.count)
        self._key_of = key_of
        self._seen: dict[int, Configuration] = {}
        """What each member took for the configuration when it was last looked at."""

    def __repr__(self) -> str:
        return f"<GroupRules {self.group}>"

    def look(self, member: Member) -> None:
        """Look at the configuration that a member has from its log; cheap when that has not changed."""
        assert member.node is not None
        claimed = member.node.module.ctx.roster.current
        if self._seen.get(member.member_id) is claimed:
            return
        self._seen[member.member_id] = claimed
        expect(
            claimed.group == self.group or claimed.log_position == 0,
            ONE_TABLE_RULE,
            member=member.member_id,
            configuration_at=claimed.log_position,
            found=claimed.group,
            expected=self.group,
        )

    def on_entry(self, position: int, what: tuple[object, ...]) -> None:
        """Look at an entry that is delivered for the first time: what it is, of which session, and its bytes."""
        if self.group.count == 1 or what[0] not in ("message", "request"):
            return
        payload = what[2]
        assert isinstance(payload, bytes)
        key = self._key_of(payload)
        if key is None:
            return
        owner = self._table.group_of(key)
        expect(
            owner == self.group.index,
            OWN_KEYS_RULE,
            entry=position,
            key=key,
            found_in_group=self.group.index,
            expected_group=owner,
        )


@dataclass(slots=True, frozen=True)
class RanAt:
    """Where a request ran."""

    group_index: int
    log_position: int

    def __str__(self) -> str:
        return f"group {self.group_index} @{self.log_position}"


def expect_ran_once(
    ran: Mapping[tuple[int, int], list[RanAt]], histories: Iterable[History], table: GroupTable
) -> None:
    """Hold where requests ran, by client and sequence, against what clients were told; histories are by group."""
    for operation in (each for history in histories for each in history):
        if operation.sequence is None or operation.client_id is None or not operation.is_acknowledged:
            continue
        assert isinstance(operation.key, int)
        assert operation.log_position is not None
        expected = RanAt(table.group_of(operation.key), operation.log_position)
        found = ran.get((operation.client_id, operation.sequence), [])
        expect(
            found == [expected],
            RUNS_ONCE_RULE,
            operation=str(operation),
            key=operation.key,
            ran_at=[str(each) for each in found],
            expected=str(expected),
        )
