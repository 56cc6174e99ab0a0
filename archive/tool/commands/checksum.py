"""`trimaran archive checksum`: give a checksum to every frame of recordings that were made without."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from ....service_api.wire.checksum import ChecksumKind
from ...format.catalog import CatalogEntry
from ...format.descriptor import RecordingState
from ...log.member_directory import locate
from ...store.maintenance import OfflineArchive
from ..output import OutputFormat, OutputOption, print_rows
from ..selection import DirectoryArgument, RecordingOption, load_catalog, select_entries
from .offline import offline_archive
from .progress import Advance, one_bar, progress_bars


class FrameChecksum(StrEnum):
    """The checksums that can be written."""

    CRC32 = "crc32"
    CRC32C = "crc32c"


KindOption = Annotated[FrameChecksum, typer.Option("--kind", help="Which checksum.")]


def checksum(
    directory: DirectoryArgument,
    recording_id: RecordingOption = None,
    kind: KindOption = FrameChecksum.CRC32,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Write a checksum into every data frame and catalog entry of recordings that have none, in place of session ids.

    It does not change a recording that has checksums or is not VALID. A wrong frame stops the command (exit status 10):
    its segment and later ones stay unchanged, and the catalog says that the recording has no checksums. A member needs
    the settings `checksums` and `checksum_kind` to continue a log that has them.
    """
    select_entries(load_catalog(locate(directory)), recording_id)
    rows = []
    with offline_archive(directory) as archive, progress_bars() as progress:
        for entry in select_entries(archive.read(), recording_id):
            descriptor = entry.descriptor
            if descriptor is None:
                continue
            stop = descriptor.stop_position
            total = None if stop is None else stop - descriptor.start_position
            with one_bar(progress, f"recording {descriptor.recording_id}", total) as advance:
                rows.append(_stamp(archive, entry, ChecksumKind.labelled(kind), advance))
    print_rows(rows, output)


def _stamp(archive: OfflineArchive, entry: CatalogEntry, kind: ChecksumKind, advance: Advance) -> dict[str, Any]:
    descriptor = entry.descriptor
    assert descriptor is not None
    row = {"recording_id": descriptor.recording_id, "state": descriptor.state.name}
    if descriptor.checksummed:
        return row | {"frame_count": 0, "result": "has checksums"}
    if descriptor.state is not RecordingState.VALID or entry.problem is not None:
        return row | {"frame_count": 0, "result": entry.problem or "skipped"}
    return row | {"frame_count": archive.write_checksums(entry, kind, on_progress=advance), "result": "written"}
