"""The log lines of a service: once for the cluster, and not once for each member and each replay."""

from __future__ import annotations

from typing import Any, Final, Protocol

import structlog

from ...service_api import Role

logger: Final = structlog.get_logger()


class Speaker(Protocol):
    """Where the service is when it has something to say."""

    @property
    def role(self) -> Role:
        """Whether this member leads."""

    @property
    def is_replaying(self) -> bool:
        """Whether the entry is an old one."""

    @property
    def log_position(self) -> int:
        """Where the entry ends."""


class OnceLogger:
    """Implements `ServiceLogger`: the leader writes, at an entry that is new to it."""

    __slots__ = ("_fields", "_service_id", "_speaker")

    def __init__(self, speaker: Speaker, service_id: int, fields: dict[str, object] | None = None) -> None:
        self._speaker = speaker
        self._service_id = service_id
        self._fields = fields or {}

    def __repr__(self) -> str:
        return f"<OnceLogger service={self._service_id} speaks={self.speaks}>"

    @property
    def speaks(self) -> bool:
        """Whether a line would be written now."""
        return self._speaker.role is Role.LEADER and not self._speaker.is_replaying

    def bind(self, **fields: object) -> OnceLogger:
        """Return a logger that adds these fields to each line."""
        return OnceLogger(self._speaker, self._service_id, {**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """Write a line of level debug."""
        self._write(logger.debug, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Write a line of level info."""
        self._write(logger.info, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write a line of level warning."""
        self._write(logger.warning, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write a line of level error."""
        self._write(logger.error, event, fields)

    def _write(self, write: Any, event: str, fields: dict[str, object]) -> None:  # Any: structlog's own
        if self.speaks:
            where = {"service_id": self._service_id, "log_position": self._speaker.log_position}
            write(event, **{**where, **self._fields, **fields})
