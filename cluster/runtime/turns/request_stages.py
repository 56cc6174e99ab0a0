"""Connects a `StageWatch` with the parts of a member that requests go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import effects as fx
from ...service.bounded_log_adapter import BoundedLogAdapter
from ..watching.stage_watch import StageWatch

if TYPE_CHECKING:
    from ..watching.stall_tracker import StallTracker
    from .agent import ConsensusModuleAgent
    from .log_control import LogControl


def watch_stages(
    stages: StageWatch,
    stalls: StallTracker,
    agent: ConsensusModuleAgent,
    log: LogControl,
    adapter: BoundedLogAdapter,
    *,
    follows: bool,
) -> None:
    """Have slow stages told, and follow requests from ingress to egress if wanted; once the agent is attached."""
    stages.slow_ns, stages.on_slow = stalls.slow_ns, stalls.on_span
    log.stages = adapter.egress_watch = stages
    if follows:
        agent.watch(fx.ElectionStarted, lambda effect: stages.drop())
        stages.follow()
