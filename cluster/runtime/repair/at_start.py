"""Mends what a member needs to start, before it takes part in anything: before it votes or acknowledges.

A start loads the newest snapshot and replays the log after it. If either is damaged, the member cannot start, and need
not be lost either: the others have what it had, as far as that was committed. So both are read through first, the log
also for who the members are; where that meets damage, it is mended from a member that has committed it in the same
leadership term. If all members start at once, the whole ones elect a leader meanwhile and then know what is committed:
`WAIT_S` is for that. What nobody has committed by then may be an end that never was. Nothing is cut off or guessed:
where the end of the log is in doubt, or the snapshot is damaged, the start is refused with the reason. Otherwise the
member starts, does not stand where it cannot read who the members are, and stops before it would deliver what is
damaged; its repairer goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ....archive import Archive, ArchiveError, CorruptionError
from ....archive.errors import is_damage
from ....service_api.cluster_id import ClusterId
from ...settings.config import NodeConfig
from ..files.member_files import MemberFiles
from ..ground.host import Host
from ..snapshots.recovery import LogSearch, unusable_snapshot
from .fetching import find_peers
from .mender import Mender, RepairFacts, RepairOutcome

WAIT_S: Final = 20.0
_PAUSE_S: Final = 0.5
_READ_BYTES: Final = 1 << 20

_Mend = Callable[[int, int], Awaitable[str | None]]
"""Mends a recording at a position; None if it did, else why not."""

logger = structlog.get_logger()


async def mend_at_start(
    config: NodeConfig, archive: Archive, files: MemberFiles, host: Host, *, service_count: int
) -> LogSearch:
    """Read what a start needs, once, and mend it where it is damaged; give what the log says. It is not active yet.

    Raises:
        ClusterError: the snapshot is damaged, and nobody can give what belongs there; the error says why.
        CorruptionError: the end of the log is in doubt, and nobody can say what belongs there.
        ArchiveError: the disk refused.
        RemoteProtocolError: the log has an entry about the members that this version cannot read.
    """
    recording_log, search = files.recording_log.recording_log, LogSearch()
    last, snapshots = recording_log.last_term(), recording_log.latest_snapshots(service_count)
    if last is None:
        return search
    doubtful = {(place.recording_id, place.position) for place in archive.damage.places}  # by who looked for the end
    present = {descriptor.recording_id for descriptor in archive.descriptors()}  # what opens others says what is wrong
    mend = _make_mend(config, archive, files, host, log_recording_id=last.recording_id)
    for entry in snapshots:
        if entry.recording_id in present:
            start_position = archive.descriptor(entry.recording_id).start_position
            failed = await _read_through(archive, entry.recording_id, start_position, lambda frames: None, mend)
            if failed is not None:
                raise unusable_snapshot(archive, entry, str(failed)) from failed.__cause__
    if last.recording_id in present:
        search.position = archive.descriptor(last.recording_id).start_position
        if snapshots:
            search.position = max(search.position, snapshots[0].log_position)
        search.end_position = archive.recorded_position(last.recording_id)
        search.failure = await _read_through(archive, last.recording_id, search.position, search.note, mend)
        if search.failure is not None and (last.recording_id, search.position) in doubtful:
            raise search.failure
    return search


def _make_mend(config: NodeConfig, archive: Archive, files: MemberFiles, host: Host, *, log_recording_id: int) -> _Mend:
    """Make what mends a place of the archive, by what the others have committed."""
    peers = find_peers(config, files.members.newest)
    failures: list[BaseException] = []
    mender = Mender(
        archive,
        network=host.network,
        facts=lambda: RepairFacts(
            log_recording_id=log_recording_id,
            commit_position=None,
            recording_log=files.recording_log.recording_log,
            peers=peers,
            cluster_id=ClusterId(files.cluster_id.cluster_id),
        ),
        copies=files.log_copies,
        on_failed=failures.append,
    )
    return lambda recording_id, position: _mend(mender, recording_id, position, failures)


async def _read_through(
    archive: Archive, recording_id: int, position: int, note: Callable[[bytes], None], mend: _Mend
) -> CorruptionError | None:
    """Read a recording from a position to its end, whole frames for `note`; give what was not mended, and why.

    Raises:
        ArchiveError: the disk refused for another reason than damage.
    """
    end_position = archive.recorded_position(recording_id)
    while position < end_position:
        try:
            frames = archive.read(recording_id, position, _READ_BYTES, stop_position=end_position)
        except ArchiveError as error:
            if not is_damage(error):
                raise
            why = await mend(recording_id, position)
            if why is None:
                continue
            reason = f"{error.message}; it was not mended: {why}"
            failure = CorruptionError(reason, recording_id=recording_id, position=position)
            failure.__cause__ = error
            return failure
        note(frames)
        position += len(frames)
        await asyncio.sleep(0)
    return None


async def _mend(mender: Mender, recording_id: int, position: int, failures: list[BaseException]) -> str | None:
    """Try until it is mended, or nobody can, at most `WAIT_S`; say why it was not.

    Raises:
        ArchiveError: the own disk refuses, or does not keep what it takes.
    """
    loop = asyncio.get_running_loop()
    deadline_s, pause_s = loop.time() + WAIT_S, _PAUSE_S
    while True:
        outcome, reason = await mender.mend(recording_id, position)
        if failures:
            raise failures[0]
        if outcome is RepairOutcome.MENDED:
            return None
        if outcome is RepairOutcome.LOST or loop.time() + pause_s > deadline_s:
            return reason
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, 5.0)
