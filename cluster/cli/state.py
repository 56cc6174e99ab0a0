"""`trimaran state DIR`: a member's small files: its candidate term, and which process ran there and when.

These are `node-state.dat` and the mark files, ours or Aeron's of any version, each shown as the message that it holds
with the names of the schema. Where Aeron keeps a mark file elsewhere, the link to it is followed. Nothing is changed or
locked. Exit status: 0 read; 2 wrong usage, or none of the files is there; 10 one is damaged: it is named with the
reason, the others are shown.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ...archive.disk.file_system import OsFileSystem, opened, read_fully
from ...archive.errors import ArchiveError
from ...archive.files.marks import (
    ARCHIVE_MARKS,
    MARK_FILE_HEADER_LENGTH,
    MARK_LINK_SUFFIX,
    find_marks,
    follow_link,
    with_message_header,
)
from ...archive.format.messages import ArchiveMarkFileHeader
from ...archive.log.group_directories import refuse_groups
from ...archive.reading.message_view import view_decoded
from ...archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows
from ...service_api.cluster_id import CLUSTER_ID_PATTERN
from ...service_api.errors import ConfigurationError, RemoteProtocolError
from ...service_api.wire.message import decode_message, registry_of
from ..messages import MarkFileHeader
from ..runtime.files.mark_file import CLUSTER_ID_LENGTH, CLUSTER_ID_POSITION, CLUSTER_MARKS, mark_kind_of
from ..runtime.files.node_state_file import NODE_STATE_FILE_LENGTH, NODE_STATE_FILE_NAME, parse_node_state
from .shared.arguments import MemberDirectoryArgument

OLD_LAYOUT: Final = "without a message header: Aeron up to 1.46"

_MARKS: Final = registry_of(MarkFileHeader, ArchiveMarkFileHeader)


def member_state(directory: MemberDirectoryArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show the node state and the mark files of a member, or of an archive alone.

    In JSON a file is one object: its name and length, and the message in it with the names of the schema.
    """
    paths = list(find_state_files(directory))
    if not paths:
        refuse_groups(directory)
        expected = f"cluster/{NODE_STATE_FILE_NAME} in it"
        raise ConfigurationError(f"no member has run here: directory={directory} expected {expected}")
    rows = [read_state_file(path) for path in paths]
    print_rows(map(_table_row, rows) if output is OutputFormat.TABLE else rows, output, title=str(directory))
    problems = [
        f"damaged file: {path}: {row['problem']}" for path, row in zip(paths, rows, strict=True) if "problem" in row
    ]
    if problems:
        fail("; ".join(problems), EXIT_UNHEALTHY)


def find_state_files(directory: Path) -> Iterator[Path]:
    """Find the files in a member's directory, in its `cluster` or `archive` directory, or one given itself.

    Aeron may keep mark files elsewhere: its link gives the file that it leads to, or itself where that is not there.
    """
    if directory.is_file():
        yield _behind(directory)
        return
    disk = OsFileSystem()
    for place in (directory / "cluster", directory / "archive", directory):
        if (place / NODE_STATE_FILE_NAME).is_file():
            yield place / NODE_STATE_FILE_NAME
        for kind in (CLUSTER_MARKS, ARCHIVE_MARKS):
            yield from sorted((_behind(path) for path in find_marks(place, kind, disk)), key=_main_first)


def _behind(path: Path) -> Path:
    """Follow a link to a mark file that is there."""
    if path.suffix == MARK_LINK_SUFFIX:
        with contextlib.suppress(ArchiveError):
            mark = follow_link(path, OsFileSystem())
            return mark if mark.is_file() else path
    return path


def _main_first(path: Path) -> tuple[int, str]:
    return len(path.stem), path.name


def read_state_file(path: Path) -> dict[str, Any]:
    """Make the object that stands for a file; `problem` says what is wrong with one that cannot be read."""
    disk = OsFileSystem()
    with opened(disk, path) as handle:
        row: dict[str, Any] = {"file": path.name, "file_length": disk.file_length(handle)}
        is_node_state = path.name == NODE_STATE_FILE_NAME
        data = read_fully(disk, handle, NODE_STATE_FILE_LENGTH if is_node_state else MARK_FILE_HEADER_LENGTH, 0)
    try:
        if is_node_state:
            candidate, position = parse_node_state(data)
            return row | view_decoded(candidate, data[position:])
        if path.suffix == MARK_LINK_SUFFIX:
            return row | {"fields": {"markFile": str(follow_link(path, disk)), "isThere": False}}
        return row | _view_mark(data, mark_kind_of(path).schema_id, row["file_length"])
    except (ArchiveError, RemoteProtocolError) as error:
        return row | {"problem": str(error)}


def _view_mark(found: bytes, schema_id: int, file_length: int) -> dict[str, Any]:
    """Show the header of a mark file, whose length it names, too.

    Raises:
        RemoteProtocolError: the header is not valid, or the file has another length.
    """
    data, is_old = with_message_header(found, schema_id)
    header = decode_message(data, registry=_MARKS)
    view = view_decoded(header, data) | ({"layout": OLD_LAYOUT} if is_old else {})
    expected = view["fields"]["headerLength"] + view["fields"]["errorBufferLength"]
    if expected and expected != file_length:
        raise RemoteProtocolError(f"file_length={file_length} expected={expected}, as its header says")
    cluster_id = found[CLUSTER_ID_POSITION : CLUSTER_ID_POSITION + CLUSTER_ID_LENGTH]
    if isinstance(header, MarkFileHeader) and re.fullmatch(CLUSTER_ID_PATTERN.encode(), cluster_id):
        view["fields"]["trimaranClusterId"] = cluster_id.decode()
    return view


def _table_row(row: dict[str, Any]) -> dict[str, Any]:
    facts = " ".join(f"{name}={value}" for name, value in row.get("fields", {}).items() if value != "")
    return {"file": row["file"], "bytes": row["file_length"], "says": row.get("problem", facts)}
