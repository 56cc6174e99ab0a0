"""The faults of a simulated cluster: each kind with its own rate and its own generator, drawn for each seed.

Kinds are independent: each has a generator of its own, so that leaving one out changes nothing about when the others
strike. That is what makes a failure shrink. Each strike is a function of the target and the generator, in the module
of its family; the table at the end has all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from ..backups.actor import BACKUP, PRUNE
from ..backups.scrubs import SCRUB
from ..clients.stale_reads import QUERY_KIND
from ..cluster import Member, SimulatedCluster
from ..groups.drawing import GROUPS, SESSIONS
from ..rules.referee import Referee
from ..rules.store_rules import COLD
from ..services.relay import RELAY
from ..trace import Trace
from . import (
    damage,
    disk_faults,
    hidden_flip,
    machine_faults,
    network_faults,
    operator,
    process_faults,
    recovery,
    standby_chains,
)
from .ending import core_of, end_faults, find_lingering
from .target import FaultTarget


@dataclass(slots=True, frozen=True)
class Kind:
    """A kind of fault: how often a seed has it at all, and its mean interval there, in heartbeat timeouts."""

    name: str
    chance: float
    interval: float
    strike: Callable[[FaultTarget, Random], bool]
    """Makes it happen; False if there was nothing to strike."""
    is_shared: bool = False
    """Whether it strikes machines and what is between them, and so every group that there is."""


class Nemesis:
    """Draws which kinds strike a cluster and when. In a cluster with groups each has its own."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        referee: Referee,
        trace: Trace,
        *,
        without: frozenset[str],
        kill_client: Callable[[Random], bool],
        beside: Sequence[Nemesis] = (),
    ) -> None:
        """Begin; `beside` are those of the groups before this one."""
        self.fired: dict[str, int] = dict.fromkeys(KIND_NAMES, 0)
        self.target: FaultTarget = FaultTarget(
            cluster, referee, kill_client=kill_client, beside=[other.target for other in beside]
        )
        self._cluster, self._trace = cluster, trace
        cluster.on_member_exit = partial(recovery.on_exit, self.target)
        for kind in KINDS:
            random = Random(f"{cluster.seed} {kind.name}")
            if random.random() < kind.chance and kind.name not in without and not (beside and kind.is_shared):
                self._plan(kind, random)
        self.target.after(self.target.unit_ns // 8, recovery.look_after_damage, self.target)

    def __repr__(self) -> str:
        return f"<Nemesis fired={ {name: count for name, count in self.fired.items() if count} }>"

    def _plan(self, kind: Kind, random: Random) -> None:
        delay_ns = int(random.expovariate(1.0) * kind.interval * self.target.unit_ns) + 1
        self.target.after(delay_ns, self._strike, kind, random)

    def _strike(self, kind: Kind, random: Random) -> None:
        if self.target.is_over:
            return
        if kind.strike(self.target, random):
            self.fired[kind.name] += 1
            self._trace.on_fault(kind.name)
        self._plan(kind, random)

    # --- the end

    def end(self) -> list[Member]:
        """Stop striking and mend a majority for good; give its members. The others are left for dead."""
        end_faults(self.target)
        core = self.core()
        self._trace.on_fault(f"healed, core={[member.member_id for member in core]}")
        return core

    def core(self) -> list[Member]:
        """Return the members of the cluster, as they are now, that were not left for dead."""
        return core_of(self.target)

    def lingering(self) -> list[Member]:
        """Return the members that were removed, are told so by others, and run all the same; not who is cut off."""
        return find_lingering(self.target)


KINDS: Final = (
    Kind("delay", 0.5, 4.0, network_faults.delay_links, is_shared=True),
    Kind("reset", 0.5, 2.0, network_faults.reset_links, is_shared=True),
    Kind("stall", 0.5, 2.0, network_faults.stall_links, is_shared=True),
    Kind("partition", 0.5, 6.0, network_faults.partition, is_shared=True),
    Kind("one_way", 0.4, 5.0, network_faults.cut_one_way, is_shared=True),
    Kind("isolate", 0.5, 6.0, network_faults.isolate, is_shared=True),
    Kind("swizzle_clog", 0.3, 10.0, network_faults.swizzle_clog, is_shared=True),
    Kind("kill", 0.7, 4.0, process_faults.kill_any),
    Kind("kill_leader", 0.5, 6.0, process_faults.kill_leader),
    Kind("power_loss", 0.6, 5.0, machine_faults.power_loss, is_shared=True),
    Kind("power_loss_all", 0.3, 15.0, machine_faults.power_loss_all, is_shared=True),
    Kind("end_midway", 0.5, 5.0, machine_faults.end_midway),
    Kind("stop", 0.4, 6.0, process_faults.stop_any),
    Kind("stop_all", 0.2, 15.0, process_faults.stop_all),
    Kind("pause", 0.5, 5.0, process_faults.pause_any),
    Kind("clock_jump", 0.4, 4.0, machine_faults.clock_jump, is_shared=True),
    Kind("disk_slow", 0.4, 6.0, disk_faults.slow_disk, is_shared=True),
    Kind("disk_stall", 0.4, 6.0, disk_faults.stall_disk, is_shared=True),
    Kind("flip_recording", 0.3, 12.0, damage.flip_recording),
    Kind("flip_below_snapshot", 0.5, 1.5, hidden_flip.flip_below_snapshot),
    Kind("flip_catalog", 0.2, 15.0, damage.flip_catalog),
    Kind("flip_recording_log", 0.2, 15.0, damage.flip_recording_log),
    Kind("flip_node_state", 0.2, 15.0, damage.flip_node_state),
    Kind("disk_error", 0.3, 8.0, disk_faults.fail_disk),
    Kind("disk_full", 0.2, 12.0, disk_faults.fill_disk),
    Kind("short_write", 0.3, 5.0, disk_faults.short_write),
    Kind("store", 0.6, 1.5, disk_faults.fail_store),
    Kind("wipe", 0.3, 12.0, damage.wipe),
    Kind("client_kill", 0.3, 6.0, lambda target, random: target.kill_client(random), is_shared=True),
    Kind("snapshot", 0.5, 2.0, operator.order_snapshot),
    Kind("suspend", 0.3, 5.0, operator.order_suspend),
    Kind("shutdown", 0.2, 12.0, operator.order_shutdown),
    Kind("abort", 0.2, 12.0, operator.order_abort),
    Kind("transfer", 0.5, 2.0, operator.order_transfer),
    Kind("add_member", 0.4, 5.0, lambda target, random: target.orders.add(random)),
    Kind("standby", 0.4, 1.5, lambda target, random: target.orders.standby(random)),
    Kind(standby_chains.CHAIN, 0.7, 1.0, standby_chains.chain),
    Kind("remove_member", 0.4, 6.0, lambda target, random: target.orders.remove(random)),
    Kind("replace_member", 0.3, 6.0, lambda target, random: target.orders.replace(random)),
    Kind("move_member", 0.4, 5.0, lambda target, random: target.orders.move(random)),
    Kind("leave_behind", 0.6, 6.0, damage.leave_behind),
    Kind("service_failure", 0.4, 5.0, process_faults.fail_service),
)
"""Every kind that strikes; drift of clocks, pieces of segments and the disk's ordinary speed are drawn once a seed."""

KIND_NAMES: Final = (*(kind.name for kind in KINDS), QUERY_KIND, RELAY, BACKUP, PRUNE, COLD, SCRUB, GROUPS, SESSIONS)
"""All that a run can do without. The last seven are no faults: a part of the seeds has each of them."""
