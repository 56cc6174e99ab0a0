"""Does the faults of a schedule to a cluster, and undoes them; notes what was done to whom, and when."""

from __future__ import annotations

import asyncio
import errno
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from ...service_api.errors import ConfigurationError
from .cluster import ChaosCluster, RecoveryError
from .power_loss import lose_power
from .rotating import READ_S, CertificateKeeper
from .schedule import BESIDE_OTHERS, EVERYBODY, EXCLUSIVE, LEADER, REFUSED_WRITES, ChaosFault, PlannedFault

_TERMINATION_S: Final = 20.0
_WIPE_RETURN_S: Final = 60.0
_LEADER_WAIT_S: Final = 15.0
_TURN_S: Final = 6.0
"""How long a fault waits until its member is free."""
_SYNC_FAILURE_S: Final = 10.0
_ROTATION_S: Final = 20.0
_SERVING_S: Final = 30.0
_BACKUP_LOSS_RATE: Final = 0.5
"""How often the machine of the backup loses power with one member; with all of them it always does."""

Step = Callable[[PlannedFault, int], Awaitable[str]]
"""Does a part of a fault to a member (-1: to all), and returns what there is to tell."""


@dataclass(slots=True, kw_only=True)
class FaultRecord:
    """A fault of the schedule, and what was done."""

    plan: PlannedFault
    member_id: int | None = None
    """Whom it hit; None: all, or nobody."""
    begun_ns: int | None = None
    """On the monotonic clock; None: it was skipped."""
    ended_ns: int | None = None
    note: str = ""
    """Why it was skipped, or what came of it."""
    recovery_ns: int | None = None
    """From its beginning to the first answer to a request that was sent after it; None: there was none."""


class Inflictor:
    """Works through a schedule."""

    def __init__(
        self, cluster: ChaosCluster, random: Random, on_change: Callable[[str], None], *, begun_ns: int
    ) -> None:
        self.records: list[FaultRecord] = []
        self._cluster = cluster
        self._random = random
        self._on_change = on_change
        self._begun_ns = begun_ns
        self._busy: dict[int, PlannedFault] = {}
        self._steps: dict[ChaosFault, tuple[Step, Step]] = {
            ChaosFault.KILL: (self._kill, self._start),
            ChaosFault.KILL_ALL: (self._kill, self._start),
            ChaosFault.POWER_LOSS: (self._lose_power, self._start),
            ChaosFault.POWER_LOSS_ALL: (self._lose_power, self._start),
            ChaosFault.PAUSE: (self._pause, self._resume),
            ChaosFault.TERMINATE: (self._terminate, self._start),
            ChaosFault.HANG_UP: (self._terminate, self._start),
            ChaosFault.ISOLATE: (self._isolate, self._join),
            ChaosFault.MUTE: (self._cut, self._join),
            ChaosFault.DEAF: (self._cut, self._join),
            ChaosFault.CUT_PAIR: (self._cut, self._join),
            ChaosFault.RESET: (self._reset, self._nothing),
            ChaosFault.DELAY: (self._delay, self._join),
            ChaosFault.SLOW_SYNC: (self._set_shim, self._clear_shim),
            ChaosFault.SLOW_DISK: (self._set_shim, self._clear_shim),
            ChaosFault.CLOCK_JUMP: (self._set_shim, self._clear_shim),
            **dict.fromkeys(REFUSED_WRITES, (self._set_shim, self._clear_shim)),
            ChaosFault.FAILING_SYNC: (self._set_shim, self._end_failing_sync),
            ChaosFault.SNAPSHOT: (self._take_snapshot, self._nothing),
            ChaosFault.WIPE: (self._wipe, self._await_return),
            ChaosFault.ROTATE: (self._rotate, self._end_rotation),
            ChaosFault.ROTATE_AUTHORITY: (self._rotate_authority, self._end_rotation),
        }

    @property
    def under_way(self) -> list[str]:
        """The faults that are under way, for who looks on."""
        return [f"{plan.kind}@{member_id}" for member_id, plan in self._busy.items()]

    async def run(self, faults: list[PlannedFault]) -> None:
        """Do all faults; ends when the last one is undone."""
        async with asyncio.TaskGroup() as tasks:
            for plan in faults:
                record = FaultRecord(plan=plan)
                self.records.append(record)
                await asyncio.sleep(max(self._begun_ns / 1e9 + plan.at_s - time.monotonic(), 0))
                await self._wait_for_turn(plan)
                member_ids = await self._choose(record)
                if member_ids:
                    for member_id in member_ids:
                        self._busy[member_id] = plan
                    tasks.create_task(self._inflict(record, member_ids))

    async def _inflict(self, record: FaultRecord, member_ids: list[int]) -> None:
        plan = record.plan
        begin, end = self._steps[plan.kind]
        target = -1 if plan.target == EVERYBODY else member_ids[0]
        record.member_id = None if plan.target == EVERYBODY else target
        record.begun_ns = time.monotonic_ns()
        self._on_change(f"{plan.kind} {'all' if target == -1 else f'member {target}'}")
        try:
            notes = [await begin(plan, target)]
            await asyncio.sleep(plan.duration_s)
            notes.append(await end(plan, target))
            record.note = "; ".join(note for note in notes if note)
        finally:
            record.ended_ns = time.monotonic_ns()
            for member_id in member_ids:
                self._busy.pop(member_id, None)

    async def _choose(self, record: FaultRecord) -> list[int]:
        """Say which members a fault is for, when they are free; none if it is left out."""
        deadline_s = time.monotonic() + _TURN_S
        while True:
            member_ids = await self._find_members(record)
            if member_ids or time.monotonic() > deadline_s:
                return member_ids
            self._cluster.check_nobody_ended()
            await asyncio.sleep(0.1)

    async def _find_members(self, record: FaultRecord) -> list[int]:
        plan, cluster = record.plan, self._cluster
        if plan.kind in BESIDE_OTHERS:
            free = next((i for i in cluster.member_ids if i not in self._busy), None)
            return [] if free is None else [free]  # it stands for all in `_busy`, and disturbs nobody
        if plan.target == EVERYBODY:
            return list(cluster.member_ids)
        member_id: int | None = cluster.member_ids[plan.target % len(cluster.member_ids)]
        if plan.target == LEADER:
            member_id = await self._await_leader()
        if member_id not in cluster.member_ids:
            record.note = "skipped: nobody led"
        elif member_id in self._busy:
            record.note = f"skipped: member {member_id} had {self._busy[member_id].kind}"
        elif not self._leaves_majority():
            record.note = "skipped: it would have left no majority"
        else:
            record.note = ""
            return [member_id]
        return []

    def reserve(self, member_id: int, plan: PlannedFault) -> bool:
        """Keep a member from faults of the schedule until `release`; False while it has one, or too many have."""
        if member_id in self._busy or not self._leaves_majority():
            return False
        self._busy[member_id] = plan
        return True

    def release(self, member_id: int) -> None:
        """Let faults of the schedule come to a member again."""
        self._busy.pop(member_id, None)

    def _leaves_majority(self) -> bool:
        """Return whether a majority is left if one member more has a fault."""
        count = len(self._cluster.member_ids)
        return count == 1 or 2 * (len(self._busy) + 1) <= count

    async def _await_leader(self) -> int | None:
        deadline_s = time.monotonic() + _LEADER_WAIT_S
        while True:
            found = await self._cluster.find_leader()
            if found is not None or time.monotonic() > deadline_s:
                return found
            await asyncio.sleep(0.05)

    async def _wait_for_turn(self, plan: PlannedFault) -> None:
        """Wait while a fault is under way that this one may not come beside."""
        while True:
            under_way = self._busy.values()
            if not (under_way if plan.kind in EXCLUSIVE else any(other.kind in EXCLUSIVE for other in under_way)):
                break
            self._cluster.check_nobody_ended()
            await asyncio.sleep(0.05)
        if plan.kind is ChaosFault.WIPE:
            # A member without files has forgotten its votes and what it acknowledged. That is safe only while all
            # others have everything that is committed.
            await self._wait_until_recorded_everywhere()

    async def _wait_until_recorded_everywhere(self) -> None:
        deadline_s = time.monotonic() + _WIPE_RETURN_S
        wanted: int | None = None
        while time.monotonic() < deadline_s:
            found = await self._cluster.sampler.ask_all()
            leader = next((status for status in found.values() if status.state == "LEADER"), None)
            if leader is not None and len(found) == len(self._cluster.member_ids):
                wanted = leader.commit_position if wanted is None else wanted
                others = (status for status in found.values() if status.leadership_term_id == leader.leadership_term_id)
                if sum(status.append_position >= wanted for status in others) == len(found):
                    return
            await asyncio.sleep(0.1)
        raise RecoveryError(f"members did not come to one log: waited_s={_WIPE_RETURN_S:g} position={wanted}")

    # --- the steps

    def _of(self, target: int) -> list[int]:
        return list(self._cluster.member_ids) if target == -1 else [target]

    async def _nothing(self, plan: PlannedFault, target: int) -> str:
        return ""

    async def _kill(self, plan: PlannedFault, target: int) -> str:
        await self._cluster.kill(*self._of(target))
        return ""

    async def _start(self, plan: PlannedFault, target: int) -> str:
        for member_id in self._of(target):
            await self._cluster.start(member_id)
        if self._cluster.backup is not None:
            self._cluster.backup.start()
        return ""

    async def _lose_power(self, plan: PlannedFault, target: int) -> str:
        member_ids = self._of(target)
        await self._cluster.kill(*member_ids)
        losses = []
        for member_id in member_ids:
            lost = await asyncio.to_thread(
                lose_power, self._cluster.shims[member_id].undo_directory, Random(self._random.getrandbits(64))
            )
            losses.append(f"member {member_id} lost {lost}")
        backup = self._cluster.backup
        if backup is not None and (target == -1 or self._random.random() < _BACKUP_LOSS_RATE):
            losses.append(await backup.lose_power(Random(self._random.getrandbits(64))))
        return ", ".join(losses)

    async def _pause(self, plan: PlannedFault, target: int) -> str:
        self._cluster.processes.members[target].signal(signal.SIGSTOP)
        return ""

    async def _resume(self, plan: PlannedFault, target: int) -> str:
        self._cluster.processes.members[target].signal(signal.SIGCONT)
        return ""

    async def _terminate(self, plan: PlannedFault, target: int) -> str:
        cluster = self._cluster
        number = signal.SIGHUP if plan.kind is ChaosFault.HANG_UP else signal.SIGTERM
        cluster.expect_end(target)
        cluster.processes.members[target].signal(number)
        status = await cluster.wait_for_end(target, _TERMINATION_S)
        if status is None:
            cluster.violations.append(f"member {target} runs {_TERMINATION_S:g} s after {number.name}")
            await cluster.kill(target)
        elif status not in (0, -number, 128 + number):
            tail = cluster.processes.members[target].log_tail(4)
            cluster.violations.append(f"member {target} ended with exit_status={status} after {number.name}\n{tail}")
        return ""

    async def _isolate(self, plan: PlannedFault, target: int) -> str:
        self._cluster.mesh.isolate(target)
        return ""

    async def _cut(self, plan: PlannedFault, target: int) -> str:
        mesh, count = self._cluster.mesh, len(self._cluster.member_ids)
        others = [i for i in self._cluster.member_ids if i != target]
        if plan.kind is ChaosFault.CUT_PAIR:
            mesh.cut_direction(target, (target + 1) % count)
        for other in others if plan.kind is not ChaosFault.CUT_PAIR else ():
            if plan.kind is ChaosFault.MUTE:
                mesh.cut_direction(target, other)
            else:
                mesh.cut_direction(other, target)
        return ""

    async def _join(self, plan: PlannedFault, target: int) -> str:
        self._cluster.mesh.heal_member(target)
        return ""

    async def _reset(self, plan: PlannedFault, target: int) -> str:
        self._cluster.mesh.reset(target)
        return ""

    async def _delay(self, plan: PlannedFault, target: int) -> str:
        self._cluster.mesh.set_delay(target, plan.amount / 1e3)
        return ""

    async def _set_shim(self, plan: PlannedFault, target: int) -> str:
        shim = self._cluster.shims[target]
        if plan.kind in (ChaosFault.SLOW_SYNC, ChaosFault.SLOW_DISK):
            shim.set_sync_delay(plan.amount / 1e3)
        elif plan.kind is ChaosFault.CLOCK_JUMP:
            shim.set_clock_offset(plan.amount / 1e3)
        else:
            self._cluster.allow_end(target)
            if plan.kind in REFUSED_WRITES:
                shim.set_write_error(REFUSED_WRITES[plan.kind])
            else:
                shim.set_sync_error(errno.EIO)
        return ""

    async def _clear_shim(self, plan: PlannedFault, target: int) -> str:
        cluster = self._cluster
        cluster.shims[target].clear()
        if plan.kind not in REFUSED_WRITES:
            return ""
        cluster.end_allowance(target)
        if not cluster.processes.members[target].is_running:
            await cluster.start(target)
            return "the member had stopped"
        return "the member went on" if cluster.shims[target].refused_write_count else "it wrote nothing"

    async def _end_failing_sync(self, plan: PlannedFault, target: int) -> str:
        """A member may not go on after a sync failed: it stops by itself, and what it could not sync is lost."""
        cluster, shim = self._cluster, self._cluster.shims[target]
        if not shim.failed_sync_count:
            shim.clear()
            cluster.end_allowance(target)
            return "it synced nothing"
        cluster.expect_end(target)
        status = await cluster.wait_for_end(target, _SYNC_FAILURE_S)
        if status is None:
            cluster.violations.append(f"member {target} runs {_SYNC_FAILURE_S:g} s after a sync failed")
            await cluster.kill(target)
        shim.clear()
        lost = await asyncio.to_thread(lose_power, shim.undo_directory, Random(self._random.getrandbits(64)))
        cluster.end_allowance(target)
        await cluster.start(target)
        return f"the member stopped: exit_status={status}, and lost {lost}"

    async def _take_snapshot(self, plan: PlannedFault, target: int) -> str:
        leader_id = await self._await_leader()
        if leader_id is None:
            return "nobody led"
        return await self._cluster.take_snapshot(leader_id)

    async def _wipe(self, plan: PlannedFault, target: int) -> str:
        cluster = self._cluster
        await cluster.kill(target)
        await asyncio.to_thread(shutil.rmtree, cluster.processes.directory_of(target))
        if (shim := cluster.shims.get(target)) is not None:
            shim.forget()
        await cluster.start(target)
        return ""

    async def _await_return(self, plan: PlannedFault, target: int) -> str:
        begun_s = time.monotonic()
        await self._wait_until_recorded_everywhere()
        return f"back after {plan.duration_s + time.monotonic() - begun_s:.1f} s"

    async def _rotate(self, plan: PlannedFault, target: int) -> str:
        certificates = self._certificates
        async with certificates.lock:
            await asyncio.to_thread(certificates.renew, target)
        return ""

    async def _rotate_authority(self, plan: PlannedFault, target: int) -> str:
        """Trust the new authority everywhere, give out new certificates, then trust the old authority no more."""
        certificates = self._certificates
        async with certificates.lock:
            await asyncio.to_thread(certificates.trust_new_authority)
            await asyncio.sleep(READ_S)
            for member_id in self._cluster.member_ids:
                await asyncio.to_thread(certificates.renew, member_id)
            await asyncio.to_thread(certificates.renew_users)
            await self._await_certificates(*self._cluster.member_ids)
            await asyncio.to_thread(certificates.distrust_old_authority)
            await asyncio.sleep(READ_S)
        return ""

    async def _end_rotation(self, plan: PlannedFault, target: int) -> str:
        """Have connections made with the new certificates, and see that members serve with them."""
        cluster, member_ids = self._cluster, self._of(target)
        await self._await_certificates(*member_ids)
        for member_id in member_ids:
            await self._reset(plan, member_id)
        if target != -1:  # others may be down or cut off
            await cluster.wait_until_serving(target, _SERVING_S)
        return ""

    @property
    def _certificates(self) -> CertificateKeeper:
        certificates = self._cluster.certificates
        if certificates is None:
            raise ConfigurationError("certificates are replaced only in rounds with TLS: expected --modes tls")
        return certificates

    async def _await_certificates(self, *member_ids: int) -> None:
        """Wait until members that run use their newest certificates; it is a violation if they do not."""
        cluster, certificates = self._cluster, self._certificates
        deadline_s = time.monotonic() + _ROTATION_S
        while True:
            found = await cluster.sampler.ask_all()
            late = [i for i in member_ids if cluster.is_up(i) and not (i in found and certificates.is_used(found[i]))]
            if not late or time.monotonic() > deadline_s:
                break
            cluster.check_nobody_ended()
            await asyncio.sleep(0.1)
        cluster.violations += [f"member {i} does not use its certificate after {_ROTATION_S:g} s" for i in late]
