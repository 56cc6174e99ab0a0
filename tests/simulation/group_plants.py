"""Planted bugs in groups: where keys go, what a group refuses, and the table in each log."""

from __future__ import annotations

from dataclasses import replace

from trimaran.client import ClusterClient
from trimaran.client.groups.grouped_client import GroupedClient
from trimaran.cluster.core.sessions import pending_sessions
from trimaran.cluster.core.vocabulary import configuration
from trimaran.cluster.core.vocabulary.configuration import Configuration, ConfigurationCause, ConfiguredMember
from trimaran.service_api.groups.demand import find_group_refusal
from trimaran.service_api.groups.group import ONLY_GROUP, Group
from trimaran.service_api.groups.key_hash import GroupKey, key_bytes

from .plant import COPIES, MEMBER_HUNT_OPTIONS, ORDERS, REQUEST_HUNT_OPTIONS, Plant, Planting

GROUP_HUNT_OPTIONS = replace(
    REQUEST_HUNT_OPTIONS, group_count=2, without=frozenset({"query", "relay", "leave_behind"}) | ORDERS | COPIES
)
RESTART_HUNT_OPTIONS = replace(
    GROUP_HUNT_OPTIONS, requester_count=1, without=GROUP_HUNT_OPTIONS.without - {"leave_behind"}
)
CHANGE_HUNT_OPTIONS = replace(MEMBER_HUNT_OPTIONS, group_count=2)


def _route_by_another_hash(planting: Planting) -> None:
    """A client adds up the bytes of a key, where the table takes their CRC."""

    async def for_key(self: GroupedClient, key: GroupKey) -> ClusterClient:
        group_index = sum(key_bytes(key)) % self.group_count
        if group_index != self.table.group_of(key):
            planting.ran()
        return await self.for_group(group_index)

    planting.replace(GroupedClient, "for_key", for_key)


def _take_the_first_key_for_all(planting: Planting) -> None:
    """A client that is given several keys goes by the first."""

    async def for_keys(self: GroupedClient, *keys: GroupKey) -> ClusterClient:
        if len({self.table.group_of(key) for key in keys}) > 1:
            planting.ran()
        return await self.for_key(keys[0])

    planting.replace(GroupedClient, "for_keys", for_keys)


def _run_strange_keys(planting: Planting) -> None:
    """A group runs what is about a key that another one owns."""

    def check_key(self: Group, key: GroupKey) -> None:
        if not self.owns(key):
            planting.ran()

    planting.replace(Group, "check_key", check_key)


def _admit_those_of_another_group(planting: Planting) -> None:
    """A leader opens a session for a client that means another group."""

    def refuse_nobody(channel: str, own: Group) -> str | None:
        if find_group_refusal(channel, own) is not None:
            planting.ran()
        return None

    planting.replace(pending_sessions, "find_group_refusal", refuse_nobody)


def _lose_the_table_with_a_change(planting: Planting) -> None:
    """The configuration that follows another one says no more which group it is of."""
    real = configuration._next

    def following(
        current: Configuration,
        members: tuple[ConfiguredMember, ...],
        cause: ConfigurationCause,
        *,
        high_member_id: int | None = None,
        changed_id: int | None = None,
    ) -> Configuration:
        planting.ran()
        made = real(current, members, cause, high_member_id=high_member_id, changed_id=changed_id)
        return replace(made, group=ONLY_GROUP)

    planting.replace(configuration, "_next", following)


def _lose_the_table_in_marks(planting: Planting) -> None:
    """What stands in for the entries below a log's start does not say which group the log is of."""
    real = Configuration.encode_text

    def encode_text(self: Configuration, *, is_placed: bool = False) -> str:
        if not is_placed:
            return real(self)
        planting.ran()
        return real(replace(self, group=ONLY_GROUP), is_placed=True)

    planting.replace(Configuration, "encode_text", encode_text)


PLANTS = (
    Plant(
        "routed-by-another-hash",
        37,
        "a client sends a message to the group that owns its key",
        _route_by_another_hash,
        options=GROUP_HUNT_OPTIONS,
    ),
    Plant(
        "first-key-for-all",
        37,
        "a message about keys of several groups is refused",
        _take_the_first_key_for_all,
        options=GROUP_HUNT_OPTIONS,
    ),
    Plant(
        "strange-key-runs",
        37,
        "a group refuses a key that another one owns",
        _run_strange_keys,
        options=GROUP_HUNT_OPTIONS,
    ),
    Plant(
        "other-group-admitted",
        37,
        "a group refuses a client that means another one",
        _admit_those_of_another_group,
        options=GROUP_HUNT_OPTIONS,
    ),
    Plant(
        "table-lost-with-a-change",
        37,
        "each configuration says the table of groups",
        _lose_the_table_with_a_change,
        options=CHANGE_HUNT_OPTIONS,
    ),
    Plant(
        "table-not-in-marks",
        37,
        "the table of groups outlives the beginning of the log",
        _lose_the_table_in_marks,
        options=RESTART_HUNT_OPTIONS,
    ),
)
