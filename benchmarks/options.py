"""Options that commands of benchmarks have in common, and how their texts are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trimaran.service_api.errors import ConfigurationError

MembersOption = Annotated[int, typer.Option(help="Members of the cluster, each a process.")]
PayloadOption = Annotated[int, typer.Option(help="Bytes in a message.")]
TimeLimitOption = Annotated[float, typer.Option(help="Seconds after which the run is given up.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
DirectoryOption = Annotated[
    Path | None, typer.Option("--dir", help="Where members keep files; default: a fresh one in ./.bench.")
]
KeepOption = Annotated[bool, typer.Option("--keep", help="Leave the files of every measurement in place.")]


def parse_numbers(name: str, text: str) -> tuple[int, ...]:
    """Read numbers with commas between.

    Raises:
        ConfigurationError: these are none.
    """
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError as error:
        raise ConfigurationError(f"{name}={text!r} expected numbers with commas") from error
