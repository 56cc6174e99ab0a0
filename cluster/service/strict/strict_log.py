"""Logs what strict mode finds in a node."""

from __future__ import annotations

from pathlib import Path

import structlog

from ..agent import ClusteredServiceAgent
from .guard import StrictFinding, StrictGuard

logger = structlog.get_logger()


def log_findings(agent: ClusteredServiceAgent) -> StrictGuard:
    """Make a guard that logs each place as an error, with the position of the entry that was being processed."""

    def report(finding: StrictFinding) -> None:
        logger.error(
            "service.left_log",
            culprit=f"{Path(finding.path).name}:{finding.line}",  # `trimaran errors` counts each one by itself
            path=finding.path,
            line=finding.line,
            rule=finding.rule,
            what=finding.what,
            why=finding.why,
            instead=finding.instead,
            log_position=agent.log_position,
        )

    return StrictGuard(report)
