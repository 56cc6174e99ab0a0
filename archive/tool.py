"""`quorate archive COMMAND DIR`, also `python -m archive`: all commands on an archive directory, put together.

Exit status: 0 fine; 2 the directory or an option cannot be used; 10 something was looked at and is wrong or different;
12 refused as things are, such as a change of a directory on which an archive runs.
`build_app` takes the messages that the commands decode; `app` knows every message class that the program
has imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import typer

from service_api.wire.message import MESSAGES

from .commands.describe import count_entries, describe, describe_all
from .commands.diff import build_diff
from .commands.grep import build_grep
from .commands.tail import build_tail
from .commands.verify import verify
from .dump import build_dump
from .message_view import Vocabulary


def build_app(vocabulary: Vocabulary) -> typer.Typer:
    """Make the command group; `vocabulary` holds the messages that its commands decode."""
    group = typer.Typer(
        help="Look into recordings, and look after them.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    add_command(group, describe, "quorate archive describe data/node-0/archive")
    add_command(group, describe_all, "quorate archive describe-all data/node-0/archive -o jsonl")
    add_command(group, count_entries, "quorate archive count-entries data/node-0/archive -o json")
    add_command(group, verify, "quorate archive verify data/node-0/archive -o jsonl")
    add_command(group, build_dump(vocabulary), "quorate archive dump data/node-0/archive --messages --recording-id 0")
    add_command(
        group,
        build_grep(vocabulary),
        "quorate archive grep data/node-0/archive 'user-[0-9]+' --type SessionMessageHeader",
    )
    add_command(group, build_tail(vocabulary), "quorate archive tail data/node-0/archive -f -n 20")
    add_command(group, build_diff(vocabulary), "quorate archive diff data/node-0 data/node-1")
    return group


def add_command(group: typer.Typer, command: Callable[..., Any], example: str, *, name: str | None = None) -> None:
    """Add a command to the group, with the example that its help ends with."""
    group.command(name, epilog=f"Example: {example}")(command)


app: Final = build_app(Vocabulary(MESSAGES, {}))
"""The command group, decoding every message class that the program has imported."""
