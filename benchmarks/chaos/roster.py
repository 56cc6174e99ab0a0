"""An operator who changes the members while faults come: one change after the other, as docs/membership.md says.

    add_member       a new member with an empty directory joins beside the others, and is made a voter
    remove_member    a member that runs is removed
    replace_member   a member is killed and loses its files; a new one is added, and the old one removed

A change is asked for again until the cluster shows it: the answer may be lost, and the cluster may refuse for a while,
because a fault leaves too few members. It is a violation if that takes longer than a minute.

A member that was removed has to end, and to end again when something starts it: with its directory if it still has one,
otherwise with an empty one. What it was given stays a part of what the others were given: see `checks`.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from ...cluster.core.vocabulary.configuration import MemberKind
from ...cluster.core.vocabulary.member_change import MemberChangeKind
from ...cluster.documents.inspection import MembersView, inspect_member
from ...cluster.documents.operations import MemberChangeRequest, Operation, run_operation
from ...service_api.errors import ClusterError
from ..rig.member_status import consensus_endpoint
from .cluster import ChaosCluster, RecoveryError
from .inflicting import FaultRecord, Inflictor
from .schedule import LEADER, ChaosFault, PlannedFault

_CHANGE_S: Final = 60.0
_ASK_S: Final = 2.0
_ORDER_S: Final = 10.0
_PAUSE_S: Final = 0.3
_RESERVE_S: Final = 20.0
_END_S: Final = 30.0
_ROWS: Final = (
    (ChaosFault.ADD_MEMBER, ChaosFault.REMOVE_MEMBER, ChaosFault.REPLACE_MEMBER),
    (ChaosFault.REPLACE_MEMBER, ChaosFault.ADD_MEMBER, ChaosFault.REMOVE_MEMBER),
    (ChaosFault.ADD_MEMBER, ChaosFault.REPLACE_MEMBER, ChaosFault.REMOVE_MEMBER),
)
"""After each row there are as many members as before; there are never fewer."""


def draw_changes(seed: str, *, seconds: float, place_count: int) -> list[PlannedFault]:
    """Draw the changes of one round; at most `place_count` members are added, for each needs ports of its own."""
    random = Random(f"{seed} roster")
    changes: list[PlannedFault] = []
    row: list[ChaosFault] = []
    at_s = random.uniform(1.0, 3.0)
    while at_s < seconds - 4.0:
        row = row or [*random.choice(_ROWS)]
        kind = row.pop(0)
        place_count -= kind is not ChaosFault.REMOVE_MEMBER
        if place_count < 0:
            break
        target = LEADER if random.random() < 0.4 else random.randrange(100)
        changes.append(PlannedFault(number=len(changes), kind=kind, at_s=round(at_s, 3), duration_s=0.0, target=target))
        at_s += random.uniform(3.0, 7.0)
    return changes


class RosterOperator:
    """Does the changes of a round, one after the other."""

    def __init__(
        self,
        cluster: ChaosCluster,
        inflictor: Inflictor,
        random: Random,
        on_change: Callable[[str], None],
        *,
        begun_ns: int,
    ) -> None:
        self.records: list[FaultRecord] = []
        self.finished = asyncio.Event()
        self._cluster = cluster
        self._inflictor = inflictor
        self._random = random
        self._on_change = on_change
        self._begun_ns = begun_ns

    def __repr__(self) -> str:
        return f"<RosterOperator changes={len(self.records)} members={self._cluster.member_ids}>"

    async def run(self, changes: Sequence[PlannedFault]) -> None:
        """Do all changes."""
        try:
            for plan in changes:
                await asyncio.sleep(max(self._begun_ns / 1e9 + plan.at_s - time.monotonic(), 0))
                await self._do(plan)
        finally:
            self.finished.set()

    async def _do(self, plan: PlannedFault) -> None:
        record = FaultRecord(plan=plan)
        self.records.append(record)
        old_id = None if plan.kind is ChaosFault.ADD_MEMBER else await self._reserve(plan)
        if old_id is None and plan.kind is not ChaosFault.ADD_MEMBER:
            record.note = f"skipped: no member was free for {_RESERVE_S:g} s"
            return
        self._on_change(f"{plan.kind} {'' if old_id is None else old_id}")
        record.member_id, record.begun_ns = old_id, time.monotonic_ns()
        try:
            record.note = await self._change(plan, old_id)
        finally:
            record.ended_ns = time.monotonic_ns()
            if old_id is not None:
                self._inflictor.release(old_id)

    async def _change(self, plan: PlannedFault, old_id: int | None) -> str:
        cluster, notes = self._cluster, []
        if plan.kind is ChaosFault.REPLACE_MEMBER and old_id is not None:
            await cluster.kill(old_id)
            await asyncio.to_thread(shutil.rmtree, cluster.processes.directory_of(old_id))
        if plan.kind is not ChaosFault.REMOVE_MEMBER:
            notes.append(await self._add())
        if old_id is not None:
            notes.append(await self._remove(old_id))
        return f"{', '.join(notes)}: the members are {cluster.member_ids}"

    async def _add(self) -> str:
        """Add a member and make it a voter; its process starts before or after."""
        cluster = self._cluster
        new_id, endpoints = await cluster.make_place()
        starts_first = self._random.random() < 0.5
        if starts_first:
            await cluster.start(new_id)
        await self._order(MemberChangeKind.ADD, new_id, endpoints)
        if not starts_first:
            await cluster.start(new_id)
        await self._order(MemberChangeKind.PROMOTE, new_id)
        cluster.member_ids.append(new_id)
        return f"added {new_id}"

    async def _remove(self, old_id: int) -> str:
        """Remove a member, and see that its process ends, also when it is started again."""
        cluster, is_up = self._cluster, self._cluster.is_up(old_id)
        cluster.expect_end(old_id)
        position = await self._order(MemberChangeKind.REMOVE, old_id)
        cluster.forget(old_id, position)
        if is_up:
            await self._expect_end(old_id, "after its removal")
        cluster.prepare_to_join(old_id)  # with its directory, if it has one, it passes over this
        cluster.processes.start_member(old_id)
        await self._expect_end(old_id, "after it was started again")
        return f"removed {old_id}"

    async def _expect_end(self, member_id: int, when: str) -> None:
        cluster = self._cluster
        if await cluster.wait_for_end(member_id, _END_S) is None:
            cluster.violations.append(f"member {member_id}, which is no member any more, runs {_END_S:g} s {when}")
            await cluster.kill(member_id)

    async def _order(self, kind: MemberChangeKind, member_id: int, endpoints: tuple[str, ...] = ()) -> int:
        """Ask for a change until the cluster shows it, and return where in the log the newest one is.

        Raises:
            RecoveryError: it did not within the time limit.
        """
        cluster, network = self._cluster, self._cluster.processes.network
        change = MemberChangeRequest(kind=kind, member_id=member_id, endpoints=endpoints)
        deadline_s, told = time.monotonic() + _CHANGE_S, "nobody led"
        while time.monotonic() < deadline_s:
            cluster.check_nobody_ended()
            leader_id = await cluster.find_leader()
            try:
                if leader_id is not None:
                    endpoint = consensus_endpoint(cluster.processes, leader_id)
                    view = await inspect_member(endpoint, MembersView, _ASK_S, network=network)
                    if shows_change(view, kind, member_id):
                        return view.configuration_position
                    async for step in run_operation(
                        endpoint, Operation.CHANGE_MEMBERS, _ORDER_S, change=change, network=network
                    ):
                        told = f"{step.step} {step.detail}"
            except ClusterError as error:
                told = f"{type(error).__name__}: {error}"
            await asyncio.sleep(_PAUSE_S)
        raise RecoveryError(f"the members were not changed: {kind} member_id={member_id} waited_s={_CHANGE_S:g} {told}")

    async def _reserve(self, plan: PlannedFault) -> int | None:
        """Keep a member from other faults; the last one that clients were told of at first stays."""
        cluster, deadline_s = self._cluster, time.monotonic() + _RESERVE_S
        while time.monotonic() < deadline_s:
            founders = [i for i in cluster.member_ids if i < cluster.processes.member_count]
            free = [i for i in cluster.member_ids if founders != [i]]
            chosen = free[plan.target % len(free)] if plan.target != LEADER else await cluster.find_leader()
            if chosen in free and self._inflictor.reserve(chosen, plan):
                return chosen
            cluster.check_nobody_ended()
            await asyncio.sleep(0.1)
        return None


def shows_change(view: MembersView, kind: MemberChangeKind, member_id: int) -> bool:
    """Return whether a change is committed, as a member shows the members that may not have heard of it yet."""
    if not 0 < view.configuration_position <= view.commit_position or view.high_member_id < member_id:
        return False
    found = next((one for one in view.members if one.member_id == member_id), None)
    if kind is MemberChangeKind.REMOVE:
        return found is None
    return found is not None and (kind is MemberChangeKind.ADD or found.kind == MemberKind.VOTER)
