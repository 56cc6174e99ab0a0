"""Where a command that runs for long logs: standard error, which may fail without an end of the process."""

from __future__ import annotations

import structlog

from ...service_api.log_lines import STANDARD_ERROR, LogLineWriter


def new_log_writer() -> LogLineWriter:
    """Make the logger factory of structlog; lines that are lost are reported through structlog itself."""
    return LogLineWriter(STANDARD_ERROR, _report)


def _report(event: str, **fields: object) -> None:
    structlog.get_logger().error(event, **fields)
