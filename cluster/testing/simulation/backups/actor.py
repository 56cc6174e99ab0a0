"""A machine that backs the simulated cluster up: the real agent, and the real follower that copies to the store.

Cold storage is in the same store. Of some seeds the machine prunes the store, too, now and then. It is killed and loses
power like all others, in the middle of a copy, too. In the end it has to have all that is committed, and a cluster that
is made of what the store has then has to have come to the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any, Final

import aiofiles.os

from .....archive.config import ArchiveConfig
from .....archive.stored.backup_files import cluster_stores
from .....archive.stored.index import INDEXES, PRUNING_PREFIX, WriterIndex
from .....archive.stored.pruning import prune
from .....service_api import ClusterError, ConfigurationError
from .....service_api.access.identity import Caller, CallerRole, Proof
from .....service_api.groups.group import ONLY_GROUP
from ....core.vocabulary.configuration import Configuration
from ....operating.backup.agent import BackupAgent
from ....operating.backup.choosing import BackupSource
from ....operating.backup.retention import BackupRetention
from ....operating.backup.running import run_backup
from ....operating.backup.settings import BackupSettings
from ....operating.backup.shortening import shorten
from ....operating.backup.states import BackupState
from ....operating.backup.store_follower import StoreFollower
from ....runtime.ground.host import Host
from ..cluster import DIRECTORY, Settings, SimulatedCluster, dialled
from ..rules.backup_rules import BackupRules
from ..rules.referee import Referee
from ..rules.store_rules import STORE_URL
from ..world.expect import FoundInside, expect
from ..world.machine import Machine

BACKUP: Final = "backup"
"""A machine backs the cluster up. Drawn once a seed."""

PRUNE: Final = "prune"
"""The machine of a backup prunes the store. Drawn once a seed that has a backup."""

BACKUP_CHANCE: Final = 0.3
PRUNE_CHANCE: Final = 0.6
_NAME: Final = "backup"


def has_backup(seed: int) -> bool:
    """Whether the cluster of a seed is backed up."""
    return Random(f"{seed} {BACKUP}").random() < BACKUP_CHANCE


def add_backup_machine(cluster: SimulatedCluster) -> Machine:
    """Add the machine that a backup runs on: it shows the certificate of an observer."""
    name = _NAME if cluster.group == ONLY_GROUP else f"{_NAME}-{cluster.group.index}"
    cluster.network.identify(name, Caller(CallerRole.OBSERVER, name, Proof.CERTIFICATE))
    return cluster.add_client_machine(name)


def archive_config(settings: Settings) -> ArchiveConfig:
    """Return the settings of a backup's archive: the lengths are those of the members."""
    return ArchiveConfig(
        term_length_bytes=settings.term_length_bytes,
        segment_length_bytes=settings.segment_length_bytes,
        mtu_length_bytes=settings.mtu_length_bytes,
    )


class BackupActor:
    """One backup of a cluster."""

    def __init__(self, cluster: SimulatedCluster, referee: Referee, *, has_prunes: bool = True) -> None:
        self._cluster, self._referee = cluster, referee
        self._unit_ns = cluster.settings.leader_heartbeat_timeout_ns
        self._random = random = Random(f"{cluster.seed} what happens to the {BACKUP}")
        self._agent: BackupAgent | None = None
        self._known: Configuration | None = None
        """The members that the agent was started with."""
        self._inside = FoundInside()
        self._is_over = False
        self._prunes = Random(f"{cluster.seed} {PRUNE}")
        self._has_prunes = has_prunes and self._prunes.random() < PRUNE_CHANCE
        self.prune_count = 0
        unit_s = self._unit_ns / 1e9
        self._interval_s = unit_s * random.choice((0.3, 1.0))
        retention = BackupRetention(
            keep_snapshots=random.choice((1, 1, 2, 24)),
            keep_ms=self._prunes.choice((None, int(4 * unit_s * 1_000))),
        )
        self._rules = BackupRules(referee.committed, retention)
        self._settings = BackupSettings(
            members=(),
            source=random.choice([*BackupSource]),
            from_snapshot=random.random() < 0.4,
            retention=retention,
            query_interval_s=unit_s * random.choice((0.5, 2.0)),
            answer_timeout_s=unit_s,
            progress_timeout_s=2 * unit_s,
            reset_delay_s=unit_s / 10,
            reset_delay_limit_s=unit_s,
        )
        cluster.store.watchers.append(self._on_object)
        self.machine = add_backup_machine(cluster)
        self.machine.on_exit = self._on_exit
        cluster.scheduler.call_after(int(random.choice((0, 0, 4, 10)) * self._unit_ns), self._start)
        self._plan()

    def __repr__(self) -> str:
        return f"<BackupActor {self._agent} {self._rules}>"

    # --- the process

    def _main(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Take the members as they are now, as an operator would; give what the process runs."""
        current = self._known = self._referee.membership.current
        settings = replace(self._settings, members=dialled(current.members))
        archive = archive_config(self._cluster.settings)

        async def run() -> None:
            host = self.machine.host()
            async with asyncio.TaskGroup() as group:
                group.create_task(run_backup(DIRECTORY, settings, archive=archive, host=host, on_agent=self._on_agent))
                group.create_task(self._follow(host))
                if self._has_prunes:
                    group.create_task(self._prune_now_and_then(host))

        return run

    async def _follow(self, host: Host) -> None:
        """Copy to the store for ever, as an operator has it."""
        while True:
            started_ms = self._started_ms
            try:
                await StoreFollower(DIRECTORY, STORE_URL, interval_s=self._interval_s, host=host).run()
            except ConfigurationError as error:
                self._on_refused(started_ms, error)
            await asyncio.sleep(self._interval_s)

    def _on_refused(self, started_ms: int | None, error: ConfigurationError) -> None:
        is_same = started_ms == self._started_ms and self.found is not None
        with self._inside.keeping():
            expect(not is_same, "a store goes on with its backup", started_ms=started_ms, error=error)

    async def _prune_now_and_then(self, host: Host) -> None:
        """Prune the store, as an operator does who keeps one backup; what is in the way is tried again."""
        while True:
            await asyncio.sleep(self._prunes.expovariate(1.0) * 2 * self._unit_ns / 1e9)
            self._remove_notes()  # a prune may have failed to, and said so
            with suppress(ClusterError):
                for store in await aiofiles.os.wrap(cluster_stores)(STORE_URL, open_objects=host.open_objects):
                    await aiofiles.os.wrap(prune)(
                        store,
                        keep_count=1,
                        clock_ms=host.clock.epoch_time,
                        shorten=lambda index: shorten(index, self._settings.retention),
                        draw_id=lambda: f"{self._prunes.getrandbits(64):016x}",
                    )
                    self.prune_count += 1

    def _remove_notes(self) -> None:
        """Remove the note of a prune that ended with its process, as the operator does who knows that it has."""
        objects = self._cluster.store.objects
        for url in [url for url in objects if f"/{INDEXES}/{PRUNING_PREFIX}" in url]:
            del objects[url]

    @property
    def _started_ms(self) -> int | None:
        """When the log of the directory was begun; None before there is one."""
        if self._agent is None:
            return None
        directory = self._agent.directory
        recording_id = directory.log_recording_id
        return None if recording_id is None else directory.archive.descriptor(recording_id).start_timestamp_ms

    @property
    def found(self) -> tuple[str, WriterIndex] | None:
        """The backup of the directory in the store: the URL and the index; None before it has a backup."""
        return None if self._started_ms is None else self._rules.find_index(self._started_ms)

    def _on_agent(self, agent: BackupAgent) -> None:
        self._agent = agent
        agent.on_state_changed = self._on_state
        with self._inside.keeping():
            self._rules.on_opened(agent, self.machine.disk)

    def _on_state(self, old: BackupState, new: BackupState) -> None:
        if new is BackupState.BACKING_UP:
            with self._inside.keeping():
                self._rules.look_at_snapshots(self.machine.disk)

    def _on_object(self, url: str) -> None:
        with self._inside.keeping():
            self._rules.on_object(url, self._cluster.store.objects)

    def _look(self) -> None:
        self._inside.tell()
        if self._agent is not None:
            self._rules.look(self._agent, self.machine.disk)

    def _on_exit(self, error: BaseException | None) -> None:
        self._agent = None
        expect(False, "a backup goes on until it is stopped", error=repr(error))

    # --- what happens to it

    def _plan(self) -> None:
        delay_ns = int(self._random.expovariate(1.0) * 4 * self._unit_ns) + 1
        self._cluster.scheduler.call_after(delay_ns, self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        strike = self._random.choice((self._kill, self._lose_power, self._end_midway))
        if self.machine.is_running:
            strike()
        self._plan()

    def _kill(self) -> None:
        self._agent = None
        self.machine.kill()
        self._start_later()

    def _lose_power(self) -> None:
        self._agent, rate = None, self._random.choice((0.0, 0.5, 1.0))
        self.machine.lose_power(lambda: self._random.random() < rate)
        self._start_later()

    def _end_midway(self) -> None:
        """The process ends while it copies to the store, after a few operations."""
        self._cluster.store.end_midway(self.machine, self._random.randrange(1, 12), self._kill)

    def _start_later(self) -> None:
        """Start it again soon, or after the members may have removed what comes next."""
        mean = self._random.choice((0.5, 0.5, 0.5, 5.0))
        self._cluster.scheduler.call_after(int(self._random.expovariate(1.0) * mean * self._unit_ns) + 1, self._start)

    def _start(self) -> None:
        if self.machine.is_running:
            return
        if not self.machine.has_power:
            self.machine.regain_power()
        self._remove_notes()
        self._cluster.store.on_started(self.machine)
        self.machine.start(self._main()).observer = self._look

    # --- the end

    def end(self) -> None:
        """Let nothing happen to it any more; one that knows the members of before is started again."""
        self._is_over = True
        self._cluster.store.on_started(self.machine)
        if self.machine.is_running and self._known is not self._referee.membership.current:
            self._kill()
        self._start()

    def has_all(self) -> bool:
        """Whether disk and store have everything that is committed."""
        self._look()
        agent, found = self._agent, self.found
        contents = None if found is None else found[1].backup
        end = len(self._referee.committed)
        return (
            agent is not None
            and agent.state is BackupState.BACKING_UP
            and self._rules.recorded_position == end
            and contents is not None
            and contents.log_stop_position == end
        )
