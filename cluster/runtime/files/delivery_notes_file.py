"""The file `delivery-notes.json`: at which entry a callback failed here, which entries are skipped, what differs.

It is this member's memory of what the log does not say, or says later. Nothing is lost with it: a member without the
file tries again what failed, finds in the log what is skipped, and by the digests of others that their logs differ. So
a damaged file is reported and begun again.

Every function here may block.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Final, Self

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....archive.disk.file_system import FileSystem, OsFileSystem, opened, read_fully, write_new_file
from ....service_api.types import MemberId
from ...core.log.log_comparison import LogDifference
from ...core.vocabulary.held_entry import HeldEntry

DELIVERY_NOTES_FILE_NAME: Final = "delivery-notes.json"
_LENGTH_LIMIT_BYTES: Final = 1 << 20

logger = structlog.get_logger()


class FailedEntry(BaseModel):
    """The entry at which a callback failed last."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    log_position: int = Field(ge=0)
    callback: str
    failure: str


class SkippedEntry(BaseModel):
    """An entry that no service is given."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    log_position: int = Field(ge=0)
    skip_log_position: int = Field(ge=0)
    """Where the entry of the log ends that says so."""


class DifferingRange(BaseModel):
    """The range of the log before which this member holds, because the logs of members differ in it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    log_position: int = Field(ge=0)
    position: int = Field(ge=0)
    stop_position: int = Field(ge=0)
    groups: list[list[int]]
    file_name: str
    is_mended: bool = False


class DeliveryNotes(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    failed: FailedEntry | None = None
    skipped: list[SkippedEntry] = []
    differing: DifferingRange | None = None


class DeliveryNotesFile:
    """The notes of one member, and the file that they are in."""

    def __init__(self, path: Path, notes: DeliveryNotes, *, file_sync_level: int, file_system: FileSystem) -> None:
        self._path = path
        self._notes = notes
        self._file_sync_level = file_sync_level
        self._file_system = file_system

    def __repr__(self) -> str:
        return f"<DeliveryNotesFile {self._notes!r} path={self._path}>"

    @classmethod
    def open(cls, directory: Path, *, file_sync_level: int, file_system: FileSystem | None = None) -> Self:
        """Read the file in `directory`, if there is one.

        Raises:
            OSError: the disk refused.
        """
        disk = OsFileSystem() if file_system is None else file_system
        path = directory / DELIVERY_NOTES_FILE_NAME
        notes = DeliveryNotes()
        try:
            with opened(disk, path) as handle:
                data = read_fully(disk, handle, min(disk.file_length(handle), _LENGTH_LIMIT_BYTES), 0)
            notes = DeliveryNotes.model_validate_json(data)
        except FileNotFoundError:
            pass
        except ValidationError as error:
            logger.warning("delivery_notes.damaged", path=str(path), error=str(error.errors()[0]["msg"]))
        return cls(path, notes, file_sync_level=file_sync_level, file_system=disk)

    @property
    def skipped_entries(self) -> dict[int, int]:
        """By where a skipped entry ends: where the entry ends that has it skipped."""
        return {entry.log_position: entry.skip_log_position for entry in self._notes.skipped}

    @property
    def failed(self) -> HeldEntry | None:
        """The entry at which a callback failed last, if it is not skipped."""
        failed = self._notes.failed
        if failed is None or failed.log_position in self.skipped_entries:
            return None
        return HeldEntry(failed.log_position, failed.callback, failed.failure)

    @property
    def difference(self) -> LogDifference | None:
        """The range before which this member holds, because the logs of members differ in it."""
        noted = self._notes.differing
        if noted is None:
            return None
        groups = tuple(tuple(map(MemberId, group)) for group in noted.groups)
        return LogDifference(
            noted.log_position, noted.position, noted.stop_position, groups, noted.file_name, noted.is_mended
        )

    def note_difference(self, difference: LogDifference | None) -> None:
        """Write durably in which range the logs of members differ; None: in none any more.

        Raises:
            OSError: the disk refused.
        """
        noted: DifferingRange | None = None
        if difference is not None:
            groups = [[*map(int, group)] for group in difference.groups]
            noted = DifferingRange.model_validate(asdict(difference) | {"groups": groups})
        self._write(self._notes.model_copy(update={"differing": noted}))

    def note_failure(self, failed: HeldEntry) -> None:
        """Write durably at which entry a callback failed.

        Raises:
            OSError: the disk refused.
        """
        noted = FailedEntry(log_position=failed.log_position, callback=failed.callback, failure=failed.failure)
        self._write(self._notes.model_copy(update={"failed": noted}))

    def note_skip(self, log_position: int, *, skip_log_position: int) -> None:
        """Write durably that an entry is skipped.

        Raises:
            OSError: the disk refused.
        """
        noted = SkippedEntry(log_position=log_position, skip_log_position=skip_log_position)
        self._write(self._notes.model_copy(update={"skipped": [*self._notes.skipped, noted]}))

    def _write(self, notes: DeliveryNotes) -> None:
        disk, is_synced = self._file_system, self._file_sync_level > 0
        working_path = self._path.with_name(self._path.name + ".new")
        write_new_file(disk, working_path, notes.model_dump_json(indent=2).encode(), is_synced=is_synced)
        disk.rename(working_path, self._path)
        if is_synced:
            disk.sync_directory(self._path.parent)
        self._notes = notes
