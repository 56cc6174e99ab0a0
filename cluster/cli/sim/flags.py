"""The flags of `trimaran sim`: their types and help, and the parsers of their texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from ....service_api.errors import ConfigurationError
from ....service_api.groups.group import GROUP_COUNT_MAX

_CLUSTER_PANEL: Final = "Settings: the cluster and its clients"

SeedsFlag = Annotated[
    str,
    typer.Option(
        "--seeds",
        metavar="A:B",
        help="A:B for seeds from A up to, but not including, B; one number; or A: with --until-failure.",
    ),
]
MembersFlag = Annotated[
    int | None,
    typer.Option(min=1, max=9, help="Number of members. [default: drawn per seed, mostly 3]", show_default=False),
]
WitnessesFlag = Annotated[
    int,
    typer.Option(
        rich_help_panel=_CLUSTER_PANEL, min=0, max=4, help="Number of members that are witnesses, fewer than half."
    ),
]
JobsFlag = Annotated[
    int | None, typer.Option(min=1, help="Seeds that run at the same time. [default: one per core]", show_default=False)
]
UntilFailureFlag = Annotated[bool, typer.Option("--until-failure", help="Stop at the first seed that fails.")]
WithoutFlag = Annotated[
    str, typer.Option(metavar="KIND,KIND", help="Switch off these kinds of faults; `all` for all.", show_default=False)
]
OnlyFlag = Annotated[
    str, typer.Option(metavar="KIND,KIND", help="Switch off all other kinds of faults.", show_default=False)
]
ClientsFlag = Annotated[int, typer.Option(rich_help_panel=_CLUSTER_PANEL, min=0, help="Number of clients.")]
RequestersFlag = Annotated[
    int, typer.Option(rich_help_panel=_CLUSTER_PANEL, min=0, help="Number of additional clients that use `request`.")
]
RequesterSessionsFlag = Annotated[
    int,
    typer.Option(
        rich_help_panel=_CLUSTER_PANEL,
        min=1,
        help="Sessions of each of those at once; more than 1 share one connection.",
    ),
]
SessionsFlag = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_CLUSTER_PANEL,
        min=0,
        max=1000,
        help="Number of additional clients with one request in flight each. [default: drawn per seed, mostly 0]",
        show_default=False,
    ),
]
GroupsFlag = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_CLUSTER_PANEL,
        min=1,
        max=GROUP_COUNT_MAX,
        help="Number of groups, each with a log of its own. [default: drawn per seed, mostly 1]",
        show_default=False,
    ),
]
LengthFlag = Annotated[float, typer.Option(min=0.01, help="How long faults occur, in heartbeat timeouts.")]
OperationsFlag = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=_CLUSTER_PANEL,
        min=0,
        help="The most operations of a client. [default: no limit]",
        show_default=False,
    ),
]
ServiceFlag = Annotated[
    str | None, typer.Option(metavar="MODULE:CLASS,...", help="Run this service, or up to ten.", show_default=False)
]
ServiceDirFlag = Annotated[Path, typer.Option(metavar="DIR", help="The directory of the service's module.")]
TraceFlag = Annotated[bool, typer.Option("--trace", help="Print a line per event of one seed.")]
TraceFileFlag = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the trace to this file instead.", show_default=False)
]
CheckDeterminismFlag = Annotated[
    bool, typer.Option("--check-determinism", help="Run each seed twice and compare the traces.")
]
NoShrinkFlag = Annotated[bool, typer.Option("--no-shrink", help="Do not make failures smaller.")]
VerboseFlag = Annotated[bool, typer.Option("-v", "--verbose", help="A line per seed, with its trace hash.")]


def parse_seeds(text: str) -> tuple[int, int | None]:
    """Read `A:B`, `A:` or `A`; the end is None if there is none.

    Raises:
        ConfigurationError: the user's: no such range, or an empty one.
    """
    begin_text, colon, end_text = text.partition(":")
    try:
        begin = int(begin_text)
        end = (int(end_text) if end_text else None) if colon else begin + 1
    except ValueError:
        raise ConfigurationError(f"bad seeds: seeds={text!r} expected A:B, A: or a number (--seeds)") from None
    if begin < 0 or (end is not None and end <= begin):
        raise ConfigurationError(f"no seeds: seeds={text!r} expected 0 <= A < B (--seeds)")
    return begin, end
