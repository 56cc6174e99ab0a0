"""What a backup agent is told. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from ...settings.member_endpoints import MemberEndpoints
from .choosing import BackupSource
from .retention import KEEP_LOG, BackupRetention


@dataclass(slots=True, frozen=True, kw_only=True)
class BackupSettings:
    """The settings of one agent."""

    members: tuple[MemberEndpoints, ...]
    """Where to begin; who the members are now, the members say."""
    source: BackupSource = BackupSource.FOLLOWER
    from_snapshot: bool = False
    """Whether a new backup begins at the member's newest snapshot, and not where the member's log begins."""
    retention: BackupRetention = KEEP_LOG
    """The rule of what stays of the past."""
    query_interval_s: float = 10.0
    """Time between two queries: for newer snapshots, and for how far the cluster has come."""
    answer_timeout_s: float = 5.0
    """How long a member may take to answer, or to send what it has."""
    progress_timeout_s: float = 10.0
    """After so long without a byte, while others have committed more, another member is taken."""
    reset_delay_s: float = 1.0
    """The pause after a failure; it doubles up to `reset_delay_limit_s` while nothing comes."""
    reset_delay_limit_s: float = 30.0
