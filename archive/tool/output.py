"""The output of every command of `trimaran`: formats, rows, times, errors, exit statuses.

The archive's own commands and the cluster's use it. Numbers are never cut; in a pipe a table has a fixed width and no
colour.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from ...service_api.printable import printable
from ..disk_errors import StoreFailure

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
EXIT_UNHEALTHY: Final = 10
EXIT_NO_LEADER: Final = 11
EXIT_REFUSED: Final = 12
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143

EXIT_STATUSES: Final[Mapping[int, str]] = {
    EXIT_OK: "success",
    EXIT_FAILED: "failed: the command was carried out and did not succeed",
    EXIT_USAGE: "wrong usage: an option, a file or a directory cannot be used",
    EXIT_UNREACHABLE: "unreachable: no member answers, or no store",
    EXIT_UNHEALTHY: "unhealthy: a member is down, data is damaged, or two things differ",
    EXIT_NO_LEADER: "no leader: members answer, and none of them leads",
    EXIT_REFUSED: "refused: not allowed, or not possible in the current state",
    EXIT_INTERRUPTED: "interrupted: Ctrl-C before the end",
    EXIT_TERMINATED: "terminated: SIGTERM before the end",
}
"""Each exit status of the command `trimaran`, and what it means. No command ends with any other, but for
`trimaran locks run`, which ends as the command that it runs."""

ABSENT: Final = "-"
"""What a table shows where there is no value."""

_SUBJECT: Final[ContextVar[tuple[str, Mapping[str, Any]]]] = ContextVar("subject", default=("", {}))
"""The subject of the output, in a command that does one thing after the other."""

_DURATIONS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


class OutputFormat(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    """For people."""
    JSON = "json"
    """One document."""
    JSONL = "jsonl"
    """One object a line."""


SHARED_PANEL: Final = "Options of many commands"
"""The panel of a command's help for what other commands take, too; it stands last."""
_OWN_PANELS: Final = ("Arguments", "Options")
_HELP_ALL: Final = "trimaran.help_all"

OutputOption = Annotated[
    OutputFormat,
    typer.Option("-o", "--output", metavar="FORMAT", help="table, json or jsonl.", rich_help_panel=SHARED_PANEL),
]


def _show_all_help(ctx: typer.Context, is_wanted: bool) -> None:
    if is_wanted:
        ctx.meta[_HELP_ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAllOption = Annotated[
    bool,
    typer.Option(
        "--help-all",
        help="Show the settings that this command takes, too.",
        rich_help_panel=SHARED_PANEL,
        callback=_show_all_help,
        is_eager=True,
    ),
]
"""The option of commands with panels that `--help` leaves out."""


class _Examples:
    """The end of a command's help: the example in it can be copied, for no line ends at a hyphen."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # of click, or of typer's copy of it
        """Write the epilog."""
        if self.epilog:
            lines = textwrap.wrap(self.epilog, formatter.width - 2, break_on_hyphens=False)
            formatter.write("\n" + textwrap.indent("\n".join(lines), "  ") + "\n")


class _Command(_Examples, TyperCommand):
    """A command whose help shows its own options first, then those of many commands.

    Options of any other panel, such as a node's settings, are shown by `--help-all` alone.
    """

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # of click, or of typer's copy of it
        """Write the arguments as the line of usage has them: `[OPTIONS] DIR [REGEX]`."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return [self.options_metavar or "", *map(_usage_of, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # of click, or of typer's copy of it
        """Write the arguments and options, by panel."""
        panels: dict[str, list[tuple[str, str]]] = {panel: [] for panel in _OWN_PANELS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            panel = _panel_of(parameter)
            if record is not None and (_HELP_ALL in ctx.meta or panel in (*_OWN_PANELS, SHARED_PANEL)):
                is_argument = parameter.param_type_name == "argument"
                name = record[0].partition(" <")[0] if is_argument else _KIND.sub(_placeholder, record[0])
                panels.setdefault(panel, []).append((name, record[1]))
        shared = panels.pop(SHARED_PANEL)  # --help at least
        for panel, rows in (panels | {SHARED_PANEL: shared}).items():
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


_KIND: Final = re.compile(r"<(int|float|str|path)( range)?>")


def _placeholder(kind: re.Match[str]) -> str:
    return {"str": "TEXT", "path": "PATH"}.get(kind[1], "NUMBER")


def _usage_of(argument: Any) -> str:  # of click, or of typer's copy of it
    name = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _panel_of(parameter: Any) -> str:  # of click, or of typer's copy of it
    if parameter.name == "help":
        return SHARED_PANEL
    return getattr(parameter, "rich_help_panel", None) or _OWN_PANELS[parameter.param_type_name == "option"]


class _CommandGroup(_Examples, TyperGroup):
    """A group whose help lists its commands by the part of the list where each stands, then its options."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # of click, or of typer's copy of it
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        rows = [record for parameter in self.get_params(ctx) if (record := parameter.get_help_record(ctx)) is not None]
        with formatter.section("Options"):
            formatter.write_dl(rows)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # of click, or of typer's copy of it
        """Write the commands, in the order in which they were added."""
        parts: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                part = getattr(command, "rich_help_panel", None)
                row = name, command.get_short_help_str(limit=1_000)
                parts.setdefault(part if isinstance(part, str) else "Commands", []).append(row)
        for part, rows in parts.items():
            with formatter.section(part):
                formatter.write_dl(rows)


class _Typer(typer.Typer):
    """A group that makes its commands `_Command`s."""

    def command(self, name: str | None = None, **options: Any) -> Any:  # the options and the result of typer
        """Add a command."""
        return super().command(name, cls=_Command, **options)


def new_group(help_text: str) -> typer.Typer:
    """Make a group of commands, such as `trimaran snapshot`.

    Its help is plain text: an option's name is never cut, however narrow the terminal is, and is found by `grep`.
    """
    return _Typer(
        cls=_CommandGroup,
        rich_markup_mode=None,
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class _PlainConsole(Console):
    """A console that shows every text as it is: it is no markup, and no command to the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:  # the options of rich
        """Make a text of a string, with escapes for what is not printable."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object; what is not printable in a text of others is escaped here."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def make_console(width_in_pipe: int = 100) -> Console:
    """Make the console for standard output: as wide as the terminal, of a fixed width and without colour in a pipe.

    What is printed may come from others: a text in brackets is no markup, and control characters are escaped.
    """
    is_as_wide_as_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
    return _PlainConsole(highlight=False, markup=False, width=None if is_as_wide_as_terminal else width_in_pipe)


def print_rows(
    rows: Iterable[Mapping[str, Any]],
    output: OutputFormat,
    *,
    columns: Mapping[str, str] | None = None,
    title: str | None = None,
    empty: str = "nothing to show",
    width_in_pipe: int = 160,
) -> None:
    """Print rows of values that JSON knows: a table, one array, or one object a line.

    A table shows `columns`, a heading for each name in a row, or else all that the first row has; without rows it is
    the line `empty`. Only a table keeps all rows until the last one; who has many prints them with `print_stream`.
    """
    printers: dict[OutputFormat, Callable[[], None]] = {
        OutputFormat.JSONL: lambda: _print_jsonl(rows),
        OutputFormat.JSON: lambda: _print_json(rows),
        OutputFormat.TABLE: lambda: make_console(width_in_pipe).print(_as_table(rows, columns, title) or empty),
    }
    with ended_by_reader():
        printers[output]()
        sys.stdout.flush()


def print_object(row: Mapping[str, Any], output: OutputFormat, as_table: Callable[[], RenderableType]) -> None:
    """Print one object: drawn by `as_table` for people, as JSON over several lines, or on one.

    In JSON it has a `schema_version`, 1 where the object does not say another one.
    """
    row = _with_subject({"schema_version": 1, **row})
    with ended_by_reader():
        if output is OutputFormat.TABLE:
            make_console().print(as_table())
        elif output is OutputFormat.JSON:
            sys.stdout.write(json.dumps(row, indent=2) + "\n")
        else:
            _write_json_line(row)
        sys.stdout.flush()


def print_stream(
    rows: Iterable[Mapping[str, Any]],
    output: OutputFormat,
    *,
    heading: str,
    as_line: Callable[[Mapping[str, Any]], str],
) -> None:
    """Print rows as they come, however many there are: for people a heading, then a line for each row.

    A line is cut off at the width of the terminal, in a pipe at none.
    """
    with ended_by_reader():
        if output is not OutputFormat.TABLE:
            print_rows(rows, output)
            return
        console = make_console()
        width = console.width if console.is_terminal or "COLUMNS" in os.environ else None
        _write_line(heading, width)
        for row in rows:
            _write_line(as_line(row), width)
        sys.stdout.flush()


def print_line(row: Mapping[str, Any]) -> None:
    """Print one object as one line of JSON, which a reader of the pipe gets at once."""
    _write_json_line(row)
    sys.stdout.flush()


@contextlib.contextmanager
def output_about(subject: str, **facts: Any) -> Iterator[None]:
    """Begin each error with what it is about, and add facts to each object of JSON: of one of several groups, say."""
    token = _SUBJECT.set((f"{subject}: ", facts))
    try:
        yield
    finally:
        _SUBJECT.reset(token)


def print_error(reason: str) -> None:
    """Print one line on standard error."""
    typer.echo(f"trimaran: {_SUBJECT.get()[0]}{printable(reason)}", err=True)


def status_of_failure(failure: StoreFailure) -> int:
    """Return the exit status of a command that an object store did not serve."""
    return EXIT_UNREACHABLE if failure.is_unreachable else EXIT_FAILED


def fail(reason: str, exit_status: int = EXIT_USAGE) -> NoReturn:
    """End the command with one line on standard error and an exit status: wrong usage, unless another is given.

    Raises:
        Exit: always.
    """
    print_error(reason)
    raise typer.Exit(exit_status)


def format_number(value: int | None) -> str:
    """Write a number with separators, `1,234,567`; `-` for None."""
    return ABSENT if value is None else f"{value:,}"


def format_rate(value: float | None) -> str:
    """Write a number a second for people; `ABSENT` for None."""
    return ABSENT if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def format_duration(duration_s: float) -> str:
    """Write a duration in its two largest units: `41 ms`, `3.2 s`, `5 min 10 s`, `2 d 3 h`."""
    if duration_s < 1:
        return f"{round(duration_s * 1000)} ms"
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    seconds = round(duration_s)
    for index, (length, unit) in enumerate(_DURATIONS):
        if seconds >= length:
            smaller, smaller_unit = _DURATIONS[index + 1] if index + 1 < len(_DURATIONS) else (1, "s")
            rest = seconds % length // smaller
            return f"{seconds // length} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{seconds} s"


def format_time(time: int, *, ticks_per_second: int = 1_000) -> str | None:
    """Write a time since the Unix epoch as an ISO date in UTC, with milliseconds: `2026-11-21T04:22:31.125Z`.

    None for what is no date: a negative number, as Aeron writes for no time, and one beyond the year 9999, such as
    nanoseconds that were taken for milliseconds.
    """
    if time < 0:
        return None
    try:
        moment = datetime.fromtimestamp(time / ticks_per_second, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextlib.contextmanager
def ended_by_reader() -> Iterator[None]:
    """End the command without an error when the reader of its pipe has closed it (`| head`)."""
    try:
        yield
    except BrokenPipeError:
        # What is still in the buffer goes nowhere: at its end the interpreter would try to write it again, and fail.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise typer.Exit from None


def new_table(*headings: str, numbers: Iterable[str] = (), folding: Iterable[str] | None = None) -> Table:
    """Make a plain table: the columns of `numbers` are flush right, those of `folding` may fold, or else the last."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    right, foldable = frozenset(numbers), frozenset(headings[-1:] if folding is None else folding)
    for heading in headings:
        justify: Literal["left", "right"] = "right" if heading in right else "left"
        table.add_column(heading, justify=justify, no_wrap=heading not in foldable, overflow="fold")
    return table


def cell(value: Any) -> str | Text:  # whatever a row holds
    """Write one value for people."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    return Text(json.dumps(value) if isinstance(value, dict | list) else printable(str(value)))


def _write_line(line: str, width: int | None) -> None:
    line = printable(line)
    sys.stdout.write((line if width is None or len(line) <= width else line[: width - 1] + "…") + "\n")


def _print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print an array, an element at a time, as `json.dumps` would print all of it."""
    separator = "[\n"
    for row in rows:
        sys.stdout.write(separator + textwrap.indent(json.dumps(_with_subject(row), indent=2), "  "))
        separator = ",\n"
    sys.stdout.write("[]\n" if separator == "[\n" else "\n]\n")


def _print_jsonl(rows: Iterable[Mapping[str, Any]]) -> None:
    for row in rows:
        _write_json_line(row)


def _write_json_line(row: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(_with_subject(row)) + "\n")


def _with_subject(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **_SUBJECT.get()[1]}


def _as_table(rows: Iterable[Mapping[str, Any]], columns: Mapping[str, str] | None, title: str | None) -> Table | None:
    table: Table | None = None
    headings: Mapping[str, str] = columns or {}
    for row in rows:
        if table is None:
            headings = headings or {name: name for name in row}
            table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
            for index, heading in enumerate(headings.values(), 1):
                table.add_column(heading, no_wrap=index < len(headings), overflow="fold")
        table.add_row(*(cell(row.get(name)) for name in headings))
    return table
