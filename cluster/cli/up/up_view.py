"""Shows a development cluster: a table that is drawn again in a terminal, a line for each change elsewhere.

As JSON it is an object a line: `event` says what it is about, `started`, `member`, `down`, `killed`, `stopped`,
`state` or `stopping`; a `state` holds a report as `trimaran status` prints it, one for each change of who leads and who
is there.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ....archive.tool.output import OutputFormat, make_console, print_line
from ..shared.cluster_report import ClusterReport
from ..shared.cluster_table import status_table
from .place import Place

_NOTES_SHOWN: Final = 8
"""In a terminal, below the table."""


class UpView:
    """What `trimaran up` prints; a context manager, so that the terminal is put back whatever happens."""

    def __init__(self, place: Place, service: str, output: OutputFormat) -> None:
        self._place = place
        self._service = service
        self._output = output
        self._console = make_console()
        is_live = output is OutputFormat.TABLE and self._console.is_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_live else None
        self._notes: list[Text] = []
        self._reports: Sequence[ClusterReport] = ()
        self._shown: dict[int, tuple[object, ...]] = {}
        """What was printed last of each group."""

    def __enter__(self) -> Self:
        if self._output is OutputFormat.TABLE:
            typer.echo("\n".join(self._introduction()))
        else:
            self._print_event("started", **self._facts())
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, word: str, text: str) -> None:
        """Print what happened."""
        if self._output is not OutputFormat.TABLE:
            self._print_event(word, text=text)
        elif self._live is None:
            typer.echo(f"{word:<9} {text}")
        else:
            self._notes = [*self._notes, Text.assemble((f"{word:<9} ", "cyan"), text)][-_NOTES_SHOWN:]
            self._draw()

    def show(self, reports: Sequence[ClusterReport]) -> None:
        """Show how the cluster is, or each of its groups."""
        self._reports = reports
        if self._live is not None:
            self._draw()
            return
        for group_index, report in enumerate(reports):
            self._print_state(group_index, report)

    def _print_state(self, group_index: int, report: ClusterReport) -> None:
        up = tuple(member.member_id for member in report.members if member.status is not None)
        state = (report.leader_member_id, report.leadership_term_id, report.in_term_count, up)
        if state == self._shown.get(group_index):
            return
        self._shown[group_index] = state
        if self._output is OutputFormat.TABLE:
            self.say("state", f"{self._name_of(group_index)}{report.verdict}")
        else:
            self._print_event("state", report=report.model_dump(mode="json"))

    def _draw(self) -> None:
        assert self._live is not None
        parts: list[RenderableType] = []
        for group_index, report in enumerate(self._reports):
            parts += [Text(name.rstrip(": "))] if (name := self._name_of(group_index)) else []
            parts += [status_table(report), ""]
        self._live.update(Group(*parts, *self._notes), refresh=True)

    def _name_of(self, group_index: int) -> str:
        count = self._place.group_count
        return "" if count == 1 else f"group {group_index} of {count}: "

    def _facts(self) -> dict[str, Any]:
        return {
            "members": self._place.members,
            "directory": str(self._place.directory),
            "config": str(self._place.config_file),
            "service": self._service,
            "is_new": self._place.is_new,
            "groups": self._place.group_count,
        }

    def _environment(self) -> str:
        """What a client's files are given with; empty without TLS."""
        certificates = self._place.certificates
        if certificates is None:
            return ""
        files = certificates.client
        names = ("authorities", "certificate", "key")
        return " ".join(f"TRIMARAN_TLS_{name.upper()}={shlex.quote(getattr(files, name))}" for name in names) + " "

    def _introduction(self) -> list[str]:
        endpoints, is_grouped = ",".join(self._place.endpoints), self._place.group_count > 1
        is_secret = self._place.certificates is not None
        names, tls = (", TlsSettings", ", tls=TlsSettings.of_environment()") if is_secret else ("", "")
        connect = f"from trimaran import SyncClusterClient as C{names}; c = C.connect('{endpoints}'.split(','){tls})"
        client = f"{connect}; print(c.leader_member_id); c.close()"
        if is_grouped:
            client = client.replace("SyncClusterClient as C", "SyncGroupedClient as C")
            client = client.replace("c.leader_member_id", "c.for_key('a').leader_member_id")
        watch = "" if is_grouped else " --watch 1"
        return [
            f"data      {self._place.directory} ({'new' if self._place.is_new else 'as it was'})",
            f"service   {self._service}",
            f"members   {self._place.members}",
            *([f"groups    {self._place.group_count}"] if self._place.group_count > 1 else []),
            f'client    {self._environment()}python -c "{client}"',
            f"look      trimaran status --config {shlex.quote(str(self._place.config_file))}{watch}",
            "end       Ctrl-C",
        ]

    def _print_event(self, event: str, **facts: Any) -> None:
        print_line({"event": event, **facts})
        sys.stdout.flush()
