"""Tells what members' digests have shown: a log event with all values, and the error that a minority stops with.

Before that the logs are compared: a service that was given other bytes differs, and is not at fault.
"""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import structlog

from ....archive.errors import REFILL_ADVICE
from ....service_api import ClusterError, ServiceDivergedError
from ....service_api.types import MemberId
from ...core import effects as fx
from ...core.vocabulary.divergence import Divergence
from ...messages.digests import DigestKind
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor, NodeEnd
from ..repair.comparing import LogComparer, LogComparison

logger = structlog.get_logger()


class DeliveringAgent(AgentDoor, Protocol):
    """The agent, as who stops its delivery sees it."""

    def go_on(self) -> None:
        """Deliver on: the comparison of logs has found no fault of this member."""


class DivergenceReporter:
    """Tells of divergence with the commands that show it, for one member's directory and services."""

    def __init__(
        self,
        directory: Path,
        service: str,
        *,
        member_id: MemberId,
        comparer: LogComparer,
        agent: DeliveringAgent,
        tasks: ActivityScope,
    ) -> None:
        self._directory, self._service, self._member_id = directory, service, member_id
        self._comparer, self._agent, self._tasks = comparer, agent, tasks

    def __repr__(self) -> str:
        return f"<DivergenceReporter {self._directory}>"

    def on_differed(self, effect: fx.DigestsDiffered) -> Coroutine[Any, Any, None] | None:
        """Tell where members differ, and have the logs compared where this member may be wrong.

        If it is to stop, nothing else is done before the result. Otherwise it goes on meanwhile: that takes as long as
        the log is large.
        """
        divergence = effect.divergence
        compares = self._member_id in divergence.differing or divergence.is_doubtful
        what_to_do = "this member compares its log with the others'" if compares else self._what_to_do(divergence)
        logger.error("service.digests_differed", **_facts(divergence), detail=f"{divergence}; {what_to_do}")
        if effect.is_stopping:
            return self._compare_and_stop(divergence)
        if compares:
            self._tasks.create_task(self._compare(divergence), name="compare-logs")
        return None

    async def on_undeliverable(self, error: ClusterError, commit_position: int) -> None:
        """Delivery met what no leader writes: have the log mended from the others, if theirs is another.

        Raises:
            ClusterError: the error, if the log is the same as the others', or nobody can give another.
        """
        found = await self._comparer.compare(commit_position)
        if not await self._act(found):
            raise error

    async def _act_on(self, divergence: Divergence, found: LogComparison) -> bool:
        """Do what comes of a comparison, as `_act`; a majority of independent members goes on, whatever its disks have.

        They had the range in memory when they delivered it, so their states are those of the log as it was.
        """
        difference, agreeing = found.difference, divergence.agreeing
        if (
            difference is not None
            and self._member_id in agreeing
            and self._comparer.is_majority(agreeing, difference.position, difference.stop_position)
        ):
            return False
        return await self._act(found)

    def on_mended(self, effect: fx.DivergenceMended) -> None:
        """Tell that the members which differed agree with the others again."""
        logger.info("service.digests_agreed", **_facts(effect.divergence))

    def on_field_differed(self, effect: fx.FieldDiffered) -> None:
        """Tell in which field a member with other code differs. This member goes on: nobody knows which code is right.

        Such states are what an upgrade may leave behind, so an operator must know before the next host.
        """
        found = effect.difference
        logger.error(
            "service.states_differed",
            service_id=found.service_id,
            field=found.field,
            log_position=found.log_position,
            values={str(member_id): value for member_id, value in sorted(found.values.items())},
            detail=str(found),
        )

    async def _compare_and_stop(self, divergence: Divergence) -> None:
        """Compare the logs, and stop if they are not why this member differs from a majority.

        Raises:
            ServiceDivergedError: this member's log is as valid as the others': its service is at fault.
        """
        found = await self._comparer.compare(divergence.log_position)
        if await self._act(found):
            return
        if self._comparer.is_majority(divergence.agreeing, divergence.equal_position, found.begin_position):
            raise ServiceDivergedError(self._why_it_stops(divergence, found))
        detail = f"{found}: this member goes on, as the majority has its state from one member. "
        logger.error("service.digests_compared", **_facts(divergence), detail=detail + self._commands(divergence))
        self._agent.go_on()

    async def _compare(self, divergence: Divergence) -> None:
        """Compare the logs meanwhile: this member goes on if its log is as valid as the others'."""
        try:
            found = await self._comparer.compare(divergence.log_position)
            if not await self._act_on(divergence, found):
                detail = f"{found}: this member goes on. {self._what_to_do(divergence)}"
                logger.error("service.digests_compared", **_facts(divergence), detail=detail)
        except (ClusterError, OSError) as error:
            self._agent.terminate(error)

    async def _act(self, found: LogComparison) -> bool:
        """Start again if the log was mended, or in order to hold; whether that is so."""
        has_to = await self._comparer.act(found)
        if has_to:
            self._agent.restart(NodeEnd.LOG_DIFFERED)
        return has_to

    def _why_it_stops(self, divergence: Divergence, found: LogComparison) -> str:
        log = f"its log up to there is not the cause: {found}" if not found.failure else found.failure
        return (
            f"this member differs from a majority of members: {divergence}. {log}. It stops, and its snapshots from "
            f"that position on no longer count. {self._commands(divergence)}. When the service is mended, "
            f"{REFILL_ADVICE}: directory={self._directory}"
        )

    def _what_to_do(self, divergence: Divergence) -> str:
        if divergence.has_majority:
            differing = sorted(divergence.differing)
            return f"members {differing} differ from a majority: {self._commands(divergence)}"
        return f"no majority agrees, so nobody can say who is right: {self._commands(divergence)}"

    def _commands(self, divergence: Divergence) -> str:
        where, service = self._directory, self._service
        return (
            f"To look: `trimaran replay {where} --service {service} --position {divergence.log_position}` and "
            f"`trimaran replay {where} --service {service} --verify-snapshots`, on the directory of each member; "
            f"`trimaran snapshot verify {where}`; `trimaran archive diff` of two members' archives"
        )


def kind_name(kind: int) -> str:
    """Return the word for a kind of digest."""
    known = {each.value: each.name.lower() for each in DigestKind}
    return known.get(kind, f"kind {kind}")


def _facts(divergence: Divergence) -> dict[str, object]:
    return {
        "kind": kind_name(divergence.kind),
        "service_id": divergence.service_id,
        "log_position": divergence.log_position,
        "values": {str(member_id): value for member_id, value in sorted(divergence.values.items())},
        "differing_members": sorted(divergence.differing),
        "has_majority": divergence.has_majority,
    }
