"""Admin requests: what a client asks of the cluster itself, over its session.

The one there is asks for a snapshot. It goes to the leader, once; the answer comes when the snapshot is taken, or was
not. When the leader is lost before that, nobody can tell: asking again is harmless.

`AdminTracker` is sans-IO, and `asking.take_snapshot` the coroutine around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from trimaran.service_api.errors import BackPressureError, ClusterError
from trimaran.service_api.types import ClusterSessionId, CorrelationId, TermId
from trimaran.service_api.wire.session import AdminRequest, AdminRequestType, AdminResponse, AdminResponseCode

from .egress_adapter import ClientSessionState
from .errors import AdminRefusedError, IndeterminateError
from .ingress_publisher import IngressPublisher

ADMIN_REQUEST_LIMIT: Final = 64
_UNKNOWN: Final = b"unknown"
_POSITION: Final = re.compile(rb"[0-9]{1,19}")

OnDone = Callable[[int | ClusterError], None]
"""Told the log position of what was done, or why it was not."""


class AdminTracker:
    """The admin requests of one session. Bound: `ADMIN_REQUEST_LIMIT` under way; more are refused."""

    def __init__(self, session: ClientSessionState) -> None:
        self._session = session
        self._waiting: dict[int, OnDone] = {}
        self._next_correlation_id = 1

    def __repr__(self) -> str:
        return f"<AdminTracker waiting={len(self._waiting)}>"

    def begin(self, publisher: IngressPublisher, on_done: OnDone) -> int:
        """Ask the leader for a snapshot; gives the number of the request.

        Raises:
            BackPressureError: too many are under way.
        """
        if len(self._waiting) >= ADMIN_REQUEST_LIMIT:
            raise BackPressureError(f"too many admin requests are pending: limit={ADMIN_REQUEST_LIMIT}")
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._waiting[correlation_id] = on_done
        request = AdminRequest(
            leadership_term_id=TermId(self._session.leadership_term_id),
            cluster_session_id=ClusterSessionId(self._session.cluster_session_id),
            correlation_id=CorrelationId(correlation_id),
            request_type=AdminRequestType.SNAPSHOT,
        )
        publisher.publish(request.encode())
        return correlation_id

    def forget(self, correlation_id: int) -> None:
        """Forget a request: its caller no longer waits."""
        self._waiting.pop(correlation_id, None)

    def on_response(self, response: AdminResponse) -> bool:
        """Take an answer. False if it is to nothing that was asked."""
        if response.cluster_session_id != self._session.cluster_session_id:
            return False
        on_done = self._waiting.pop(response.correlation_id, None)
        if on_done is None:
            return False
        step, _, position = response.payload.partition(b" ")
        if response.response_code is AdminResponseCode.OK:
            on_done(int(position) if _POSITION.fullmatch(position) else 0)
        elif step == _UNKNOWN:
            on_done(IndeterminateError(response.message))
        else:
            code = "UNKNOWN" if response.response_code is None else response.response_code.name
            on_done(AdminRefusedError(code, response.message))
        return True

    def fail(self, error: ClusterError) -> None:
        """Fail every pending request: no answer will come."""
        waiting, self._waiting = self._waiting, {}
        for on_done in waiting.values():
            on_done(error)
