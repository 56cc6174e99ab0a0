"""What a client knows of the groups: how many there are, and how it connects to one of them.

The cluster says how many: each leader tells it with the session that opens. So one session, with group 0, is enough to
know. From then on each connect names the group that it means, index and count, and any other one refuses it.
"""

from __future__ import annotations

from dataclasses import replace

from ...service_api.errors import ConfigurationError
from ...service_api.groups.group import Group, GroupTable
from ...service_api.groups.ports import group_endpoint
from ..config import ClientConfig


def group_config(config: ClientConfig, group: Group) -> ClientConfig:
    """Make the configuration for one group of that for the cluster, whose endpoints are those of group 0.

    Raises:
        ConfigurationError: a port would be too high.
    """
    endpoints = tuple(group_endpoint(endpoint, group.index) for endpoint in config.endpoints)
    return replace(config, endpoints=endpoints, group=group)


def first_config(config: ClientConfig, group_count: int | None) -> ClientConfig:
    """Make the configuration for the first session: with group 0, of so many groups, if that is known.

    Raises:
        ConfigurationError: no cluster has so many groups, or the configuration names a group.
    """
    if config.group is not None:
        raise ConfigurationError(
            f"group={config.group.to_text()}: expected none in config: this client connects to all"
        )
    return config if group_count is None else replace(config, group=Group(0, group_count))


def learn_table(found: Group, config: ClientConfig) -> GroupTable:
    """Return the table of a cluster, given which group answered at the endpoints.

    Raises:
        ConfigurationError: it is not group 0.
    """
    if found.index:
        raise ConfigurationError(
            f"endpoints={','.join(config.endpoints)} are those of {found}: expected those of group 0, from which the "
            "others follow"
        )
    return GroupTable(found.count)
