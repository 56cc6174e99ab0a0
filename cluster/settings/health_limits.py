"""From where on something is a problem of a member or a cluster: settings of a node, and flags of `trimaran health`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True, kw_only=True)
class HealthLimits:
    """The limits by which `cluster.documents.health` judges. Fields are settings of the same names."""

    max_lag_bytes: int
    max_stall_ms: int
    max_log_after_snapshot_bytes: int
    max_snapshot_age_ms: int
    min_disk_free_percent: int
    min_disk_time_ms: int
    max_upgrade_ms: int
