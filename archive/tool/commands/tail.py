"""`trimaran archive tail [-f] DIR`: the last messages of a recording, and each new one as it comes, until Ctrl-C.

The directory is looked at again and again, soon while messages come and ever more seldom while none do. An archive may
run on it, which is not disturbed: nothing is changed, asked or locked.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final

import typer

from ...errors import ArchiveError, is_damage
from ...log.log_file import LogFile
from ...reading.following import RecordingFollower
from ...reading.message_view import Vocabulary
from ..output import EXIT_UNHEALTHY, EXIT_USAGE, OutputFormat, OutputOption, fail, print_stream
from ..selection import ArchiveArgument, RecordingOption, choose_recording, find_location, tell_end
from .rows import HEADING, MessageRows, as_line

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
"""The pause after a look that found nothing is twice that before it, up to this."""

CountOption = Annotated[int, typer.Option("-n", min=0, max=10_000, help="Begin with this many of the last messages.")]
BeginOption = Annotated[
    int | None,
    typer.Option("--from", min=0, metavar="POSITION", help="Begin at this position instead.", show_default=False),
]
FollowOption = Annotated[bool, typer.Option("-f", "--follow", help="Wait for new messages, until Ctrl-C.")]


def build_tail(vocabulary: Vocabulary) -> Callable[..., None]:
    """Make the command; `vocabulary` holds the messages that it decodes."""

    def tail(
        directory: ArchiveArgument,
        recording_id: RecordingOption = None,
        count: CountOption = 10,
        begin: BeginOption = None,
        follow: FollowOption = False,
        output: OutputOption = OutputFormat.TABLE,
    ) -> None:
        """Print the last messages of a recording; with -f also new messages as they arrive, until Ctrl-C.

        Without --recording-id it reads the active recording, or else the log. If the recording is extended, purged or
        cut back meanwhile, the command reports this on standard error. It ends when the recording is deleted.
        """
        log = choose_recording(find_location(directory), recording_id, prefers_active=True)
        show_tail(log, vocabulary, count, output, follow=follow, begin=begin)

    return tail


def show_tail(
    log: LogFile,
    vocabulary: Vocabulary,
    count: int,
    output: OutputFormat,
    *,
    follow: bool,
    begin: int | None = None,
) -> None:
    """Print the last messages of a recording, or those from `begin` on; with `follow` also the new ones as they come.

    Damage ends the command with 10.
    """
    refuse_to_follow_as_json(output, follow=follow)
    follower = RecordingFollower(log)
    rows = MessageRows.of(log, vocabulary)
    messages = follow_rows(follower, rows, count, wait=pause, is_followed=follow, begin=begin)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            print_stream(messages, output, heading=HEADING, as_line=as_line)
    except ArchiveError as error:
        fail(str(error), EXIT_UNHEALTHY if is_damage(error) else EXIT_USAGE)
    if not follow and tell_end(log, follower.ending()):
        raise typer.Exit(EXIT_UNHEALTHY)


def refuse_to_follow_as_json(output: OutputFormat, *, follow: bool) -> None:
    """End the command that would print one document that never ends."""
    if follow and output is OutputFormat.JSON:
        fail("-f cannot write one document: use -o jsonl instead of -o json")


def follow_rows(
    follower: RecordingFollower,
    rows: MessageRows,
    count: int,
    *,
    wait: Callable[[float], object],
    is_followed: bool,
    begin: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the last `count` messages, or those from `begin` on; then look again and again, if that is wanted.

    `wait` takes seconds; what was printed is out before it. Notices of the follower go to standard error as they come.
    """
    yield from map(rows.row, follower.last_messages(count) if begin is None else follower.messages_from(begin))
    pause_s = FIRST_PAUSE_S
    while is_followed and not follower.is_ended:
        position = follower.position
        yield from map(rows.row, follower.look())
        for notice in follower.notices:
            typer.echo(notice, err=True)
        follower.notices.clear()
        pause_s = FIRST_PAUSE_S if follower.position != position else min(2 * pause_s, LONGEST_PAUSE_S)
        sys.stdout.flush()
        if not follower.is_ended:
            wait(pause_s)


def pause(interval_s: float) -> None:
    """Do nothing for a while."""
    threading.Event().wait(interval_s)
