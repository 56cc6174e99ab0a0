"""Runs rounds until the time is over or something is wrong, and tells of them while they run and afterwards.

Each round begins with a fresh cluster and with a schedule that follows from the campaign's seed and the round's number,
so one round can be run again without those before it. What a cluster makes of the same schedule differs from run to
run: processes, threads and sockets keep no seed.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Final

import uvloop
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...service_api.errors import ConfigurationError, first_leaf
from ...service_api.groups.group import Group
from ...service_api.groups.ports import GROUP_PORT_STRIDE
from ..machine.data_directory import data_directory
from ..machine.environment import describe
from ..rig.processes import ProcessGroup, find_base_ports
from ..statistics.report import Report
from .careless import PlannedAct, draw_acts
from .cluster import PLACE_COUNT
from .inflicting import FaultRecord
from .modes import MODE_FAULTS, ChaosMode
from .parameters import ChaosParameters, RoundResult
from .roster import draw_changes
from .round import ChaosRound
from .schedule import LEADER, NEEDS_SHIM, ChaosFault, PlannedFault, draw_schedule
from .shim import FaultShim, ShimError

_REFRESHES_PER_SECOND: Final = 4
GROUP_COUNT: Final = 2
"""Groups of a round with groups."""


@dataclass(slots=True, kw_only=True)
class CampaignResult:
    """All rounds of a campaign, and what could not be done on this machine."""

    parameters: ChaosParameters
    rounds: list[RoundResult] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """By what was left out, why."""
    environment: dict[str, object] = field(default_factory=dict)
    kept_directory: Path | None = None

    @property
    def violation_count(self) -> int:
        """What was wrong, in all rounds."""
        return sum(len(result.violations) for result in self.rounds)

    @property
    def power_loss_count(self) -> int:
        """How often power was lost, in all rounds."""
        return sum(result.power_loss_count for result in self.rounds)

    def to_json(self) -> Report:
        """Return the figures for a file."""
        parameters = self.parameters
        return {
            "scenario": "chaos",
            "environment": self.environment,
            "parameters": {
                "seed": parameters.seed,
                "minutes": parameters.minutes,
                "round_seconds": parameters.round_seconds,
                "members": list(parameters.members),
                "rate": parameters.rate,
                "faults": [kind.value for kind in parameters.kinds],
                "service": parameters.service,
            },
            "left_out": self.left_out,
            "violations": self.violation_count,
            "faults": fault_rows(self.rounds),
            "rounds": [result.to_json() for result in self.rounds],
        }


def run_campaign(parameters: ChaosParameters, *, directory: Path | None = None, keep: bool = False) -> CampaignResult:
    """Run a campaign; every process it starts has ended when it returns or raises. Directories of rounds that showed
    a violation are kept.

    Raises:
        ClusterError: it could not be run.
    """
    result = CampaignResult(parameters=parameters)
    with data_directory(directory, "chaos", keep=True) as data_dir:
        result.environment = describe(data_dir)
        try:
            uvloop.run(_Campaign(result, data_dir, keep=keep).run())
        except BaseExceptionGroup as error:
            raise first_leaf(error) from error
        finally:
            if result.violation_count or keep:
                result.kept_directory = data_dir
            elif directory is None:
                rmtree(data_dir, ignore_errors=True)
    return result


class _Campaign:
    """The rounds, one after the other."""

    def __init__(self, result: CampaignResult, data_dir: Path, *, keep: bool) -> None:
        self._result = result
        self._parameters = result.parameters
        self._data_dir = data_dir
        self._keep = keep
        self._console = Console(stderr=True)

    async def run(self) -> None:
        """Run until the time is over, or a round shows a violation."""
        shim = self._compile_shim()
        kinds = [kind for kind in self._parameters.kinds if shim is not None or kind not in NEEDS_SHIM]
        if not kinds:
            raise ConfigurationError(f"no fault is left: faults={self._parameters.kinds} {self._result.left_out}")
        deadline_s = time.monotonic() + self._parameters.minutes * 60
        only = self._parameters.only_round
        number = 0 if only is None else only
        while True:
            await self._run_round(number, kinds, shim)
            number += 1
            is_over = time.monotonic() + self._parameters.round_seconds / 2 > deadline_s
            if self._parameters.power_losses:
                is_over = self._result.power_loss_count >= self._parameters.power_losses
            if only is not None or is_over or self._result.violation_count:
                return

    def _compile_shim(self) -> FaultShim | None:
        if not NEEDS_SHIM.intersection(self._parameters.kinds):
            return None
        try:
            return FaultShim.compile(self._data_dir)
        except ShimError as error:
            names = ", ".join(sorted(NEEDS_SHIM.intersection(self._parameters.kinds)))
            self._result.left_out[names] = str(error)
            self._console.print(f"left out: {names}: {error}", highlight=False)
            return None

    async def _run_round(self, number: int, kinds: Sequence[ChaosFault], shim: FaultShim | None) -> None:
        parameters = self._parameters
        count, mode = parameters.member_count_of(number), parameters.mode_of(number)
        schedule, acts, changes = draw_round(parameters, number, kinds)
        fault_count = len(schedule) + len(acts) + len(changes)
        self._console.print(f"round {number}: {mode}, {count} members, {fault_count} faults", highlight=False)
        directory = self._data_dir / f"round-{number}"
        directory.mkdir()
        if mode is ChaosMode.GROUPS:
            groups = [Group(index, GROUP_COUNT) for index in range(GROUP_COUNT)]
            first_ports = find_base_ports(count, group_count=GROUP_COUNT)
            rounds = {
                directory / f"group-{group.index}": ChaosRound(
                    parameters,
                    number,
                    schedule,
                    group=group,
                    base_ports=[port + GROUP_PORT_STRIDE * group.index for port in first_ports],
                )
                for group in groups
            }
        else:
            rounds = {directory: ChaosRound(parameters, number, schedule, acts, changes)}
        with (
            ProcessGroup() as processes,
            Live(console=self._console, transient=True, refresh_per_second=_REFRESHES_PER_SECOND) as live,
        ):
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(
                        chaos_round.run(place, processes, shim, lambda looked: live.update(_progress(looked)))
                    )
                    for place, chaos_round in rounds.items()
                ]
        results = [task.result() for task in running]
        self._result.rounds += results
        for result in results:
            history = result.notes.history
            self._console.print(
                f"  {len(result.notes.answered_ns):,} answers, {history.query_count:,} queries, "
                f"{history.unknown_count} unknown of which {result.resolved_count} ran; "
                f"{result.checked_count:,} operations checked, {len(result.violations)} violations",
                highlight=False,
            )
        if not any(result.violations for result in results) and not self._keep:
            await asyncio.to_thread(rmtree, directory, ignore_errors=True)


def draw_round(
    parameters: ChaosParameters, number: int, kinds: Iterable[ChaosFault]
) -> tuple[Sequence[PlannedFault], Sequence[PlannedAct], Sequence[PlannedFault]]:
    """Draw the schedule of one round: faults, what the service does where it is careless, changes of the members."""
    seed, count, mode = f"{parameters.seed} {number}", parameters.member_count_of(number), parameters.mode_of(number)
    schedule = draw_schedule(
        seed,
        seconds=parameters.round_seconds,
        member_count=count,
        kinds=[kind for kind in kinds if kind in MODE_FAULTS[mode]],
    )
    if mode is ChaosMode.GROUPS:  # each group has a leader of its own: a fault is for one machine
        random = Random(f"{seed} machines")
        schedule = [
            replace(fault, target=random.randrange(count)) if fault.target == LEADER else fault for fault in schedule
        ]
    acts: list[PlannedAct] = []
    changes: list[PlannedFault] = []
    if mode is ChaosMode.CARELESS:
        acts = draw_acts(seed, seconds=parameters.round_seconds, member_count=count)
    if mode is ChaosMode.MEMBERSHIP:
        changes = draw_changes(seed, seconds=parameters.round_seconds, place_count=PLACE_COUNT)
    return schedule, acts, changes


def fault_rows(rounds: Iterable[RoundResult]) -> list[dict[str, object]]:
    """Return a row for each kind of fault: how many, and how long requests went unanswered, in ms."""
    times: dict[str, list[float]] = defaultdict(list)
    records: dict[str, list[FaultRecord]] = defaultdict(list)
    for record in (record for result in rounds for record in result.faults):
        records[record.plan.kind].append(record)
        if record.recovery_ns is not None:
            times[record.plan.kind].append(record.recovery_ns / 1e6)
    return [
        {
            "kind": str(kind),
            "count": sum(record.begun_ns is not None for record in found),
            "skipped": sum(record.begun_ns is None for record in found),
            "p50_ms": round(statistics.median(times[kind]), 1) if times[kind] else None,
            "max_ms": round(max(times[kind]), 1) if times[kind] else None,
        }
        for kind, found in sorted(records.items())
    ]


def print_campaign(result: CampaignResult) -> None:
    """Print what came of it: a table of faults, the maxima, violations and how to have them again."""
    console = Console()
    table = Table(title="From a fault to the next answer to a request that was sent after it")
    for heading in ("fault", "count", "skipped", "p50 ms", "max ms"):
        table.add_column(heading, justify="left" if heading == "fault" else "right")
    for row in fault_rows(result.rounds):
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console.print(table)
    answers = sum(len(found.notes.answered_ns) for found in result.rounds)
    checked = sum(found.checked_count for found in result.rounds)
    most = [most for found in result.rounds for most in found.maxima.values()]
    console.print(
        f"{len(result.rounds)} rounds, {answers:,} answers, {checked:,} operations checked, "
        f"{sum(found.undecided_count for found in result.rounds)} objects undecided; "
        f"most memory {max((m['rss_bytes'] for m in most), default=0) / 2**20:.0f} MiB, "
        f"most descriptors {max((m['descriptor_count'] for m in most), default=0)}",
        highlight=False,
    )
    for name, reason in result.left_out.items():
        console.print(f"left out: {name}: {reason}", highlight=False)
    for found in result.rounds:
        for violation in found.violations:
            console.print(Text(f"violation in round {found.name}: {violation}", style="red"))
        if found.violations:
            console.print(f"files: {found.directory}", highlight=False, soft_wrap=True)
            command = result.parameters.command(found.number)
            console.print(f"again: {command}", highlight=False, soft_wrap=True)
    if not result.violation_count:
        console.print("no violation", highlight=False)


def _progress(looked: ChaosRound) -> Text:
    """Write one line about a round that runs."""
    history = looked.notes.history
    seconds = (time.monotonic_ns() - looked.begun_ns) / 1e9 if looked.begun_ns else 0.0
    recent = sum(1 for _, answered_ns in looked.notes.answered_ns[-500:] if answered_ns > time.monotonic_ns() - 10**9)
    under_way = [] if looked.inflictor is None else looked.inflictor.under_way
    leader = "-"
    if looked.cluster is not None:
        newest = [sample.status for sample in looked.cluster.sampler.newest.values() if sample.status is not None]
        leaders = [status for status in newest if status.state == "LEADER"]
        if leaders:
            best = max(leaders, key=lambda status: status.leadership_term_id or 0)
            leader = f"{best.member_id} in term {best.leadership_term_id}"
    return Text(
        f"round {looked.number} {seconds:5.1f} s  {looked.phase:<22} leader {leader}  {recent:4d} answers/s  "
        f"{len(looked.notes.answered_ns):,} in all  {history.unknown_count} unknown  {' '.join(under_way)}"
    )
