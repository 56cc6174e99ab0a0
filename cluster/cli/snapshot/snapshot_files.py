"""The snapshots of one member, read from its directory without changing anything; a node may run beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ....archive import ArchiveError, RecordingDescriptor
from ....archive.errors import ArchiveErrorCode
from ....archive.files.reader import FrameReader
from ....archive.log.log_file import LogFile
from ....archive.log.member_directory import MemberDirectory
from ....archive.tool.output import EXIT_UNHEALTHY, fail
from ....service_api import ClusterError, ConfigurationError
from ....service_api.types import RecordingId
from ...runtime.files.recording_log_file import read_recording_log
from ..shared.arguments import expect_recording_log

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A member's directory, as in --directory.")]


class SnapshotFiles:
    """A member's recording log, and the recordings that hold its snapshots."""

    def __init__(self, directory: Path) -> None:
        path = expect_recording_log(directory)
        member = MemberDirectory.find(directory)
        self.directory = member.archive.directory
        try:
            self.recording_log = read_recording_log(path)
            content = member.read_catalog()
        except OSError as error:
            raise ConfigurationError(f"directory cannot be read: {error}") from error
        except ClusterError as error:
            fail(str(error), EXIT_UNHEALTHY)
        self._descriptors = {descriptor.recording_id: descriptor for descriptor in content.readable}

    def descriptor(self, recording_id: int) -> RecordingDescriptor:
        """What the catalog knows about a recording.

        Raises:
            ArchiveError: it knows nothing.
        """
        descriptor = self._descriptors.get(RecordingId(recording_id))
        if descriptor is None:
            raise ArchiveError("unknown recording", code=ArchiveErrorCode.UNKNOWN_RECORDING, recording_id=recording_id)
        return descriptor

    def frames(self, recording_id: int) -> FrameReader:
        """Read a recording.

        Raises:
            ArchiveError: the catalog does not have it.
        """
        return LogFile.of(self.directory, self.descriptor(recording_id)).reader()

    def length_bytes(self, recording_id: int) -> int | None:
        """The length of a recording; None if it is not known."""
        descriptor = self._descriptors.get(RecordingId(recording_id))
        if descriptor is None or descriptor.stop_position is None:
            return None
        return descriptor.stop_position - descriptor.start_position
