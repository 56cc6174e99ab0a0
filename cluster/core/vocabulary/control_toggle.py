"""The names of the actions that an operator can request, and of the steps that are reported to the operator."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Final


class ControlToggle(IntEnum):
    """The action that is under way, or none. Source: aeron.md §3.13; Aeron `ClusterControl.ToggleState`."""

    INACTIVE = 0
    NEUTRAL = 1
    SUSPEND = 2
    RESUME = 3
    SNAPSHOT = 4
    SHUTDOWN = 5
    ABORT = 6
    STANDBY_SNAPSHOT = 7
    SKIP_ENTRY = 8
    """Ours, as what follows; Aeron has none of the kind."""
    TRANSFER = 9
    """The leader hands its term over."""
    CHANGE_MEMBERS = 10
    RAISE_FEATURE_LEVEL = 11
    CLOSE_SESSIONS = 12


class ActionStep(StrEnum):
    """How far an action has come."""

    REFUSED = "refused"
    """Nothing was done, and nothing will be."""
    APPENDED = "appended"
    """The leader has put it into its log, or marked its place there; it may not commit."""
    HOLDING = "holding"
    """The leader takes no input, so that the member that is to lead comes to have the whole log."""
    ASKED = "asked"
    """That member has the whole log, durably, and was asked to stand at once."""
    COMMITTED = "committed"
    """It will be done, under any leader."""
    SNAPSHOT_TAKEN = "snapshot-taken"
    """The leader has the snapshot of a shutdown, durably."""
    ACKNOWLEDGED = "acknowledged"
    """A follower has done its part of a termination and stops."""
    DONE = "done"
    """The leader has done it."""
    FAILED = "failed"
    """The leader tried and could not; other members may have done it."""
    UNKNOWN = "unknown"
    """Leadership changed on the way: it may or may not take effect."""


FINAL_STEPS: Final = frozenset({ActionStep.REFUSED, ActionStep.DONE, ActionStep.FAILED, ActionStep.UNKNOWN})
"""After one of these nothing more is heard of an action."""
