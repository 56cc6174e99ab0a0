"""One round: a fresh cluster, its clients, its faults, and everything that must hold afterwards."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from ...client import ClusterClient
from ...cluster.settings.service_loading import load_service_class
from ...cluster.testing.simulation.clients.service_work import draw_request_of
from ...service_api.errors import ClusterError, first_leaf
from ...service_api.groups.group import Group
from ..rig.processes import ProcessGroup
from . import checks
from .backing_up import check_cold
from .careless import CARELESS_SERVICE, CarelessClient, PlannedAct
from .cluster import ChaosCluster, ChaosSubject, RecoveryError, open_cluster
from .hostile import HostileClients
from .inflicting import FaultRecord, Inflictor
from .journal import merge_journals, read_journal
from .load import ChaosClient, ChaosRequester, Notes, Offerer, Reader, UserRequester
from .modes import ChaosMode
from .parameters import ChaosParameters, RoundResult
from .probe import HASH_QUERY
from .roster import RosterOperator
from .schedule import PlannedFault
from .shim import FaultShim

_START_S: Final = 60.0
_ANSWER_S: Final = 60.0
_HASH_S: Final = 30.0
_STALENESS_S: Final = 60.0
_REQUESTER_COUNT: Final = 5
_OFFERER_COUNT: Final = 2
_READER_COUNT: Final = 2
_LAST_READER: Final = 999
CLIENTS_PER_GROUP: Final = 1_000
"""Clients of group K have numbers from K times this on."""
_LOOK_INTERVAL_S: Final = 0.25
_STOP_S: Final = 30.0
_SETTLING_NS: Final = 5_000_000_000
"""Before a round ends its clients are stopped, so nobody is answered."""

OnLook = Callable[["ChaosRound"], None]


class ChaosRound:
    """Runs one round; what it has found so far may be looked at while it runs."""

    def __init__(
        self,
        parameters: ChaosParameters,
        number: int,
        schedule: Sequence[PlannedFault],
        acts: Sequence[PlannedAct] = (),
        changes: Sequence[PlannedFault] = (),
        *,
        group: Group | None = None,
        base_ports: Sequence[int] = (),
    ) -> None:
        self.parameters = parameters
        self.number = number
        self.schedule = schedule
        self.acts = acts
        self.changes = changes
        self.group = group
        """The group that this round is of; the rounds of the other groups run beside it, with the same faults."""
        self._base_ports = tuple(base_ports)
        self._first_client = CLIENTS_PER_GROUP * (0 if group is None else group.index)
        self.mode = parameters.mode_of(number)
        self.member_count = parameters.member_count_of(number)
        self.hostile: HostileClients | None = None
        self.careless: CarelessClient | None = None
        self.roster: RosterOperator | None = None
        self.notes = Notes()
        self.phase = "starting"
        self.begun_ns = 0
        self.inflictor: Inflictor | None = None
        self.cluster: ChaosCluster | None = None
        self.violations: list[str] = []
        self._hashes: dict[int, tuple[int, bytes]] = {}
        self._commit_position = 0

    async def run(self, data_dir: Path, group: ProcessGroup, shim: FaultShim | None, on_look: OnLook) -> RoundResult:
        """Run it; violations are in the result.

        Raises:
            ClusterError: it could not be run: a process did not start.
        """
        parameters = self.parameters
        subject = ChaosSubject(
            service=CARELESS_SERVICE if self.mode is ChaosMode.CARELESS else parameters.service,
            service_dir=parameters.service_dir.resolve(),
            member_count=self.member_count,
            settings=parameters.settings,
            mode=self.mode,
            plant=parameters.plant,
            group=self.group,
            base_ports=self._base_ports,
        )
        async with open_cluster(subject, data_dir, group, shim) as cluster:
            self.cluster = cluster
            await cluster.wait_until_in_step(_START_S, check=cluster.processes.check_running)
            if cluster.backup is not None:
                cluster.backup.start()
            try:
                await self._use(cluster, on_look)
            except* RecoveryError as errors:
                self.violations.append(str(first_leaf(errors)))
            self.phase = "stopping"
            ended_ns = time.monotonic_ns()
            await self._stop(cluster)
        self.phase = "checking"
        on_look(self)
        result = self._result(cluster, data_dir, ended_ns)
        await asyncio.to_thread(self._check, cluster, result)
        return result

    async def _use(self, cluster: ChaosCluster, on_look: OnLook) -> None:
        """Do everything that needs the cluster to run."""
        async with asyncio.TaskGroup() as tasks:
            watchers = [
                tasks.create_task(cluster.sampler.run()),
                tasks.create_task(cluster.supervise()),
                tasks.create_task(self._look(on_look)),
            ]
            if cluster.backup is not None:
                watchers.append(tasks.create_task(cluster.backup.supervise()))
            try:
                await self._load_and_faults(cluster)
                await self._settle(cluster)
                if cluster.backup is not None:
                    await cluster.backup.finish(self._commit_position)
            finally:
                for watcher in watchers:
                    watcher.cancel()

    async def _look(self, on_look: OnLook) -> None:
        while True:
            on_look(self)
            await asyncio.sleep(_LOOK_INTERVAL_S)

    async def _load_and_faults(self, cluster: ChaosCluster) -> None:
        clients = self._clients(cluster)
        self.begun_ns = time.monotonic_ns()
        random = Random(f"{self.parameters.seed} {self.number} inflicting")
        self.inflictor = Inflictor(cluster, random, self._set_phase, begun_ns=self.begun_ns)
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(client.run())
            others = self._begin_others(cluster, tasks)
            try:
                await self.inflictor.run(list(self.schedule))
                left_s = self.begun_ns / 1e9 + self.parameters.round_seconds - time.monotonic()
                await asyncio.sleep(max(left_s, 1.0))
                for planned in (self.careless, self.roster):
                    if planned is not None:
                        await planned.finished.wait()
                for other in others:
                    other.cancel()
                self.phase = "putting right"
                await cluster.put_right()
                await self._wait_for_answers(cluster)
            finally:
                for client in clients:
                    client.stop()
                for other in others:
                    other.cancel()

    def _begin_others(self, cluster: ChaosCluster, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin what a round of its mode has besides faults and checked clients."""
        seed = f"{self.parameters.seed} {self.number}"
        if self.mode is ChaosMode.HOSTILE:
            ports, random = cluster.processes.base_ports, Random(f"{seed} hostile")
            self.hostile = HostileClients(ports, cluster.client_config, random)
            return [tasks.create_task(self.hostile.run())]
        if self.mode is ChaosMode.CARELESS:
            directory = cluster.processes.data_dir
            self.careless = CarelessClient(cluster, directory, self._set_phase, begun_ns=self.begun_ns)
            return [tasks.create_task(self.careless.run(self.acts))]
        if self.mode is ChaosMode.MEMBERSHIP and self.inflictor is not None:
            random = Random(f"{seed} operating")
            self.roster = RosterOperator(cluster, self.inflictor, random, self._set_phase, begun_ns=self.begun_ns)
            return [tasks.create_task(self.roster.run(self.changes))]
        return []

    def _set_phase(self, phase: str) -> None:
        self.phase = phase

    def _clients(self, cluster: ChaosCluster) -> list[ChaosClient]:
        parameters, config = self.parameters, cluster.client_config
        seed = f"{parameters.seed} {self.number} client"
        if not parameters.is_own_service:
            service_class = load_service_class(parameters.service, parameters.service_dir)
            draw, count = draw_request_of(service_class), _REQUESTER_COUNT + _OFFERER_COUNT
            return [
                UserRequester(
                    i,
                    config,
                    self.notes,
                    Random(f"{seed} {i}"),
                    time.monotonic_ns,
                    rate=parameters.rate / count,
                    draw_request=draw,
                )
                for i in range(1, count + 1)
            ]
        kinds = (ChaosRequester,) * _REQUESTER_COUNT + (Offerer,) * _OFFERER_COUNT + (Reader,) * _READER_COUNT
        rate = parameters.rate / (_REQUESTER_COUNT + _OFFERER_COUNT)
        return [
            kind(i, config, self.notes, Random(f"{seed} {i}"), time.monotonic_ns, rate=rate)
            for i, kind in enumerate(kinds, start=self._first_client + 1)
        ]

    async def _wait_for_answers(self, cluster: ChaosCluster) -> None:
        """Wait until requests that were sent from now on are answered: the cluster must serve again.

        Raises:
            RecoveryError: none was within the time limit.
        """
        put_right_ns = time.monotonic_ns()
        deadline_s = time.monotonic() + _ANSWER_S
        while time.monotonic() < deadline_s:
            cluster.check_nobody_ended()
            answered = self.notes.answered_ns
            if answered and any(invoked_ns > put_right_ns for invoked_ns, _ in answered[-20:]):
                return
            await asyncio.sleep(0.1)
        raise RecoveryError(f"no request was answered for {_ANSWER_S:g} s after everything was put right")

    async def _settle(self, cluster: ChaosCluster) -> None:
        """Have all members come to one position, read everything once more, and ask each for its state.

        Raises:
            RecoveryError: they did not.
        """
        self.phase = "settling"
        await cluster.wait_until_in_step(check=cluster.check_nobody_ended)
        number = self._first_client + _LAST_READER
        reader = Reader(
            number, cluster.client_config, self.notes, Random(0), time.monotonic_ns, rate=self.parameters.rate
        )
        async with await ClusterClient.connect(config=cluster.client_config) as client:
            if self.parameters.is_own_service:
                await reader.read_all(client)
            await self._ask_hashes(cluster, client)
        if self.mode is ChaosMode.COLD:
            await cluster.empty_disks()
        found = await cluster.wait_until_in_step(check=cluster.check_nobody_ended)
        self._commit_position = min(status.commit_position for status in found.values())

    async def _ask_hashes(self, cluster: ChaosCluster, client: ClusterClient) -> None:
        """Ask every member for its state hash, until all answers are of one position."""
        deadline_s, refusal = time.monotonic() + _HASH_S, ""
        while time.monotonic() < deadline_s:
            answers = {}
            try:
                for member_id in cluster.member_ids:
                    result = await client.query(
                        HASH_QUERY, max_staleness_s=_STALENESS_S, read_from=member_id, timeout_s=5.0
                    )
                    answers[member_id] = result.log_position, result.payload
            except ClusterError as error:
                refusal = str(error)
            if len(answers) == len(cluster.member_ids):
                self._hashes = answers
                if len({position for position, _ in answers.values()}) == 1:
                    return
            await asyncio.sleep(0.1)
        told = refusal or self._hashes
        raise RecoveryError(f"members gave no state hashes at one position: waited_s={_HASH_S:g} {told}")

    async def _stop(self, cluster: ChaosCluster) -> None:
        """End every member in order."""
        if cluster.backup is not None:
            cluster.backup.stop()
        for member_id, member in cluster.processes.members.items():
            cluster.expect_end(member_id)
            member.popen.terminate() if member.is_running else None
        for member_id in cluster.member_ids:
            if await cluster.wait_for_end(member_id, _STOP_S) is None:
                self.violations.append(f"member {member_id} runs {_STOP_S:g} s after SIGTERM")
                await cluster.kill(member_id)

    def _result(self, cluster: ChaosCluster, data_dir: Path, ended_ns: int) -> RoundResult:
        records = [] if self.inflictor is None else list(self.inflictor.records)
        for planned in (self.careless, self.roster):
            if planned is not None:
                records = sorted([*records, *planned.records], key=lambda record: record.begun_ns or 0)
        set_recoveries(records, self.notes)
        return RoundResult(
            number=self.number,
            mode=self.mode,
            group=None if self.group is None else self.group.index,
            hostile={} if self.hostile is None else {str(kind): count for kind, count in self.hostile.attempts.items()},
            member_count=self.member_count,
            begun_ns=self.begun_ns,
            ended_ns=ended_ns,
            faults=records,
            notes=self.notes,
            samples=cluster.sampler.samples,
            maxima=cluster.sampler.maxima(),
            directory=data_dir,
            violations=[*self.violations, *cluster.violations],
            restart_count=cluster.restart_count,
        )

    def _check(self, cluster: ChaosCluster, result: RoundResult) -> None:
        journals = {i: read_journal(cluster.journal_path(i)) for i in (*cluster.member_ids, *cluster.removed)}
        merged = merge_journals(journals.items())
        result.delivery_count = len(merged.deliveries)
        found = result.violations
        found += merged.faults
        if self.group is not None:
            found += checks.check_group(merged, range(self._first_client, self._first_client + CLIENTS_PER_GROUP))
        found += checks.check_answers(self.notes.asked, merged)
        if self.parameters.is_own_service:
            verdict = checks.check_history(self.notes, merged)
            found += verdict.violations
            result.undecided_count, result.checked_count = verdict.undecided_count, verdict.checked_count
            result.resolved_count = verdict.resolved_count
        found += checks.check_states(self._hashes)
        if self._commit_position:  # without one, they were not one cluster in the end, and that is said already
            directories = {i: cluster.processes.directory_of(i) for i in cluster.member_ids}
            found += checks.check_recordings(directories, self._commit_position)
            left = {i: (cluster.processes.directory_of(i), end) for i, end in cluster.removed.items()}
            if self.mode is ChaosMode.COLD:
                result.backup["cold_objects"], faults = check_cold(cluster.processes.data_dir, directories)
                found += faults
            found += checks.check_removed(left, directories[cluster.member_ids[0]], journals)
            if cluster.backup is not None:
                random = Random(f"{self.parameters.seed} {self.number} restoring")
                found += cluster.backup.check(directories, self._commit_position, random)
                result.backup = cluster.backup.figures
        found += checks.check_resources(result.maxima)
        if self.mode is ChaosMode.HOSTILE:
            found += checks.check_service(self.notes, result.begun_ns, result.ended_ns - _SETTLING_NS)


def set_recoveries(records: Sequence[FaultRecord], notes: Notes) -> None:
    """Say of each fault how long after it the first request that was sent after it was answered."""
    answered = sorted(notes.answered_ns)
    # The earliest answer of all requests that were sent at a time or later, from the end on.
    earliest: list[int] = []
    for _, answered_ns in reversed(answered):
        earliest.append(min(answered_ns, earliest[-1]) if earliest else answered_ns)
    earliest.reverse()
    for record in records:
        if record.begun_ns is None:
            continue
        index = bisect.bisect_left(answered, (record.begun_ns, 0))
        if index < len(answered):
            record.recovery_ns = earliest[index] - record.begun_ns
