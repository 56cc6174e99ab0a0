"""Finds the members of a running cluster for one that joins it: asks those that `join` names, until they know it.

The order of the two steps does not matter: an operator adds the member, and its process is started. Until it is added
the process waits, and says what for; nothing listens yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import aiofiles.os
import structlog

from ....service_api import ClusterError, ConfigurationError
from ....service_api.groups.demand import describe_other_group
from ....service_api.groups.group import Group
from ....service_api.net.transport import NetworkStack
from ....service_api.types import MemberId
from ...core.vocabulary.configuration import (
    Configuration,
    ConfiguredMember,
    MemberKind,
    find_configuration_fault,
)
from ...core.vocabulary.roster import Roster
from ...documents.inspection import MembersView, inspect_member
from ...documents.query import StatusQueryError
from ...settings.config import NodeConfig, parse_members
from ..files.members_file import MembersFile

_ASK_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 0.5

logger = structlog.get_logger()


async def find_cluster(config: NodeConfig, network: NetworkStack) -> Configuration:
    """Ask the members that `config.join` names who the members are; returns once this member is one of them.

    Raises:
        ConfigurationError: the cluster has this member at other endpoints, or as a member that was removed.
    """
    seeds = [member.consensus for member in parse_members(config.join)]
    told: str | None = None
    while True:
        views, refusals = await _ask(seeds, config, network)
        view = max(views, key=lambda one: one.configuration_position, default=None)
        if view is None:
            reason = f"no member answers that knows the members: {'; '.join(refusals)}"
        else:
            found = _read(view)
            _expect_own_group(config, found)
            _expect_free_endpoints(config, found)
            mine = found.find(config.member_id)
            if mine is not None:
                _expect_own_endpoints(config, mine)
                _expect_own_kind(config, mine)
                logger.info("member.joins", members=found.describe(), log_position=found.log_position)
                return found
            if config.member_id <= found.high_member_id:
                raise _no_member_any_more(
                    config,
                    f"ids only rise, so that none is used twice, and the highest was {found.high_member_id}; the next "
                    f"free one is {found.high_member_id + 1}",
                )
            reason = (
                f"member_id={config.member_id} is no member yet: the members are {found.describe()}; run `trimaran "
                f"member add --id {config.member_id} --endpoint {config.me.ingress}"
                f"{' --witness' if config.is_witness else ' --standby' if config.standby else ''}`"
            )
        if reason != told:
            logger.warning("member.waits_to_join", reason=reason)
            told = reason
        await asyncio.sleep(_PAUSE_S)


async def _ask(seeds: Sequence[str], config: NodeConfig, network: NetworkStack) -> tuple[list[MembersView], list[str]]:
    """Ask all at once. Returns the answers that know of a committed configuration, and why there are no others.

    Raises:
        ConfigurationError: an answer says that this member was removed, or an endpoint is none.
    """

    async def ask(endpoint: str) -> MembersView | str | ConfigurationError:
        try:
            view = await inspect_member(
                endpoint, MembersView, _ASK_TIMEOUT_S, cluster_id=config.cluster_id, network=network
            )
        except ConfigurationError as error:
            return error
        except StatusQueryError as error:
            return _no_member_any_more(config, error.detail) if error.is_for_good else f"{endpoint}: {error}"
        except ClusterError as error:
            return f"{endpoint}: {error}"
        if not 0 < view.configuration_position <= view.commit_position:
            return f"{endpoint}: its members are not committed yet"
        return view

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask(endpoint)) for endpoint in seeds]
    views, refusals = [], []
    for answer in (task.result() for task in asked):
        if isinstance(answer, ConfigurationError):
            raise answer
        if isinstance(answer, str):
            refusals.append(answer)
        else:
            views.append(answer)
    return views, refusals


def _no_member_any_more(config: NodeConfig, reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"member_id={config.member_id} is no member of this cluster, and can become none: {reason}"
    )


def _read(view: MembersView) -> Configuration:
    """Make the configuration of a view.

    Raises:
        ClusterError: it is none.
    """
    found = Configuration(
        members=tuple(
            ConfiguredMember(
                MemberId(member.member_id),
                MemberKind(member.kind),
                (member.ingress, member.consensus, member.log, member.catchup, member.archive),
            )
            for member in view.members
        ),
        high_member_id=view.high_member_id,
        group=Group.parse(view.group),
        log_position=view.configuration_position,
    )
    fault = find_configuration_fault(found)
    if fault is not None:
        raise ClusterError(f"member {view.answered_by} names no members that a cluster can have: {fault}")
    return found


def _expect_own_group(config: NodeConfig, found: Configuration) -> None:
    if found.group != config.own_group:
        raise ConfigurationError(
            f"{describe_other_group(found.group, expected=config.own_group)}: correct the settings groups and join"
        )


def _expect_own_endpoints(config: NodeConfig, mine: ConfiguredMember) -> None:
    """Refuse an id that another process may have: this one has no log, and does not know how that one voted.

    Raises:
        ConfigurationError: the member with this id is elsewhere.
    """
    if mine.endpoints != config.me.endpoints:
        raise ConfigurationError(
            f"the cluster has member {config.member_id} at {', '.join(mine.endpoints)}, its settings say "
            f"{', '.join(config.me.endpoints)}: correct the endpoints if they are wrong; if that is another process, "
            "this one needs an id of its own, which `trimaran member add` or `trimaran member replace` prints"
        )


def _expect_free_endpoints(config: NodeConfig, found: Configuration) -> None:
    """Refuse to wait where the cluster dials another member.

    Raises:
        ConfigurationError: an endpoint of this process is that of a member with another id.
    """
    for member in found.members:
        if member.member_id != config.member_id and {*member.endpoints} & {*config.me.endpoints}:
            raise ConfigurationError(
                f"the cluster has member {member.member_id} at {', '.join(member.endpoints)}, and its settings say "
                f"member_id={config.member_id} at {', '.join(config.me.endpoints)}: start it with --member-id "
                f"{member.member_id} if it is that member, or give it endpoints of its own"
            )


def _expect_own_kind(config: NodeConfig, mine: ConfiguredMember) -> None:
    if config.standby and mine.kind is not MemberKind.STANDBY:
        raise ConfigurationError(
            f"the cluster has member {config.member_id} as a {mine.kind}, its settings say standby=true: start it "
            "without `--standby`, or remove it and add another with `trimaran member add --standby`"
        )


async def settle_roster(config: NodeConfig, network: NetworkStack, file: MembersFile, roster: Roster) -> None:
    """Complete what this member's log says of the members with what it remembers, or with what the cluster says.

    Raises:
        ConfigurationError: the cluster cannot be joined.
        OSError: the disk refused.
    """
    if roster.current.log_position == 0 and file.newest is None and config.join:
        await aiofiles.os.wrap(file.store)(await find_cluster(config, network))
    if file.newest is None:
        return
    if roster.current.log_position == 0:
        # The log says nothing yet. What it will say of the members comes before what the others say now.
        roster.history.start_from(replace(file.newest, log_position=0))
    roster.hear(file.newest)
