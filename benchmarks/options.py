"""Options that commands of benchmarks have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MembersOption = Annotated[int, typer.Option(help="Members of the cluster, each a process.")]
PayloadOption = Annotated[int, typer.Option(help="Bytes in a message.")]
TimeLimitOption = Annotated[float, typer.Option(help="Seconds after which the run is given up.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Where members keep files; default: a fresh one in ./.bench.")
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Leave the files of every measurement in place.")]
