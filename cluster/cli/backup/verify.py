"""`trimaran backup verify`: every checksum, every frame, every snapshot, and the state where a service is given."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from ....archive.tool.output import EXIT_UNHEALTHY, OutputFormat, OutputOption, fail, print_rows
from ...operating.backup.verification import verify_backup


def verify_all(
    backup: Annotated[str, typer.Argument(metavar="DIR|URL", help="The backup: a directory, or its URL in a store.")],
    service: Annotated[
        str | None,
        typer.Option("--service", metavar="MODULE:CLASS", help="Replay this service, and compare its snapshots."),
    ] = None,
    service_dir: Annotated[Path, typer.Option("--service-dir", help="Where the service is imported from.")] = Path(),
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Read a backup from end to end, and check everything in it. The agent may run meanwhile.

    Exit status 0: all is valid; 10: something is not.
    """
    with contextlib.redirect_stdout(sys.stderr):  # a service may print
        checks = [*verify_backup(backup, service=service, service_dir=service_dir)]
    rows = [
        {"what": check.what, "is_valid": check.problem is None, "detail": check.problem or check.detail}
        for check in checks
    ]
    print_rows(rows, output, title=backup, empty="nothing is there")
    problems = [check for check in checks if check.problem is not None]
    if problems:
        fail(f"{len(problems)} of {len(checks)} checks found something wrong", EXIT_UNHEALTHY)
