"""Commands that ask a cluster with groups: all of its groups, one after the other, unless one is named.

In a table each group has a line before it; as JSON each group is an object, which names it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import typer

from ....archive.tool.output import EXIT_OK, OutputFormat
from ....service_api.errors import ConfigurationError
from ....service_api.groups.group import Group
from ...settings.config import NodeConfig
from .setting_flags import load_groups_from_flags


def of_every_group(function: Callable[..., None]) -> Callable[..., None]:
    """Have a command done for each group in turn, where there are several and the settings name none.

    It ends with the status of the first group that did not end with 0; all groups are asked whatever one says. It goes
    below the decorator that adds the flags of settings.
    """

    @functools.wraps(function)
    def command(**values: Any) -> None:
        settings = {name: value for name, value in values.items() if name in NodeConfig.model_fields}
        group_count, group_index = load_groups_from_flags(settings | {"config_file": values.get("config_file")})
        if group_count == 1 or group_index is not None:
            function(**values)
            return
        if values.get("watch_every") is not None:
            raise ConfigurationError(f"--watch of groups={group_count}: give --group, from 0 to {group_count - 1}")
        statuses = [_ask_one(function, values, Group(i, group_count)) for i in range(group_count)]
        raise typer.Exit(next((status for status in statuses if status != EXIT_OK), EXIT_OK))

    return command


def _ask_one(function: Callable[..., None], values: dict[str, Any], group: Group) -> int:
    """Do it for one group, and return the exit status."""
    if values.get("output", OutputFormat.TABLE) is OutputFormat.TABLE:
        typer.echo(f"{chr(10) if group.index else ''}{group}")
    try:
        function(**values | {"group": str(group.index)})
    except typer.Exit as ended:
        return ended.exit_code
    return EXIT_OK
