"""Copies the snapshot that a standby offers, from archive to archive, beside what is here.

The copies are read through before the consensus module hears of them: markers, sessions and messages must be those of
one snapshot at the place that was offered. Elections, the log and the service go on meanwhile, and nothing of what is
here is touched. It is the consensus module that adds the copies to the recording log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from ....archive import Archive, ArchiveError
from ....service_api import ClusterError
from ....service_api.endpoint import Endpoint
from ....service_api.net.transport import NetworkStack
from ....service_api.types import NULL_VALUE
from ...core import effects as fx
from ...core import events as ev
from ...core.context import ConsensusContext
from ...core.log.shipped_snapshot import make_recording_log
from ..ground.activities import ActivityScope
from ..ground.agent_door import AgentDoor
from .recording_copies import DiskFailedError, RecordingCopier
from .recovery import read_snapshots

_FETCH_LIMIT_S = 3600.0
"""A copy that takes longer is given up: the standby has a newer snapshot by then."""

logger = structlog.get_logger()


class StandbySnapshotFetcher:
    """Copies one standby's snapshot at a time."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        *,
        network: NetworkStack,
        agent: AgentDoor,
        monotonic_ns: Callable[[], int],
        tasks: ActivityScope,
    ) -> None:
        self._ctx = ctx
        self._archive = archive
        self._copier = RecordingCopier(ctx, archive, network)
        self._agent = agent
        self._monotonic_ns = monotonic_ns
        self._tasks = tasks

    def fetch(self, effect: fx.FetchStandbySnapshot) -> None:
        """Begin to copy; how it ends comes back as an event."""
        self._tasks.create_task(self._run(effect), name=f"standby-snapshot-{effect.member_id}")

    async def _run(self, effect: fx.FetchStandbySnapshot) -> None:
        made: list[int] = []
        outcome: ev.StandbySnapshotFetched | None = None
        try:
            async with asyncio.timeout(_FETCH_LIMIT_S):
                outcome = await self._fetch(effect, made)
        except (ClusterError, OSError) as error:  # a timeout is an OSError
            reason = f"{type(error).__name__}: {error}"
            logger.warning("standby_snapshot.fetch_failed", standby_member_id=effect.member_id, reason=reason)
            await self._discard(made)
            self._agent.post(ev.StandbySnapshotFetchFailed(reason))
        except DiskFailedError as error:
            self._agent.terminate(error.cause)
        if outcome is not None:
            self._agent.post(outcome)

    async def _fetch(self, effect: fx.FetchStandbySnapshot, made: list[int]) -> ev.StandbySnapshotFetched:
        began_ns = self._monotonic_ns()
        endpoint = Endpoint.parse(self._ctx.roster.address_of(effect.member_id).archive)
        remotes = await self._copier.list_remote(endpoint, [one.recording_id for one in effect.snapshots])
        copies = []
        for snapshot, remote in zip(effect.snapshots, remotes, strict=True):
            copied_id = await self._copier.copy(endpoint, remote, snapshot.stream_id, on_made=made.append)
            copies.append(replace(snapshot, recording_id=copied_id))
        recording_log = make_recording_log((), copies, log_recording_id=NULL_VALUE)
        entries = recording_log.latest_snapshots(self._ctx.config.service_count)
        await read_snapshots(self._archive, entries)  # as a start would
        module_id, *service_ids = (entry.recording_id for entry in entries)
        log_position = effect.snapshots[0].log_position
        logger.info(
            "standby_snapshot.fetched",
            standby_member_id=effect.member_id,
            log_position=log_position,
            length_bytes=sum(map(self._archive.recorded_position, made)),
            duration_ms=(self._monotonic_ns() - began_ns) // 1_000_000,
        )
        return ev.StandbySnapshotFetched(log_position, tuple(service_ids), module_id)

    async def _discard(self, recording_ids: Sequence[int]) -> None:
        try:
            await self._copier.discard(recording_ids)
        except (ArchiveError, OSError) as error:
            self._agent.terminate(error)
