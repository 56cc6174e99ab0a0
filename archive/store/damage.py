"""What readers of an archive met that is damaged: told once and then now and then, counted, and kept to be shown.

Damage below the newest snapshot hurts nobody until somebody reads there: a stranger's replay, or a member that copies.
That read fails. The archive goes on, because what it records and what others read of it is not touched, and the same
bytes are whole on other members. What must not happen is that nobody hears of it before the next disk is lost.

Bounds: `PLACE_LIMIT` places are kept; more are counted. One log line for each place, and again after `REPEAT_NS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from ..errors import ArchiveError
from ..format.descriptor import RecordingDescriptor

PLACE_LIMIT: Final = 64
REPEAT_NS: Final = 60_000_000_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True, frozen=True)
class DamagedPlace:
    """Where a recording cannot be read."""

    recording_id: int
    position: int
    file_name: str
    """The segment file."""
    reason: str


@dataclass(slots=True)
class _Known:
    place: DamagedPlace
    told_ns: int
    untold_count: int = 0
    """Reads that failed here since that was logged."""


class DamageTracker:
    """The places of one archive that could not be read, since it was opened."""

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self.failed_read_count = 0
        """Reads that met damage."""
        self.on_found: Callable[[], object] = lambda: None
        """Called for each place that was not known before."""
        self._monotonic_ns = monotonic_ns
        self._known: dict[tuple[int, int], _Known] = {}

    def __repr__(self) -> str:
        return f"<DamageTracker places={len(self._known)} failed_reads={self.failed_read_count}>"

    @property
    def places(self) -> list[DamagedPlace]:
        """What is known to be damaged, in the order in which it was found."""
        return [known.place for known in self._known.values()]

    def on_failed_read(self, error: ArchiveError, descriptor: RecordingDescriptor, position: int) -> None:
        """A read met damage: count it, and say so if that is news or was said long ago."""
        self.failed_read_count += 1
        recording_id = descriptor.recording_id
        file_name = descriptor.segment_file_name(descriptor.segment_base_position(position))
        now_ns, known = self._monotonic_ns(), self._known.get((recording_id, position))
        if known is None:
            if len(self._known) >= PLACE_LIMIT:
                return
            known = _Known(DamagedPlace(recording_id, position, file_name, str(error)), now_ns)
            self._known[recording_id, position] = known
            self.on_found()
        elif now_ns - known.told_ns < REPEAT_NS:
            known.untold_count += 1
            return
        _log.error(
            "recording.damaged",
            recording_id=recording_id,
            position=position,
            file=file_name,
            reason=str(error),
            repeated=known.untold_count,
        )
        known.told_ns, known.untold_count = now_ns, 0

    def on_read(self, recording_id: int, begin_position: int, end_position: int) -> None:
        """A range was read: what was damaged there is whole again, because somebody has put the file right."""
        for place in self._within(recording_id, begin_position, end_position) if self._known else ():
            del self._known[recording_id, place.position]
            _log.info("recording.damage_mended", recording_id=recording_id, position=place.position)

    def forget(self, recording_id: int, *, begin_position: int = 0, end_position: int | None = None) -> None:
        """Drop what is not part of the archive any more."""
        for place in self._within(recording_id, begin_position, end_position):
            del self._known[recording_id, place.position]

    def _within(self, recording_id: int, begin_position: int, end_position: int | None) -> list[DamagedPlace]:
        return [
            place
            for place in self.places
            if place.recording_id == recording_id
            and place.position >= begin_position
            and (end_position is None or place.position < end_position)
        ]
