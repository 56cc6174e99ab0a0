"""Which faults a round has, and when: a function of the seed and of what this machine permits, and of nothing else.

A fault names its members by number, or the member that leads when it comes. Faults of different members may
overlap. A fault that would hit a member which has one already, or would leave no majority, waits for some seconds and
is skipped then. Faults of the whole cluster come alone.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

LEADER: Final = -1
"""Stands for the leader where a member's number is expected."""
EVERYBODY: Final = -2


class ChaosFault(StrEnum):
    """What may befall a cluster."""

    KILL = "kill"
    """SIGKILL, and a start some time later."""
    PAUSE = "pause"
    """SIGSTOP, and SIGCONT some time later."""
    TERMINATE = "terminate"
    """SIGTERM, and a start some time later."""
    HANG_UP = "hang_up"
    """SIGHUP, and a start some time later."""
    ISOLATE = "isolate"
    """Nothing reaches a member or leaves it, of clients neither."""
    MUTE = "mute"
    """What a member sends to other members does not arrive; it hears them."""
    DEAF = "deaf"
    """What other members send to a member does not arrive; they hear it."""
    CUT_PAIR = "cut_pair"
    """One member and the one after it: what the first sends to the second does not arrive."""
    RESET = "reset"
    """All connections between a member and the others are reset."""
    DELAY = "delay"
    """What a member sends and is sent comes later by `amount` ms."""
    SLOW_SYNC = "slow_sync"
    """Each sync of a member takes `amount` ms longer."""
    SLOW_DISK = "slow_disk"
    """The same for so long that a leader with such a disk has time to hand over."""
    FAILING_SYNC = "failing_sync"
    """A sync of a member fails (EIO), and what it was to sync is lost."""
    DISK_FULL = "disk_full"
    """A member's disk takes nothing more (ENOSPC)."""
    READ_ONLY = "read_only"
    """A member's directory cannot be written (EROFS), as after an error of its device."""
    CLOCK_JUMP = "clock_jump"
    """A member's wall clock is off by `amount` ms, then true again."""
    POWER_LOSS = "power_loss"
    """A member ends at once, and what it had not synced is lost."""
    POWER_LOSS_ALL = "power_loss_all"
    """The same of every member at one moment."""
    KILL_ALL = "kill_all"
    """SIGKILL of every member at one moment."""
    SNAPSHOT = "snapshot"
    """An operator has all members take a snapshot."""
    WIPE = "wipe"
    """A member comes back without its files, while all others have everything that is committed."""
    ROTATE = "rotate"
    """A member's certificate and key are replaced; then its connections are reset, so new ones use them."""
    ROTATE_AUTHORITY = "rotate_authority"
    """The authority is replaced, and with it every certificate."""
    CARELESS = "careless"
    """The service fails, as `careless` draws it; no schedule has it."""
    ADD_MEMBER = "add_member"
    """An operator adds a member, as `roster` draws it; no schedule has this and the next two."""
    REMOVE_MEMBER = "remove_member"
    """An operator removes a member that runs."""
    REPLACE_MEMBER = "replace_member"
    """A member loses its process and its files, and an operator replaces it by a new one."""


ROSTER_CHANGES: Final = (ChaosFault.ADD_MEMBER, ChaosFault.REMOVE_MEMBER, ChaosFault.REPLACE_MEMBER)
DRAWN: Final = tuple(kind for kind in ChaosFault if kind not in {ChaosFault.CARELESS, *ROSTER_CHANGES})
"""What schedules have."""

REFUSED_WRITES: Final = {ChaosFault.DISK_FULL: errno.ENOSPC, ChaosFault.READ_ONLY: errno.EROFS}
"""Faults in which writes fail, and with which error."""
NEEDS_SHIM: Final = frozenset(
    {
        ChaosFault.SLOW_SYNC,
        ChaosFault.SLOW_DISK,
        ChaosFault.FAILING_SYNC,
        *REFUSED_WRITES,
        ChaosFault.CLOCK_JUMP,
        ChaosFault.POWER_LOSS,
        ChaosFault.POWER_LOSS_ALL,
    }
)
BESIDE_OTHERS: Final = frozenset({ChaosFault.SNAPSHOT, ChaosFault.ROTATE_AUTHORITY})
"""Faults of everybody that take nothing from the cluster, so others come beside them."""
OF_EVERYBODY: Final = frozenset({ChaosFault.KILL_ALL, ChaosFault.POWER_LOSS_ALL, *BESIDE_OTHERS})
EXCLUSIVE: Final = frozenset({ChaosFault.WIPE, ChaosFault.KILL_ALL, ChaosFault.POWER_LOSS_ALL})
"""Faults that come when no other one is under way."""
_WEIGHTS: Final = {
    ChaosFault.KILL_ALL: 0.5,
    ChaosFault.WIPE: 0.6,
    ChaosFault.KILL: 1.5,
    ChaosFault.ROTATE: 4.0,  # what its mode is about: early in a round
    ChaosFault.ROTATE_AUTHORITY: 4.0,
}
"""The more, the earlier in a row of all kinds."""
_LEADER_RATE: Final = 0.5


@dataclass(slots=True, frozen=True, kw_only=True)
class PlannedFault:
    """One fault of a schedule."""

    number: int
    kind: ChaosFault
    at_s: float
    """Seconds after the round's traffic began; it may come later, but never before the one ahead of it."""
    duration_s: float
    target: int
    """A member's number, `LEADER` or `EVERYBODY`."""
    amount: int = 0
    """Milliseconds, where the kind has some."""

    def __str__(self) -> str:
        target = {LEADER: "the leader", EVERYBODY: "all members"}.get(self.target, f"member {self.target}")
        amount = f" amount={self.amount} ms" if self.amount else ""
        return f"{self.at_s:7.2f} s  {self.kind:<14} {target} for {self.duration_s:.2f} s{amount}"


def draw_schedule(
    seed: str, *, seconds: float, member_count: int, kinds: Collection[ChaosFault]
) -> Sequence[PlannedFault]:
    """Draw the faults of one round; each kind comes once before any comes twice, as far as time allows."""
    random = Random(f"{seed} faults")
    ordered = [kind for kind in DRAWN if kind in kinds]
    faults: list[PlannedFault] = []
    at_s = random.uniform(1.0, 2.0)
    pending: list[ChaosFault] = []
    while ordered:
        if not pending:
            pending = sorted(ordered, key=lambda kind: random.random() ** (1 / _WEIGHTS.get(kind, 1.0)))
        kind = pending.pop()
        fault = _draw_fault(random, kind, len(faults), at_s, member_count)
        if fault.at_s + fault.duration_s + 1.0 > seconds:
            break
        faults.append(fault)
        overlaps = kind not in EXCLUSIVE and random.random() < 0.3
        at_s += random.uniform(0.2, fault.duration_s) if overlaps else fault.duration_s + random.uniform(0.5, 2.5)
    return faults


def _draw_fault(random: Random, kind: ChaosFault, number: int, at_s: float, member_count: int) -> PlannedFault:
    target = LEADER if random.random() < _LEADER_RATE else random.randrange(member_count)
    if kind in OF_EVERYBODY:
        target = EVERYBODY
    elif kind is ChaosFault.WIPE:
        target = random.randrange(member_count)
    duration_s = random.uniform(0.5, 4.0)
    amount = 0
    if kind is ChaosFault.DELAY:
        amount = random.choice((5, 20, 80))
    elif kind is ChaosFault.SLOW_SYNC:
        amount = random.choice((10, 50, 200, 1_000))
    elif kind is ChaosFault.SLOW_DISK:
        amount, duration_s = 200, random.uniform(6.0, 9.0)
    elif kind is ChaosFault.CLOCK_JUMP:
        amount = random.choice((-1, 1)) * random.choice((300, 5_000, 3_600_000, 86_400_000))
    if kind in (ChaosFault.RESET, *BESIDE_OTHERS):
        duration_s = 0.5
    elif kind is ChaosFault.FAILING_SYNC:
        duration_s = 1.5
    return PlannedFault(
        number=number,
        kind=kind,
        at_s=round(at_s, 3),
        duration_s=round(duration_s, 3),
        target=target,
        amount=amount,
    )
