"""`trimaran report DIR... -o report.html`: the standard analyses of a log as one page, for a browser or for printing.

The page holds everything and asks for nothing: figures, tables, and the Python that gives the same in a notebook. Of
a directory with groups it has an overview, and the logs of the groups that `--group` names. With several directories of
one cluster the members' logs are compared as well, and the longest one is analysed. Nothing in
the directories is changed or locked; their members may run.

Exit status: 0 written; 1 an analysis failed, such as for want of memory; 2 wrong usage, no log there, or
`trimaran[report]` is missing; 10 written, and damage was found, which the page shows first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ...archive.errors import CorruptionError
from ...archive.tool.output import EXIT_FAILED, EXIT_UNHEALTHY, fail
from ...service_api.errors import ConfigurationError

ARCHIVE_DIRECTORY_NAME: Final = "archive"

DirectoriesArgument = Annotated[
    list[str],
    typer.Argument(metavar="DIR", help="A member's directory, an archive, or several of one cluster; paths or URLs."),
]
PageOption = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page.")]
NodeLogOption = Annotated[
    list[Path] | None,
    typer.Option("--node-log", metavar="FILE", help="A member's JSON log, for the reasons of elections. Repeatable."),
]
CommittedOption = Annotated[
    bool, typer.Option("--committed", help="Only what the member's recording log shows to be committed.")
]
RecordingIdOption = Annotated[
    int | None,
    typer.Option("--recording-id", min=0, help="Read this recording. [default: the newest log]", show_default=False),
]
GroupOption = Annotated[
    list[int] | None,
    typer.Option(
        "--group",
        metavar="K",
        min=0,
        help="Of a directory with groups, show this group's log below the overview. Repeatable. [default: all, of 4 or "
        "fewer]",
        show_default=False,
    ),
]
TitleOption = Annotated[str | None, typer.Option("--title", help="The title of the page.", show_default=False)]


def report(
    directories: DirectoriesArgument,
    page: PageOption = Path("report.html"),
    node_log: NodeLogOption = None,
    committed: CommittedOption = False,
    recording_id: RecordingIdOption = None,
    title: TitleOption = None,
    group: GroupOption = None,
) -> None:
    """Write one HTML page of the standard analyses: leaders, elections, traffic, sessions, timers, sizes, comparison.

    Needs `make setup-report`, or pip install '.[report]' in a checkout of Trimaran.
    """
    from ...archive.report.building import ReportRequest, build_report, check_sources
    from ...archive.report.group_report import build_groups_report, check_group_sources, find_groups
    from ...archive.report.page import render_page

    options = {"committed": "true"} if committed else {}
    if recording_id is not None:
        options["recordingId"] = str(recording_id)
    node_logs = [_expect_file(path) for path in node_log or ()]
    request = ReportRequest(directories=_name(directories), options=options, node_logs=node_logs, title=title)
    if not page.parent.is_dir():
        raise ConfigurationError(f"the page cannot be written: no such directory: {page.parent}")
    groups = find_groups(request, group or ())
    try:
        check_sources(request) if groups is None else check_group_sources(groups)
    except CorruptionError as error:
        fail(str(error), EXIT_UNHEALTHY)
    with _telling_failures(), _showing_steps() as show:
        made = build_report(request, show) if groups is None else build_groups_report(groups, show)
        show("writing the page")
        _write(page, render_page(made.page))
    count = len(made.page.sections)
    typer.echo(f"{page}: {count} sections, {page.stat().st_size:,} bytes{', DAMAGE' if made.is_damaged else ''}")
    if made.is_damaged:
        raise typer.Exit(EXIT_UNHEALTHY)


def _name(directories: Sequence[str]) -> Mapping[str, str]:
    """Name each directory: by its last part where that tells them apart, or else by all of it.

    Raises:
        ConfigurationError: one is given twice.
    """
    if len(set(directories)) < len(directories):
        raise ConfigurationError(f"a directory is given twice: {' '.join(directories)}")
    parts = [PurePosixPath(directory).parts for directory in directories]
    names = [part[-2] if len(part) > 1 and part[-1] == ARCHIVE_DIRECTORY_NAME else part[-1] for part in parts if part]
    is_telling = len(set(names)) == len(directories) and "." not in names and ".." not in names
    return dict(zip(names if is_telling else directories, directories, strict=True))


def _expect_file(path: Path) -> Path:
    if not path.is_file():
        raise ConfigurationError(f"no such file: --node-log {path}")
    return path.resolve()


@contextlib.contextmanager
def _telling_failures() -> Iterator[None]:
    """End the command with one line where DuckDB fails, such as for want of memory and of room for its files."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        fail(f"an analysis failed: {str(error).splitlines()[0]}", EXIT_FAILED)


@contextlib.contextmanager
def _showing_steps() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done, and since when, in a line that is gone at the end.

    Elsewhere each step is a line that stays.

    A log of many gigabytes takes minutes, and a script or a notebook shows that it goes on, too.
    """
    console = Console(stderr=True, soft_wrap=True)
    if not console.is_terminal:
        yield lambda step: console.print(f"report: {step}", highlight=False)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=None)
        yield lambda step: progress.update(task, description=step)


def _write(path: Path, text: str) -> None:
    """Write a file that is there only once it is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
