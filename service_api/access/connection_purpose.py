"""What a connection is for: the gate counts by it, and a stack may encrypt some and not others."""

from __future__ import annotations

from enum import Enum


class Purpose(Enum):
    """What a connection is for. `DOCUMENTS` are asked for at the consensus endpoint, or at the control socket."""

    INGRESS = "ingress"
    """Clients and their sessions."""
    CONSENSUS = "consensus"
    """A member's messages to another."""
    DOCUMENTS = "documents"
    """Questions of operators, Spark and other members to a member: status, inspection, operations, snapshots."""
    LOG = "log"
    """The leader's live log to a follower."""
    CATCHUP = "catchup"
    """A replay of the log to a follower that lags behind."""
    ARCHIVE = "archive"
    """Control sessions and replays of an archive."""
    METRICS = "metrics"
    """Scrapers and probes over HTTP."""
