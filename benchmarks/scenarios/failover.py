"""Fail-over: how long a client waits for its next reply when the leader dies, stands still, is cut off or hands over.

Measured is from the fault, right before the signal or the cut, to the first reply to a message that was offered after
it and committed by the next leader. The three kinds take turns. Between two faults everything is put right: the
next one comes when all members are in one term again with logs of one length, and have served for a while.

`kill9` and `sigstop` hit a cluster whose members talk to each other directly. `cut_link` hits one whose members and
client talk through proxies in this process, which hold bytes back and close nothing.

`hand_over` and `sigterm` are no faults: an operator has the leader hand over, or stops it and starts it again. They
come under a load of requests at a steady rate, and what is measured is the longest time between two replies. At the end
the service tells what ran: each request once.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Final, TypeVar

import typer
import uvloop

from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import MemberDirectory
from ...client import ClientConfig, ClusterClient
from ...cluster.core.vocabulary.control_toggle import ActionStep
from ...cluster.documents.operations import Operation, run_operation
from ...service_api.errors import ClusterTimeoutError, first_leaf
from ..load.failover import FailoverLoad, NextLeader
from ..load.steady_requests import SteadyRequests
from ..machine.data_directory import data_directory
from ..machine.environment import describe, node_settings, tune_garbage_collector
from ..options import Settings, SyncLevel
from ..rig.member_log import Leadership, RigMemberLog, event_time_s
from ..rig.member_status import consensus_endpoint
from ..rig.processes import ClusterProcesses, ProcessError, ProcessGroup
from ..rig.proxies import ProxyMesh
from ..services import ECHO_SERVICE, REQUEST_SERVICE
from ..statistics.histogram import Histogram
from ..statistics.report import ProgressLine, Report, progress_line

T = TypeVar("T")

KILL9_TARGET_MS: Final = 300.0
SILENCE_TARGET_MARGIN_MS: Final = 500.0
"""Above the heartbeat timeout, for a leader that is silent and closes nothing."""

TIMEOUT_SETTINGS: Final = (
    "leader_heartbeat_timeout_ms",
    "leader_heartbeat_interval_ms",
    "election_timeout_ms",
    "election_status_interval_ms",
    "startup_canvass_timeout_ms",
)

_BUSY: Final = {"keep_all": "false", "keep_snapshots": "1", "keep_log_bytes": str(64 << 20)}
"""Under a load of requests the log grows by gigabytes."""

_STEP_TIMEOUT_S: Final = 60.0
_POLL_INTERVAL_S: Final = 0.05
_STEADY_S: Final = 1.2
"""Of traffic before a fault: longer than the client's longest pause before it dials a member again."""
_PHASE_S: Final = 0.2
"""Up to this much more, at random, so that faults fall anywhere between two heartbeats."""


HAND_OVER_GAP_P50_TARGET_MS: Final = 30.0
HAND_OVER_GAP_TARGET_MS: Final = 100.0
_TAIL_S: Final = 0.3
"""Of traffic after the first reply of the next leader: a gap may also come later."""
_RUNS_BETWEEN_SNAPSHOTS: Final = 4
"""Under a load of requests: what a member replays when it starts is bounded so."""


class FaultKind(StrEnum):
    """What befalls the leader."""

    KILL9 = "kill9"
    """SIGKILL: its sockets close."""
    SIGSTOP = "sigstop"
    """SIGSTOP: it stands still, its sockets stay open; SIGCONT afterwards."""
    CUT_LINK = "cut_link"
    """Nothing gets through to it or from it, and no socket closes."""
    HAND_OVER = "hand_over"
    """An operator has it hand over, with `trimaran leader transfer`."""
    SIGTERM = "sigterm"
    """SIGTERM: it hands over and stops; it is started again afterwards."""

    @property
    def subject(self) -> str:
        """The cluster that it is done to."""
        return {"cut_link": "proxied", "hand_over": "busy", "sigterm": "busy"}.get(self.value, "direct")


@dataclass(slots=True, frozen=True, kw_only=True)
class FailoverParameters:
    """Parameters of one benchmark."""

    runs: Annotated[int, typer.Option(min=1, help="Faults of each kind.")] = 30
    members: Annotated[int, typer.Option(min=3, help="Members of the cluster: fewer do not survive a fault.")] = 3
    kinds: Annotated[tuple[FaultKind, ...], typer.Option(help="Kinds of faults, which take turns.")] = tuple(FaultKind)
    rate: Annotated[float, typer.Option(min=1, max=10_000, help="Messages a second that the client offers.")] = 200.0
    request_rate: Annotated[
        float,
        typer.Option(min=100, max=200_000, help="Requests a second that it makes where the leader hands over."),
    ] = 50_000.0
    file_sync_level: SyncLevel = 1
    node_settings: Settings = field(default_factory=dict)


@dataclass(slots=True, frozen=True, kw_only=True)
class FaultRun:
    """One fault and what came of it. Times are milliseconds since the fault."""

    kind: FaultKind
    failover_ms: float
    steps_ms: dict[str, float]
    """What the next leader went through, by its own log, and the client."""
    ballots: int
    """Ballots that were begun, by any member."""
    further_terms: int
    """Leadership terms after that of the first reply, until all members were one again."""
    gap_ms: float | None = None
    """Where the leader hands over: the longest time between two replies."""


def run(parameters: FailoverParameters, *, directory: Path | None = None, keep: bool = False) -> Report:
    """Run the benchmark; every process it starts has ended when it returns or raises.

    Raises:
        ClusterError: it could not be measured: a process failed, a reply was wrong, something took too long.
    """
    total = parameters.runs * len(parameters.kinds)
    with data_directory(directory, "failover", keep=keep) as data_dir, ProcessGroup() as group:
        environment = describe(data_dir)
        with progress_line(total) as progress:
            try:
                runs = uvloop.run(_run_all(parameters, data_dir, group, progress))
            except BaseExceptionGroup as error:
                raise first_leaf(error) from error
        return _report(parameters, runs, environment)


async def _run_all(
    parameters: FailoverParameters, data_dir: Path, group: ProcessGroup, progress: ProgressLine
) -> list[FaultRun]:
    runs: list[FaultRun] = []
    async with AsyncExitStack() as stack:
        subjects: dict[str, _Subject] = {}
        for name in sorted({kind.subject for kind in parameters.kinds}):
            progress.describe("starting a cluster")
            opened = _open_subject(parameters, data_dir / name, group)
            subjects[name] = await stack.enter_async_context(opened)
        tune_garbage_collector()
        for number in range(1, parameters.runs + 1):
            for kind in parameters.kinds:
                progress.describe(f"{kind} {number}/{parameters.runs}")
                runs.append(await subjects[kind.subject].measure(kind))
                progress.update(len(runs))
        progress.describe("comparing recordings")
    group.stop()
    for subject in subjects.values():
        await asyncio.to_thread(subject.check_recordings)
    return runs


@asynccontextmanager
async def _open_subject(parameters: FailoverParameters, data_dir: Path, group: ProcessGroup) -> AsyncIterator[_Subject]:
    """Start a cluster, its client and its traffic; the processes are the group's to end."""
    is_proxied, is_busy = data_dir.name == "proxied", data_dir.name == "busy"
    settings = {"file_sync_level": str(parameters.file_sync_level), **(_BUSY if is_busy else {})}
    processes = ClusterProcesses(
        data_dir,
        REQUEST_SERVICE if is_busy else ECHO_SERVICE,
        parameters.members,
        settings={**settings, **parameters.node_settings},
        group=group,
    )
    data_dir.mkdir()
    load: FailoverLoad | SteadyRequests = FailoverLoad(rate_per_s=parameters.rate)
    if is_busy:
        load = SteadyRequests(rate_per_s=parameters.request_rate)
    config = ClientConfig(
        endpoints=tuple(processes.ingress_endpoints),
        connect_timeout_s=_STEP_TIMEOUT_S,
        new_leader_timeout_s=_STEP_TIMEOUT_S,
        client_info="benchmark",
    )
    async with AsyncExitStack() as stack:
        mesh = None
        if is_proxied:
            mesh = await stack.enter_async_context(ProxyMesh(processes.base_ports))
            mesh.route_clients(asyncio.get_running_loop())
            processes.member_lists = mesh.member_lists
        logs = {i: RigMemberLog.at_end(processes.log_path_of(i)) for i in range(parameters.members)}
        for member_id in logs:
            processes.start_member(member_id)
        client = await stack.enter_async_context(ClusterClient.connect([], egress_listener=load, config=config))
        async with asyncio.TaskGroup() as tasks:
            traffic = tasks.create_task(load.run(client))
            subject = _Subject(processes, mesh, client, load)
            await subject.settle(logs)
            yield subject
            traffic.cancel()
        if isinstance(load, SteadyRequests):
            await load.check(client)
        # The end of the session is the last entry: every member has it before the links between them go.
        await client.aclose()
        await subject.wait_for_longer_logs()


class _Subject:
    """A cluster that faults are done to, and its client."""

    def __init__(
        self,
        processes: ClusterProcesses,
        mesh: ProxyMesh | None,
        client: ClusterClient,
        load: FailoverLoad | SteadyRequests,
    ) -> None:
        self._processes = processes
        self._mesh = mesh
        self._client = client
        self._load = load
        self._run_count = 0
        self._common_position = 0
        """Where all logs ended when they were last equal: committed, so no log is ever cut back below it."""

    async def measure(self, kind: FaultKind) -> FaultRun:
        """Let the leader have a fault, wait for the next one's first reply, and put everything right again.

        Raises:
            ClusterTimeoutError: there was no reply, or the members did not become one cluster again.
            ProcessError: a member ended that should not, or the old leader did not become a follower.
        """
        if kind.subject == "busy":
            self._run_count += 1
            if not self._run_count % _RUNS_BETWEEN_SNAPSHOTS:
                await self._operate(Operation.SNAPSHOT, self._client.leader_member_id)
        self._load.is_paused = False
        await self._serve_steadily()
        old_leader_id, old_term_id = self._client.leader_member_id, self._client.leadership_term_id
        logs = {i: RigMemberLog.at_end(self._processes.log_path_of(i)) for i in self._processes.members}
        expected = self._load.expect_next_leader(old_term_id)
        wall_ns, started_ns = time.time_ns(), time.monotonic_ns()
        async with asyncio.TaskGroup() as tasks:
            if kind is FaultKind.HAND_OVER:
                tasks.create_task(self._operate(Operation.TRANSFER, old_leader_id))
            else:
                self._inflict(kind, old_leader_id)
            await _within_limit(expected.replied.wait, f"{kind}: a reply of the leader after member {old_leader_id}")
        gap_ms = await self._await_gap() if isinstance(self._load, SteadyRequests) else None
        self._load.is_paused = True
        winner_id = self._client.leader_member_id
        self._undo(kind, old_leader_id)
        leadership = await self.settle(logs)
        if leadership.leader_member_id == old_leader_id and leadership.leadership_term_id <= old_term_id:
            raise ProcessError(f"the old leader leads still: {leadership}")
        failover_ms = _ms(expected.replied_ns - started_ns)
        return FaultRun(
            kind=kind,
            failover_ms=failover_ms,
            steps_ms={
                **steps_before_reply(logs[winner_id], wall_ns, failover_ms),
                **_client_steps(expected, started_ns),
            },
            ballots=sum(len(_states(log, "CANDIDATE_BALLOT")) for log in logs.values()),
            further_terms=leadership.leadership_term_id - expected.leadership_term_id,
            gap_ms=gap_ms,
        )

    async def _await_gap(self) -> float:
        """Let the traffic go on for a while; give the longest time between two replies."""
        assert isinstance(self._load, SteadyRequests)
        await asyncio.sleep(_TAIL_S)
        return _ms(self._load.longest_gap_ns)

    async def _operate(self, operation: Operation, leader_id: int) -> None:
        """Have the leader do something.

        Raises:
            ProcessError: it did not.
        """
        endpoint = consensus_endpoint(self._processes, leader_id)
        async with aclosing(run_operation(endpoint, operation, _STEP_TIMEOUT_S)) as steps:
            *_, last = [step async for step in steps]
        if last.step is not ActionStep.DONE:
            raise ProcessError(f"{operation} came to nothing: {last!r}")

    async def settle(self, logs: Mapping[int, RigMemberLog]) -> Leadership:
        """Wait until all members are in one term, by what they have logged since, with logs of one length.

        Raises:
            ClusterTimeoutError, ProcessError: as for `measure`.
        """
        what = "all members in one term with equal logs"
        return await _within_limit(lambda: self._poll_settled(logs), what)

    async def wait_for_longer_logs(self) -> None:
        """Wait until the logs of all members end at one position again, beyond the last one.

        Raises:
            ClusterTimeoutError, ProcessError: as for `measure`.
        """
        await _within_limit(self._poll_longer, "equal logs, longer than before")

    def check_recordings(self) -> None:
        """Hold the recordings of the stopped members against each other.

        Raises:
            ProcessError: they differ.
        """
        from ...cluster.cli.demo.recordings import are_identical, find_log_recording

        recordings = [find_log_recording(self._processes.directory_of(i)) for i in self._processes.members]
        ends = [recording.stop_position for recording in recordings]
        # A leader that is stopped with the others may still hand over: what follows the common end is that term's.
        if not are_identical(recordings) or min(ends) < self._common_position:
            raise ProcessError(f"recordings differ: directory={self._processes.data_dir} stop_positions={ends}")

    async def _serve_steadily(self) -> None:
        before = self._load.replied_count
        await asyncio.sleep(_STEADY_S + random.SystemRandom().random() * _PHASE_S)
        self._processes.check_running()
        if self._load.replied_count == before:
            raise ClusterTimeoutError(f"no replies before the fault: waited_s={_STEADY_S:g}")

    def _inflict(self, kind: FaultKind, member_id: int) -> None:
        match kind:
            case FaultKind.KILL9:
                self._processes.members[member_id].signal(signal.SIGKILL)
            case FaultKind.SIGSTOP:
                self._processes.members[member_id].signal(signal.SIGSTOP)
            case FaultKind.SIGTERM:
                self._processes.members[member_id].signal(signal.SIGTERM)
            case FaultKind.CUT_LINK:
                assert self._mesh is not None
                self._mesh.isolate(member_id)

    def _undo(self, kind: FaultKind, member_id: int) -> None:
        match kind:
            case FaultKind.KILL9 | FaultKind.SIGTERM:
                self._processes.members[member_id].popen.wait()
                self._processes.start_member(member_id)
            case FaultKind.SIGSTOP:
                self._processes.members[member_id].signal(signal.SIGCONT)
            case FaultKind.CUT_LINK:
                assert self._mesh is not None
                self._mesh.heal()

    async def _poll_settled(self, logs: Mapping[int, RigMemberLog]) -> Leadership:
        while True:
            self._processes.check_running()
            views = {log.leadership() for log in logs.values()}
            leadership = views.pop() if len(views) == 1 else None
            is_known = leadership is not None and self._client.leadership_term_id == leadership.leadership_term_id
            is_answered = not isinstance(self._load, SteadyRequests) or self._load.is_answered
            is_quiet = is_answered and self._client.has_leader
            if leadership is not None and is_known and is_quiet and self._are_equal():
                return leadership
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def _poll_longer(self) -> None:
        before = self._common_position
        while not (self._are_equal() and self._common_position > before):
            self._processes.check_running()
            await asyncio.sleep(_POLL_INTERVAL_S)

    def _are_equal(self) -> bool:
        """Whether all logs end at one position, which is remembered."""
        directories = [self._processes.directory_of(i) for i in self._processes.members]
        logs = [LogFile.find(MemberDirectory.find(directory)) for directory in directories]
        ends = {log.ending(self._common_position).position for log in logs}
        if len(ends) == 1:
            (self._common_position,) = ends
        return len(ends) == 1


async def _within_limit(wait: Callable[[], Awaitable[T]], what: str) -> T:
    try:
        async with asyncio.timeout(_STEP_TIMEOUT_S):
            return await wait()
    except TimeoutError as error:
        raise ClusterTimeoutError(f"waited {_STEP_TIMEOUT_S:g} s for {what}") from error


def _ms(duration_ns: int) -> float:
    return round(duration_ns / 1e6, 2)


def _states(log: RigMemberLog, state: str) -> list[dict[str, object]]:
    return log.events("election.state_changed", new=state)


def steps_before_reply(log: RigMemberLog, fault_wall_ns: int, failover_ms: float) -> dict[str, float]:
    """When the next leader came to each step; of a step taken several times the last one, which led on.

    What comes after the first reply is another election: it is counted as a further term, and is no step to the reply.
    """
    last: dict[str, float] = {}
    for event in log.events():
        name = {"election.state_changed": "new", "election.started": "event", "election.closed": "event"}.get(
            event["event"]
        )
        if name is None or (event["event"] == "election.started" and "election.started" in last):
            continue
        after_ms = round(event_time_s(event) * 1e3 - fault_wall_ns / 1e6, 2)
        if after_ms > failover_ms:
            break
        last[event[name]] = after_ms
    return last


def _client_steps(expected: NextLeader, fault_ns: int) -> dict[str, float]:
    return {"client.told": _ms(expected.told_ns - fault_ns), "client.replied": _ms(expected.replied_ns - fault_ns)}


def _report(parameters: FailoverParameters, runs: list[FaultRun], environment: Mapping[str, object]) -> Report:
    given = {"members": parameters.members, "file_sync_level": parameters.file_sync_level}
    settings = node_settings(TIMEOUT_SETTINGS, {**given, **parameters.node_settings})
    report: Report = {"scenario": "failover"}
    for kind in parameters.kinds:
        report[kind.value] = _figures([run for run in runs if run.kind is kind], settings)
    for kind in parameters.kinds:
        report[f"{kind}_steps_p50_ms"] = _step_figures([run for run in runs if run.kind is kind])
    report["runs"] = [asdict(run) for run in runs]
    report["parameters"] = asdict(parameters)
    report["environment"] = {**environment, **settings}
    return report


def _figures(runs: list[FaultRun], settings: Mapping[str, object]) -> dict[str, object]:
    histogram, kind = Histogram(), runs[0].kind
    values_ms = [run.failover_ms if run.gap_ms is None else run.gap_ms for run in runs]
    histogram.record_all(round(value * 1e6) for value in values_ms)
    silence_ms = float(str(settings["leader_heartbeat_timeout_ms"])) + SILENCE_TARGET_MARGIN_MS
    return {
        "p50_ms": round(histogram.percentile_ns(50) / 1e6, 1),
        "p99_ms": round(histogram.percentile_ns(99) / 1e6, 1),
        "max_ms": round(histogram.max_ns / 1e6, 1),
        "count": histogram.count,
        "target_ms": {"direct": silence_ms, "proxied": silence_ms, "busy": HAND_OVER_GAP_TARGET_MS}[kind.subject]
        if kind is not FaultKind.KILL9
        else KILL9_TARGET_MS,
        "ballots": sum(run.ballots for run in runs),
        "further_terms": sum(run.further_terms for run in runs),
        "values_ms": values_ms,
    }


def _step_figures(runs: list[FaultRun]) -> dict[str, float]:
    """The median time of each step that most runs went through, in their order."""
    counts = Counter(step for run in runs for step in run.steps_ms)
    common = [step for step, count in counts.items() if count > len(runs) / 2]
    figures = {step: round(median(run.steps_ms[step] for run in runs if step in run.steps_ms), 1) for step in common}
    return dict(sorted(figures.items(), key=lambda item: item[1]))
