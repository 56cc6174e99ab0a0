"""Has mended what readers of the archive found damaged, for as long as a member runs.

Every read that meets damage says so to the archive's `DamageTracker`, be it the scrub, a replay or a copy. The repairer
has one place after the other mended. What nobody can give now is tried again, after a pause that doubles.

When every member has answered and none has the bytes, they are lost. If a start of this member would need them, the
leader takes a new snapshot, after which no start does; if there is none after `SNAPSHOT_WAIT_S`, this member stops and
says why. Older damage is told and kept. Where several have lost the same, the one with the lowest id stops first, and
the others wait for it, as it might have the range: they ask at the same times, and all would stop at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ....archive import Archive, CorruptionError
from ....archive.store.damage import DamagedPlace
from ....service_api.wire.log.recording_log import RecordingLogEntry
from ...core import events as ev
from ...core.context import ConsensusContext
from ...core.vocabulary.control_toggle import ControlToggle
from ..ground.agent_door import AgentDoor
from .mender import Mender, RepairOutcome

RETRY_MIN_S: Final = 1.0
RETRY_MAX_S: Final = 60.0
SNAPSHOT_WAIT_S: Final = 60.0
"""How long what is lost may wait for a snapshot that makes it superfluous, for each voter up to this member."""


@dataclass(slots=True)
class _Found:
    """A damaged place with which nothing could be done yet."""

    due_s: float = 0.0
    pause_s: float = RETRY_MIN_S
    lost_since_s: float | None = None


class Repairer:
    """Has the places mended that an archive knows to be damaged."""

    def __init__(
        self,
        ctx: ConsensusContext,
        archive: Archive,
        mender: Mender,
        agent: AgentDoor,
    ) -> None:
        self._ctx = ctx
        self._archive = archive
        self._mender = mender
        self._agent = agent
        self._found = asyncio.Event()
        self._waiting: dict[tuple[int, int], _Found] = {}
        archive.damage.on_found = self._found.set

    def __repr__(self) -> str:
        return f"<Repairer waiting={len(self._waiting)} {self._mender!r}>"

    async def run(self) -> None:
        """Mend what is found, for as long as this member runs."""
        lost = self._mender.counts.lost
        while True:
            places = self._archive.damage.places
            known = {(place.recording_id, place.position) for place in places}
            self._waiting = {key: found for key, found in self._waiting.items() if key in known}
            for key in lost.keys() - known:
                del lost[key]
            for place in places:
                await self._look_at(place)
            await self._wait()

    async def _wait(self) -> None:
        """Return when something is found, or is to be tried again."""
        now_s = asyncio.get_running_loop().time()
        due_s = min((found.due_s for found in self._waiting.values()), default=None)
        try:
            async with asyncio.timeout(None if due_s is None else max(RETRY_MIN_S, due_s - now_s)):
                await self._found.wait()
        except TimeoutError:
            return
        self._found.clear()

    async def _look_at(self, place: DamagedPlace) -> None:
        key = place.recording_id, place.position
        found, now_s = self._waiting.setdefault(key, _Found()), asyncio.get_running_loop().time()
        if now_s < found.due_s:
            return
        outcome, reason = await self._mender.mend(*key)
        if outcome is RepairOutcome.MENDED:
            self._waiting.pop(key, None)
            return
        found.due_s = asyncio.get_running_loop().time() + found.pause_s
        found.pause_s = min(2 * found.pause_s, RETRY_MAX_S)
        if outcome is RepairOutcome.LOST and self._is_needed_by_a_start(place):
            self._do_without(place, found, now_s, reason)

    def _is_needed_by_a_start(self, place: DamagedPlace) -> bool:
        entries = self._newest_snapshot()
        if place.recording_id == self._ctx.log_recording_id:
            return place.position >= (entries[0].log_position if entries else 0)
        return any(entry.recording_id == place.recording_id for entry in entries)

    def _newest_snapshot(self) -> Sequence[RecordingLogEntry]:
        return self._ctx.recording_log.latest_snapshots(self._ctx.config.service_count)

    def _do_without(self, place: DamagedPlace, found: _Found, now_s: float, reason: str) -> None:
        """Have a snapshot taken, after which nobody needs what is lost; stop when that comes to nothing."""
        if found.lost_since_s is None:
            found.lost_since_s = now_s
        own_id = self._ctx.config.member_id
        rank = sum(member_id < own_id for member_id in self._ctx.roster.current.voter_ids)
        if now_s - found.lost_since_s < SNAPSHOT_WAIT_S * (1 + rank):
            if self._ctx.leader_member_id == self._ctx.config.member_id:
                why = f"{place.file_name} is damaged at position={place.position}"
                self._agent.post(ev.ActionRequested(None, ControlToggle.SNAPSHOT, reason=why))
            return
        self._agent.terminate(
            CorruptionError(
                f"no member has what is damaged here: file={place.file_name}: {reason}; a start of this member needs "
                "it. Restore a backup, or make a cluster of what is left with `trimaran recover`",
                recording_id=place.recording_id,
                position=place.position,
            )
        )
