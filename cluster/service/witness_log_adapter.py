"""Walks the log of a witness, which runs no service: the consensus module learns what its entries say, nobody else.

A witness keeps what a member has to know without a service: the members, the terms and the clock, the feature level,
the sessions. What clients and services said to each other is passed over, as are the timers of services.
"""

from __future__ import annotations

from typing import Final

from ...service_api.types import ClusterSessionId
from ...service_api.wire.frame import UNFRAGMENTED_DATA, FrameLayout, HeaderField
from ...service_api.wire.log.messages import TimerEvent
from ...service_api.wire.session import SessionMessageHeader
from ...service_api.wire.session_frame import PAYLOAD_OFFSET, REQUEST_BLOCK, SESSION_BLOCK, SessionField
from .bounded_log_adapter import BoundedLogAdapter

_MESSAGE: Final = FrameLayout(
    HeaderField.FRAME_LENGTH, HeaderField.KIND, SessionField.BLOCK_AND_TEMPLATE, SessionField.TIMESTAMP
).head
_PASSED_OVER: Final = (SESSION_BLOCK, REQUEST_BLOCK)


class WitnessLogAdapter(BoundedLogAdapter):
    """Delivers to the consensus module alone."""

    def _deliver_messages(self, chunk: bytes, offset: int, end: int, position: int) -> int:
        """Pass over session messages and requests; otherwise as the method of the base."""
        agent, unpack = self._agent, _MESSAGE.unpack_from
        last = min(end, len(chunk) - PAYLOAD_OFFSET + 1)
        while offset < last:
            frame_length, kind, block, timestamp = unpack(chunk, offset)
            if kind != UNFRAGMENTED_DATA or block not in _PASSED_OVER or frame_length < PAYLOAD_OFFSET:
                break
            length = (frame_length + 31) & -32
            position += length
            offset += length
            agent.egress.time = timestamp
            agent.log_position = position
        return position

    _deliver_requests = _deliver_messages

    def _on_service_message(self, session_id: ClusterSessionId, timestamp: int, payload: memoryview) -> None:
        pass

    def _on_session_message(self, message: SessionMessageHeader, encoded: bytes) -> None:
        pass

    def _on_timer(self, event: TimerEvent, position: int) -> None:
        self._module.on_replay_timer_event(event)
