"""Deletes segments and snapshots that the consensus module no longer needs, but never while they are read.

The recording log is durable before anything here is asked for, so the order is: the entries of an old set, then its
recordings; the newest set, then the log below the oldest that is kept. What a crash leaves of it the next start
removes.

Who reads holds back what it reads: a replay to another member, a member that catches up, one that is being sent a
snapshot. Bounded: a reader that has not moved for `STALE_NS`, or holds something back for longer than `HOLD_LIMIT_NS`,
is not waited for any more. It finds its place gone, and gets a snapshot instead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from ....archive import Archive
from ....service_api import ClusterError
from ....service_api.types import MemberId
from ...core import effects as fx
from ..ground.activities import ActivityScope
from .cold_shipper import ColdShipper

STALE_NS: Final = 30_000_000_000
HOLD_LIMIT_NS: Final = 3_600_000_000_000
_RETRY_S: Final = 5.0

logger = structlog.get_logger()


@dataclass(slots=True)
class _Hold:
    """One that holds something back: since when, and when it last moved."""

    position: int
    since_ns: int
    moved_ns: int


class HoldTracker:
    """Tells readers that come forward from those that stand still."""

    def __init__(self) -> None:
        self._holds: dict[Hashable, _Hold] = {}

    def __repr__(self) -> str:
        return f"<HoldTracker holds={len(self._holds)}>"

    def update(self, positions: Mapping[Hashable, int], now_ns: int) -> list[int]:
        """Take in where everybody is now; give the positions that count."""
        self._holds = {key: hold for key, hold in self._holds.items() if key in positions}
        counting = []
        for key, position in positions.items():
            hold = self._holds.setdefault(key, _Hold(position, now_ns, now_ns))
            if position != hold.position:
                hold.position, hold.moved_ns = position, now_ns
            if now_ns - hold.moved_ns < STALE_NS and now_ns - hold.since_ns < HOLD_LIMIT_NS:
                counting.append(position)
        return counting


class Retention:
    """Purges one member's archive; one purge at a time.

    `member_positions` tells where other members are that are still catching up with this one; `log_purge_limit` from
    where on the log stays in any case, for however long. With `cold` only that much goes which is in cold storage.
    """

    def __init__(
        self,
        archive: Archive,
        log_recording_id: int,
        *,
        member_positions: Callable[[], Mapping[MemberId, int]],
        log_purge_limit: Callable[[], int | None] = lambda: None,
        monotonic_ns: Callable[[], int],
        on_failed: Callable[[BaseException], None],
        cold: ColdShipper | None = None,
    ) -> None:
        self._archive = archive
        self._log_recording_id = log_recording_id
        self._member_positions = member_positions
        self._log_purge_limit = log_purge_limit
        self._monotonic_ns = monotonic_ns
        self._on_failed = on_failed
        self.cold: Final = cold
        if cold is not None:
            cold.on_shipped = lambda: self._wake.set()
        self._unneeded: dict[int, None] = {}
        """Recordings that are to go."""
        self._needed_position = 0
        self._holds = HoldTracker()
        self._leases: dict[MemberId, _Lease] = {}
        self._wake = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Retention needed={self._needed_position} unneeded={[*self._unneeded]} leases={len(self._leases)}>"

    def purge(self, effect: fx.PurgeArchive) -> None:
        """Remove these as soon as nobody reads them any more."""
        self._unneeded.update(dict.fromkeys(effect.recording_ids))
        self._needed_position = max(self._needed_position, effect.needed_log_position)
        if self.cold is not None:
            self.cold.want(self._needed_position)
        self._wake.set()

    def lease(self, reader: MemberId, recording_ids: tuple[int, ...], log_position: int) -> None:
        """Keep these recordings, and the log from here on, for somebody who was told of them and will read them."""
        now_ns = self._monotonic_ns()
        self._leases[reader] = _Lease(recording_ids, log_position, now_ns, now_ns)

    def start(self, tasks: ActivityScope) -> None:
        """Begin to purge, and to send to cold storage what is to be purged."""
        tasks.create_task(self.run(), name="retention")
        if self.cold is not None:
            tasks.create_task(self.cold.run(), name="cold-storage")

    async def run(self) -> None:
        """Purge what there is to purge, whenever there is something, until cancelled."""
        while True:
            try:
                is_held_back = await self._purge()
            except (ClusterError, OSError) as error:
                self._on_failed(error)
                return
            try:
                async with asyncio.timeout(_RETRY_S if is_held_back else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def finish(self) -> None:
        """Purge once more what nobody reads, when `run` has ended in order: a shutdown comes right after a snapshot.

        What is not done then, the next start does.
        """
        with contextlib.suppress(ClusterError, OSError):
            await self._purge()

    async def _purge(self) -> bool:
        """Go through everything once. True if something had to stay for now."""
        self._wake.clear()
        self._end_leases()
        for recording_id in [*self._unneeded]:
            if self._is_read(recording_id):
                continue
            await self._archive.purge_recording(recording_id)
            del self._unneeded[recording_id]
        start_position = self._archive.descriptor(self._log_recording_id).start_position
        limit = self._log_purge_limit()
        limits = [] if limit is None else [limit]
        if self.cold is not None:
            limits.append(self.cold.shipped_position)
        position = min([self._needed_position, *limits, *self._held_positions(start_position)])
        if position > start_position:
            await self._archive.purge_segments(self._log_recording_id, position)
        return bool(self._unneeded) or position < self._needed_position

    def _held_positions(self, start_position: int) -> list[int]:
        """Where those are who read the log below what is needed here, and can be helped by waiting."""
        positions: dict[Hashable, int] = {
            **self._archive.reader_positions(self._log_recording_id),
            **{("member", member_id): position for member_id, position in self._member_positions().items()},
        }
        held = {key: at for key, at in positions.items() if start_position <= at < self._needed_position}
        leased = [lease.log_position for lease in self._leases.values()]
        return self._holds.update(held, self._monotonic_ns()) + leased

    def _is_read(self, recording_id: int) -> bool:
        is_leased = any(recording_id in lease.recording_ids for lease in self._leases.values())
        return is_leased or bool(self._archive.reader_positions(recording_id))

    def _end_leases(self) -> None:
        """Forget those who have gone on from it and those who do not come; who reads goes on having it, for so long."""
        now_ns, positions = self._monotonic_ns(), self._member_positions()
        for reader, lease in [*self._leases.items()]:
            recording_ids = (*lease.recording_ids, self._log_recording_id)
            if any(self._archive.reader_positions(recording_id) for recording_id in recording_ids):
                lease.used_ns = now_ns
            has_gone_on = positions.get(reader, 0) >= lease.log_position
            if has_gone_on or now_ns - lease.used_ns >= STALE_NS or now_ns - lease.since_ns >= HOLD_LIMIT_NS:
                del self._leases[reader]
                logger.info("snapshot_lease.ended", peer_member_id=reader, log_position=lease.log_position)


@dataclass(slots=True)
class _Lease:
    """A snapshot that somebody was told of: its recordings, and the log from its position on."""

    recording_ids: tuple[int, ...]
    log_position: int
    since_ns: int
    used_ns: int
    """When it was last seen being read."""
