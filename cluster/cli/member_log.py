"""`trimaran member-log`: what members' processes logged last, and from which level on they log.

`trimaran log` shows the replicated log, which is another thing. A member keeps its newest lines in memory, so they end
with its process; what its supervisor keeps of standard error goes further back.

Exit status: 0 at least one member answered; 1 a member did not change its level; 2 wrong usage; 3 no member can be
reached; 12 the caller may not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from ...archive.tool.output import OutputFormat, OutputOption, format_time, new_group, print_stream
from ...service_api.member_id import MEMBER_ID_MAX
from ...service_api.printable import printable
from ..documents.diagnosis import ROW_LIMIT, Diagnosis, DiagnosisRequest, DiagnosisTopic, Level
from ..documents.operations import Operation
from .shared.diagnosing import LevelOption, OneMemberOption, SinceOption, diagnose_all, expect_answers, parse_since
from .shared.every_group import of_every_group
from .shared.operation import TimeoutOption as OperationTimeoutOption
from .shared.operation import carry_out
from .shared.setting_flags import load_asked_cluster, with_member_flags
from .shared.watching import TimeoutOption

app: Final = new_group("Show what members' processes log; change their level.")

LinesOption = Annotated[
    int, typer.Option("-n", "--lines", min=1, max=ROW_LIMIT, help="Show so many lines of each member, the newest ones.")
]
_HEADING: Final = "time                      member  level     line"


@app.command(
    "tail", epilog="Example: trimaran member-log tail --member 2 --level warning --config trimaran-data/cluster.toml"
)
@with_member_flags
@of_every_group
def show_newest_lines(
    output: OutputOption = OutputFormat.TABLE,
    lines: LinesOption = 20,
    since: SinceOption = None,
    level: LevelOption = Level.DEBUG,
    member: OneMemberOption = None,
    timeout: TimeoutOption = 1.0,
    **settings: Any,
) -> None:
    """Show the newest log lines of the members, in order of their time.

    Each time is that of the member's own clock. A member keeps its newest 1,000 lines.
    """
    request = DiagnosisRequest(topic=DiagnosisTopic.LINES, since_ms=parse_since(since), level=level, limit=lines)
    cluster = load_asked_cluster(settings).only(member)
    answers = expect_answers(asyncio.run(diagnose_all(cluster, request, timeout)))
    print_stream(line_rows(answers), output, heading=_HEADING, as_line=_as_line)


@app.command("level", epilog="Example: trimaran member-log level debug --member 2 --config trimaran-data/cluster.toml")
@with_member_flags
def change_level(
    log_level: Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info or warning.", show_default=False)],
    member: Annotated[
        int,
        typer.Option("--member", min=0, max=MEMBER_ID_MAX, metavar="ID", help="The member.", show_default=False),
    ],
    output: OutputOption = OutputFormat.TABLE,
    timeout: OperationTimeoutOption = 10.0,
    **settings: Any,
) -> None:
    """Have a member log from another level on, until its process ends; the audit trail says who did it.

    The setting `log_level` says from which level on a process logs when it starts.
    """
    carry_out(Operation.LOG_LEVEL, timeout, output, settings, asked_member_id=member, log_level=log_level)


def line_rows(answers: Mapping[int, Diagnosis]) -> Iterator[dict[str, Any]]:
    """Make the objects that stand for the lines of members in JSON, in order of their time."""
    found = [(row.time_ms, member_id, row) for member_id, answer in answers.items() for row in answer.lines]
    for time_ms, member_id, row in sorted(found, key=lambda each: each[:2]):
        time = format_time(time_ms)
        yield {"time": time, "member_id": member_id, "level": row.level, "event": row.event, "fields": row.fields}


def _as_line(row: Mapping[str, Any]) -> str:
    fields = " ".join(f"{name}={value if value.isalnum() else repr(value)}" for name, value in row["fields"].items())
    said = printable(f"{row['event']} {fields}".rstrip())
    return f"{row['time'] or '?':24}  {row['member_id']:6}  {row['level']:8}  {said}"
