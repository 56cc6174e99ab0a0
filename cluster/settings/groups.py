"""The settings of one group, made of those that name the whole cluster.

    directory             DIR                 ->  DIR/group-K
    ports                 P                   ->  P + 100 x K, of members, listen, join and metrics
    leader_priority       L                   ->  L + 1 on the member that is to lead: the K-th, round and round

Everything else is the same in all groups. A member that joins a running cluster is preferred in no group: its settings
do not say who the others are.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from ...archive.log.group_directories import group_directory
from ...service_api.errors import ConfigurationError
from ...service_api.groups.ports import group_endpoint
from .config import NodeConfig
from .member_endpoints import MemberEndpoints, format_members, parse_members

_LEADER_PRIORITY_MAX: Final = 1_000


def group_member(member: MemberEndpoints, group_index: int) -> MemberEndpoints:
    """Return where a group of a member listens.

    Raises:
        ConfigurationError: a port would be too high.
    """
    ingress, consensus, log, catchup, archive = (group_endpoint(each, group_index) for each in member.endpoints)
    return MemberEndpoints(
        member_id=member.member_id,
        ingress=ingress,
        consensus=consensus,
        log=log,
        catchup=catchup,
        archive=archive,
    )


def group_members(members: tuple[MemberEndpoints, ...], group_index: int) -> tuple[MemberEndpoints, ...]:
    """Return where a group of each member listens.

    Raises:
        ConfigurationError: a port would be too high.
    """
    return tuple(group_member(member, group_index) for member in members)


def preferred_member_id(config: NodeConfig, group_index: int) -> int | None:
    """Return which member is to lead a group: the voters take turns. None where the settings do not name them."""
    voters = sorted(member.member_id for member in config.members if member.member_id not in config.witness_ids)
    return None if config.join or not voters else voters[group_index % len(voters)]


def of_group(config: NodeConfig, group_index: int) -> NodeConfig:
    """Make the settings of one group of those of the whole cluster; without groups they are the same.

    Raises:
        ConfigurationError: there is no such group, a port would be too high, or two groups would meet at one.
    """
    if config.groups == 1:
        return config
    _check_ports(config)
    values: dict[str, Any] = {name: getattr(config, name) for name in NodeConfig.model_fields}
    is_preferred = preferred_member_id(config, group_index) == config.member_id
    values |= {
        "group": str(group_index),
        "members": group_members(config.members, group_index),
        "join": format_members(group_members(parse_members(config.join), group_index)) if config.join else "",
        "listen": _shift_listen(config.listen, group_index),
        "directory": group_directory(config.directory, group_index),
        "metrics_endpoint": "" if config.metrics is None else group_endpoint(str(config.metrics), group_index),
        "leader_priority": min(config.leader_priority + is_preferred, _LEADER_PRIORITY_MAX),
    }
    try:
        return NodeConfig(**values)
    except ValidationError as error:
        raise ConfigurationError(f"settings of group {group_index}: {error}") from None


def _shift_listen(listen: str, group_index: int) -> str:
    """Shift what has a port: an address alone takes the ports of members."""
    parts = [part.strip() for part in listen.split(",")]
    return ",".join(group_endpoint(part, group_index) if _has_port(part) else part for part in parts)


def _has_port(text: str) -> bool:
    return ":" in text and text.rpartition(":")[2].isdigit()


def _check_ports(config: NodeConfig) -> None:
    """Refuse endpoints of which two would be one: in another group, of another member, or where metrics are."""
    owners: dict[str, str] = {}
    for group_index in range(config.groups):
        for member in group_members(config.members, group_index):
            for endpoint in member.endpoints:
                _claim(owners, endpoint, f"group {group_index} of member {member.member_id}")
        if config.metrics is not None:
            metrics = group_endpoint(str(config.metrics), group_index)
            if not metrics.endswith(":0"):
                _claim(owners, metrics, f"the metrics of group {group_index}")


def _claim(owners: dict[str, str], endpoint: str, owner: str) -> None:
    other = owners.setdefault(endpoint, owner)
    if other != owner:
        raise ConfigurationError(
            f"endpoint given twice: endpoint={endpoint} is that of {other} and of {owner}: the ports of a group are "
            "100 above those of the group before; choose base ports that leave room"
        )
