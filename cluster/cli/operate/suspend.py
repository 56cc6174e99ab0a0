"""`trimaran suspend`: the cluster takes no input until it is resumed. `shared.operation` says how it ends."""

from __future__ import annotations

from typing import Any

from ....archive.tool.output import OutputFormat, OutputOption
from ...documents.operations import Operation
from ..shared.every_group import of_every_group
from ..shared.operation import TimeoutOption, carry_out
from ..shared.setting_flags import with_member_flags


@with_member_flags
@of_every_group
def suspend(timeout: TimeoutOption = 30.0, output: OutputOption = OutputFormat.TABLE, **settings: Any) -> None:
    """Stop accepting input until `trimaran resume`: clients wait, and no session times out."""
    carry_out(Operation.SUSPEND, timeout, output, settings)
