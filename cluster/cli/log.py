"""`trimaran log tail|dump`: read the entries of a log; nothing is changed, and no member is disturbed.

`trimaran log trust` is in `operate.log_trust`.

Rows, JSON, times and the rule for damage are those of `trimaran archive tail` and `grep`. A directory may be that of a
member that runs. What lies near the end of a directory may not be committed; with --members only what is.

Exit status: 0 read up to the end; 2 wrong usage, or no log there; 3 no member can be reached; 10 the log is damaged:
the recording, the position, the file and where valid frames go on are named; 11 members answer, and none leads.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from ...archive.errors import CorruptionError
from ...archive.log.log_file import LogFile
from ...archive.log.member_directory import MemberDirectory
from ...archive.reading.search import MessageQuery
from ...archive.tool.commands.grep import (
    FromOption,
    LimitOption,
    Search,
    SessionOption,
    ToOption,
    TypeOption,
    choose_types,
    show_hits,
)
from ...archive.tool.commands.rows import HEADING, as_line
from ...archive.tool.commands.tail import (
    BeginOption,
    CountOption,
    FollowOption,
    refuse_to_follow_as_json,
    show_tail,
)
from ...archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, new_group, print_stream
from .archive import VOCABULARY
from .operate.log_trust import trust
from .shared.arguments import MemberDirectoryArgument
from .shared.setting_flags import load_members_from_flags, load_network_from_flags, with_member_flags
from .shared.watching import TimeoutOption, pause

OptionalDirectoryArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR", help="A member's directory; without it, the command asks the members.", show_default=False
    ),
]

app: Final = new_group("Read the log: its last entries as they come, or all of it.")
app.command(epilog="Example: trimaran log trust --member 2 --confirm --config trimaran-data/cluster.toml")(trust)


@app.command()
@with_member_flags
def tail(
    directory: OptionalDirectoryArgument = None,
    count: CountOption = 10,
    begin: BeginOption = None,
    follow: FollowOption = False,
    output: OutputOption = OutputFormat.TABLE,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the last entries of a log, or those from a position on; with -f also new entries as they arrive.

    The log is that of a member's directory, which may be in use. With --members the command shows the committed entries
    of the cluster, from the archive of its leader.

    Examples: trimaran log tail -f data/node-0; trimaran log tail --from 0 data/node-0;
    trimaran log tail -f --members 0=10.0.0.1:9000,1=10.0.0.2:9000,2=10.0.0.3:9000 -o jsonl
    """
    refuse_to_follow_as_json(output, follow=follow)
    if directory is not None:
        show_tail(_find_log(directory), VOCABULARY, count, output, follow=follow, begin=begin, wait=pause)
        return
    from .shared.cluster_log import ClusterLog  # here, because it takes the archive's client with it

    log = ClusterLog(load_members_from_flags(settings), timeout, network=load_network_from_flags(settings))
    rows = log.rows(count, VOCABULARY, is_followed=follow, begin=begin)
    with contextlib.suppress(KeyboardInterrupt):  # the proper end of following
        print_stream(rows, output, heading=HEADING, as_line=as_line)


@app.command()
def dump(
    directory: MemberDirectoryArgument,
    from_position: FromOption = None,
    to_position: ToOption = None,
    limit: LimitOption = None,
    type_name: TypeOption = None,
    session: SessionOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print the log of a member, an entry a line: position, term, type, session, time, and the payload's beginning.

    With -o jsonl it prints an object for each entry, with the whole payload as text, or as base64 if it is not text.

    Examples: trimaran log dump data/node-0 --type SessionOpenEvent;
    trimaran log dump data/node-0 --from-position 4096 --limit 10 -o jsonl
    """
    types = choose_types(type_name or [], VOCABULARY.registry)
    query = MessageQuery(registry=VOCABULARY.registry, type_names=types, session_id=session)
    search = Search(vocabulary=VOCABULARY, query=query, from_position=from_position, to_position=to_position)
    show_hits(search, [_find_log(directory)], limit, output)


def _find_log(directory: Path) -> LogFile:
    try:
        return LogFile.find(MemberDirectory.find(directory))
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)
