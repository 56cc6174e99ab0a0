"""Logs what ended a node, with the facts of the disk or the recording that it was about."""

from __future__ import annotations

from typing import Any

import structlog

from ....archive import ArchiveError
from ....archive.disk_errors import disk_facts_of
from ....service_api.errors import leaves_of

logger = structlog.get_logger()


def log_node_failure(error: BaseException) -> None:
    """Log one event for each cause: its reason, and where there are such, operation, file, offset and position."""
    for cause in leaves_of(error):
        facts: dict[str, Any] = disk_facts_of(cause)
        if isinstance(cause, ArchiveError):
            facts |= {"recording_id": cause.recording_id, "position": cause.position}
        shown = {name: value for name, value in facts.items() if value is not None}
        logger.critical("node.failed", error=type(cause).__name__, reason=str(cause), **shown)
