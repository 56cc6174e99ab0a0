"""How a client names the group that it demands: as a parameter of its response channel, beside the cluster's id."""

from __future__ import annotations

from typing import Final

from ..channel import find_parameter
from .group import Group

GROUP_PARAMETER: Final = "group"
"""Its value is `index/count`."""


def with_group(channel: str, group: Group | None) -> str:
    """Add the demand for a group to a client's response channel; None is no demand."""
    return channel if group is None else f"{channel}|{GROUP_PARAMETER}={group.to_text()}"


def find_group_refusal(channel: str, own: Group) -> str | None:
    """Say why a client's response channel does not mean the own group; None if it does, or any.

    Raises:
        ConfigurationError: the channel names something that is no group.
    """
    text = find_parameter(channel, GROUP_PARAMETER)
    demanded = own if text is None else Group.parse(text)
    return None if demanded == own else describe_other_group(own, expected=demanded)


def describe_other_group(found: Group, *, expected: Group) -> str:
    """Say that another group was reached than was asked for."""
    return f"another group: this is {found}, expected {expected}"
