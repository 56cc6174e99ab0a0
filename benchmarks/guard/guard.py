"""The guard of the hot paths: their instruction counts beside those that are stored, which may not grow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from ...service_api.errors import ClusterError, ConfigurationError
from ..options import parse_list
from ..statistics.report import print_table
from .instructions import count_instructions, interpreter

STORED_COUNTS: Final = Path(__file__).with_name("instructions.json")
TOLERANCE: Final = 0.05
PAYLOAD_LENGTH: Final = 32


class SlowerError(ClusterError):
    """A hot path takes more instructions than it may."""


def check(counted: dict[str, int], stored: dict[str, int]) -> dict[str, str]:
    """Hold counts beside the stored ones; gives a line for each path.

    Raises:
        SlowerError: some take more than `TOLERANCE` more, or are not stored; the error has their lines.
    """
    lines, slower = {}, []
    for name, count in counted.items():
        before = stored.get(name)
        if before is None:
            lines[name] = f"{count:,}, not stored"
            slower.append(name)
            continue
        lines[name] = f"{count:,} instructions a message, {count / before - 1:+.1%} to {before:,}"
        if count > before * (1 + TOLERANCE):
            slower.append(name)
    if slower:
        found = "; ".join(f"{name}: {lines[name]}" for name in slower)
        raise SlowerError(
            f"more than {TOLERANCE:.0%} slower: {found}. "
            "If that is worth it: python -m trimaran.benchmarks guard --update"
        )
    return lines


def run(*, update: bool, only: Sequence[str] = (), path: Path = STORED_COUNTS) -> dict[str, str]:
    """Count, and compare with the stored counts of this interpreter, or store them with `update`; `only` some paths.

    Raises:
        SlowerError: see `check`.
        ConfigurationError: no valgrind, no path of such a name, or nothing is stored for this interpreter.
    """
    stored: dict[str, dict[str, int]] = json.loads(path.read_text()) if path.exists() else {}
    key = interpreter()
    if not update and key not in stored:
        raise ConfigurationError(
            f"no counts are stored for {key!r}, only for {sorted(stored)}: python -m trimaran.benchmarks guard --update"
        )
    counted = count_instructions(PAYLOAD_LENGTH, only=only)
    if update:
        kept = stored.get(key, {}) if only else {}
        path.write_text(json.dumps({**stored, key: {**kept, **counted}}, indent=2) + "\n")
        return {name: f"{count:,} instructions a message, stored" for name, count in counted.items()}
    return check(counted, stored[key])


def guard(
    update: Annotated[bool, typer.Option("--update", help="Store the counts instead of comparing them.")] = False,
    only: Annotated[str, typer.Option(help="Some paths, by name with commas. Default: all.")] = "",
) -> None:
    """Count and print a line for each path.

    Raises:
        ClusterError: see `run`.
    """
    counts = run(update=update, only=parse_list("only", str, only, may_be_empty=True))
    print_table(f"instructions of {interpreter()}", dict(counts))
