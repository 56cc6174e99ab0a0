"""`trimaran replay DIR --service module:Class`: the state of a service at a position, or other code on the same log.

Nothing in the directory is changed or locked; its member may run. Exit status: 0 replayed, and nothing differs; 1 the
service failed to load its state or to write it; 2 wrong usage, no such position; 10 the directory is damaged,
or a comparison found a difference.

What the service prints goes to standard error, so that standard output is the report alone.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from rich.console import ConsoleRenderable, Group, RenderableType

from ...archive.tool.commands.progress import one_bar, progress_bars
from ...archive.tool.output import (
    ABSENT,
    EXIT_FAILED,
    EXIT_UNHEALTHY,
    OutputFormat,
    OutputOption,
    fail,
    format_time,
    new_table,
    print_object,
    print_rows,
)
from ...service_api import ClusterError, ConfigurationError
from ...service_api.quantities import parse_time
from ...service_api.types import TICKS_PER_MS
from ..time_travel import (
    MemberLog,
    Output,
    OutputDifference,
    ReplayedService,
    describe_state,
    replay_service,
    verify_snapshots,
    what_if,
)
from ..time_travel.member_log import Bound
from ..time_travel.output_texts import OutputTexts
from ..time_travel.rendering import describe_fields
from ..time_travel.replay import Progress, SnapshotChoice
from ..time_travel.services import make_services
from ..time_travel.what_if import WhatIf

_ERROR_LIMIT = 5
_TIMER_LIMIT = 20
_TEXT_LIMIT = 24
_TEXT_BEFORE = 10
"""Characters of an output in a table, and how many of them before the first that differs."""

ServiceOption = Annotated[
    str, typer.Option("--service", metavar="MODULE:CLASS", help="The service; separate several with commas.")
]
DirectoryArgument = Annotated[
    str,
    typer.Argument(
        metavar="DIR|URL",
        help="A member's directory, as in --directory; the member may run. Or a backup, or the URL of one in a store.",
    ),
]
ServiceDirOption = Annotated[Path, typer.Option("--service-dir", help="The directory of the service's module.")]
ServiceIdOption = Annotated[
    int, typer.Option("--service-id", min=0, help="The id of the service, if the node ran several and you name one.")
]
PositionOption = Annotated[
    int | None,
    typer.Option("--position", min=0, help="The state after the last whole entry up to here.", show_default=False),
]
TimeOption = Annotated[
    str | None,
    typer.Option("--time", help="The state at this time: a date (UTC), or a number as in the log.", show_default=False),
]
SnapshotOption = Annotated[
    str | None,
    typer.Option(
        "--snapshot",
        metavar="WHICH",
        help="Where to begin: newest, oldest, none (the beginning of the log), or a snapshot's position. "
        "[default: newest; "
        "oldest for a comparison and for --outputs]",
        show_default=False,
    ),
]
BoundOption = Annotated[
    str, typer.Option("--bound", metavar="WHICH", help="How far to replay: committed, recorded, or a position.")
]
OutputsOption = Annotated[
    Path | None,
    typer.Option("--outputs", metavar="FILE", help="Write the service's outputs to this file, as JSON lines."),
]
StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state", metavar="FILE", help="Write the service's snapshot to this file: each message after its length."
    ),
]
WhatIfOption = Annotated[
    str | None,
    typer.Option("--what-if", metavar="MODULE:CLASS", help="Deliver the log to this service, too, and compare."),
]
AgainstLogOption = Annotated[
    bool,
    typer.Option("--against-log", help="Compare the service with the offers, timers and session closes in the log."),
]
VerifyOption = Annotated[
    bool, typer.Option("--verify-snapshots", help="Replay from each snapshot to the next, and compare their bytes.")
]
ProcessesOption = Annotated[
    int, typer.Option("--processes", min=1, help="Number of processes that verify at the same time.")
]


@dataclass(slots=True, frozen=True, kw_only=True)
class _Wanted:
    """What is to be replayed, and how far."""

    log: MemberLog
    service: str
    service_dir: Path
    service_id: int
    position: int | None
    moment: int | datetime | None
    snapshot: SnapshotChoice
    bound: Bound


def replay(
    directory: DirectoryArgument,
    service: ServiceOption,
    service_dir: ServiceDirOption = Path(),
    service_id: ServiceIdOption = 0,
    position: PositionOption = None,
    time: TimeOption = None,
    snapshot: SnapshotOption = None,
    bound: BoundOption = "committed",
    outputs: OutputsOption = None,
    state: StateOption = None,
    new_service: WhatIfOption = None,
    is_against_log: AgainstLogOption = False,
    is_verifying: VerifyOption = False,
    processes: ProcessesOption = 1,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a service's state at a position or time of the log, from a member's directory alone, ours or Aeron's.

    With --what-if: the differences between the service and other code, message by message. With --verify-snapshots:
    whether the service is deterministic. The command shows the state with the class's __repr__, or its attributes.
    """
    is_replay = new_service is None and not is_against_log and not is_verifying
    if (new_service is not None) + is_against_log + is_verifying > 1:
        raise ConfigurationError("expected one of --what-if, --against-log and --verify-snapshots")
    if not is_replay and (outputs is not None or state is not None):
        raise ConfigurationError(
            "--outputs and --state belong to a single replay: they cannot be used with a comparison"
        )
    with _telling_damage():
        wanted = _Wanted(
            log=MemberLog.open(directory),
            service=service,
            service_dir=service_dir,
            service_id=service_id,
            position=position,
            moment=parse_time_option(time),
            snapshot=_read_snapshot_choice(snapshot, is_comparison=not is_replay or outputs is not None),
            bound=_read_bound(bound),
        )
        if is_verifying:
            _verify(wanted, processes, output)
        elif is_replay:
            _replay(wanted, outputs, state, output)
        else:
            _compare(wanted, service if new_service is None else new_service, is_against_log, output)


@contextlib.contextmanager
def _telling_damage() -> Iterator[None]:
    """End with one line and the right status: damage is not wrong usage, and what a service raises is not ours."""
    try:
        yield
    except (ConfigurationError, typer.Exit, OSError):
        raise
    except ClusterError as error:
        fail(str(error), EXIT_UNHEALTHY)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        fail(f"the service failed{where}: {type(error).__name__}: {error}", EXIT_FAILED)


def _replay(wanted: _Wanted, outputs: Path | None, state: Path | None, output: OutputFormat) -> None:
    log = wanted.log
    with _progress(log) as on_progress, contextlib.ExitStack() as files, contextlib.redirect_stdout(sys.stderr):
        services = make_services(
            wanted.service, directory=wanted.service_dir, service_id=wanted.service_id, service_count=None, log=log
        )
        sink = files.enter_context(_sink(outputs, OutputTexts(services)))
        replayed = replay_service(
            log,
            services,
            position=wanted.position,
            time=wanted.moment,
            snapshot=wanted.snapshot,
            bound=wanted.bound,
            sink=sink,
            on_progress=on_progress,
        )
        if state is not None:
            _write_state(state, replayed.snapshot_messages())
        document = _document(log, replayed)
    print_object(document, output, lambda: _draw(document))
    uncounted = log.recorded_position - replayed.end_position
    if wanted.bound == "committed" and wanted.position is None and wanted.moment is None and uncounted:
        typer.echo(
            f"trimaran: {uncounted} more bytes are recorded; this directory does not show whether they are "
            "committed: --bound recorded includes them",
            err=True,
        )


def _compare(wanted: _Wanted, new: str, is_against_log: bool, output: OutputFormat) -> None:
    with _progress(wanted.log) as on_progress, contextlib.redirect_stdout(sys.stderr):
        result = what_if(
            wanted.log,
            old=None if is_against_log else wanted.service,
            new=new,
            snapshot=wanted.snapshot,
            position=wanted.position,
            time=wanted.moment,
            service_id=wanted.service_id,
            bound=wanted.bound,
            on_progress=on_progress,
            service_dir=wanted.service_dir,
        )
    print_object(_what_if_document(result), output, lambda: _draw_what_if(result))
    if not result.is_same:
        raise typer.Exit(EXIT_UNHEALTHY)


def _verify(wanted: _Wanted, processes: int, output: OutputFormat) -> None:
    with contextlib.redirect_stdout(sys.stderr):
        verdicts = verify_snapshots(
            wanted.log,
            wanted.service,
            service_id=wanted.service_id,
            processes=processes,
            service_dir=wanted.service_dir,
        )
    rows = [verdict._asdict() for verdict in verdicts]
    print_rows(rows, output, title=wanted.log.name, empty="no snapshots")
    if any(verdict.problem is not None for verdict in verdicts):
        fail("the service writes snapshots that differ from the recorded ones", EXIT_UNHEALTHY)


# --- what the options mean


def _read_snapshot_choice(text: str | None, *, is_comparison: bool) -> SnapshotChoice:
    """Read where to begin; what is compared or written down is all that there is, unless told."""
    choices: dict[str | None, SnapshotChoice] = {
        None: "oldest" if is_comparison else "newest",
        "newest": "newest",
        "oldest": "oldest",
        "none": "none",
    }
    if text in choices:
        return choices[text]
    assert text is not None
    return _read_number("--snapshot", text, "newest, oldest, none or a position")


def _read_bound(text: str) -> Bound:
    if text in ("committed", "recorded"):
        return "committed" if text == "committed" else "recorded"
    return _read_number("--bound", text, "committed, recorded or a position")


def _read_number(option: str, text: str, expected: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"{option} {text}: expected {expected}") from None


def parse_time_option(text: str | None) -> int | datetime | None:
    """Read the time of an option: a number as in the log, or a date; None without one.

    Raises:
        ConfigurationError: it is neither.
    """
    try:
        return None if text is None else parse_time(text)
    except ValueError as error:
        raise ConfigurationError(f"--time: {error}") from None


# --- files


@contextlib.contextmanager
def _sink(path: Path | None, texts: OutputTexts) -> Iterator[Callable[[Output], None] | None]:
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8") as file:
        yield lambda output: _write_output(file, output, texts)


def _write_output(file: TextIO, output: Output, texts: OutputTexts) -> None:
    file.write(json.dumps(_row_of(output, texts)) + "\n")


def _row_of(output: Output, texts: OutputTexts) -> dict[str, Any]:
    """Return an output by field; `message` is that of a typed service in words."""
    message = texts.message(output.payload)
    row = {name: value for name, value in output._asdict().items() if value is not None}
    return row | {"payload": output.payload.hex()} | ({} if message is None else {"message": message})


def _write_state(path: Path, messages: list[bytes]) -> None:
    path.write_bytes(b"".join(len(message).to_bytes(4, "little") + message for message in messages))


@contextlib.contextmanager
def _progress(log: MemberLog) -> Iterator[Progress]:
    done = 0
    with progress_bars() as bars, one_bar(bars, "replaying", log.recorded_position - log.log.start_position) as update:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            update(done)

        yield advance


# --- reports


def _document(log: MemberLog, replayed: ReplayedService) -> dict[str, Any]:
    return {
        "service": type(replayed.service).__qualname__,
        "state": describe_state(replayed.service),
        "fields": describe_fields(replayed.service),
        "log_position": replayed.log_position,
        "cluster_time": replayed.cluster_time,
        "time": format_time(replayed.cluster_time, ticks_per_second=TICKS_PER_MS[replayed.time_unit] * 1_000)
        if replayed.cluster_time  # 0 before the first entry
        else None,
        "time_unit": replayed.time_unit.name,
        "leadership_term_id": replayed.leadership_term_id,
        "replayed_from": replayed.start_position,
        "start_position": log.log.start_position,
        "committed_position": log.committed_position,
        "recorded_position": log.recorded_position,
        "session_ids": [*replayed.sessions],
        "timers": [{"correlation_id": id_, "deadline": deadline} for id_, deadline in replayed.timers],
        "outputs": {str(kind): count for kind, count in sorted(replayed.output_counts.items())},
        "errors": [error._asdict() for error in replayed.errors],
        "divergences": replayed.divergences,
    }


def _draw(document: dict[str, Any]) -> ConsoleRenderable:
    table = new_table("what", "value")
    fields = document["fields"] or {}
    for name, value in document.items():
        if name == "fields" or (name == "state" and fields):
            for field, shown in fields.items() if name == "fields" else ():
                table.add_row(f"state: {field}", shown)
            continue
        if name == "timers":
            shown = [f"{each['correlation_id']} at {each['deadline']}" for each in value[:_TIMER_LIMIT]]
            more = len(value) - len(shown)
            value = ", ".join(shown) + (f" and {more} more" if more else "")
        elif name == "outputs":
            value = " ".join(f"{kind}={count}" for kind, count in value.items())
        elif name == "errors":
            value = "\n".join(f"{each['position']}: {each['error']}" for each in value[:_ERROR_LIMIT])
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        table.add_row(name.replace("_", " "), ABSENT if value in (None, "") else str(value))
    return Group(table)


def _what_if_document(result: WhatIf) -> dict[str, Any]:
    return {
        "is_same": result.is_same,
        "replayed_from": result.start_position,
        "end_position": result.end_position,
        "difference_count": result.difference_count,
        "changes": {f"{kind} {change}": count for (kind, change), count in sorted(result.changes.items())},
        "old_outputs": {str(kind): count for kind, count in sorted(result.old_counts.items())},
        "new_outputs": {str(kind): count for kind, count in sorted(result.new_counts.items())},
        "is_state_compared": result.is_state_compared,
        "state": None if result.state is None else result.state.detail,
        "uncompared_fields": result.uncompared_fields,
        "differences": [
            {
                "position": difference.position,
                "kind": difference.output.kind,
                "change": difference.change,
                "handler": result.handlers.get(difference.position),
                "detail": result.texts.difference(difference),
                "old": None if difference.old is None else _row_of(difference.old, result.texts),
                "new": None if difference.new is None else _row_of(difference.new, result.texts),
            }
            for difference in result.sample
        ],
    }


def _draw_what_if(result: WhatIf) -> ConsoleRenderable:
    verdict = "nothing differs" if result.is_same else f"differences: {result.difference_count}"
    parts: list[RenderableType] = [f"{verdict}, from {result.start_position} to {result.end_position}"]
    if result.changes:
        table = new_table("output", "change", "count", numbers=("count",))
        for (kind, change), count in sorted(result.changes.items()):
            table.add_row(kind, change, f"{count:,}")
        parts += ["", table]
        rows = new_table("position", "output", "session", "id", "old", "new", numbers=("position",))
        for difference in result.sample:
            output = difference.output
            ids = [output.cluster_session_id, output.correlation_id]
            shown = [ABSENT if number is None else str(number) for number in ids]
            rows.add_row(str(output.position), output.kind, *shown, *_texts(difference, result.texts))
        parts += ["", rows]
        if result.handlers:
            parts += ["", *(f"{position} handled by {place}" for position, place in sorted(result.handlers.items()))]
    if result.state is not None:
        parts += ["", f"the states differ: {result.state.detail}"]
    elif result.is_state_compared:
        parts += ["", "the states at the end are the same"]
    parts += [f"not compared: {each}" for each in result.uncompared_fields]
    return Group(*parts)


def _texts(difference: OutputDifference, texts: OutputTexts) -> tuple[str, str]:
    """What the old output says and what the new one does: a typed message whole, others from where they differ."""
    sides = [difference.old, difference.new]
    typed = [None if side is None else texts.message(side.payload) for side in sides]
    if any(typed):
        old, new = (each or _text(side) for each, side in zip(typed, sides, strict=True))
        return old, new
    old, new = _text(difference.old), _text(difference.new)
    begin = 0
    if difference.old is not None and difference.new is not None:
        pairs = enumerate(zip(old, new, strict=False))
        begin = next((index for index, (a, b) in pairs if a != b), min(len(old), len(new)))
        begin = max(0, begin - _TEXT_BEFORE)
    return _cut(old, begin), _cut(new, begin)


def _text(output: Output | None) -> str:
    if output is None:
        return ABSENT
    if output.deadline is not None:
        return f"at {output.deadline}"
    text = output.payload.decode(errors="replace")
    return text if text.isprintable() else output.payload.hex()


def _cut(text: str, begin: int) -> str:
    end = begin + _TEXT_LIMIT
    return ("..." if begin else "") + text[begin:end] + ("..." if end < len(text) else "")
