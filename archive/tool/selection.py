"""What every command on an archive directory begins with: its arguments, its catalog, the entries asked for.

A directory is the archive's own or that of a member, with `archive` in it. What cannot be used ends the command with
one clear line and the status for wrong usage, or for damage where that is the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.service_api.types import LOG_STREAM_ID

from ..disk.file_system import OsFileSystem
from ..errors import CorruptionError
from ..files.catalog import CATALOG_FILE_NAME, CatalogContent, CatalogEntry, read_catalog
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.locations import find_archive_directory
from .output import EXIT_UNHEALTHY, fail


def find_archive(directory: Path) -> Path:
    """Find the archive directory: the one given, or `archive` in it where that alone has a catalog."""
    return find_archive_directory(OsFileSystem(), directory)


DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The archive directory, or a member's.", callback=find_archive)
]
RecordingOption = Annotated[
    int | None, typer.Option("--recording-id", min=0, help="Only this recording.", show_default=False)
]


def load_catalog(directory: Path) -> CatalogContent:
    """Read the catalog, or end with one clear line."""
    try:
        if not directory.is_dir():
            fail(f"not a directory: {directory}")
        return read_catalog(OsFileSystem(), directory)
    except FileNotFoundError:
        fail(f"not an archive directory: no {CATALOG_FILE_NAME} in {directory}")
    except CorruptionError as error:
        fail(f"{directory / CATALOG_FILE_NAME}: {error}", EXIT_UNHEALTHY)
    except OSError as error:
        fail(f"archive not readable: {error}")


def select_entries(content: CatalogContent, recording_id: int | None) -> list[CatalogEntry]:
    """Pick the entries asked for; a recording that the catalog does not name ends the command."""
    if recording_id is None:
        return list(content.entries)
    found = [e for e in content.entries if e.descriptor is not None and e.descriptor.recording_id == recording_id]
    if not found:
        known = [e.descriptor.recording_id for e in content.entries if e.descriptor is not None]
        fail(f"no such recording: recording_id={recording_id} known={known}")
    return found


def find_log(content: CatalogContent) -> RecordingDescriptor | None:
    """Find the newest valid recording of a cluster's log; None where there is none."""
    logs = [descriptor for descriptor in valid_descriptors(content) if descriptor.stream_id == LOG_STREAM_ID]
    return max(logs, key=lambda descriptor: descriptor.recording_id, default=None)


def valid_descriptors(content: CatalogContent) -> list[RecordingDescriptor]:
    """Give the descriptors of all valid recordings."""
    found = [entry.descriptor for entry in content.entries if entry.descriptor is not None and entry.problem is None]
    return [descriptor for descriptor in found if descriptor.state is RecordingState.VALID]


def expect_descriptor(content: CatalogContent, recording_id: int) -> RecordingDescriptor:
    """Give the descriptor of a recording that is to be read; one that cannot be read ends the command."""
    entry = select_entries(content, recording_id)[-1]
    if entry.descriptor is None or entry.problem is not None or entry.descriptor.state is RecordingState.DELETED:
        fail(f"recording cannot be read, `trimaran archive describe` says more: recording_id={recording_id}")
    return entry.descriptor
