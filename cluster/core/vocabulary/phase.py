"""The phase of a member: an election, a term that it leads, or a term that it follows.

Exactly one phase is there at a time. It owns what exists only in it, and says in a table which messages and events it
handles; `ConsensusModule` looks there first, and then in its own table, which has every type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .reason import Reason

Handler = Callable[[Any], Reason | None]  # Any: each handler takes the type that it is keyed by
"""Handles one message or event. Returns why an election has to begin, if it has to."""

Handlers = dict[type, Handler]

NEVER_NS = 1 << 62
"""A monotonic time that does not come: no deadline."""


class ConsensusPhase(Protocol):
    """An election or a term."""

    handlers: Handlers

    def poll(self) -> Reason | None:
        """Do what time has made due. Returns why an election has to begin, if it has to."""

    def next_deadline_ns(self) -> int:
        """The earliest monotonic time at which `poll` would act."""


class NoPhase:
    """Before the first election, and while one phase gives way to the next."""

    def __init__(self) -> None:
        self.handlers: Handlers = {}

    def __repr__(self) -> str:
        return "<NoPhase>"

    def poll(self) -> None:
        """Nothing is due."""

    def next_deadline_ns(self) -> int:
        """Nothing will be due."""
        return NEVER_NS
