"""`trimaran archive COMMAND DIR`, also `python -m trimaran.archive`: all commands on an archive directory.

Exit status: 0 fine; 2 the directory or an option cannot be used; 10 something was looked at and is wrong or different;
12 refused as things are, such as a change of a directory on which an archive runs.
`build_archive_app` takes the messages that the commands decode; `app` knows every message class that the program
has imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from ...service_api.wire.message import MESSAGES
from ..reading.message_view import Vocabulary
from .commands.catalog import capacity, compact, delete_orphaned_segments, mark_invalid, mark_valid
from .commands.checksum import checksum
from .commands.describe import count_entries, describe
from .commands.diff import build_diff
from .commands.dump import build_dump
from .commands.export import export
from .commands.grep import build_grep
from .commands.serve import serve
from .commands.tail import build_tail
from .commands.verify import verify
from .output import new_group


def build_archive_app(vocabulary: Vocabulary) -> typer.Typer:
    """Make the command group; `vocabulary` holds the messages that its commands decode."""
    group = new_group("Inspect and maintain recordings.")
    add_command(group, describe, "describe data/node-0/archive")
    add_command(group, count_entries, "count-entries data/node-0/archive -o json")
    add_command(group, build_dump(vocabulary), "dump data/node-0/archive --messages --recording-id 0")
    add_command(group, build_grep(vocabulary), "grep data/node-0/archive 'user-[0-9]+' --type SessionMessageHeader")
    add_command(group, build_tail(vocabulary), "tail data/node-0/archive -f -n 20")
    add_command(group, verify, "verify data/node-0/archive -o jsonl")
    add_command(group, build_diff(vocabulary), "diff data/node-0 data/node-1")
    add_command(group, export, "export data/node-0/archive --to log --format parquet")
    add_command(group, mark_invalid, "mark-invalid data/node-0/archive 3")
    add_command(group, mark_valid, "mark-valid data/node-0/archive 3")
    add_command(group, checksum, "checksum data/node-0/archive --recording-id 0")
    add_command(group, compact, "compact data/node-0/archive --dry-run")
    add_command(group, capacity, "capacity data/node-0/archive 4194304")
    add_command(group, delete_orphaned_segments, "delete-orphaned-segments data/node-0/archive --dry-run")
    add_command(group, serve, "serve data/archive --port 8010")
    return group


def add_command(group: typer.Typer, command: Callable[..., Any], example: str) -> None:
    """Add a command to the group, with the example that its help ends with, which begins with the command's name."""
    group.command(example.split()[0], epilog=f"Example: trimaran archive {example}")(command)


app: Final = build_archive_app(Vocabulary(MESSAGES, {}))
"""The command group, decoding every message class that the program has imported."""
