"""Reads the log recording for delivery, where the window no longer holds it."""

from __future__ import annotations

from ....archive import Archive


class ArchiveLogReader:
    """The log of one member, in its archive. Implements `LogBytesReader`."""

    def __init__(self, archive: Archive, recording_id: int) -> None:
        self._archive = archive
        self._recording_id = recording_id

    def read(self, position: int, limit_bytes: int, *, stop_position: int) -> bytes:
        """Read whole frames from `position`, at least one, none beyond `stop_position`."""
        return self._archive.read(self._recording_id, position, limit_bytes, stop_position=stop_position)
