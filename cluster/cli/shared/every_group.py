"""Commands that ask a cluster with groups: all of its groups, one after the other, unless one is named.

In a table each group has a line before it. Each object of JSON has the field `group`, such as `0/4`, and each error
begins with its group.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from ....archive.tool.output import EXIT_OK, OutputFormat, output_about
from ....service_api.errors import ConfigurationError
from ....service_api.groups.group import Group
from .setting_flags import load_groups_from_flags

_GROUP_SETTINGS: Final = ("config_file", "groups", "group")
_ENDLESS: Final = {"watch_every": "--watch", "follow": "--follow"}
"""Parameters with which a command would never come to its second group."""


def asked_groups(settings: Mapping[str, Any]) -> list[Group]:
    """Return the groups that a command asks: the one that the settings name, or all; one, if there are no groups.

    Raises:
        ConfigurationError: the user's: see `load_groups_from_flags`.
    """
    count, index = load_groups_from_flags({name: settings.get(name) for name in _GROUP_SETTINGS})
    return [Group(each, count) for each in (range(count) if index is None else [index])]


def of_every_group(function: Callable[..., None]) -> Callable[..., None]:
    """Have a command done for each group in turn, where there are several and the settings name none.

    It ends with the status of the first group that did not end with 0; all groups are asked whatever one says. It goes
    below the decorator that adds the flags of settings.
    """

    @functools.wraps(function)
    def command(**values: Any) -> None:
        groups = asked_groups(values)
        endless = [flag for name, flag in _ENDLESS.items() if values.get(name)]
        if len(groups) > 1 and endless:
            raise ConfigurationError(f"{endless[0]} of groups={len(groups)}: give --group, from 0 to {len(groups) - 1}")
        if groups[0].count == 1:
            function(**values)
            return
        statuses = [_ask_one(function, values, group, is_only=len(groups) == 1) for group in groups]
        failures = [status for status in statuses if status != EXIT_OK]
        if failures:
            raise typer.Exit(failures[0])

    return command


def _ask_one(function: Callable[..., None], values: dict[str, Any], group: Group, *, is_only: bool) -> int:
    """Do it for one group, and return the exit status."""
    if not is_only and values.get("output", OutputFormat.TABLE) is OutputFormat.TABLE:
        typer.echo(f"{chr(10) if group.index else ''}{group}")
    try:
        with output_about(str(group), group=group.to_text()):
            function(**values | {"group": str(group.index)})
    except typer.Exit as ended:
        return ended.exit_code
    return EXIT_OK
