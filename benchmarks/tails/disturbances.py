"""Disturbances of an open loop at half of the peak: each beside the calm of the same run.

Every row is a cluster of its own. After a second to settle comes a while of calm, then the disturbance. A message
belongs to the time at which it was due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

from ...client import ClientConfig, ClusterClient
from ...cluster.documents.query import query_status
from ...service_api.documents.member_status import MemberStatus, find_leader, is_in_term
from ..load.arrivals import Burst, messages_in
from ..rig.member_log import RigMemberLog
from ..rig.member_status import consensus_endpoint, wait_for_status
from ..rig.meter import Meter
from ..rig.processes import ClusterProcesses, ProcessError, ProcessGroup
from ..scenarios import echo
from ..scenarios.snapshots import SteadyLoad, fill_state, request_snapshot, wait_taken
from ..services import ECHO_SERVICE, STATE_BY_COPY_SERVICE, STATE_SERVICE
from ..services.state import FILL
from ..statistics.report import Report
from .open_loop import FIGURES, Place, Step, open_loop_parameters
from .parameters import TailsParameters

CALM: Final = "calm"
BY_COPY: Final = "by a copy"
"""In the name of a row: the service yields its state, and a copy of each member's process writes it."""

_SETTLING_S: Final = 1.0
_AFTER_S: Final = 2.0
"""What belongs to a disturbance after its end."""
_DOWN_S: Final = 2.0
"""How long a follower is away."""
_LIMIT_S: Final = 60.0
_LOOK_S: Final = 0.05
_ROLL_BYTES: Final = 8 << 20
_ROLL_BEFORE_S, _ROLL_AFTER_S = 0.01, 0.05
_BURST_TIMES: Final = 4.0


class DisturbingMeter(Meter):
    """A meter that disturbs the cluster while it is measured, and says when."""

    def __init__(self, cluster: ClusterProcesses | None, disturbance: Disturbance, calm_s: float) -> None:
        super().__init__(cluster)
        assert cluster is not None
        self.cluster: Final = cluster
        self.calm_s: Final = calm_s
        self.leader_id = -1
        self.facts: dict[str, dict[str, int]] = {}
        """What else is told in a row, by the name of its spans."""
        self.started_ns = 0
        self._disturbance = disturbance

    @property
    def follower_id(self) -> int:
        """The follower that a majority needs, on one machine: the first one."""
        return next(member_id for member_id in sorted(self.cluster.members) if member_id != self.leader_id)

    async def begin(self) -> None:
        """Find the leader and prepare."""
        self.leader_id = (await self.find_leader()).member_id
        await self._disturbance.prepare(self)
        await super().begin()

    async def beside(self, measured: asyncio.Event) -> None:
        """Leave the cluster alone for a while, then disturb it."""
        self.started_ns = time.monotonic_ns()
        begin_ns = self.started_ns + int(_SETTLING_S * 1e9)
        await asyncio.sleep(_SETTLING_S + self.calm_s)
        self.groups[CALM] = [(begin_ns, time.monotonic_ns())]
        await self._disturbance.cause(self)
        await measured.wait()
        await self._disturbance.look_back(self)

    def mark(self, name: str, begin_ns: int, *, after_s: float = _AFTER_S) -> None:
        """A disturbance that began at some time is over."""
        self.groups.setdefault(name, []).append((begin_ns, time.monotonic_ns() + int(after_s * 1e9)))

    async def find_leader(self) -> MemberStatus:
        """Ask the members who leads.

        Raises:
            ProcessError: none does.
        """
        asked = [
            query_status(consensus_endpoint(self.cluster, member_id), _LIMIT_S) for member_id in self.cluster.members
        ]
        leader = find_leader([await status for status in asked])
        if leader is None:
            raise ProcessError("no member leads")
        return leader


Cause = Callable[[DisturbingMeter], Awaitable[None]]


async def _nothing(meter: DisturbingMeter) -> None:
    """Do nothing."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Disturbance:
    """What happens to a cluster in one row, or in several."""

    names: Mapping[str, str]
    """The spans that it marks, each with what it is called in its row."""
    cause: Cause
    prepare: Cause = _nothing
    """Before the load."""
    look_back: Cause = _nothing
    """After it."""
    after_s: float = 6.0
    """How long the load goes on from the beginning of the disturbance."""
    service: str = ECHO_SERVICE
    settings: Mapping[str, str] = field(default_factory=dict)
    bursts: Sequence[Burst] = ()
    """Counted from the beginning of the disturbance."""


def measure_disturbances(parameters: TailsParameters, rate: float, place: Place, step: Step) -> list[Report]:
    """Measure every row."""
    rows = []
    for disturbance in disturbances(parameters):
        step(", ".join(disturbance.names.values()))
        with place() as directory:
            rows += measure_disturbance(parameters, disturbance, rate, directory)
    return rows


def measure_disturbance(
    parameters: TailsParameters, disturbance: Disturbance, rate: float, directory: Path
) -> list[Report]:
    """Measure the rows of a disturbance."""
    before_s = _SETTLING_S + parameters.calm_s
    bursts = tuple(burst._replace(after_s=burst.after_s + before_s) for burst in disturbance.bursts)
    told = open_loop_parameters(
        parameters,
        rate,
        messages_in(rate, bursts, before_s + disturbance.after_s),
        bursts=bursts,
        service=disturbance.service,
        node_settings=disturbance.settings,
    )
    meters: list[DisturbingMeter] = []

    def make_meter(cluster: ClusterProcesses | None, clients: ProcessGroup) -> DisturbingMeter:
        meters.append(DisturbingMeter(cluster, disturbance, parameters.calm_s))
        return meters[0]

    report = echo.run(told, directory=directory, make_meter=make_meter)
    return [_row(name, what, report, meters[0]) for name, what in disturbance.names.items()]


def _row(name: str, what: str, report: Report, meter: DisturbingMeter) -> Report:
    """One row: figures of a group of spans beside those of the calm."""
    spans = meter.groups.get(name, [])
    slow_ns = [
        min(moment["end_ns"], end_ns) - begin_ns
        for begin_ns, end_ns in spans
        for moment in report["moments"]
        if moment["begin_ns"] < end_ns and moment["end_ns"] > begin_ns
    ]
    figures = {group: {figure: report["groups"][group][figure] for figure in FIGURES} for group in (CALM, name)}
    return {
        "what": what,
        "count": len(spans),
        CALM: figures[CALM],
        "during": figures[name],
        "slow_until_ms": round(max(slow_ns, default=0) / 1e6, 1),
        "send_lag_max_us": report["send_lag"]["max_us"],
        **meter.facts.get(name, {}),
    }


# The disturbances


def disturbances(parameters: TailsParameters) -> list[Disturbance]:
    """Make what happens to each cluster, in the order of the rows."""
    rolls = {"segment_length_bytes": str(_ROLL_BYTES), "term_length_bytes": str(_ROLL_BYTES)}
    found = [Disturbance(names={"roll": "a segment of 8 MiB rolls"}, cause=_nothing, look_back=_rolls, settings=rolls)]
    found += [_snapshot_of(mib, "", STATE_SERVICE) for mib in parameters.snapshots_mib]
    found += [_snapshot_of(mib, f" {BY_COPY}", STATE_BY_COPY_SERVICE) for mib in parameters.copied_mib]
    short, long = Burst(0.0, 0.1, _BURST_TIMES), Burst(3.0, 1.0, _BURST_TIMES)
    bursts = {"short": "four times the rate for 100 ms", "long": "four times the rate for 1 s"}
    found.append(Disturbance(names=bursts, cause=partial(_bursts, short, long), bursts=(short, long), after_s=9.0))
    if parameters.members > 1:
        killed = {"away": "a follower is killed", "back": "it returns"}
        found.append(Disturbance(names=killed, cause=_killed, after_s=10.0))
        found.append(Disturbance(names={"stopped": "a follower stands still for 2 s"}, cause=_stopped))
    return found


def _snapshot_of(mib: int, how: str, service: str) -> Disturbance:
    return Disturbance(
        names={"snapshot": f"a snapshot of {mib} MiB{how}"},
        prepare=partial(_fill, mib),
        cause=_snapshot,
        service=service,
        after_s=6.0 + mib / 50,
    )


async def _rolls(meter: DisturbingMeter) -> None:
    """Find when the leader's segments were written to their ends, and call the time between them the calm."""
    age_ns = time.time_ns() - time.monotonic_ns()
    paths = sorted(
        (meter.cluster.directory_of(meter.leader_id) / "archive").glob("*.rec"),
        key=lambda path: path.stat().st_mtime_ns,
    )
    ended_ns = [path.stat().st_mtime_ns - age_ns for path in paths[:-1]]
    spans = [(at_ns - int(_ROLL_BEFORE_S * 1e9), at_ns + int(_ROLL_AFTER_S * 1e9)) for at_ns in ended_ns]
    begin_ns = meter.started_ns + int(_SETTLING_S * 1e9)
    meter.groups["roll"] = [span for span in spans if span[0] >= begin_ns]
    meter.groups[CALM] = []
    for roll_begin_ns, roll_end_ns in [*meter.groups["roll"], (time.monotonic_ns(), 0)]:
        if roll_begin_ns > begin_ns:
            meter.groups[CALM].append((begin_ns, roll_begin_ns))
        begin_ns = roll_end_ns


async def _fill(mib: int, meter: DisturbingMeter) -> None:
    """Let the state of the service grow."""
    load = SteadyLoad(1.0)
    config = ClientConfig(endpoints=tuple(meter.cluster.ingress_endpoints), client_info="benchmark")
    async with ClusterClient.connect(egress_listener=load, config=config) as client:
        await fill_state(client, load, [FILL] * mib)


async def _snapshot(meter: DisturbingMeter) -> None:
    """Take a snapshot on every member."""
    logs = {member_id: RigMemberLog.at_end(meter.cluster.log_path_of(member_id)) for member_id in meter.cluster.members}
    begin_ns = time.monotonic_ns()
    log_position = await request_snapshot(meter.cluster, meter.leader_id)
    taken = await wait_taken(logs, log_position)
    meter.mark("snapshot", begin_ns)
    meter.facts["snapshot"] = {
        "delivery_stop_ms": max(event["stop_ms"] for event in taken.values()),
        "taken_ms": max(event["duration_ms"] for event in taken.values()),
    }


async def _bursts(short: Burst, long: Burst, meter: DisturbingMeter) -> None:
    """Say when the bursts of the load are."""
    begin_ns = time.monotonic_ns()
    for name, burst in (("short", short), ("long", long)):
        burst_ns = begin_ns + int(burst.after_s * 1e9)
        meter.groups[name] = [(burst_ns, burst_ns + int((burst.length_s + _AFTER_S) * 1e9))]


async def _killed(meter: DisturbingMeter) -> None:
    """Kill a follower, and start it again after a while."""
    cluster, follower_id = meter.cluster, meter.follower_id
    begin_ns = time.monotonic_ns()
    cluster.kill_member(follower_id)
    del cluster.members[follower_id]  # one that has ended would end the run
    await asyncio.sleep(_DOWN_S)
    meter.mark("away", begin_ns, after_s=0)
    missed = (await meter.find_leader()).append_position
    begin_ns = time.monotonic_ns()
    cluster.start_member(follower_id)
    await wait_for_status(
        cluster,
        follower_id,
        lambda status: is_in_term(status) and status.append_position >= missed,
        time_limit_s=_LIMIT_S,
    )
    meter.facts["back"] = {"returned_ms": round((time.monotonic_ns() - begin_ns) / 1e6)}
    meter.mark("back", begin_ns)


async def _stopped(meter: DisturbingMeter) -> None:
    """Stop a follower's process, and let it go on."""
    follower = meter.cluster.members[meter.follower_id]
    begin_ns = time.monotonic_ns()
    follower.signal(SIGSTOP)
    await asyncio.sleep(_DOWN_S)
    follower.signal(SIGCONT)
    meter.mark("stopped", begin_ns)
