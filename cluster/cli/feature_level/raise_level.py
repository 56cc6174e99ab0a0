"""`trimaran feature-level raise`: another feature level from one log position on, on every member."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ....archive.tool.output import OutputFormat, OutputOption
from ...core.vocabulary.feature_levels import FEATURE_LEVEL_LIMIT
from ...documents.operations import Operation
from ..shared.every_group import of_every_group
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags

ToOption = Annotated[
    int | None,
    typer.Option(
        "--to",
        min=1,
        max=FEATURE_LEVEL_LIMIT,
        metavar="LEVEL",
        help="The level. [default: the highest that every member can]",
        show_default=False,
    ),
]


@with_member_flags
@of_every_group
def raise_level(
    to: ToOption = None,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = OutputFormat.TABLE,
    **settings: Any,
) -> None:
    """Raise the feature level: services switch to newer behaviour at one entry of the log, on every member.

    Refused while a voter or a learner is down, or runs code that declares less. A level never falls: from then on a
    member with older code stops.
    """
    carry_out(Operation.RAISE_FEATURE_LEVEL, timeout, output, settings, feature_level=to)
