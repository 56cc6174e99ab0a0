"""What the service container asks of the consensus module."""

from __future__ import annotations

from collections.abc import Sequence

from ....service_api.types import ClusterSessionId
from ...core.consensus_module import ConsensusModule


class ContainerRequests:
    """What the service asks of the consensus module, at a log position."""

    def __init__(self, module: ConsensusModule) -> None:
        self._module = module

    def schedule_timer(self, correlation_id: int, deadline: int) -> None:
        """Set a timer of the service, or set it again."""
        self._module.is_deadline_stale = True
        self._module.timers.schedule(correlation_id, deadline)

    def cancel_timer(self, correlation_id: int) -> bool:
        """Forget a timer; whether there was one."""
        self._module.is_deadline_stale = True
        return self._module.timers.cancel(correlation_id)

    def close_session(self, session_id: ClusterSessionId) -> None:
        """Close a client's session."""
        self._module.is_deadline_stale = True
        self._module.sessions.on_service_close(session_id)

    def offer(self, service_id: int, payload: bytes) -> None:
        """Put a message of a service into the log."""
        self._module.is_deadline_stale = True
        self._module.service_messages.offer(service_id, payload)

    def check_room(self, service_id: int, lengths: Sequence[int]) -> None:
        """Refuse if messages of these lengths cannot all be put into the log."""
        self._module.service_messages.trackers[service_id].check_room(lengths)
