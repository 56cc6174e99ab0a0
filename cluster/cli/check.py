"""`trimaran check`: find in the source of services what may make members differ.

Nothing is imported or run. Exit status: 0 nothing found, or hints only; 1 findings; 2 wrong usage, or no such service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ...archive.tool.output import EXIT_FAILED, OutputFormat, OutputOption, ended_by_reader, print_rows
from ...service_api import ConfigurationError
from ..testing.check import RULES, Finding, Severity, check_targets


def check(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET", help="module:Class, a Python file, or a directory.", show_default=False),
    ] = None,
    service_dir: Annotated[Path, typer.Option("--service-dir", help="The directory of the service's module.")] = Path(),
    rules: Annotated[bool, typer.Option("--rules", help="List the rules instead.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Find in the source of services what may make members differ: clocks, random numbers, the order of sets.

    A comment ends a finding: `# trimaran: ignore[rule] reason`. Exit status 1 where there are findings, 0 with hints.
    """
    if rules:
        print_rows([{"rule": name, **rule._asdict()} for name, rule in RULES.items()], output)
        return
    if not targets:
        raise ConfigurationError("nothing to check: expected module:Class, a file or a directory")
    findings, services = check_targets(targets, service_dir)
    if output is OutputFormat.TABLE:
        _print_findings(findings, services)
    else:
        print_rows(map(_as_dict, findings), output)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "path": _shown(finding.path),
        "line": finding.line,
        "column": finding.column,
        "rule": finding.rule,
        "severity": finding.severity.value,
        "what": finding.what,
        "why": finding.why,
        "instead": finding.instead,
        "reached_from": [*finding.reached_from],
    }


def _print_findings(findings: Sequence[Finding], services: Sequence[str]) -> None:
    with ended_by_reader():
        for finding in findings:
            for line in _lines_of(finding):
                typer.echo(line)
        errors = sum(finding.severity is Severity.ERROR for finding in findings)
        typer.echo(
            f"{_count(errors, 'finding')} and {_count(len(findings) - errors, 'hint')} in "
            f"{_count(len(services), 'service')}: {', '.join(services)}"
        )


def _lines_of(finding: Finding) -> Iterator[str]:
    hint = "hint: " if finding.severity is Severity.HINT else ""
    yield f"{_shown(finding.path)}:{finding.line}:{finding.column}: {hint}{finding.rule}: {finding.what}"
    yield f"    {finding.source}"
    yield f"    why: {finding.why}"
    yield f"    instead: {finding.instead}"
    if len(finding.reached_from) > 1:
        yield f"    reached by: {' -> '.join(finding.reached_from)}"


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _shown(path: Path) -> str:
    directory = Path.cwd()
    return str(path.relative_to(directory)) if path.is_relative_to(directory) else str(path)
