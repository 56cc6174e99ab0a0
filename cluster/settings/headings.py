"""The five headings under which the settings of a node stand, in a file, in help and on the page of the settings."""

from __future__ import annotations

from enum import Enum


class Heading(Enum):
    """A heading of settings. It is metadata of a field of `NodeConfig`; the fields stand in the order of headings."""

    CLUSTER = "the members, their service and TLS, and how they elect a leader"
    SESSIONS = "who may open a client session, how many there may be, and how long one lasts"
    DISK = "the log and the snapshots: how they are written, how long they are kept, and how damage is found"
    LIMITS = "the connections and the bytes that a member holds for its clients and its service"
    WATCHING = "metrics, logging and health, and what a member checks while it runs"

    @property
    def title(self) -> str:
        """The heading as it is written above its settings."""
        return f"Settings: {self.name.lower()}"
