"""A cluster that is made of what an object store has of another one: it has to come to what that one was.

The real commands' code reads the simulated store and writes a directory of this machine, which becomes the disk of a
simulated member. That one replays the log in another simulation, and its services are held against what the services
of the first cluster were after each entry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from .....archive.disk.file_system import OsFileSystem, replace_file
from .....archive.stored.index import BackupContents
from .....service_api import ClusteredService, ClusterError
from .....service_api.cluster_id import ClusterId
from ....operating.backup.fetching import fetch_backup
from ....operating.backup.restoring import restore_backup
from ..cluster import DIRECTORY, Member, SimulatedCluster
from ..services.observed_service import EntryObserver, ObservedService
from ..world.expect import FoundInside, RuleBroken, expect
from ..world.machine import Machine

Delivered = dict[int, tuple[object, ...]]
"""What a service was given, by the end of the entry, and the hash of its state after it."""

_RESTORED: Final = "a cluster that is restored from a backup has come to what the backed-up one was"
_STARTED: Final = "a backup in a store can be restored and started"
_CLUSTER_ID: Final = ClusterId(0x7E57)
_LATER_NS: Final = 60_000_000_000
_LIMIT_NS: Final = 60_000_000_000


class RestoredCluster:
    """One member that is started on a restored backup."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        machine: Machine,
        services: Sequence[tuple[Callable[[], ClusteredService], Delivered]],
        place: str,
    ) -> None:
        self._old, self._machine, self._services, self._place = cluster, machine, services, place
        self._random = Random(f"{cluster.seed} restored")
        self._reached = [0 for _ in services]
        self._end_position = 0
        self._inside = FoundInside()
        skew = 0, cluster.now_ns + _LATER_NS
        settings = replace(
            cluster.settings,
            member_count=1,
            witnesses="",
            keep_all=True,
            cold_storage_url="",
            snapshot_interval_ms=0,
            snapshot_log_bytes=0,
        )
        self._cluster = SimulatedCluster(
            cluster.seed,
            settings,
            lambda member: self._observed(0),
            make_others=lambda member: [self._observed(number) for number in range(1, len(services))],
            clock_skew=lambda random: skew,
            group=cluster.group,
        )
        self._cluster.on_member_exit = self._on_exit

    def __repr__(self) -> str:
        return f"<RestoredCluster of={self._place} reached={self._reached}>"

    def check(self) -> None:
        """Restore what is there, start it, and see what its services become.

        Raises:
            RuleBroken: it is not what it should be.
        """
        member = self._cluster.members[self._cluster.founding.members[0].member_id]
        try:
            self._end_position = self._restore(member)
            self._cluster.start(member.member_id)
            is_done = self._cluster.run_until(lambda: self._is_done(member), limit_ns=_LIMIT_NS)
        except (ClusterError, OSError) as error:
            raise RuleBroken(_STARTED, place=self._place, error=error) from error
        finally:
            self._cluster.close()
        self._inside.tell()
        expect(is_done, _STARTED, place=self._place, cluster=self._cluster)
        for (_, delivered), reached in zip(self._services, self._reached, strict=True):
            newest = max((at for at in delivered if at <= self._end_position), default=0)
            expect(reached >= newest, _RESTORED, expected=newest, actual=reached, end_position=self._end_position)

    def _restore(self, member: Member) -> int:
        """Write the member's disk; give the position up to which the old cluster's log is there."""
        open_objects = partial(self._old.open_objects, self._machine, disk=OsFileSystem())
        with TemporaryDirectory() as name:
            backup = Path(name) / "backup"
            contents = fetch_backup(self._place, backup, open_objects=open_objects)
            position = self._draw_position(contents)
            restored = restore_backup(
                str(backup),
                (member.config.me,),
                Path(name) / "restored",
                cluster_id=_CLUSTER_ID,
                now_ms=member.machine.clock.epoch_time(),
                position=position,
            )
            wanted = contents.log_stop_position if position is None else position
            expect(restored.log_position == wanted, _RESTORED, expected=wanted, actual=restored.log_position)
            _copy(restored.directories[0], member)
        return wanted

    def _draw_position(self, contents: BackupContents) -> int | None:
        """Draw the end of an entry, from the first that can be restored on; None is all that is there."""
        first = contents.snapshot_positions[0] if contents.log_start_position else 0
        ends = [at for at in self._services[0][1] if first <= at <= contents.log_stop_position]
        return self._random.choice(ends) if ends and self._random.random() < 0.6 else None

    def _is_done(self, member: Member) -> bool:
        is_there = member.is_leader and member.node is not None and member.node.delivered_position > self._end_position
        return self._inside.broken is not None or is_there

    def _observed(self, number: int) -> ObservedService:
        make, delivered = self._services[number]
        return ObservedService(make(), _Comparison(self, number, delivered))

    def compare(self, number: int, position: int, expected: tuple[object, ...], actual: tuple[object, ...]) -> None:
        """Keep a difference at a position, unless it lies after what was restored."""
        if position > self._end_position:
            return
        self._reached[number] = position
        with self._inside.keeping():
            expect(expected == actual, _RESTORED, service=number, position=position, expected=expected, actual=actual)

    def _on_exit(self, member: Member, error: BaseException | None) -> None:
        self._inside.keep(RuleBroken(_STARTED, place=self._place, error=repr(error)))


class _Comparison(EntryObserver):
    """Compares what a service is given and becomes with what was delivered in the old cluster."""

    def __init__(self, cluster: RestoredCluster, number: int, delivered: Delivered) -> None:
        self._cluster, self._number, self._delivered = cluster, number, delivered

    def on_entry(self, position: int, timestamp: int, what: tuple[object, ...]) -> None:
        """Compare an entry."""
        self._cluster.compare(self._number, position, self._delivered.get(position, what), what)

    def on_loaded(self, position: int, state_hash: object) -> None:
        """Compare the state with that after the newest entry before the snapshot."""
        newest = max((at for at in self._delivered if at <= position), default=None)
        expected = state_hash if newest is None else self._delivered[newest][-1]
        self._cluster.compare(self._number, position, (expected,), (state_hash,))


def _copy(directory: Path, member: Member) -> None:
    """Write the files of a directory of this machine to the disk of a simulated one."""
    for path in sorted(directory.rglob("*")):
        target = DIRECTORY / path.relative_to(directory)
        if path.is_dir():
            member.machine.disk.make_directory(target)
        else:
            replace_file(member.machine.disk, target, path.read_bytes())
