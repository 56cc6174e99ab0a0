"""The common start of every command on an archive directory: its arguments, its catalog, the selected entries.

A directory is the archive's own or that of a member, with `archive` in it. Commands that only read take the URL of one
in an object store, too. What cannot be used ends the command with
one clear line and the status for wrong usage, or for damage where that is the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...service_api.errors import ConfigurationError
from ..disk_errors import StoreFailure
from ..errors import CorruptionError
from ..files.catalog import read_catalog
from ..files.log_end import LogEnd
from ..format.catalog import CATALOG_FILE_NAME, CatalogContent, CatalogEntry
from ..format.descriptor import RecordingDescriptor, RecordingState
from ..log.log_file import LogFile, is_log
from ..log.member_directory import ArchiveLocation, MemberDirectory, locate_archive
from .output import EXIT_UNHEALTHY, fail


def find_location(name: str | Path) -> ArchiveLocation:
    """Find an archive by the path or URL of its directory, or of a member's; see `log.member_directory`."""
    try:
        return locate_archive(name)
    except StoreFailure:
        raise
    except (ConfigurationError, OSError) as error:
        fail(str(error))


def expect_directory(location: ArchiveLocation) -> Path:
    """Return the directory of an archive on a disk of this machine; another one ends the command."""
    if not location.is_local:
        fail(f"an archive in an object store can only be read: {location} expected a directory of this machine")
    return location.directory


def find_directory(directory: Path) -> Path:
    """Find the archive's directory, given that or a member's."""
    return expect_directory(find_location(directory))


ArchiveArgument = Annotated[
    str, typer.Argument(metavar="DIR|URL", help="The archive directory, or a member's, or its URL in an object store.")
]
"""For `find_location`."""
DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The archive directory, or a member's.", callback=find_directory)
]
RecordingOption = Annotated[
    int | None, typer.Option("--recording-id", min=0, help="Only this recording.", show_default=False)
]


def load_catalog(location: ArchiveLocation) -> CatalogContent:
    """Read the catalog, or end with one clear line."""
    try:
        if location.is_local and not location.directory.is_dir():
            fail(f"not a directory: {location}")
        return read_catalog(*location)
    except FileNotFoundError:
        fail(f"not an archive directory: no {CATALOG_FILE_NAME} in {location}")
    except CorruptionError as error:
        fail(f"{location}/{CATALOG_FILE_NAME}: {error}", EXIT_UNHEALTHY)
    except StoreFailure:
        raise
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


def choose_recording(location: ArchiveLocation, recording_id: int | None, *, prefers_active: bool = False) -> LogFile:
    """Return the recording that is named; else the only active one if preferred, the log, or the only valid one.

    Where none of these is there, the command ends.
    """
    content = load_catalog(location)
    if recording_id is not None:
        return LogFile(location, expect_descriptor(content, recording_id))
    valid = [descriptor for descriptor in content.readable if descriptor.state is RecordingState.VALID]
    active = [descriptor for descriptor in valid if descriptor.stop_position is None]
    if prefers_active and len(active) == 1:
        return LogFile(location, active[0])
    try:
        return LogFile.find(MemberDirectory.beside(location))
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)
    except ConfigurationError as error:
        if len(valid) == 1 and not any(map(is_log, valid)):
            return LogFile(location, valid[0])
        known = [descriptor.recording_id for descriptor in valid]
        fail(f"choose a recording with --recording-id, one of {known}: {error}")


def find_log(name: str) -> LogFile:
    """Find the log of a cluster's member by the path or URL of its directory."""
    try:
        return LogFile.find(MemberDirectory.find(name))
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)
    except StoreFailure:
        raise
    except (ConfigurationError, OSError) as error:
        fail(str(error))


def tell_end(log: LogFile, end: LogEnd) -> bool:
    """Print on standard error what is wrong at the end of a recording; return whether it is damage."""
    said, descriptor = end.damage or end.torn_write, log.descriptor
    if said is not None:
        place = f"recording_id={descriptor.recording_id} position={end.position}"
        typer.echo(f"{place}: {said}; file={log.segment_path(end.position)}", err=True)
    return end.damage is not None


def expect_descriptor(content: CatalogContent, recording_id: int) -> RecordingDescriptor:
    """Return the descriptor of a recording that is to be read; one that cannot be read ends the command."""
    entry = select_entries(content, recording_id)[-1]
    if entry.descriptor is None or entry.problem is not None or entry.descriptor.state is RecordingState.DELETED:
        fail(f"recording cannot be read; run `trimaran archive describe` for the reason: recording_id={recording_id}")
    return entry.descriptor
